"""Generate responses, force and read their answers, and grade them, while others are generated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reodsl.diagnostics import Problem
from reodsl.ir import training
from reodsl.ir.data import AnswerReader
from reodsl.ir.model import Forcing
from runners.engine.protocol import Ahead, Ended, Engine, ForcedTokens, Generation, Request, TokenSampling
from runners.grade import Claim, Thinking, Verdict, Verifier, read_answer
from runners.models.tokenizer import require_written
from runners.rollout.answers import BOXED, answer_after_forcing, bare_answers, response_text, thinking_after
from runners.rollout.phases import Phases, draw_phases, force
from runners.rollout.prompts import continuation_tokens
from runners.rollout.questions import AskedQuestion

Graded = tuple[Claim, Verdict]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A response to a question, and the answers forced out of it.

    `number` is its place in a step of training, or among the samples of its question.
    """

    question: AskedQuestion
    number: int
    request: Request
    response: Generation
    forced: tuple[ForcedTokens, ...] = ()

    def answer(self, text: str, which: str) -> Claim:
        """Return an answer in it to be graded."""
        question = self.question
        return Claim(text, question.gold, question.meta, question.text, which)


@dataclass(frozen=True, slots=True)
class GradedRollout:
    """A rollout with its answers and their verdicts.

    `last` is its text, and `whole` the answer there. `forced` has the answers at cuts, by cut. `prefixes` has one wherever
    the answer of its first tokens changes.
    """

    rollout: Rollout
    last: str
    whole: Graded
    forced: Mapping[int, Graded]
    prefixes: tuple[tuple[int, Graded], ...]


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

    def read_whole(self, rollout: Rollout, last: str) -> Claim:
        """Return the answer in a rollout, whose text is `last`; the answer is empty where there is none."""
        answer = read_answer(self.readers, last, thinking=self._thinking_after(rollout.request.prompt))
        return rollout.answer(answer, str(rollout.number))

    def read_forced(self, rollout: Rollout, forced: ForcedTokens) -> Claim:
        """Return the answer that was forced out of a rollout at a cut."""
        assert self.forcing is not None
        text = answer_after_forcing(self.forcing, self.text(forced.tokens), self.readers)
        return rollout.answer(text, f"{rollout.number}/{forced.cut}")

    def read_prefixes(self, rollout: Rollout, last: str) -> list[tuple[int, Claim]]:
        """Return the answers of a rollout's prefixes, by their tokens."""
        response, thinking = rollout.response, self._thinking_after(rollout.request.prompt)
        answers = bare_answers(response.sequence(), self.text, last, self.readers, thinking)
        places = [(response.own(at), text) for at, text in answers]
        return [(place, rollout.answer(text, f"{rollout.number}:{place}")) for place, text in places]

    def _thinking_after(self, before: Sequence[int]) -> Thinking | None:
        return self.thinking and thinking_after(self.thinking, self.tokenizer, before)


def grade(rollouts: Sequence[Rollout], grader_of: Callable[[AskedQuestion], Grader]) -> list[GradedRollout]:
    """Return rollouts with the verdicts on their answers; a verifier grades all of its answers in one call."""
    parts = []
    asked: list[tuple[Verifier, Claim]] = []
    for rollout in rollouts:
        grader = grader_of(rollout.question)
        last = grader.text(rollout.response.sequence())
        answers = [grader.read_whole(rollout, last)]
        answers += [grader.read_forced(rollout, forced) for forced in rollout.forced]
        prefixes = grader.read_prefixes(rollout, last) if grader.prefixes else []
        parts.append((rollout, last, prefixes))
        answers += [answer for _, answer in prefixes]
        asked += [(grader.verifier, answer) for answer in answers]
    graded = iter(_verdicts(asked))
    return [
        GradedRollout(
            rollout,
            last,
            next(graded),
            {forced.cut: next(graded) for forced in rollout.forced},
            tuple((at, next(graded)) for at, _ in prefixes),
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


def _verdicts(asked: Sequence[tuple[Verifier, Claim]]) -> list[Graded]:
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


Made = TypeVar("Made")


@dataclass(eq=False, slots=True)
class RolloutGroup(Generic[Made]):
    """Rollouts that are handed on together: `result` is what `finish` makes of all `count`, in the order of their places.

    Those at the places in `missing` have not come.
    """

    count: int
    finish: Callable[[list[GradedRollout]], Made]
    missing: set[int]
    graded: dict[int, GradedRollout] = field(default_factory=dict)
    result: Future[Made] = field(default_factory=Future)


class GradeAhead:
    """A thread that grades rollouts while others are generated.

    It grades all that have come since it looked last together, so that a verifier's workers share them. When rollouts come
    decides which are graded together, and nothing else may depend on that.
    """

    def __init__(self, grade: Callable[[Sequence[Rollout]], list[GradedRollout]]) -> None:
        self._grade = grade
        # One thread for as long as there is anything to do: some systems end a process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, "grading")
        self._lock = threading.Lock()
        self._groups: set[RolloutGroup[Any]] = set()
        self._waiting: list[tuple[RolloutGroup[Any], int, Rollout]] = []
        self._fault: BaseException | None = None

    def expect(self, count: int, finish: Callable[[list[GradedRollout]], Made]) -> RolloutGroup[Made]:
        """Announce a group of so many rollouts. Its result raises what grading or `finish` raised."""
        group = RolloutGroup(count, finish, set(range(count)))
        with self._lock:
            self._groups.add(group)
        return group

    def add(self, arrived: Iterable[tuple[RolloutGroup[Any], int, Rollout]]) -> None:
        """Take rollouts with their groups and places, from any thread; one whose place has come before is dropped.

        Raises what grading or finishing a group raised: nothing more is generated in vain then.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            for group, place, rollout in arrived:
                if place in group.missing:
                    group.missing.remove(place)
                    self._waiting.append((group, place, rollout))
        self._thread.submit(self._work)

    def close(self, *, drop: bool = False) -> None:
        """End the thread once all that came is graded, or, where the rest is to be dropped, after what it is at."""
        if drop:
            with self._lock:
                self._waiting.clear()
        self._thread.shutdown()

    def _work(self) -> None:
        """Grade what waits, in the thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting or self._fault is not None:
            return
        try:
            graded = self._grade([rollout for _, _, rollout in waiting])
            for (group, place, _), one in zip(waiting, graded, strict=True):
                group.graded[place] = one
            for group in dict.fromkeys(group for group, _, _ in waiting):
                if len(group.graded) == group.count:
                    group.result.set_result(group.finish([group.graded[at] for at in range(group.count)]))
                    # Not before it is handed on: whoever waits for a group that could not be has to hear of it.
                    self._groups.discard(group)
        except BaseException as fault:
            with self._lock:
                self._fault, groups = fault, list(self._groups)
            for group in groups:
                group.result.set_exception(fault)


CutsOf = Callable[[int, Generation], Sequence[int]]
"""The cuts of the response to a request, as far as the two tell them."""


@dataclass(frozen=True, slots=True)
class Generator:
    """An engine, how responses are drawn from it, perhaps in phases, and how an answer is forced out of them."""

    engine: Engine
    tokenizer: Any
    sampling: TokenSampling
    forcing: Forcing | None = None
    phases: Phases | None = None

    def generate(
        self,
        requests: Sequence[Request],
        cuts: CutsOf | None = None,
        ended: Ended | None = None,
    ) -> list[Generation]:
        """Return a response for each request. `cuts` and `ended` are for an engine that reports responses as they end."""
        # Thinking that may have all tokens is never ended.
        if self.phases is not None and self.phases.thinking < self.sampling.max_tokens:
            return draw_phases(self.engine, requests, self.sampling, self.phases)
        return self.engine.generate(requests, self.sampling, self._ahead(cuts), ended)

    def force(
        self, requests: Sequence[Request], responses: Sequence[Generation], cuts: Sequence[Sequence[int]]
    ) -> list[list[ForcedTokens]]:
        """Return the answers forced at `cuts[i]` of response i. Raises E0815 where the tokenizer lacks the text's words."""
        if self.forcing is None or not any(cuts):
            return [[] for _ in requests]
        require_written(self.tokenizer, self.forcing.text, "the text that forces an answer")
        text = continuation_tokens(self.tokenizer, self.forcing.text)
        return force(self.engine, requests, responses, cuts, text, self._forced_sampling(self.forcing))

    def _ahead(self, cuts: CutsOf | None) -> Ahead | None:
        if self.forcing is None or cuts is None:
            return None
        try:
            text = continuation_tokens(self.tokenizer, self.forcing.text)
        except Problem:
            # A text that the tokenizer lacks words of is a problem only where something is forced after all.
            return None
        return Ahead(cuts, text, self._forced_sampling(self.forcing))

    def _forced_sampling(self, forcing: Forcing) -> TokenSampling:
        stop = self.sampling.stop_ids
        return TokenSampling(forcing.answer_tokens, forcing.temperature, forcing.top_p, stop_ids=stop)


def sampling_of(rule: training.Sampling, stop: tuple[int, ...], logprobs: bool) -> TokenSampling:
    """Return the engine's form of a sampling rule."""
    return TokenSampling(rule.max_tokens, rule.temperature, rule.top_p, rule.top_k, stop, logprobs)


def forced_length(forcing: Forcing | None, tokenizer: Any) -> int:
    """Return the most tokens that forcing an answer adds to a sequence: the text's and the answer's."""
    if forcing is None:
        return 0
    return len(continuation_tokens(tokenizer, forcing.text)) + forcing.answer_tokens
