"""Partial rollouts: a step's finished questions, and those that go on with the next weights.

A response that is not done after `segment` tokens goes on in the next round, which may have new weights (Kimi Team 2025,
Kimi k1.5: Scaling Reinforcement Learning with LLMs, section 2.6.2). Rounds are cut by tokens, so that a rerun is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from runners.clock import now
from runners.engine.protocol import Request, Response
from runners.rollout.questions import Question
from runners.train.rollouts import GradedStep, RolloutSampler, grade_step

NOTHING = Response((), (), (), "length", ())


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """Questions that no step has learnt from yet, the oldest first, after `rounds` draws of questions.

    `responses` has those of each as far as they are, by the question's draw and its position there.
    """

    rounds: int = 0
    responses: Mapping[tuple[int, int], tuple[Response, ...]] = field(default_factory=dict)


def goes_on(response: Response, longest: int) -> bool:
    """Return whether a response is neither at its end nor `longest` tokens long."""
    return response.finish != "stop" and len(response.tokens) < longest


def sample_segments(
    sampler: RolloutSampler,
    draw: Callable[[int], Sequence[Question]],
    segment: int,
    under_way: OpenQuestions,
) -> tuple[GradedStep, OpenQuestions]:
    """Return the rollouts of as many questions as a draw has, the oldest whose responses are all done, and what stays open.

    While there are too few, a round draws new questions, and each open response goes on for at most `segment` tokens.
    `draw(k)` gives the questions of round k.
    """
    began, longest = now(), sampler.generator.sampling.max_tokens
    draw = cache(draw)
    wanted = len(draw(under_way.rounds))

    def done() -> list[tuple[int, int]]:
        every = under_way.responses.items()
        return [place for place, responses in every if not any(goes_on(one, longest) for one in responses)]

    while len(done()) < wanted:
        under_way = _round(sampler, draw, segment, under_way)
    chosen = done()[:wanted]
    graded = grade_step(
        sampler,
        [asked for place in chosen for asked in _ask(sampler, draw, place)],
        [response for place in chosen for response in under_way.responses[place]],
        (began, now()),
    )
    left = {place: each for place, each in under_way.responses.items() if place not in chosen}
    return graded, OpenQuestions(under_way.rounds, left)


def _ask(
    sampler: RolloutSampler, draw: Callable[[int], Sequence[Question]], place: tuple[int, int]
) -> list[tuple[Question, Request]]:
    number, position = place
    return sampler.ask(draw(number)[position], number, position)


def _round(
    sampler: RolloutSampler,
    draw: Callable[[int], Sequence[Question]],
    segment: int,
    under_way: OpenQuestions,
) -> OpenQuestions:
    """Begin new questions, and let all open responses go on for a segment."""
    sampling, number = sampler.generator.sampling, under_way.rounds
    responses = {place: list(each) for place, each in under_way.responses.items()}
    responses |= {(number, at): [NOTHING] * sampler.rollouts for at in range(len(draw(number)))}
    # The last segment of a response may be a shorter one: those of a length are asked for together.
    by_length: dict[int, list[tuple[tuple[int, int], int, Request]]] = {}
    for place, each in responses.items():
        asked = _ask(sampler, draw, place)
        for rollout, ((_, request), response) in enumerate(zip(asked, each, strict=True)):
            count = len(response.tokens)
            if goes_on(response, sampling.max_tokens):
                request = Request((*request.prompt, *response.tokens), request.seed, request.drawn + count)
                length = min(segment, sampling.max_tokens - count)
                by_length.setdefault(length, []).append((place, rollout, request))
    for length, rows in sorted(by_length.items(), reverse=True):
        continued = sampler.generator.engine.generate(
            [request for _, _, request in rows], replace(sampling, max_tokens=length)
        )
        for (place, rollout, _), more in zip(rows, continued, strict=True):
            responses[place][rollout] = responses[place][rollout].then(more)
    return OpenQuestions(number + 1, {place: tuple(each) for place, each in responses.items()})
