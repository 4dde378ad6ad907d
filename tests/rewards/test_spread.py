"""Values that differ by rounding alone have no spread, wherever one divides: rewards, tracks, the stage and its batch."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.reward import ResponseGroup, RewardedResponse
from reodsl.ir.training import Advantage
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.arithmetic import STATISTICS
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import summarise, vectorise
from runners.train.advantages import normalise_batch, section_advantages, try_reward
from tests.rewards.reward_groups import arrays

VALUES = st.floats(1e-3, 1e3).flatmap(lambda size: st.sampled_from([size, -size]))
SIZES = st.integers(2, 64)
STD = st.sampled_from(["population", "sample"])
HAND = """reward hand() {
  let r(a) = correct(a) - 0.3
  let mu = mean(r(z) for z in group)
  let sd = std(r(z) for z in group)
  (r(y) - mu) / sd if sd != 0 else 0
}
"""


def stage(values: list[float], normalise: str, std: str = "population") -> list[float]:
    """The advantages of a question's outcomes."""
    rewards = np.array(values)[None, :, None]
    rule = Advantage(normalise=normalise, std=std)
    return section_advantages(rewards, np.ones_like(rewards, dtype=bool), rule).ravel().tolist()


def over_step(values: list[float]) -> list[float]:
    """The advantages of responses of one token, z-scored over the step."""
    column = np.array(values)[None, :, None]
    return normalise_batch(column, np.ones(column.shape, dtype=np.int64)).ravel().tolist()


def test_the_deviation_of_eight_equal_values_is_nothing() -> None:
    assert STATISTICS["std"]([0.7] * 8) == summarise("std", np.full(8, 0.7), math.nan) == 0
    assert STATISTICS["mean"]([0.7] * 8) == summarise("mean", np.full(8, 0.7), math.nan) == 0.7


@settings(max_examples=150)
@given(VALUES, SIZES, STD, st.lists(st.integers(-3, 3), min_size=64, max_size=64))
def test_values_that_differ_by_rounding_have_no_spread(
    value: float, size: int, std: str, steps: list[int]
) -> None:
    near = [value + step * math.ulp(value) for step in steps[:size]]
    for values in ([value] * size, near):
        assert STATISTICS["std"](values) == summarise("std", np.array(values), math.nan) == 0
        for normalise in ("group", "center", "leave_one_out"):
            assert stage(values, normalise, std) == [0] * size
        assert over_step(values) == [0] * size
    # A value less the mean of its equals leaves nothing for a small divisor to make large.
    assert STATISTICS["mean"]([value] * size) == summarise("mean", np.full(size, value), math.nan) == value


@settings(max_examples=150)
@given(VALUES, SIZES, STD, st.sampled_from([1e-6, 1e-3, 1.0]))
def test_a_small_spread_is_kept(value: float, size: int, std: str, share: float) -> None:
    values = [value] * (size - 1) + [value * (1 + share)]
    wanted = statistics.pstdev(values)
    assert STATISTICS["std"](values) == pytest.approx(wanted, rel=1e-6)
    assert summarise("std", np.array(values), math.nan) == pytest.approx(wanted, rel=1e-6)
    divisor = statistics.stdev(values) if std == "sample" else wanted
    scores = [(each - statistics.fmean(values)) / divisor for each in values]
    assert stage(values, "group", std) == pytest.approx(scores, abs=1e-6)
    assert over_step(values) == pytest.approx([each * divisor / wanted for each in scores], abs=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_has_no_deviation(value: float) -> None:
    with np.errstate(all="ignore"):
        assert math.isnan(STATISTICS["std"]([value, 1.0, value]))
        assert math.isnan(summarise("std", np.array([value, 1.0, value]), math.nan))


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("size", [2, 3, 6, 8, 16])
def test_a_reward_that_normalises_by_hand_gives_equal_responses_nothing(
    tmp_path: Path, size: int, correct: bool
) -> None:
    (tmp_path / "own.reo").write_text(HAND)
    reward = choose_reward(str(tmp_path / "own.reo"), None).reward
    assert reward is not None
    rule = Advantage(normalise="none")
    group = ResponseGroup("q", (RewardedResponse(3, correct),) * size)
    assert [interpret(reward, group, each) for each in range(size)] == [[0.0]] * size
    step = arrays([group], [[(3,)]])
    assert not vectorise(reward, step.inputs, step.forced.look_up, step.bare.look_up).any()
    assert all(tried.advantages == (0.0,) for tried in try_reward(reward, rule, group, [()] * size))
    mixed = ResponseGroup("q", (RewardedResponse(3, not correct), *group.rollouts))
    (first,) = interpret(reward, mixed, 0)
    assert first == pytest.approx((-1 if correct else 1) * math.sqrt(size))
