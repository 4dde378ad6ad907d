"""Generate responses, force and read their answers, and grade them while other responses are generated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reodsl.diagnostics import Problem, group
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
"""An answer as the verifier got it, and its verdict."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A response to a question, and the answers that were forced at cuts of the response.

    `number` is its index among the rollouts of a training step, or among the samples of its question.
    """

    question: PromptedQuestion
    number: int
    request: Request
    response: Generation
    forced: tuple[ForcedTokens, ...] = ()

    def answer(self, text: str, which: str) -> Claim:
        """Return an answer as a `Claim`: what a verifier gets to judge, with the reference answer and the question.

        Args:
            text: The answer.
            which: An identifier that differs between all answers to the question.
        """
        question = self.question
        return Claim(text, question.gold, question.meta, question.text, which)


@dataclass(frozen=True, slots=True)
class GradedRollout:
    """A rollout with its answers and their verdicts.

    `text` is the text of the response, and `answer` its answer. `forced` has the forced answers by cut in tokens.
    `prefixes` has pairs of a number of tokens and the answer of the prefix with this length, for each length at which
    the answer changes.
    """

    rollout: Rollout
    text: str
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
    """The text that forces an answer, if answers are forced."""
    thinking: Thinking | None = None
    """The marks between which no answer is read, if any."""
    prefixes: bool = False
    """True if the answers of a response's prefixes are graded too."""

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a response's tokens without a final stop token."""
        return response_text(self.tokenizer, tokens, self.stop_ids)

    def read_whole(self, rollout: Rollout, text: str) -> Claim:
        """Return the answer in a full response as a claim to grade; the claim's text is empty if there is no answer.

        Args:
            rollout: The rollout.
            text: The text of the response.
        """
        answer = read_answer(self.readers, text, thinking=self._thinking_after(rollout.request.prompt))
        return rollout.answer(answer, str(rollout.number))

    def read_forced(self, rollout: Rollout, forced: ForcedTokens) -> Claim:
        """Return the answer that was forced at a cut of a rollout."""
        assert self.forcing is not None
        text = answer_after_forcing(self.forcing, self.text(forced.tokens), self.readers)
        return rollout.answer(text, f"{rollout.number}/{forced.cut}")

    def read_prefixes(self, rollout: Rollout, text: str) -> list[tuple[int, Claim]]:
        """Return the answers of a response's prefixes, for each prefix length at which the answer changes.

        Args:
            rollout: The rollout.
            text: The text of the response.

        Returns:
            Pairs of a number of sampled tokens, without inserted tokens, and the answer as a claim to grade.
        """
        response, thinking = rollout.response, self._thinking_after(rollout.request.prompt)
        answers = bare_answers(response.sequence(), self.text, text, self.readers, thinking)
        prefixes = [(response.count_own(end), answer) for end, answer in answers]
        return [(count, rollout.answer(answer, f"{rollout.number}:{count}")) for count, answer in prefixes]

    def _thinking_after(self, before: Sequence[int]) -> Thinking | None:
        """Return the marks of thinking for a response after the tokens `before`; None if `thinking` is None.

        If the tokens `before` already close thinking, the marks say so, and answers count from the response's start.
        """
        return self.thinking and thinking_after(self.thinking, self.tokenizer, before)


def grade(rollouts: Sequence[Rollout], graders: Callable[[PromptedQuestion], Grader]) -> list[GradedRollout]:
    """Grade the answers of rollouts: full responses, forced answers, and prefixes if the grader has `prefixes`.

    Each verifier grades all of its answers in one call.

    Args:
        rollouts: The rollouts.
        graders: Returns the grader of a question.

    Returns:
        The graded rollouts, in the order of `rollouts`.
    """
    readings = []
    claims: list[tuple[Verifier, Claim]] = []
    for rollout in rollouts:
        grader = graders(rollout.question)
        text = grader.text(rollout.response.sequence())
        answers_of = [grader.read_whole(rollout, text)]
        answers_of += [grader.read_forced(rollout, forced) for forced in rollout.forced]
        prefixes = grader.read_prefixes(rollout, text) if grader.prefixes else []
        readings.append((rollout, text, prefixes))
        answers_of += [answer for _, answer in prefixes]
        claims += [(grader.verifier, answer) for answer in answers_of]
    graded = iter(_grade_claims(claims))
    return [
        GradedRollout(
            rollout,
            text,
            next(graded),
            {forced.cut: next(graded) for forced in rollout.forced},
            tuple((count, next(graded)) for count, _ in prefixes),
        )
        for rollout, text, prefixes in readings
    ]


def grade_later(
    graded: Sequence[GradedRollout], rollouts: Sequence[Rollout], grader: Grader
) -> list[GradedRollout]:
    """Grade the forced answers that were added to rollouts after a first grading.

    Args:
        graded: The rollouts of the first grading.
        rollouts: The same rollouts with all forced answers, in the same order.
        grader: The grader of all rollouts.

    Returns:
        The graded rollouts with exactly the forced answers of `rollouts`; verdicts that exist already are kept.
    """
    added_answers = [
        (grader.verifier, grader.read_forced(rollout, forced))
        for earlier, rollout in zip(graded, rollouts, strict=True)
        for forced in rollout.forced
        if forced.cut not in earlier.forced
    ]
    graded_answers = iter(_grade_claims(added_answers))
    return [
        GradedRollout(
            rollout,
            earlier.text,
            earlier.answer,
            {forced.cut: earlier.forced.get(forced.cut) or next(graded_answers) for forced in rollout.forced},
            earlier.prefixes,
        )
        for earlier, rollout in zip(graded, rollouts, strict=True)
    ]


def _grade_claims(claims: Sequence[tuple[Verifier, Claim]]) -> list[GradedAnswer]:
    """Grade answers, with one call for each different verifier.

    Args:
        claims: Pairs of a verifier and an answer.

    Returns:
        The answers with their verdicts, in the order of the claims.
    """
    graded: dict[int, GradedAnswer] = {}
    for indices in group((id(verifier), i) for i, (verifier, _) in enumerate(claims)).values():
        answers = [claims[i][1] for i in indices]
        verdicts = claims[indices[0]][0].grade(answers)
        graded.update(zip(indices, zip(answers, verdicts, strict=True), strict=True))
    return [graded[i] for i in range(len(claims))]


Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class RolloutGroup(Generic[Result]):
    """Rollouts that are finished together: `result` is what `finish` returns for `count` graded rollouts, by index.

    `missing` are the indices of rollouts that have not arrived.
    """

    count: int
    finish: Callable[[list[GradedRollout]], Result]
    missing: set[int]
    graded: dict[int, GradedRollout] = field(default_factory=dict)
    result: Future[Result] = field(default_factory=Future)


class GradingQueue:
    """A thread that grades rollouts while other rollouts are generated.

    A call grades all rollouts that arrived since the last call, so that a verifier's workers share them. Timing decides
    which rollouts are graded together; results must not depend on it.
    """

    def __init__(self, grade: Callable[[Sequence[Rollout]], list[GradedRollout]]) -> None:
        """Start the queue; `grade` grades rollouts in their order."""
        self._grade = grade
        # One thread for all work, since some systems end a verifier's process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, "grading")
        self._lock = threading.Lock()
        self._groups: set[RolloutGroup[Any]] = set()
        self._waiting: list[tuple[RolloutGroup[Any], int, Rollout]] = []
        self._fault: BaseException | None = None

    def expect(self, count: int, finish: Callable[[list[GradedRollout]], Result]) -> RolloutGroup[Result]:
        """Announce a group of `count` rollouts, and return it; its `result` is set when all rollouts are graded.

        Args:
            count: The number of rollouts.
            finish: Computes the group's result from all of its graded rollouts, in order. If it or the grading raises,
                `result` gets the exception.
        """
        group = RolloutGroup(count, finish, set(range(count)))
        with self._lock:
            self._groups.add(group)
        return group

    def add(self, rollouts: Iterable[tuple[RolloutGroup[Any], int, Rollout]]) -> None:
        """Add rollouts to grade, each with its group and its index in the group; a repeated index is ignored.

        Any thread may call this. An earlier failure of grading is raised here, to stop generation early.

        Raises:
            BaseException: The exception of an earlier grading.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            for group, index, rollout in rollouts:
                if index in group.missing:
                    group.missing.remove(index)
                    self._waiting.append((group, index, rollout))
        self._thread.submit(self._work)

    def close(self, *, drop: bool = False) -> None:
        """Wait until all rollouts are graded, and end the thread; with `drop`, wait for the current call only."""
        if drop:
            with self._lock:
                self._waiting.clear()
        self._thread.shutdown()

    def _work(self) -> None:
        """Grade the waiting rollouts, and set the results of complete groups; runs in the queue's thread.

        An exception becomes the result of all unfinished groups, and the queue grades nothing afterwards.
        """
        with self._lock:
            batch, self._waiting = self._waiting, []
        if not batch or self._fault is not None:
            return
        try:
            graded = self._grade([rollout for _, _, rollout in batch])
            for (group, index, _), rollout in zip(batch, graded, strict=True):
                group.graded[index] = rollout
            for group in dict.fromkeys(group for group, _, _ in batch):
                if len(group.graded) == group.count:
                    group.result.set_result(group.finish([group.graded[i] for i in range(group.count)]))
                    # Last, so that a failure in `finish` is reported to the group below.
                    self._groups.discard(group)
        except BaseException as fault:
            with self._lock:
                self._fault, groups = fault, list(self._groups)
            for group in groups:
                group.result.set_exception(fault)


CutsOf = Callable[[int, Generation], Sequence[int]]
"""A function from the index of a request and its response to the cuts at which answers are forced during generation."""


@dataclass(frozen=True, slots=True)
class Generator:
    """An engine with its sampling settings, the phases of thinking and solution, and the text that forces answers."""

    engine: Engine
    tokenizer: Any
    sampling: TokenSampling
    forcing: Forcing | None = None
    phases: Phases | None = None

    def generate(
        self, requests: Sequence[Request], cuts: CutsOf | None = None, on_response: OnResponse | None = None
    ) -> list[Generation]:
        """Return a response for each request.

        If thinking has a limit below `max_tokens`, responses are generated in two phases. `cuts` and `on_response` are
        then not used.

        Args:
            requests: The requests.
            cuts: Returns the cuts of a finished response, for an engine that can force answers during generation; None
                to force no answers then.
            on_response: Called with finished responses during generation, if the engine can report them.
        """
        # Thinking that may use all tokens is never ended by force.
        if self.phases is not None and self.phases.thinking < self.sampling.max_tokens:
            return draw_phases(self.engine, requests, self.sampling, self.phases)
        return self.engine.generate(requests, self.sampling, self._forcing_plan(cuts), on_response)

    def force(
        self, requests: Sequence[Request], responses: Sequence[Generation], cuts: Sequence[Sequence[int]]
    ) -> list[list[ForcedTokens]]:
        """Force answers at cuts of responses.

        Args:
            requests: The requests.
            responses: The responses to the requests.
            cuts: The cuts of each response in tokens.

        Returns:
            For each response, its forced answers; no answers if there is no forcing text.

        Raises:
            Problem: E0815, if answers are forced and the tokenizer cannot write the forcing text.
        """
        if self.forcing is None or not any(cuts):
            return [[] for _ in requests]
        require_written(self.tokenizer, self.forcing.text, "the text that forces an answer")
        text = continuation_tokens(self.tokenizer, self.forcing.text)
        return force(self.engine, requests, responses, cuts, text, self._forced_sampling(self.forcing))

    def _forcing_plan(self, cuts: CutsOf | None) -> ForcingPlan | None:
        """Return what an engine needs to force answers during generation.

        The result is None without forcing text or cuts, or if the tokenizer cannot encode the forcing text.
        """
        if self.forcing is None or cuts is None:
            return None
        try:
            text = continuation_tokens(self.tokenizer, self.forcing.text)
        except Problem:
            # An unknown word in the forcing text is an error only if an answer is forced later.
            return None
        return ForcingPlan(cuts, text, self._forced_sampling(self.forcing))

    def _forced_sampling(self, forcing: Forcing) -> TokenSampling:
        """Return the sampling of forced answers."""
        stop = self.sampling.stop_ids
        return TokenSampling(forcing.answer_tokens, forcing.temperature, forcing.top_p, stop_ids=stop)


def sampling_of(rule: training.Sampling, stop: tuple[int, ...], logprobs: bool) -> TokenSampling:
    """Return the settings of sampling in the engine's form.

    Args:
        rule: The settings of the spec.
        stop: Token ids that end a response.
        logprobs: Whether the engine returns log-probabilities.
    """
    return TokenSampling(rule.max_tokens, rule.temperature, rule.top_p, rule.top_k, stop, logprobs)


def forced_length(forcing: Forcing | None, tokenizer: Any) -> int:
    """Return the largest number of tokens that forcing an answer adds to a sequence: forcing text and answer."""
    return 0 if forcing is None else len(continuation_tokens(tokenizer, forcing.text)) + forcing.answer_tokens
