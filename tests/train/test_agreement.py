"""Engine against trainer: the measures by hand, importance weights in the update, and a run that stops and goes on."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.ir.expression import Length
from reodsl.ir.reward import Reward
from reodsl.ir.training import Loss, Sampling
from reodsl.price.tasks import count_scorings
from runners.data.draws import derive_seed, permutation
from runners.engine.embedded import engine as embedded
from runners.train.agreement import Disagreement, agreement, old_logprobs, require_agreement
from runners.train.batch import TrainBatch
from runners.train.gather import batch_of, score
from runners.train.optimizers import build_optimizers
from runners.train.ppo import update
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_train import OUTCOME, ppo, same
from tests.train.test_update import SETTINGS, experience, method

LENGTH = Reward(name="", outcome=Length(of="y"))
"""A reward that differs in every group. Whether answers differ depends on a processor's last bits."""


def test_the_measures_by_hand():
    """Differences ln 2, 0 and -ln 4: factors 2, 1 and 4; r - 1 - ln r is 1 - ln 2, 0 and ln 4 - 3/4."""
    found = agreement(np.log([2.0, 1.0, 0.25]))
    assert found["mismatch_median"] == pytest.approx(2)
    assert found["mismatch_max"] == pytest.approx(4)
    assert found["mismatch_kl"] == pytest.approx((1 - math.log(2) + math.log(4) - 0.75) / 3)
    assert agreement(None) == agreement(np.zeros(0)) == {}


def test_a_median_past_the_limit_is_told_with_its_measures(refusal):
    apart = np.log([2.0, 1.25, 0.25])
    require_agreement(apart, 2.0, 6)
    require_agreement(apart, None, 6)
    with pytest.raises(Problem) as caught:
        require_agreement(apart, 1.99, 6)
    refusal("train/E0936.txt", caught.value, task="tiny.train.s1")


def test_the_divergence_is_what_its_tokens_say_in_the_mean():
    """Over tokens drawn from the engine the mean of r - 1 - log r is KL(engine || trainer), here summed in closed form."""
    engine, trainer = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    exact = float((engine * np.log(engine / trainer)).sum())
    drawn = np.random.default_rng(1).choice(3, 200_000, p=engine)
    # The terms' own spread is below 0.06, so a mean of 200,000 is within 5 x 0.06 / 447 of the sum.
    assert agreement(np.log(trainer / engine)[drawn])["mismatch_kl"] == pytest.approx(exact, abs=7e-4)


def learner(seed=0):
    model = small_model(seed=seed)
    return Learner.of(model, build_optimizers(model, SETTINGS), SETTINGS.grad_norm)


def rule(**changes):
    return method(minibatches=1, epochs=1, **changes)


def rows_of(batch):
    """Each row's tokens, and how many of them are its prompt."""
    rows = batch.tokens.split(batch.lengths.tolist())
    return [(row, len(row) - count) for row, count in zip(rows, batch.num_trained.tolist(), strict=True)]


def trainers(model, batch, temperature=1.0):
    """Log-probabilities of all trained tokens by the model's own forward, row after row."""
    found = []
    for row, prompt in rows_of(batch):
        with torch.no_grad():
            logits = model(input_ids=row[None]).logits[0, prompt - 1 : -1]
        found.append((logits / temperature).log_softmax(-1).gather(1, row[prompt:, None]).squeeze(1))
    return torch.cat(found)


def cropped(batch):
    return batch.crop(batch.last_advantages())


@pytest.mark.parametrize(
    ("changes", "engine_is_exact", "mine"),
    [
        ({}, True, False),
        ({}, False, True),
        ({"old_logprobs": "trainer"}, True, True),
        ({"old_logprobs": "engine"}, False, False),
        ({"rollout": Sampling(max_tokens=12, temperature=0.7)}, True, True),
        ({"rollout": Sampling(max_tokens=12, temperature=0.7), "old_logprobs": "engine"}, True, False),
        ({"importance_cap": 2.0}, True, True),
        ({"lag": 1}, False, False),
        ({"lag": 1, "rollout": Sampling(max_tokens=12, temperature=0.7)}, True, False),
        ({"loss": Loss(decoupled=True)}, True, True),
        ({"loss": Loss(decoupled=True), "lag": 1}, True, True),
    ],
)
def test_whose_log_probabilities_ratios_divide_by(changes, engine_is_exact, mine):
    own = learner()
    temperature = changes.get("rollout", Sampling(max_tokens=12)).temperature
    found = experience(small_model(seed=1), temperature)
    ours = rule(**changes)
    batch = cropped(batch_of(score(found, ours)))
    scored, apart, _ = old_logprobs(own, batch, ours, temperature, engine_is_exact)
    wanted = trainers(own.model, batch, temperature) if mine else batch.sampling_logprobs
    torch.testing.assert_close(scored.old_logprobs, wanted, atol=2e-5, rtol=0)
    assert (apart is None) == (not mine and temperature == 1.0)


CUT = Sampling(max_tokens=12, temperature=0.7, top_p=0.9)


@pytest.mark.slow
@pytest.mark.parametrize("old", ["auto", "engine", "trainer"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"importance_cap": 2.0}, {"lag": 1}, {"loss": Loss(decoupled=True), "lag": 1}],
    ids=["plain", "capped", "lagging", "decoupled"],
)
@pytest.mark.parametrize("rollout", [Sampling(max_tokens=12), Sampling(max_tokens=12, temperature=0.7), CUT])
@pytest.mark.parametrize(
    ("engine", "precision"), [("embedded", "float32"), ("embedded", "bfloat16"), ("sglang", "auto")]
)
def test_a_plan_counts_the_passes_before_the_update(monkeypatch, old, changes, rollout, engine, precision):
    """What `reodsl plan` charges for is what is done: passes over all responses, counted."""
    ours = rule(old_logprobs=old, rollout=rollout, **changes)
    found = experience(small_model(seed=1), rollout.temperature)
    batch = batch_of(score(found, ours))
    passes, scores = [], Learner.score
    monkeypatch.setattr(Learner, "score", lambda *given: passes.append(1) or scores(*given))
    old_logprobs(learner(), batch, ours, rollout.temperature, (engine, precision) == ("embedded", "float32"))
    stage = ppo(OUTCOME, steps=1).model_copy(update={"method": ours, "precision": precision})
    assert count_scorings(stage, ours, engine, 4) == len(passes)


def test_the_difference_is_the_trainers_minus_the_engines():
    own, ours = learner(), rule(old_logprobs="trainer")
    found = experience(small_model(seed=1))
    batch = batch_of(score(found, ours))
    run = cropped(batch)
    wanted = agreement((trainers(own.model, run) - run.engine_logprobs).numpy())
    row = update(own, batch, ours, 5, 0)
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    assert row["ratio_error"] == 0
    # The same without a pass of its own: the first one of the update shows it.
    row = update(learner(), batch, rule(), 5, 0)
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)


def test_importance_weights_are_ratios_up_to_the_cap():
    """One step of the truncated weights equals autograd through the loss written out, token by token."""
    own, cap = learner(), 1.2
    slow = copy.deepcopy(own.model)
    ours = rule(importance_cap=cap)
    found = experience(small_model(seed=1))
    batch = batch_of(score(found, ours))
    row = update(own, batch, ours, 5, 0)
    total, counts = len(batch.weights), batch.num_trained.tolist()
    columns = zip(batch.sampling_logprobs.split(counts), batch.advantages.split(counts), strict=True)
    loss, weights = torch.zeros(()), []
    for (tokens, prompt), (sampling_logprobs, advantages) in zip(rows_of(batch), columns, strict=True):
        logits = slow(input_ids=tokens[None]).logits[0, prompt - 1 : -1]
        new = logits.log_softmax(-1).gather(1, tokens[prompt:, None]).squeeze(1)
        ratio = torch.exp(new.detach() - sampling_logprobs)
        weights.extend(ratio.tolist() if advantages.any() else [])
        # New over old is 1 before any change; its gradient is that of the log-probability.
        moved = torch.exp(new - new.detach()) * advantages
        loss = loss - (ratio.clamp(max=cap) * moved).sum() / total
    loss.backward()
    assert row["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    norm = torch.nn.utils.get_total_norm([p.grad for p in slow.parameters()])
    assert row["grad_norm"] == pytest.approx(float(norm), rel=1e-3)
    kept = np.minimum(weights, cap)
    assert row["importance_mean"] == pytest.approx(kept.mean(), rel=1e-4)
    assert row["importance_capped"] == pytest.approx((np.array(weights) > cap).mean())
    assert 0 < row["importance_capped"] < 1


def test_a_prefix_that_is_learnt_is_the_trainers_own_and_has_no_weight():
    own, ours = learner(), rule(importance_cap=3.0)
    theirs = torch.tensor([0.0, 0.0, -1.0, -2.0, -3.0])
    batch = replace(
        TrainBatch.of([(3, 4)], [(5, 6, 7, 8, 9)]),
        sampled_mask=torch.tensor([False, False, True, True, True]),
        engine_logprobs=theirs,
        sampling_logprobs=theirs,
        advantages=torch.ones(5),
    )
    scored, apart, _ = old_logprobs(own, batch, ours, 1.0, True, all_sampled=False)
    mine = trainers(own.model, batch)
    gaps = (mine - theirs)[2:]
    torch.testing.assert_close(scored.old_logprobs, mine, atol=2e-5, rtol=0)
    assert scored.importance[:2].tolist() == [1, 1]
    torch.testing.assert_close(scored.importance[2:], gaps.exp().clamp(max=3.0), rtol=1e-4, atol=0)
    np.testing.assert_allclose(apart, gaps.numpy(), atol=2e-5)
    kept, _, _ = old_logprobs(own, batch, rule(old_logprobs="engine"), 1.0, True, all_sampled=False)
    torch.testing.assert_close(kept.old_logprobs, torch.cat((mine[:2], theirs[2:])), atol=2e-5, rtol=0)


def test_importance_weights_of_tokens_and_responses_are_cut():
    """Written out response by response; the first token of the first one was given to the engine."""
    own, counts = learner(), (3, 4)
    gaps = torch.tensor([0.0, 0.5, -1.2, 0.1, 0.4, 0.6, -0.2])
    drawn = torch.tensor([False, *[True] * 6])
    batch = TrainBatch.of([(3, 4), (5,)], [(5, 6, 7), (8, 9, 10, 11)])
    theirs = trainers(own.model, batch) - gaps
    batch = replace(
        batch, sampled_mask=drawn, engine_logprobs=theirs, sampling_logprobs=theirs, advantages=torch.ones(7)
    )
    for level in ("token", "sequence", "mean"):
        form = Loss(importance=level)
        scored, _, numbers = old_logprobs(
            own, batch, rule(importance_cap=1.6, loss=form), 1.0, True, all_sampled=False
        )
        wanted, outside = [], 0
        for own_gaps, own_drawn in zip(gaps.split(counts), drawn.split(counts), strict=True):
            of = [float(gap) for gap, was in zip(own_gaps, own_drawn, strict=True) if was]
            levels = {"token": of, "sequence": [sum(of)] * len(of), "mean": [sum(of) / len(of)] * len(of)}
            weights = [math.exp(each) for each in levels[level]]
            outside += sum(each > 1.6 for each in weights)
            wanted += [1.0] * (len(own_drawn) - len(of)) + [min(each, 1.6) for each in weights]
        assert scored.importance.tolist() == pytest.approx(wanted, rel=1e-3), form
        assert numbers["importance_capped"] == pytest.approx(outside / 6)
        assert numbers["importance_mean"] == pytest.approx(sum(wanted[1:]) / 6, rel=1e-3)


@pytest.mark.parametrize("old", ["engine", "trainer"])
def test_too_far_apart_stops_before_anything_changes(old):
    own = learner()
    before = copy.deepcopy(own.model.state_dict())
    found = experience(small_model(seed=1))
    ours = rule(old_logprobs=old, mismatch_limit=1.05)
    with pytest.raises(Problem) as caught:
        update(own, batch_of(score(found, ours)), ours, 5, 6)
    (told,) = caught.value.diagnostics
    assert (told.code, told.where) == ("E0936", "step 7")
    assert "`mismatch_limit` is 1.05" in told.message
    assert "nats per token" in told.notes[0]
    assert all(torch.equal(value, before[name]) for name, value in own.model.state_dict().items())
    near = experience(own.model)
    update(own, batch_of(score(near, ours)), ours, 5, 0)


def test_a_first_minibatch_with_nothing_to_learn_does_not_hide_the_difference():
    """Its passes show nothing, and decay and momentum change the weights before the second one's would."""
    own, ours = learner(), method(minibatches=2, epochs=1, old_logprobs="engine", mismatch_limit=1.05)
    before = copy.deepcopy(own.model.state_dict())
    found = experience(small_model(seed=1))
    batch = batch_of(score(found, ours))
    first, second = np.array_split(permutation(derive_seed(5, "minibatches", 6, 0), len(batch)), 2)
    advantages = torch.ones_like(batch.advantages)
    rows = torch.arange(len(batch)).repeat_interleave(batch.num_trained)
    advantages[torch.isin(rows, torch.from_numpy(first))] = 0
    quiet = replace(batch, advantages=advantages)
    with pytest.raises(Disagreement):
        update(own, quiet, ours, 5, 6)
    assert all(torch.equal(value, before[name]) for name, value in own.model.state_dict().items())
    numbers = update(own, quiet, ours.model_copy(update={"mismatch_limit": None}), 5, 6)
    mine = trainers(small_model(seed=0), quiet)
    gaps = (mine - batch.engine_logprobs)[torch.isin(rows, torch.from_numpy(second))].abs().numpy()
    assert numbers["mismatch_median"] == pytest.approx(float(np.exp(np.median(gaps))), rel=1e-4)


def test_passes_in_bfloat16_differ_from_the_engines_float32_and_are_recomputed(bench, monkeypatch):
    """`auto` then divides by the trainer's, so that ratios begin at 1, and the difference is that of eight bits.

    The stage alone multiplies in bfloat16: the engine gets the weights whole, and its products are float32.
    """
    dtypes, take = set(), embedded.EmbeddedEngine.load_weights

    def note(self, state, version):
        if not isinstance(state, Path):
            dtypes.update(value.dtype for value in state.values())
        take(self, state, version)

    monkeypatch.setattr(embedded.EmbeddedEngine, "load_weights", note)
    stage = ppo(LENGTH, steps=4, forcing=None, precision="bfloat16")
    metrics = pl.read_parquet(
        bench.train(stage, "rough_ppo", start="base", data="questions") / "metrics.parquet"
    )
    told = metrics.drop_nulls("mismatch_median")
    assert told.height
    assert dtypes == {torch.float32}
    assert 1.00001 < told["mismatch_median"].min() <= told["mismatch_median"].max() < 1.05
    assert told["ratio_error"].max() == 0


def test_a_run_that_stops_keeps_its_steps_and_goes_on_with_another_limit(bench, monkeypatch):
    """An engine that goes wrong at the third step: two are kept, and a mended one ends with the bytes of a whole run."""
    stage = ppo(LENGTH, steps=4, forcing=None)
    limited = stage.model_copy(
        update={"method": stage.method.model_copy(update={"mismatch_limit": 1.05, "old_logprobs": "trainer"})}
    )
    whole = bench.train(limited, "agreeing", start="base", data="questions")
    mended = embedded.EmbeddedEngine.load_weights

    def wrong(self, state, version):
        if version == 2:
            state = {name: value * 1.5 if value.ndim == 2 else value for name, value in state.items()}
        mended(self, state, version)

    monkeypatch.setattr(embedded.EmbeddedEngine, "load_weights", wrong)
    with pytest.raises(Problem) as caught:
        bench.train(limited, "disagreeing", start="base", data="questions")
    assert caught.value.diagnostics[0].code == "E0936"
    assert caught.value.diagnostics[0].where == "step 3"
    monkeypatch.setattr(embedded.EmbeddedEngine, "load_weights", mended)
    again = bench.train(
        limited, "disagreeing", start="base", data="questions", stop_at=None, resources=Resources()
    )
    same(whole, again)
    metrics = pl.read_parquet(again / "metrics.parquet")
    assert metrics["mismatch_median"].drop_nulls().max() < 1.0001
