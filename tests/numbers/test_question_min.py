"""Q-Spec budgets: the formula by hand and by brute force, and questions that nobody solves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics import Problem
from reodsl.numbers.question_min import question_min

GRID = (0, 1, 64, 128, 256)


def test_the_best_checkpoint_may_change_with_the_budget():
    # at 256 the first is best with 0.5; at 64 it is the second that gets there
    means = {"q": [[0, 0, 0.25, 0.25, 0.5], [0, 0, 0.5, 0.25, 0.25]]}
    assert question_min(means, GRID, 256).budgets == {"q": 64}


def test_a_question_may_need_everything():
    assert question_min({"q": [[1, 0, 0.5, 0.75, 1]]}, GRID, 256).budgets == {"q": 256}


def test_the_first_sufficient_budget_counts_even_if_later_ones_fall():
    assert question_min({"q": [[0, 0, 1, 0, 0.5]]}, GRID, 256).budgets == {"q": 64}


@pytest.mark.parametrize(
    ("unsolved", "expected"),
    [("formula", {"q": 1, "r": 64}), ("l_max", {"q": 256, "r": 64}), ("drop", {"r": 64})],
)
def test_questions_nobody_solves(unsolved, expected):
    means = {"q": [[0, 0, 0, 0.5, 0]], "r": [[0, 0, 1, 1, 1]]}
    found = question_min(means, GRID, 256, unsolved)
    assert found.budgets == expected
    assert found.unsolved == ("q",)
    # the formula's 1 does not depend on the grid
    assert question_min({"q": [[0, 0]]}, (64, 256), 256).budgets == {"q": 1}


@given(st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=4))
def test_against_the_formula(rows):
    means = [[count / 4 for count in row] for row in rows]
    full = max(row[-1] for row in means)
    sufficient = [L for k, L in enumerate(GRID) if L >= 1 and max(row[k] for row in means) >= full]
    assert question_min({"q": means}, GRID, 256).budgets == {"q": min(sufficient)}


@pytest.mark.parametrize(
    ("means", "grid", "l_max"),
    [
        ({"q": [[0, 1]]}, (0, 64), 128),
        ({"q": [[0, 1]]}, (64, 0), 64),
        ({"q": [[0, 1]]}, (), 64),
        ({"q": [0, 1]}, (0, 64), 64),
        ({"q": [[0, 1, 1]]}, (0, 64), 64),
        ({"q": [[0, float("nan")]]}, (0, 64), 64),
        ({"q": [[0, 32]]}, (0, 64), 64),
        ({"q": []}, (0, 64), 64),
    ],
)
def test_bad_input(means, grid, l_max):
    with pytest.raises(Problem) as caught:
        question_min(means, grid, l_max)
    assert [d.code for d in caught.value.diagnostics] == ["E0429"]
