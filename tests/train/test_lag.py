"""Rollouts beside training: which weights sample what, interruptions, and ratios to what sampled a token."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.training import Loss
from runners.train import ppo_stage
from runners.train.agreement import old_logprobs
from runners.train.gather import batch_of, score
from runners.train.losses import policy_loss
from runners.train.update import Learner
from tests.train.conftest import Stopped
from tests.train.models import small_model
from tests.train.test_train import OUTCOME, ppo, same
from tests.train.test_update import experience, method, responses_of, with_responses


def lagging(reward=OUTCOME, steps=4, save_every=0, **changes):
    plain = ppo(reward, steps=steps)
    method = plain.method.model_copy(update={"lag": 1} | changes)
    return plain.model_copy(update={"method": method, "save_every": save_every})


def rollouts(out):
    return pl.read_parquet(out / "rollouts.parquet")


@pytest.mark.parametrize("lag", [1, 2])
def test_responses_are_sampled_by_weights_of_as_many_steps_ago(bench, lag):
    out = bench.train(lagging(lag=lag), f"lag_{lag}", start="base", data="questions")
    found = rollouts(out)
    versions = found.group_by("step").agg(pl.col("weight_versions").explode().unique()).sort("step")
    assert versions["weight_versions"].to_list() == [[max(0, step - lag)] for step in range(4)]
    metrics = pl.read_parquet(out / "metrics.parquet")
    assert metrics["lag"].to_list() == metrics["lag_max"].to_list() == [min(step, lag) for step in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "stop_at"), [({}, 3), ({"lag": 2}, 1)], ids=str)
def test_an_interrupted_stage_ends_with_the_same_bytes(bench, changes, stop_at):
    name = f"stopped_{'_'.join(changes)}_{stop_at}"
    whole = bench.train(lagging(**changes), f"{name}_whole", start="base", data="questions")
    saved = lagging(save_every=1, **changes)
    with pytest.raises(Stopped):
        bench.train(saved, name, start="base", data="questions", stop_at=stop_at)
    same(whole, bench.train(saved, name, start="base", data="questions"))


def test_in_turn_and_beside_give_the_same_bytes(bench, monkeypatch):
    """An engine on the trainer's own device cannot work beside it, and computes the same."""
    stage = lagging(save_every=1)
    whole = bench.train(stage, "beside", start="base", data="questions")
    monkeypatch.setattr(ppo_stage, "can_overlap", lambda job: False)
    same(whole, bench.train(stage, "shares_device", start="base", data="questions"))


def test_what_waits_for_its_step_is_told_of_where_it_cannot_be_read(bench):
    stage = lagging(save_every=1)
    with pytest.raises(Stopped):
        bench.train(stage, "torn", start="base", data="questions", stop_at=2)
    for path in (bench.root / "torn.work" / "waiting").iterdir():
        path.write_bytes(b"torn")
    with pytest.raises(Problem) as caught:
        bench.train(stage, "torn", start="base", data="questions")
    assert [each.code for each in caught.value.diagnostics] == ["E0939"]


def test_the_first_step_is_that_of_a_stage_without_a_lag(bench):
    without = ppo(OUTCOME, steps=1)
    rows = [
        pl.read_parquet(
            bench.train(stage, name, start="base", data="questions") / "metrics.parquet"
        ).to_dicts()[0]
        for name, stage in (("sync", without), ("lagged", lagging(steps=1)))
    ]
    assert (rows[1].pop("lag"), rows[1].pop("lag_max")) == (0.0, 0.0)
    assert rows[0] == rows[1]


# What PPO and AReaL's papers say, token by token over plain numbers.


def clipped(ratio, advantage, low, high):
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def slow_ppo(new, sampling_logprobs, advantages, low, high):
    """Schulman et al. 2017, eq. 7, with the policy that sampled each token below its ratio."""
    terms = [
        clipped(math.exp(n - b), a, low, high)
        for n, b, a in zip(new, sampling_logprobs, advantages, strict=True)
    ]
    return -sum(terms) / len(terms)


def slow_decoupled(new, sampling_logprobs, advantages, low, high, proximal, cap=math.inf):
    """Fu et al. 2025 (AReaL), eq. 5: E[pi_prox / pi_behav min(u A, clip(u) A)] with u = pi / pi_prox."""
    terms = [
        min(math.exp(p - b), cap) * clipped(math.exp(n - p), a, low, high)
        for n, b, a, p in zip(new, sampling_logprobs, advantages, proximal, strict=True)
    ]
    return -sum(terms) / len(terms)


def policy(seed):
    return Learner.of(small_model(seed=seed), (), 0.0)


def sampled_by_two(ours):
    """Responses of which the first half of each was sampled by one model, and the rest by another."""
    first, second = (experience(small_model(seed=seed)) for seed in (1, 2))
    mixed = []
    for one, other in zip(responses_of(first), responses_of(second), strict=True):
        half = len(one.tokens) // 2
        kept = one.logprobs[:half] + other.logprobs[half:]
        mixed.append(replace(one, logprobs=kept, sampling_logprobs=kept))
    batch = batch_of(score(with_responses(first, mixed), ours))
    return batch, [value for one in mixed for value in one.sampling_logprobs]


@pytest.mark.parametrize(
    ("changes", "slow"),
    [
        ({"lag": 1}, slow_ppo),
        ({"lag": 1, "loss": Loss(decoupled=True)}, slow_decoupled),
        ({"lag": 1, "loss": Loss(decoupled=True), "importance_cap": 1.3}, slow_decoupled),
        ({"loss": Loss(decoupled=True)}, slow_decoupled),
    ],
)
def test_a_loss_divides_by_what_sampled_each_token(changes, slow):
    ours = method(clip_low=0.1, clip_high=0.3, **changes)
    batch, sampling_logprobs = sampled_by_two(ours)
    now, start = policy(4), policy(3)
    batch, _, _ = old_logprobs(start, batch, ours, 1.0, False)
    new = now.score(batch, 1.0)
    share = torch.full_like(new, 1 / len(new)) * (batch.importance if ours.weighs else 1.0)
    found = policy_loss(
        new, batch.old_logprobs, batch.advantages, share, 0.1, 0.3, batch.num_trained, ours.loss
    )
    more = {}
    if slow is slow_decoupled:
        more = {"proximal": start.score(batch, 1.0).tolist(), "cap": ours.importance_cap or math.inf}
    expected = slow(new.tolist(), sampling_logprobs, batch.advantages.tolist(), 0.1, 0.3, **more)
    assert float(found.loss) == pytest.approx(expected, rel=1e-4)
