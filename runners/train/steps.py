"""The steps of a stage by its method: what is set up once, what one step does, and the tables it leaves; those of PPO are
in `ppo_steps`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.model import Model
from reodsl.ir.training import Preference, Sft
from runners.clock import now, spent
from runners.draws import drawn
from runners.models.folder import Loaded
from runners.train.preference import preference_step
from runners.train.questions import pairs_of, read_table, traces_of
from runners.train.saved import Row
from runners.train.sft import batch_of, sft_step
from runners.train.update import Learner

Numbers = tuple[Row, Row]
"""A step's metrics, and the seconds that its parts took."""


@dataclass(frozen=True, slots=True)
class Steps:
    """`take(n)` does step n (from 0); a context that gives up processes and memory at its end.

    `facts` are what the artifact should say of the stage once, such as how many questions were left out. `sequences`
    is how many traces or pairs there are to pass over. `keep(n)` leaves on the disk what steps after the first n need
    besides weights and optimizers; it is called before those are saved.
    """

    take: Callable[[int], Numbers]
    facts: Mapping[str, int]
    sequences: int = 0
    write_tables: Callable[[Path, int], None] = lambda folder, steps: None
    closing: tuple[Callable[[], None], ...] = field(default=())
    keep: Callable[[int], None] = lambda steps: None

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Each is closed, whatever goes wrong with another.
        with ExitStack() as stack:
            for close in self.closing:
                stack.callback(close)


def sft_steps(method: Sft, model: Model, job: Job, loaded: Loaded, learner: Learner, seed: int) -> Steps:
    """Steps of next-token training on the traces of the questions."""
    table = read_table(job.inputs["data"])
    traces, left_out = traces_of(table, model.prompt, loaded.tokenizer, method.max_tokens)
    if "trace_prefix" in table.columns:
        _require_a_batch(len(traces), method.batch, "traces", job)
    lengths = tuple(len(trace.prompt) + len(trace.tokens) for trace in traces)

    def take(number: int) -> Numbers:
        began = now()
        chosen = batch_of(lengths, seed, number, method.batch, method.bucket_by_length)
        row = sft_step(learner, [traces[i] for i in chosen], number)
        return row, spent("update", (began, now()))

    return Steps(take, {"traces": len(traces), "left_out_too_long": left_out}, len(traces))


def preference_steps(
    method: Preference,
    model: Model,
    job: Job,
    loaded: Loaded,
    learner: Learner,
    seed: int,
    reference: Learner | None = None,
) -> Steps:
    """Steps of preference training on pairs of responses, against the frozen start where the method has one."""
    table = read_table(job.inputs["data"])
    pairs, left_out = pairs_of(table, model.prompt, loaded.tokenizer, method.max_tokens)
    _require_a_batch(len(pairs), method.batch, "pairs", job)

    def take(number: int) -> Numbers:
        began = now()
        chosen = drawn(seed, number, method.batch, len(pairs))
        row = preference_step(learner, [pairs[i] for i in chosen], method, number, reference)
        return row, spent("update", (began, now()))

    return Steps(take, {"pairs": len(pairs), "left_out_too_long": left_out}, len(pairs))


def _require_a_batch(count: int, batch: int, what: str, job: Job) -> None:
    if count < batch:
        raise problem(
            "E0935",
            f"the pool gives {count} {what}, and a batch takes {batch}",
            where=job.task.id,
            help=f"sample more questions or more responses a question, or set `batch.prompts` to {count} or less",
        )
