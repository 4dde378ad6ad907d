"""Packing requests into cohorts: bounds kept, groups whole where they can be, nothing lost."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from runners.engine.embedded.generation import groups_of, take_groups
from runners.engine.protocol import Request

requests = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=30).map(
    lambda pairs: [Request((token,) * length, 0) for length, token in pairs]
)


@given(requests, st.integers(1, 12), st.integers(0, 200), st.integers(1, 20))
def test_cohorts_keep_to_their_bounds_and_lose_nothing(
    asked: list[Request], rows: int, tokens: int, max_tokens: int
) -> None:
    waiting = groups_of(asked)
    seen: list[int] = []
    while waiting:
        taken = take_groups(waiting, rows, tokens, max_tokens, is_idle=True)
        members = [index for _, group in taken for index in group]
        columns = max(len(prompt) for prompt, _ in taken) + max_tokens
        assert len(members) == 1 or (len(members) <= rows and len(members) * columns <= tokens)
        assert all(asked[index].prompt == prompt for prompt, group in taken for index in group)
        seen += members
    assert sorted(seen) == list(range(len(asked)))


@given(requests, st.integers(0, 12), st.integers(0, 200))
def test_beside_others_only_whole_groups_start(asked: list[Request], rows: int, tokens: int) -> None:
    waiting = groups_of(asked)
    before = list(waiting)
    taken = take_groups(waiting, rows, tokens, 5, is_idle=False)
    assert taken + list(waiting) == before
    count = sum(len(group) for _, group in taken)
    assert count <= rows
    if waiting:
        prompt, group = waiting[0]
        assert count + len(group) > min(rows, tokens // (len(prompt) + 5))


def test_a_group_larger_than_the_rows_is_split() -> None:
    waiting = deque([((7,), [0, 1, 2, 3, 4])])
    assert take_groups(waiting, 3, 1000, 5, is_idle=True) == [((7,), [0, 1, 2])]
    assert take_groups(waiting, 3, 1000, 5, is_idle=True) == [((7,), [3, 4])]
    assert not waiting
