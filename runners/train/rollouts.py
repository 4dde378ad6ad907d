"""Sample a step's rollouts: generate responses, force answers at cuts, and grade responses and cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from reodsl.diagnostics import Problem
from reodsl.ir.base import values_of, walk
from reodsl.ir.expression import Attribute, TextNumber
from reodsl.ir.reward import Budgets, Exits, OracleBudgets, QuestionBudgets, Reward, Steps, reached_places
from runners.data.draws import derive_seed, exit_places
from runners.engine.protocol import ForcedTokens, Generation, Request
from runners.grade import Thinking, answer_row, read_texts
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
"""Functions from a response, and a function that decodes it, to the value of a word of `READINGS`, such as `ended(y)`. The
words `mode` and `thinking` have values from the question and from the model's marks instead."""
ANSWERS: Mapping[str, Callable[[GradedRollout], float]] = {
    "answered": lambda graded: float(bool(graded.answer[0].text))
}
"""Functions from a graded response to the value of a `graded` word of `READINGS`."""
MIN_ENDED = 8
"""The smallest number of finished responses from which the share with an answer is computed."""
REWARD = "reward"
"""The first word of the reason for a response without a reward, if the reward's Python failed."""
THINKING = "thinking"
"""The name of the feature with the number of a response's thinking tokens."""
MAX_TEXT_CHARS = 1 << 20
"""The number of characters of responses that a step stores: all of a small model's texts, a share of a large model's."""


Prompted = tuple[PromptedQuestion, Request]


@dataclass(frozen=True, slots=True)
class GradedStep:
    """The rollouts of a step with their verdicts; `rollouts[i * size + k]` is rollout k of `size` of question i."""

    rollouts: tuple[Rollout, ...]
    """The rollouts, question by question."""
    inputs: RewardInputs
    """The arrays that a reward reads of the rollouts."""
    forced: CutVerdicts
    """Verdicts on answers that were forced at the reward's cuts."""
    unforced_verdicts: CutVerdicts
    """Verdicts on the answers of prefixes at the reward's cuts, without forcing."""
    prefix_answers: tuple[tuple[tuple[int, bool], ...], ...]
    """For each rollout, (tokens, verdict) at each prefix length at which the prefix's answer changes."""
    seconds: Mapping[str, float]
    """Seconds of each phase, by column name."""
    unsettled: tuple[tuple[str, ...], ...] = ()
    """For each rollout, a reason for each answer that the verifier could not judge (`timeout`, `failed`), and for each
    user's function that failed for the rollout (`reward: …`).
    """
    answered: float = 1.0
    """The share of finished responses with an answer; 1 if fewer than `MIN_ENDED` responses finished."""
    texts: tuple[str | None, ...] = ()
    """The texts of responses, up to `MAX_TEXT_CHARS` characters in total; None for responses beyond this limit."""


@dataclass(frozen=True, slots=True)
class RolloutSampler:
    """The sampler of rollouts for the questions of a stage; `tracks` and `history` change from step to step."""

    generator: Generator
    """Generates responses and forces answers."""
    grader: Grader
    """Reads and grades answers."""
    queue: GradingQueue
    """Grades rollouts by `grader` while other rollouts are generated."""
    rollouts: int
    """The number of responses to each question."""
    reward: Reward
    """The reward, whose splits and cuts decide which answers are forced."""
    shared_splits: tuple[int, ...] | None
    """Positions, in tokens, at which all responses are divided; None if each question or response has its own."""
    question_splits: Mapping[str, tuple[int, ...]]
    """Positions, in tokens, at which the responses to a question are divided, by question id."""
    references: Mapping[str, Reference]
    """The starting model's samples by question id."""
    seed: int
    """The stage's seed."""
    wordings: Wordings | None = None
    """The wordings of questions; None if each question has one prompt."""
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    """The user's functions that the reward calls, by name."""
    tracks: Mapping[str, float] = field(default_factory=dict)
    """The values of the reward's tracks at the step, by name."""
    history: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Tokens and verdict of each earlier response, by question id, if the reward reads earlier responses."""
    models: Ask | None = None
    """The function that scores tokens with the policy or the reference model, if the reward needs scores."""
    cut_at: tuple[float, ...] = ()
    """Shares of a response's length at which copies of the response are cut and made to answer."""
    marks: Thinking | None = None
    """The marks that delimit thinking, if thinking tokens are counted."""

    def requests(self, question: PromptedQuestion, draw: int, index: int) -> list[Prompted]:
        """Return the prompts and requests of all rollouts of a question.

        The stage's seed, `draw`, `index` and the rollout's index determine the random numbers of a request.

        Args:
            question: The question.
            draw: The number of the sample of questions, counted over the stage.
            index: The index of the question in the sample.

        Returns:
            For each rollout, the question with the prompt of the rollout's wording, and the request to the engine.
        """
        same, wordings = [question] * self.rollouts, self.wordings
        questions = same if wordings is None else wordings.ask(question, draw, index, self.rollouts)
        return [
            (prompted, Request(prompted.prompt, derive_seed(self.seed, "rollout", draw, index, rollout)))
            for rollout, prompted in enumerate(questions)
        ]

    def sample(self, questions: Sequence[PromptedQuestion], draw: int) -> GradedStep:
        """Generate responses to a sample of questions, force answers at cuts, and grade responses and forced answers.

        A response is graded as soon as it is finished, while others are generated. With `cut_at`, all responses
        are generated before the first is graded. Random numbers depend on the seed, `draw`, and the indices of question
        and rollout.

        Args:
            questions: The questions.
            draw: The number of the sample of questions, counted over the stage.
        """
        start = now()
        pairs = [pair for i, question in enumerate(questions) for pair in self.requests(question, draw, i)]
        requests = [request for _, request in pairs]
        group = self.queue.expect(len(pairs), list)

        def cuts(index: int, response: Generation) -> Sequence[int]:
            """Return the cuts, in tokens, at which a finished response gets forced answers while others are generated.

            The result is empty if the reward needs the question's other rollouts to compute the cuts; `grade` then
            forces the answers after generation.
            """
            single = replace(self, rollouts=1, references={})
            try:
                inputs = single.reward_inputs([pairs[index][0]], [response])
                return needed_cuts(self.reward, inputs).forced[0]
            except Problem:
                # The reward needs the other rollouts of the question: `grade` forces its answers after generation.
                return ()

        def ended(index: int, response: Generation, answers: Mapping[int, tuple[int, ...]]) -> None:
            """Hand a finished response to the grading queue; `answers` are its forced answers by cut in tokens."""
            question, request = pairs[index]
            forced = tuple(ForcedTokens(cut, tokens) for cut, tokens in answers.items())
            self.queue.add([(group, index, Rollout(question, index, request, response, forced))])

        if self.cut_at:
            generator = self.generator
            assert generator.phases is not None
            responses = draw_cut(
                generator.engine, requests, generator.sampling, generator.phases, self.cut_at, self.rollouts
            )
        else:
            early_cuts = cuts if self.reward.splits is not None else None
            responses = self.generator.generate(requests, early_cuts, ended)
        return self.grade(pairs, responses, (start, now()), group)

    def grade(
        self,
        pairs: Sequence[Prompted],
        responses: Sequence[Generation],
        generating: tuple[Moment, Moment],
        group: RolloutGroup[list[GradedRollout]],
    ) -> GradedStep:
        """Force the answers that are still missing, grade all responses, and collect the arrays that a reward reads.

        Args:
            pairs: The prompted questions and requests, question by question and rollout by rollout.
            responses: The responses to the requests.
            generating: The moments at which generation began and ended.
            group: The group of these rollouts in the grading queue. Rollouts that were queued during generation may be
                graded already.
        """
        inputs = self.reward_inputs([question for question, _ in pairs], responses)
        cuts = needed_cuts(self.reward, inputs)
        measured = now()
        forced = self.generator.force([request for _, request in pairs], responses, cuts.forced)
        answered = now()
        answered_pairs = zip(pairs, responses, forced, strict=True)
        rollouts = [
            Rollout(question, index, request, response, tuple(answers))
            for index, ((question, request), response, answers) in enumerate(answered_pairs)
        ]
        self.queue.add((group, index, rollout) for index, rollout in enumerate(rollouts))
        graded = grade_later(group.result.result(), rollouts, self.grader)
        prefixes = tuple(tuple((end, answer[1].correct) for end, answer in row.prefixes) for row in graded)
        unforced = [(n, cut, _verdict_at(prefixes[n], cut)) for n, row in enumerate(cuts.bare) for cut in row]
        forced_verdicts = [
            (n, cut, answer[1].correct) for n, row in enumerate(graded) for cut, answer in row.forced.items()
        ]
        shape, width = inputs.length.shape, 1 + int(inputs.length.max())
        correct = np.array([row.answer[1].correct for row in graded], dtype=float).reshape(shape)
        decode = self.grader.text
        values, failures = self._call_functions(graded, correct)
        values |= {
            name: np.array([ANSWERS[name](row) for row in graded]).reshape(shape)
            for name in ANSWERS.keys() & inputs.features.keys()
        }

        def texts_of(source: str) -> list[str]:
            """Return the texts of all responses, or of their answers, or of their thinking."""
            if source == "thinking":
                counts = map(int, inputs.features[THINKING].flat)
                return [decode(r.tokens[:count]) for r, count in zip(responses, counts, strict=True)]
            return [row.answer[0].text if source == "answer" else row.text for row in graded]

        values |= read_texts(self.reward, texts_of, shape)
        checked, tokens = now(), {}
        if cuts.tokens:
            assert self.models is not None
            tokens = ask_models(cuts.tokens, graded, inputs, self.grader, self.models)
        scored = now()
        texts = limit_texts(lambda i: decode(rollouts[i].response.sequence()), len(rollouts), self.rollouts)
        rewarded = now()
        return GradedStep(
            rollouts=tuple(rollouts),
            inputs=replace(inputs, correct=correct, features={**inputs.features, **values}, tokens=tokens),
            forced=CutVerdicts.of(forced_verdicts, width),
            unforced_verdicts=CutVerdicts.of(unforced, width),
            prefix_answers=prefixes,
            seconds={
                **time_spans("generate", generating),
                **time_spans("force", (measured, answered)),
                **time_spans("grade", (generating[1], measured), (answered, checked), (scored, rewarded)),
                **(time_spans("score", (checked, scored)) if tokens else {}),
            },
            unsettled=tuple((*_unsettled(g), *reasons) for g, reasons in zip(graded, failures, strict=True)),
            answered=_share_answered(graded),
            texts=texts,
        )

    def reward_inputs(
        self, prompted: Sequence[PromptedQuestion], responses: Sequence[Generation]
    ) -> RewardInputs:
        """Return the arrays that a reward reads of a step, as far as they are known before grading.

        Verdicts, features about answers, and values of the user's functions are placeholders of 0 until `grade` sets
        them. The feature `thinking` is present only if `marks` is set. The arrays of reference samples are None, or
        empty, if there are no reference samples.

        Args:
            prompted: The prompted questions, question by question and rollout by rollout.
            responses: The responses to the prompts.
        """
        shape, tokenizer = (-1, self.rollouts), self.generator.tokenizer
        questions = prompted[:: self.rollouts]
        length = np.array([len(r.tokens) for r in responses], dtype=np.float64).reshape(shape)
        split_tokens, present = self._response_splits(questions, responses)
        features = {name: np.array(row).reshape(shape) for name, row in shared_numbers(prompted).items()}
        attributes = {node.field for node in walk(self.reward) if isinstance(node, Attribute)}
        values = {
            name: [READERS[name](r, partial(self.grader.text, r.sequence())) for r in responses]
            for name in READERS.keys() & attributes
        }
        if self.marks is not None:
            pairs = zip(prompted, responses, strict=True)
            values[THINKING] = [count_thinking(self.marks, tokenizer, q.prompt, r) for q, r in pairs]
        features |= {name: np.array(row, dtype=float).reshape(shape) for name, row in values.items()}
        # Placeholders: the user's functions, answers and texts are evaluated after grading.
        texts = [node.key for node in values_of(self.reward, TextNumber)]
        features.update(
            (name, np.zeros(length.shape))
            for name in (*self.reward.functions, *ANSWERS.keys() & attributes, *texts)
        )
        references = [self.references[q.id] for q in questions] if self.references else []
        return RewardInputs(
            questions=tuple(q.id for q in questions),
            length=length,
            correct=np.zeros(length.shape),
            split_tokens=split_tokens,
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

    def _response_splits(
        self, questions: Sequence[PromptedQuestion], responses: Sequence[Generation]
    ) -> tuple[Floats, Any]:
        """Return the splits of each response: the positions, in tokens, at which it is divided into sections.

        The type of the reward's `splits` decides. Budgets with `reached` are the budgets below a response's length,
        followed by the length. Shared splits are equal for all responses. `Steps` are the ends of reasoning steps in a
        response's text. `Exits` are drawn at random. Otherwise all responses to a question have the question's splits.

        Args:
            questions: The questions.
            responses: All responses, question by question.

        Returns:
            Splits, and a mask that is false for padding, both of a shape that broadcasts to [questions, rollouts,
            splits].
        """
        split = self.reward.splits
        if isinstance(split, (Budgets, OracleBudgets, QuestionBudgets)) and split.reached:
            ends = [self.shared_splits or self.question_splits[question.id] for question in questions]
            splits = [
                reached_places(ends[index // self.rollouts], len(response.tokens))
                for index, response in enumerate(responses)
            ]
            return _pad_groups(splits, self.rollouts)
        if self.shared_splits is not None:
            return pad_places([[self.shared_splits]])
        if isinstance(split, Steps):
            decode = partial(response_text, self.generator.tokenizer, stop_ids=())
            splits = [step_places(split, response.tokens, decode) for response in responses]
            return _pad_groups(splits, self.rollouts)
        if isinstance(split, Exits):
            splits = [exit_places(split, response.tokens, self.seed) for response in responses]
            return _pad_groups(splits, self.rollouts)
        return pad_places([[self.question_splits[question.id]] for question in questions])

    def _call_functions(
        self, graded: Sequence[GradedRollout], correct: Floats
    ) -> tuple[dict[str, Floats], list[list[str]]]:
        """Call each of the user's functions that the reward uses on all responses.

        Args:
            graded: The responses.
            correct: The verdicts, [questions, rollouts], for the shape of the result.

        Returns:
            For each function, its values, [questions, rollouts], 0 if the function failed; and for each response, the
            reasons of failures.
        """
        failures: list[list[str]] = [[] for _ in graded]
        if not self.functions:
            return {}, failures
        rows = [
            {
                **answer_row(row.answer[0]),
                "text": row.text,
                "answer": row.answer[0].text,
                "correct": row.answer[1].correct,
                "tokens": len(row.rollout.response.tokens),
            }
            for row in graded
        ]
        values = {}
        for name, function in self.functions.items():
            results = function.call(rows)
            for reasons, result in zip(failures, results, strict=True):
                reasons += [f"{REWARD}: {result.why}"] if isinstance(result, FailedRow) else []
            numbers = [0.0 if isinstance(result, FailedRow) else result for result in results]
            values[name] = np.array(numbers, dtype=float).reshape(correct.shape)
        return values, failures


def _pad_groups(splits: Sequence[tuple[int, ...]], group_size: int) -> tuple[Floats, Any]:
    """Return the splits of all responses as two padded arrays, grouped by question.

    A split is a position, in tokens, at which a response is divided into sections. Responses may have different numbers
    of splits. Shorter rows are padded by repeating their last split.

    Args:
        splits: The increasing splits of each response, question by question; at least one for each response.
        group_size: The number of successive responses that belong to one question.

    Returns:
        Splits in tokens with padding, [questions, rollouts, splits]; and a mask of this shape that is false for padding.
    """
    return pad_places([splits[start : start + group_size] for start in range(0, len(splits), group_size)])


def _unsettled(graded: GradedRollout) -> list[str]:
    """Return a reason for each answer of a rollout that the verifier could not judge."""
    answers = (graded.answer, *graded.forced.values(), *(answer for _, answer in graded.prefixes))
    return [reason for _, verdict in answers if (reason := verdict.unsettled) is not None]


def _share_answered(graded: Sequence[GradedRollout]) -> float:
    """Return the share of finished responses with an answer; 1 if fewer than `MIN_ENDED` responses finished."""
    answered = [ANSWERS["answered"](g) for g in graded if g.rollout.response.finish == "stop"]
    return sum(answered) / len(answered) if len(answered) >= MIN_ENDED else 1.0


def limit_texts(text_of: Callable[[int], str], count: int, group_size: int) -> tuple[str | None, ...]:
    """Return the texts of a step up to a total of `MAX_TEXT_CHARS` characters.

    The first rollouts of all questions come first, then the second rollouts, and so on. Texts after the limit are None,
    and are not decoded.

    Args:
        text_of: Returns the text of a response by index.
        count: The number of responses, which are in the order of questions.
        group_size: The number of responses to a question.
    """
    texts: list[str | None] = [None] * count
    chars_left = MAX_TEXT_CHARS
    for i in sorted(range(count), key=lambda index: (index % group_size, index)):
        text = text_of(i)
        chars_left -= len(text)
        if chars_left < 0:
            break
        texts[i] = text
    return tuple(texts)


def _verdict_at(changes: Sequence[tuple[int, bool]], cut: int) -> bool:
    """Return the verdict on the first `cut` tokens of a response; False before the first change.

    Args:
        changes: Pairs of a prefix length in tokens, increasing, and the verdict from this length on.
        cut: The number of tokens.
    """
    return next((correct for tokens, correct in reversed(changes) if tokens <= cut), False)
