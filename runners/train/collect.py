"""One step's experience: questions and an engine in; responses, their verdicts whole and at cuts, and seconds out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reodsl.diagnostics import Problem
from reodsl.ir.data import AnswerReader
from reodsl.ir.model import Forcing
from reodsl.ir.reward import Reward, Steps
from runners.answers import BOXED, answer_after_forcing, bare_answers, response_text
from runners.clock import now, spent
from runners.engine.protocol import Ahead, Engine, Forced, Request, Response, Sampling
from runners.models.tokenizer import require_written
from runners.prompts import continuation_tokens
from runners.rewards.cuts import Cuts, needed_cuts
from runners.rewards.splits import step_places
from runners.rewards.step import CutVerdicts, Floats, Step, pad_places
from runners.seeds import purpose
from runners.train.asking import Asked, Asking, given_arrays
from runners.train.questions import Question, shared_given
from runners.verify import Answer, Unsettled, Verifier, read_answer


@dataclass(frozen=True, slots=True)
class Reference:
    """The starting model's frozen samples of a question: tokens and verdicts (1 or 0)."""

    lengths: tuple[float, ...]
    correct: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Collector:
    """What experience is made with; the same for every step of a stage.

    `places` are splits that all questions share; where it is None they are each question's own (`own_places`), or the
    reasoning steps of each response. `asking` says how questions are worded, where not all are asked as they come.
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

    def ask(self, questions: Sequence[Question], number: int) -> list[list[Asked]]:
        """What each rollout of a step is generated from, by question."""
        if self.asking is None:
            return [[Asked(question.prompt, 0, {})] * self.rollouts for question in questions]
        return [self.asking.ask(question, number, at) for at, question in enumerate(questions)]


LEAST_ENDED = 8


@dataclass(frozen=True, slots=True)
class Experience:
    """A step's responses, question by question and rollout by rollout, and what was found of them.

    `prefixes[i]` follows the answer of response i's prefixes: (tokens, verdict) wherever a boxed answer closes.
    `leads[i]` is how many tokens at the end of request i's prompt are learnt with the response.
    """

    questions: tuple[Question, ...]
    requests: tuple[Request, ...]
    responses: tuple[Response, ...]
    step: Step
    forced: CutVerdicts
    bare: CutVerdicts
    cuts: Cuts
    prefixes: tuple[tuple[tuple[int, bool], ...], ...]
    leads: tuple[int, ...]
    seconds: dict[str, float]
    unsettled: Mapping[Unsettled, int] = field(default_factory=dict)
    """How many answers, whole, forced or of prefixes, the verifier could not judge, by the reason."""
    answered: float = 1.0
    """The share of the responses that ended in which an answer was found; 1 where fewer than `LEAST_ENDED` did."""


def collect(collector: Collector, questions: Sequence[Question], number: int) -> Experience:
    """Generates, forces and grades. Every draw is a function of the seed, the step's `number` and a response's position."""
    began = now()
    asked = collector.ask(questions, number)
    requests = [
        Request(one.prompt, purpose(collector.seed, "rollout", number, position, rollout))
        for position, own in enumerate(asked)
        for rollout, one in enumerate(own)
    ]
    responses = collector.engine.generate(requests, collector.sampling, _ahead(collector, questions, asked))
    generated = now()
    texts = [response_text(collector.tokenizer, r.tokens, collector.sampling.stop_ids) for r in responses]
    step = _unjudged(collector, questions, responses, asked)
    cuts = needed_cuts(collector.reward, step)
    measured = now()
    forced = _force(collector, requests, responses, cuts)
    answered = now()
    graded = _grade(collector, questions, responses, texts, cuts, forced)
    finished = now()
    shape = step.length.shape
    width = 1 + int(step.length.max())
    return Experience(
        tuple(questions),
        tuple(requests),
        tuple(responses),
        _with_verdicts(step, np.array(graded.whole, dtype=float).reshape(shape)),
        CutVerdicts.of(graded.forced, width),
        CutVerdicts.of(graded.bare, width),
        cuts,
        graded.prefixes,
        tuple(one.lead for own in asked for one in own),
        {
            **spent("generate", (began, generated)),
            **spent("force", (measured, answered)),
            **spent("grade", (generated, measured), (answered, finished)),
        },
        graded.unsettled,
        graded.answered,
    )


def _ahead(
    collector: Collector, questions: Sequence[Question], asked: Sequence[Sequence[Asked]]
) -> Ahead | None:
    """Where a response will be cut, as far as it can be told from that response alone."""
    if collector.forcing is None or collector.reward.dense is None:
        return None

    def cuts(index: int, response: Response) -> Sequence[int]:
        position, rollout = divmod(index, collector.rollouts)
        alone = replace(collector, rollouts=1, references={})
        try:
            step = _unjudged(alone, [questions[position]], [response], [[asked[position][rollout]]])
            return needed_cuts(collector.reward, step).forced[0]
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


def _unjudged(
    collector: Collector,
    questions: Sequence[Question],
    responses: Sequence[Response],
    asked: Sequence[Sequence[Asked]],
) -> Step:
    """The step's arrays as far as they are known before anything is graded."""
    shape = (len(questions), collector.rollouts)
    length = np.array([len(r.tokens) for r in responses], dtype=np.float64).reshape(shape)
    places, present = _places(collector, questions, responses)
    given = {
        name: np.repeat([[q.given[name]] for q in questions], collector.rollouts, axis=1)
        for name in shared_given(questions)
    }
    given.update((name, np.array(values)) for name, values in given_arrays(asked).items())
    references = [collector.references[q.id] for q in questions] if collector.references else []
    return Step(
        questions=tuple(q.id for q in questions),
        length=length,
        correct=np.zeros(shape),
        places=places,
        present=present,
        given=given,
        reference_length=np.array([r.lengths for r in references]) if references else None,
        reference_correct=np.array([r.correct for r in references]) if references else None,
    )


def _places(
    collector: Collector, questions: Sequence[Question], responses: Sequence[Response]
) -> tuple[Floats, Any]:
    dense = collector.reward.dense
    if collector.places is not None:
        return pad_places([[collector.places]])
    if dense is not None and isinstance(dense.split, Steps):
        split = dense.split

        def decode(tokens: Sequence[int]) -> str:
            return response_text(collector.tokenizer, tokens, ())

        found = [step_places(split, response.tokens, decode) for response in responses]
        size = collector.rollouts
        return pad_places([found[start : start + size] for start in range(0, len(found), size)])
    return pad_places([[collector.own_places[question.id]] for question in questions])


def _with_verdicts(step: Step, correct: Floats) -> Step:
    return Step(
        step.questions,
        step.length,
        correct,
        step.places,
        step.present,
        step.given,
        step.reference_length,
        step.reference_correct,
        step.reference_given,
    )


def _force(
    collector: Collector, requests: Sequence[Request], responses: Sequence[Response], cuts: Cuts
) -> list[list[Forced]]:
    forcing = collector.forcing
    if forcing is None or not any(cuts.forced):
        return [[] for _ in requests]
    require_written(collector.tokenizer, forcing.text, "the text that forces an answer")
    text = continuation_tokens(collector.tokenizer, forcing.text)
    return collector.engine.force(
        requests, responses, cuts.forced, text, _forced_sampling(collector, forcing)
    )


@dataclass(frozen=True, slots=True)
class _Graded:
    whole: list[bool]
    forced: list[tuple[int, int, bool]]
    bare: list[tuple[int, int, bool]]
    prefixes: tuple[tuple[tuple[int, bool], ...], ...]
    unsettled: Mapping[Unsettled, int]
    answered: float


def _grade(
    collector: Collector,
    questions: Sequence[Question],
    responses: Sequence[Response],
    texts: Sequence[str],
    cuts: Cuts,
    forced: Sequence[Sequence[Forced]],
) -> _Graded:
    """All answers of the step through the verifier at once: whole, forced, and of the prefixes that hold one."""
    answers: list[Answer] = []

    def decode(tokens: Sequence[int]) -> str:
        return response_text(collector.tokenizer, tokens, collector.sampling.stop_ids)

    def ask(text: str, number: int) -> int:
        question = questions[number // collector.rollouts]
        answers.append(Answer(text, question.gold, question.meta))
        return len(answers) - 1

    whole = [ask(read_answer(collector.readers, text), number) for number, text in enumerate(texts)]
    at_cut = []
    for number, own in enumerate(forced):
        for one in own:
            assert collector.forcing is not None
            answer = answer_after_forcing(collector.forcing, decode(one.tokens), collector.readers)
            at_cut.append((number, one.cut, ask(answer, number)))
    changes = [
        [
            (at, ask(answer, number))
            for at, answer in bare_answers(response.tokens, decode, text, collector.readers)
        ]
        for number, (response, text) in enumerate(zip(responses, texts, strict=True))
    ]
    found = collector.verifier.grade(answers)
    verdicts = [verdict.correct for verdict in found]
    unsettled = Counter(verdict.unsettled for verdict in found if verdict.unsettled is not None)
    prefixes = tuple(tuple((at, verdicts[i]) for at, i in own) for own in changes)
    bare = [
        (number, cut, _bare_at(prefixes[number], cut)) for number, own in enumerate(cuts.bare) for cut in own
    ]
    ended = [bool(answers[i].text) for i, one in zip(whole, responses, strict=True) if one.finish == "stop"]
    return _Graded(
        [verdicts[i] for i in whole],
        [(n, cut, verdicts[i]) for n, cut, i in at_cut],
        bare,
        prefixes,
        unsettled,
        sum(ended) / len(ended) if len(ended) >= LEAST_ENDED else 1.0,
    )


def _bare_at(changes: Sequence[tuple[int, bool]], cut: int) -> bool:
    """The verdict on the first `cut` tokens: that of the last box that closes within them."""
    verdict = False
    for at, correct in changes:
        if at <= cut:
            verdict = correct
    return verdict
