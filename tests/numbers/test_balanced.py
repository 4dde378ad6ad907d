"""The balanced subset, by hand."""

import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.arm_scores import balance_questions

BASE = (
    [[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0]],
    [[8, 4, 100, 6], [10, 10, 10, 10], [1] * 4, [5] * 4],
)
SHORT = ([[1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 0]], [[2, 4, 6], [99, 1, 3], [1, 1, 1], [7, 7, 7]])


def test_it_takes_questions_that_all_solve_more_than_half_of_the_time():
    found = balance_questions({"base": BASE[0], "short": SHORT[0]}, {"base": BASE[1], "short": SHORT[1]})
    # question 2 is exactly half for base, question 3 a third for short
    assert found.questions == (0, 1)
    # correct responses only: base 6 and 10, short 4 and 2
    assert found.length == {"base": 8.0, "short": 3.0}
    assert found.accuracy == {"base": 7 / 8, "short": 5 / 6}


def test_questions_weigh_alike_however_often_they_are_solved():
    found = balance_questions({"m": [[1, 1, 1], [1, 1, 0]]}, {"m": [[3, 3, 3], [9, 9, 50]]})
    assert found.length == {"m": 6.0}


def test_nothing_in_common():
    found = balance_questions({"m": [[1], [0]], "n": [[0], [1]]}, {"m": [[3], [3]], "n": [[3], [3]]})
    assert found.questions == ()
    assert found.length == {"m": None, "n": None}


@pytest.mark.parametrize(
    ("correct", "lengths"),
    [
        ({}, {}),
        ({"m": [[1]]}, {}),
        ({"m": [[1]]}, {"m": [[1, 2]]}),
        ({"m": [1, 0]}, {"m": [1, 2]}),
        ({"m": [[1]], "n": [[1], [1]]}, {"m": [[1]], "n": [[1], [1]]}),
    ],
)
def test_bad_input(correct, lengths):
    with pytest.raises(Problem) as caught:
        balance_questions(correct, lengths)
    assert [d.code for d in caught.value.diagnostics] == ["E0431"]
