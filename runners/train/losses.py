"""Losses of training: the policy's with its divergence and weights, and those over pairs of responses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from reodsl.ir.training import UNBOUNDED, Loss

MAX_LOG_RATIO = 60.0
"""Nats by which a probability may have grown: past this bound a ratio overflows once it is multiplied."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The policy's loss over some tokens, a sum that adds up over micro-batches, and a count for metrics.

    `num_clipped` counts tokens with an advantage whose ratio was clipped, so that they give no gradient (or, if a
    weight is clipped, a smaller gradient); both are scalars, [].
    """

    loss: Tensor
    num_clipped: Tensor


PLAIN = Loss()
"""The default loss: ratios of tokens, clipped on both sides, and k3."""


def policy_loss(
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    weights: Tensor,
    low: float,
    high: float,
    lengths: Tensor | None = None,
    form: Loss = PLAIN,
) -> PolicyLoss:
    """Return the clipped policy loss of `form`, with r = exp(logprobs - old).

    The weights carry the mean (`token_weights`), so that micro-batches of any size add up to the same gradient.

    - `two_sided`: `-sum w min(r A, clip(r, 1 - low, 1 + high) A)`.
    - `dual`: for A < 0 it is at most `-w cap A`.
    - `weight`: `-sum w c A logprobs` with c the clipped ratio, without a gradient.
    - `factors`: r is the geometric mean over a response of factors that are clipped like `two_sided`'s.
    - `gate`: `-sum w 4 / tau sigmoid(tau (r - 1)) A`, with tau by the sign of A.
    - `none`: `-sum w r A`, and without a ratio `-sum w A logprobs`.

    Args:
        logprobs: Log-probabilities of the policy, [tokens], with a gradient.
        old: Log-probabilities that ratios divide by, [tokens].
        advantages: A of each token, [tokens].
        weights: w of each token, [tokens].
        low: How far a ratio may fall below 1.
        high: How far a ratio may rise above 1.
        lengths: Tokens of each response, [responses], one response after another; ratios of sequences need them.
        form: The settings of the loss.

    Returns:
        The loss and the number of clipped tokens, both [].

    Raises:
        ValueError: The ratio is of sequences, and there are no lengths.

    Source: Schulman et al. 2017, Proximal Policy Optimization, eq. 7; `dual`: Ye et al. 2020, Mastering Complex Control
        in MOBA Games, eq. 5; `weight`: MiniMax 2025, MiniMax-M1, eq. 4 (CISPO); `factors`: Zhao et al. 2025,
        Geometric-Mean Policy Optimization; `gate`: Gao et al. 2025, Soft Adaptive Policy Optimization.
    """
    if form.ratio == "none":
        return PolicyLoss(-(weights * advantages * logprobs).sum(), torch.zeros_like(advantages).sum())
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
    ratio = torch.exp(change.clamp(max=MAX_LOG_RATIO))
    if form.clip == "weight":
        ratio = ratio.detach()
        weight = ratio.clamp(1.0 - low, 1.0 + high)
        cut = (weight != ratio) & (advantages != 0)
        return PolicyLoss(-(weights * weight * advantages * logprobs).sum(), cut.sum())
    if form.clip == "gate":
        tau = form.gate_down + (form.gate_up - form.gate_down) * (advantages > 0).to(ratio)
        ratio = torch.sigmoid(tau * (ratio - 1.0)) * 4.0 / tau
    plain = ratio * advantages
    if form.clip == "factors":
        return PolicyLoss(-(weights * plain).sum(), cut.sum())
    if form.clip in UNBOUNDED:
        return PolicyLoss(-(weights * plain).sum(), torch.zeros_like(advantages).sum())
    bounded_term = ratio.clamp(1.0 - low, 1.0 + high) * advantages
    clipped = bounded_term.detach() < plain.detach()
    if form.clip == "dual":
        clipped = clipped | capped
    return PolicyLoss(-(weights * torch.minimum(plain, bounded_term)).sum(), clipped.sum())


def _sequence_change(change: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean log-ratio of each token's response, [tokens], with the gradient of the token's own log-ratio.

    Source: Zheng et al. 2025, Group Sequence Policy Optimization, eq. 14.

    If the tokens of a response have one advantage, and its mean is over them, this is the gradient of the geometric
    mean.
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
    """Estimate KL(policy || reference) at each token that the policy sampled.

    With d = logprobs - reference, `k1` is d, `k2` is d^2 / 2 and `k3` is e^-d - 1 + d. The gradient of k2 is that of
    the divergence on average; the gradient of k1 itself would be 0 whatever the policies, so k1 has k2's; k3's is that
    of KL(reference || policy), to first order the same.

    Args:
        logprobs: Log-probabilities of the policy, [tokens].
        reference: Log-probabilities of the reference model, [tokens].
        estimator: `k1`, `k2` or `k3`; any other name is k1's.

    Returns:
        The estimate in nats, [tokens].

    Source: Schulman 2020, Approximating KL Divergence.
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
    """Return the weight of each token of a response in the mean over a minibatch.

    Args:
        lengths: Trained tokens of each response.
        mean: `token` is the mean over all tokens; `response` the mean over each response's tokens, then over responses;
            `constant` each response's sum over `longest`, then the mean over responses, so that no token's weight
            depends on how long its response is.
        longest: The most tokens of a response.

    Returns:
        One weight for each response.

    Source: `constant`: Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO).
    """
    if mean == "constant":
        return [1.0 / (len(lengths) * longest)] * len(lengths)
    if mean == "token":
        return [1.0 / max(sum(lengths), 1)] * len(lengths)
    return [1.0 / (len(lengths) * max(length, 1)) for length in lengths]


def pair_loss(lead: Tensor, beta: float, gamma: float) -> Tensor:
    """Return the mean over pairs of `-log sigmoid(beta lead - gamma)`.

    Args:
        lead: The preferred response's score less the rejected response's, [pairs]. With means of log-probabilities as
            scores the loss is SimPO's; with sums of their differences from a reference model's, and `gamma` = 0, DPO's.
        beta: The scale of scores.
        gamma: The margin itself, not its ratio to `beta`.

    Returns:
        The loss, [].

    Source: SimPO: Meng et al. 2024; DPO: Rafailov et al. 2023, eq. 7.
    """
    return -F.logsigmoid(beta * lead - gamma).mean()
