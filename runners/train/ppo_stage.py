"""A stage of PPO: sample, force, grade, gather, hand over weights, update, keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import torch

from reodsl.graph.job import Job
from reodsl.ir.data import Python
from reodsl.ir.training import Ppo
from reodsl.store.files import sync
from runners.answers import thinking_of
from runners.clock import Moment, now, spent
from runners.conversations import Talk, open_talk, require_tools
from runners.draws import drawn
from runners.engine.open import open_engine
from runners.engine.protocol import Weights
from runners.engine.versions import PLACE
from runners.own import open_function
from runners.prompts import stop_tokens
from runners.rollout.ahead import GradeAhead
from runners.rollout.generator import Generator, forced_length, sampling_of
from runners.rollout.grader import Grader, grade
from runners.rollout.wordings import Wordings, longest_prefix
from runners.train.beside import Beside
from runners.train.gather import ROLLOUTS, Gathered, gather
from runners.train.metrics import join_parquet, write_parquet
from runners.train.pool import Pool, load_pool
from runners.train.ppo import update
from runners.train.rollouts import GradedStep, RolloutSampler, sample_step
from runners.train.segments import Flow, sample_segments
from runners.train.spread import await_value, weights_of
from runners.train.stage import Numbers, StageContext, StageRunner
from runners.train.tracks import Tracks
from runners.train.update import Learner
from runners.train.waiting import Prepared, keep_waiting, load_waiting
from runners.verify import open_verifier

LOADED = "the engine has the weights"
"""The first process shares this when others may go on."""


class PpoStage(StageRunner):
    """A stage of PPO on the process that generates. Step n learns from rollouts of the weights of step n - `lag`."""

    def __init__(self, context: StageContext, method: Ppo) -> None:
        super().__init__()
        self.context, self.learner, self.job = context, context.learner, context.job
        if not method.reward.name:
            reward = method.reward.model_copy(update={"name": self.job.task.arm or ""})
            method = method.model_copy(update={"reward": reward})
        self.method, self.beside = method, method.lag > 0 and _beside(self.job)
        self.rollout_files = self.job.work / "rollouts"
        self.rollout_files.mkdir(parents=True, exist_ok=True)
        left = load_waiting(self.job.work / "waiting", context.begun) if method.lag else {}
        self.pool = load_pool(method, context.model, self.job, context.loaded.tokenizer, context.seed)
        self.facts = self.pool.facts
        with self.opened as opening:
            self.sampler = self._open_sampler()
            self.tracks = Tracks(
                method, self.sampler, self.pool.questions, self._file, self.job.work / "monitor"
            )
            for number, one in left.items():
                self.tracks.keep(number, one.gathered.table)
            self.steps: Beside[Prepared] = Beside(self._prepare, left, self.beside)
            opening.callback(self.steps.close)
            self.opened = opening.pop_all()

    def take(self, number: int) -> Numbers:
        """Hand over weights, sample the steps that are due, update, and write the step's rollouts."""
        context, lag, began = self.context, self.method.lag, now()
        if number > context.begun:
            self.steps.wait()
            self.engine.load_weights(_weights(self.learner, self.beside), number)
        loaded = now()
        self.steps.begin(range(number, min(number + lag + 1, context.stage.steps)))
        if not self.beside:
            self.engine.release()
        asked = now()
        gathered = self.steps.take(number).gathered
        waited = now()
        batch = self.learner.ranks.share(gathered.batch)
        row = {**gathered.row, **(_ages(gathered.table, number) if lag else {})}
        row |= update(
            self.learner, batch, self.method, context.seed, number, _same_numbers(context), context.reference
        )
        write_parquet(gathered.table, self._file(number))
        # It is on the disk before any standing counts this step as done.
        sync(self._file(number))
        # With a lag, the next step goes on from what this one left open.
        self.steps.forget(number if lag else number + 1)
        return row, self._seconds(gathered, (began, loaded), (asked, waited), (waited, now()))

    def keep(self, done: int) -> None:
        """Save the batches that wait for their step."""
        if self.method.lag:
            numbers = range(done, min(done + self.method.lag, self.context.stage.steps))
            keep_waiting(
                self.job.work / "waiting", done, {number: self.steps.take(number) for number in numbers}
            )

    def write_tables(self, folder: Path, steps: int) -> None:
        """Write `rollouts.parquet` and `monitor.parquet`."""
        join_parquet([self._file(number) for number in range(steps)], ROLLOUTS, folder / "rollouts.parquet")
        self.tracks.write_table(folder, steps)

    def _prepare(self, number: int, before: Prepared | None) -> Prepared:
        """Return a step's batch: sample, force and grade, with segments from what the step before left open."""
        flow = before.flow if before is not None else Flow()
        sampler, row, seconds = self.tracks.at(number)
        questions, segment = self.pool.questions, self.method.segment

        def sample(draw: int) -> GradedStep:
            nonlocal flow
            if segment is None:
                return sample_step(sampler, [questions[i] for i in self._draw(draw)], draw)
            graded, flow = sample_segments(sampler, questions, self._draw, segment, flow)
            return graded

        gathered = gather(sample, self.method, number)
        self.tracks.keep(number, gathered.table)
        gathered = replace(gathered, row={**gathered.row, **row}, seconds={**gathered.seconds, **seconds})
        return Prepared(gathered, flow)

    def _draw(self, number: int) -> Sequence[int]:
        return drawn(self.context.seed, number, self.method.batch.prompts, len(self.pool.questions))

    def _file(self, number: int) -> Path:
        return self.rollout_files / f"{number:08d}.parquet"

    def _seconds(
        self, gathered: Gathered, handed: tuple[Moment, Moment], waited: tuple[Moment, Moment], updated: Any
    ) -> dict[str, float]:
        if not self.method.lag:
            return {**gathered.seconds, **spent("update", handed, updated)}
        seconds = {**gathered.seconds, **spent("update", updated), **spent("wait", waited)}
        if self.beside:
            # Processor time of the two threads cannot be parted.
            seconds = {name: value for name, value in seconds.items() if name.startswith("seconds_")}
        return seconds

    def _open_sampler(self) -> RolloutSampler:
        """Open the engine with the learner's weights, the verifier, own functions and tools."""
        context, method, job, grading = self.context, self.method, self.job, self.context.stage.data.grading
        tokenizer, opening = context.loaded.tokenizer, self.opened
        stop = stop_tokens(tokenizer, job.inputs["start"] / "checkpoint")
        functions = {}
        for term in method.reward.terms:
            python = Python(function=term.function, **term.limits)
            functions[term.function] = open_function(python, "reward", job.folder, job.resources)
            opening.callback(functions[term.function].close)
        talk = _open_talk(context, method, stop, self.pool)
        if talk is not None:
            opening.callback(talk.function.close)
        self.engine = open_engine(
            job.inputs["start"] / "checkpoint",
            job.resources,
            _longest(context, method),
            job.work / PLACE,
            None if job.resources.apart else self.learner.growth,
            context.model.precision,
        )
        opening.callback(self.engine.close)
        # Servers take minutes to start, and others wait less than that inside a collective.
        self.learner.ranks.wait()
        self.engine.load_weights(_weights(self.learner, self.beside), context.begun)
        self.learner.ranks.share(LOADED)
        verifier = open_verifier(grading.verifier, grading.tolerance, job.folder, job.resources, job.work)
        opening.callback(verifier.close)
        grader = Grader(
            verifier,
            tokenizer,
            stop,
            grading.answer,
            method.forcing,
            thinking_of(context.model, grading),
            prefixes=True,
        )
        ahead = GradeAhead(lambda rollouts: grade(rollouts, lambda _: grader))
        opening.callback(ahead.close, drop=True)
        sampling = sampling_of(method.rollout, stop, logprobs=True)
        return RolloutSampler(
            generator=Generator(self.engine, tokenizer, sampling, method.forcing),
            grader=grader,
            ahead=ahead,
            rollouts=method.batch.rollouts,
            reward=method.reward,
            places=self.pool.places,
            own_places=self.pool.own_places,
            references=self.pool.references,
            seed=context.seed,
            wordings=Wordings.of(method, context.model, tokenizer, context.seed),
            functions=functions,
            talk=talk,
        )


class PpoFollower(StageRunner):
    """A stage of PPO on a process that learns from what the first one generates."""

    def __init__(self, context: StageContext, method: Ppo) -> None:
        super().__init__()
        self.context, self.method = context, method
        context.learner.ranks.wait()
        await_value(context.learner)

    def take(self, number: int) -> Numbers:
        """Take part in handing over weights until the batch comes, then in the update."""
        context = self.context
        batch = await_value(context.learner)
        same = _same_numbers(context)
        return update(context.learner, batch, self.method, context.seed, number, same, context.reference), {}


def _same_numbers(context: StageContext) -> bool:
    """Return whether the engine computes the trainer's log-probabilities. In bfloat16 the two round different sums."""
    return (
        context.job.resources.engine == "embedded"
        and context.learner.precision == torch.float32
        and context.model.precision != "bfloat16"
    )


def _beside(job: Job) -> bool:
    """Return whether responses can be made while the trainer works: on other devices, or on other cores."""
    embedded = job.resources.engine == "embedded"
    return job.resources.device == "cpu" if embedded else job.resources.apart


def _weights(learner: Learner, beside: bool) -> Weights:
    """Return the learner's weights for an engine: a copy where the engine reads them while the learner changes its own."""
    weights = weights_of(learner)
    if beside and isinstance(weights, dict):
        return {name: value.detach().clone() for name, value in weights.items()}
    return weights


def _ages(table: pl.DataFrame, number: int) -> dict[str, float]:
    """Return the age in steps of the oldest weights of a response: the mean and the largest."""
    ages = number - table["weight_versions"].list.min()
    return {"lag": float(ages.mean()), "lag_max": float(ages.max())}  # type: ignore[arg-type]


def _longest(context: StageContext, method: Ppo) -> int | None:
    """Return the most tokens of a sequence, or None for the model's context: tools write tokens of their own."""
    tools, tokenizer = context.stage.data.grading.tools, context.loaded.tokenizer
    if context.job.resources.engine == "embedded" or tools is not None:
        return None
    prompt = method.max_prompt + longest_prefix(method.wordings, tokenizer)
    return prompt + method.rollout.max_tokens + forced_length(method.forcing, tokenizer)


def _open_talk(context: StageContext, method: Ppo, stop: tuple[int, ...], pool: Pool) -> Talk | None:
    """Open the tools that responses may call. Raises E0750 where questions name tools that the data does not offer."""
    grading, tokenizer, job = context.stage.data.grading, context.loaded.tokenizer, context.job
    require_tools(grading, (question.meta for question in pool.questions))
    if grading.tools is None:
        return None
    longest = context.loaded.model.config.max_position_embeddings - forced_length(method.forcing, tokenizer)
    return open_talk(grading.tools, context.model, tokenizer, stop, longest, job.folder, job.resources)
