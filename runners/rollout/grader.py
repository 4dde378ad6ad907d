"""Generate responses, force and read their answers, and grade them while other responses are generated."""

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
from runners.engine.protocol import (
    Engine,
    ForcedTokens,
    ForcingPlan,
    Generation,
    OnResponse,
    Request,
    TokenSampling,
)
from runners.grade import Claim, Thinking, Verdict, Verifier, read_answer
from runners.models.tokenizer import require_written
from runners.rollout.answers import BOXED, answer_after_forcing, bare_answers, response_text, thinking_after
from runners.rollout.phases import Phases, draw_phases, force
from runners.rollout.prompts import continuation_tokens
from runners.rollout.questions import PromptedQuestion

GradedAnswer = tuple[Claim, Verdict]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A response to a question, and the answers forced out of it.

    `number` is its index in a step of training, or among the samples of its question.
    """

    question: PromptedQuestion
    number: int
    request: Request
    response: Generation
    forced: tuple[ForcedTokens, ...] = ()

    def answer(self, text: str, which: str) -> Claim:
        """Return an answer of the response as a claim to be graded; `which` identifies it for the verifier."""
        question = self.question
        return Claim(text, question.gold, question.meta, question.text, which)


@dataclass(frozen=True, slots=True)
class GradedRollout:
    """A rollout with its answers and their verdicts.

    `last` is its text, and `answer` the answer in it. `forced` has the answers at cuts, by cut in tokens. `prefixes`
    has an answer, with the tokens before it, wherever the answer of a prefix changes.
    """

    rollout: Rollout
    last: str
    answer: GradedAnswer
    forced: Mapping[int, GradedAnswer]
    prefixes: tuple[tuple[int, GradedAnswer], ...]


@dataclass(frozen=True, slots=True)
class Grader:
    """The verifier of a data set, and how answers are read in responses."""

    verifier: Verifier
    """Judges answers."""
    tokenizer: Any
    """The model's tokenizer."""
    stop_ids: tuple[int, ...]
    """Token ids that end a response."""
    readers: tuple[AnswerReader, ...] = BOXED
    """Readers of answers, in order of preference."""
    forcing: Forcing | None = None
    """The text that forces an answer, if any are forced."""
    thinking: Thinking | None = None
    """Marks between which no answer is read."""
    prefixes: bool = False
    """True if answers of prefixes are graded too."""

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a response's tokens without its stop token."""
        return response_text(self.tokenizer, tokens, self.stop_ids)

    def read_whole(self, rollout: Rollout, last: str) -> Claim:
        """Return the answer in a rollout, whose text is `last`; an empty answer if there is none."""
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
        prefixes = [(response.count_own(end), text) for end, text in answers]
        return [(count, rollout.answer(text, f"{rollout.number}:{count}")) for count, text in prefixes]

    def _thinking_after(self, before: Sequence[int]) -> Thinking | None:
        return self.thinking and thinking_after(self.thinking, self.tokenizer, before)


def grade(rollouts: Sequence[Rollout], graders: Callable[[PromptedQuestion], Grader]) -> list[GradedRollout]:
    """Return rollouts with the verdicts on their answers; a verifier grades all of its answers in one call."""
    parts = []
    claims: list[tuple[Verifier, Claim]] = []
    for rollout in rollouts:
        grader = graders(rollout.question)
        last = grader.text(rollout.response.sequence())
        answers = [grader.read_whole(rollout, last)]
        answers += [grader.read_forced(rollout, forced) for forced in rollout.forced]
        prefixes = grader.read_prefixes(rollout, last) if grader.prefixes else []
        parts.append((rollout, last, prefixes))
        answers += [answer for _, answer in prefixes]
        claims += [(grader.verifier, answer) for answer in answers]
    graded = iter(_grade_claims(claims))
    return [
        GradedRollout(
            rollout,
            last,
            next(graded),
            {forced.cut: next(graded) for forced in rollout.forced},
            tuple((count, next(graded)) for count, _ in prefixes),
        )
        for rollout, last, prefixes in parts
    ]


def grade_later(
    graded: Sequence[GradedRollout], rollouts: Sequence[Rollout], grader: Grader
) -> list[GradedRollout]:
    """Return graded rollouts with just the answers forced out of `rollouts`, and grade the answers that have no verdict."""
    later = [
        (grader.verifier, grader.read_forced(rollout, forced))
        for earlier, rollout in zip(graded, rollouts, strict=True)
        for forced in rollout.forced
        if forced.cut not in earlier.forced
    ]
    verdicts = iter(_grade_claims(later))
    return [
        GradedRollout(
            rollout,
            earlier.last,
            earlier.answer,
            {forced.cut: earlier.forced.get(forced.cut) or next(verdicts) for forced in rollout.forced},
            earlier.prefixes,
        )
        for earlier, rollout in zip(graded, rollouts, strict=True)
    ]


def _grade_claims(claims: Sequence[tuple[Verifier, Claim]]) -> list[GradedAnswer]:
    """Return answers with their verdicts, in their order, from a single call of each verifier."""
    of_verifier: dict[int, list[int]] = {}
    for i, (verifier, _) in enumerate(claims):
        of_verifier.setdefault(id(verifier), []).append(i)
    graded: dict[int, GradedAnswer] = {}
    for indices in of_verifier.values():
        answers = [claims[i][1] for i in indices]
        verdicts = claims[indices[0]][0].grade(answers)
        graded.update(zip(indices, zip(answers, verdicts, strict=True), strict=True))
    return [graded[i] for i in range(len(claims))]


Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class RolloutGroup(Generic[Result]):
    """Rollouts that are handed on together: `result` is what `finish` returns for all `count`, in order of position.

    The rollouts at the positions in `missing` have not come.
    """

    count: int
    finish: Callable[[list[GradedRollout]], Result]
    missing: set[int]
    graded: dict[int, GradedRollout] = field(default_factory=dict)
    result: Future[Result] = field(default_factory=Future)


class GradingQueue:
    """A thread that grades rollouts while others are generated.

    It grades all rollouts together that have come since its last call, so that a verifier's workers share them. When
    rollouts come decides which are graded together, and nothing else may depend on that.
    """

    def __init__(self, grade: Callable[[Sequence[Rollout]], list[GradedRollout]]) -> None:
        self._grade = grade
        # One thread for as long as there is anything to do: some systems end a process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, "grading")
        self._lock = threading.Lock()
        self._groups: set[RolloutGroup[Any]] = set()
        self._waiting: list[tuple[RolloutGroup[Any], int, Rollout]] = []
        self._fault: BaseException | None = None

    def expect(self, count: int, finish: Callable[[list[GradedRollout]], Result]) -> RolloutGroup[Result]:
        """Announce a group of `count` rollouts. Its result raises what grading or `finish` raised."""
        group = RolloutGroup(count, finish, set(range(count)))
        with self._lock:
            self._groups.add(group)
        return group

    def add(self, arrived: Iterable[tuple[RolloutGroup[Any], int, Rollout]]) -> None:
        """Take rollouts with their groups and positions, from any thread, and drop those whose position has come.

        Raises what grading or finishing a group raised, so that nothing more is generated in vain.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            for group, position, rollout in arrived:
                if position in group.missing:
                    group.missing.remove(position)
                    self._waiting.append((group, position, rollout))
        self._thread.submit(self._work)

    def close(self, *, drop: bool = False) -> None:
        """End the thread after everything that came is graded, or with `drop` after the current call."""
        if drop:
            with self._lock:
                self._waiting.clear()
        self._thread.shutdown()

    def _work(self) -> None:
        """Grade the rollouts that wait, in the thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting or self._fault is not None:
            return
        try:
            graded = self._grade([rollout for _, _, rollout in waiting])
            for (group, position, _), rollout in zip(waiting, graded, strict=True):
                group.graded[position] = rollout
            for group in dict.fromkeys(group for group, _, _ in waiting):
                if len(group.graded) == group.count:
                    group.result.set_result(group.finish([group.graded[i] for i in range(group.count)]))
                    # Not before it is handed on: whoever waits for a group that could not be has to hear of it.
                    self._groups.discard(group)
        except BaseException as fault:
            with self._lock:
                self._fault, groups = fault, list(self._groups)
            for group in groups:
                group.result.set_exception(fault)


CutsOf = Callable[[int, Generation], Sequence[int]]
"""The cuts of the response to a request, as far as request and response tell them."""


@dataclass(frozen=True, slots=True)
class Generator:
    """An engine, how responses are sampled from it, perhaps in phases, and how an answer is forced out of them."""

    engine: Engine
    tokenizer: Any
    sampling: TokenSampling
    forcing: Forcing | None = None
    phases: Phases | None = None

    def generate(
        self, requests: Sequence[Request], cuts: CutsOf | None = None, on_response: OnResponse | None = None
    ) -> list[Generation]:
        """Return a response for each request; an engine that reports responses early reads `cuts` and `on_response`."""
        # Thinking that may have all tokens is never ended.
        if self.phases is not None and self.phases.thinking < self.sampling.max_tokens:
            return draw_phases(self.engine, requests, self.sampling, self.phases)
        return self.engine.generate(requests, self.sampling, self._forcing_plan(cuts), on_response)

    def force(
        self, requests: Sequence[Request], responses: Sequence[Generation], cuts: Sequence[Sequence[int]]
    ) -> list[list[ForcedTokens]]:
        """Return the answers forced at `cuts[i]` of response i. Raises E0815 if the tokenizer lacks words of the text."""
        if self.forcing is None or not any(cuts):
            return [[] for _ in requests]
        require_written(self.tokenizer, self.forcing.text, "the text that forces an answer")
        text = continuation_tokens(self.tokenizer, self.forcing.text)
        return force(self.engine, requests, responses, cuts, text, self._forced_sampling(self.forcing))

    def _forcing_plan(self, cuts: CutsOf | None) -> ForcingPlan | None:
        """Return what an engine needs to force answers during generation; None if it cannot."""
        if self.forcing is None or cuts is None:
            return None
        try:
            text = continuation_tokens(self.tokenizer, self.forcing.text)
        except Problem:
            # A text that the tokenizer lacks words of is a problem only where something is forced after all.
            return None
        return ForcingPlan(cuts, text, self._forced_sampling(self.forcing))

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
