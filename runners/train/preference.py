"""Preference training: one optimizer step on a loss over pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from reodsl.ir.training import Preference
from runners.train.batch import TrainBatch
from runners.train.preference_loss import pair_loss
from runners.train.sequences import Trace
from runners.train.sft import batch_of_traces
from runners.train.update import Learner, take_step

Pair = tuple[Trace, Trace]


def preference_step(
    learner: Learner,
    pairs: Sequence[Pair],
    method: Preference,
    number: int,
    reference: Learner | None = None,
) -> dict[str, float]:
    """One step on the mean loss over pairs; its numbers for `metrics.parquet`.

    The loss depends on a pair through two scores alone: means of log-probabilities where the method has them `per_token`,
    else sums, less those of the `reference` where there is one. Its derivative by these is found in a pass without
    gradients; a second pass then has that gradient, however pairs fall into micro-batches.
    """
    batch = batch_of_traces([trace for pair in pairs for trace in pair])
    policy = _scores(learner, batch, method.per_token)
    if reference is not None:
        theirs = _scores(reference, batch, method.per_token)
        policy = [mine - other for mine, other in zip(policy, theirs, strict=True)]
    scores = torch.tensor(policy, dtype=torch.float64, requires_grad=True)
    lead = scores[0::2] - scores[1::2]
    loss = pair_loss(lead, method.beta, method.gamma, method.link)
    (slopes,) = torch.autograd.grad(loss, scores)
    if method.per_token:
        slopes = slopes / batch.trained
    slopes = slopes.float().repeat_interleave(batch.trained)

    def linear(batch: TrainBatch, logprobs: Tensor) -> Tensor:
        return (batch.weights * logprobs).sum()

    stepped = take_step(learner, replace(batch, weights=slopes), linear, 1.0, f"step {number + 1}")
    lead = lead.detach()
    return {
        "loss": float(loss.detach()),
        "grad_norm": stepped.grad_norm,
        "margin": float(method.beta * lead.mean() - method.gamma),
        "accuracy": float((lead > 0).double().mean()),
        "tokens": float(batch.trained.sum()),
    }


def _scores(learner: Learner, batch: TrainBatch, per_token: bool) -> list[float]:
    """The mean, or else the sum, of the log-probabilities of each sequence's tokens."""
    of_tokens = (part.double() for part in learner.score(batch, 1.0).split(batch.trained.tolist()))
    return [float(part.mean() if per_token else part.sum()) for part in of_tokens]
