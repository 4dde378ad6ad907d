"""Places of splits: budgets as they come, question budgets by id, and steps at keywords in tokens."""

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Steps
from runners.rewards.inputs import budget_places, question_places, step_places


def test_budgets_end_in_the_longest_response():
    assert budget_places(Budgets(budgets=(4, 8), l_max=16), None) == (4, 8, 16)
    oracle = OracleBudgets(frontier="edge", n=2, l_max=16)
    assert budget_places(oracle, {"budgets": [3, 7], "l_max": 16}) == (3, 7, 16)
    with pytest.raises(Problem) as caught:
        budget_places(oracle, None)
    assert caught.value.diagnostics[0].code == "E0925"


@pytest.mark.parametrize(("unsolved", "unmet"), [("formula", {"s": (16, 16)}), ("drop", {})])
def test_question_budgets_leave_out_the_dropped_and_see_the_unmet_at_their_end(unsolved, unmet):
    split = QuestionBudgets(rollouts=("a",), l_max=16, unsolved=unsolved)
    found = {"questions": {"p": 5, "q": None, "r": 16, "of other data": 3}}
    assert question_places(split, found, "pqrs") == {"p": (5, 16), "r": (16, 16), **unmet}


def steps(keywords=("Wait", "But wait"), min_chunks=1, l_max=100):
    return Steps(separator="\n\n", keywords=keywords, min_chunks=min_chunks, l_max=l_max)


PIECES = ["So", " 2", "\n\n", "Wait", " no", "\n\n", "fine", "\n\n", "But", " wait", "!", "\n\nWait", " end"]


def decode(tokens):
    return "".join(PIECES[token] for token in tokens)


def test_steps_open_at_chunks_that_start_with_a_keyword():
    # A token that holds the end of one step and the start of the next belongs to the next.
    assert step_places(steps(), range(13), decode) == (3, 8, 11, 13)


def test_steps_wait_for_a_number_of_chunks():
    # Chunks: "So 2" | "Wait no" | "fine" | "But wait!" | "Wait end"; only the fourth is far enough from the first.
    assert step_places(steps(min_chunks=3), range(13), decode) == (8, 13)


def test_a_response_without_keywords_is_one_step_and_places_stop_at_the_longest():
    assert step_places(steps(keywords=("Hm",)), range(13), decode) == (13,)
    assert step_places(steps(l_max=9), range(13), decode) == (3, 8, 9, 9)


def test_words_joined_by_spaces_and_split_characters():
    words = ["a", "b", "wait", "c"]
    join = lambda tokens: " ".join(words[t] for t in tokens)  # noqa: E731
    split = Steps(separator=" wait ", keywords=("c",), l_max=50)
    assert step_places(split, (0, 1, 2, 3), join) == (3, 4)
    halves = [b"\xe2", b"\x82", b"\xac", b".. ", b"Wait"]
    raw = lambda tokens: b"".join(halves[t] for t in tokens).decode(errors="replace")  # noqa: E731
    split = Steps(separator=".. ", keywords=("Wait",), l_max=50)
    assert step_places(split, (0, 1, 2, 3, 0, 1, 2, 3, 4), raw) == (8, 9)
