"""Warn of questions that an arm was trained on and is evaluated on.

The compiler refuses equal sources; this finds equal questions, from whatever files they come: in any spelling, between
the marks of a chat, behind a wording of the study, and generated ones in whatever words a task puts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.graph.task import Graph
from reodsl.ir.chat import question_key
from reodsl.ir.data import normal_question

_SHOWN = 60


def overlaps(graph: Graph, folders: Mapping[str, Path], of: str | None = None) -> list[Diagnostic]:
    """A warning (W0802) for every two tables of questions, one trained on before the other is evaluated, that share some.

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
            first = shared[0] if len(shared[0]) <= _SHOWN else shared[0][: _SHOWN - 1] + "…"
            warnings.append(
                warning(
                    "W0802",
                    f"{len(shared)} of {len(questions[judged])} questions of `{judged}` are trained on, in `{trained}`",
                    where=str(folders[judged] / "questions.parquet"),
                    notes=(f"the first is: {first}", f"it matters to {', '.join(arms)}"),
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
            (trained, one) for trained in _trained_on(graph, task.inputs["start"]) for one in judged
        ):
            names = arms.setdefault(pair, [])
            if task.arm is not None and task.arm not in names:
                names.append(task.arm)
    for (trained, one), names in arms.items():
        yield trained, one, names


def _trained_on(graph: Graph, task_id: str) -> list[str]:
    """The `data` tasks that a checkpoint was trained on, the last stage first; of a selection those of its pools."""
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
    """The prompts and wordings of a graph that put words around a question, as patterns of what they make of it."""
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
    """The texts of a table of questions, each with all that makes another one the same."""
    try:
        table = pl.read_parquet(folder / "questions.parquet", glob=False)
        kept = [name for name in ("question", "bare") if name in table.columns]
        rows = table.select(kept).unique(maintain_order=True).rows()
    except (OSError, pl.exceptions.PolarsError):
        return {}
    return {row[0]: _keys(row, templates) for row in rows if row and row[0] is not None}


def _keys(texts: Sequence[str | None], templates: Sequence[re.Pattern[str]]) -> frozenset[str]:
    """The keys of a question and of its bare form, and of what is left without the words that a study asks with."""
    keys: set[str] = set()
    more = {question_key(text) for text in texts if text is not None}
    while more:
        keys |= more
        inside = {match[1].strip() for key in more for each in templates if (match := each.fullmatch(key))}
        more = inside - keys
    return frozenset(keys)
