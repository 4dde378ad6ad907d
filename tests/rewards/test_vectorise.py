"""The vectorised rewards equal the reference interpreter on random rewards and random groups."""

import math
import warnings
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from reodsl.diagnostics import Problem
from reodsl.ir.expression import FUNCTIONS, PriorSplit, PythonTerm, WeightAt
from reodsl.ir.reward import Budgets, DenseReward, NamedValue, Part, ResponseGroup, Reward, RewardedResponse
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import evaluate, measure_each, vectorise
from tests.rewards.expressions import (
    bare,
    call,
    correct,
    e,
    forced,
    given,
    length,
    minus,
    op,
    stat,
    weight,
    where,
)
from tests.rewards.reward_groups import arrays

LONGEST = 12
OF_ONE = sorted(name for name, function in FUNCTIONS.items() if function.arity == 1)


def places_to_cut(dense: bool):
    constants = st.integers(-1, LONGEST + 2).map(float)
    return constants | st.just("L") if dense else constants


@lru_cache
def expressions(responses: tuple[str, ...], names: tuple[str, ...], dense: bool, depth: int):
    """Random expressions over these response variables and numbers, aggregates nested at most twice."""
    numbers = st.sampled_from([-2.0, 0.0, 0.5, 1.0, 3.0]).map(e)
    group_only = [name for name in responses if not name.startswith("ref")]
    leaves = [numbers, st.sampled_from(responses).map(length), st.sampled_from(responses).map(correct)]
    leaves.append(st.sampled_from(group_only).map(lambda of: given("gold", of)))
    leaves.append(st.sampled_from(group_only).map(lambda of: PythonTerm(function="gold", of=of)))
    leaves.append(st.builds(forced, places_to_cut(dense), st.sampled_from(group_only)))
    leaves.append(st.builds(bare, places_to_cut(dense), st.sampled_from(group_only)))
    if names:
        leaves.append(st.sampled_from(names).map(e))
    if "M" in names:
        leaves.append(st.sampled_from(group_only).map(lambda of: forced("M", of)))
        leaves.append(
            st.sampled_from(["trapezoid", "half_first"]).map(lambda rule: WeightAt(rule=rule, of="M"))
        )
    if dense:
        leaves.append(st.sampled_from(["trapezoid", "uniform", "half_first"]).map(weight))
        leaves.append(st.just(PriorSplit()))
        leaves.append(st.sampled_from(group_only).map(lambda of: forced(PriorSplit(), of)))
    leaf = st.one_of(leaves)
    if depth == 0:
        return leaf
    inner = expressions(responses, names, dense, depth - 1)
    binary = st.builds(op, inner, st.sampled_from(["+", "-", "*", "/", "<", ">=", "and", "or"]), inner)
    functions = st.builds(call, st.sampled_from(OF_ONE), inner)
    several = st.builds(call, st.sampled_from(["min", "max"]), inner, inner) | st.builds(
        call, st.just("clip"), inner, inner, inner
    )
    if "M" not in names:
        at_splits = expressions(responses, (*names, "M"), dense, depth - 1)
        over_splits = st.builds(
            lambda fn, value, keep, empty: stat(fn, value, over="splits", var="M", where=keep, empty=empty),
            st.sampled_from(["mean", "std", "min", "max", "sum", "count", "median"]),
            at_splits,
            st.none() | at_splits,
            st.none() | inner,
        )
    else:
        over_splits = leaf
    parts = [
        over_splits,
        leaf,
        binary,
        functions,
        several,
        st.builds(where, inner, inner, inner),
        st.builds(minus, inner),
    ]
    if len(responses) < 3:
        for over in ("group", "ref"):
            var = f"{'ref' if over == 'ref' else 'z'}{len(responses)}"
            within = expressions((*responses, var), names, dense, depth - 1)
            parts.append(
                st.builds(
                    lambda fn, value, keep, empty, over=over, var=var: stat(
                        fn, value, over=over, var=var, where=keep, empty=empty
                    ),
                    st.sampled_from(["mean", "std", "min", "max", "sum", "count", "median"]),
                    within,
                    st.none() | within,
                    st.none() | inner,
                )
            )
    return st.one_of(parts)


@st.composite
def rewards(draw):
    first = draw(expressions(("y",), (), False, 2))
    second = draw(expressions(("y",), ("a",), False, 2))
    lets = (NamedValue(name="a", value=first), NamedValue(name="b", value=second))
    split = Budgets(budgets=(2, 5), l_max=LONGEST)
    if draw(st.booleans()):
        one, two = (draw(expressions(("y",), ("a", "b"), False, 2)) for _ in range(2))
        if draw(st.booleans()):
            return Reward(
                name="r", lets=lets, parts=(Part(value=one), Part(value=two, on="prefix")), split=split
            )
        return Reward(name="r", lets=lets, outcome=one, split=split)
    value = draw(expressions(("y",), ("a", "b", "L"), True, 2))
    return Reward(name="r", lets=lets, dense=DenseReward(split=split, var="L", value=value))


@st.composite
def rollouts(draw):
    tokens = draw(st.integers(1, LONGEST))
    verdicts = st.lists(st.booleans(), min_size=tokens, max_size=tokens).map(lambda row: dict(enumerate(row)))
    return RewardedResponse(
        tokens, draw(st.booleans()), draw(verdicts), draw(verdicts), {"gold": float(draw(st.integers(0, 9)))}
    )


@st.composite
def steps(draw):
    """Groups of one size (one rollout included) and each response's places, ragged as reasoning steps are."""
    size, questions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    nobody = draw(st.booleans())
    groups, places = [], []
    for number in range(questions):
        own = [draw(rollouts()) for _ in range(size)]
        if nobody:
            wrong = [dict.fromkeys(range(r.length), False) for r in own]
            own = [
                RewardedResponse(r.length, False, w, w, r.features) for r, w in zip(own, wrong, strict=True)
            ]
        reference = [RewardedResponse(draw(st.integers(1, 9)), draw(st.booleans())) for _ in range(2)]
        groups.append(ResponseGroup(f"q{number}", tuple(own), tuple(reference)))
        cut = st.lists(st.integers(1, LONGEST), min_size=1, max_size=3, unique=True).map(
            lambda row: tuple(sorted(row))
        )
        places.append([draw(cut) for _ in own])
    return groups, places


@settings(max_examples=60)
@forall(rewards(), steps())
def test_equal_to_the_interpreter(reward, step):
    groups, places = step
    made = arrays(groups, places)
    values, _ = evaluate(reward, made.inputs, made.forced.look_up, made.bare.look_up)
    for question, group in enumerate(groups):
        for index in range(len(group.rollouts)):
            own = places[question][index]
            expected = interpret(reward, group, index, own)
            got = values[question, index][: len(expected)]
            assert len(got) == len(expected)
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_reward_that_is_not_finite_names_reward_question_and_values():
    reward = Reward(
        name="ratio",
        lets=(NamedValue(name="mu", value=stat("mean", length("z"), where=correct("z"))),),
        outcome=op(length(), "/", "mu"),
    )
    groups = [
        ResponseGroup("fine", (RewardedResponse(4, True), RewardedResponse(8, True))),
        ResponseGroup("hopeless", (RewardedResponse(4, False), RewardedResponse(8, False))),
    ]
    made = arrays(groups, [[(8,), (8,)], [(8,), (8,)]])
    with pytest.raises(Problem) as caught:
        vectorise(reward, made.inputs, made.forced.look_up, made.bare.look_up)
    found = caught.value.diagnostics[0]
    assert found.code == "E0920"
    assert "ratio" in found.message
    assert "hopeless" in (found.where or "")
    assert "len(y) = 4" in found.notes[0]
    assert "mu = nan" in found.notes[0]


def test_what_a_response_does_not_have_may_be_nan():
    dense = DenseReward(split=Budgets(budgets=(2,), l_max=9), var="L", value=op(1, "/", op("L", "-", 5)))
    reward = Reward(name="r", dense=dense)
    group = ResponseGroup("q", (RewardedResponse(9, True), RewardedResponse(5, True)))
    made = arrays([group], [[(2, 9), (9,)]])
    values = vectorise(reward, made.inputs, made.forced.look_up, made.bare.look_up)
    assert values[0, 0].tolist() == [-1 / 3, 0.25]
    bad = arrays([group], [[(2, 9), (5,)]])
    with pytest.raises(Problem) as caught:
        vectorise(reward, bad.inputs, bad.forced.look_up, bad.bare.look_up)
    assert "split 1" in (caught.value.diagnostics[0].where or "")


def test_reference_samples_are_asked_for_by_name():
    reward = Reward(name="r", outcome=stat("mean", length("z"), over="ref"))
    made = arrays([ResponseGroup("q", (RewardedResponse(2, True),))], [[(2,)]])
    with pytest.raises(Problem) as caught:
        vectorise(reward, made.inputs, made.forced.look_up, made.bare.look_up)
    assert caught.value.diagnostics[0].code == "E0505"
    assert not math.isnan(made.inputs.length.sum())


def test_the_median_of_nothing_is_not_a_number_and_warns_of_nothing():
    rollouts = tuple(RewardedResponse(n, False) for n in (3, 5))
    inputs = arrays([ResponseGroup("q", rollouts)], [[[8]] * 2]).inputs
    nothing = stat("median", length("z"), where=correct("z"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(measure_each(nothing, "y", inputs, {})).all()
