"""Force answers out of responses of several turns: each cut within the turn that it falls into."""

from __future__ import annotations

from collections.abc import Sequence

from runners.engine.protocol import Engine, Forced, Request, Response, Sampling


def force(
    engine: Engine,
    requests: Sequence[Request],
    responses: Sequence[Response],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: Sampling,
) -> list[list[Forced]]:
    """As `Engine.force`; a cut counts the response's own tokens, and an answer follows what was inserted before."""
    if not any(response.inserted for response in responses):
        return engine.force(requests, responses, cuts, forcing, sampling)
    owners: list[tuple[int, int]] = []
    parts: list[tuple[Request, Response, list[int]]] = []
    for index, (request, response, wanted) in enumerate(zip(requests, responses, cuts, strict=True)):
        starts = [0, *(each.after for each in response.inserted)]
        ends = [*starts[1:], len(response.tokens)]
        for start, end in zip(starts, ends, strict=True):
            inside = [cut for cut in wanted if start <= cut < end]
            if inside:
                owners.append((index, start))
                before = response.sequence(start) if start else ()
                lead = Request((*request.prompt, *before), request.seed, request.drawn + start)
                turn = Response(response.tokens[start:end], (), (), "stop", response.weight_versions)
                parts.append((lead, turn, [cut - start for cut in inside]))
    answers: dict[tuple[int, int], Forced] = {}
    if parts:
        leads, turns, places = zip(*parts, strict=True)
        forced = engine.force(leads, turns, places, forcing, sampling)
        for (index, start), of_turn in zip(owners, forced, strict=True):
            for one in of_turn:
                answers[index, start + one.cut] = Forced(start + one.cut, one.tokens)
    return [
        [answers.get((index, cut), Forced(cut, ())) for cut in wanted] for index, wanted in enumerate(cuts)
    ]
