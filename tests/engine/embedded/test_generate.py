"""Responses against transformers and against themselves in other batches."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from runners.engine.protocol import Request, TokenSampling
from tests.engine.engine_reference import (
    STOP,
    engine_of,
    make_requests,
    prefilled,
    reference_continue,
    reference_logits,
)

SAMPLED = TokenSampling(30, stop_ids=(STOP, 5))


@pytest.mark.slow
def test_greedy_tokens_are_those_of_transformers(model: Any, device: str) -> None:
    requests = make_requests(6, 2)
    sampling = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
    responses = engine_of(model, device=device).generate(requests, sampling)
    for request, response in zip(requests, responses, strict=True):
        ids = torch.tensor([request.prompt])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, eos_token_id=STOP
        )
        assert list(response.tokens) == made[0, len(request.prompt) :].tolist()
        assert set(response.sampling_logprobs) == {0.0}


def test_logprobs_are_those_of_transformers(model: Any, device: str) -> None:
    requests = make_requests(5, 3)
    responses = engine_of(model, rows=9, device=device).generate(requests, SAMPLED)
    for request, response in zip(requests, responses, strict=True):
        logits = reference_logits(model, request.prompt + response.tokens)[len(request.prompt) - 1 : -1]
        want = torch.log_softmax(torch.from_numpy(logits), -1)[
            range(len(response.tokens)), list(response.tokens)
        ]
        assert response.logprobs == pytest.approx(want.tolist(), abs=1e-4)
        assert response.sampling_logprobs is response.logprobs


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling", [SAMPLED, replace(SAMPLED, temperature=0.7, top_p=0.9), replace(SAMPLED, top_k=4)], ids=str
)
def test_sampled_responses_are_those_of_the_plain_sampler(
    one_model: Any, sampling: TokenSampling, device: str
) -> None:
    requests = make_requests(4, 2)
    responses = engine_of(one_model, device=device).generate(requests, sampling)
    for request, response in zip(requests, responses, strict=True):
        tokens, logprobs, sampling_logprobs = reference_continue(
            one_model, request.prompt, request.seed, sampling
        )
        assert list(response.tokens) == tokens
        assert response.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert response.sampling_logprobs == pytest.approx(sampling_logprobs, abs=1e-4)


def test_both_matrix_products_agree(model: Any) -> None:
    requests = make_requests(4, 2)
    own, packed = (engine_of(model, linear=name).generate(requests, SAMPLED) for name in ("torch", "onednn"))
    for one, other in zip(own, packed, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_response_does_not_depend_on_its_batch(model: Any) -> None:
    requests = make_requests(7, 4, seed=3)
    together = engine_of(model).generate(requests, SAMPLED)
    order = random.Random(1).sample(range(len(requests)), len(requests))
    shuffled = engine_of(model, rows=7).generate([requests[i] for i in order], SAMPLED)
    alone = [engine_of(model).generate([request], SAMPLED)[0] for request in requests[:6]]
    for place, index in enumerate(order):
        assert shuffled[place].tokens == together[index].tokens
        assert shuffled[place].logprobs == pytest.approx(together[index].logprobs, abs=1e-5)
    for response, one in zip(together, alone, strict=False):
        assert response.tokens == one.tokens


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [SAMPLED, replace(SAMPLED, temperature=0.7, top_p=0.9)], ids=str)
def test_a_response_goes_on_where_it_was_cut(model: Any, sampling: TokenSampling, device: str) -> None:
    """In two calls, the second of which has what the first gave behind its prompts, as in one."""
    requests = make_requests(5, 3, seed=2)
    whole = engine_of(model, device=device).generate(requests, sampling)
    begun = engine_of(model, device=device).generate(requests, replace(sampling, max_tokens=7))
    cut = [i for i, one in enumerate(begun) if one.finish == "length"]
    assert cut
    later = [
        Request(requests[i].prompt + begun[i].tokens, requests[i].seed, len(begun[i].tokens)) for i in cut
    ]
    rest = engine_of(model, rows=4, device=device).generate(later, replace(sampling, max_tokens=23))
    for i, one in zip(cut, rest, strict=True):
        assert begun[i].tokens + one.tokens == whole[i].tokens
        assert begun[i].logprobs + one.logprobs == pytest.approx(whole[i].logprobs, abs=1e-4)
        assert begun[i].sampling_logprobs + one.sampling_logprobs == pytest.approx(
            whole[i].sampling_logprobs, abs=1e-4
        )


@pytest.mark.slow
def test_equal_batches_are_bitwise_equal(model: Any, device: str) -> None:
    requests = make_requests(6, 4)
    engine = engine_of(model, device=device)
    first = engine.generate(requests, SAMPLED)
    engine.generate(requests[:5], SAMPLED)
    assert engine.generate(requests, SAMPLED) == first
    assert engine_of(model, device=device).generate(requests, SAMPLED) == first


@pytest.mark.heavy
def test_lengths_vary_and_every_cohort_shape_gives_the_same(one_model: Any) -> None:
    """Rows retire at many steps, so holes are filled at every place, with padded prompts among them."""
    requests = make_requests(12, 4, seed=9, lengths=(1, 14))
    sampling = TokenSampling(40, stop_ids=(STOP, 5, 9))
    want = engine_of(one_model, rows=48).generate(requests, sampling)
    lengths = {len(response.tokens) for response in want}
    assert len(lengths) > 12
    assert max(lengths) > 25
    for settings in [
        {"rows": 1},
        {"rows": 24},
        {"rows": 33},
        {"rows": 48, "prefill_tokens": 10},
        {"cache_bytes": 60_000},
        {"cache_bytes": 1},
    ]:
        got = engine_of(one_model, **settings).generate(requests, sampling)
        assert [response.tokens for response in got] == [response.tokens for response in want], settings


def test_a_response_ends_with_its_first_stop_token_or_at_the_limit(one_model: Any) -> None:
    requests = make_requests(8, 4)
    responses = engine_of(one_model).generate(requests, SAMPLED)
    assert {response.finish for response in responses} == {"stop", "length"}
    for response in responses:
        stops = [token for token in response.tokens if token in SAMPLED.stop_ids]
        if response.finish == "stop":
            assert stops == [response.tokens[-1]]
        else:
            assert not stops
            assert len(response.tokens) == SAMPLED.max_tokens
        assert len(response.tokens) == len(response.logprobs) == len(response.sampling_logprobs)


def test_a_model_that_never_ends_stops_at_the_limit(one_model: Any) -> None:
    responses = engine_of(one_model).generate(make_requests(2, 2), TokenSampling(50))
    assert [(len(response.tokens), response.finish) for response in responses] == [(50, "length")] * 4
    assert [len(r.tokens) for r in engine_of(one_model).generate(make_requests(2, 2), TokenSampling(1))] == [
        1
    ] * 4


def test_no_requests_no_responses(one_model: Any) -> None:
    assert engine_of(one_model).generate([], SAMPLED) == []


def test_equal_requests_get_equal_responses(one_model: Any) -> None:
    request = Request((4, 7, 2), 99)
    one, two = engine_of(one_model).generate([request, request], SAMPLED)
    assert one == two


def test_the_first_token_follows_the_softmax(one_model: Any) -> None:
    draws = 4000
    requests = [Request((3, 9, 14), seed) for seed in range(draws)]
    engine = engine_of(one_model, rows=draws)
    counts = torch.zeros(one_model.config.vocab_size, dtype=torch.float64)
    for response in engine.generate(requests, TokenSampling(1)):
        counts[response.tokens[0]] += 1
    expected = draws * torch.softmax(torch.from_numpy(reference_logits(one_model, (3, 9, 14))[-1]), -1)
    likely = expected > 5
    # Chi-square with at most 39 degrees of freedom is above 80 with probability 1.2e-4.
    assert float(((counts - expected)[likely] ** 2 / expected[likely]).sum()) < 80


def test_a_prompt_is_read_once_for_its_group(one_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from runners.engine.embedded import cohort as prefill

    read = prefilled(monkeypatch, prefill)
    engine_of(one_model).generate(make_requests(3, 8), TokenSampling(2))
    assert read == [3]


def test_half_precision_stays_near(trained_model: Any) -> None:
    requests = make_requests(4, 2)
    exact = engine_of(trained_model).generate(requests, TokenSampling(1, temperature=0.0))
    half = engine_of(trained_model, dtype="bfloat16").generate(requests, TokenSampling(1, temperature=0.0))
    for one, other in zip(exact, half, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=0.2)
    engine = engine_of(trained_model, dtype="bfloat16")
    responses = engine.generate(requests, SAMPLED)
    forced = engine.force(requests, responses, [[0, 2]] * 8, (7, 8), TokenSampling(3))
    assert all(answers[0].tokens for answers in forced)


def test_a_request_has_a_limit_of_its_own(trained_model: Any) -> None:
    requests = make_requests(4, 3, seed=6)
    sampling = TokenSampling(24, temperature=1.3, stop_ids=(STOP,))
    responses = engine_of(trained_model).generate(requests, sampling)
    rng = random.Random(0)
    limits = [rng.randint(1, 30) for _ in requests]
    limited = [replace(request, max_tokens=most) for request, most in zip(requests, limits, strict=True)]
    found = engine_of(trained_model, rows=5).generate(limited, sampling)
    for response, most, full in zip(found, limits, responses, strict=True):
        assert response.tokens == full.tokens[:most]
        assert response.finish == ("stop" if response.tokens[-1] == STOP else "length")
