"""A stage of training as its loop runs it, and the stages of supervised and preference training."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.model import Model
from reodsl.ir.training import Preference, Sft, Stage
from runners.clock import now, spent
from runners.draws import drawn
from runners.models.folder import Loaded
from runners.rollout.questions import read_table, repeated_rows
from runners.train.preference import preference_step
from runners.train.saved import Row
from runners.train.sequences import pairs_of, traces_of
from runners.train.sft import batch_of, sft_step
from runners.train.update import Learner

Numbers = tuple[Row, Row]
"""A step's metrics, and the seconds that its parts took."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """The settings and parts that every stage is opened with.

    `begun` steps are done already. `reference` is the frozen start, where the method compares with one.
    """

    stage: Stage
    model: Model
    job: Job
    loaded: Loaded
    learner: Learner
    seed: int
    reference: Learner | None = None
    begun: int = 0


class StageRunner:
    """A stage's steps. Leaving the context closes everything that the stage opened, also where one of them fails to close.

    `facts` are written to `train.json`, such as how many questions were left out. `sequences` counts the traces or pairs
    of a pass.
    """

    facts: Mapping[str, int] = {}
    sequences: int = 0

    def __init__(self) -> None:
        self.opened = ExitStack()

    def take(self, number: int) -> Numbers:
        """Do step `number`, counted from 0."""
        raise NotImplementedError

    def keep(self, done: int) -> None:
        """Save what steps after the first `done` need besides weights and optimizers, which are saved next."""

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
            _require_a_batch(len(self.traces), method.batch, "traces", context.job)
        self.lengths = tuple(len(trace.prompt) + len(trace.tokens) for trace in self.traces)
        self.facts = {
            "traces": len(self.traces),
            "left_out_too_long": left_out,
            **repeated_rows(context.job.inputs["data"]),
        }
        self.sequences = len(self.traces)

    def take(self, number: int) -> Numbers:
        """Do step `number`, counted from 0."""
        began, method = now(), self.method
        chosen = batch_of(self.lengths, self.context.seed, number, method.batch, method.bucket_by_length)
        row = sft_step(self.context.learner, [self.traces[i] for i in chosen], number)
        return row, spent("update", (began, now()))


class PreferenceStage(StageRunner):
    """Training on pairs of responses, against the frozen start where the method has one."""

    def __init__(self, context: StageContext, method: Preference) -> None:
        super().__init__()
        self.context, self.method = context, method
        table = read_table(context.job.inputs["data"])
        self.pairs, left_out = pairs_of(
            table, context.model.prompt, context.loaded.tokenizer, method.max_tokens
        )
        _require_a_batch(len(self.pairs), method.batch, "pairs", context.job)
        self.facts = {
            "pairs": len(self.pairs),
            "left_out_too_long": left_out,
            **repeated_rows(context.job.inputs["data"]),
        }
        self.sequences = len(self.pairs)

    def take(self, number: int) -> Numbers:
        """Do step `number`, counted from 0."""
        began, context = now(), self.context
        pairs = [self.pairs[i] for i in drawn(context.seed, number, self.method.batch, len(self.pairs))]
        row = preference_step(context.learner, pairs, self.method, number, context.reference)
        return row, spent("update", (began, now()))


def _require_a_batch(count: int, batch: int, what: str, job: Job) -> None:
    if count < batch:
        raise problem(
            "E0935",
            f"the pool gives {count} {what}, and a batch takes {batch}",
            where=job.task.id,
            help=f"sample more questions or more responses a question, or set `batch.prompts` to {count} or less",
        )
