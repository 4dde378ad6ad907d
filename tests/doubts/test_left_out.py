"""What a training leaves out is reported with the setting that decides it: while it begins, and once it is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.render import render
from reodsl.doubts import find_in_results, left_out_counts, report_left_out
from reodsl.graph.task import Graph, Task


def training(method: dict[str, object]) -> Task:
    return Task("tiny.train.s1", "train", {"stage": {"method": method}}, {})


PPO = training({"kind": "ppo", "max_prompt": 13})


@pytest.mark.parametrize(("dropped", "code"), [(21, "W0807"), (3, "W0807"), (2, "N0807")])
def test_more_than_a_tenth_is_a_warning(dropped: int, code: str, golden: Callable[[str, str], None]) -> None:
    """2 of 24 are a twelfth, 3 an eighth."""
    (found,) = report_left_out(PPO, {"questions": 24 - dropped, "left_out_too_long": dropped})
    assert found.code == code
    if dropped != 3:
        golden(f"runs/{code}.txt", render([found], {}) + "\n")


@pytest.mark.parametrize("unit", ["traces", "pairs"])
def test_a_setting_is_that_of_the_method(unit: str) -> None:
    (found,) = report_left_out(training({"kind": "sft", "max_tokens": 60}), {unit: 5, "left_out_too_long": 5})
    assert found.message.startswith(f"5 of 10 {unit} are not trained on")
    assert found.notes == ("excluded by `max_tokens = 60 tokens`",)


def test_each_reason_is_counted_of_all() -> None:
    long, bare = report_left_out(
        PPO, {"questions": 2, "left_out_too_long": 5, "left_out_without_budget": 3, "reward": 0.5}
    )
    assert long.message.startswith("5 of 10 questions")
    assert bare.message.startswith("3 of 10 questions")
    assert bare.notes == ("excluded by `question_min(…)`",)


DATA = Task("mine.data", "data", {"data": {"duplicates": "drop"}}, {})


@pytest.mark.parametrize(("rows", "dropped", "code"), [(20, 2, "N0807"), (20, 3, "W0807")])
def test_rows_that_a_data_set_drops_are_reported_of_it_alone(rows: int, dropped: int, code: str) -> None:
    """2 of 22 are an eleventh, 3 of 23 more than an eighth."""
    (found,) = report_left_out(DATA, {"rows": rows, "left_out_repeated": dropped})
    assert found.code == code
    assert (
        found.message
        == f"{dropped} of {rows + dropped} rows are dropped: those that ask an earlier question again"
    )
    assert found.notes == ("excluded by `duplicates = drop`",)
    facts = {"questions": rows, "left_out_repeated": dropped}
    assert report_left_out(PPO, facts) == []
    (counted,) = left_out_counts({}, facts)
    assert (counted.count, counted.total) == (dropped, rows + dropped)


def test_nothing_left_out_is_nothing_to_report() -> None:
    assert report_left_out(PPO, {"questions": 5, "left_out_too_long": 0}) == []
    assert report_left_out(PPO, {"reward": 0.5, "loss": 0.1}) == []


def test_results_are_read_and_unreadable_ones_passed_over(tmp_path: Path) -> None:
    graph = Graph((PPO,))
    assert find_in_results(graph, {PPO.id: tmp_path}) == {PPO.id: []}
    (tmp_path / "train.json").write_text(
        json.dumps({"questions": 3, "left_out_too_long": 21, "ended": "steps"})
    )
    ((found,),) = find_in_results(graph, {PPO.id: tmp_path}).values()
    assert (found.code, found.where) == ("W0807", PPO.id)
    (tmp_path / "train.json").write_text("{")
    assert find_in_results(graph, {PPO.id: tmp_path}) == {PPO.id: []}
    assert find_in_results(Graph((DATA,)), {DATA.id: tmp_path}) == {DATA.id: []}
    (tmp_path / "left_out.json").write_text('{"rows": 3, "left_out_repeated": 2}')
    ((dropped,),) = find_in_results(Graph((DATA,)), {DATA.id: tmp_path}).values()
    assert (dropped.code, dropped.where) == ("W0807", DATA.id)
