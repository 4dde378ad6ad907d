"""What is held in memory of responses and forced answers does not grow with the samples of a question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.arm_scores import arm_scores
from runners.evaluate.tables import curves, summary

GRID = (0, 4, 8)
QUESTIONS = 5


def written(folder: Path, samples: int) -> Path:
    """An evaluation of `QUESTIONS` questions with so many samples each."""
    folder.mkdir()
    rows = [
        {
            "benchmark": "easy",
            "question": f"q{q}",
            "sample": s,
            "text": "?",
            "gold": "1",
            "response": "1 " * s,
        }
        | {"tokens": 3 + s % 5, "finish": "stop", "answer": "1", "correct": (q + s) % 2 == 0}
        | {"unsettled": "timeout" if s == 3 else None}
        for q in range(QUESTIONS)
        for s in range(samples)
    ]
    frame = pl.DataFrame(rows)
    frame.write_parquet(folder / "samples.parquet")
    forced = frame.select("benchmark", "question", "sample", "answer", "correct", "unsettled")
    forced.join(pl.DataFrame({"budget": GRID}), how="cross").write_parquet(folder / "forced.parquet")
    shown = forced.filter(pl.col("sample") == 0).join(pl.DataFrame({"budget": GRID}), how="cross")
    shown.with_columns(characters=1, forced_text=None).write_parquet(folder / "examples.parquet")
    return folder


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The heights of all frames that are collected; files of samples and forced answers may only be scanned."""
    heights: list[int] = []
    collect, read = pl.LazyFrame.collect, pl.read_parquet

    def collected(self: pl.LazyFrame, *args: Any, **more: Any) -> Any:
        assert more.get("engine") == "streaming"
        found = collect(self, *args, **more)
        heights.append(found.height)
        return found

    def refused(path: Path, *args: Any, **more: Any) -> Any:
        assert Path(path).name not in ("samples.parquet", "forced.parquet")
        return read(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pl.LazyFrame, "collect", collected)
        patch.setattr(pl, "read_parquet", refused)
        yield heights


READERS: dict[str, Callable[[Path], object]] = {
    "scores": lambda folder: arm_scores(folder, "arm"),
    "curves": lambda folder: curves(folder / "forced.parquet", ["easy"]),
    "summary": lambda folder: summary(folder / "samples.parquet", folder / "forced.parquet", ["easy"]),
}


@pytest.mark.parametrize("reader", READERS)
def test_ten_times_the_samples_are_no_more_rows_in_memory(
    reader: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few, many = written(tmp_path / "few", 4), written(tmp_path / "many", 40)
    with watched(monkeypatch) as first:
        READERS[reader](few)
    with watched(monkeypatch) as second:
        READERS[reader](many)
    # `read_parquet` collects too where it is asked for what is small, and the grid and a count of rows are.
    assert first == second
    assert sum(first) <= QUESTIONS * (len(GRID) + 1) + len(GRID) + 1


@pytest.mark.parametrize("lot", [1, 7, 60])
def test_scores_are_the_same_whatever_is_read_at_once(lot: int, tmp_path: Path) -> None:
    folder = written(tmp_path / "some", 4)
    (whole, grid), (parts, same) = arm_scores(folder, "arm"), arm_scores(folder, "arm", lot)
    assert grid == same == GRID
    forced = pl.read_parquet(folder / "forced.parquet")
    for q in range(QUESTIONS):
        for column, budget in enumerate(GRID):
            own = forced.filter((pl.col("question") == f"q{q}") & (pl.col("budget") == budget))
            assert whole.forced["easy"][q, column] == own["correct"].mean()
    for one, other in ((whole.forced, parts.forced), (whole.accuracy, parts.accuracy)):
        assert (one["easy"] == other["easy"]).all()
    assert (whole.length["easy"] == parts.length["easy"]).all()


def test_a_question_without_a_budget_is_told(tmp_path: Path) -> None:
    folder = written(tmp_path / "some", 4)
    forced = pl.read_parquet(folder / "forced.parquet")
    lacking = (pl.col("question") == "q3") & (pl.col("budget") == 4)
    forced.filter(~lacking).write_parquet(folder / "forced.parquet")
    with pytest.raises(Problem, match="14 forced scores for 5 questions at 3 budgets"):
        arm_scores(folder, "arm")
