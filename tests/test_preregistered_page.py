"""docs/EVIDENCE.md is what the kept numbers say; constants are chosen on some seeds and tested on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import benchmarks.lengths_against_reo as study
from benchmarks import tables
from reodsl.graph.lower import lower
from reodsl.graph.task import Task
from reodsl.language import compile_file

ROOT = Path(__file__).resolve().parents[1]
LEVELS = {"base": 50.0, "vanilla": 20.0, "exp_5": 2.0, "exp_10": 2.1, "oracle": 6.0, "linear_5": 3.0}
LEVELS |= {"norm_05": 12.0, "norm_10": 4.0, "norm_20": 1.0, "norm_40": 9.0, "norm_80": 9.0}
LEVELS |= {"harmony_1": 8.0, "harmony_2": 2.0, "harmony_5": 9.0, "budget_80": 15.0, "budget_40": 1.0}
LEVELS |= {"exp_1": 9.0, "exp_2": 4.0, "exp_3": 3.0}


def keep_numbers(folder: Path, seeds: range) -> None:
    """Write numbers of every arm; norm_20 is cheap in tokens and dear in accuracy, and only at the seeds that choose."""
    noise = np.random.default_rng(1)
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "benchmark": part,
            "accuracy": 0.8 - (0.05 if arm in ("norm_20", "budget_40") and seed < 6 else 0.0),
            "length": 30.0,
            "reg": level + noise.normal(0, 0.5),
        }
        for arm, level in LEVELS.items()
        for seed in seeds
        for part in ("easy", "mean")
    ]
    pl.DataFrame(rows).write_csv(folder / "lengths_8.csv")


def test_the_page_is_made_of_the_kept_numbers() -> None:
    page = study.PAGE.read_text()
    assert tables.place(page, study.texts()) == page


def test_constants_are_chosen_by_the_first_seeds_and_tested_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_numbers(tmp_path, range(1, 26))
    monkeypatch.setattr(tables, "KEPT", tmp_path)
    text = study.texts()["lengths_8"]
    rows = {
        line.split("|")[1].strip(): line.split("|") for line in text.splitlines() if line.startswith("| ")
    }
    by_norm = rows["length reward normalised in the group"]
    assert by_norm[2].strip() == "norm_10", "norm_20 loses 5 points of accuracy where constants are chosen"
    assert by_norm[3].strip().startswith("-2.")
    assert by_norm[-2].strip() == "ahead"
    assert rows["length-harmonizing reward"][2].strip() == "harmony_2"
    assert rows["length-harmonizing reward"][-2].strip() == "not separated"
    assert rows["token budget"][2].strip() == "budget_80"
    assert [cell.strip() for cell in rows["exp_5, exp_10"][-3:-1]] == ["yes", "yes"]
    assert [cell.strip() for cell in rows["exp_5, oracle"][-3:-1]] == ["no", "no"]
    assert "(20 seeds)" in text


def test_a_seed_is_computed_alike_alone_and_among_others() -> None:
    """So seeds may be runs of their own: trainings, evaluations and the oracle's budgets are those of one run of all."""

    def tasks(seeds: str) -> dict[str, Task]:
        found = compile_file(
            ROOT / "specs" / "miniature" / "lengths_against_reo.reo", sets={"seeds": seeds}
        ).spec
        assert found is not None
        return {task.id: task for task in lower(found).tasks if task.kind not in ("score", "report")}

    alone, among = tasks("[7]"), tasks("[1,2,7]")
    assert {task.kind for task in alone.values()} >= {"train", "evaluate", "budgets"}
    assert alone == {name: among[name] for name in alone}


def test_few_seeds_say_how_many_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_numbers(tmp_path, range(1, 4))
    monkeypatch.setattr(tables, "KEPT", tmp_path)
    assert study.texts()["lengths_8"] == "3 of 25 seeds are done."


def test_a_probability_is_students() -> None:
    """Differences 1, 2 and 3 have t = 2 sqrt(3) with two degrees of freedom: p = 1 - t / sqrt(2 + t²) = 0.0742."""
    found = study.p_value({1: 2.0, 2: 4.0, 3: 6.0}, {1: 1.0, 2: 2.0, 3: 3.0})
    t = 2 * 3**0.5
    assert found == pytest.approx(1 - t / (2 + t * t) ** 0.5, rel=1e-3)


def test_two_arms_are_the_same_within_the_far_end_of_the_90_percent_interval() -> None:
    """Differences -0.5, 0 and 0.8: mean 0.1, deviation 0.6557; the quantile of two degrees of freedom at 95% is 2.9200."""
    found = study.same_within({1: -0.5, 2: 0.0, 3: 0.8}, {1: 0.0, 2: 0.0, 3: 0.0})
    assert found == pytest.approx(0.1 + 2.92 * 0.6557 / 3**0.5, rel=1e-3)


def test_the_choosing_seeds_alone_choose() -> None:
    """Later seeds, however good, choose nothing; an arm that loses more than a point of accuracy is not chosen."""
    arms = [arm for rivals in study.RIVALS.values() for arm in rivals]
    reg = {arm: {seed: float(place) for seed in range(1, 7)} for place, arm in enumerate(arms)}
    accuracy = {arm: dict.fromkeys(range(1, 7), 0.9) for arm in (*arms, "vanilla")}
    reg["norm_80"][6] = -1000.0
    accuracy["harmony_1"] = dict.fromkeys(range(1, 7), 0.88)
    assert [name.split("`")[1] for name in study.chosen(reg, accuracy).split(", ")] == [
        "norm_05",
        "harmony_2",
        "budget_80",
    ]
