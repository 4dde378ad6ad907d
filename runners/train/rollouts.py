"""Roll out a step's questions: generate, force, and grade responses and cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from reodsl.diagnostics import Problem
from reodsl.ir.base import walk
from reodsl.ir.expression import Given
from reodsl.ir.reward import (
    Budgets,
    Exits,
    OracleBudgets,
    QuestionBudgets,
    Reward,
    Steps,
    reached_places,
)
from runners.data.draws import derive_seed, exit_places
from runners.engine.protocol import ForcedTokens, Generation, Request
from runners.grade import Thinking, answer_row
from runners.machine.clock import Moment, now, spent
from runners.own.function import FailedRow, UserFunction
from runners.rewards.inputs import CutVerdicts, Floats, PastResponses, RewardInputs, pad_places, step_places
from runners.rewards.vectorise import needed_cuts
from runners.rollout.answers import response_text
from runners.rollout.grader import (
    Generator,
    GradeAhead,
    GradedRollout,
    Grader,
    Rollout,
    RolloutGroup,
    grade_later,
)
from runners.rollout.phases import count_thinking, draw_cut
from runners.rollout.questions import AskedQuestion, Reference, Wordings, shared_numbers
from runners.train.likelihood import Ask, ask_models

READ: Mapping[str, Callable[[Generation, Callable[[], str]], float]] = {
    "ended": lambda response, text: float(response.finish == "stop"),
}
"""The number of each word of `READINGS` that a reward knows, from a response and its text; `mode` is its question's, and
`thinking` is found by the model's marks."""
GRADED: Mapping[str, Callable[[GradedRollout], float]] = {
    "answered": lambda one: float(bool(one.whole[0].text))
}
"""The number of each `graded` word of `READINGS`, from a response whose answer was read."""
LEAST_ENDED = 8
REWARD = "reward"
"""The start of the reason of a response at which Python of the reward failed."""
THINKING = "thinking"
"""The number that responses are given where it is counted: how many of their tokens are thinking."""
KEPT_TEXT = 1 << 20
"""Characters of responses that are kept of a step: all of a small model's, and a share of a large one's."""


@dataclass(frozen=True, slots=True)
class GradedStep:
    """A step's rollouts, question by question, `rollouts[i * size + k]` the k-th of question i, with their verdicts.

    `inputs` is what a reward reads of them, and `forced` and `bare` the verdicts at its cuts. `prefixes[i]` follows the
    answer of rollout i's prefixes: (tokens, verdict) wherever it changes. `unsettled[i]` has a reason for each
    answer of rollout i, whole, forced or of a prefix, that the verifier could not judge (`timeout`, `failed`), and for each
    of the user's functions that failed at it (`reward`). `answered` is the share of the responses that ended in which
    there is an answer; 1 where fewer than `LEAST_ENDED` did. `texts` are the responses', up to `KEPT_TEXT` characters.
    """

    rollouts: tuple[Rollout, ...]
    inputs: RewardInputs
    forced: CutVerdicts
    bare: CutVerdicts
    prefixes: tuple[tuple[tuple[int, bool], ...], ...]
    seconds: Mapping[str, float]
    unsettled: tuple[tuple[str, ...], ...] = ()
    answered: float = 1.0
    texts: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RolloutSampler:
    """A stage's way to roll out questions, `rollouts` times each; the same at every step.

    `ahead` grades by `grader`. `places` are splits that all questions share; where it is None they are each question's own
    (`own_places`), or the reasoning steps of each response. `functions` are the user's that the reward calls, by name.
    `tracks` are the values of its tracks at the step, and `history` the lengths and verdicts of each question's earlier
    responses, if the reward reads them. With `cut_at` some rollouts are others, cut at these shares and answered from there.
    `models` tells what the policy and a frozen model think of tokens. `marks` delimit the thinking whose tokens are counted.
    """

    generator: Generator
    grader: Grader
    ahead: GradeAhead
    rollouts: int
    reward: Reward
    places: tuple[int, ...] | None
    own_places: Mapping[str, tuple[int, ...]]
    references: Mapping[str, Reference]
    seed: int
    wordings: Wordings | None = None
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    tracks: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    models: Ask | None = None
    cut_at: tuple[float, ...] = ()
    marks: Thinking | None = None

    def ask(self, question: AskedQuestion, draw: int, position: int) -> list[tuple[AskedQuestion, Request]]:
        """Return the question at a position of a draw as each of its rollouts is asked it, with the request.

        A request's stream is a function of the seed, the draw and its place there.
        """
        if self.wordings is None:
            asked = [question] * self.rollouts
        else:
            asked = self.wordings.ask(question, draw, position, self.rollouts)
        return [
            (one, Request(one.prompt, derive_seed(self.seed, "rollout", draw, position, rollout)))
            for rollout, one in enumerate(asked)
        ]

    def sample(self, questions: Sequence[AskedQuestion], draw: int) -> GradedStep:
        """Generate, force and grade the rollouts of a draw's questions.

        Every random draw is a function of the seed, the number of the draw and a rollout's position there.
        """
        began = now()
        asked = [one for position, each in enumerate(questions) for one in self.ask(each, draw, position)]
        requests = [request for _, request in asked]
        group = self.ahead.expect(len(asked), list)

        def cuts(number: int, response: Generation) -> Sequence[int]:
            alone = replace(self, rollouts=1, references={})
            try:
                inputs = alone.reward_inputs([asked[number][0]], [response])
                return needed_cuts(self.reward, inputs).forced[0]
            except Problem:
                # What a reward asks of all rollouts of a question is not there yet; it is forced after generation.
                return ()

        def ended(number: int, response: Generation, answers: Mapping[int, tuple[int, ...]]) -> None:
            question, request = asked[number]
            forced = tuple(ForcedTokens(cut, tokens) for cut, tokens in answers.items())
            self.ahead.add([(group, number, Rollout(question, number, request, response, forced))])

        if self.cut_at:
            made = self.generator
            assert made.phases is not None
            responses = draw_cut(
                made.engine, requests, made.sampling, made.phases, self.cut_at, self.rollouts
            )
        else:
            early = cuts if self.reward.splits is not None else None
            responses = self.generator.generate(requests, early, ended)
        return self.grade(asked, responses, (began, now()), group)

    def grade(
        self,
        asked: Sequence[tuple[AskedQuestion, Request]],
        responses: Sequence[Generation],
        generating: tuple[Moment, Moment],
        group: RolloutGroup[list[GradedRollout]],
    ) -> GradedStep:
        """Force and grade responses, question by question and rollout by rollout.

        `generating` is when they were made, and `group` has those that came early.
        """
        inputs = self.reward_inputs([question for question, _ in asked], responses)
        cuts = needed_cuts(self.reward, inputs)
        measured = now()
        forced = self.generator.force([request for _, request in asked], responses, cuts.forced)
        answered = now()
        made = zip(asked, responses, forced, strict=True)
        rollouts = [
            Rollout(question, number, request, response, tuple(answers))
            for number, ((question, request), response, answers) in enumerate(made)
        ]
        self.ahead.add((group, number, rollout) for number, rollout in enumerate(rollouts))
        graded = grade_later(group.result.result(), rollouts, self.grader)
        prefixes = tuple(tuple((at, each[1].correct) for at, each in one.prefixes) for one in graded)
        bare = [(n, cut, _bare_at(prefixes[n], cut)) for n, places in enumerate(cuts.bare) for cut in places]
        at_cuts = [
            (n, cut, each[1].correct) for n, one in enumerate(graded) for cut, each in one.forced.items()
        ]
        width = 1 + int(inputs.length.max())
        correct = np.array([one.whole[1].correct for one in graded], dtype=float).reshape(inputs.length.shape)
        values, unpaid = self._own_values(graded, correct)
        for name in GRADED.keys() & inputs.features.keys():
            values[name] = np.array([GRADED[name](one) for one in graded]).reshape(correct.shape)
        checked, tokens = now(), {}
        if cuts.tokens:
            assert self.models is not None
            tokens = ask_models(cuts.tokens, graded, inputs, self.grader, self.models)
        scored = now()
        decode = self.grader.text
        texts = kept_texts(lambda at: decode(rollouts[at].response.sequence()), len(rollouts), self.rollouts)
        rewarded = now()
        return GradedStep(
            rollouts=tuple(rollouts),
            inputs=replace(inputs, correct=correct, features={**inputs.features, **values}, tokens=tokens),
            forced=CutVerdicts.of(at_cuts, width),
            bare=CutVerdicts.of(bare, width),
            prefixes=prefixes,
            seconds={
                **spent("generate", generating),
                **spent("force", (measured, answered)),
                **spent("grade", (generating[1], measured), (answered, checked), (scored, rewarded)),
                **(spent("score", (checked, scored)) if tokens else {}),
            },
            unsettled=tuple((*_unjudged(one), *reasons) for one, reasons in zip(graded, unpaid, strict=True)),
            answered=_share_answered(graded),
            texts=texts,
        )

    def reward_inputs(self, asked: Sequence[AskedQuestion], responses: Sequence[Generation]) -> RewardInputs:
        """Return the step's arrays as far as they are known before anything is graded."""
        shape, tokenizer = (-1, self.rollouts), self.generator.tokenizer
        questions = asked[:: self.rollouts]
        length = np.array([len(r.tokens) for r in responses], dtype=np.float64).reshape(shape)
        places, present = self._places(questions, responses)
        given = {name: np.array(values).reshape(shape) for name, values in shared_numbers(asked).items()}
        wanted = {each.field for each in walk(self.reward) if isinstance(each, Given)}
        for name in READ.keys() & wanted:
            read = [READ[name](each, partial(self.grader.text, each.sequence())) for each in responses]
            given[name] = np.array(read).reshape(shape)
        if self.marks is not None:
            pairs = zip(asked, responses, strict=True)
            thought = [count_thinking(self.marks, tokenizer, one.prompt, each) for one, each in pairs]
            given[THINKING] = np.array(thought, dtype=float).reshape(shape)
        # What the user's functions give is known once all is graded, as what else an answer decides.
        given.update(
            (name, np.zeros(length.shape)) for name in (*self.reward.functions, *GRADED.keys() & wanted)
        )
        references = [self.references[q.id] for q in questions] if self.references else []
        return RewardInputs(
            questions=tuple(q.id for q in questions),
            length=length,
            correct=np.zeros(length.shape),
            split_tokens=places,
            present=present,
            features=given,
            reference_length=np.array([r.lengths for r in references]) if references else None,
            reference_correct=np.array([r.correct for r in references]) if references else None,
            reference_features={THINKING: np.array([r.thinking for r in references])}
            if any(r.thinking for r in references)
            else {},
            earlier=PastResponses.of([self.history.get(q.id, ()) for q in questions]),
            tracks=self.tracks,
        )

    def _places(
        self, questions: Sequence[AskedQuestion], responses: Sequence[Generation]
    ) -> tuple[Floats, Any]:
        split = self.reward.splits
        if isinstance(split, (Budgets, OracleBudgets, QuestionBudgets)) and split.reached:
            shared = [self.places or self.own_places[question.id] for question in questions]
            places = [
                reached_places(shared[number // self.rollouts], len(response.tokens))
                for number, response in enumerate(responses)
            ]
            return _of_groups(places, self.rollouts)
        if self.places is not None:
            return pad_places([[self.places]])
        if isinstance(split, Steps):
            steps = split

            def decode(tokens: Sequence[int]) -> str:
                return response_text(self.generator.tokenizer, tokens, ())

            places = [step_places(steps, response.tokens, decode) for response in responses]
            return _of_groups(places, self.rollouts)
        if isinstance(split, Exits):
            places = [exit_places(split, response.tokens, self.seed) for response in responses]
            return _of_groups(places, self.rollouts)
        return pad_places([[self.own_places[question.id]] for question in questions])

    def _own_values(
        self, graded: Sequence[GradedRollout], correct: Floats
    ) -> tuple[dict[str, Floats], list[list[str]]]:
        """Return what each function of the user's that the reward calls gives each response, [questions, rollouts].

        It is 0 where the function fails; the reasons of each response come second.
        """
        unpaid: list[list[str]] = [[] for _ in graded]
        if not self.functions:
            return {}, unpaid
        rows = [
            {
                **answer_row(one.whole[0]),
                "text": one.last,
                "answer": one.whole[0].text,
                "correct": one.whole[1].correct,
                "tokens": len(one.rollout.response.tokens),
            }
            for one in graded
        ]
        values = {}
        for name, function in self.functions.items():
            given = function.call(rows)
            for reasons, each in zip(unpaid, given, strict=True):
                reasons += [f"{REWARD}: {each.why}"] if isinstance(each, FailedRow) else []
            plain = [0.0 if isinstance(each, FailedRow) else each for each in given]
            values[name] = np.array(plain, dtype=float).reshape(correct.shape)
        return values, unpaid


def _of_groups(places: Sequence[tuple[int, ...]], size: int) -> tuple[Floats, Any]:
    """Return the places of responses, a question's one after another."""
    return pad_places([places[start : start + size] for start in range(0, len(places), size)])


def _unjudged(one: GradedRollout) -> list[str]:
    every = (one.whole, *one.forced.values(), *(answer for _, answer in one.prefixes))
    return [why for _, verdict in every if (why := verdict.unsettled) is not None]


def _share_answered(graded: Sequence[GradedRollout]) -> float:
    ended = [GRADED["answered"](one) for one in graded if one.rollout.response.finish == "stop"]
    return sum(ended) / len(ended) if len(ended) >= LEAST_ENDED else 1.0


def kept_texts(text_of: Callable[[int], str], count: int, size: int) -> tuple[str | None, ...]:
    """Return a step's texts up to `KEPT_TEXT` characters: first rollouts of all questions, then second ones, and so on.

    There are `count`, question by question, `size` of each. Those from the first that does not fit on are None, and are not
    decoded.
    """
    kept: list[str | None] = [None] * count
    room = KEPT_TEXT
    for at in sorted(range(count), key=lambda number: (number % size, number)):
        text = text_of(at)
        room -= len(text)
        if room < 0:
            break
        kept[at] = text
    return tuple(kept)


def _bare_at(changes: Sequence[tuple[int, bool]], cut: int) -> bool:
    """Return the verdict on the first `cut` tokens: that of the last box that closes within them."""
    verdict = False
    for at, correct in changes:
        if at <= cut:
            verdict = correct
    return verdict
