"""Compare the engine's and the trainer's log-probabilities: old log-probabilities, importance weights, and the gap."""

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
    """A log-probability gap between engine and trainer beyond the limit (E0936); the step has changed no weights."""


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
    """Add old log-probabilities and importance weights to a batch, and compare the trainer with the engine.

    The old log-probabilities are the denominators of PPO's ratios. They are the engine's or the trainer's, as the
    method's `old_logprobs`, `lag`, `decoupled` and `importance_cap` say. The trainer's are computed here, before the
    step changes a weight. With `mode_tokens = shares`, the first tokens that the engine was given get the log-probability
    of `opened_by_share`. The trainer's pass is saved if the engine's log-probabilities can be used as they are: sampling
    at temperature 1 from the full distribution, all tokens sampled, and `first_minibatch_trains`.

    Args:
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        temperature: The temperature of the distribution whose probabilities the ratios compare.
        engine_is_exact: Whether engine and trainer compute equal log-probabilities, up to float32 rounding.
        all_sampled: Whether the engine sampled all trained tokens of the step.
        first_minibatch_trains: Whether the first minibatch has tokens to train on. If so, the gap can be measured in
            its forward pass, before a weight changes.

    Returns:
        The batch; the gap, or None if the trainer has not scored the batch here; and the metrics of `weigh`, which are
        empty without importance weights.
    """
    rollout = method.rollout
    cropped = rollout.top_p < 1.0 or rollout.top_k > 0
    plain_sampling = rollout.temperature == 1.0 and not cropped and all_sampled
    rule = method.old_logprobs
    if rule == "auto" and method.lag and not method.loss.decoupled:
        # The trainer's weights are newer than the weights that sampled.
        rule = "engine"
    if rule == "auto":
        rule = "engine" if plain_sampling and engine_is_exact and not method.weighs else "trainer"
    if rule == "engine" and plain_sampling and first_minibatch_trains:
        return replace(batch, old_logprobs=batch.engine_logprobs), None, {}
    trainer_logprobs = old = learner.score(batch, temperature)
    if method.loss.mode_tokens == "shares":
        old = opened_by_share(batch, trainer_logprobs, len(method.wordings))
    # Greedy and cropped sampling have no comparable probabilities: compare the full distributions at temperature 1.
    untempered = rollout.temperature in (0.0, 1.0) or cropped
    trainer_side = trainer_logprobs if temperature == 1.0 or not untempered else learner.score(batch, 1.0)
    logprob_gap = _logprob_gaps(
        trainer_side, batch.engine_logprobs if untempered else batch.sampling_logprobs, batch
    )
    if method.weighs:
        gaps = _logprob_gaps(trainer_logprobs, batch.sampling_logprobs, batch)
        ratios = np.exp(_response_gaps(gaps, batch, method.loss.importance))
        capped, metrics = weigh(ratios, method)
        # Tokens that the engine was given, not sampled, weigh 1.
        weights = torch.ones_like(trainer_logprobs)
        weights[batch.sampled_mask] = torch.from_numpy(capped)
        return replace(batch, old_logprobs=old, importance=weights), logprob_gap, metrics
    if rule == "engine":
        old = torch.where(batch.sampled_mask, batch.sampling_logprobs, old)
    return replace(batch, old_logprobs=old), logprob_gap, {}


def opened_by_share(batch: TrainBatch, logprobs: Tensor, num_modes: int) -> Tensor:
    """Return log-probabilities in which the first token of each given prefix has probability 1 / `num_modes`.

    A mode is a way to begin a response by a prefix, e.g. with or without thinking. The engine is given the prefix, and
    all modes get equally many responses. The prefix's first token was therefore chosen with probability 1 / `num_modes`,
    whatever the policy's probability is.

    Args:
        batch: The step's batch.
        logprobs: Log-probabilities of the policy, [trained tokens].
        num_modes: Number of modes.

    Returns:
        Log-probabilities, [trained tokens]; only first tokens that the engine was given differ from `logprobs`.

    Source: Zhang et al. 2025, AdaptThink.
    """
    first_tokens = (batch.num_trained.cumsum(0) - batch.num_trained)[batch.num_trained > 0]
    sampled = logprobs.clone()
    sampled[first_tokens[~batch.sampled_mask[first_tokens]]] = -math.log(num_modes)
    return sampled


def _response_gaps(gaps: Gaps, batch: TrainBatch, level: Literal["token", "sequence", "mean"]) -> Gaps:
    """Return the log-probability gap of each sampled token, or of the response that the token belongs to.

    Args:
        gaps: Trainer minus engine, [sampled tokens].
        batch: The step's batch, which says how many trained tokens each response has.
        level: `token` returns `gaps`; `sequence` and `mean` give each token the sum or mean over its response.

    Returns:
        Gaps, [sampled tokens]; sums and means are clipped so that exp(gap) is finite.
    """
    if level == "token":
        return gaps
    rows = np.repeat(np.arange(len(batch)), batch.num_trained.numpy())[batch.sampled_mask.numpy()]
    sums = np.bincount(rows, gaps, len(batch)).astype(np.float64)
    if level == "mean":
        sums /= np.maximum(np.bincount(rows, minlength=len(batch)), 1)
    return sums.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)[rows].astype(np.float32)


def weigh(ratios: Gaps, method: Ppo) -> tuple[Gaps, dict[str, float]]:
    """Return importance weights, capped at `importance_cap`, and their statistics.

    Args:
        ratios: The trainer's probability over the engine's, [sampled tokens].
        method: The settings, with `importance_cap`.

    Returns:
        Weights, [sampled tokens]; and `importance_mean`, the mean weight, with `importance_capped`, the share of tokens
        above the cap (no statistics if there are no tokens).

    Source: Yao et al. 2025 (truncated importance sampling).
    """
    cap = math.inf if method.importance_cap is None else method.importance_cap
    capped = np.minimum(ratios, cap)
    if not len(ratios):
        return capped, {}
    mean, share = float(capped.mean()), float((ratios > cap).mean())
    return capped, {"importance_mean": mean, "importance_capped": share}


def agreement(logprob_gap: NDArray[np.floating] | None) -> dict[str, float]:
    """Return statistics of the difference between the trainer's and the engine's probabilities.

    The divergence KL(engine || trainer) is estimated by the mean of r - 1 - log r over sampled tokens, where r is the
    trainer's probability over the engine's.

    Args:
        logprob_gap: Trainer minus engine in nats, [sampled tokens]; None if unknown.

    Returns:
        `mismatch_median` and `mismatch_max`, the median and largest exp |gap|, and `mismatch_kl` in nats per token; an
        empty dict if the gap is unknown or has no tokens.

    Source: Schulman 2020, Approximating KL Divergence, k3.
    """
    if logprob_gap is None or not len(logprob_gap):
        return {}
    gap = logprob_gap.astype(np.float64)
    absolute_gap = np.abs(gap)
    with np.errstate(over="ignore"):
        # There are tens of millions of tokens, so temporary arrays are reused.
        numbers = {
            "mismatch_median": float(np.exp(np.median(absolute_gap, overwrite_input=True))),
            "mismatch_max": float(np.exp(absolute_gap.max())),
        }
        k3 = np.expm1(gap, out=absolute_gap)
        k3 -= gap
        return {**numbers, "mismatch_kl": float(k3.mean())}


def require_agreement(logprob_gap: Gaps | None, limit: float | None, step: int) -> dict[str, float]:
    """Check the median difference between engine and trainer against a limit, and return the statistics of `agreement`.

    Args:
        logprob_gap: Trainer minus engine in nats, [sampled tokens]; None if unknown, which passes.
        limit: The largest allowed `mismatch_median`, a factor of probabilities; None for no limit.
        step: The step, counted from 0.

    Raises:
        Disagreement: The median is above the limit (E0936).
    """
    measured = agreement(logprob_gap)
    if logprob_gap is None or limit is None or not measured or measured["mismatch_median"] <= limit:
        return measured
    raise Disagreement(
        error(
            "E0936",
            f"engine and trainer give the same tokens probabilities that differ by a factor of"
            f" {measured['mismatch_median']:.4g} in the median, and `mismatch_limit` is {limit:g}",
            where=f"step {step + 1}",
            notes=[
                f"over {len(logprob_gap)} tokens the largest factor is {measured['mismatch_max']:.4g}, and the trainer"
                f" diverges from the engine by {measured['mismatch_kl']:.3g} nats per token",
                "earlier steps are saved; this step has changed no weights",
            ],
            help="check whether the engine has the trainer's weights, precision, temperature and tokenizer; if this"
            " precision explains the factor, raise `mismatch_limit` (the run continues from here) and set"
            " `importance_cap = 2`",
        )
    )


def _logprob_gaps(trainer_logprobs: Tensor, engine_logprobs: Tensor, batch: TrainBatch) -> Gaps:
    """Return the gap, trainer minus engine, of the tokens that the engine sampled, [sampled tokens].

    Args:
        trainer_logprobs: Log-probabilities in nats, [trained tokens].
        engine_logprobs: Log-probabilities in nats, [trained tokens].
        batch: The step's batch, with the mask of sampled tokens.
    """
    gaps = trainer_logprobs - engine_logprobs
    return (gaps if bool(batch.sampled_mask.all()) else gaps[batch.sampled_mask]).numpy()
