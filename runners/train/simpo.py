"""Preference training: pairs and a step's number in, one optimizer step on SimPO's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from reodsl.ir.training import Simpo
from runners.train.batch import Batch
from runners.train.preference_loss import simpo_loss
from runners.train.questions import Trace
from runners.train.sft import batch_of_traces
from runners.train.update import Learner, take_step

Pair = tuple[Trace, Trace]


def simpo_step(learner: Learner, pairs: Sequence[Pair], method: Simpo, number: int) -> dict[str, float]:
    """One step on the mean loss over pairs; its numbers for `metrics.parquet`.

    The loss depends on a pair through two means of log-probabilities alone. Its derivative by these is found in a pass
    without gradients; a second pass then has that gradient, however pairs fall into micro-batches.
    """
    batch = batch_of_traces([trace for pair in pairs for trace in pair])
    means = torch.tensor(_mean_logprobs(learner, batch), dtype=torch.float64, requires_grad=True)
    ones = torch.ones(len(pairs), dtype=torch.float64)
    loss = simpo_loss(means[0::2], ones, means[1::2], ones, method.beta, method.gamma)
    (slopes,) = torch.autograd.grad(loss, means)
    slopes = (slopes / batch.trained).float().repeat_interleave(batch.trained)

    def linear(batch: Batch, logprobs: Tensor) -> Tensor:
        return (batch.weights * logprobs).sum()

    stepped = take_step(learner, replace(batch, weights=slopes), linear, 1.0, f"step {number + 1}")
    margin = (means[0::2] - means[1::2]).detach()
    return {
        "loss": float(loss.detach()),
        "grad_norm": stepped.grad_norm,
        "margin": float(method.beta * margin.mean() - method.gamma),
        "accuracy": float((margin > 0).double().mean()),
        "tokens": float(batch.trained.sum()),
    }


def _mean_logprobs(learner: Learner, batch: Batch) -> list[float]:
    """The mean log-probability of each sequence's tokens."""
    scores = learner.score(batch, 1.0).split(batch.trained.tolist())
    return [float(own.double().mean()) for own in scores]
