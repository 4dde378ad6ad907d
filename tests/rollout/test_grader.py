"""Samples of several turns as they are graded: what is read, and after which turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from reodsl.ir.data import Grading
from reodsl.ir.model import Folder, Model, Prompt
from runners.conversations import Turn
from runners.engine.protocol import Inserted, Response
from runners.evaluate.tables import Sampled, graded_samples, kind_of
from runners.models.tokenizer import word_tokenizer
from runners.rollout.generator import Question, Reader
from runners.verify import Answer, Verdict

TURNS = (Turn("a", (), ("x",)), Turn("b", (), ("y",)))
RESPONSE = Response(tuple(range(9)), (), (), "stop", (0,), (Inserted(3, (90,)), Inserted(5, (91,))))
ITEM = Sampled(Question("b", "q", "asked", "7", ""), 0, RESPONSE, (), TURNS)


class Words:
    """Reads tokens as what they are called, and answers only in the last turn."""

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def answer(self, question: Question, response: Response, grading: Grading) -> str:
        return str(response.tokens[-1])


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


WORDS = word_tokenizer(("a", "\\boxed{", "7", "8", "}", "[end]"))


def ids(text: str) -> tuple[int, ...]:
    return tuple(WORDS.encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    ("prefix", "close", "said", "answers"),
    [
        ("", None, "<think> \\boxed{ 8 }", ("8", "")),
        ("", None, "<think> \\boxed{ 8 } </think> \\boxed{ 7 } <eos>", ("7", "7")),
        ("", None, "\\boxed{ 8 } </think> a </think> a <eos>", ("8", "")),
        ("<think>", None, "\\boxed{ 8 }", ("8", "")),
        (" </think>", None, "\\boxed{ 8 } <eos>", ("8", "8")),
        ("", "[end]", "\\boxed{ 8 } </think> \\boxed{ 7 }", ("7", "")),
        ("", "[end]", "\\boxed{ 8 } [end] \\boxed{ 7 }", ("7", "7")),
    ],
)
def test_an_evaluation_reads_answers_in_thinking_unless_it_is_skipped(
    prefix: str, close: str | None, said: str, answers: tuple[str, str]
) -> None:
    model = Model(
        name="m", source=Folder(path="m"), context=40, prompt=Prompt(prefix=prefix), think_close=close
    )
    reader = Reader(cast("Any", None), WORDS, model, (WORDS.eos_token_id,), Path())
    question = Question("b", "q", "a", "7", "")
    response = Response(ids(said), (), (), "stop", (0,))
    read, skip = (Grading(thinking=each) for each in ("read", "skip"))
    assert tuple(reader.answer(question, response, each) for each in (read, skip)) == answers


def test_thinking_of_a_last_turn_is_its_own() -> None:
    """The thinking of a turn before it says nothing of it, and what a tool's message ends in does."""
    model = Model(name="m", source=Folder(path="m"), context=40)
    reader = Reader(cast("Any", None), WORDS, model, (WORDS.eos_token_id,), Path())
    first, last = ids("</think> \\boxed{ 8 } <eos>"), ids("\\boxed{ 7 } <eos>")
    for inserted, answer in (("a", ""), ("a </think>", "7")):
        response = Response(first + last, (), (), "stop", (0,), (Inserted(len(first), ids(inserted)),))
        assert reader.answer(ITEM.question, response, Grading(thinking="skip")) == answer
