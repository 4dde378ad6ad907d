"""Rollouts as they are graded: what is read of them, and by which verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from reodsl.ir.data import Grading, LastNumber
from reodsl.ir.model import Folder, Forcing, Model
from runners.engine.protocol import ForcedTokens, Generation, Insertion, Request
from runners.evaluate.tables import sample_rows
from runners.grade import Claim, Verdict
from runners.models.tokenizer import word_tokenizer
from runners.rollout.answers import thinking_of
from runners.rollout.grader import Grader, Rollout, grade
from runners.rollout.questions import PromptedQuestion

RESPONSE = Generation(tuple(range(9)), (), (), "stop", (0,), (Insertion(3, (90, 91)),))
QUESTION = PromptedQuestion("q", "asked", "7", benchmark="b")
ITEM = Rollout(QUESTION, 0, Request((), 0), RESPONSE)


class Words:
    """Reads tokens as what they are called."""

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return " ".join(map(str, tokens))


class Notes:
    """A verifier that finds everything right, and keeps what it was asked, by call."""

    def __init__(self) -> None:
        self.calls: list[list[Claim]] = []

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        self.calls.append(list(answers))
        return [Verdict(True, "checked")] * len(answers)


def test_a_sample_has_the_words_that_ended_its_thinking() -> None:
    notes, ends = Notes(), (LastNumber(),)
    grader = Grader(cast("Any", notes), Words(), (), ends)
    (row,) = sample_rows(grade([ITEM], lambda _: grader), grader.text).rows(named=True)
    assert (row["response"], row["tokens"], row["answer"]) == ("0 1 2 90 91 3 4 5 6 7 8", 9, "8")
    ((asked,),) = notes.calls
    assert asked.text == "8"


def test_each_verifier_grades_its_answers_in_one_call() -> None:
    """Of two benchmarks that take turns, one with forced answers: verdicts belong to the answers that they are on."""

    class Equal(Notes):
        def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
            super().grade(answers)
            return [Verdict(answer.text == "8", "checked") for answer in answers]

    first, second = Equal(), Equal()
    forcing = Forcing(text="\\boxed{", answer_tokens=2)
    graders = {
        name: Grader(cast("Any", verifier), WORDS, (WORDS.eos_token_id,), forcing=forcing)
        for name, verifier in (("a", first), ("b", second))
    }
    rollouts = [
        Rollout(
            replace(QUESTION, benchmark=name),
            number,
            Request((), 0),
            Generation(ids(text), (), (), "stop", (0,)),
            forced=tuple(ForcedTokens(cut, ids(answer)) for cut, answer in forced),
        )
        for number, (name, text, forced) in enumerate(
            [
                ("a", "\\boxed{ 8 }", ((0, "7 }"), (1, "8 }"))),
                ("b", "\\boxed{ 7 }", ()),
                ("a", "\\boxed{ 7 }", ((1, "8 }"),)),
            ]
        )
    ]
    graded = grade(rollouts, lambda question: graders[question.benchmark])
    asked = [[(answer.text, answer.which) for answer in call] for call in (*first.calls, *second.calls)]
    assert asked == [[("8", "0"), ("7", "0/0"), ("8", "0/1"), ("7", "2"), ("8", "2/1")], [("7", "1")]]
    assert [one.answer[1].correct for one in graded] == [True, False, False]
    at_cuts = [{cut: verdict.correct for cut, (_, verdict) in one.forced.items()} for one in graded]
    assert at_cuts == [{0: False, 1: True}, {}, {1: True}]


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
    asked = tuple(WORDS.encode(f"a{prefix}", add_special_tokens=False))
    model = Model(name="m", source=Folder(path="m"), context=40, think_close=close)
    response = Generation(ids(said), (), (), "stop", (0,))
    read, skip = (Grading(thinking=each) for each in ("read", "skip"))
    assert tuple(answered(response, model, each, asked) for each in (read, skip)) == answers


def answered(response: Generation, model: Model, grading: Grading, prompt: tuple[int, ...] = ()) -> str:
    """The answer that is read in a response."""
    grader = Grader(cast("Any", Notes()), WORDS, (WORDS.eos_token_id,), thinking=thinking_of(model, grading))
    rollout = Rollout(QUESTION, 0, Request(prompt, 0), response)
    return grade([rollout], lambda _: grader)[0].answer[0].text
