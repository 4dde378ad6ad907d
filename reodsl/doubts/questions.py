"""Warn of questions that hold the marks of a chat, of doubtful references, and of questions both trained and judged on.

The compiler refuses equal sources; this finds equal questions, from whatever files they come: in any spelling, between
the marks of a chat, behind a wording of the study, and generated ones in whatever words a task puts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.diagnostics.model import shorten_text
from reodsl.doubts.left_out import Findings, findings_of
from reodsl.graph.task import Graph, Task
from reodsl.ir.chat import find_turn, question_key
from reodsl.ir.data import normal_question

_LONGEST = 300
"""Characters of a mark that a warning writes out."""
_NAMED = 5


def chats(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return a warning (W0714) for every table whose questions hold the marks of a known chat format."""

    def read(task: Task, folder: Path) -> list[Diagnostic]:
        table = pl.read_parquet(folder / "questions.parquet", columns=["question"], glob=False)
        return marks_left(table["question"].drop_nulls().to_list(), task.id)

    return findings_of(graph, folders, "data", read)


def marks_left(questions: Sequence[str], where: str) -> list[Diagnostic]:
    """Return the warning (W0714) of questions with marks of a chat, with the setting that takes off those of the first."""
    turns = [(text, turn) for text in questions if (turn := find_turn(text)) is not None]
    if not turns:
        return []
    text, first = turns[0]
    parts = [
        f"{name}: {json.dumps(part.strip(), ensure_ascii=False)}"
        for name, part in (("before", first.before), ("after", first.after))
        if part.strip() and len(part) <= _LONGEST
    ]
    return [
        warning(
            "W0714",
            f"{len(turns)} of {len(questions)} questions hold the marks of a chat ({first.format})",
            where=where,
            notes=(f"the first is: {shorten_text(text)}",),
            help=f"a model's prompt puts its own around a question: write `strip = marks({', '.join(parts) or '…'})`",
        )
    ]


def doubtful(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return warnings of references that no parser reads (W0716) and of those that disagree (W0717)."""

    def read(task: Task, folder: Path) -> list[Diagnostic]:
        facts = json.loads((folder / "references.json").read_text("utf-8"))
        return [*_unread(facts["unread"], facts["rows"]), *_disagreeing(facts["disagree"], task)]

    return findings_of(graph, folders, "data", read)


def _unread(facts: Mapping[str, Any], rows: int) -> list[Diagnostic]:
    if not facts["count"]:
        return []
    first = facts["first"]
    return [
        warning(
            "W0716",
            f"{facts['count']} of {rows} references are read by no parser: nothing but their own text counts as right",
            where=_place(first[0]),
            notes=_list_lines([f"{_place(row)}: `{_answer(row)}`" for row in first], facts["count"]),
            help="mend them in the data, or mark their answers by a box or `#### `",
        )
    ]


def _disagreeing(facts: Mapping[str, Any], task: Task) -> list[Diagnostic]:
    if not facts["count"]:
        return []
    dropped = task.payload["data"].get("duplicates") == "drop"
    pairs = [
        f"{_place(second)}: `{_answer(second)}`, and {_place(one)}: `{_answer(one)}`, "
        f"to: {shorten_text(one['question'])}"
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
            notes=_list_lines(pairs, count),
            help="find out which answer is right, and take the other row out of the data",
        )
    ]


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['source']}, row {row['row']}"


def _list_lines(lines: Sequence[str], count: int) -> list[str]:
    rest = count - min(len(lines), _NAMED)
    return [*lines[:_NAMED], *([f"and {rest} more"] if rest else [])]


def _answer(row: Mapping[str, Any]) -> str:
    return shorten_text(row["answer"].replace("\x1e", " or "))


def overlaps(graph: Graph, folders: Mapping[str, Path], of: str | None = None) -> list[Diagnostic]:
    """Return a warning (W0802) for every table of questions that shares some with one trained on before it is evaluated.

    `folders` holds the results by task id; what is not there, or cannot be read, is passed over. With `of`, only what the
    table of that task shares with others.
    """
    questions: dict[str, dict[str, frozenset[str]]] = {}
    templates = _templates(graph)
    warnings = []
    for trained, judged, arms in _pairs(graph):
        if trained not in folders or judged not in folders or of not in (None, trained, judged):
            continue
        for name in (trained, judged):
            if name not in questions:
                questions[name] = _questions(folders[name], templates)
        known = frozenset().union(*questions[trained].values())
        shared = [text for text, keys in questions[judged].items() if keys & known]
        if shared:
            warnings.append(
                warning(
                    "W0802",
                    f"{len(shared)} of {len(questions[judged])} questions of `{judged}` are trained on, in `{trained}`",
                    where=str(folders[judged] / "questions.parquet"),
                    notes=(f"the first is: {shorten_text(shared[0])}", f"it matters to {', '.join(arms)}"),
                    help="take them out of what is trained on, and run again; the accuracies are too high until then",
                )
            )
    return warnings


def _pairs(graph: Graph) -> Iterator[tuple[str, str, list[str]]]:
    """Tables that are trained on and evaluated on by one arm, with the arms of which that is so."""
    arms: dict[tuple[str, str], list[str]] = {}
    for task in graph.tasks:
        if task.kind != "evaluate":
            continue
        judged = [source for role, source in task.inputs.items() if role.startswith("data:")]
        for pair in (
            (trained, one) for trained in _find_training_data(graph, task.inputs["start"]) for one in judged
        ):
            names = arms.setdefault(pair, [])
            if task.arm is not None and task.arm not in names:
                names.append(task.arm)
    for (trained, one), names in arms.items():
        yield trained, one, names


def _find_training_data(graph: Graph, task_id: str) -> list[str]:
    """Return the `data` tasks that a checkpoint was trained on, the last stage first; of a selection those of its pools."""
    tables = []
    while graph[task_id].kind == "train":
        inputs = graph[task_id].inputs
        tables += _questions_of(graph, inputs["data"])
        task_id = inputs["start"]
    return list(dict.fromkeys(tables))


def _questions_of(graph: Graph, task_id: str) -> list[str]:
    task = graph[task_id]
    if task.kind == "data":
        return [task_id]
    if task.kind == "sample":
        return _questions_of(graph, task.inputs["data"])
    return [one for source in task.inputs.values() for one in _questions_of(graph, source)]


def _templates(graph: Graph) -> list[re.Pattern[str]]:
    """Return the prompts and wordings of a graph that put words around a question, as patterns of what they make of it."""
    texts = dict.fromkeys(text for task in graph.tasks for text in _asking(task.payload))
    patterns = []
    for text in texts:
        # A question's key has its white space run together, and so have the words around it.
        before, _, after = (normal_question(part) for part in text.partition("{question}"))
        if before or after:
            parts = (re.escape(part).replace(re.escape("{budget}"), r"\d+") for part in (before, after))
            patterns.append(re.compile(" ?(.+) ?".join(parts), re.DOTALL))
    return patterns


def _asking(value: Any) -> Iterator[str]:
    """Every text of a payload with the place of a question in it."""
    if isinstance(value, str):
        if "{question}" in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _asking(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _asking(item)


def _questions(folder: Path, templates: Sequence[re.Pattern[str]]) -> dict[str, frozenset[str]]:
    """Return the texts of a table of questions, each with all that makes another one the same."""
    try:
        table = pl.read_parquet(folder / "questions.parquet", glob=False)
        kept = [name for name in ("question", "bare") if name in table.columns]
        rows = table.select(kept).unique(maintain_order=True).rows()
    except (OSError, pl.exceptions.PolarsError):
        return {}
    return {row[0]: _keys(row, templates) for row in rows if row and row[0] is not None}


def _keys(texts: Sequence[str | None], templates: Sequence[re.Pattern[str]]) -> frozenset[str]:
    """Return the keys of a question and of its bare form, and of what is left without the words that a study asks with."""
    keys: set[str] = set()
    more = {question_key(text) for text in texts if text is not None}
    while more:
        keys |= more
        inside = {match[1].strip() for key in more for each in templates if (match := each.fullmatch(key))}
        more = inside - keys
    return frozenset(keys)
