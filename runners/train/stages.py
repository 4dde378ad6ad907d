"""Run the stages of supervised and preference training on traces and pairs, and what every stage has for its loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import polars as pl
import torch
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.model import Model, Prompt
from reodsl.ir.training import Preference, Sft, Stage
from runners.data.draws import batch_indices, derive_seed, permutation
from runners.machine.clock import now, time_spans
from runners.models.folder import LoadedModel
from runners.models.marks import encode_traces
from runners.rollout.prompts import continuation_tokens, prompt_tokens
from runners.rollout.questions import read_table, repeated_rows
from runners.train.batch import TrainBatch
from runners.train.checkpoint import Row
from runners.train.losses import pair_loss
from runners.train.update import Learner, Loss, optimizer_step


def reference_folder(job: Job) -> Path:
    """Return the folder of the reference model: the teacher's, or that of the checkpoint that the stage started from."""
    return job.inputs.get("teacher", job.inputs["start"]) / "checkpoint"


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and the tokens that are trained after it, the end of sequence included."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def traces_of(table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int) -> tuple[list[Trace], int]:
    """Return prompts with their traces, of at most `longest` tokens together, and how many are longer.

    The end of sequence follows each trace. Raises E0510 if there are no traces, E0927 if none fits.
    """
    if "trace" not in table.columns or table["trace"].null_count() == table.height:
        raise problem(
            "E0510",
            "supervised training needs worked solutions, and the questions have none",
            where="questions.parquet",
            notes=[f"columns: {', '.join(table.columns)}"],
            help='name the column that holds them, as in `columns: columns(trace: "solution")`',
        )
    table = table.filter(pl.col("trace").is_not_null())
    traces = sequences_of(table, "trace", prompt, tokenizer)
    fitting = [trace for trace in traces if len(trace.prompt) + len(trace.tokens) <= longest]
    if not fitting:
        shortest = min(len(trace.prompt) + len(trace.tokens) for trace in traces)
        raise problem(
            "E0927",
            f"no prompt with its trace fits into `max_tokens`, {longest} tokens",
            where="questions.parquet",
            notes=[f"{len(traces)} traces, the shortest has {shortest} tokens with its prompt"],
            help=f"set `max_tokens` to at least {shortest} tokens",
        )
    return fitting, len(traces) - len(fitting)


def sequences_of(table: pl.DataFrame, column: str, prompt: Prompt, tokenizer: Any) -> list[Trace]:
    """Return prompts with the texts of a column, each after its prefix if the table has a column of prefixes.

    The end of sequence follows a text that ended, and every text if the table does not say.
    """
    prompts = prompt_tokens(prompt, tokenizer, table["question"].to_list())
    end = tokenizer.eos_token_id
    prefixes = table[f"{column}_prefix"] if f"{column}_prefix" in table.columns else [""] * table.height
    finished = table[f"{column}_ended"] if f"{column}_ended" in table.columns else [True] * table.height
    sequences = []
    texts = encode_traces(tokenizer, table[column].to_list())
    for tokens, text, prefix, is_finished in zip(prompts, texts, prefixes, finished, strict=True):
        lead = continuation_tokens(tokenizer, prefix) if prefix else ()
        body = (*lead, *text)
        sequences.append(Trace(tokens, body if body[-1:] == (end,) or not is_finished else (*body, end)))
    return sequences


def pairs_of(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int
) -> tuple[list[tuple[Trace, Trace]], int]:
    """Return preferred and rejected sequences of at most `longest` tokens, and how many pairs are longer.

    Raises E0510 if there are no pairs, E0927 if none fits.
    """
    if "preferred" not in table.columns:
        raise problem(
            "E0510",
            "preference training needs pairs of responses, and the data has none",
            where="questions.parquet",
            notes=[f"columns: {', '.join(table.columns)}"],
            help="train on a selection that gives `preferred` and `rejected`",
        )
    sides = [sequences_of(table, role, prompt, tokenizer) for role in ("preferred", "rejected")]
    pairs = list(zip(*sides, strict=True))
    lengths = [max(len(trace.prompt) + len(trace.tokens) for trace in pair) for pair in pairs]
    fitting = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= longest]
    if not fitting:
        raise problem(
            "E0927",
            f"no pair fits into `max_tokens`, {longest} tokens",
            where="questions.parquet",
            notes=[f"{len(pairs)} pairs, the shortest has {min(lengths)} tokens with its prompt"],
            help=f"set `max_tokens` to at least {min(lengths)} tokens",
        )
    return fitting, len(pairs) - len(fitting)


Numbers = tuple[Row, Row]
"""A step's metrics, and the seconds of its phases."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """The settings and objects that every stage is opened with."""

    stage: Stage
    """The stage's settings."""
    model: Model
    """The model's declaration, with its prompt and marks."""
    job: Job
    """The task with its inputs, resources and folders."""
    loaded: LoadedModel
    """The weights that are trained, and their tokenizer."""
    learner: Learner
    """The pass and optimizers of those weights on this process."""
    seed: int
    """The stage's seed, of the run's seed and the stage's index."""
    reference: Learner | None = None
    """The reference model, if the method compares with it."""
    rows: tuple[Row, ...] = ()
    """The metrics of the steps that are done already."""
    loss: Loss | None = None
    """The user's loss, if the method names it."""

    @property
    def steps_done(self) -> int:
        """Return how many steps are done already."""
        return len(self.rows)


class StageRunner:
    """A stage's steps. Leaving the context closes everything that the stage opened, even if closing fails for a part.

    `facts` are written to `train.json`, such as how many questions were left out. `sequences` counts the traces or
    pairs of a pass over the data.
    """

    facts: Mapping[str, int] = {}
    sequences: int = 0

    def __init__(self) -> None:
        self.opened = ExitStack()

    def run_step(self, step: int) -> Numbers:
        """Do a step, counted from 0."""
        raise NotImplementedError

    def save_pending(self, step: int) -> None:
        """Save what the steps after the first `step` need besides weights and optimizers, which are saved next."""

    def write_tables(self, folder: Path, steps: int) -> None:
        """Write the tables of a finished stage."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()


class SftStage(StageRunner):
    """Next-token training on the traces of the questions."""

    def __init__(self, context: StageContext, method: Sft) -> None:
        super().__init__()
        self.context, self.method = context, method
        table = read_table(context.job.inputs["data"])
        prompt, tokenizer = context.model.prompt, context.loaded.tokenizer
        self.traces, left_out = traces_of(table, prompt, tokenizer, method.max_tokens)
        if "trace_prefix" in table.columns:
            _require_batch(len(self.traces), method.batch, "traces", context.job)
        self.lengths = tuple(len(trace.prompt) + len(trace.tokens) for trace in self.traces)
        self.facts = {
            "traces": len(self.traces),
            "left_out_too_long": left_out,
            **repeated_rows(context.job.inputs["data"]),
        }
        self.sequences = len(self.traces)

    def run_step(self, step: int) -> Numbers:
        """Do a step, counted from 0."""
        began, method = now(), self.method
        chosen = draw_traces(self.lengths, self.context.seed, step, method.batch, method.bucket_by_length)
        row = sft_step(self.context.learner, [self.traces[i] for i in chosen], step)
        return row, time_spans("update", (began, now()))


WINDOW_BATCHES = 16
"""Batches that are sorted by length together: enough for batches of equal length, few enough to mix within an epoch."""


def draw_traces(lengths: tuple[int, ...], seed: int, step: int, batch: int, by_length: bool) -> Sequence[int]:
    """Return the indices of the traces that a step trains on; a function of its arguments alone.

    Without `by_length` it is the next `batch` of an endless sequence of shuffled epochs. With it each epoch is cut into
    batches of similar length, in random order; traces that do not fill a batch wait for another epoch.
    """
    if not by_length or len(lengths) < batch:
        return batch_indices(seed, step, batch, len(lengths))
    batches = len(lengths) // batch
    return _bucket_epoch(lengths, seed, step // batches, batch)[step % batches]


@lru_cache(maxsize=2)
def _bucket_epoch(lengths: tuple[int, ...], seed: int, epoch: int, batch: int) -> list[list[int]]:
    """Return an epoch's batches of similar length, as indices of traces, in random order."""
    order = permutation(derive_seed(seed, "epoch", epoch), len(lengths))
    order = order[: len(lengths) // batch * batch]
    batches: list[list[int]] = []
    for start in range(0, len(order), WINDOW_BATCHES * batch):
        window = sorted(order[start : start + WINDOW_BATCHES * batch].tolist(), key=lambda i: (lengths[i], i))
        batches.extend(window[i : i + batch] for i in range(0, len(window), batch))
    return [batches[i] for i in permutation(derive_seed(seed, "batches", epoch), len(batches))]


def batch_loss(batch: TrainBatch, logprobs: Tensor) -> Tensor:
    """Return the weighted sum of minus the log-probabilities.

    Args:
        batch: A micro-batch.
        logprobs: Log-probabilities, [trained tokens].

    Returns:
        The loss, [].
    """
    return -(batch.weights * logprobs).sum()


def batch_of_traces(traces: Sequence[Trace]) -> TrainBatch:
    """Return traces as a batch; prompts are read and not trained."""
    return TrainBatch.of([trace.prompt for trace in traces], [trace.tokens for trace in traces])


def sft_step(learner: Learner, traces: Sequence[Trace], number: int) -> dict[str, float]:
    """Take an optimizer step on the mean loss over all trace tokens of the batch.

    Args:
        learner: The model.
        traces: The batch.
        number: The step, counted from 0.

    Returns:
        `loss` in nats, `grad_norm`, and `tokens`, the number of trained tokens.
    """
    batch = batch_of_traces(traces)
    total = len(batch.weights)
    batch = replace(batch, weights=torch.full_like(batch.weights, 1.0 / total))
    stepped = optimizer_step(learner, batch, batch_loss, 1.0, f"step {number + 1}")
    return {"loss": stepped.loss, "grad_norm": stepped.grad_norm, "tokens": float(total)}


class PreferenceStage(StageRunner):
    """Training on pairs of responses, against the frozen start if the method has a reference model."""

    def __init__(self, context: StageContext, method: Preference) -> None:
        super().__init__()
        self.context, self.method = context, method
        table = read_table(context.job.inputs["data"])
        self.pairs, left_out = pairs_of(
            table, context.model.prompt, context.loaded.tokenizer, method.max_tokens
        )
        _require_batch(len(self.pairs), method.batch, "pairs", context.job)
        self.facts = {
            "pairs": len(self.pairs),
            "left_out_too_long": left_out,
            **repeated_rows(context.job.inputs["data"]),
        }
        self.sequences = len(self.pairs)

    def run_step(self, step: int) -> Numbers:
        """Do a step, counted from 0."""
        began, context = now(), self.context
        pairs = [self.pairs[i] for i in batch_indices(context.seed, step, self.method.batch, len(self.pairs))]
        row = preference_step(context.learner, pairs, self.method, step, context.reference)
        return row, time_spans("update", (began, now()))


Pair = tuple[Trace, Trace]


def preference_step(
    learner: Learner, pairs: Sequence[Pair], method: Preference, number: int, reference: Learner | None = None
) -> dict[str, float]:
    """Take an optimizer step on the mean loss over pairs, and return its metrics.

    The loss depends on a pair through two scores alone: means of log-probabilities if the method is `per_token`, else
    sums, less those of the reference model if there is one. Its derivative by the scores is computed in a pass without
    gradients; a second pass then has that gradient, however pairs fall into micro-batches.

    Args:
        learner: The policy.
        pairs: Preferred and rejected traces.
        method: The settings.
        number: The step, counted from 0.
        reference: The reference model, if the method has one.

    Returns:
        `loss`, `grad_norm`, `margin`, `accuracy` (0 to 1), and `tokens`, the number of trained tokens.
    """
    batch = batch_of_traces([trace for pair in pairs for trace in pair])
    policy = _scores(learner, batch, method.per_token)
    if reference is not None:
        theirs = _scores(reference, batch, method.per_token)
        policy = [mine - other for mine, other in zip(policy, theirs, strict=True)]
    scores = torch.tensor(policy, dtype=torch.float64, requires_grad=True)
    lead = scores[0::2] - scores[1::2]
    loss = pair_loss(lead, method.beta, method.gamma)
    (slopes,) = torch.autograd.grad(loss, scores)
    if method.per_token:
        slopes = slopes / batch.num_trained
    slopes = slopes.float().repeat_interleave(batch.num_trained)

    def linear(batch: TrainBatch, logprobs: Tensor) -> Tensor:
        return (batch.weights * logprobs).sum()

    stepped = optimizer_step(learner, replace(batch, weights=slopes), linear, 1.0, f"step {number + 1}")
    lead = lead.detach()
    return {
        "loss": float(loss.detach()),
        "grad_norm": stepped.grad_norm,
        "margin": float(method.beta * lead.mean() - method.gamma),
        "accuracy": float((lead > 0).double().mean()),
        "tokens": float(batch.num_trained.sum()),
    }


def _scores(learner: Learner, batch: TrainBatch, per_token: bool) -> list[float]:
    """Return the mean, or else the sum, of the log-probabilities of each sequence's tokens."""
    of_tokens = (row.double() for row in learner.score(batch, 1.0).split(batch.num_trained.tolist()))
    return [float(row.mean() if per_token else row.sum()) for row in of_tokens]


def _require_batch(count: int, batch: int, noun: str, job: Job) -> None:
    if count < batch:
        raise problem(
            "E0513",
            f"the pool gives {count} {noun}, and a batch takes {batch}",
            where=job.task.id,
            help=f"sample more questions or more responses a question, or set `batch.prompts` to {count} or less",
        )
