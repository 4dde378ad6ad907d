"""PPO's clipped loss without a critic: log-probabilities old and new, advantages and weights of tokens in, a sum out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Clipped:
    """The loss over some tokens, to be added up over micro-batches, and what is worth watching.

    `clipped` counts tokens with an advantage whose ratio was clipped, so that they give no gradient; [], as the loss.
    """

    loss: Tensor
    clipped: Tensor


def clipped_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, low: float, high: float
) -> Clipped:
    """`-sum w min(r A, clip(r, 1 - low, 1 + high) A)` with r = exp(logprobs - old); all arguments [tokens].

    The weights carry the mean (`token_weights`), so that micro-batches of any size add up to the same gradient.
    """
    ratio = torch.exp(logprobs - old)
    plain = ratio * advantages
    held = ratio.clamp(1.0 - low, 1.0 + high) * advantages
    loss = -(weights * torch.minimum(plain, held)).sum()
    return Clipped(loss, (held.detach() < plain.detach()).sum())


def divergence(logprobs: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """`sum w (r - 1 - log r)` with r the reference's probability over the policy's; all arguments [tokens].

    Its gradient estimates that of KL(policy || reference) from the policy's own tokens (Schulman 2020, Approximating KL
    Divergence, k3).
    """
    gap = reference - logprobs
    return (weights * (torch.expm1(gap) - gap)).sum()


def token_weights(
    lengths: list[int], mean: Literal["token", "response", "constant"], longest: int
) -> list[float]:
    """The weight of each token of responses of these lengths, in tokens, in a minibatch.

    `token`: the mean over all of its tokens. `response`: the mean over each response's tokens, then over responses.
    `constant`: each response's sum over `longest`, then the mean over responses, so that no token's weight depends on
    how long a response is (Liu et al. 2025, Understanding R1-Zero-Like Training: Dr. GRPO).
    """
    if mean == "constant":
        return [1.0 / (len(lengths) * longest)] * len(lengths)
    if mean == "token":
        return [1.0 / max(sum(lengths), 1)] * len(lengths)
    return [1.0 / (len(lengths) * max(length, 1)) for length in lengths]
