"""Compare engine and trainer: what ratios divide by, importance weights, and the gap between the two."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reodsl.diagnostics import Problem, error
from reodsl.ir.training import Ppo
from runners.train.batch import TrainBatch
from runners.train.losses import MAX_LOG_RATIO
from runners.train.update import Learner

Gaps = NDArray[np.float32]
"""Trainer minus engine: the log-probability gap of each token that the engine sampled, in nats, [sampled tokens]."""


class Disagreement(Problem):
    """A log-probability gap between engine and trainer past the limit (E0936). Nothing of the step has been applied."""


def old_logprobs(
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    temperature: float,
    engine_is_exact: bool,
    *,
    all_sampled: bool = True,
    first_minibatch_trains: bool = True,
) -> tuple[TrainBatch, Gaps | None, dict[str, float]]:
    """Return the batch with the log-probabilities that ratios divide by and importance weights, and the gap to the engine.

    The method's `old_logprobs`, `lag`, `decoupled` and `importance_cap` decide both. The trainer's own
    log-probabilities are those before any change.

    Args:
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        temperature: Of the distribution that ratios are of.
        engine_is_exact: Whether the engine computes log-probabilities as the trainer does.
        all_sampled: Whether the engine sampled all trained tokens of the step.
        first_minibatch_trains: Whether the first minibatch has tokens to train on, so that its passes give the
            trainer's log-probabilities in time.

    Returns:
        The batch, the gap (None while the trainer has not computed its log-probabilities), and numbers for
            `metrics.parquet`.
    """
    rollout = method.rollout
    cropped = rollout.top_p < 1.0 or rollout.top_k > 0
    plain_sampling = rollout.temperature == 1.0 and not cropped and all_sampled
    rule = method.old_logprobs
    if rule == "auto" and method.lag and not method.loss.decoupled:
        # The trainer's own are those of newer weights than sampled.
        rule = "engine"
    if rule == "auto":
        rule = "engine" if plain_sampling and engine_is_exact and not method.weighs else "trainer"
    if rule == "engine" and plain_sampling and first_minibatch_trains:
        return replace(batch, old_logprobs=batch.engine_logprobs), None, {}
    mine = scored = learner.score(batch, temperature)
    if method.loss.mode_tokens == "shares":
        scored = opened_by_share(batch, mine, len(method.wordings))
    # At temperature 0 nothing was drawn, and at others with a cropped distribution the engine's are of another one.
    plain = rollout.temperature in (0.0, 1.0) or cropped
    compared = mine if temperature == 1.0 or not plain else learner.score(batch, 1.0)
    logprob_gap = _logprob_gaps(compared, batch.engine_logprobs if plain else batch.sampling_logprobs, batch)
    if method.weighs:
        gaps = _logprob_gaps(mine, batch.sampling_logprobs, batch)
        ratios = np.exp(_response_gaps(gaps, batch, method.loss.importance))
        capped, numbers = weigh(ratios, method)
        # What the engine was given it did not draw.
        weights = torch.ones_like(mine)
        weights[batch.sampled_mask] = torch.from_numpy(capped)
        return replace(batch, old_logprobs=scored, importance=weights), logprob_gap, numbers
    if rule == "engine":
        scored = torch.where(batch.sampled_mask, batch.sampling_logprobs, scored)
    return replace(batch, old_logprobs=scored), logprob_gap, {}


def opened_by_share(batch: TrainBatch, logprobs: Tensor, modes: int) -> Tensor:
    """Return the log-probabilities that a batch was sampled with, if each mode gets as many responses.

    The first token of a prefix opens its mode, so its probability is 1 / `modes`.

    Args:
        batch: The step's batch.
        logprobs: Log-probabilities of the policy, [trained tokens].
        modes: Number of modes.

    Returns:
        Log-probabilities, [trained tokens]; only those of first tokens change.

    Source: Zhang et al. 2025, AdaptThink.
    """
    firsts = (batch.num_trained.cumsum(0) - batch.num_trained)[batch.num_trained > 0]
    sampled = logprobs.clone()
    sampled[firsts[~batch.sampled_mask[firsts]]] = -math.log(modes)
    return sampled


def _response_gaps(gaps: Gaps, batch: TrainBatch, level: Literal["token", "sequence", "mean"]) -> Gaps:
    """Return the gap of each sampled token, or the sum or mean over its response, clipped to a finite ratio."""
    if level == "token":
        return gaps
    rows = np.repeat(np.arange(len(batch)), batch.num_trained.numpy())[batch.sampled_mask.numpy()]
    sums = np.bincount(rows, gaps, len(batch)).astype(np.float64)
    if level == "mean":
        sums /= np.maximum(np.bincount(rows, minlength=len(batch)), 1)
    return sums.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)[rows].astype(np.float32)


def weigh(ratios: Gaps, method: Ppo) -> tuple[Gaps, dict[str, float]]:
    """Return importance weights, capped as the method says, and numbers about them.

    Args:
        ratios: The trainer's probability over the engine's, [sampled tokens].
        method: The settings, with `importance_cap`.

    Returns:
        Weights, [sampled tokens]; the mean weight, and the share of tokens past the cap.

    Source: Yao et al. 2025 (truncated importance sampling).
    """
    cap = math.inf if method.importance_cap is None else method.importance_cap
    capped = np.minimum(ratios, cap)
    if not len(ratios):
        return capped, {}
    mean, share = float(capped.mean()), float((ratios > cap).mean())
    return capped, {"importance_mean": mean, "importance_capped": share}


def agreement(logprob_gap: NDArray[np.floating] | None) -> dict[str, float]:
    """Return how far trainer and engine differ.

    The divergence KL(engine || trainer) is the mean of r - 1 - log r over sampled tokens, r the trainer's probability
    over the engine's.

    Args:
        logprob_gap: Trainer minus engine in nats, [sampled tokens]; None if unknown.

    Returns:
        `mismatch_median` and `mismatch_max`, the median and largest exp |gap|, and `mismatch_kl` in nats a token; empty
            without
        a gap.

    Source: Schulman 2020, Approximating KL Divergence, k3.
    """
    if logprob_gap is None or not len(logprob_gap):
        return {}
    gap = logprob_gap.astype(np.float64)
    size = np.abs(gap)
    with np.errstate(over="ignore"):
        # There are tens of millions, so that the arrays made are used again.
        numbers = {
            "mismatch_median": float(np.exp(np.median(size, overwrite_input=True))),
            "mismatch_max": float(np.exp(size.max())),
        }
        above = np.expm1(gap, out=size)
        above -= gap
        return {**numbers, "mismatch_kl": float(above.mean())}


def require_agreement(logprob_gap: Gaps | None, limit: float | None, number: int) -> dict[str, float]:
    """Return `agreement` of a step, and require that its median is within the limit.

    Args:
        logprob_gap: As for `agreement`.
        limit: The largest `mismatch_median`, None for no limit.
        number: The step, counted from 0.

    Returns:
        The numbers of `agreement`.

    Raises:
        Disagreement: The median is past the limit (E0936).
    """
    measured = agreement(logprob_gap)
    if logprob_gap is None or limit is None or not measured or measured["mismatch_median"] <= limit:
        return measured
    raise Disagreement(
        error(
            "E0936",
            f"engine and trainer give the same tokens probabilities that differ by a factor of"
            f" {measured['mismatch_median']:.4g} in the median, and `mismatch_limit` is {limit:g}",
            where=f"step {number + 1}",
            notes=[
                f"over {len(logprob_gap)} tokens the largest factor is {measured['mismatch_max']:.4g}, and the trainer"
                f" diverges from the engine by {measured['mismatch_kl']:.3g} nats a token",
                "the steps before are saved, and nothing of this one has been applied",
            ],
            help="look for an engine with other weights, precision, temperature or tokenizer; where the factor is"
            " what this precision gives, raise `mismatch_limit` (the run goes on from here) and set"
            " `importance_cap = 2`",
        )
    )


def _logprob_gaps(mine: Tensor, theirs: Tensor, batch: TrainBatch) -> Gaps:
    """Return trainer minus engine over the tokens that the engine sampled."""
    gaps = mine - theirs
    return (gaps if bool(batch.sampled_mask.all()) else gaps[batch.sampled_mask]).numpy()
