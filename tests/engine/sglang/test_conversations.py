"""Responses of several turns on a real server, against those of the embedded engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runners.conversations import converse, force
from runners.engine.protocol import Engine, ForcedTokens, Generation, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from tests.conversations.counting import SAMPLING, talk
from tests.engine.engine_reference import STOP, engine_of, make_requests

pytestmark = pytest.mark.sglang

GREEDY = replace(SAMPLING, temperature=0.0)
ANSWER = TokenSampling(4, temperature=0.0, stop_ids=(STOP,))
REQUESTS = make_requests(24, 1, seed=3)


def conversed(engine: Engine, context: int) -> tuple[list[Generation], list[int], list[list[ForcedTokens]]]:
    """Responses, how many turns stand before the last of each, and answers forced around every turn's end."""
    responses, turns = converse(
        engine, REQUESTS, GREEDY, [talk(context=context)] * len(REQUESTS), [""] * len(REQUESTS)
    )
    cuts = [
        sorted({0, 5, *(each.after + off for each in response.inserted for off in (-1, 0, 1))})
        for response in responses
    ]
    return (
        responses,
        [len(each) for each in turns],
        force(engine, REQUESTS, responses, cuts, (11, 3), ANSWER),
    )


@pytest.mark.parametrize("context", [120, 30])
def test_turns_and_forced_answers_are_those_of_the_embedded_engine(
    engine: SGLangEngine, served_model: Any, context: int
) -> None:
    found, turns, answers = conversed(engine, context)
    wanted, wanted_turns, wanted_answers = conversed(engine_of(served_model), context)
    assert [(r.tokens, r.inserted, r.finish) for r in found] == [
        (r.tokens, r.inserted, r.finish) for r in wanted
    ]
    assert turns == wanted_turns
    assert answers == wanted_answers
    apart = [np.subtract(f.logprobs, w.logprobs) for f, w in zip(found, wanted, strict=True)]
    assert np.abs(np.concatenate(apart)).max() < 1e-4
    # Budgets count the model's own tokens: with what tools say, responses are longer than they allow.
    assert max(len(r.tokens) for r in found) <= GREEDY.max_tokens
    if context == 120:
        assert max(len(r.sequence()) for r in found) > GREEDY.max_tokens
        assert {0, 1, 2, 3} <= {*turns}
    assert all(len(q.prompt) + len(r.sequence()) <= context for q, r in zip(REQUESTS, found, strict=True))
    assert sum(bool(one.tokens) for row in answers for one in row) > 20
