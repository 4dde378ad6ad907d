"""Dealing rows: bounds kept, every row there once, and every process as busy as another."""

from hypothesis import given
from hypothesis import strategies as st

from runners.train.deal import by_length, deal_padded


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(10, 200))
def test_micro_batches_hold_every_row_once_within_the_bound(lengths, bound):
    groups = by_length(lengths, bound)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(10, 200), st.integers(1, 5))
def test_rows_are_dealt_once_and_every_process_has_as_many_groups(lengths, bound, world):
    parts = deal_padded(lengths, bound, world)
    assert sorted(i for groups in parts for group in groups for i in group) == list(range(len(lengths)))
    assert len({len(groups) for groups in parts}) == 1
    for group in (group for groups in parts for group in groups if group):
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound
    # No process has more than another by more than the longest row.
    loads = [sum(lengths[i] for group in groups for i in group) for groups in parts]
    assert max(loads) - min(loads) <= max(lengths, default=0)
    if world == 1:
        assert parts[0] == by_length(lengths, bound)
