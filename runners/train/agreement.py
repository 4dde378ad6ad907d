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
from runners.train.losses import FARTHEST
from runners.train.update import Learner

Gaps = NDArray[np.float32]
"""Trainer minus engine: the difference of log-probabilities of each token that the engine drew."""


class Disagreement(Problem):
    """A gap between engine and trainer past the limit (E0936). Nothing of the step has been applied."""


def old_logprobs(
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    temperature: float,
    engine_is_exact: bool,
    *,
    drawn: bool = True,
    shown: bool = True,
) -> tuple[TrainBatch, Gaps | None, dict[str, float]]:
    """Return the batch with `old` and importance weights, the gap to the engine, and numbers for `metrics.parquet`.

    The method's `old_logprobs`, `lag`, `decoupled` and `importance_cap` decide both. The trainer's own log-
    probabilities are those before any change. The gap is None while the trainer has not yet computed them. `drawn` says
    that the engine drew all of the step's trained tokens, `shown` that the first minibatch has tokens to learn from, so
    that its passes show the trainer's own in time.
    """
    rollout = method.rollout
    cropped = rollout.top_p < 1.0 or rollout.top_k > 0
    whole = rollout.temperature == 1.0 and not cropped and drawn
    rule = method.old_logprobs
    if rule == "auto" and method.lag and not method.loss.decoupled:
        # The trainer's own are those of newer weights than sampled.
        rule = "engine"
    if rule == "auto":
        rule = "engine" if whole and engine_is_exact and not method.weighs else "trainer"
    if rule == "engine" and whole and shown:
        return replace(batch, old=batch.logprobs), None, {}
    mine = scored = learner.score(batch, temperature)
    if method.loss.mode_tokens == "shares":
        scored = opened_by_share(batch, mine, len(method.wordings))
    # At temperature 0 nothing was drawn, and at others with a cropped distribution the engine's are of another one.
    plain = rollout.temperature in (0.0, 1.0) or cropped
    compared = mine if temperature == 1.0 or not plain else learner.score(batch, 1.0)
    apart = _gaps(compared, batch.logprobs if plain else batch.behaviour, batch)
    if method.weighs:
        ratios = np.exp(_of_responses(_gaps(mine, batch.behaviour, batch), batch, method.loss.importance))
        kept, numbers = weigh(ratios, method)
        # What the engine was given it did not draw.
        weights = torch.ones_like(mine)
        weights[batch.drawn] = torch.from_numpy(kept)
        return replace(batch, old=scored, importance=weights), apart, numbers
    if rule == "engine":
        scored = torch.where(batch.drawn, batch.behaviour, scored)
    return replace(batch, old=scored), apart, {}


def opened_by_share(batch: TrainBatch, logprobs: Tensor, modes: int) -> Tensor:
    """Return the log-probabilities that a batch was sampled with, if each of so many modes gets as many responses.

    The first token of a prefix opens its mode, so its probability is 1 / `modes` (Zhang et al. 2025, AdaptThink);
    `logprobs` are those of the policy [tokens], which the other tokens keep.
    """
    firsts = (batch.trained.cumsum(0) - batch.trained)[batch.trained > 0]
    sampled = logprobs.clone()
    sampled[firsts[~batch.drawn[firsts]]] = -math.log(modes)
    return sampled


def _of_responses(gaps: Gaps, batch: TrainBatch, level: Literal["token", "sequence", "mean"]) -> Gaps:
    """Return the gap of each drawn token, or the sum or mean of those of its response; no further than a number can be."""
    if level == "token":
        return gaps
    rows = np.repeat(np.arange(len(batch)), batch.trained.numpy())[batch.drawn.numpy()]
    sums = np.bincount(rows, gaps, len(batch)).astype(np.float64)
    if level == "mean":
        sums /= np.maximum(np.bincount(rows, minlength=len(batch)), 1)
    return sums.clip(-FARTHEST, FARTHEST)[rows].astype(np.float32)


def weigh(ratios: Gaps, method: Ppo) -> tuple[Gaps, dict[str, float]]:
    """Return the weights that ratios of trainer over engine have by the method's cap, and numbers about them.

    A weight past `importance_cap` is cut to it (Yao et al. 2025). The numbers are the mean weight, and the share of tokens
    past it.
    """
    cap = math.inf if method.importance_cap is None else method.importance_cap
    kept = np.minimum(ratios, cap)
    if not len(ratios):
        return kept, {}
    return kept, {"importance_mean": float(kept.mean()), "importance_capped": float((ratios > cap).mean())}


def agreement(apart: NDArray[np.floating] | None) -> dict[str, float]:
    """Return the median and largest exp |trainer's - engine's log-probability|, and the divergence of trainer from engine.

    The divergence KL(engine || trainer) is the mean of r - 1 - log r over tokens that the engine drew, r the trainer's
    probability over the engine's (Schulman 2020, Approximating KL Divergence, k3), in nats a token.
    """
    if apart is None or not len(apart):
        return {}
    gap = apart.astype(np.float64)
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


def require_agreement(apart: Gaps | None, limit: float | None, number: int) -> dict[str, float]:
    """Return `agreement`. Raises a Disagreement if the median of a step is past the limit."""
    measured = agreement(apart)
    if apart is None or limit is None or not measured or measured["mismatch_median"] <= limit:
        return measured
    raise Disagreement(
        error(
            "E0936",
            f"engine and trainer give the same tokens probabilities that differ by a factor of"
            f" {measured['mismatch_median']:.4g} in the median, and `mismatch_limit` is {limit:g}",
            where=f"step {number + 1}",
            notes=[
                f"over {len(apart)} tokens the largest factor is {measured['mismatch_max']:.4g}, and the trainer"
                f" diverges from the engine by {measured['mismatch_kl']:.3g} nats a token",
                "the steps before are saved, and nothing of this one has been applied",
            ],
            help="look for an engine with other weights, precision, temperature or tokenizer; where the factor is"
            " what this precision gives, raise `mismatch_limit` (the run goes on from here) and set"
            " `importance_cap = 2`",
        )
    )


def _gaps(mine: Tensor, theirs: Tensor, batch: TrainBatch) -> Gaps:
    """Return trainer minus engine over the tokens that the engine drew."""
    gaps = mine - theirs
    return (gaps if bool(batch.drawn.all()) else gaps[batch.drawn]).numpy()
