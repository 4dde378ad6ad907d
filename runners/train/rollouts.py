"""Roll out a step's questions: generate, force, and grade responses and cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from reodsl.diagnostics import Problem
from reodsl.ir.base import walk
from reodsl.ir.expression import Attribute
from reodsl.ir.reward import Budgets, Exits, OracleBudgets, QuestionBudgets, Reward, Steps, reached_places
from runners.data.draws import derive_seed, exit_places
from runners.engine.protocol import ForcedTokens, Generation, Request
from runners.grade import Thinking, answer_row
from runners.machine.clock import Moment, now, time_spans
from runners.own.function import FailedRow, UserFunction
from runners.rewards.inputs import CutVerdicts, Floats, PastResponses, RewardInputs, pad_places, step_places
from runners.rewards.vectorise import needed_cuts
from runners.rollout.answers import response_text
from runners.rollout.grader import (
    Generator,
    GradedRollout,
    Grader,
    GradingQueue,
    Rollout,
    RolloutGroup,
    grade_later,
)
from runners.rollout.phases import count_thinking, draw_cut
from runners.rollout.questions import PromptedQuestion, Reference, Wordings, shared_numbers
from runners.train.likelihood import Ask, ask_models

READERS: Mapping[str, Callable[[Generation, Callable[[], str]], float]] = {
    "ended": lambda response, text: float(response.finish == "stop"),
}
"""The number of each word of `READINGS` that a reward knows, from a response and its text; `mode` is its question's, and
`thinking` is found by the model's marks."""
ANSWERS: Mapping[str, Callable[[GradedRollout], float]] = {
    "answered": lambda one: float(bool(one.answer[0].text))
}
"""The number of each `graded` word of `READINGS`, from a response whose answer was read."""
MIN_ENDED = 8
"""The fewest responses that ended from which the share with an answer is computed."""
REWARD = "reward"
"""The start of the reason of a response at which Python of the reward failed."""
THINKING = "thinking"
"""The number that responses are given where it is counted: how many of their tokens are thinking."""
MAX_TEXT_CHARS = 1 << 20
"""Characters of responses that are kept of a step: all of a small model's, and a share of a large one's."""


Prompted = tuple[PromptedQuestion, Request]


@dataclass(frozen=True, slots=True)
class GradedStep:
    """A step's rollouts with their verdicts, question by question: `rollouts[i * size + k]` is the k-th of question i."""

    rollouts: tuple[Rollout, ...]
    """The rollouts, question by question."""
    inputs: RewardInputs
    """The arrays that a reward reads of the rollouts."""
    forced: CutVerdicts
    """Verdicts on answers that were forced at the reward's cuts."""
    unforced_verdicts: CutVerdicts
    """Verdicts on the answers of prefixes at the reward's cuts, without forcing."""
    prefix_answers: tuple[tuple[tuple[int, bool], ...], ...]
    """For each rollout (tokens, verdict) at every prefix whose answer differs from the one before."""
    seconds: Mapping[str, float]
    """Seconds of each phase, by column name."""
    unsettled: tuple[tuple[str, ...], ...] = ()
    """For each rollout a reason for each answer that the verifier could not judge (`timeout`, `failed`), and for each of
    the user's functions that failed at it (`reward`).
    """
    answered: float = 1.0
    """The share with an answer of the responses that ended; 1 if fewer than `MIN_ENDED` did."""
    texts: tuple[str | None, ...] = ()
    """The texts of responses, up to `MAX_TEXT_CHARS` characters; None past that."""


@dataclass(frozen=True, slots=True)
class RolloutSampler:
    """A stage's way to roll out questions, the same at every step."""

    generator: Generator
    """Generates responses and forces answers."""
    grader: Grader
    """Reads and grades answers."""
    queue: GradingQueue
    """Grades rollouts by `grader` while others are generated."""
    rollouts: int
    """Responses to each question."""
    reward: Reward
    """The reward, whose splits and cuts are sampled."""
    shared_splits: tuple[int, ...] | None
    """Splits that all questions share, in tokens; if None, each question has its own, or each response its reasoning
    steps.
    """
    question_splits: Mapping[str, tuple[int, ...]]
    """Splits of each question by its id, in tokens."""
    references: Mapping[str, Reference]
    """The starting model's samples by a question's id."""
    seed: int
    """The stage's seed."""
    wordings: Wordings | None = None
    """The wordings of questions; None for the question's own prompt."""
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    """The user's functions that the reward calls, by name."""
    tracks: Mapping[str, float] = field(default_factory=dict)
    """The values of the reward's tracks at the step, by name."""
    history: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Tokens and verdict of each earlier response, by a question's id, if the reward reads them."""
    models: Ask | None = None
    """Scores tokens with the policy or the reference model."""
    cut_at: tuple[float, ...] = ()
    """Shares of a response at which some rollouts are cut and made to answer."""
    marks: Thinking | None = None
    """Delimit the thinking whose tokens are counted."""

    def requests(self, question: PromptedQuestion, draw: int, position: int) -> list[Prompted]:
        """Return the prompted question and the request of each rollout of a question.

        A request's stream is a function of the seed, the draw and the question's position in the draw.
        """
        if self.wordings is None:
            questions = [question] * self.rollouts
        else:
            questions = self.wordings.ask(question, draw, position, self.rollouts)
        return [
            (prompted, Request(prompted.prompt, derive_seed(self.seed, "rollout", draw, position, rollout)))
            for rollout, prompted in enumerate(questions)
        ]

    def sample(self, questions: Sequence[PromptedQuestion], draw: int) -> GradedStep:
        """Generate, force and grade the rollouts of a draw's questions.

        Every random draw is a function of the seed, the number of the draw and a rollout's position there.
        """
        began = now()
        pairs: list[Prompted] = []
        for position, question in enumerate(questions):
            pairs += self.requests(question, draw, position)
        requests = [request for _, request in pairs]
        group = self.queue.expect(len(pairs), list)

        def cuts(number: int, response: Generation) -> Sequence[int]:
            alone = replace(self, rollouts=1, references={})
            try:
                inputs = alone.reward_inputs([pairs[number][0]], [response])
                return needed_cuts(self.reward, inputs).forced[0]
            except Problem:
                # What a reward asks of all rollouts of a question is not there yet; it is forced after generation.
                return ()

        def ended(number: int, response: Generation, answers: Mapping[int, tuple[int, ...]]) -> None:
            question, request = pairs[number]
            forced = tuple(ForcedTokens(cut, tokens) for cut, tokens in answers.items())
            self.queue.add([(group, number, Rollout(question, number, request, response, forced))])

        if self.cut_at:
            generator = self.generator
            assert generator.phases is not None
            responses = draw_cut(
                generator.engine, requests, generator.sampling, generator.phases, self.cut_at, self.rollouts
            )
        else:
            early = cuts if self.reward.splits is not None else None
            responses = self.generator.generate(requests, early, ended)
        return self.grade(pairs, responses, (began, now()), group)

    def grade(
        self,
        pairs: Sequence[Prompted],
        responses: Sequence[Generation],
        generating: tuple[Moment, Moment],
        group: RolloutGroup[list[GradedRollout]],
    ) -> GradedStep:
        """Force and grade responses, question by question and rollout by rollout.

        `generating` are the moments at which generation began and ended; `group` has the rollouts that were graded
        meanwhile.
        """
        inputs = self.reward_inputs([question for question, _ in pairs], responses)
        cuts = needed_cuts(self.reward, inputs)
        measured = now()
        forced = self.generator.force([request for _, request in pairs], responses, cuts.forced)
        answered = now()
        triples = zip(pairs, responses, forced, strict=True)
        rollouts = [
            Rollout(question, number, request, response, tuple(answers))
            for number, ((question, request), response, answers) in enumerate(triples)
        ]
        self.queue.add((group, number, rollout) for number, rollout in enumerate(rollouts))
        graded = grade_later(group.result.result(), rollouts, self.grader)
        prefixes = tuple(tuple((end, answer[1].correct) for end, answer in row.prefixes) for row in graded)
        bare = [(n, cut, _verdict_at(prefixes[n], cut)) for n, row in enumerate(cuts.bare) for cut in row]
        at_cuts = [
            (n, cut, answer[1].correct) for n, row in enumerate(graded) for cut, answer in row.forced.items()
        ]
        shape, width = inputs.length.shape, 1 + int(inputs.length.max())
        correct = np.array([row.answer[1].correct for row in graded], dtype=float).reshape(shape)
        values, unpaid = self._own_values(graded, correct)
        for name in ANSWERS.keys() & inputs.features.keys():
            values[name] = np.array([ANSWERS[name](row) for row in graded]).reshape(correct.shape)
        checked, tokens = now(), {}
        if cuts.tokens:
            assert self.models is not None
            tokens = ask_models(cuts.tokens, graded, inputs, self.grader, self.models)
        scored = now()
        decode = self.grader.text
        texts = limit_texts(lambda i: decode(rollouts[i].response.sequence()), len(rollouts), self.rollouts)
        rewarded = now()
        return GradedStep(
            rollouts=tuple(rollouts),
            inputs=replace(inputs, correct=correct, features={**inputs.features, **values}, tokens=tokens),
            forced=CutVerdicts.of(at_cuts, width),
            unforced_verdicts=CutVerdicts.of(bare, width),
            prefix_answers=prefixes,
            seconds={
                **time_spans("generate", generating),
                **time_spans("force", (measured, answered)),
                **time_spans("grade", (generating[1], measured), (answered, checked), (scored, rewarded)),
                **(time_spans("score", (checked, scored)) if tokens else {}),
            },
            unsettled=tuple((*_unsettled(g), *reasons) for g, reasons in zip(graded, unpaid, strict=True)),
            answered=_share_answered(graded),
            texts=texts,
        )

    def reward_inputs(
        self, prompted: Sequence[PromptedQuestion], responses: Sequence[Generation]
    ) -> RewardInputs:
        """Return the step's arrays as far as they are known before grading."""
        shape, tokenizer = (-1, self.rollouts), self.generator.tokenizer
        questions = prompted[:: self.rollouts]
        length = np.array([len(r.tokens) for r in responses], dtype=np.float64).reshape(shape)
        places, present = self._places(questions, responses)
        features = {name: np.array(row).reshape(shape) for name, row in shared_numbers(prompted).items()}
        words = {node.field for node in walk(self.reward) if isinstance(node, Attribute)}
        for name in READERS.keys() & words:
            read = [READERS[name](r, partial(self.grader.text, r.sequence())) for r in responses]
            features[name] = np.array(read).reshape(shape)
        if self.marks is not None:
            pairs = zip(prompted, responses, strict=True)
            thought = [count_thinking(self.marks, tokenizer, question.prompt, r) for question, r in pairs]
            features[THINKING] = np.array(thought, dtype=float).reshape(shape)
        # What the user's functions give is known once all is graded, as what else an answer decides.
        features.update(
            (name, np.zeros(length.shape)) for name in (*self.reward.functions, *ANSWERS.keys() & words)
        )
        references = [self.references[q.id] for q in questions] if self.references else []
        return RewardInputs(
            questions=tuple(q.id for q in questions),
            length=length,
            correct=np.zeros(length.shape),
            split_tokens=places,
            present=present,
            features=features,
            reference_length=np.array([r.lengths for r in references]) if references else None,
            reference_correct=np.array([r.correct for r in references]) if references else None,
            reference_features={THINKING: np.array([r.thinking for r in references])}
            if any(r.thinking for r in references)
            else {},
            earlier=PastResponses.of([self.history.get(q.id, ()) for q in questions]),
            tracks=self.tracks,
        )

    def _places(
        self, questions: Sequence[PromptedQuestion], responses: Sequence[Generation]
    ) -> tuple[Floats, Any]:
        """Return the splits of each response in tokens, and whether it has them, [questions, rollouts, splits]."""
        split = self.reward.splits
        if isinstance(split, (Budgets, OracleBudgets, QuestionBudgets)) and split.reached:
            shared = [self.shared_splits or self.question_splits[question.id] for question in questions]
            places = [
                reached_places(shared[number // self.rollouts], len(response.tokens))
                for number, response in enumerate(responses)
            ]
            return _pad_groups(places, self.rollouts)
        if self.shared_splits is not None:
            return pad_places([[self.shared_splits]])
        if isinstance(split, Steps):
            steps = split

            def decode(tokens: Sequence[int]) -> str:
                return response_text(self.generator.tokenizer, tokens, ())

            places = [step_places(steps, response.tokens, decode) for response in responses]
            return _pad_groups(places, self.rollouts)
        if isinstance(split, Exits):
            places = [exit_places(split, response.tokens, self.seed) for response in responses]
            return _pad_groups(places, self.rollouts)
        return pad_places([[self.question_splits[question.id]] for question in questions])

    def _own_values(
        self, graded: Sequence[GradedRollout], correct: Floats
    ) -> tuple[dict[str, Floats], list[list[str]]]:
        """Return what each of the user's functions gives each response, [questions, rollouts], and the reasons of failures.

        A failed function gives 0.
        """
        unpaid: list[list[str]] = [[] for _ in graded]
        if not self.functions:
            return {}, unpaid
        rows = [
            {
                **answer_row(row.answer[0]),
                "text": row.last,
                "answer": row.answer[0].text,
                "correct": row.answer[1].correct,
                "tokens": len(row.rollout.response.tokens),
            }
            for row in graded
        ]
        values = {}
        for name, function in self.functions.items():
            results = function.call(rows)
            for reasons, result in zip(unpaid, results, strict=True):
                reasons += [f"{REWARD}: {result.why}"] if isinstance(result, FailedRow) else []
            plain = [0.0 if isinstance(result, FailedRow) else result for result in results]
            values[name] = np.array(plain, dtype=float).reshape(correct.shape)
        return values, unpaid


def _pad_groups(places: Sequence[tuple[int, ...]], size: int) -> tuple[Floats, Any]:
    """Return the splits of responses as padded arrays; `size` successive responses belong to a question."""
    return pad_places([places[start : start + size] for start in range(0, len(places), size)])


def _unsettled(graded: GradedRollout) -> list[str]:
    """Return a reason for each answer of a rollout that was not judged."""
    every = (graded.answer, *graded.forced.values(), *(answer for _, answer in graded.prefixes))
    return [why for _, verdict in every if (why := verdict.unsettled) is not None]


def _share_answered(graded: Sequence[GradedRollout]) -> float:
    answered = [ANSWERS["answered"](g) for g in graded if g.rollout.response.finish == "stop"]
    return sum(answered) / len(answered) if len(answered) >= MIN_ENDED else 1.0


def limit_texts(text_of: Callable[[int], str], count: int, size: int) -> tuple[str | None, ...]:
    """Return a step's texts up to `MAX_TEXT_CHARS` characters: first rollouts of all questions, then second rollouts.

    There are `count` texts, question by question, `size` of each question. From the first text that does not fit, they
    are None and are not decoded.
    """
    texts: list[str | None] = [None] * count
    room = MAX_TEXT_CHARS
    for i in sorted(range(count), key=lambda number: (number % size, number)):
        text = text_of(i)
        room -= len(text)
        if room < 0:
            break
        texts[i] = text
    return tuple(texts)


def _verdict_at(changes: Sequence[tuple[int, bool]], cut: int) -> bool:
    """Return the verdict on the first `cut` tokens: that of the last box that closes within them."""
    verdict = False
    for position, correct in changes:
        if position <= cut:
            verdict = correct
    return verdict
