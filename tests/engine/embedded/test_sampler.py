"""Draws against a plain sampler in Python, against the softmax in frequency, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runners.data.draws import hash_seeds, uniforms, wrap_seeds
from runners.engine.embedded.generation import draw
from runners.engine.protocol import TokenSampling
from tests.engine.engine_reference import reference_draw

SETTINGS = [
    TokenSampling(1),
    TokenSampling(1, temperature=0.6),
    TokenSampling(1, temperature=2.5),
    TokenSampling(1, temperature=0.0),
    TokenSampling(1, top_k=1),
    TokenSampling(1, top_k=7),
    TokenSampling(1, top_k=10_000),
    TokenSampling(1, top_p=0.5),
    TokenSampling(1, top_p=0.95, temperature=0.6),
    TokenSampling(1, top_p=1e-9),
    TokenSampling(1, top_p=0.8, top_k=5, temperature=1.7),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_draws_are_those_of_the_plain_sampler(sampling: TokenSampling) -> None:
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((300, 30)) * 2).astype(np.float32)
    chance = uniforms(hash_seeds(wrap_seeds(range(300))), 4)
    tokens, logprobs, sampling_logprobs = draw(torch.from_numpy(logits), torch.from_numpy(chance), sampling)
    compared = 0
    for row in range(300):
        want = reference_draw(logits[row].tolist(), float(chance[row]), sampling)
        if want.margin < 1e-5:
            continue
        compared += 1
        assert tokens[row] == want.token
        assert logprobs[row] == pytest.approx(want.logprob, abs=2e-5)
        assert sampling_logprobs[row] == pytest.approx(want.sampling_logprobs, abs=2e-5)
    assert compared > 290


@pytest.mark.parametrize(
    "sampling", [TokenSampling(1), TokenSampling(1, temperature=0.7, top_p=0.9)], ids=str
)
def test_frequencies_are_the_probabilities(sampling: TokenSampling) -> None:
    draws = 60_000
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -3.0, 0.5]).expand(draws, 6)
    chance = torch.from_numpy(uniforms(hash_seeds(wrap_seeds(range(draws))), 0))
    tokens, _, sampling_logprobs = draw(logits, chance, sampling)
    counts = np.bincount(tokens.numpy(), minlength=6)
    probability = np.zeros(6)
    for token in range(6):
        hits = sampling_logprobs[tokens == token]
        probability[token] = float(hits[0].exp()) if len(hits) else 0.0
    assert probability.sum() == pytest.approx(1, abs=1e-5)
    if sampling.plain:
        assert probability == pytest.approx(torch.softmax(logits[0], 0).numpy(), abs=1e-6)
    else:
        assert counts[4] == 0
    kept = probability > 0
    expected = draws * probability[kept]
    # Chi-square with at most 5 degrees of freedom is above 25.7 with probability 1e-4.
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 25.7


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.full((2, 5), -200.0)
    logits[:, 2] = 0.0
    chance = torch.tensor([2.0**-49, 1 - 2.0**-49], dtype=torch.float64)
    assert draw(logits, chance, TokenSampling(1))[0].tolist() == [2, 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_logits_that_are_not_finite_show(bad: float, sampling: TokenSampling) -> None:
    logits = torch.zeros(3, 8)
    logits[1, 4] = bad
    _, logprobs, _ = draw(logits, torch.full((3,), 0.3, dtype=torch.float64), sampling)
    assert torch.isfinite(logprobs).tolist() == [True, False, True]
