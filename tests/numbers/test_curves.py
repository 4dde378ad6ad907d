"""Curves: interpolation, averages and what is not a curve; the best of several, who wins, and what has none."""

from __future__ import annotations

import math

import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.curves import Curve, average, check_cover, envelope, same_benchmarks


def code(call, *args):
    with pytest.raises(Problem) as caught:
        call(*args)
    (found,) = caught.value.diagnostics
    assert found.help
    return found.code, found.message


def test_it_is_linear_between_points():
    curve = Curve((0, 10, 30), (0.0, 0.5, 0.6))
    assert [curve.at(x) for x in (0, 5, 10, 20, 30)] == pytest.approx([0, 0.25, 0.5, 0.55, 0.6])
    assert curve.at(0.5) == pytest.approx(0.025)


def test_nothing_is_known_outside():
    assert code(Curve((5, 10), (0.1, 0.2)).at, 4)[0] == "E0424"
    assert code(Curve((5, 10), (0.1, 0.2)).at, 11)[0] == "E0424"


def test_the_average_is_over_benchmarks_even_on_unlike_grids():
    curves = {"a": Curve((0, 10), (0.0, 1.0)), "b": Curve((0, 4, 8), (0.2, 0.4, 0.4))}
    mean = average(curves)
    assert mean.budgets == (0, 4, 8)
    assert mean.accuracy == pytest.approx((0.1, 0.4, 0.6))
    assert average({"a": curves["a"]}) == curves["a"]


def test_curves_without_common_budgets_have_no_average():
    assert code(average, {"a": Curve((0, 1), (0, 0)), "b": Curve((2, 3), (0, 0))})[0] == "E0424"
    assert code(average, {})[0] == "E0421"


@pytest.mark.parametrize(
    ("budgets", "accuracy", "expected", "words"),
    [
        ((), (), "E0421", "empty"),
        ((0, 1), (0.1,), "E0421", "2 budgets and 1 accuracy"),
        ((0, 0), (0.1, 0.2), "E0421", "the budget 0 is listed twice"),
        ((4, 2), (0.1, 0.2), "E0421", "2 follows 4"),
        ((0, 1.5), (0.1, 0.2), "E0421", "1.5"),
        ((0, "64"), (0.1, 0.2), "E0421", "'64'"),
        ((-1, 1), (0.1, 0.2), "E0421", "-1"),
        ((0, 2**40), (0.1, 0.2), "E0421", str(2**40)),
        ((0, 1), (0.1, math.nan), "E0421", "accuracy[1] is nan"),
        ((0, 1), (0.1, math.inf), "E0421", "accuracy[1] is inf"),
        ((0, 1), (0.1, None), "E0421", "not a number"),
        ((0, 1), (0.1, True), "E0421", "not a number"),
        ((0, 1), (6.1, 49.2), "E0421", "looks like percent"),
        ((0, 1), (6.1, 100.0), "E0421", "looks like percent"),
        ((0, 1), (0.1, -0.2), "E0421", "outside 0 to 1"),
        ((0, 1), (0.1, 4000.0), "E0421", "outside 0 to 1"),
    ],
)
def test_what_is_no_curve(budgets, accuracy, expected, words):
    found, message = code(Curve, budgets, accuracy)
    assert found == expected
    assert words in message


@pytest.mark.parametrize(("largest", "percent"), [(100, True), (100.5, False)])
def test_only_numbers_up_to_100_look_like_percent(largest, percent):
    assert ("looks like percent" in code(Curve, (0, 1), (6.1, largest))[1]) == percent


def test_benchmarks_have_to_match():
    curve = Curve((0,), (0.5,))
    same_benchmarks({"a": curve}, ["a"], "x", "y")
    found, message = code(same_benchmarks, {"a": curve, "c": curve}, ["a", "b"], "`x`", "y")
    assert found == "E0425"
    assert message == "`x` lacks b and has c beside them"


BASE = {"a": Curve((0, 64, 128), (0.1, 0.2, 0.9)), "b": Curve((0, 64), (0.5, 0.5))}
SHORT = {"a": Curve((0, 64, 128), (0.1, 0.6, 0.7)), "b": Curve((0, 64), (0.25, 0.75))}


def test_best_of_each_point():
    found = envelope({"base": BASE, "short": SHORT})
    assert found.curves == {"a": Curve((0, 64, 128), (0.1, 0.6, 0.9)), "b": Curve((0, 64), (0.5, 0.75))}
    assert [(w.benchmark, w.budget, w.accuracy, w.models) for w in found.winners] == [
        ("a", 0, 0.1, ("base", "short")),
        ("a", 64, 0.6, ("short",)),
        ("a", 128, 0.9, ("base",)),
        ("b", 0, 0.5, ("base",)),
        ("b", 64, 0.75, ("short",)),
    ]


def test_one_model_is_its_own_frontier():
    assert envelope({"base": BASE}).curves == BASE


def test_it_stops_where_told():
    assert envelope({"base": BASE, "short": SHORT}, to=64).curves["a"].budgets == (0, 64)


@pytest.mark.parametrize(
    ("models", "to", "code"),
    [
        ({}, None, "E0421"),
        ({"base": {}}, None, "E0421"),
        ({"base": BASE, "short": {"a": SHORT["a"]}}, None, "E0425"),
        ({"base": BASE, "short": {**SHORT, "b": Curve((0, 32), (0.5, 0.5))}}, None, "E0424"),
        ({"base": BASE}, 128, "E0424"),
        ({"base": {"a": Curve((64, 128), (0.5, 0.5))}}, 32, "E0424"),
        ({"base": {**BASE, "mean": BASE["a"]}}, None, "E0425"),
    ],
)
def test_what_has_no_envelope(models, to, code):
    with pytest.raises(Problem) as caught:
        envelope(models, to)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert caught.value.diagnostics[0].help


def test_a_curve_that_begins_too_late_is_helped_at_its_beginning():
    with pytest.raises(Problem) as caught:
        check_cover(Curve((64, 128), (0.5, 0.5)), (32, 128), "m")
    assert caught.value.diagnostics[0].help.startswith("evaluate at 32 tokens too")
    with pytest.raises(Problem) as caught:
        check_cover(Curve((32, 64), (0.5, 0.5)), (32, 128), "m")
    assert caught.value.diagnostics[0].help.startswith("integrate to 64")


def test_unequal_grids_are_told_apart():
    with pytest.raises(Problem) as caught:
        envelope({"x": {"b": Curve((0, 64), (0, 0))}, "y": {"b": Curve((0, 32, 64), (0, 0, 0))}})
    (found,) = caught.value.diagnostics
    assert found.where == "b"
    assert found.notes == ("only `y`: [32]",)
