"""Failures of verifiers and of the reward's Python are told, grouped by reason, with how they are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from reodsl.diagnostics.render import render
from reodsl.doubts import find_failing, warn_failing
from reodsl.graph.task import Task
from reodsl.numbers.unsettled import count_reasons, say_counted

TRAIN, EVALUATE = Task("mine.train", "train", {}, {}), Task("mine.eval", "evaluate", {}, {})
OWN = "`p_none.py:score`"


def rollouts(folder: Path, reasons: list[list[str] | None]) -> Path:
    path = folder / "rollouts.parquet"
    pl.DataFrame({"unsettled": reasons}, schema={"unsettled": pl.List(pl.String)}).write_parquet(path)
    return path


def test_a_reward_that_fails_is_told_with_its_reasons(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    none = f"reward: {OWN} returned a wrong value: it gave None for 'it isn't {{}} …, which is a NoneType"
    raised = f"reward: {OWN} failed: ValueError: could not read {{}}, line 3"
    rollouts(
        tmp_path,
        [
            *([none.format(n)] for n in range(35)),
            *([raised.format(word)] for word in ("a b", "'c'", "d, e")),
            None,
        ],
    )
    (found,) = find_failing(TRAIN, tmp_path)
    golden("runs/W0810.txt", render([found], {}) + "\n")


def test_reasons_differ_by_function_exception_and_line_alone(tmp_path: Path) -> None:
    one, other = f"reward: {OWN} failed: KeyError: ", f"reward: {OWN} failed: TypeError: "
    reasons = [f"{one}'x', line 3", f"{one}'y', line 3", f"{one}'y', line 4", f"{other}x, line 3"]
    timeouts = [
        "timeout: it took more than its 5 s",
        "timeout",
        "failed: `a1.py:f` said '7'",
        "failed: `a2.py:f` said '8'",
    ]
    path = rollouts(tmp_path, [[each] for each in (*reasons, *timeouts)])
    assert sorted(count for _, count in count_reasons([path, tmp_path / "none"])) == [1, 1, 1, 1, 1, 1, 2]


def test_how_failures_count_is_said_of_those_that_there_are(tmp_path: Path) -> None:
    assert say_counted({"verifier_timeouts": 1}) == "answers that are not judged count as wrong"
    assert "wrong" not in say_counted({"reward_failures": 2})
    assert "the least reward of its step" in say_counted({"reward_failures": 2, "verifier_failures": 0})
    pl.DataFrame({"unsettled": ["timeout", None]}).write_parquet(tmp_path / "samples.parquet")
    (found,) = find_failing(EVALUATE, tmp_path)
    assert "1 answer exceeded the verifier's time limit" in found.message
    assert "count as wrong" in found.notes[-1]
    assert find_failing(TRAIN, tmp_path / "none") == []


def test_a_failing_step_is_told_before_its_reasons_are_known() -> None:
    found = warn_failing(TRAIN, {"reward_failures": 4.0, "reward": 0.5}, ())
    assert found.message == "4 responses made the reward's Python fail so far"
