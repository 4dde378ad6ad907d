"""Draw tokens, with their log-probabilities by the model and by the distribution drawn from.

A draw inverts the cumulative distribution at its uniform, in double precision: over tokens in the order of their
ids, or in falling order of probability when top-k or top-p cut the distribution.
"""

from __future__ import annotations

import torch

from runners.engine.protocol import Sampling


def draw(
    logits: torch.Tensor, uniforms: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens [n], their log-probabilities [n] and behaviour log-probabilities [n] (see `Response`), fp32.

    `logits` is [n, vocab], `uniforms` [n] in double precision. Logits that are not finite give a
    log-probability that is not finite, which the caller reports.
    """
    model = torch.log_softmax(logits.float(), -1)
    if sampling.temperature == 0.0:
        tokens = model.argmax(-1, keepdim=True)
        logprobs = model.gather(1, tokens)
        # NaN minus itself stays NaN, so a broken row shows in both.
        return tokens[:, 0], logprobs[:, 0], (logprobs - logprobs)[:, 0]
    tempered = (
        model if sampling.temperature == 1.0 else torch.log_softmax(logits.float() / sampling.temperature, -1)
    )
    if sampling.top_p >= 1.0 and sampling.top_k <= 0:
        tokens = _invert(tempered.exp(), uniforms)
        logprobs = model.gather(1, tokens)[:, 0]
        behaviour = logprobs if tempered is model else tempered.gather(1, tokens)[:, 0]
        return tokens[:, 0], logprobs, behaviour
    ordered, ids = torch.sort(tempered, dim=-1, descending=True, stable=True)
    if 0 < sampling.top_k < ordered.shape[1]:
        ordered, ids = ordered[:, : sampling.top_k], ids[:, : sampling.top_k]
        ordered = torch.log_softmax(ordered, -1)
    mass = ordered.exp()
    before = torch.cumsum(mass, -1, dtype=torch.float64) - mass
    kept = before < sampling.top_p
    kept[:, 0] = True
    ordered = torch.log_softmax(ordered.masked_fill(~kept, -torch.inf), -1)
    ranks = _invert(ordered.exp(), uniforms)
    tokens = ids.gather(1, ranks)
    return tokens[:, 0], model.gather(1, tokens)[:, 0], ordered.gather(1, ranks)[:, 0]


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The first index [n, 1] whose cumulative probability passes `uniforms` of the total."""
    cumulative = torch.cumsum(probabilities, -1, dtype=torch.float64)
    target = uniforms.unsqueeze(1) * cumulative[:, -1:]
    ranks = torch.searchsorted(cumulative, target, right=True)
    # Only a row that is not finite can run past the end.
    return ranks.clamp_(max=probabilities.shape[1] - 1)
