"""Stages in which no question's responses ever earned differently are named; others, and what is unreadable, are not."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reodsl.report.unlearnt import unlearnt


def stage(folder: Path, arm: str, number: int, metrics: dict[str, list[float | None]]) -> None:
    place = folder / "arms" / arm / "stages" / str(number)
    place.mkdir(parents=True)
    pl.DataFrame(metrics).write_parquet(place / "metrics.parquet")


def test_only_stages_without_any_advantage_are_named(tmp_path: Path) -> None:
    stage(tmp_path, "vanilla.s1", 0, {"equal_groups": [1.0, 0.9, 1.0]})
    stage(tmp_path, "base.s1", 0, {"loss": [1.0, 0.5]})
    stage(tmp_path, "gone.s1", 0, {"equal_groups": []})
    stage(tmp_path, "torn.s1", 0, {"equal_groups": [1.0, None]})
    assert unlearnt(tmp_path) == []
    stage(tmp_path, "mine.s1", 0, {"equal_groups": [1.0, 1.0]})
    (found,) = unlearnt(tmp_path)
    assert found.code == "W0803"
    assert found.where == str(tmp_path / "arms" / "mine.s1")
    assert "nothing was learned in `mine.s1`:" in found.message
    stage(tmp_path, "mine.s1", 1, {"equal_groups": [0.5]})
    stage(tmp_path, "other.s1", 0, {"equal_groups": [1.0]})
    (found,) = unlearnt(tmp_path)
    assert "`mine.s1`, stage 1; `other.s1`:" in found.message
    assert found.where == str(tmp_path / "arms")


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    assert unlearnt(tmp_path) == []
    stage(tmp_path, "mine.s1", 0, {"equal_groups": [1.0]})
    (tmp_path / "arms" / "mine.s1" / "stages" / "0" / "metrics.parquet").write_bytes(b"no parquet")
    (tmp_path / "arms" / "stray.txt").write_text("")
    assert unlearnt(tmp_path) == []


def test_where_most_responses_have_no_answer_that_is_the_remedy(tmp_path: Path) -> None:
    stage(tmp_path, "mine.s1", 0, {"equal_groups": [1.0, 1.0], "answered": [0.0, 0.1]})
    (found,) = unlearnt(tmp_path)
    assert found.help is not None
    assert "`answer` in the data" in found.help
    stage(tmp_path, "other.s1", 0, {"equal_groups": [1.0], "answered": [1.0]})
    (found,) = unlearnt(tmp_path)
    assert found.help is not None
    assert "easier questions" in found.help
