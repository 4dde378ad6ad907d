"""Rollouts: lengths against sums and draws, draws of questions by hand and by simulation, and the busiest engine."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.ir.training import Batch
from reodsl.price import History, Price, price, show
from reodsl.price.history import Facts, MeasuredTask
from reodsl.price.rollout import LengthDistribution, RolloutBatch, equal_groups, expected_draws, heaviest
from reodsl.price.value import to_json
from tests.graph import studies as make


def tail_sums(lengths: LengthDistribution) -> list[float]:
    """The means of the first four powers by numeric integration of the survival function."""
    at = np.linspace(0, lengths.longest, 400_001)
    alive = np.exp(-at / lengths.scale)
    return [float(np.trapezoid(power * at ** (power - 1) * alive, at)) for power in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("mean", "longest"), [(10240, 32768), (50, 128), (3, 1000), (120, 128), (127.98, 128)]
)
def test_moments_are_those_of_the_survival_function(mean: float, longest: float) -> None:
    lengths = LengthDistribution.of(mean, longest)
    sums = tail_sums(lengths)
    assert sums[0] == pytest.approx(mean, rel=1e-4)
    assert lengths.square == pytest.approx(sums[1], rel=1e-4)
    assert [lengths.moment(power) for power in (1, 2, 3, 4)] == pytest.approx(sums, rel=1e-4)


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_lengths_stay_within_the_longest(mean: float, longest: float) -> None:
    lengths = LengthDistribution.of(mean, longest)
    assert lengths.mean <= longest
    assert lengths.mean**2 * 0.999 <= lengths.square <= longest**2 * 1.001
    assert lengths.beyond(longest) == 0
    assert lengths.beyond(0) == 1
    assert lengths.mean <= lengths.longest_of(100) <= longest


def test_all_at_the_longest() -> None:
    lengths = LengthDistribution.of(200, 128)
    assert (lengths.mean, lengths.square, lengths.beyond(127)) == (128, 128**2, 1)
    assert lengths.longest_of(1) == 128


def test_the_longest_of_many_draws() -> None:
    lengths = LengthDistribution.of(100, 100_000)
    draws = np.random.default_rng(1).exponential(lengths.scale, (2000, 256)).max(axis=1)
    assert lengths.longest_of(256) == pytest.approx(draws.mean(), rel=0.05)


def test_the_share_beyond_falls_at_a_constant_rate() -> None:
    lengths = LengthDistribution.of(10240, 32768)
    assert lengths.beyond(2048) == pytest.approx(lengths.beyond(1024) ** 2)
    assert math.isclose(lengths.beyond(1024), math.exp(-1024 / lengths.scale))


def spec_of(reward: Any = None, **method: Any) -> Spec:
    stage = make.ppo(reward or make.outcome())
    stage = stage.model_copy(update={"method": stage.method.model_copy(update=method)})
    return make.spec(make.arm("base", make.base()), make.arm("it", make.trained("it", stage)))


def priced(spec: Spec, *results: MeasuredTask) -> Price:
    return price(lower(spec), spec, History({each.task: each for each in results})).tasks["it.train.s1"]


def past(spec: Spec, facts: Facts) -> MeasuredTask:
    task = lower(spec)["it.train.s1"]
    # Of another device: it tells of its responses, and of no time.
    return MeasuredTask(task.id, task.kind, task.payload, facts, 10.0, {}, "cuda")


@pytest.mark.parametrize(
    ("prompts", "most", "equal", "draws"),
    [
        (4, 1, 0.9, 1.0),  # none is replaced
        (4, 9, 0.0, 1.0),  # none has to be
        (4, 9, 1.0, 9.0),  # none ever gives a gradient
        (1, 3, 0.5, 1 + 1 / 2 + 1 / 4),
        (2, 2, 0.5, 1 + 3 / 4),  # both of two, or one draw more
        # After two draws of two, none or one of four: 1/16 + 4/16.
        (2, 3, 0.5, 1 + 3 / 4 + 5 / 16),
        # Of four, three at least: 4 x 3^3 / 4^4 + 3^4 / 4^4; one draw gives both with 9/16.
        (2, 3, 0.25, 1 + 7 / 16 + (1 + 4 * 3) / 256),
    ],
)
def test_draws_by_hand(prompts: int, most: int, equal: float, draws: float) -> None:
    assert expected_draws(prompts, most, equal) == pytest.approx(draws)


@pytest.mark.parametrize(("prompts", "most", "equal"), [(32, 11, 0.3), (128, 11, 0.6), (16, 4, 0.9)])
def test_draws_are_those_of_a_simulation(prompts: int, most: int, equal: float) -> None:
    random = np.random.default_rng(5)
    gradient = random.random((20_000, most - 1, prompts)) >= equal
    there = gradient.sum(axis=2).cumsum(axis=1)
    simulated = 1 + (there < prompts).sum(axis=1).mean()
    assert expected_draws(prompts, most, equal) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("rollouts", [1, 2, 8, 16])
def test_equal_groups_are_those_of_questions_of_every_difficulty(rollouts: int) -> None:
    chances = (np.arange(100_000) + 0.5) / 100_000
    share = (chances**rollouts + (1 - chances) ** rollouts).mean()
    assert equal_groups(rollouts) == pytest.approx(share, rel=1e-4)


def test_what_is_drawn_again_is_paid_for_and_not_trained() -> None:
    # Two questions with four rollouts: 2/5 of all groups are equal. One draw fills the batch with (3/5)^2.
    plain, again = priced(spec_of(make.budgets(4))), priced(spec_of(make.budgets(4), resample=1))
    draws = 1 + 1 - 0.36
    assert (plain.draws, again.draws) == (1.0, pytest.approx(draws))
    for name in ("generated", "forced", "verified"):
        assert getattr(again, name) == pytest.approx(draws * getattr(plain, name)), name
    for term in ("generation", "forcing", "verification"):
        assert again.seconds[term] == pytest.approx(draws * plain.seconds[term]), term
    assert again.trained == plain.trained
    assert again.seconds["training"] == plain.seconds["training"]
    assert again.disk > plain.disk
    assert to_json(again)["draws_per_step"] == pytest.approx(draws)
    assert show.details(again)[0].endswith(", 1.64 draws of questions a step")
    assert "draws" not in show.details(plain)[0]


def test_draws_that_were_counted_replace_expected_ones() -> None:
    spec = spec_of(resample=3)
    facts = Facts(length=8.0, trained_share=0.9, equal=0.5, draws=2.5)
    found = priced(spec, past(spec, facts))
    assert found.draws == 2.5
    assert found.generated == pytest.approx(2.5 * found.steps * 8 * 8)
    assert found.trained == pytest.approx(0.9 * found.steps * 8 * 8)


def test_equal_groups_that_were_counted_tell_of_other_batches() -> None:
    facts = Facts(length=8.0, trained_share=0.9, equal=0.5, draws=2.5)
    other = Batch(prompts=1, rollouts=4)
    found = priced(spec_of(resample=3, batch=other), past(spec_of(resample=3), facts))
    assert found.draws == pytest.approx(1 + 1 / 2 + 1 / 4 + 1 / 8)


def test_equal_groups_without_replacement_tell_of_those_with() -> None:
    facts = Facts(length=8.0, trained_share=0.4, equal=0.5)
    found = priced(spec_of(resample=1), past(spec_of(), facts))
    assert found.draws == pytest.approx(1.75)
    # What is replaced leaves a batch with a gradient throughout.
    assert found.trained == pytest.approx(found.steps * 8 * 8)


@pytest.mark.parametrize("change", [{"reward": make.budgets(4)}, {"batch": Batch(prompts=2, rollouts=2)}])
def test_equal_groups_of_other_rewards_and_rollouts_tell_nothing(change: dict[str, Any]) -> None:
    before = {"reward": make.outcome(), "resample": 3} | change
    facts = Facts(length=8.0, equal=0.99, draws=4.0)
    told = past(spec_of(**before), facts)
    expected = priced(spec_of(resample=3)).draws
    assert priced(spec_of(resample=3), told).draws == expected
    assert (
        priced(spec_of(resample=3), replace(told, payload=past(spec_of(resample=3), facts).payload)).draws
        == 4.0
    )


PROMPT = 150


def drawn(lengths: LengthDistribution, each: int, engines: int) -> float:
    """The mean over many rounds of the largest sum of one engine's responses, over the mean of such sums."""
    draw = np.random.default_rng(1)
    rounds = 200
    tokens = np.minimum(draw.exponential(lengths.scale, (rounds, engines, each)), lengths.longest)
    sums = (PROMPT * tokens + tokens**2 / 2).sum(axis=2)
    return float(sums.max(axis=1).mean() / sums.mean())


@pytest.mark.parametrize(("mean", "longest"), [(10240, 32768), (3000, 16384), (20000, 32768), (1000, 8192)])
@pytest.mark.parametrize(
    ("each", "engines", "within"), [(16, 128, 0.08), (128, 16, 0.03), (64, 2, 0.03), (4, 512, 0.4)]
)
def test_the_busiest_engine_is_that_of_draws(
    mean: float, longest: float, each: int, engines: int, within: float
) -> None:
    lengths = LengthDistribution.of(mean, longest)
    load = RolloutBatch(each * engines, engines, PROMPT, lengths)
    assert heaviest(load, each, engines) == pytest.approx(drawn(lengths, each, engines), rel=within)


def test_one_engine_has_its_share_and_equal_lengths_make_equal_engines() -> None:
    load = RolloutBatch(64, 8, PROMPT, LengthDistribution.of(50, 128))
    assert heaviest(load, 64, 1) == 1
    assert heaviest(RolloutBatch(64, 8, PROMPT, LengthDistribution.of(200, 128)), 8, 8) == 1


def test_none_has_more_than_the_longest_responses() -> None:
    lengths = LengthDistribution.of(20000, 32768)
    most = PROMPT * lengths.longest + lengths.longest**2 / 2
    mean = PROMPT * lengths.mean + lengths.square / 2
    assert heaviest(RolloutBatch(1e6, 1e6, PROMPT, lengths), 1, 1e6) == pytest.approx(most / mean)
