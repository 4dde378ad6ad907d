"""Read the answers of rollouts and grade them: those of whole responses, of cuts, and of prefixes that hold one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.ir.data import AnswerReader
from reodsl.ir.model import Forcing
from runners.answers import BOXED, answer_after_forcing, bare_answers, response_text, thinking_after
from runners.conversations import EarlierTurn, turn_text, turns_before
from runners.engine.protocol import Forced, Request, Response
from runners.rollout.questions import Question
from runners.verify import Answer, Thinking, Verdict, Verifier, read_answer

Graded = tuple[Answer, Verdict]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A response to a question, the turns before its last one, and the answers forced out of it.

    `number` is its place in a step of training, or among the samples of its question.
    """

    question: Question
    number: int
    request: Request
    response: Response
    turns: tuple[EarlierTurn, ...] = ()
    forced: tuple[Forced, ...] = ()

    def answer(self, text: str, which: str, cut: int | None = None) -> Answer:
        """Return an answer in it to be graded, with the turns that were over at a cut, or before the last one."""
        question, before = self.question, turns_before(self.turns, self.response, cut)
        return Answer(text, question.gold, question.meta, question.text, before, which)


@dataclass(frozen=True, slots=True)
class GradedRollout:
    """A rollout with its answers and their verdicts.

    `last` is the text of its last turn, and `whole` the answer there. `forced` has the answers at cuts, by cut. `prefixes`
    has one wherever the answer of its first tokens changes: None where a turn begins after one that had an answer.
    """

    rollout: Rollout
    last: str
    whole: Graded
    forced: Mapping[int, Graded]
    prefixes: tuple[tuple[int, Graded | None], ...]


@dataclass(frozen=True, slots=True)
class Grader:
    """The verifier of a data set, and how answers are read in responses, which `stop_ids` end.

    With `thinking` no answer is read between its marks. `prefixes` tells whether answers of prefixes are graded too.
    """

    verifier: Verifier
    tokenizer: Any
    stop_ids: tuple[int, ...]
    readers: tuple[AnswerReader, ...] = BOXED
    forcing: Forcing | None = None
    thinking: Thinking | None = None
    prefixes: bool = False

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a response's tokens without its stop token."""
        return response_text(self.tokenizer, tokens, self.stop_ids)

    def read_whole(self, rollout: Rollout, last: str) -> Answer:
        """Return the answer in a rollout's last turn, which has the text `last`; its own is empty where there is none."""
        inserted = rollout.response.inserted
        before = inserted[-1].tokens if inserted else rollout.request.prompt
        answer = read_answer(self.readers, last, thinking=self._thinking_after(before))
        return rollout.answer(answer, str(rollout.number))

    def read_forced(self, rollout: Rollout, forced: Forced) -> Answer:
        """Return the answer that was forced out of a rollout at a cut."""
        assert self.forcing is not None
        text = answer_after_forcing(self.forcing, self.text(forced.tokens), self.readers)
        return rollout.answer(text, f"{rollout.number}/{forced.cut}", forced.cut)

    def read_prefixes(self, rollout: Rollout, last: str) -> list[tuple[int, Answer | None]]:
        """Return the answers of a rollout's prefixes by tokens, each with that of the turn in which the prefix ends."""
        response = rollout.response
        starts = [0, *(each.after for each in response.inserted)]
        befores = [rollout.request.prompt, *(each.tokens for each in response.inserted)]
        prefixes: list[tuple[int, Answer | None]] = []
        for start, end, before in zip(starts, [*starts[1:], None], befores, strict=True):
            if prefixes and prefixes[-1][1] is not None:
                prefixes.append((start, None))
            whole, tokens = last if end is None else None, response.tokens[start:end]
            thinking = self._thinking_after(before)
            for at, text in bare_answers(tokens, self.text, whole, self.readers, thinking):
                place = start + at
                if end is None or place < end:
                    answer = rollout.answer(text, f"{rollout.number}:{place}", place)
                    prefixes.append((place, answer))
        return prefixes

    def _thinking_after(self, before: Sequence[int]) -> Thinking | None:
        return self.thinking and thinking_after(self.thinking, self.tokenizer, before)


def grade(rollouts: Sequence[Rollout], grader_of: Callable[[Question], Grader]) -> list[GradedRollout]:
    """Return rollouts with the verdicts on their answers; a verifier grades all of its answers in one call."""
    parts = []
    asked: list[tuple[Verifier, Answer]] = []
    for rollout in rollouts:
        grader = grader_of(rollout.question)
        last = turn_text(rollout.response, grader.tokenizer, grader.stop_ids)
        answers = [grader.read_whole(rollout, last)]
        answers += [grader.read_forced(rollout, forced) for forced in rollout.forced]
        prefixes = grader.read_prefixes(rollout, last) if grader.prefixes else []
        parts.append((rollout, last, prefixes))
        answers += [answer for _, answer in prefixes if answer is not None]
        asked += [(grader.verifier, answer) for answer in answers]
    graded = iter(_verdicts(asked))
    return [
        GradedRollout(
            rollout,
            last,
            next(graded),
            {forced.cut: next(graded) for forced in rollout.forced},
            tuple((at, None if answer is None else next(graded)) for at, answer in prefixes),
        )
        for rollout, last, prefixes in parts
    ]


def grade_later(
    graded: Sequence[GradedRollout], rollouts: Sequence[Rollout], grader: Grader
) -> list[GradedRollout]:
    """Return the graded rollouts with just the answers forced out of `rollouts`, some of them later than the rest."""
    later = [
        (grader.verifier, grader.read_forced(rollout, forced))
        for one, rollout in zip(graded, rollouts, strict=True)
        for forced in rollout.forced
        if forced.cut not in one.forced
    ]
    verdicts = iter(_verdicts(later))
    return [
        GradedRollout(
            rollout,
            one.last,
            one.whole,
            {each.cut: one.forced.get(each.cut) or next(verdicts) for each in rollout.forced},
            one.prefixes,
        )
        for one, rollout in zip(graded, rollouts, strict=True)
    ]


def _verdicts(asked: Sequence[tuple[Verifier, Answer]]) -> list[Graded]:
    """Return the answers with their verdicts, in their order, from one call of each verifier."""
    of_verifier: dict[int, list[int]] = {}
    for place, (verifier, _) in enumerate(asked):
        of_verifier.setdefault(id(verifier), []).append(place)
    graded: dict[int, Graded] = {}
    for places in of_verifier.values():
        answers = [asked[place][1] for place in places]
        verdicts = asked[places[0]][0].grade(answers)
        graded.update(zip(places, zip(answers, verdicts, strict=True), strict=True))
    return [graded[place] for place in range(len(asked))]
