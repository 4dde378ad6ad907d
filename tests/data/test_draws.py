"""Draws of training: every question once an epoch, even orders, and nothing dependent on history."""

from hypothesis import given
from hypothesis import strategies as st

from reodsl.ir.reward import Exits
from runners.data.draws import batch_indices, derive_seed, exit_places, permutation


@given(st.integers(0, 2**64 - 1), st.integers(1, 60), st.integers(1, 25))
def test_draws_run_through_epochs_and_no_step_needs_another(seed, count, batch):
    steps = [batch_indices(seed, step, batch, count) for step in range(6)]
    row = [i for step in steps for i in step]
    for epoch in range(len(row) // count):
        assert sorted(row[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert batch_indices(seed, 3, batch, count) == steps[3]


def test_permutations_differ_by_seed_and_are_even():
    orders = [tuple(permutation(derive_seed(seed, "test"), 4)) for seed in range(2400)]
    counts = {order: orders.count(order) for order in set(orders)}
    assert len(counts) == 24
    # 100 expected of each; beyond five deviations lies chance of one in a million.
    assert all(50 < count < 150 for count in counts.values())
    assert derive_seed(1, "a", 2) != derive_seed(1, "b", 2) != derive_seed(2, "b", 2)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 12), st.integers(0, 5))
def test_exits_are_places_of_the_response_and_its_end(tokens, n, seed):
    split = Exits(n=n, l_max=64)
    places = exit_places(split, tokens, seed)
    assert places == exit_places(split, tokens, seed)
    assert list(places) == sorted(set(places))
    assert places[-1] == len(tokens)
    assert len(places) == 1 + min(n, len(tokens) - 1)
    assert places[0] >= 1


def test_every_place_is_an_exit_as_often():
    """Of 9 places 3 each, over 3,000 responses: 1,000 of each, give or take four standard deviations of a binomial."""
    split, counts = Exits(n=3, l_max=64), [0] * 10
    for number in range(3000):
        for place in exit_places(split, [number, *[0] * 9], 7)[:-1]:
            counts[place] += 1
    spread = 4 * (3000 * (1 / 3) * (2 / 3)) ** 0.5
    assert counts[0] == 0
    assert all(abs(count - 1000) < spread for count in counts[1:]), counts
