"""The envelope of curves: best per benchmark and budget, who wins, and what cannot be enveloped."""

import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.curves import Curve
from reodsl.numbers.frontier import envelope

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
        ({"base": BASE, "short": {**SHORT, "b": Curve((0, 32), (0.5, 0.5))}}, None, "E0426"),
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


def test_unequal_grids_are_told_apart():
    with pytest.raises(Problem) as caught:
        envelope({"x": {"b": Curve((0, 64), (0, 0))}, "y": {"b": Curve((0, 32, 64), (0, 0, 0))}})
    (found,) = caught.value.diagnostics
    assert found.where == "b"
    assert found.notes == ("only `y`: [32]",)
