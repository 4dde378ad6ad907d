"""Questions that are trained on and evaluated on: found in any spelling, through stages, and told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.task import Graph, Task
from reodsl.report.overlap import overlaps


def task(name: str, kind: str, arm: str = "", **inputs: str) -> Task:
    return Task(
        name, kind, {}, {role.replace("__", ":"): own for role, own in inputs.items()}, arm=arm or None
    )  # type: ignore[arg-type]


@pytest.fixture
def graph() -> Graph:
    """Two stages, the first one on data of its own, and two arms that are evaluated on `held`."""
    return Graph(
        (
            task("base.model", "model"),
            task("first.data", "data"),
            task("second.data", "data"),
            task("held.data", "data"),
            task("one.train", "train", "one", start="base.model", data="first.data"),
            task("two.train", "train", "two", start="one.train", data="second.data"),
            task("base.eval", "evaluate", "base", start="base.model", data__held="held.data"),
            task("two.eval.s1", "evaluate", "two", start="two.train", data__held="held.data"),
            task("two.eval.s2", "evaluate", "two", start="two.train", data__held="held.data"),
        )
    )


def folders(root: Path, **tables: list[str]) -> dict[str, Path]:
    found = {}
    for name, questions in tables.items():
        place = root / name
        place.mkdir()
        pl.DataFrame({"id": questions, "question": questions}).write_parquet(place / "questions.parquet")
        found[f"{name}.data"] = place
    return found


def test_shared_questions_are_found_in_any_spelling_and_told_once(
    graph: Graph, tmp_path: Path, refusal: Callable[..., None]
) -> None:
    there = folders(tmp_path, first=["WHAT is  1+1?", "z"], second=["y"], held=["what is 1+1?", "b", "Ｙ "])
    first, second = sorted(overlaps(graph, there), key=lambda found: found.message)
    assert first.message == "1 of 3 questions of `held.data` are trained on, in `first.data`"
    assert second.message == "1 of 3 questions of `held.data` are trained on, in `second.data`"
    assert first.notes == ("the first is: what is 1+1?", "it matters to two")
    refusal("commands/W0802.txt", Problem(first))


def test_apart_is_nothing(graph: Graph, tmp_path: Path) -> None:
    assert overlaps(graph, folders(tmp_path, first=["a"], second=["b"], held=["c"])) == []


def test_what_is_not_there_is_passed_over(graph: Graph, tmp_path: Path) -> None:
    there = folders(tmp_path, first=["a"], held=["a"])
    (there["first.data"] / "questions.parquet").write_text("no table")
    assert overlaps(graph, there) == []
    assert overlaps(graph, {}) == []
