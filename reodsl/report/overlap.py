"""Questions that an arm is evaluated on and was trained on: a graph and its results in, warnings out.

The compiler refuses equal sources; this finds equal questions, from whatever files they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.graph.task import Graph
from reodsl.ir.data import normal_question

_SHOWN = 60


def overlaps(graph: Graph, folders: Mapping[str, Path], of: str | None = None) -> list[Diagnostic]:
    """A warning (W0802) for every two tables of questions, one trained on before the other is evaluated, that share some.

    `folders` holds the results by task id; what is not there, or cannot be read, is passed over. With `of`, only what the
    table of that task shares with others.
    """
    questions: dict[str, dict[str, str]] = {}
    found = []
    for trained, judged, arms in _pairs(graph):
        if trained not in folders or judged not in folders or of not in (None, trained, judged):
            continue
        for name in (trained, judged):
            if name not in questions:
                questions[name] = _questions(folders[name])
        shared = [text for key, text in questions[judged].items() if key in questions[trained]]
        if shared:
            first = shared[0] if len(shared[0]) <= _SHOWN else shared[0][: _SHOWN - 1] + "…"
            found.append(
                warning(
                    "W0802",
                    f"{len(shared)} of {len(questions[judged])} questions of `{judged}` are trained on, in `{trained}`",
                    where=str(folders[judged] / "questions.parquet"),
                    notes=(f"the first is: {first}", f"it matters to {', '.join(arms)}"),
                    help="take them out of what is trained on, and run again; the accuracies are too high until then",
                )
            )
    return found


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
    """The tasks whose questions a checkpoint was trained on, the last stage first."""
    found = []
    while graph[task_id].kind == "train":
        inputs = graph[task_id].inputs
        found.append(inputs["data"])
        task_id = inputs["start"]
    return found


def _questions(folder: Path) -> dict[str, str]:
    """The texts of a table of questions by what makes two of them the same."""
    try:
        column = pl.read_parquet(folder / "questions.parquet", columns=["question"])["question"]
    except (OSError, pl.exceptions.PolarsError):
        return {}
    return {normal_question(text): text for text in column.drop_nulls()}
