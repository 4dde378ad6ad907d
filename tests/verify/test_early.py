"""Answers that come before all are known: graded once each, and a failure ends what makes them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from runners.verify import Answer, Early, Verdict


class Counting:
    """Numbers its verdicts by their order: even ones are right."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        self.calls.append((threading.current_thread().name, [answer.text for answer in answers]))
        if any(answer.text == "broken" for answer in answers):
            raise ValueError("it fails")
        return [Verdict(int(answer.text) % 2 == 0, "checked") for answer in answers]

    def stats(self) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def answers(*texts: str, which: str = "") -> list[Answer]:
    return [Answer(text, "", which=which) for text in texts]


def test_each_answer_is_graded_once_and_verdicts_are_in_the_order_of_the_question() -> None:
    verifier = Counting()
    early = Early(verifier)  # type: ignore[arg-type]
    early.begin(lambda: answers("4", "1"))
    early.settle()
    early.begin(lambda: answers("6"))
    found = early.grade(answers("1", "2", "6", "4", "4"))
    early.close()
    assert [verdict.correct for verdict in found] == [False, True, True, True, True]
    (first, one), (second, two), (third, rest) = verifier.calls
    assert (one, two, rest) == (["4", "1"], ["6"], ["2", "4"])
    assert first == second != third == threading.current_thread().name


def test_equal_answers_are_told_apart_by_which_they_are() -> None:
    verifier = Counting()
    early = Early(verifier)  # type: ignore[arg-type]
    early.begin(lambda: answers("2", which="3"))
    early.grade(answers("2", which="4"))
    assert [texts for _, texts in verifier.calls] == [["2"], ["2"]]
    # What was not asked for is not kept for another time.
    early.grade(answers("2", which="3"))
    early.close()
    assert len(verifier.calls) == 3


def test_a_failure_is_raised_where_the_next_one_is_begun_and_where_all_are_asked_for() -> None:
    early = Early(Counting())  # type: ignore[arg-type]
    early.begin(lambda: answers("broken"))
    with pytest.raises(ValueError, match="it fails"):
        early.settle()
    with pytest.raises(ValueError, match="it fails"):
        early.begin(lambda: answers("2"))
    early.close()


def test_what_came_while_others_were_graded_is_graded_together() -> None:
    """So that workers share it, and a judge that takes long is asked about many at a time."""
    began, goes_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
            began.set()
            assert goes_on.wait(30)
            return super().grade(answers)

    verifier = Slow()
    early = Early(verifier)  # type: ignore[arg-type]
    early.begin(lambda: answers("1"))
    assert began.wait(30)
    for text in ("2", "3", "4"):
        early.begin(lambda text=text: answers(text))  # type: ignore[misc]
    goes_on.set()
    found = early.grade(answers("1", "2", "3", "4"))
    early.close()
    assert [verdict.correct for verdict in found] == [False, True, False, True]
    assert [texts for _, texts in verifier.calls] == [["1"], ["2", "3", "4"]]
