"""Samples of several turns as they are graded: what is read, and after which turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from reodsl.ir.data import Grading
from runners.conversations import Turn
from runners.engine.protocol import Inserted, Response
from runners.evaluate.grade import Sampled, graded_samples, kind_of
from runners.evaluate.reader import Question
from runners.verify import Answer, Verdict

TURNS = (Turn("a", (), ("x",)), Turn("b", (), ("y",)))
RESPONSE = Response(tuple(range(9)), (), (), "stop", (0,), (Inserted(3, (90,)), Inserted(5, (91,))))
ITEM = Sampled(Question("b", "q", "asked", "7", ""), 0, RESPONSE, (), TURNS)


class Words:
    """Reads tokens as what they are called, and answers only in the last turn."""

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def last_turn(self, response: Response) -> str:
        return f"\\boxed{{{response.tokens[-1]}}}"


class Notes:
    """A verifier that finds everything right, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Answer] = []

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        self.asked += answers
        return [Verdict(True, "plain")] * len(answers)


def test_an_answer_at_a_cut_comes_after_the_turns_that_were_over() -> None:
    said = [(ITEM.before(cut).count('"x"'), ITEM.before(cut).count('"y"')) for cut in (0, 2, 3, 4, 5, 8)]
    assert said == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]
    assert ITEM.before() == ITEM.before(8)


def test_a_sample_has_the_words_of_tools_and_the_answer_of_its_last_turn() -> None:
    grading, notes = Grading(), Notes()
    (row,) = graded_samples(
        [ITEM], cast("Any", Words()), cast("Any", {kind_of(grading): notes}), {"b": grading}
    ).rows(named=True)
    assert (row["response"], row["tokens"], row["answer"]) == ("0 1 2 90 3 4 91 5 6 7 8", 9, "8")
    (asked,) = notes.asked
    assert (asked.text, asked.turns) == ("8", ITEM.before())
