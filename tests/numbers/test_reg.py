"""REG: closed forms, a slow reference, the paper's grid and averages, and what cannot be scored."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics import Problem
from reodsl.numbers.curves import Curve, average
from reodsl.numbers.reg import (
    change_pct,
    excludes_zero,
    integration_grid,
    paper_grid,
    reg,
    reg_table,
    trapezoid_weights,
)


def flat(value, end=16384):
    return Curve((0, end), (value, value))


def test_the_papers_grid():
    assert paper_grid() == tuple(sorted({64 * i for i in range(16)} | {1024 * i for i in range(1, 17)}))
    assert paper_grid(192) == (0, 64, 128, 192)
    assert paper_grid(100) == (0, 64, 100)
    assert paper_grid(3000) == (*range(0, 1024, 64), 1024, 2048, 3000)
    assert paper_grid(32768)[-17:] == tuple(range(16384, 32769, 1024))


def test_a_constant_gap_is_a_rectangle():
    assert reg(flat(0.75), flat(0.5)) == 0.25 * 16384
    assert reg(flat(0.75), flat(0.5), l_max=1000) == 0.25 * 1000
    assert reg(flat(0.75), flat(0.5), grid=(0, 64, 192)) == 0.25 * 192


def test_it_is_signed_and_never_clipped():
    assert reg(flat(0.5), flat(0.75)) == -0.25 * 16384
    # ahead on the first half by as much as behind on the second
    crossing = Curve((0, 16384), (1.0, 0.0))
    assert reg(flat(0.5), crossing) == 0
    assert reg(flat(0.5), flat(0.5)) == 0


def test_a_triangle():
    assert reg(Curve((0, 16384), (0.0, 1.0)), flat(0)) == 16384 / 2


def test_the_grid_decides_between_its_points():
    # accuracy that rises between grid points is linear to the integral, as the paper's rule has it
    step = Curve((0, 63, 64, 128), (0.0, 0.0, 1.0, 1.0))
    assert reg(flat(1, 128), step, grid=(0, 64, 128)) == 32
    assert reg(flat(1, 128), step, grid=(0, 63, 64, 128)) == 63.5


@st.composite
def curves(draw, end=320):
    inner = draw(st.sets(st.integers(1, end - 1), max_size=8))
    budgets = (0, *sorted(inner), end)
    return Curve(
        budgets, tuple(draw(st.lists(st.floats(0, 1), min_size=len(budgets), max_size=len(budgets))))
    )


@given(curves(), curves(), st.integers(1, 320), st.none() | st.sets(st.integers(0, 319), min_size=1))
def test_against_a_slow_reference(frontier, curve, l_max, points):
    grid = None if points is None else (*sorted(points), 320)
    if grid is not None and grid[0] >= l_max:
        with pytest.raises(Problem):
            reg(frontier, curve, l_max, grid)
        return
    used = sorted({p for p in (grid or range(0, 1024, 64)) if p < l_max} | {l_max})
    slow = 0.0
    for a, b in itertools.pairwise(used):
        gap_a = frontier.at(a) - curve.at(a)
        gap_b = frontier.at(b) - curve.at(b)
        slow += (b - a) * (gap_a + gap_b) / 2
    assert reg(frontier, curve, l_max, grid) == pytest.approx(slow, abs=1e-9)
    assert reg(curve, frontier, l_max, grid) == pytest.approx(-slow, abs=1e-9)


@given(st.sets(st.integers(0, 5000), min_size=2))
def test_trapezoid_weights_sum_to_the_width(points):
    grid = sorted(points)
    assert sum(trapezoid_weights(grid)) == grid[-1] - grid[0]


def with_regs(values):
    """Curves whose REG against accuracy 1 throughout is as given."""
    return {name: flat(1 - value / 16384) for name, value in values.items()}


def test_the_papers_averages_and_changes():
    """Main table, DeepSeek-R1-Distill-Qwen-1.5B: means over benchmarks, and changes of means (not means of changes)."""
    names = ("AIME 2024", "AIME 2025", "AMC 2023", "Minerva Math")
    vanilla = dict(zip(names, (1266.2, 1077.7, 1742.6, 641.3), strict=True))
    base = dict(zip(names, (2239.0, 1485.9, 2425.1, 970.7), strict=True))
    changes = dict(zip(names, (-46.6, -64.4, -63.6, -51.7), strict=True))
    reo = {name: vanilla[name] * (1 + changes[name] / 100) for name in names}
    models = {"base": with_regs(base), "vanilla": with_regs(vanilla), "reo": with_regs(reo)}
    edge = {name: flat(1) for name in names}
    table = reg_table(edge, models, relative_to="vanilla", questions=1000)
    assert table["base", "mean"].reg == pytest.approx(1780.2, abs=0.1)
    assert table["vanilla", "mean"].reg == pytest.approx(1181.9, abs=0.1)
    assert table["vanilla", "mean"].change_pct == 0
    assert table["reo", "mean"].change_pct == pytest.approx(-57.6, abs=0.05)
    assert table["reo", "AMC 2023"].change_pct == pytest.approx(-63.6)
    assert [(row.model, row.benchmark) for row in table.rows[:5]] == [("base", n) for n in (*names, "mean")]
    assert table.nested()["reo"].keys() == {*names, "mean"}


def test_a_frontier_of_means_scores_the_mean_of_a_model(all_published):
    shape = average(all_published["qwen3_4b"])
    edge = {"Average": shape}
    lower = Curve(shape.budgets, tuple(a * 0.5 for a in shape.accuracy))
    upper = Curve(shape.budgets, tuple(a * 0.9 for a in shape.accuracy))
    table = reg_table(edge, {"m": {"AIME 2024": lower, "AMC 2023": upper}})
    area = sum(w * shape.at(p) for p, w in zip(table.grid, trapezoid_weights(table.grid), strict=True))
    assert table["m", "mean"].reg == pytest.approx(0.3 * area)
    assert table["m", "Average"].reg == table["m", "mean"].reg
    assert reg_table(edge, {"m": edge})["m", "mean"].reg == 0


def test_changes_are_relative_to_the_size_of_the_baseline():
    assert change_pct(50, 200) == -75
    assert change_pct(-50, -200) == 75
    assert change_pct(1, 0) is None


def test_percent_of_what_may_be_nothing_is_left_out():
    """Accuracy 0.5 of 25 questions has a standard error of 0.1: 1638 tokens of REG, times Student's 2.064 for 24 degrees."""
    edge, short = {"a": flat(0.5 + 0.207)}, {"a": flat(0.5 + 0.205)}
    models = {"base": {"a": flat(0.5)}, "other": {"a": flat(0.4)}}

    def change(frontier, questions):
        table = reg_table(frontier, models, relative_to="base", questions=questions)
        assert table["other", "a"].difference == pytest.approx(1638.4)
        return table["other", "a"].change_pct

    assert change(edge, 25) == pytest.approx(100 * 0.1 / 0.207)
    assert change(short, 25) is None
    assert change(short, 26) is not None
    assert change(edge, None) is None
    # The mean of two benchmarks errs by less than either.
    two = {name: {"a": curves["a"], "b": curves["a"]} for name, curves in models.items()}
    table = reg_table({"a": short["a"], "b": short["a"]}, two, relative_to="base", questions=25)
    assert [table["other", each].change_pct is None for each in ("a", "b", "mean")] == [True, True, False]
    whole = reg_table({"Average": short["a"]}, two, relative_to="base", questions=25)
    assert whole["other", "mean"].change_pct is not None


def test_no_question_of_a_curve_has_a_larger_error():
    """1,000 sets of 40 questions whose scores go together however: their standard error is below the one assumed."""
    rng = np.random.default_rng(0)
    points, weights = (0, 64, 128, 256), np.array(trapezoid_weights((0, 64, 128, 256)))
    for _ in range(1000):
        scores = rng.uniform(size=(40, 4)) < rng.uniform(size=(40 if rng.uniform() < 0.5 else 1, 1))
        curve = Curve(points, tuple(scores.mean(axis=0).tolist()))
        found = (scores @ weights).std() / np.sqrt(40)
        quantile = 2.0227
        assert not excludes_zero(0.999 * quantile * found, {"a": curve}, "a", points, 40)


A, B = flat(0.5), flat(0.25)


@pytest.mark.parametrize(
    ("frontier", "models", "options", "code"),
    [
        ({"a": A}, {}, {}, "E0421"),
        ({}, {"m": {"a": A}}, {}, "E0421"),
        ({"a": A}, {"m": {}}, {}, "E0421"),
        ({"a": A, "b": A}, {"m": {"a": A}}, {}, "E0425"),
        ({"a": A}, {"m": {"a": A, "b": A}}, {}, "E0425"),
        ({"a": A, "mean": A}, {"m": {"a": A, "mean": A}}, {}, "E0425"),
        ({"a": A}, {"m": {"a": flat(0.5, 256)}}, {}, "E0424"),
        ({"a": flat(0.5, 256)}, {"m": {"a": A}}, {}, "E0424"),
        ({"a": A}, {"m": {"a": Curve((64, 16384), (0, 0))}}, {}, "E0424"),
        ({"a": A}, {"m": {"a": A}}, {"relative_to": "x"}, "E0114"),
        ({"a": A}, {"m": {"a": A}}, {"l_max": 0}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"l_max": 2**40}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": ()}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": (0,)}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": (0, 64, 64)}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": (-64, 64)}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": (0, 64), "l_max": 128}, "E0404"),
        ({"a": A}, {"m": {"a": A}}, {"grid": (64, 128), "l_max": 32}, "E0404"),
    ],
)
def test_what_cannot_be_scored(frontier, models, options, code):
    with pytest.raises(Problem) as caught:
        reg_table(frontier, models, **options)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert caught.value.diagnostics[0].help


def test_a_grid_is_cut_at_the_end():
    assert integration_grid(100, (0, 64, 128)) == (0, 64, 100)
    assert integration_grid(None, (0, 64, 128)) == (0, 64, 128)
    assert integration_grid(None, None) == paper_grid(16384)
