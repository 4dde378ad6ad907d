"""Responses without an answer and trainings that learned nothing are named, with what would mend them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Diagnostic
from reodsl.diagnostics.render import render
from reodsl.doubts import find_in_results, find_unanswered, unlearnt, warn_unanswered_step
from reodsl.graph.task import Graph, Task

BOXED = {"verifier": "math", "answer": [{"kind": "boxed"}], "tolerance": 1e-4}
TASK = Task("mine.eval", "evaluate", {"suite": {"benchmarks": [{"name": "easy", "data": BOXED}]}}, {})


def warned(folder: Path, rows: list[tuple[str, str, str | None]]) -> list[Diagnostic]:
    """What is told of responses as (text, finish, answer)."""
    responses, finish, answers = (list(each) for each in zip(*rows, strict=True))
    table = {"benchmark": ["easy"] * len(rows), "response": responses, "finish": finish, "answer": answers}
    pl.DataFrame(table, schema_overrides={"answer": pl.String}).write_parquet(folder / "samples.parquet")
    return find_unanswered(TASK, folder)


def test_responses_in_another_form_are_told_with_what_reads_them(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    silent = [(f"so it is {n}.\n#### {n}", "stop", None) for n in range(7)]
    (found,) = warned(tmp_path, [*silent, (r"\boxed{4}", "stop", "4"), ("and so", "length", None)])
    assert found.code == "W0804"
    golden("runs/W0804.txt", render([found], {}) + "\n")


@pytest.mark.parametrize(
    ("end", "advice"),
    [("#### 14", 'after("####")'), ("the answer is 14", "last_number"), ("I do not know", "regex")],
)
def test_the_advice_follows_how_responses_end(end: str, advice: str, tmp_path: Path) -> None:
    (found,) = warned(tmp_path, [(end, "stop", None)] * 8)
    assert found.help is not None
    assert advice in found.help


def test_thinking_that_is_skipped_is_named() -> None:
    data = {**BOXED, "thinking": "skip"}
    found = warn_unanswered_step(Task("mine.train", "train", {"stage": {"data": data}}, {}), 0.25)
    assert found.message.endswith("`answer = boxed` found no answer after the thinking")
    assert found.help is not None
    assert "remove `thinking = skip`" in found.help


def test_as_many_answers_as_not_and_responses_that_were_cut_are_no_reason(tmp_path: Path) -> None:
    assert warned(tmp_path, [("#### 1", "stop", None), (r"\boxed{1}", "stop", "1")] * 8) == []
    assert warned(tmp_path, [("and so", "length", None)] * 20) == []
    assert warned(tmp_path, [("#### 1", "stop", None)] * 7) == []


def test_what_is_not_there_or_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    assert find_in_results(Graph((TASK,)), {}) == {}
    (tmp_path / "samples.parquet").write_bytes(b"no parquet")
    assert find_in_results(Graph((TASK,)), {TASK.id: tmp_path}) == {TASK.id: []}


def test_a_step_of_training_is_told_of_by_its_share() -> None:
    found = warn_unanswered_step(Task("mine.train", "train", {"stage": {"data": BOXED}}, {}), 0.25)
    assert found.message == "75% of the responses that ended have no answer: `answer = boxed` found no answer"


def stage(folder: Path, arm: str, number: int, metrics: dict[str, list[float | None]]) -> None:
    place = folder / "arms" / arm / "stages" / str(number)
    place.mkdir(parents=True)
    pl.DataFrame(metrics).write_parquet(place / "metrics.parquet")


def test_only_stages_without_any_advantage_are_named(tmp_path: Path) -> None:
    stage(tmp_path, "vanilla.s1", 0, {"equal_groups": [1.0, 0.9, 1.0]})
    stage(tmp_path, "base.s1", 0, {"loss": [1.0, 0.5]})
    stage(tmp_path, "gone.s1", 0, {"equal_groups": []})
    stage(tmp_path, "torn.s1", 0, {"equal_groups": [1.0, None]})
    # A teacher has a gradient of its own; a divergence from the start has none as long as nothing was learned.
    stage(tmp_path, "taught.s1", 0, {"equal_groups": [1.0], "kl": [0.1], "grad_norm": [0.15]})
    assert unlearnt(tmp_path) == []
    stage(tmp_path, "mine.s1", 0, {"equal_groups": [1.0, 1.0], "kl": [0.0, 0.0], "grad_norm": [1e-8, 0.0]})
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
    assert "setting `answer` finds" in found.help
    stage(tmp_path, "other.s1", 0, {"equal_groups": [1.0], "answered": [1.0]})
    (found,) = unlearnt(tmp_path)
    assert found.help is not None
    assert "easier questions" in found.help
