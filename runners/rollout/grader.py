"""Read the answers of a step: those of whole responses, of cuts, and of prefixes that hold one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.ir.data import AnswerReader
from reodsl.ir.model import Forcing
from runners.answers import answer_after_forcing, bare_answers, response_text, thinking_after
from runners.conversations import Turn, turn_text, turns_before
from runners.engine.protocol import Forced, Response
from runners.rollout.questions import Question
from runners.verify import Answer, Thinking, read_answer


@dataclass(frozen=True, slots=True)
class Said:
    """A step's response `number` to a question, asked by the tokens of `prompt`, and the turns before its last one."""

    question: Question
    number: int
    response: Response
    turns: tuple[Turn, ...]
    prompt: tuple[int, ...] = ()

    def answer(self, text: str, which: str, cut: int | None = None) -> Answer:
        """An answer in it as it is graded, with the turns that were over at a cut, or before the last one."""
        question, before = self.question, turns_before(self.turns, self.response, cut)
        return Answer(text, question.gold, question.meta, question.text, before, which)


@dataclass(frozen=True, slots=True)
class Read:
    """What is read in one response: the text of its last turn, its answer, and those of its prefixes by tokens.

    A prefix has None where a turn begins after one that had an answer.
    """

    last: str
    whole: Answer
    prefixes: tuple[tuple[int, Answer | None], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read answers in responses, which `stop` tokens end. With `thinking`, no answer is read in thoughts."""

    tokenizer: Any
    stop: tuple[int, ...]
    readers: tuple[AnswerReader, ...]
    forcing: Forcing | None
    thinking: Thinking | None = None

    def read(self, said: Said) -> Read:
        """The answers that a response holds."""
        response, number = said.response, said.number
        last = turn_text(response, self.tokenizer, self.stop)
        prefixes: list[tuple[int, Answer | None]] = []
        # A prefix ends in some turn, and its answer is what that one holds until then.
        starts = [0, *(each.after for each in response.inserted)]
        befores = [said.prompt, *(each.tokens for each in response.inserted)]
        thinking = self.thinking
        for start, end, before in zip(starts, [*starts[1:], None], befores, strict=True):
            thinking = thinking and thinking_after(thinking, self.tokenizer, before)
            if prefixes and prefixes[-1][1] is not None:
                prefixes.append((start, None))
            whole = last if end is None else None
            tokens = response.tokens[start:end]
            for at, text in bare_answers(tokens, self._decode, whole, self.readers, thinking):
                place = start + at
                if end is None or place < end:
                    prefixes.append((place, said.answer(text, f"{number}:{place}", place)))
        answer = read_answer(self.readers, last, thinking=thinking)
        return Read(last, said.answer(answer, str(number)), tuple(prefixes))

    def read_forced(self, said: Said, forced: Forced) -> Answer:
        """The answer that was forced out of a response at a cut."""
        assert self.forcing is not None
        text = answer_after_forcing(self.forcing, self._decode(forced.tokens), self.readers)
        return said.answer(text, f"{said.number}/{forced.cut}", forced.cut)

    def _decode(self, tokens: Sequence[int]) -> str:
        return response_text(self.tokenizer, tokens, self.stop)


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a step, to be graded at once, and whose they are, by position in `asked`.

    `forced` has (response, cut, position) of each forced answer, `prefixes` (tokens, position) of each response wherever the
    answer of its prefix changes, with None where it is gone. `last` are the texts of last turns, where answers are read.
    """

    asked: list[Answer]
    whole: list[int]
    forced: list[tuple[int, int, int]]
    prefixes: list[list[tuple[int, int | None]]]
    last: list[str]

    @staticmethod
    def of(
        reading: Reading,
        said: Sequence[Said],
        forced: Sequence[Sequence[Forced]],
        known: Mapping[int, Read],
    ) -> Answers:
        """Those of a step's responses, in their order. `known` has what was read before, by number."""
        asked: list[Answer] = []

        def ask(answer: Answer) -> int:
            asked.append(answer)
            return len(asked) - 1

        reads = [known.get(one.number) or reading.read(one) for one in said]
        whole = [ask(one.whole) for one in reads]
        at_cuts = [
            (one.number, at.cut, ask(reading.read_forced(one, at)))
            for one, of_response in zip(said, forced, strict=True)
            for at in of_response
        ]
        prefixes = [
            [(at, None if answer is None else ask(answer)) for at, answer in one.prefixes] for one in reads
        ]
        return Answers(asked, whole, at_cuts, prefixes, [one.last for one in reads])
