"""Tracks in training: what each step reads is what the tables say, and an interruption changes nothing."""

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.expression import (
    METRIC,
    STEP,
    TRACK,
    Aggregate,
    Attribute,
    Constant,
    Correct,
    FunctionCall,
    If,
    Infix,
    Length,
    StepStatistic,
    Variable,
)
from reodsl.ir.reward import Metric, Reward, Track
from reodsl.ir.training import Batch, Monitor
from runners.train import ppo_stage
from runners.train.losses import step_numbers
from runners.train.ppo import update
from runners.train.run import count_unjudged
from tests.train.conftest import Stopped
from tests.train.test_train import ppo, same

USUAL = StepStatistic(
    fn="mean", var="z", over="steps", window=2, value=Length(of="z"), empty=Constant(value=20)
)
LIMIT = StepStatistic(fn="quantile", var="z", over="monitor", value=Length(of="z"), at=Constant(value=0.75))
WARM = FunctionCall(
    fn="min", args=(Constant(value=1), Infix(fn="/", left=Variable(name=STEP), right=Constant(value=4)))
)
HALF = Constant(value=0.5)
EASED = Infix(
    fn="+",
    left=Infix(fn="*", left=HALF, right=Variable(name=f"{TRACK}eased")),
    right=Infix(
        fn="*", left=HALF, right=StepStatistic(fn="mean", var="z", over="steps", value=Length(of="z"))
    ),
)
# A metric that some steps have no number for: where nobody of a question is right, it divides by 0.
SPREAD = Infix(
    fn="/", left=Length(of="y"), right=Aggregate(fn="sum", var="z", over="group", value=Correct(of="z"))
)
FOLLOWED = FunctionCall(
    fn="max",
    args=(
        Infix(
            fn="*",
            left=HALF,
            right=Infix(
                fn="+", left=Variable(name=f"{TRACK}followed"), right=Variable(name=f"{METRIC}spread")
            ),
        ),
        Constant(value=0),
    ),
)
WITHIN = Infix(
    fn="and",
    left=Infix(fn="<=", left=Length(of="y"), right=Variable(name=f"{TRACK}usual")),
    right=Infix(fn="<=", left=Length(of="y"), right=Variable(name=f"{TRACK}limit")),
)
BONUS = Infix(
    fn="*",
    left=Variable(name=f"{TRACK}warm"),
    right=If(test=WITHIN, then=Constant(value=1), other=Constant(value=0)),
)
BEFORE = Aggregate(fn="mean", var="z", over="history", value=Length(of="z"), empty=Constant(value=8))
REWARD = Reward(
    name="",
    outcome=Infix(
        fn="+",
        left=Infix(fn="+", left=Correct(of="y"), right=BONUS),
        right=Infix(fn="/", left=BEFORE, right=Length(of="y")),
    ),
    tracks=(
        Track(name="usual", value=USUAL),
        Track(name="limit", value=LIMIT),
        Track(name="warm", value=WARM),
        Track(name="eased", value=EASED, start=Constant(value=16)),
        Track(name="followed", value=FOLLOWED, start=Constant(value=7)),
    ),
    metrics=(
        Metric(name="spread", value=SPREAD),
        Metric(name="answered", value=Attribute(of="y", field="answered")),
    ),
)
STEPS, EVERY = 5, 2


def stage(**changes):
    plain = ppo(
        changes.pop("reward", REWARD), steps=STEPS, forcing=None, save_every=changes.pop("save_every", 0)
    )
    # Of 40 questions some come twice.
    more = {"monitor": Monitor(questions=3, samples=2, every=EVERY), "batch": Batch(prompts=12, rollouts=2)}
    return plain.model_copy(update={"method": plain.method.model_copy(update=more | changes)})


@pytest.mark.parametrize("lag", [0, 1])
def test_every_step_reads_what_the_tables_say(bench, lag):
    out = bench.train(stage(lag=lag), f"tracks_{lag}", start="base", data="questions")
    metrics = pl.read_parquet(out / "metrics.parquet")
    rollouts, monitor = (pl.read_parquet(out / f"{name}.parquet") for name in ("rollouts", "monitor"))
    assert metrics["track_warm"].to_list() == [0, 0.25, 0.5, 0.75, 1]
    eased, followed, again = 16.0, 7.0, 0
    for number, row in enumerate(metrics.iter_rows(named=True)):
        before = rollouts.filter(pl.col("step").is_between(number - 1, number))["tokens"]
        assert row["track_usual"] == pytest.approx(before.mean() if number else 20)
        mine = rollouts.filter(pl.col("step") == number)["tokens"]
        eased = 16 if number == 0 else 0.5 * eased + 0.5 * mine.mean()
        assert row["track_eased"] == pytest.approx(eased)
        if number and (spread := metrics["metric_spread"][number - 1]) is not None:
            followed = 0.5 * (followed + spread)
        assert row["track_followed"] == pytest.approx(followed)
        last = monitor.filter(pl.col("step") == number - number % EVERY + 1)["tokens"].sort()
        # Of six the fifth is the least that 75% do not exceed.
        assert (len(last), row["track_limit"]) == (6, last[4])
        mine = rollouts.filter(pl.col("step") == number + 1)
        assert row["metric_answered"] == pytest.approx(mine["answered"].mean())
        assert (mine["answered"] | ~mine["correct"]).all()
        within = (mine["tokens"] <= row["track_usual"]) & (mine["tokens"] <= row["track_limit"])
        earlier = rollouts.filter(pl.col("step") <= number)
        remembered = [
            earlier.filter(pl.col("question") == each)["tokens"].mean() or 8 for each in mine["question"]
        ]
        again += sum(each != 8 for each in remembered)
        expected = mine["correct"].cast(float) + row["track_warm"] * within.cast(float)
        expected += pl.Series(remembered, dtype=pl.Float64) / mine["tokens"]
        assert mine["reward"].to_list() == pytest.approx(expected.to_list())
    assert again
    # The monitor set stays the same questions, and its responses are of each time's weights.
    asked = monitor.group_by("step").agg(pl.col("question").unique().sort()).sort("step")
    assert asked["step"].to_list() == [1, 3, 5]
    assert len({tuple(each) for each in asked["question"].to_list()}) == 1
    versions = monitor.group_by("step").agg(pl.col("weight_versions").explode().unique()).sort("step")
    assert versions["weight_versions"].to_list() == [[max(0, step - 1 - lag)] for step in (1, 3, 5)]


def test_answers_that_were_never_judged_are_counted_over_all_steps() -> None:
    rows = [
        {"verifier_timeouts": 2.0, "verifier_failures": 0.0},
        {"verifier_timeouts": 1.0, "verifier_failures": 0.0, "reward_failures": 4.0},
    ]
    assert count_unjudged(rows) == {"verifier_timeouts": 3.0, "reward_failures": 4.0}


LESS = Infix(fn="*", left=HALF, right=Variable(name=f"{TRACK}warm"))
COOLER = Track(name="cooler", value=Infix(fn="-", left=Constant(value=1), right=LESS))
BRIEF = Infix(fn="+", left=Correct(of="y"), right=Infix(fn="/", left=Constant(value=1), right=Length(of="y")))
CONSTANTS = {"kl": 0.3, "entropy": 0.02, "clip_low": 0.01, "clip_high": 0.02, "temperature": 0.7}


def test_tracks_and_metrics_of_one_value_train_as_constants_do(bench):
    """The weight of the divergence and the lower bound are metrics, the others tracks."""
    numbers, values = dict(CONSTANTS), {name: Constant(value=value) for name, value in CONSTANTS.items()}
    names = {name: f"reward.{name}" for name in CONSTANTS}
    follows = Reward(
        name="",
        outcome=BRIEF,
        tracks=tuple(
            Track(name=name, value=values[name]) for name in ("entropy", "clip_high", "temperature")
        ),
        metrics=tuple(Metric(name=name, value=values[name]) for name in ("kl", "clip_low")),
    )
    plain = stage(reward=Reward(name="", outcome=BRIEF))
    heat = plain.method.rollout.model_copy(update={"temperature": numbers.pop("temperature")})
    outs = [
        bench.train(
            plain.model_copy(update={"method": plain.method.model_copy(update=changes)}),
            f"moving_{i}",
            start="base",
            data="questions",
        )
        for i, changes in enumerate(
            ({"rollout": heat, **numbers}, {"reward": follows, **names}, {"rollout": heat})
        )
    ]
    weights = [(out / "checkpoint" / "model.safetensors").read_bytes() for out in outs]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("lag", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_step_is_trained_with_its_own_numbers(bench, monkeypatch, lag):
    """The loss gets what the step's row has. Stopped after step 3, before which the monitor answered, no byte differs."""
    told = []
    monkeypatch.setattr(ppo_stage, "update", lambda *args: told.append((args[2], args[-1])) or update(*args))
    cooling = REWARD.model_copy(update={"tracks": (*REWARD.tracks, COOLER)})
    moving = {"kl": "reward.warm", "entropy": "reward.answered", "temperature": "reward.cooler", "lag": lag}
    name, start = f"numbers_{lag}", {"start": "base", "data": "questions"}
    whole = bench.train(stage(reward=cooling, **moving), f"{name}_whole", **start)
    table = pl.read_parquet(whole / "metrics.parquet")
    assert [numbers["kl"] for _, numbers in told] == table["track_warm"].to_list()
    assert [numbers["entropy"] for _, numbers in told] == table["metric_answered"].to_list()
    heats = [method.rollout.temperature for method, _ in told]
    assert heats == table["track_cooler"].to_list() == [1, 0.875, 0.75, 0.625, 0.5]
    saved = stage(reward=cooling, save_every=1, **moving)
    with pytest.raises(Stopped):
        bench.train(saved, name, **start, stop_at=3)
    same(whole, bench.train(saved, name, **start))


@pytest.mark.parametrize("metrics", [{}, {"metric_beta": float("nan")}, {"track_beta": -1, "metric_beta": 1}])
def test_a_number_that_is_missing_or_out_of_its_range_ends_the_stage(metrics):
    method = stage(kl="reward.beta").method
    with pytest.raises(Problem) as found:
        step_numbers(method, metrics)
    assert found.value.diagnostics[0].code == "E0920"
