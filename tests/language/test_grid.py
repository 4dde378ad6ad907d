"""Which budgets a grid resolves: one between two points does, two do not, and none before the first."""

from __future__ import annotations

import pytest

from reodsl.language.checks.budgets import find_unresolved

GRID = (0, 64, 128, 1024, 2048)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ((64, 128, 1024), []),
        ((64, 500, 1500), []),  # one in each gap
        ((200, 500, 1500), [200, 500]),  # two in one gap
        ((32, 1024), [32]),  # before the first point
        ((1024, 1448, 2048), []),
        ((1448, 1500, 4096), [1448, 1500]),
    ],
)
def test_unresolved(splits: tuple[int, ...], expected: list[int]) -> None:
    assert find_unresolved(splits, GRID, 2048) == expected


def test_past_the_integral_nothing_is_looked_for() -> None:
    assert find_unresolved((1100, 1200), GRID, 1024) == []
    assert find_unresolved((1100, 1200), GRID, 1150) == []
