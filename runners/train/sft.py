"""Supervised fine-tuning: one optimizer step on a batch of traces of similar lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from runners.draws import drawn, permutation
from runners.seeds import purpose
from runners.train.batch import TrainBatch
from runners.train.sequences import Trace
from runners.train.update import Learner, take_step

_WINDOW = 16
"""Batches that are sorted by length together: enough for batches of one length, few enough to mix within an epoch."""


def batch_of(lengths: tuple[int, ...], seed: int, step: int, batch: int, by_length: bool) -> Sequence[int]:
    """Which traces step `step` learns from; a function of its arguments alone.

    Without `by_length` it is the next `batch` of an endless row of shuffled epochs. With it each epoch is cut into
    batches of similar length, in random order; what does not fill a batch waits for another epoch.
    """
    if not by_length or len(lengths) < batch:
        return drawn(seed, step, batch, len(lengths))
    each = len(lengths) // batch
    return _bucketed(lengths, seed, step // each, batch)[step % each]


@lru_cache(maxsize=2)
def _bucketed(lengths: tuple[int, ...], seed: int, epoch: int, batch: int) -> list[list[int]]:
    order = permutation(purpose(seed, "epoch", epoch), len(lengths))
    order = order[: len(lengths) // batch * batch]
    batches: list[list[int]] = []
    for start in range(0, len(order), _WINDOW * batch):
        window = sorted(order[start : start + _WINDOW * batch].tolist(), key=lambda i: (lengths[i], i))
        batches.extend(window[at : at + batch] for at in range(0, len(window), batch))
    return [batches[i] for i in permutation(purpose(seed, "batches", epoch), len(batches))]


def batch_loss(batch: TrainBatch, logprobs: Tensor) -> Tensor:
    """The weighted sum of minus the log-probabilities."""
    return -(batch.weights * logprobs).sum()


def batch_of_traces(traces: Sequence[Trace]) -> TrainBatch:
    """Traces as a batch; prompts are read and not learnt."""
    return TrainBatch.of([trace.prompt for trace in traces], [trace.tokens for trace in traces])


def sft_step(learner: Learner, traces: Sequence[Trace], number: int) -> dict[str, float]:
    """One step on the mean loss over all trace tokens of the batch."""
    batch = batch_of_traces(traces)
    total = len(batch.weights)
    batch = replace(batch, weights=torch.full_like(batch.weights, 1.0 / total))
    stepped = take_step(learner, batch, batch_loss, 1.0, f"step {number + 1}")
    return {"loss": stepped.loss, "grad_norm": stepped.grad_norm, "tokens": float(total)}
