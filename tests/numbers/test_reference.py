"""What keeps curves from being compared with a frontier: other models, other benchmarks, points too far apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.numbers.curves import (
    Curve,
    ReferenceFrontier,
    average,
    check_base,
    of_other_benchmarks,
    same_model,
    select_benchmarks,
    too_sparse,
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", True),
        ("Qwen3-4B", "Qwen/Qwen3-4B", True),
        ("mine/Qwen3-4B", "Qwen/Qwen3-4B", False),
        ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Base", False),
        ("Qwen3-4B", "Qwen3-8B", False),
        ("folder(models/a)", "hub(models/a)", False),
    ],
)
def test_names_of_models(one, other, same):
    assert same_model(one, other) is same
    assert same_model(other, one) is same


def test_all_models_of_the_curves_are_the_frontiers():
    edge = ReferenceFrontier({}, ("A/one", "B/two"))
    assert check_base(edge, ["A/one", "two"], "these go back") is None
    fault = check_base(edge, ["A/one", "C/three"], "these go back")
    assert fault.message == "the frontier is of A/one, B/two, and these go back to C/three"
    assert fault.help == "take a frontier of C/three"
    copy = check_base(edge, ["folder(three)"], "these go back")
    assert copy.help.startswith('name it `hub("A/one")`')


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("minerva_math", "minerva"),
        ("MinervaMath", "minerva"),
        ("AIME-2024", "aime24"),
        ("AIME 2025", "aime25"),
        ("AMC 2023", "amc23"),
        ("AIME24", "aime24"),
    ],
)
def test_a_benchmark_by_another_spelling_is_refused_with_the_frontiers_name(spelling, name):
    names = ("aime24", "aime25", "amc23", "minerva")
    flat = dict.fromkeys(names, Curve((0, 8), (0.0, 1.0)))
    there = [spelling if each == name else each for each in names]
    fault = of_other_benchmarks(flat, there, "it")
    assert fault.code == "E0425"
    assert fault.help == f"name benchmarks as the frontier does, if `{spelling}` is `{name}`"


@given(st.sets(st.integers(0, 400), min_size=2), st.sets(st.integers(0, 400), min_size=2))
def test_a_sparse_curve_is_one_with_a_stretch_that_holds_points_and_none_of_its_own(budgets, points):
    """The slow way: each token's nearest budgets, for tokens at which REG is taken."""
    grid, curve = sorted(points), sorted(budgets)
    wide = False
    for point in grid:
        below = [budget for budget in curve if budget <= point]
        above = [budget for budget in curve if budget >= point]
        if below and above:
            stretch = min(above[0], grid[-1]) - max(below[-1], grid[0])
            wide |= stretch > max((grid[-1] - grid[0]) / 16, 1)
    assert (too_sparse(curve, grid, "it") is not None) is wide


def test_what_is_shared():
    flat = {name: Curve((0, 8), (n / 4, n / 4)) for n, name in enumerate("abc")}
    assert select_benchmarks(flat, [["b", "a"], ["a", "b"]]) == {"a": flat["a"], "b": flat["b"]}
    for asked in ([["a"], ["b"]], [["a", "d"]], [["d"]]):
        assert select_benchmarks(flat, asked) == {"Average": average(flat)}
    mean = {"Average": flat["a"]}
    assert select_benchmarks(mean, [["a", "b"]]) == mean
    assert of_other_benchmarks(flat, "cab", "it") is None
