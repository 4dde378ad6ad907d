"""Micro-batches, draws and learning rates: bounds kept, everything there once, nothing dependent on history."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reodsl.ir.training import AdamGroup, Optimizer
from runners.train.batches import Example, by_length, dealt, microbatches
from runners.train.draws import drawn, permutation, purpose
from runners.train.optimizers import (
    build_optimizers,
    learning_rate_factor,
    load_optimizer_state,
    optimizer_state,
    set_learning_rate,
)
from runners.train.sft import batch_of
from tests.train.models import small_model


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(10, 200))
def test_micro_batches_hold_every_row_once_within_the_bound(lengths, bound):
    groups = by_length(lengths, bound)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(10, 200), st.integers(1, 5))
def test_rows_are_dealt_once_and_every_process_has_as_many_groups(lengths, bound, world):
    parts = dealt(lengths, bound, world)
    assert sorted(i for groups in parts for group in groups for i in group) == list(range(len(lengths)))
    assert len({len(groups) for groups in parts}) == 1
    for group in (group for groups in parts for group in groups if group):
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound
    # No process has more than another by more than the longest row.
    loads = [sum(lengths[i] for group in groups for i in group) for groups in parts]
    assert max(loads) - min(loads) <= max(lengths, default=0)
    if world == 1:
        assert parts[0] == by_length(lengths, bound)


def test_a_process_without_rows_runs_a_blank_of_no_weight():
    row = Example((1,), (2, 3), np.ones(2, dtype=np.float32))
    (blank,) = microbatches([row], 100, torch.device("cpu"), rank=1, world=2)
    assert blank.members == ()
    assert (blank.ids.tolist(), blank.at.tolist(), blank.weights.tolist()) == ([[0]], [0], [0.0])


def test_a_micro_batch_points_at_what_predicts_each_trained_token():
    def example(prompt, tokens):
        return Example(prompt, tokens, np.ones(len(tokens), dtype=np.float32))

    rows = [example((5, 6), (7, 8, 9)), example((1,), (2, 3))]
    (batch,) = microbatches(rows, 100, torch.device("cpu"))
    assert batch.members == (1, 0)
    assert batch.ids.tolist() == [[1, 2, 0, 0], [5, 6, 7, 8]]
    assert batch.at.tolist() == [0, 1, 5, 6, 7]
    assert batch.targets.tolist() == [2, 3, 7, 8, 9]


@given(st.integers(0, 2**64 - 1), st.integers(1, 60), st.integers(1, 25))
def test_draws_run_through_epochs_and_no_step_needs_another(seed, count, batch):
    steps = [drawn(seed, step, batch, count) for step in range(6)]
    row = [i for step in steps for i in step]
    for epoch in range(len(row) // count):
        assert sorted(row[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert drawn(seed, 3, batch, count) == steps[3]


def test_permutations_differ_by_seed_and_are_even():
    orders = [tuple(permutation(purpose(seed, "test"), 4)) for seed in range(2400)]
    counts = {order: orders.count(order) for order in set(orders)}
    assert len(counts) == 24
    # 100 expected of each; beyond five deviations lies chance of one in a million.
    assert all(50 < count < 150 for count in counts.values())
    assert purpose(1, "a", 2) != purpose(1, "b", 2) != purpose(2, "b", 2)


def test_batches_of_similar_length_cover_an_epoch():
    lengths = tuple(int(n) for n in np.random.default_rng(0).integers(1, 100, 70))
    batches = [batch_of(lengths, 7, step, 8, True) for step in range(8)]
    seen = [i for batch in batches for i in batch]
    assert len(set(seen)) == 64
    spread = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert np.mean(spread) < 25
    assert batch_of(lengths, 7, 3, 8, True) == batches[3]
    assert {i for step in range(8, 16) for i in batch_of(lengths, 7, step, 8, True)} != set(seen)
    assert len(batch_of((5, 6), 7, 0, 8, True)) == 8


def settings(**changes):
    return Optimizer.model_validate({"algorithm": "adamw", "lr": 0.1} | changes)


def test_learning_rate_curve():
    curve = settings(warmup_steps=4, decay="linear", decay_from=0.5)
    factors = [learning_rate_factor(step, 10, curve) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert learning_rate_factor(0, 10, settings()) == 1
    assert [learning_rate_factor(s, 4, settings(decay="linear")) for s in range(4)] == [1, 0.75, 0.5, 0.25]


def test_a_share_of_warm_up_is_of_the_steps_that_are_taken():
    curve = settings(warmup_share=0.29)
    assert [learning_rate_factor(step, 100, curve) for step in (0, 28, 29)] == pytest.approx([1 / 29, 1, 1])
    assert learning_rate_factor(27, 100, curve) < 1
    # Rounded down, so that the paper's 0.1% is none of 999 steps.
    assert learning_rate_factor(0, 999, settings(warmup_share=0.001)) == 1
    assert learning_rate_factor(0, 2000, settings(warmup_share=0.001)) == 0.5


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest():
    for tied in (True, False):
        model = small_model(tied=tied)
        rest = AdamGroup(lr=0.03, betas=(0.8, 0.9), eps=1e-8)
        muon, adamw = build_optimizers(model, settings(algorithm="muon", rest=rest))
        names = {id(p): name for name, p in model.named_parameters()}
        matrices = {names[id(p)] for group in muon.param_groups for p in group["params"]}
        others = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
        assert matrices | others == set(names.values())
        assert not matrices & others
        assert all("proj" in name for name in matrices)
        assert {"model.embed_tokens.weight", "model.norm.weight"} <= others
        set_learning_rate([muon, adamw], 0.5)
        assert muon.param_groups[0]["lr"] == 0.05
        assert adamw.param_groups[0]["lr"] == 0.015


@pytest.mark.parametrize("algorithm", ["adam", "adamw", "muon"])
def test_an_optimizer_goes_on_from_its_state_to_the_bit(algorithm):
    def step(model, optimizers, seed):
        draw = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        for optimizer in optimizers:
            optimizer.step()

    first, second = small_model(), small_model()
    rule = settings(algorithm=algorithm, weight_decay=0.01)
    one, other = build_optimizers(first, rule), build_optimizers(second, rule)
    step(first, one, 1)
    second.load_state_dict(first.state_dict())
    load_optimizer_state(second, other, optimizer_state(first, one))
    step(first, one, 2)
    step(second, other, 2)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q)
