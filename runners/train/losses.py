"""Losses of training: PPO's policy loss, divergence estimates and token weights, and the loss over pairs of responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.ir.training import MOVING, UNBOUNDED, Loss, Ppo

MAX_LOG_RATIO = 60.0
"""The largest log-ratio in nats that is exponentiated: the ratio of a larger log-ratio would overflow in a product."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The policy's loss over some tokens, and the number of clipped tokens, both scalars, [].

    The losses of micro-batches add up to the loss of their batch. `num_clipped` counts the tokens with an advantage
    whose ratio was clipped. They give no gradient, or a smaller gradient if the loss clips weights.
    """

    loss: Tensor
    num_clipped: Tensor


PLAIN = Loss()
"""The default loss: ratios of tokens, clipped on both sides, and k3."""


def step_numbers(
    method: Ppo, metrics: Mapping[str, float] | None = None, fields: Sequence[str] = tuple(MOVING)
) -> dict[str, float]:
    """Return the numbers of a step that may move, by field: constants, or the step's tracks and metrics of the reward.

    Args:
        method: The settings.
        metrics: The step's metrics by column name. None takes 1 for each number that is not constant, for a trial.
        fields: The numbers.

    Raises:
        Problem: E0920, if a number is missing, is no finite number, or is outside its range.
    """
    numbers: dict[str, float] = {}
    for field in fields:
        value, range_ = getattr(method, field), MOVING[field]
        if isinstance(value, str):
            name = value.removeprefix("reward.")
            columns = {f"track_{name}": 1.0} if metrics is None else metrics
            value = columns.get(f"track_{name}", columns.get(f"metric_{name}", math.nan))
            if not (math.isfinite(value) and range_.holds(value)):
                words = f"`{field.replace('_', '.')}` must be {range_.range_words()}"
                raise problem(
                    "E0920",
                    f"{words}, and `{name}` of the reward is {value:g} at this step",
                    where="metrics.parquet",
                    help=f"bound `{name}` by `clip(…, LOW, HIGH)`, and let nothing in it divide by 0",
                )
        numbers[field] = method.rollout.temperature if value is None else value
    return numbers


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
    """Return the clipped policy loss of a form, with r = exp(logprobs - old).

    The weights w contain the factor of the mean over a minibatch (`token_weights`). The losses of its micro-batches
    therefore add up to the loss of the minibatch. With `form.ratio = sequence`, r is the geometric mean of the ratios of
    a response's tokens. The forms of `form.clip` are

    - `two_sided`: `-sum w min(r A, clip(r, 1 - low, 1 + high) A)`.
    - `dual`: `two_sided`, but for A < 0 a token's loss is at most `-w cap A`.
    - `weight`: `-sum w c A logprobs`, where c is the clipped ratio, without a gradient.
    - `factors`: `-sum w r A`, where r is the geometric mean over a response of token ratios, each clipped as in
      `two_sided`.
    - `gate`: `-sum w 4 / tau sigmoid(tau (r - 1)) A`, where tau depends on the sign of A.
    - `none`: `-sum w r A`.

    With `form.ratio = none` the loss is `-sum w A logprobs`.

    Args:
        logprobs: Log-probabilities of the policy, [tokens], with a gradient.
        old: The log-probabilities in the denominators of ratios, [tokens].
        advantages: A of each token, [tokens].
        weights: w of each token, [tokens].
        low: How far a ratio may fall below 1.
        high: How far a ratio may rise above 1.
        lengths: Tokens of each response, [responses], in the order of the tokens; needed if ratios are of sequences.
        form: The settings of the loss.

    Returns:
        The loss and the number of clipped tokens, both [].

    Raises:
        ValueError: Ratios are of sequences, and `lengths` is None.

    Source: Schulman et al. 2017, Proximal Policy Optimization, eq. 7; `dual`: Ye et al. 2020, Mastering Complex Control
    in MOBA Games, eq. 5; `weight`: MiniMax 2025, MiniMax-M1, eq. 4 (CISPO); `factors`: Zhao et al. 2025, Geometric-Mean
    Policy Optimization; `gate`: Gao et al. 2025, Soft Adaptive Policy Optimization.
    """
    if form.ratio == "none":
        return PolicyLoss(-(weights * advantages * logprobs).sum(), torch.zeros_like(advantages).sum())
    log_ratio = logprobs - old
    if form.clip == "factors":
        bounds = math.log1p(high), math.log1p(-low) if low < 1 else -math.inf
        bounded = torch.where(advantages > 0, log_ratio.clamp(max=bounds[0]), log_ratio.clamp(min=bounds[1]))
        log_ratio, was_clipped = bounded, (bounded != log_ratio) & (advantages != 0)
    if form.ratio == "sequence":
        log_ratio = _sequence_log_ratio(log_ratio, lengths)
    if form.clip == "dual":
        # Clamp the log-ratio: the gradient of an overflowing ratio would be NaN.
        capped = (advantages < 0) & (log_ratio.detach() > math.log(form.cap))
        log_ratio = torch.where(advantages < 0, log_ratio.clamp(max=math.log(form.cap)), log_ratio)
    ratio = torch.exp(log_ratio.clamp(max=MAX_LOG_RATIO))
    if form.clip == "weight":
        ratio = ratio.detach()
        clipped_ratio = ratio.clamp(1.0 - low, 1.0 + high)
        was_clipped = (clipped_ratio != ratio) & (advantages != 0)
        return PolicyLoss(-(weights * clipped_ratio * advantages * logprobs).sum(), was_clipped.sum())
    if form.clip == "gate":
        tau = form.gate_down + (form.gate_up - form.gate_down) * (advantages > 0).to(ratio)
        ratio = torch.sigmoid(tau * (ratio - 1.0)) * 4.0 / tau
    unclipped = ratio * advantages
    if form.clip == "factors":
        return PolicyLoss(-(weights * unclipped).sum(), was_clipped.sum())
    if form.clip in UNBOUNDED:
        return PolicyLoss(-(weights * unclipped).sum(), torch.zeros_like(advantages).sum())
    bounded_term = ratio.clamp(1.0 - low, 1.0 + high) * advantages
    clipped = bounded_term.detach() < unclipped.detach()
    if form.clip == "dual":
        clipped = clipped | capped
    return PolicyLoss(-(weights * torch.minimum(unclipped, bounded_term)).sum(), clipped.sum())


def _sequence_log_ratio(log_ratio: Tensor, lengths: Tensor | None) -> Tensor:
    """Return, for each token, the mean log-ratio over the tokens of its response, [tokens].

    The value is the mean, but its gradient is the gradient of the token's own log-ratio. If all tokens of a response
    have equal advantages and weights, the loss of the response then has the gradient of the geometric mean of the ratios.

    Args:
        log_ratio: The log-ratio of each token, [tokens].
        lengths: Tokens of each response, [responses].

    Source: Zheng et al. 2025, Group Sequence Policy Optimization, eq. 14.
    """
    if lengths is None:
        raise ValueError("ratios of sequences need the lengths of sequences")
    constant = log_ratio.detach()
    index = torch.arange(len(lengths), device=constant.device)
    rows = index.repeat_interleave(lengths, output_size=len(constant))
    sums = torch.zeros(len(lengths), dtype=constant.dtype, device=constant.device).index_add_(
        0, rows, constant
    )
    return (sums / lengths.clamp(min=1))[rows] + (log_ratio - constant)


def divergence(logprobs: Tensor, reference: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate KL(policy || reference) at each token that the policy sampled.

    With d = logprobs - reference, `k1` is d, `k2` is d^2 / 2 and `k3` is e^-d - 1 + d. The expected gradient of k2 is
    the gradient of the divergence. The expected gradient of k1 is 0 for all policies. k1 therefore has the value d and
    the gradient of k2. The expected gradient of k3 is the gradient of KL(reference || policy). For a policy close to the
    reference model, it equals the gradient of KL(policy || reference) to first order.

    Args:
        logprobs: Log-probabilities of the policy, [tokens].
        reference: Log-probabilities of the reference model, [tokens].
        estimator: `k1`, `k2` or `k3`; any other name gives k1.

    Returns:
        The estimate in nats, [tokens].

    Source: Schulman 2020, Approximating KL Divergence.
    """
    log_ratio = reference - logprobs
    if estimator == "k3":
        return torch.expm1(log_ratio) - log_ratio
    half = log_ratio.square() / 2
    if estimator != "k2":
        half = half + (-log_ratio - half).detach()
    return half


def token_weights(
    lengths: list[int], mean: Literal["token", "response", "constant"], max_tokens: int
) -> list[float]:
    """Return, for each response, the factor of each of its tokens in the mean over a minibatch.

    Args:
        lengths: Trained tokens of each response.
        mean: `token` is the mean over all tokens. `response` is the mean over each response's tokens, then over
            responses. `constant` divides each response's sum by `max_tokens` and averages over responses; all tokens
            then have equal weights.
        max_tokens: The largest number of tokens of a response.

    Returns:
        One weight for each response.

    Source: `constant`: Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO).
    """
    if mean == "constant":
        return [1.0 / (len(lengths) * max_tokens)] * len(lengths)
    if mean == "token":
        return [1.0 / max(sum(lengths), 1)] * len(lengths)
    return [1.0 / (len(lengths) * max(length, 1)) for length in lengths]


def pair_loss(lead: Tensor, beta: float, gamma: float) -> Tensor:
    """Return the mean over pairs of `-log sigmoid(beta lead - gamma)`.

    A response's score is a number from its log-probabilities. With their mean as score, this is the loss of SimPO. With
    the sum of the log-probabilities minus the reference model's, and `gamma` = 0, it is the loss of DPO.

    Args:
        lead: The preferred response's score minus the rejected response's score, [pairs].
        beta: The scale of scores.
        gamma: The margin, not divided by `beta`.

    Returns:
        The loss, [].

    Source: SimPO: Meng et al. 2024; DPO: Rafailov et al. 2023, eq. 7.
    """
    return -F.logsigmoid(beta * lead - gamma).mean()
