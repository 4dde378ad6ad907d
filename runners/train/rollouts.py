"""Roll out a step's questions: generate, force, and grade whole responses and cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from reodsl.diagnostics import Problem
from reodsl.ir.data import AnswerReader
from reodsl.ir.model import Forcing
from reodsl.ir.reward import (
    Budgets,
    Exits,
    OracleBudgets,
    QuestionBudgets,
    Reward,
    Steps,
    reached_places,
)
from runners.answers import BOXED, response_text
from runners.clock import Moment, now, spent
from runners.conversations import Talk, Turn, converse, force
from runners.draws import exit_places
from runners.engine.protocol import Ahead, Ended, Engine, Forced, Request, Response, Sampling
from runners.models.tokenizer import require_written
from runners.own import OwnFunction
from runners.prompts import continuation_tokens
from runners.rewards.cuts import Cuts, needed_cuts
from runners.rewards.inputs import CutVerdicts, Floats, Ints, RewardInputs, pad_places
from runners.rewards.splits import step_places
from runners.rollout.grader import Answers, Read, Reading, Said
from runners.rollout.questions import Question, shared_given
from runners.rollout.wordings import Asked, Asking, given_arrays
from runners.seeds import purpose
from runners.verify import Answer, Early, Thinking, Unsettled, Verifier, answer_row


@dataclass(frozen=True, slots=True)
class Reference:
    """The starting model's frozen samples of a question: tokens and verdicts (1 or 0)."""

    lengths: tuple[float, ...]
    correct: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Collector:
    """What rollouts are made with; the same for every step of a stage.

    `places` are splits that all questions share; where it is None they are each question's own (`own_places`), or the
    reasoning steps of each response. `asking` says how questions are worded, where not all are asked as they come.
    `functions` are the user's that the reward calls, by name. `tracks` are the values of its tracks at the step. With a
    `talk` responses may call tools, and have several turns. With `early`, which is the verifier's, answers are graded as
    their responses end. With `thinking` no answer is read between its marks.
    """

    engine: Engine
    verifier: Verifier
    tokenizer: Any
    sampling: Sampling
    rollouts: int
    reward: Reward
    forcing: Forcing | None
    places: tuple[int, ...] | None
    own_places: dict[str, tuple[int, ...]]
    references: dict[str, Reference]
    seed: int
    asking: Asking | None = None
    readers: tuple[AnswerReader, ...] = BOXED
    functions: Mapping[str, OwnFunction] = field(default_factory=dict)
    tracks: Mapping[str, float] = field(default_factory=dict)
    talk: Talk | None = None
    early: Early | None = None
    thinking: Thinking | None = None

    @property
    def reading(self) -> Reading:
        """How answers are read in responses."""
        return Reading(self.tokenizer, self.sampling.stop_ids, self.readers, self.forcing, self.thinking)

    def ask(self, question: Question, number: int, position: int) -> list[Asked]:
        """What each rollout of the question at a position of a draw is generated from."""
        if self.asking is None:
            return [Asked(question.prompt, 0, {})] * self.rollouts
        return self.asking.ask(question, number, position)

    def request(self, asked: Asked, number: int, position: int, rollout: int) -> Request:
        """The request of one rollout; its stream is a function of the seed, the draw and its place there."""
        return Request(asked.prompt, purpose(self.seed, "rollout", number, position, rollout))


LEAST_ENDED = 8


def _nothing() -> Floats:
    return np.zeros((0, 0, 0))


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A step's responses, question by question and rollout by rollout, and what is known of them.

    `inputs` is what a reward reads of them. `prefixes[i]` follows the answer of response i's prefixes: (tokens, verdict)
    wherever a boxed answer closes. `leads[i]` is how many tokens at the end of request i's prompt are trained with the
    response. `unsettled` counts answers, whole, forced or of prefixes, that the verifier could not judge, by the reason.
    `answered` is the share of the responses that ended in which there is an answer; 1 where fewer than `LEAST_ENDED` did.
    `texts` are the responses', with what tools said in them. Answers are those of the last turn.

    `score` fills in the rest. `rewards` are [questions, rollouts, splits], 0 for an absent split. `advantages` are those of
    sections, [questions, rollouts, sections], before any normalisation over the batch; `sections` says how many tokens
    each has, those of a prefix that is trained first. `equal_groups` is the share of questions without any advantage.
    """

    questions: tuple[Question, ...]
    requests: tuple[Request, ...]
    responses: tuple[Response, ...]
    inputs: RewardInputs
    forced: CutVerdicts
    bare: CutVerdicts
    prefixes: tuple[tuple[tuple[int, bool], ...], ...]
    leads: tuple[int, ...]
    seconds: dict[str, float]
    unsettled: Mapping[Unsettled, int] = field(default_factory=dict)
    answered: float = 1.0
    texts: tuple[str, ...] = ()
    rewards: Floats = field(default_factory=_nothing)
    advantages: Floats = field(default_factory=_nothing)
    sections: Ints = field(default_factory=lambda: _nothing().astype(np.int64))
    equal_groups: float = 0.0


def collect(collector: Collector, questions: Sequence[Question], number: int) -> Rollouts:
    """Generates, forces and grades. Every draw is a function of the seed, the step's `number` and a response's position."""
    began = now()
    asked = [collector.ask(question, number, at) for at, question in enumerate(questions)]
    requests = [
        collector.request(one, number, position, rollout)
        for position, group in enumerate(asked)
        for rollout, one in enumerate(group)
    ]
    known: dict[int, Read] = {}
    if collector.talk is None:
        ahead = _ahead(collector, questions, asked)
        early = collector.early
        ended = None if early is None else _grading(collector, early, questions, requests, known)
        responses = collector.engine.generate(requests, collector.sampling, ahead, ended)
        turns: list[tuple[Turn, ...]] = [()] * len(responses)
    else:
        metas = [question.meta for question in questions for _ in range(collector.rollouts)]
        talks = [collector.talk] * len(requests)
        responses, turns = converse(collector.engine, requests, collector.sampling, talks, metas)
    return finish(collector, questions, asked, requests, responses, (began, now()), turns, known)


def finish(
    collector: Collector,
    questions: Sequence[Question],
    asked: Sequence[Sequence[Asked]],
    requests: Sequence[Request],
    responses: Sequence[Response],
    generating: tuple[Moment, Moment],
    turns: Sequence[tuple[Turn, ...]] = (),
    known: Mapping[int, Read] = MappingProxyType({}),
) -> Rollouts:
    """Forces and grades responses, question by question and rollout by rollout; `generating` is when they were made.

    `turns` are those before the last of each, where responses have several. `known` has what was read early in responses.
    """
    generated = generating[1]
    turns = turns or [()] * len(responses)
    stop = collector.sampling.stop_ids
    texts = [response_text(collector.tokenizer, r.sequence(), stop) for r in responses]
    inputs = _ungraded(collector, questions, responses, asked)
    cuts = needed_cuts(collector.reward, inputs)
    measured = now()
    forced = _force(collector, requests, responses, cuts)
    answered = now()
    if collector.early is not None:
        collector.early.settle()
    said = [
        Said(questions[number // collector.rollouts], number, response, before, request.prompt)
        for number, (response, before, request) in enumerate(zip(responses, turns, requests, strict=True))
    ]
    answers = Answers.of(collector.reading, said, forced, known)
    verdicts = (collector.early or collector.verifier).grade(answers.asked)
    finished = now()
    right = [verdict.correct for verdict in verdicts]
    prefixes = tuple(tuple((at, i is not None and right[i]) for at, i in one) for one in answers.prefixes)
    bare = [(n, cut, _bare_at(prefixes[n], cut)) for n, places in enumerate(cuts.bare) for cut in places]
    width = 1 + int(inputs.length.max())
    correct = np.array([right[i] for i in answers.whole], dtype=float).reshape(inputs.length.shape)
    values = _own_values(
        collector, [answers.asked[i] for i in answers.whole], answers.last, responses, correct
    )
    rewarded = now()
    return Rollouts(
        questions=tuple(questions),
        requests=tuple(requests),
        responses=tuple(responses),
        inputs=replace(inputs, correct=correct, given={**inputs.given, **values}),
        forced=CutVerdicts.of([(n, cut, right[i]) for n, cut, i in answers.forced], width),
        bare=CutVerdicts.of(bare, width),
        prefixes=prefixes,
        leads=tuple(one.lead for group in asked for one in group),
        seconds={
            **spent("generate", generating),
            **spent("force", (measured, answered)),
            **spent("grade", (generated, measured), (answered, finished), (finished, rewarded)),
        },
        unsettled=Counter(verdict.unsettled for verdict in verdicts if verdict.unsettled is not None),
        answered=_share_answered([answers.asked[i] for i in answers.whole], responses),
        texts=tuple(texts),
    )


def _ahead(
    collector: Collector, questions: Sequence[Question], asked: Sequence[Sequence[Asked]]
) -> Ahead | None:
    """Where a response will be cut, as far as it can be told from that response alone."""
    if collector.forcing is None or collector.reward.splits is None:
        return None

    def cuts(index: int, response: Response) -> Sequence[int]:
        position, rollout = divmod(index, collector.rollouts)
        alone = replace(collector, rollouts=1, references={})
        try:
            inputs = _ungraded(alone, [questions[position]], [response], [[asked[position][rollout]]])
            return needed_cuts(collector.reward, inputs).forced[0]
        except Problem:
            # What a reward asks of all rollouts of a question is not there yet; it is forced after generation.
            return ()

    try:
        text = continuation_tokens(collector.tokenizer, collector.forcing.text)
    except Problem:
        # A text that the tokenizer lacks words of is a problem only where something is forced after all.
        return None
    return Ahead(cuts, text, _forced_sampling(collector, collector.forcing))


def _forced_sampling(collector: Collector, forcing: Forcing) -> Sampling:
    return Sampling(
        forcing.answer_tokens, forcing.temperature, forcing.top_p, stop_ids=collector.sampling.stop_ids
    )


def _ungraded(
    collector: Collector,
    questions: Sequence[Question],
    responses: Sequence[Response],
    asked: Sequence[Sequence[Asked]],
) -> RewardInputs:
    """The step's arrays as far as they are known before anything is graded."""
    shape = (len(questions), collector.rollouts)
    length = np.array([len(r.tokens) for r in responses], dtype=np.float64).reshape(shape)
    places, present = _places(collector, questions, responses)
    given = {
        name: np.repeat([[q.given[name]] for q in questions], collector.rollouts, axis=1)
        for name in shared_given(questions)
    }
    given.update((name, np.array(values)) for name, values in given_arrays(asked).items())
    # What the user's functions give is known once all is graded.
    given.update((name, np.zeros(shape)) for name in collector.reward.functions)
    references = [collector.references[q.id] for q in questions] if collector.references else []
    return RewardInputs(
        questions=tuple(q.id for q in questions),
        length=length,
        correct=np.zeros(shape),
        places=places,
        present=present,
        given=given,
        reference_length=np.array([r.lengths for r in references]) if references else None,
        reference_correct=np.array([r.correct for r in references]) if references else None,
        tracks=collector.tracks,
    )


def _places(
    collector: Collector, questions: Sequence[Question], responses: Sequence[Response]
) -> tuple[Floats, Any]:
    split = collector.reward.splits
    if isinstance(split, (Budgets, OracleBudgets, QuestionBudgets)) and split.reached:
        shared = [collector.places or collector.own_places[question.id] for question in questions]
        places = [
            reached_places(shared[number // collector.rollouts], len(response.tokens))
            for number, response in enumerate(responses)
        ]
        return _of_groups(places, collector.rollouts)
    if collector.places is not None:
        return pad_places([[collector.places]])
    if isinstance(split, Steps):
        steps = split

        def decode(tokens: Sequence[int]) -> str:
            return response_text(collector.tokenizer, tokens, ())

        places = [step_places(steps, response.tokens, decode) for response in responses]
        return _of_groups(places, collector.rollouts)
    if isinstance(split, Exits):
        places = [exit_places(split, response.tokens, collector.seed) for response in responses]
        return _of_groups(places, collector.rollouts)
    return pad_places([[collector.own_places[question.id]] for question in questions])


def _of_groups(places: Sequence[tuple[int, ...]], size: int) -> tuple[Floats, Any]:
    """The places of responses, a question's one after another."""
    return pad_places([places[start : start + size] for start in range(0, len(places), size)])


def _force(
    collector: Collector, requests: Sequence[Request], responses: Sequence[Response], cuts: Cuts
) -> list[list[Forced]]:
    forcing = collector.forcing
    if forcing is None or not any(cuts.forced):
        return [[] for _ in requests]
    require_written(collector.tokenizer, forcing.text, "the text that forces an answer")
    text = continuation_tokens(collector.tokenizer, forcing.text)
    sampling = _forced_sampling(collector, forcing)
    return force(collector.engine, requests, responses, cuts.forced, text, sampling)


def _grading(
    collector: Collector,
    early: Early,
    questions: Sequence[Question],
    requests: Sequence[Request],
    known: dict[int, Read],
) -> Ended:
    """Has the answers of each response graded that has ended; what was read in it is put into `known`."""
    reading = collector.reading

    def ended(number: int, response: Response, answers: Mapping[int, tuple[int, ...]]) -> None:
        question = questions[number // collector.rollouts]
        said = Said(question, number, response, (), requests[number].prompt)

        def read() -> list[Answer]:
            known[number] = parts = reading.read(said)
            at_cuts = [reading.read_forced(said, Forced(cut, tokens)) for cut, tokens in answers.items()]
            return [parts.whole, *at_cuts, *(answer for _, answer in parts.prefixes if answer is not None)]

        early.begin(read)

    return ended


def _own_values(
    collector: Collector,
    answers: Sequence[Answer],
    texts: Sequence[str],
    responses: Sequence[Response],
    correct: Floats,
) -> dict[str, Floats]:
    """What each function of the user's that the reward calls gives each response, [questions, rollouts]."""
    if not collector.functions:
        return {}
    rows = [
        {
            **answer_row(answer),
            "text": text,
            "answer": answer.text,
            "correct": bool(right),
            "tokens": len(response.tokens),
        }
        for answer, text, response, right in zip(answers, texts, responses, correct.ravel(), strict=True)
    ]
    return {
        name: np.array(function.call(rows), dtype=float).reshape(correct.shape)
        for name, function in collector.functions.items()
    }


def _share_answered(answers: Sequence[Answer], responses: Sequence[Response]) -> float:
    ended = [
        bool(answer.text) for answer, one in zip(answers, responses, strict=True) if one.finish == "stop"
    ]
    return sum(ended) / len(ended) if len(ended) >= LEAST_ENDED else 1.0


def _bare_at(changes: Sequence[tuple[int, bool]], cut: int) -> bool:
    """The verdict on the first `cut` tokens: that of the last box that closes within them."""
    verdict = False
    for at, correct in changes:
        if at <= cut:
            verdict = correct
    return verdict
