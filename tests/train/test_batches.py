"""Micro-batches: bounds kept, every row there once, and what predicts each token pointed at."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.train.batches import Example, by_length, dealt, microbatches


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
