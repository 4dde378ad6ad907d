"""Q-Spec budgets: the formula by hand and by brute force over every budget and group, and questions that nobody solves."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics import Problem
from reodsl.numbers.greedy import question_min

RIGHT_AT_64 = [(64, True)]
NEVER: list[tuple[int, bool]] = []


def test_the_best_group_may_change_with_the_budget():
    # At 256 the first is best with half of its rollouts; at 64 it is the second that gets there.
    late = [RIGHT_AT_64, [(256, True)], NEVER, NEVER]
    early = [RIGHT_AT_64, [(32, True), (100, False)], [(90, False)], NEVER]
    assert question_min([("q", late), ("q", early)], 256).budgets == {"q": 64}


def test_a_question_may_need_everything():
    assert question_min([("q", [[(3, True), (4, False), (256, True)], [(256, True)]])], 256).budgets == {
        "q": 256
    }


def test_the_first_sufficient_budget_counts_even_if_later_ones_fall():
    assert question_min([("q", [RIGHT_AT_64, [(64, True), (90, False)]])], 256).budgets == {"q": 64}


def test_what_comes_after_the_longest_response_counts_for_nothing():
    assert question_min([("q", [[(20, True), (300, False)], [(300, True)]])], 256).budgets == {"q": 20}


def test_shares_of_groups_of_unlike_sizes_are_compared_exactly():
    """A third of three rollouts is a third of nine."""
    three, nine = [[(50, True)], NEVER, NEVER], [[(9, True)]] * 3 + [NEVER] * 6
    assert question_min([("q", three), ("q", nine)], 64).budgets == {"q": 9}


@pytest.mark.parametrize(
    ("unsolved", "expected"),
    [("formula", {"q": 1, "r": 64}), ("l_max", {"q": 256, "r": 64}), ("drop", {"r": 64})],
)
def test_questions_nobody_solves(unsolved, expected):
    groups = [("q", [[(64, True), (128, False)]]), ("r", [RIGHT_AT_64]), ("q", [NEVER])]
    found = question_min(groups, 256, unsolved)
    assert found.budgets == expected
    assert found.unsolved == ("q",)


CHANGES = st.lists(st.tuples(st.integers(1, 14), st.booleans()), max_size=4).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)
GROUPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(CHANGES, min_size=1, max_size=5)), min_size=1, max_size=6
)


def correct(changes, budget):
    held = [verdict for at, verdict in changes if at <= budget]
    return held[-1] if held else False


@given(GROUPS, st.integers(1, 12))
def test_against_the_formula(groups, l_max):
    """L^x = min { L in 1 … L_max : max over groups of the mean at L >= max over groups of the mean at L_max }."""

    def best(question, budget):
        return max(
            Fraction(sum(correct(each, budget) for each in rollouts), len(rollouts))
            for name, rollouts in groups
            if name == question
        )

    found = question_min(groups, l_max)
    assert set(found.budgets) == {name for name, _ in groups}
    for question, budget in found.budgets.items():
        assert budget == min(n for n in range(1, l_max + 1) if best(question, n) >= best(question, l_max))
    assert set(found.unsolved) == {name for name in found.budgets if best(name, l_max) == 0}


@pytest.mark.parametrize(
    ("rollouts", "l_max"),
    [([[(1, True)]], 0), ([], 64), ([[(5, True), (4, False)]], 64), ([[(0, True)]], 64)],
)
def test_bad_input(rollouts, l_max):
    with pytest.raises(Problem) as caught:
        question_min([("q", rollouts)], l_max)
    assert [d.code for d in caught.value.diagnostics] == ["E0405"]
