"""Rewards of the literature against numbers worked out by hand from their equations."""

import math
from itertools import combinations

import numpy as np
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.reward import Budgets, DenseReward, NamedValue, ResponseGroup, Reward, RewardedResponse
from runners.rewards.arithmetic import choose, power
from runners.rewards.interpret import interpret
from tests.rewards.expressions import call, correct, forced, given, length, minus, op, stat, weight, where


def outcome(expression, *lets):
    return Reward(name="r", lets=tuple(NamedValue(name=n, value=v) for n, v in lets), outcome=expression)


def group(*responses, reference=()):
    return ResponseGroup(
        "q",
        tuple(RewardedResponse(n, bool(c)) for n, c in responses),
        tuple(RewardedResponse(n, bool(c)) for n, c in reference),
    )


def test_length_group_normalised():
    mu = stat("mean", length("z"), where=correct("z"), empty=length())
    sd = stat("std", length("z"), where=correct("z"), empty=1)
    squash = call("sigmoid", op(op(length(), "-", "mu"), "/", call("max", "sd", 1)))
    reward = outcome(op(correct(), "*", op(1, "-", op(0.2, "*", squash))), ("mu", mu), ("sd", sd))
    responses = group((10, 1), (20, 1), (30, 1), (90, 0))
    # mean 20, population deviation sqrt(200 / 3) over the three correct ones.
    z = 10 / math.sqrt(200 / 3)
    expected = [1 - 0.2 / (1 + math.exp(z)), 0.9, 1 - 0.2 / (1 + math.exp(-z)), 0]
    assert [interpret(reward, responses, i)[0] for i in range(4)] == pytest.approx(expected, rel=1e-12)
    alone = group((10, 1), (20, 0))
    assert interpret(reward, alone, 0) == [0.9]
    nobody = group((10, 0), (20, 0))
    assert [interpret(reward, nobody, i)[0] for i in range(2)] == [0, 0]


def test_length_harmonizing_reads_the_reference():
    reward = outcome(
        op(op(op("ref_n", "/", length()), "-", 1), "+", op(2, "*", op(correct(), "-", "ref_c"))),
        ("ref_n", stat("mean", length("z"), over="ref")),
        ("ref_c", stat("mean", correct("z"), over="ref")),
    )
    responses = group((50, 1), (200, 0), reference=((80, 1), (120, 0), (100, 0), (100, 1)))
    assert interpret(reward, responses, 0) == [100 / 50 - 1 + 2 * (1 - 0.5)]
    assert interpret(reward, responses, 1) == [100 / 200 - 1 + 2 * (0 - 0.5)]


def test_kimi_length_reward_and_its_guard():
    least, most = stat("min", length("z")), stat("max", length("z"))
    share = where(op("hi", "==", "lo"), 0.5, op(op(length(), "-", "lo"), "/", op("hi", "-", "lo")))
    lam = op(0.5, "-", share)
    reward = outcome(
        where(correct(), "lam", call("min", 0, "lam")), ("lo", least), ("hi", most), ("lam", lam)
    )
    responses = group((10, 0), (20, 1), (50, 1), (50, 0))
    assert [interpret(reward, responses, i)[0] for i in range(4)] == [0, 0.25, -0.5, -0.5]
    assert interpret(reward, group((7, 1), (7, 0)), 0) == [0]


def test_budget_in_the_prompt():
    exact = outcome(op(correct(), "-", op(0.0003, "*", call("abs", op(given("n_gold"), "-", length())))))
    asked = ResponseGroup("q", (RewardedResponse(1200, True, features={"n_gold": 1000.0}),))
    assert interpret(exact, asked, 0) == pytest.approx([1 - 0.0003 * 200])


def test_trapezoid_weights_times_forced_answers():
    dense = DenseReward(
        split=Budgets(budgets=(4, 8, 16, 32, 64), l_max=128), var="L", value=op(weight(), "*", forced("L"))
    )
    reward = Reward(name="reo", dense=dense)
    places = (4, 8, 16, 32, 64, 128)
    shorter = RewardedResponse(40, True, forced={4: False, 8: False, 16: True, 32: True})
    assert interpret(reward, ResponseGroup("q", (shorter,)), 0, places) == [0, 0, 12, 24, 48, 32]
    wrong = RewardedResponse(10, False, forced={4: True, 8: False})
    assert interpret(reward, ResponseGroup("q", (wrong,)), 0, places) == [4, 0, 0, 0, 0, 0]


def test_what_is_undefined_is_nan_and_never_an_exception():
    zero = op(length(), "-", length())
    for expression in (
        op(zero, "/", zero),
        call("log", minus(1)),
        call("sqrt", minus(1)),
        op(minus(8), "^", 0.5),
    ):
        assert math.isnan(interpret(outcome(expression), group((3, 1)), 0)[0])
    assert interpret(outcome(op(1, "/", zero)), group((3, 1)), 0) == [math.inf]
    assert interpret(outcome(call("exp", 1e6)), group((3, 1)), 0) == [math.inf]
    nothing = stat("mean", length("z"), where=op(length("z"), ">", 99))
    assert math.isnan(interpret(outcome(nothing), group((3, 1)), 0)[0])
    assert interpret(outcome(stat("sum", 5, where=op(1, ">", 2))), group((3, 1)), 0) == [0]


@pytest.mark.parametrize(
    ("base", "exponent", "wanted"),
    [
        (0.5, -2001.0, math.inf),
        (-0.5, -2001.0, -math.inf),
        (-0.0, -1.0, -math.inf),
        (0.0, -1.0, math.inf),
        (-0.0, -2.0, math.inf),
    ],
)
def test_a_power_past_all_numbers_has_the_sign_of_its_odd_exponents_base(base, exponent, wanted):
    assert power(base, exponent) == wanted


def test_a_given_number_that_is_not_there_names_those_that_are():
    asked = ResponseGroup("q", (RewardedResponse(3, True, features={"n_gold": 1.0}),))
    with pytest.raises(Problem) as caught:
        interpret(outcome(given("n_glod")), asked, 0)
    assert caught.value.diagnostics[0].code == "E0922"
    assert "n_gold" in caught.value.diagnostics[0].notes[0]


def test_ways_to_choose_are_counted_without_end() -> None:
    ways = [[sum(1 for _ in combinations(range(n), k)) for k in range(9)] for n in range(9)]
    assert [[choose(n, k) for k in range(9)] for n in range(9)] == ways
    missed = float(np.prod([(9500 - i) / (10_000 - i) for i in range(60)]))
    assert math.isclose(choose(9500, 60) / choose(10_000, 60), missed)
    assert [choose(3, -1), choose(-3, 2), choose(3.9, 2.9)] == [0, 0, 3]
    assert [choose(1e300, 1e200), choose(3000, 1500), choose(1e300, 2)] == [math.inf] * 3
    assert all(map(math.isnan, (choose(math.nan, 1), choose(math.inf, 1), choose(1, -math.inf))))
