"""A real server's tokens and log-probabilities, against the embedded engine, `transformers` and a plain sampler."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runners.data.draws import forced_seed
from runners.engine.protocol import ForcingPlan, Generation, Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.rounds import PrefixCacheStats
from tests.engine.engine_reference import (
    STOP,
    VOCAB,
    engine_of,
    make_requests,
    reference_draw,
    reference_logits,
)

pytestmark = pytest.mark.sglang

GREEDY = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
WHOLE = TokenSampling(30, stop_ids=(STOP, 5))
CUT = TokenSampling(20, temperature=0.7, top_p=0.8, top_k=9, stop_ids=(STOP,))
TEMPERED = TokenSampling(20, temperature=1.3, stop_ids=(STOP,))
ANSWER = TokenSampling(4, temperature=0.0, stop_ids=(STOP,))
FORCING = (11, 3, 8)


def test_greedy_tokens_are_those_of_the_embedded_engine_and_of_transformers(
    engine: SGLangEngine, served_model: Any
) -> None:
    requests = make_requests(10, 2, seed=1)
    found = engine.generate(requests, GREEDY)
    wanted = engine_of(served_model).generate(requests, GREEDY)
    assert [r.tokens for r in found] == [r.tokens for r in wanted]
    assert [r.finish for r in found] == [r.finish for r in wanted]
    for request, response in zip(requests[::2], found[::2], strict=True):
        logits = reference_logits(served_model, [*request.prompt, *response.tokens])
        assert response.tokens == tuple(logits[len(request.prompt) - 1 : -1].argmax(-1).tolist())
    assert [list(r.sampling_logprobs) for r in found] == [[0.0] * len(r.tokens) for r in found]


@pytest.mark.parametrize("sampling", [WHOLE, CUT], ids=["whole", "cut"])
def test_tokens_do_not_depend_on_whether_log_probabilities_are_told(
    engine: SGLangEngine, sampling: TokenSampling
) -> None:
    requests = make_requests(6, 2, seed=4)
    told = engine.generate(requests, sampling)
    untold = engine.generate(requests, replace(sampling, logprobs=False))
    assert [(r.tokens, r.finish) for r in untold] == [(r.tokens, r.finish) for r in told]
    assert not any(r.logprobs or r.sampling_logprobs for r in untold)


def test_nothing_depends_on_how_many_responses_a_server_has_room_for(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for hardly anything they are asked for one after another. Log-probabilities may differ in their last bits:
    a processor's sums follow the batch (docs/LOG.md).
    """
    requests = make_requests(5, 2, seed=15)
    ahead = ForcingPlan(lambda _, response: range(0, len(response.tokens), 4), FORCING, ANSWER)
    found = []
    for room in (1 << 20, 1):
        servers = [replace(server, cache_tokens=room) for server in engine.fleet.servers]
        monkeypatch.setattr(engine.fleet, "servers", servers)
        responses = engine.generate(requests, WHOLE, ahead)
        cuts = [range(0, len(response.tokens), 4) for response in responses]
        tokens = [(response.tokens, response.finish) for response in responses]
        numbers = [number for response in responses for number in response.logprobs]
        found.append((tokens, engine.force(requests, responses, cuts, FORCING, ANSWER), numbers))
    (*together, numbers), (*alone, others) = found
    assert together == alone
    assert numbers == pytest.approx(others, abs=1e-4)


@pytest.mark.parametrize("sampling", [WHOLE, TEMPERED, CUT], ids=["whole", "tempered", "cut"])
def test_log_probabilities_are_those_of_the_protocol(
    engine: SGLangEngine, served_model: Any, sampling: TokenSampling
) -> None:
    requests = make_requests(6, 2, seed=2)
    for request, response in zip(requests, engine.generate(requests, sampling), strict=True):
        logits = reference_logits(served_model, [*request.prompt, *response.tokens])
        for at, token in enumerate(response.tokens):
            told = chances(logits[len(request.prompt) + at - 1].tolist(), sampling)[token]
            assert response.logprobs[at] == pytest.approx(told[0], abs=1e-4)
            assert response.sampling_logprobs[at] == pytest.approx(told[1], abs=1e-4)
        assert (response.logprobs is response.sampling_logprobs) == sampling.plain


def chances(logits: list[float], sampling: TokenSampling) -> dict[int, tuple[float, float]]:
    """Both log-probabilities of every token that the plain sampler can draw."""
    found = {}
    for uniform in np.linspace(0.0005, 0.9995, 1000):
        drawn = reference_draw(logits, float(uniform), sampling)
        found[drawn.token] = (drawn.logprob, drawn.sampling_logprobs)
    return found


def test_draws_follow_the_distribution(engine: SGLangEngine, served_model: Any) -> None:
    prompt = (7, 9, 30)
    sampling = TokenSampling(1, temperature=2.5)
    draw = random.Random(3)
    count = 600
    requests = [Request(prompt, draw.getrandbits(64)) for _ in range(count)]
    drawn = Counter(r.tokens[0] for r in engine.generate(requests, sampling))
    logits = reference_logits(served_model, prompt)[-1] / 2.5
    wanted = np.exp(logits - logits.max())
    wanted = wanted / wanted.sum() * count
    often = wanted >= 5
    found = np.array([drawn[token] for token in range(len(wanted))], dtype=float)
    pairs = [*zip(found[often], wanted[often], strict=True), (found[~often].sum(), wanted[~often].sum())]
    statistic = sum((f - w) ** 2 / w for f, w in pairs)
    freedom = len(pairs) - 1
    # The statistic's mean is its degrees of freedom, its variance twice that: five standard deviations.
    assert freedom > 5
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_a_response_depends_on_its_seed_alone(engine: SGLangEngine) -> None:
    requests = make_requests(8, 4, seed=4)
    together = engine.generate(requests, WHOLE)
    for index in (0, 5, 31):
        (alone,) = engine.generate([requests[index]], WHOLE)
        assert alone.tokens == together[index].tokens
        assert alone.logprobs == pytest.approx(together[index].logprobs, abs=1e-4)
    assert len({r.tokens for r in together[:4]}) > 1


def test_draws_do_not_depend_on_what_else_is_drawn_beside_them(engine: SGLangEngine) -> None:
    """Greedy answers among the sampled responses: in one batch with them they must change nothing."""
    requests = make_requests(12, 2, seed=5)
    free = TokenSampling(20, temperature=1.5)
    alone = engine.generate(requests, free)
    ahead = ForcingPlan(lambda _, response: (0, 5, 10, 15), FORCING, TokenSampling(12, temperature=0.0))
    among = engine.generate(requests[::-1], free, ahead)[::-1]
    assert [r.tokens for r in among] == [r.tokens for r in alone]
    shorter = [
        TokenSampling(20, temperature=1.5, top_k=VOCAB),
        TokenSampling(20, temperature=1.5, top_p=1.0 - 1e-12),
    ]
    for cut in shorter:
        assert [r.tokens for r in engine.generate(requests, cut)] == [r.tokens for r in alone]


def test_generation_ends_with_our_stop_tokens_alone(engine: SGLangEngine, served_model: Any) -> None:
    """The checkpoint's own end of text is not an end where another token, or none, is named."""
    requests = make_requests(8, 1, seed=6)
    for stops in ((), (6,)):
        sampling = TokenSampling(16, temperature=0.0, stop_ids=stops)
        found = engine.generate(requests, sampling)
        assert [r.tokens for r in found] == [
            r.tokens for r in engine_of(served_model).generate(requests, sampling)
        ]
    assert any(STOP in r.tokens[:-1] for r in found)


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "afterwards"])
def test_forced_answers_are_those_of_prefixes_read_anew(
    engine: SGLangEngine, served_model: Any, ahead: bool
) -> None:
    def cuts(_: int, response: Generation) -> list[int]:
        return [0, 3, 8, 8, 20, len(response.tokens) - 1, len(response.tokens), 99]

    requests = make_requests(5, 3, seed=7, lengths=(20, 30))
    engine.read = PrefixCacheStats()
    responses = engine.generate(requests, WHOLE, ForcingPlan(cuts, FORCING, ANSWER) if ahead else None)
    assert (engine.read.sent > 0) == ahead
    wanted = [cuts(0, response) for response in responses]
    found = engine.force(requests, responses, wanted, FORCING, ANSWER)
    assert [[one.cut for one in own] for own in found] == wanted
    # The keys and values of prompt and response are there: all but the forcing text, about.
    assert engine.read.cached > 0.8 * (engine.read.sent - len(FORCING) * 15 * 5)
    naive = [
        Request((*request.prompt, *response.tokens[:cut], *FORCING), forced_seed(request.seed, cut))
        for request, response, own in zip(requests, responses, wanted, strict=True)
        for cut in own
        if cut < len(response.tokens)
    ]
    anew = iter(engine_of(served_model).generate(naive, ANSWER))
    for response, own in zip(responses, found, strict=True):
        for one in own:
            assert one.tokens == (next(anew).tokens if one.cut < len(response.tokens) else ())


def test_a_budget_past_the_end_and_a_budget_named_twice_cost_nothing(engine: SGLangEngine) -> None:
    requests = make_requests(4, 1, seed=8)
    responses = engine.generate(requests, WHOLE)
    engine.read = PrefixCacheStats()
    engine.force(requests, responses, [[len(r.tokens), 99] for r in responses], FORCING, ANSWER)
    assert engine.read.sent == 0
    engine.force(requests, responses, [[0, 0, 0]] * 4, FORCING, ANSWER)
    assert engine.read.sent == sum(len(r.prompt) + len(FORCING) for r in requests)


def test_sampled_answers_have_streams_of_their_own(engine: SGLangEngine) -> None:
    requests = make_requests(1, 12, seed=9)
    responses = engine.generate(requests, WHOLE)
    free = TokenSampling(6, temperature=2.0)
    (first, again) = (engine.force(requests, responses, [[0]] * 12, FORCING, free) for _ in range(2))
    assert first == again
    assert len({own[0].tokens for own in first}) > 1
