"""Draws of training: every question once an epoch, even orders, and nothing dependent on history."""

from hypothesis import given
from hypothesis import strategies as st

from runners.seeds import purpose
from runners.train.draws import drawn, permutation


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
