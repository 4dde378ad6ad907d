"""Schedules from a text, and published frontiers by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.language.chosen_reward import read_frontier_by_name as named_frontier
from reodsl.language.chosen_reward import read_schedule
from reodsl.numbers.greedy import approximation_error, greedy


@pytest.mark.parametrize(
    ("text", "budgets", "l_max"),
    [
        ("exp(from: 1K tokens, to: 32K tokens, n: 5)", (1024, 2048, 4096, 8192, 16384), 32768),
        ("linear(to: 32K tokens, n: 3)", (8192, 16384, 24576), 32768),
        ("[1K tokens, 4K, 32K]", (1024, 4096), 32768),
        ("explicit([10, 20], to: 40)", (10, 20), 40),
    ],
)
def test_schedules(text: str, budgets: tuple[int, ...], l_max: int) -> None:
    schedule = read_schedule(text)[0]
    assert schedule is not None
    assert (schedule.budgets, schedule.l_max) == (budgets, l_max)


@pytest.mark.parametrize("name", ["qwen3_4b", "qwen3_8b", "deepseek_1_5b", "deepseek_7b"])
def test_greedy_by_name_and_by_file_is_the_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    curves = named_frontier(f"std.paper.{name}").curves
    expected = greedy(curves, 32768, 5, 64)
    assert abs(approximation_error(curves, expected)) < 0.01
    assert read_schedule(f"greedy(std.paper.{name}, to: 32K tokens, n: 5, step: 64 tokens)")[0] == expected
    data = {key: {"budgets": curve.budgets, "accuracy": curve.accuracy} for key, curve in curves.items()}
    Path("edge.json").write_text(json.dumps(data))
    assert read_schedule('greedy("edge.json", to: 32K tokens, n: 5, step: 64 tokens)')[0] == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exp(from: 1K tokens, to: 32K tokens)", "E0310"),
        ("exp(from: 4 tokens, to: 16 tokens, n: 12)", "E0410"),
        ("[4K tokens, 1K tokens]", "E0410"),
        ("greedy(std.paper.qwen4, to: 32K tokens, n: 5)", "E0204"),
        ('greedy("nowhere.json", to: 32K tokens, n: 5)', "E0421"),
        ('steps(separator: "x", keywords: ["Wait"])', "E0415"),
        ("exp(", "E0131"),
        ("5", "E0301"),
        ("correct(y)", "E0308"),
        ("expo(n: 5)", "E0201"),
        ("", "E0140"),
    ],
)
def test_refused(text: str, code: str) -> None:
    schedule, diagnostics, _ = read_schedule(text)
    assert schedule is None
    assert code in {each.code for each in diagnostics}


def test_an_unknown_frontier() -> None:
    with pytest.raises(Problem) as found:
        named_frontier("qwen4")
    assert found.value.diagnostics[0].code == "E0201"
