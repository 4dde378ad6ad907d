"""Losses of training: the policy's with its divergence and weights, and those over pairs of responses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from reodsl.ir.training import UNBOUNDED, Loss

FARTHEST = 60.0
"""Nats by which a probability may have grown: past this a ratio is not a number any more once it is multiplied."""


@dataclass(frozen=True, slots=True)
class Clipped:
    """The loss over some tokens, to be added up over micro-batches, and what is worth watching.

    `clipped` counts tokens with an advantage whose ratio was clipped, so that they give no gradient (or, where a weight
    is clipped, a smaller one); [], as the loss.
    """

    loss: Tensor
    clipped: Tensor


PLAIN = Loss()
"""Ratios of tokens, clipped on both sides, and k3."""


def policy_loss(
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    weights: Tensor,
    low: float,
    high: float,
    lengths: Tensor | None = None,
    form: Loss = PLAIN,
) -> Clipped:
    """Return the loss of `form`, with r = exp(logprobs - old); all tensors [tokens], but `lengths` [responses].

    The weights carry the mean (`token_weights`), so that micro-batches of any size add up to the same gradient.
    `lengths` are the tokens of each response, one after another, which ratios of sequences need.

    - `two_sided`: `-sum w min(r A, clip(r, 1 - low, 1 + high) A)`.
    - `dual`: for A < 0 it is at most `-w cap A` (Ye et al. 2020, Mastering Complex Control in MOBA Games, eq. 5).
    - `weight`: `-sum w c A logprobs` with c the clipped ratio, without a gradient (MiniMax 2025,
      MiniMax-M1, eq. 4: CISPO).
    - `factors`: r is the geometric mean over a response of factors clipped like `two_sided`'s (Zhao et al. 2025,
      Geometric-Mean Policy Optimization).
    - `gate`: `-sum w 4 / tau sigmoid(tau (r - 1)) A`, with tau by the sign of A (Gao et al. 2025, Soft Adaptive Policy
      Optimization).
    - `none`: `-sum w r A`, and without a ratio `-sum w A logprobs`.
    """
    if form.ratio == "none":
        return Clipped(-(weights * advantages * logprobs).sum(), torch.zeros_like(advantages).sum())
    change = logprobs - old
    if form.clip == "factors":
        ends = math.log1p(high), math.log1p(-low) if low < 1 else -math.inf
        bounded = torch.where(advantages > 0, change.clamp(max=ends[0]), change.clamp(min=ends[1]))
        change, cut = bounded, (bounded != change) & (advantages != 0)
    if form.ratio == "sequence":
        change = _sequence_change(change, lengths)
    if form.clip == "dual":
        # In the logarithm, since a ratio that is not a number has no gradient either.
        capped = (advantages < 0) & (change.detach() > math.log(form.cap))
        change = torch.where(advantages < 0, change.clamp(max=math.log(form.cap)), change)
    ratio = torch.exp(change.clamp(max=FARTHEST))
    if form.clip == "weight":
        ratio = ratio.detach()
        weight = ratio.clamp(1.0 - low, 1.0 + high)
        cut = (weight != ratio) & (advantages != 0)
        return Clipped(-(weights * weight * advantages * logprobs).sum(), cut.sum())
    if form.clip == "gate":
        tau = form.gate_down + (form.gate_up - form.gate_down) * (advantages > 0).to(ratio)
        ratio = torch.sigmoid(tau * (ratio - 1.0)) * 4.0 / tau
    plain = ratio * advantages
    if form.clip == "factors":
        return Clipped(-(weights * plain).sum(), cut.sum())
    if form.clip in UNBOUNDED:
        return Clipped(-(weights * plain).sum(), torch.zeros_like(advantages).sum())
    within = ratio.clamp(1.0 - low, 1.0 + high) * advantages
    clipped = within.detach() < plain.detach()
    if form.clip == "dual":
        clipped = clipped | capped
    return Clipped(-(weights * torch.minimum(plain, within)).sum(), clipped.sum())


def _sequence_change(change: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean change of each token's response, with the gradient of the token's own.

    Source: Zheng et al. 2025, Group Sequence Policy Optimization, eq. 14.

    Where the tokens of a response have one advantage, and its mean is over them, that is the gradient of the geometric mean.
    """
    if lengths is None:
        raise ValueError("ratios of sequences need the lengths of sequences")
    constant = change.detach()
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=constant.device), lengths)
    sums = torch.zeros(len(lengths), dtype=constant.dtype, device=constant.device).index_add_(
        0, rows, constant
    )
    return (sums / lengths.clamp(min=1))[rows] + (change - constant)


def divergence(logprobs: Tensor, reference: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate KL(policy || reference) in nats at each of the policy's own tokens; all are [tokens].

    With d = logprobs - reference, `k1` is d, `k2` is d^2 / 2 and `k3` is e^-d - 1 + d (Schulman 2020, Approximating KL
    Divergence). The gradient of k2 is that of the divergence on average; the one of k1 itself would be 0 whatever the
    policies, so k1 has k2's; k3's is that of KL(reference || policy), to first order the same. Any other name is k1's.
    """
    gap = reference - logprobs
    if estimator == "k3":
        return torch.expm1(gap) - gap
    half = gap.square() / 2
    if estimator != "k2":
        half = half + (-gap - half).detach()
    return half


def token_weights(
    lengths: list[int], mean: Literal["token", "response", "constant"], longest: int
) -> list[float]:
    """Return the weight of each token of responses of these lengths, in tokens, in a minibatch.

    `token`: the mean over all of its tokens. `response`: the mean over each response's tokens, then over responses.
    `constant`: each response's sum over `longest`, then the mean over responses, so that no token's weight depends on
    how long a response is (Liu et al. 2025, Understanding R1-Zero-Like Training: Dr. GRPO).
    """
    if mean == "constant":
        return [1.0 / (len(lengths) * longest)] * len(lengths)
    if mean == "token":
        return [1.0 / max(sum(lengths), 1)] * len(lengths)
    return [1.0 / (len(lengths) * max(length, 1)) for length in lengths]


def pair_loss(lead: Tensor, beta: float, gamma: float) -> Tensor:
    """Return `-log sigmoid(beta lead - gamma)`, the mean over pairs.

    `lead` [pairs] is the preferred response's score less the rejected one's. Means of log-probabilities as scores make it
    SimPO (Meng et al. 2024), where `gamma` is the margin itself and not its ratio to `beta`. Sums of their differences from
    a reference's, with a `gamma` of 0, make it DPO (Rafailov et al. 2023, eq. 7).
    """
    return -F.logsigmoid(beta * lead - gamma).mean()
