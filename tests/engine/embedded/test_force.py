"""Forced answers from the kept cache and from one pass over a fresh one, against reading every prefix anew."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from runners.data.draws import forced_seed
from runners.engine.protocol import ForcedTokens, Request, TokenSampling
from tests.engine.engine_reference import STOP, engine_of, make_requests, prefilled, reference_continue

GENERATION = TokenSampling(18, stop_ids=(STOP, 5))
FORCING = (11, 3, 8)
GREEDY = TokenSampling(1, temperature=0.0, stop_ids=(STOP,))


def rollouts(model: Any, **settings: Any) -> tuple[Any, Any, Any]:
    engine = engine_of(model, **settings)
    requests = make_requests(3, 2, seed=5, lengths=(2, 9))
    return engine, requests, engine.generate(requests, GENERATION)


def naive(model: Any, requests: Any, responses: Any, cuts: Any, forcing: Any, sampling: TokenSampling) -> Any:
    """Every prefix read anew for every token."""
    out = []
    for request, response, wanted in zip(requests, responses, cuts, strict=True):
        answers = []
        for cut in wanted:
            tokens: list[int] = []
            if cut < len(response.tokens):
                prefix = request.prompt + response.tokens[:cut] + tuple(forcing)
                tokens = reference_continue(model, prefix, forced_seed(request.seed, cut), sampling)[0]
            answers.append(ForcedTokens(cut, tuple(tokens)))
        out.append(answers)
    return out


def fixed(responses: Any) -> list[list[int]]:
    return [[0, 1, 4, 9, 17, 18, 300] for _ in responses]


def ragged(responses: Any) -> list[list[int]]:
    rng = random.Random(2)
    return [
        [*rng.choices(range(22), k=rng.randint(0, 6)), 3, 3][index % 3 :] for index in range(len(responses))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        TokenSampling(6, temperature=0.0, stop_ids=(STOP, 5)),
        TokenSampling(5, stop_ids=(STOP, 5, 9)),
        TokenSampling(4, temperature=0.8, top_p=0.9, top_k=12),
    ],
    ids=["one greedy token", "greedy answers", "sampled answers", "tempered answers"],
)
def test_kept_and_fresh_caches_give_the_naive_answers(model: Any, sampling: TokenSampling) -> None:
    engine, requests, responses = rollouts(model)
    cuts = fixed(responses)
    want = naive(model, requests, responses, cuts, FORCING, sampling)
    assert engine.force(requests, responses, cuts, FORCING, sampling) == want
    fresh = engine_of(model)
    assert fresh.force(requests, responses, cuts, FORCING, sampling) == want
    assert any(len(answer.tokens) > 1 for answers in want for answer in answers) == (sampling.max_tokens > 1)


def test_every_device_gives_the_naive_answers(one_model: Any, device: str) -> None:
    engine, requests, responses = rollouts(one_model, device=device)
    cuts, sampling = fixed(responses), TokenSampling(5, stop_ids=(STOP, 5, 9))
    want = naive(one_model, requests, responses, cuts, FORCING, sampling)
    assert engine.force(requests, responses, cuts, FORCING, sampling) == want
    assert engine_of(one_model, device=device).force(requests, responses, cuts, FORCING, sampling) == want


@pytest.mark.parametrize("forcing", [(), (7,), FORCING], ids=["no text", "one token", "three tokens"])
@pytest.mark.parametrize("settings", [{}, {"rows": 5}, {"prefill_tokens": 7}, {"cache_bytes": 1}], ids=str)
def test_any_cuts_in_any_batch_shape(
    one_model: Any, forcing: tuple[int, ...], settings: dict[str, int]
) -> None:
    engine, requests, responses = rollouts(one_model, **settings)
    cuts = ragged(responses)
    assert any(len(set(wanted)) < len(wanted) for wanted in cuts)
    sampling = TokenSampling(3, stop_ids=(STOP,))
    want = naive(one_model, requests, responses, cuts, forcing, sampling)
    assert engine.force(requests, responses, cuts, forcing, sampling) == want


def test_many_branches_at_once(one_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one row and blocks of many give the same answers."""
    from runners.engine.embedded import branches as module

    engine, requests, responses = rollouts(one_model)
    cuts = [list(range(18)) for _ in responses]
    want = engine.force(requests, responses, cuts, FORCING, GREEDY)
    monkeypatch.setattr(module, "_CPU_SCORES", 1)
    assert engine.force(requests, responses, cuts, FORCING, GREEDY) == want
    assert sum(bool(answer.tokens) for answers in want for answer in answers) == sum(
        len(response.tokens) for response in responses
    )


def test_a_cut_past_the_end_gives_nothing(one_model: Any) -> None:
    engine, requests, responses = rollouts(one_model)
    cuts = [[len(response.tokens), len(response.tokens) + 1] for response in responses]
    for answers, wanted in zip(engine.force(requests, responses, cuts, FORCING, GREEDY), cuts, strict=True):
        assert answers == [ForcedTokens(cut, ()) for cut in wanted]


def test_an_answer_depends_on_its_seed_and_cut_alone(one_model: Any) -> None:
    engine, requests, responses = rollouts(one_model)
    sampling = TokenSampling(3)
    many = engine.force(requests, responses, fixed(responses), FORCING, sampling)
    index = max(range(len(responses)), key=lambda i: len(responses[i].tokens))
    alone = engine.force([requests[index]], [responses[index]], [[9]], FORCING, sampling)
    assert alone == [[next(answer for answer in many[index] if answer.cut == 9)]]
    assert len({answer.tokens for answer in many[index][:6]}) > 1
    other = replace(requests[index], seed=requests[index].seed ^ 1)
    draws = [
        engine.force([request], [responses[index]], [list(range(8))], FORCING, TokenSampling(6))
        for request in (requests[index], other)
    ]
    assert draws[0] != draws[1]


def test_forcing_leaves_the_kept_caches_as_they_were(one_model: Any) -> None:
    engine, requests, responses = rollouts(one_model)
    cuts = fixed(responses)
    sampling = TokenSampling(4, stop_ids=(STOP,))
    first = engine.force(requests, responses, cuts, FORCING, sampling)
    engine.force(requests, responses, ragged(responses), (2, 2), sampling)
    assert engine.force(requests, responses, cuts, FORCING, sampling) == first
    order = list(reversed(range(len(requests))))
    again = engine.force(
        [requests[i] for i in order],
        [responses[i] for i in order],
        [cuts[i] for i in order],
        FORCING,
        sampling,
    )
    assert again == [first[i] for i in order]


def test_kept_caches_are_used_and_dropped(one_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from runners.engine.embedded import engine as forcing

    read = prefilled(monkeypatch, forcing)
    engine, requests, responses = rollouts(one_model)
    cuts = [[0, 3] for _ in responses]
    engine.force(requests, responses, cuts, FORCING, GREEDY)
    assert read == []
    engine.load_weights(one_model.state_dict(), 1)
    engine.force(requests, responses, cuts, FORCING, GREEDY)
    assert sum(read) == len(
        {(request.prompt, response.tokens) for request, response in zip(requests, responses, strict=True)}
    )


def test_nothing_to_force(one_model: Any) -> None:
    engine, requests, responses = rollouts(one_model)
    assert engine.force([], [], [], FORCING, GREEDY) == []
    assert engine.force(requests, responses, [[] for _ in responses], FORCING, GREEDY) == [
        [] for _ in responses
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [TokenSampling(5, temperature=0.0, stop_ids=(STOP,)), TokenSampling(5, stop_ids=(STOP,))],
    ids=["greedy", "sampled"],
)
def test_trained_weights_give_the_naive_answers(trained_model: Any, sampling: TokenSampling) -> None:
    engine = engine_of(trained_model)
    requests = [
        Request((4 + start, 4 + start + stride), 10 * start + stride)
        for start in range(6)
        for stride in (1, 3)
    ]
    responses = engine.generate(requests, TokenSampling(26, stop_ids=(STOP,)))
    counted = [
        [
            4 + (request.prompt[0] - 4 + (i + 2) * (request.prompt[1] - request.prompt[0])) % 36
            for i in range(5)
        ]
        for request in requests
    ]
    learnt = sum(list(response.tokens[:5]) == want for response, want in zip(responses, counted, strict=True))
    assert learnt > len(requests) / 2
    cuts = fixed(responses)
    want = naive(trained_model, requests, responses, cuts, (20, 22), sampling)
    assert engine.force(requests, responses, cuts, (20, 22), sampling) == want
    assert engine_of(trained_model).force(requests, responses, cuts, (20, 22), sampling) == want


def test_only_a_response_s_own_cuts_count_against_the_context(one_model: Any) -> None:
    engine = engine_of(one_model)
    requests = [Request((3,) * 480, 1), Request((4, 5), 2)]
    responses = engine.generate(requests, TokenSampling(30))
    cuts = [[1], [25]]
    assert [
        len(a.tokens)
        for answers in engine.force(requests, responses, cuts, (2, 3), TokenSampling(9))
        for a in answers
    ] == [9, 9]
    with pytest.raises(Problem, match="context"):
        engine.force(requests, responses, [[25], []], (2, 3), TokenSampling(9))
