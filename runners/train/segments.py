"""Partial rollouts: a step's finished questions, and those that go on with the next weights.

A response that is not done after `segment` tokens goes on in the next round, which may have new weights (Kimi Team 2025,
Kimi k1.5: Scaling Reinforcement Learning with LLMs, section 2.6.2). Rounds are cut by tokens, so that a rerun is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runners.clock import now
from runners.engine.protocol import Request, Response
from runners.rollout.questions import Question
from runners.train.rollouts import GradedStep, RolloutSampler, grade_step

NOTHING = Response((), (), (), "length", ())


@dataclass(frozen=True, slots=True)
class Open:
    """A question that no step has learnt from yet: where it was drawn, and its responses as far as they are."""

    draw: int
    position: int
    question: int
    responses: tuple[Response, ...]

    def done(self, longest: int) -> bool:
        """Whether none of the responses goes on."""
        return not any(goes_on(one, longest) for one in self.responses)


@dataclass(frozen=True, slots=True)
class Flow:
    """Questions under way, the oldest first, after `rounds` draws of questions."""

    rounds: int = 0
    open: tuple[Open, ...] = ()


def goes_on(response: Response, longest: int) -> bool:
    """Whether a response is neither at its end nor `longest` tokens long."""
    return response.finish != "stop" and len(response.tokens) < longest


def sample_segments(
    sampler: RolloutSampler,
    pool: Sequence[Question],
    draw: Callable[[int], Sequence[int]],
    segment: int,
    flow: Flow,
) -> tuple[GradedStep, Flow]:
    """Return the rollouts of as many questions as a draw has, the oldest whose responses are all done, and what stays open.

    While there are too few, a round draws new questions, and each open response goes on for at most `segment` tokens.
    `draw(k)` gives the questions of round k, as places in `pool`.
    """
    longest, began = sampler.generator.sampling.max_tokens, now()
    wanted = len(draw(flow.rounds))
    done = [one for one in flow.open if one.done(longest)]
    while len(done) < wanted:
        flow = _round(sampler, pool, draw(flow.rounds), segment, flow)
        done = [one for one in flow.open if one.done(longest)]
    generated = now()
    chosen = done[:wanted]
    taken = {id(one) for one in chosen}
    graded = grade_step(
        sampler,
        [asked for one in chosen for asked in sampler.ask(pool[one.question], one.draw, one.position)],
        [response for one in chosen for response in one.responses],
        (began, generated),
    )
    return graded, replace(flow, open=tuple(one for one in flow.open if id(one) not in taken))


def _round(
    sampler: RolloutSampler, pool: Sequence[Question], drawn: Sequence[int], segment: int, flow: Flow
) -> Flow:
    """Begin new questions, and let all open responses go on for a segment."""
    nothing = (NOTHING,) * sampler.rollouts
    begun = tuple(Open(flow.rounds, at, question, nothing) for at, question in enumerate(drawn))
    every = (*flow.open, *begun)
    sampling = sampler.generator.sampling
    # The last segment of a response may be a shorter one: those of a length are asked for together.
    by_length: dict[int, list[tuple[int, int, Request]]] = {}
    for place, one in enumerate(every):
        asked = sampler.ask(pool[one.question], one.draw, one.position)
        for rollout, ((_, request), response) in enumerate(zip(asked, one.responses, strict=True)):
            if not goes_on(response, sampling.max_tokens):
                continue
            request = Request(
                (*request.prompt, *response.tokens), request.seed, request.drawn + len(response.tokens)
            )
            length = min(segment, sampling.max_tokens - len(response.tokens))
            by_length.setdefault(length, []).append((place, rollout, request))
    responses = [list(one.responses) for one in every]
    for length, rows in sorted(by_length.items(), reverse=True):
        continued = sampler.generator.engine.generate(
            [request for _, _, request in rows], replace(sampling, max_tokens=length)
        )
        for (place, rollout, _), more in zip(rows, continued, strict=True):
            responses[place][rollout] = responses[place][rollout].then(more)
    return Flow(
        flow.rounds + 1,
        tuple(replace(one, responses=tuple(parts)) for one, parts in zip(every, responses, strict=True)),
    )
