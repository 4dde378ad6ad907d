"""The stages of supervised and preference training, on traces and pairs, and the base class of all stages."""

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
from runners.train.own_loss import UserLoss
from runners.train.update import Learner, optimizer_step


def reference_folder(job: Job) -> Path:
    """Return the checkpoint of the reference model: the teacher, or else the checkpoint that the stage started from."""
    return job.inputs.get("teacher", job.inputs["start"]) / "checkpoint"


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and the tokens to train after it, which end with the end-of-sequence token if the text is complete."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def traces_of(table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int) -> tuple[list[Trace], int]:
    """Return the traces of a table that have at most `longest` tokens, and the number of traces that are longer.

    A trace is a question's prompt with a worked solution. Rows without a solution are skipped, and not counted.

    Args:
        table: The questions, with the column `trace`.
        prompt: The template of prompts.
        tokenizer: The model's tokenizer.
        longest: The largest number of tokens of a prompt with its trace.

    Raises:
        Problem: E0510, if the table has no traces; E0927, if no trace fits.
    """
    if "trace" not in table.columns or table["trace"].null_count() == table.height:
        raise problem(
            "E0510",
            "supervised training needs worked solutions, and the questions have none",
            where="questions.parquet",
            notes=[f"columns: {', '.join(table.columns)}"],
            help='name the column of worked solutions, as in `columns: columns(trace: "solution")`',
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
    """Return the prompts of a table with the texts of a column as the tokens to train on.

    If the table has a column `<column>_prefix`, its text comes before the text and is trained too. The end-of-sequence
    token is added if the text does not end in it. A text that the column `<column>_ended` calls incomplete gets none.

    Args:
        table: The questions and texts.
        column: The column of texts.
        prompt: The template of prompts.
        tokenizer: The model's tokenizer.
    """
    prompts = prompt_tokens(prompt, tokenizer, table["question"].to_list())
    end = tokenizer.eos_token_id
    prefixes = table[f"{column}_prefix"] if f"{column}_prefix" in table.columns else [""] * table.height
    finished = table[f"{column}_ended"] if f"{column}_ended" in table.columns else [True] * table.height
    sequences = []
    texts = encode_traces(tokenizer, table[column].to_list())
    for tokens, text, prefix, is_finished in zip(prompts, texts, prefixes, finished, strict=True):
        prefix_ids = continuation_tokens(tokenizer, prefix) if prefix else ()
        ids = (*prefix_ids, *text)
        sequences.append(Trace(tokens, ids if ids[-1:] == (end,) or not is_finished else (*ids, end)))
    return sequences


def pairs_of(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, max_tokens: int
) -> tuple[list[tuple[Trace, Trace]], int]:
    """Return the pairs of preferred and rejected sequences that fit into `max_tokens`, and how many do not fit.

    Args:
        table: The questions, with the columns `preferred` and `rejected`.
        prompt: The template of prompts.
        tokenizer: The model's tokenizer.
        max_tokens: The largest number of tokens of a prompt with a response.

    Raises:
        Problem: E0510, if the table has no pairs; E0927, if no pair fits.
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
    fitting = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= max_tokens]
    if not fitting:
        raise problem(
            "E0927",
            f"no pair fits into `max_tokens`, {max_tokens} tokens",
            where="questions.parquet",
            notes=[f"{len(pairs)} pairs, the shortest has {min(lengths)} tokens with its prompt"],
            help=f"set `max_tokens` to at least {min(lengths)} tokens",
        )
    return fitting, len(pairs) - len(fitting)


Numbers = tuple[Row, Row]
"""A step's metrics, and the seconds of its phases."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """The settings and objects that every stage is built with."""

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
    loss: UserLoss | None = None
    """The user's loss, if the method names it."""

    @property
    def steps_done(self) -> int:
        """Return how many steps are finished already."""
        return len(self.rows)


class StageRunner:
    """The steps of a stage on this process; leaving its context closes all resources that the stage opened.

    `facts` are counts for `train.json`, such as the number of questions that were left out. `num_examples` is the number
    of traces or pairs in a pass over the data.
    """

    facts: Mapping[str, int] = {}
    num_examples: int = 0

    def __init__(self) -> None:
        self.opened = ExitStack()

    def run_step(self, step: int) -> Numbers:
        """Run a step, counted from 0, and return its metrics and the seconds of its phases."""
        raise NotImplementedError

    def save_pending(self, step: int) -> None:
        """Save data that later steps need besides weights and optimizers, when the first `step` steps are finished."""

    def write_tables(self, folder: Path, steps: int) -> None:
        """Write the tables of a finished stage of `steps` steps into a folder."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()


class SftStage(StageRunner):
    """Next-token training on the traces of the questions."""

    def __init__(self, context: StageContext, method: Sft) -> None:
        """Load the traces of the stage's questions.

        Raises:
            Problem: E0510 or E0927, as `traces_of`; E0513, if traces with prefixes do not fill a batch.
        """
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
        self.num_examples = len(self.traces)

    def run_step(self, step: int) -> Numbers:
        """Train on the step's batch of traces, and return its metrics and seconds."""
        start, method = now(), self.method
        indices = draw_traces(self.lengths, self.context.seed, step, method.batch, method.bucket_by_length)
        row = sft_step(self.context.learner, [self.traces[i] for i in indices], step)
        return row, time_spans("update", (start, now()))


WINDOW_BATCHES = 16
"""The number of batches whose traces are sorted by length together. More would give batches of more similar length, fewer
would mix traces better within an epoch."""


def draw_traces(lengths: tuple[int, ...], seed: int, step: int, size: int, by_length: bool) -> Sequence[int]:
    """Return the indices of the traces that a step trains on; equal arguments give equal indices.

    Without `by_length`, or if the traces do not fill a batch, steps take successive batches of an endless sequence of
    shuffled epochs. With `by_length`, each epoch is divided into batches of traces of similar length, in random order.
    An epoch then leaves out as many random traces as do not fill a last batch.

    Args:
        lengths: Tokens of each trace.
        seed: The stage's seed.
        step: The step, counted from 0.
        size: Traces of a batch.
        by_length: Whether a batch has traces of similar length.
    """
    if not by_length or len(lengths) < size:
        return batch_indices(seed, step, size, len(lengths))
    batches = len(lengths) // size
    return _bucket_epoch(lengths, seed, step // batches, size)[step % batches]


@lru_cache(maxsize=2)
def _bucket_epoch(lengths: tuple[int, ...], seed: int, epoch: int, size: int) -> list[list[int]]:
    """Return the batches of an epoch, each with traces of similar length, in random order; see `draw_traces`.

    Args:
        lengths: Tokens of each trace.
        seed: The stage's seed.
        epoch: The number of the epoch, from 0.
        size: Traces of a batch.

    Returns:
        For each batch, the indices of its traces.
    """
    order = permutation(derive_seed(seed, "epoch", epoch), len(lengths))
    order = order[: len(lengths) // size * size]
    batches: list[list[int]] = []
    for start in range(0, len(order), WINDOW_BATCHES * size):
        window = sorted(order[start : start + WINDOW_BATCHES * size].tolist(), key=lambda i: (lengths[i], i))
        batches.extend(window[i : i + size] for i in range(0, len(window), size))
    return [batches[i] for i in permutation(derive_seed(seed, "batches", epoch), len(batches))]


def batch_loss(batch: TrainBatch, logprobs: Tensor) -> Tensor:
    """Return the weighted negative log-likelihood of a micro-batch.

    Args:
        batch: A micro-batch.
        logprobs: Log-probabilities, [trained tokens].

    Returns:
        The sum of -weight * log-probability, [].
    """
    return -(batch.weights * logprobs).sum()


def batch_of_traces(traces: Sequence[Trace]) -> TrainBatch:
    """Return traces as a batch; the model reads prompts, and is trained on the tokens after them."""
    return TrainBatch.of([trace.prompt for trace in traces], [trace.tokens for trace in traces])


def sft_step(learner: Learner, traces: Sequence[Trace], step: int) -> dict[str, float]:
    """Run an optimizer step on the mean loss over all trained tokens of the batch.

    Args:
        learner: The model.
        traces: The batch.
        step: The step, counted from 0.

    Returns:
        `loss` in nats, `grad_norm`, and `tokens`, the number of trained tokens.
    """
    batch = batch_of_traces(traces)
    total = len(batch.weights)
    batch = replace(batch, weights=torch.full_like(batch.weights, 1.0 / total))
    result = optimizer_step(learner, batch, batch_loss, 1.0, f"step {step + 1}")
    return {"loss": result.loss, "grad_norm": result.grad_norm, "tokens": float(total)}


class PreferenceStage(StageRunner):
    """Training on pairs of responses, relative to a frozen reference model if the method has a reference model."""

    def __init__(self, context: StageContext, method: Preference) -> None:
        """Load the pairs of the stage's questions.

        Raises:
            Problem: E0510 or E0927, as `pairs_of`; E0513, if the pairs do not fill a batch.
        """
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
        self.num_examples = len(self.pairs)

    def run_step(self, step: int) -> Numbers:
        """Train on the step's batch of pairs, and return its metrics and seconds."""
        start, context = now(), self.context
        pairs = [self.pairs[i] for i in batch_indices(context.seed, step, self.method.batch, len(self.pairs))]
        row = preference_step(context.learner, pairs, self.method, step, context.reference)
        return row, time_spans("update", (start, now()))


Pair = tuple[Trace, Trace]


def preference_step(
    learner: Learner, pairs: Sequence[Pair], method: Preference, step: int, reference: Learner | None = None
) -> dict[str, float]:
    """Run an optimizer step on the mean loss over pairs.

    The score of a trace is the mean of its log-probabilities if `method.per_token` is set, else their sum. If there is a
    reference model, its score is subtracted. The loss depends on the difference of a pair's two scores.

    A first pass without gradients computes the scores and the loss's derivatives with respect to them. A second pass
    sums log-probabilities with these derivatives as weights, which gives the loss's gradient. The two traces of a pair
    may therefore be in different micro-batches.

    Args:
        learner: The policy.
        pairs: Pairs of a preferred and a rejected trace.
        method: The settings.
        step: The step, counted from 0.
        reference: The reference model, if the method has a reference model.

    Returns:
        `loss`; `grad_norm`; `margin`, the mean of `beta` times the difference of scores minus `gamma`; `accuracy`, the
        share of pairs whose preferred trace has the higher score; and `tokens`, the number of trained tokens.
    """
    batch = batch_of_traces([trace for pair in pairs for trace in pair])
    policy_scores = _scores(learner, batch, method.per_token)
    if reference is not None:
        reference_scores = _scores(reference, batch, method.per_token)
        policy_scores = [score - other for score, other in zip(policy_scores, reference_scores, strict=True)]
    scores = torch.tensor(policy_scores, dtype=torch.float64, requires_grad=True)
    lead = scores[0::2] - scores[1::2]
    loss = pair_loss(lead, method.beta, method.gamma)
    (gradient,) = torch.autograd.grad(loss, scores)
    if method.per_token:
        gradient = gradient / batch.num_trained
    gradient = gradient.float().repeat_interleave(batch.num_trained)
    result = optimizer_step(learner, replace(batch, weights=-gradient), batch_loss, 1.0, f"step {step + 1}")
    lead = lead.detach()
    return {
        "loss": float(loss.detach()),
        "grad_norm": result.grad_norm,
        "margin": float(method.beta * lead.mean() - method.gamma),
        "accuracy": float((lead > 0).double().mean()),
        "tokens": float(batch.num_trained.sum()),
    }


def _scores(learner: Learner, batch: TrainBatch, per_token: bool) -> list[float]:
    """Return a score for each sequence of a batch under a model.

    Args:
        learner: The model.
        batch: The sequences.
        per_token: Whether a score is the mean of the log-probabilities of the trained tokens, else their sum.
    """
    rows = (row.double() for row in learner.score(batch, 1.0).split(batch.num_trained.tolist()))
    return [float(row.mean() if per_token else row.sum()) for row in rows]


def _require_batch(count: int, batch_size: int, noun: str, job: Job) -> None:
    """Raise E0513 if the data has fewer traces or pairs than a batch takes.

    Args:
        count: The number of traces or pairs.
        batch_size: The number of traces or pairs of a batch.
        noun: `traces` or `pairs`, for the message.
        job: The job, for the message.
    """
    if count < batch_size:
        raise problem(
            "E0513",
            f"the pool gives {count} {noun}, and a batch takes {batch_size}",
            where=job.task.id,
            help=f"sample more questions or more responses per question, or set `batch.prompts` to {count} or less",
        )
