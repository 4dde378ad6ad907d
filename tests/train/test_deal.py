"""Dealing rows: bounds kept, every row there once, and every process as busy as another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.price.memory import from_config
from runners.train.batch import GPU_TOKENS, assign_packed, assign_padded, group_by_length
from tests.price.test_sizes import QWEN3_4B


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(10, 200))
def test_micro_batches_hold_every_row_once_within_the_bound(lengths, bound):
    groups = group_by_length(lengths, bound)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(10, 200), st.integers(1, 5))
def test_rows_are_dealt_once_and_every_process_has_as_many_groups(lengths, bound, world):
    parts = assign_padded(lengths, bound, world)
    assert sorted(i for groups in parts for group in groups for i in group) == list(range(len(lengths)))
    assert len({len(groups) for groups in parts}) == 1
    for group in (group for groups in parts for group in groups if group):
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound
    # No process has more than another by more than the longest row.
    loads = [sum(lengths[i] for group in groups for i in group) for groups in parts]
    assert max(loads) - min(loads) <= max(lengths, default=0)
    if world == 1:
        assert parts[0] == group_by_length(lengths, bound)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(10, 200), st.integers(1, 5))
def test_packed_rows_are_dealt_once_within_the_bound_and_as_many_groups_to_each(lengths, bound, world):
    parts = assign_packed(lengths, [length**2 for length in lengths], bound, world)
    assert len(parts) == world
    assert sorted(i for groups in parts for group in groups for i in group) == list(range(len(lengths)))
    assert len({len(groups) for groups in parts}) == 1
    for group in (group for groups in parts for group in groups):
        assert len(group) <= 1 or sum(lengths[i] for i in group) <= bound
    # Processes do not wait for empty groups: some group of each round has rows.
    assert all(any(round_) for round_ in zip(*parts, strict=True))


SIZES = from_config(QWEN3_4B)


def drawn(seed):
    """A batch of responses: exponential lengths with a mean of 10.8K tokens, none past 32K."""
    lengths = np.random.default_rng(seed).exponential(10_800, 512)
    return np.minimum(np.ceil(lengths), 32_768).astype(int).tolist()


def cost(length):
    return SIZES.forward_flops(length, length**2 / 2)


def efficiency(parts, lengths):
    """The share of its time that a process works, where all wait in each round for the one that has most to do."""
    loads = [[sum(cost(lengths[i]) for i in group) for group in groups] for groups in parts]
    return sum(map(cost, lengths)) / (len(parts) * sum(max(round_) for round_ in zip(*loads, strict=True)))


@pytest.mark.parametrize(("world", "least", "before"), [(8, 0.97, 0.93), (64, 0.95, 0.75), (128, 0.93, 0.50)])
def test_processes_seldom_wait_for_each_other(world, least, before):
    """In the mean of twenty batches; `before`, padded rows dealt by tokens, without what padding costs."""
    packed, padded, possible = [], [], []
    for seed in range(20):
        lengths = drawn(seed)
        costs = [cost(length) for length in lengths]
        packed.append(efficiency(assign_packed(lengths, costs, GPU_TOKENS, world), lengths))
        padded.append(efficiency(assign_padded(lengths, 32_768, world), lengths))
        # Nobody can be done before the process with the longest row is.
        possible.append(min(1.0, sum(costs) / (world * max(costs))))
    assert np.mean(packed) >= least
    assert np.mean(padded) < before
    for found, most in zip(packed, possible, strict=True):
        assert found <= most + 1e-9
        assert found >= 0.93 * most


@pytest.mark.parametrize("world", [1, 8])
def test_groups_are_nearly_full(world):
    lengths = drawn(0)
    parts = assign_packed(lengths, [cost(length) for length in lengths], GPU_TOKENS, world)
    assert len(parts[0]) <= 1 + 1.05 * sum(lengths) / (world * GPU_TOKENS)
