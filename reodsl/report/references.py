"""Warn of references that no parser reads, or that disagree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, warning
from reodsl.graph.task import Graph, Task

_SHOWN = 60
_NAMED = 5


def doubtful(graph: Graph, folders: Mapping[str, Path]) -> dict[str, list[Diagnostic]]:
    """Warnings of references that no parser reads (W0716) and of those that disagree (W0717), by the task of their table.

    `folders` holds the results by task id; what is not there, or cannot be read, is passed over.
    """
    warnings = {}
    for task in graph.tasks:
        if task.kind == "data" and task.id in folders:
            try:
                facts = json.loads((folders[task.id] / "references.json").read_text("utf-8"))
            except (OSError, ValueError):
                continue
            warnings[task.id] = [
                *_unread(facts["unread"], facts["rows"]),
                *_disagreeing(facts["disagree"], task),
            ]
    return warnings


def _unread(facts: Mapping[str, Any], rows: int) -> list[Diagnostic]:
    if not facts["count"]:
        return []
    first = facts["first"]
    return [
        warning(
            "W0716",
            f"{facts['count']} of {rows} references are read by no parser: nothing but their own text counts as right",
            where=_place(first[0]),
            notes=_listed([f"{_place(row)}: `{_short(row['answer'])}`" for row in first], facts["count"]),
            help="mend them in the data, or mark their answers by a box or `#### `",
        )
    ]


def _disagreeing(facts: Mapping[str, Any], task: Task) -> list[Diagnostic]:
    if not facts["count"]:
        return []
    dropped = task.payload["data"].get("duplicates") == "drop"
    pairs = [
        f"{_place(second)}: `{_short(second['answer'])}`, and {_place(one)}: `{_short(one['answer'])}`, "
        f"to: {_short(one['question'])}"
        for one, second in facts["first"]
    ]
    count = facts["count"]
    kept = "the first of each is kept" if dropped else "each row is graded by its own"
    return [
        warning(
            "W0717",
            f"{count} row{'s' if count > 1 else ''} disagree{'' if count > 1 else 's'} with an earlier one "
            f"on the answer to the same question; {kept}",
            where=_place(facts["first"][0][1]),
            notes=_listed(pairs, count),
            help="find out which answer is right, and take the other row out of the data",
        )
    ]


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['source']}, row {row['row']}"


def _listed(lines: Sequence[str], count: int) -> list[str]:
    rest = count - min(len(lines), _NAMED)
    return [*lines[:_NAMED], *([f"and {rest} more"] if rest else [])]


def _short(text: str) -> str:
    line = " ".join(text.replace("\x1e", " or ").split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
