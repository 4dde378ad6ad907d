"""A stage of PPO: its questions, and its steps, which load weights into the engine, sample, grade, score and update."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.data import Python
from reodsl.ir.model import Model
from reodsl.ir.reward import Exits, QuestionBudgets, Reward, Steps
from reodsl.ir.training import Ppo
from reodsl.store.files import sync
from reodsl.store.manifest import PLACE
from runners.data.draws import batch_indices, questions_seen
from runners.engine.open import open_engine
from runners.engine.protocol import Engine
from runners.grade import open_verifier
from runners.machine.clock import Moment, now, time_spans
from runners.models.folder import load_config
from runners.own.function import UserFunction, open_function
from runners.rewards.inputs import budget_places, question_places
from runners.rollout.answers import marks_of, thinking_of
from runners.rollout.grader import Generator, Grader, GradingQueue, forced_length, grade, sampling_of
from runners.rollout.phases import Phases
from runners.rollout.prompts import stop_tokens
from runners.rollout.questions import (
    PromptedQuestion,
    Reference,
    Wordings,
    choose_wording,
    fitting_questions,
    list_readers,
    longest_prefix,
    read_references,
    read_table,
    repeated_rows,
    require_numbers,
)
from runners.train.advantages import TRIAL_GROUPS, AdvantageFunction
from runners.train.batch import TrainBatch, broadcast_batch
from runners.train.crew import Crew
from runners.train.gather import StepData, make_step, rollouts_schema
from runners.train.likelihood import require_truths
from runners.train.losses import step_numbers
from runners.train.metrics import join_parquet, write_parquet
from runners.train.ppo import update
from runners.train.rollouts import GradedStep, RolloutSampler
from runners.train.stages import Numbers, StageContext, StageRunner, reference_folder
from runners.train.step_queue import StepQueue, load_waiting, save_waiting
from runners.train.tracks import Tracks


@dataclass(frozen=True, slots=True)
class StageQuestions:
    """The questions of a stage, the splits of their responses in tokens, and the starting model's samples.

    Splits are the positions at which a response is divided. All questions have `shared_splits`. If `shared_splits` is
    None, each question has its splits in `question_splits`, or the splits depend on each response. `facts` are counts
    for `train.json`.
    """

    questions: list[PromptedQuestion]
    shared_splits: tuple[int, ...] | None
    question_splits: dict[str, tuple[int, ...]]
    references: dict[str, Reference]
    facts: dict[str, int]


def load_pool(method: Ppo, model: Model, job: Job, tokenizer: Any, seed: int) -> StageQuestions:
    """Load the questions that a stage can train on, with their splits and reference samples.

    A question is left out if its prompt is too long, or if splits are budgets by question and it has no budget. Only the
    questions that the stage will draw are checked for reference samples.

    Args:
        method: The settings.
        model: The model's declaration, with its prompt.
        job: The job of the stage.
        tokenizer: The model's tokenizer.
        seed: The stage's seed.

    Raises:
        Problem: E0922, if a question lacks a number that the method reads; E0927, if no prompt fits; E0505, if the
            reference samples of questions differ in number; E0405, if no question has a budget.
    """
    table = read_table(job.inputs["data"])
    questions, too_long = fitting_questions(table, model.prompt, tokenizer, method.max_prompt)
    require_numbers(list_readers(method), questions)
    shared_splits, question_splits = _load_splits(method.reward, job, method.rollout.max_tokens, questions)
    num_fitting = len(questions)
    if shared_splits is None and not isinstance(method.reward.splits, (Steps, Exits)):
        questions = [question for question in questions if question.id in question_splits]
    folder = job.inputs.get("reference")
    references = {} if folder is None else read_references(folder, method.reference_samples)
    draws = job.task.work["stage"].steps * (1 + method.resample)
    used = questions_seen(seed, draws, method.batch.prompts, len(questions))
    _require_questions([questions[i] for i in used], references, job)
    facts = {
        "questions": len(questions),
        "left_out_too_long": too_long,
        "left_out_without_budget": num_fitting - len(questions),
        **repeated_rows(job.inputs["data"]),
        **_count_wordings(method, questions, references, job.task.work["seed"]),
    }
    return StageQuestions(questions, shared_splits, question_splits, references, facts)


def _count_wordings(
    method: Ppo, questions: Sequence[PromptedQuestion], references: Mapping[str, Reference], seed: int
) -> dict[str, int]:
    """Return how many questions get each wording, as counts for `train.json`.

    The result is empty if the wording does not depend on the question but, e.g., on the rollout.

    Args:
        method: The settings, with the wordings.
        questions: The questions that can be trained on.
        references: The reference samples by question id. If it is not empty, questions without samples are not counted.
        seed: The task's seed.
    """
    known_questions = [question for question in questions if not references or question.id in references]
    modes = [choose_wording(method.wordings, references, seed, question) for question in known_questions]
    counts = Counter(mode for mode in modes if mode is not None)
    return {f"asked_mode_{mode}": counts[mode] for mode in range(len(method.wordings)) if counts}


def _load_splits(
    reward: Reward, job: Job, max_tokens: int, questions: Sequence[PromptedQuestion]
) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Return the splits: the positions, in tokens, at which responses are divided into sections.

    Args:
        reward: The reward.
        job: The job of the stage, perhaps with computed budgets among its inputs.
        max_tokens: The largest number of tokens of a response.
        questions: The questions.

    Returns:
        The splits that all questions share, or None; and the splits of each question by its id, or an empty dict. If
        splits depend on each response, the result is None and an empty dict. Without splits in the reward, all questions
        share one split, at `max_tokens`.
    """
    split = reward.splits
    if split is None:
        return (max_tokens,), {}
    found_budgets = (
        json.loads((job.inputs["budgets"] / "budgets.json").read_text("utf-8"))
        if "budgets" in job.inputs
        else None
    )
    if isinstance(split, QuestionBudgets):
        return None, dict(question_places(split, found_budgets, [question.id for question in questions]))
    return budget_places(split, found_budgets), {}


def _require_questions(questions: list[PromptedQuestion], references: dict[str, Reference], job: Job) -> None:
    """Check that questions exist, and have equally many reference samples.

    Args:
        questions: The questions that the stage will draw.
        references: The reference samples by question id; empty if the method reads no samples.
        job: The job of the stage, for messages.

    Raises:
        Problem: E0405, if there is no question; E0505, if the numbers of reference samples differ or are 0.
    """
    if not questions:
        raise problem(
            "E0405",
            "no question can be trained on, because none has a budget",
            where=job.task.id,
            help="train on the questions that the budgets were found for, or keep unsolved questions: `unsolved = l_max`",
        )
    counts = (
        {len(references[q.id].lengths) if q.id in references else 0 for q in questions} if references else {1}
    )
    if len(counts) > 1 or 0 in counts:
        raise problem(
            "E0505",
            "questions have different numbers of reference samples",
            where="samples.parquet",
            notes=[f"samples per question: {', '.join(str(count) for count in sorted(counts))}"],
            help="sample the same number of responses to every training question",
        )


class PpoStage(StageRunner):
    """A stage of PPO on rank 0, which samples, grades, scores and updates.

    With `lag`, step n trains on rollouts that were sampled with the weights of step n - `lag`.
    """

    def __init__(self, context: StageContext, method: Ppo) -> None:
        """Load the questions, open the engine with the policy's weights, and restore the state of an earlier attempt.

        The state is the values of tracks, and with `lag` the steps that were sampled but not yet trained on. If opening
        fails, all that was opened is closed.

        Args:
            context: The settings and objects of the stage.
            method: The settings of PPO.
        """
        super().__init__()
        self.context, self.learner, self.job = context, context.learner, context.job
        self.crew = Crew(self.learner, context.reference)
        if not method.reward.name:
            reward = method.reward.model_copy(update={"name": self.job.task.arm or ""})
            method = method.model_copy(update={"reward": reward})
        self.method, self.offloaded, self.version = method, False, context.steps_done
        # Trainers that score tokens for the reward cannot update weights at the same time.
        self.parallel = method.lag > 0 and can_overlap(self.job) and not method.asks_trainers
        self.rollout_files = self.job.work / "rollouts"
        self.rollout_files.mkdir(parents=True, exist_ok=True)
        waiting = load_waiting(self.job.work / "waiting", context.steps_done) if method.lag else {}
        self.pool = load_pool(method, context.model, self.job, context.loaded.tokenizer, context.seed)
        self.facts = self.pool.facts
        self._require_truths()
        with self.opened as stack:
            functions, self.advantages = self._open_functions()
            self.engine = stack.enter_context(closing(self._open_engine()))
            # Servers take minutes to start: other ranks wait here, since they would time out in a later collective.
            self.crew.ranks.barrier()
            self._load_weights(context.steps_done)
            self.crew.release()
            self.sampler = self._make_sampler(functions)
            monitor_folder = self.job.work / "monitor"
            self.tracks = Tracks(method, self.sampler, self.pool.questions, self._file, monitor_folder)
            self.tracks.resume(context.rows, waiting)
            self.queue = stack.enter_context(closing(StepQueue(self.make_step, waiting, self.parallel)))
            self.opened = stack.pop_all()

    def run_step(self, step: int) -> Numbers:
        """Run a step: load the weights into the engine, sample up to `lag` steps ahead, update, and save rollouts.

        Returns:
            The step's metrics, and the seconds of its phases.
        """
        start = now()
        if step > self.context.steps_done:
            # Wait for all samples before the engine's weights change.
            self.queue.drain()
            self._load_weights(step)
        loaded = now()
        self.queue.request(range(step, min(step + self.method.lag + 1, self.context.stage.steps)))
        if not self.parallel:
            self._offload_engine()
        requested = now()
        data = self.queue.get(step)
        waited = now()
        self.crew.release()
        batch = broadcast_batch(self.learner.ranks, data.batch)
        row = {**data.metrics, **(_ages(data.table, step) if self.method.lag else {})}
        row |= _update(self.context, batch, self.method, step, data.metrics)
        write_parquet(data.table, self._file(step))
        # The file must be on the disk before a saved state counts this step as finished.
        sync(self._file(step))
        self.queue.forget(step + 1)
        return row, self._seconds(data, (start, loaded), (requested, waited), (waited, now()))

    def make_step(self, step: int) -> StepData:
        """Return a step's data: sample, grade and score as many rounds of questions as the step needs.

        The tracks' values are computed before, and the step's rollouts are recorded for later tracks.

        Args:
            step: The step, counted from 0.
        """
        self._ensure_weights()
        sampler, metrics, seconds = self.tracks.prepare(step)

        def sample(draw: int) -> GradedStep:
            """Sample and grade the questions of a draw."""
            self._ensure_weights()
            questions, num_questions = self.pool.questions, self.method.batch.prompts
            indices = batch_indices(self.context.seed, draw, num_questions, len(questions))
            return sampler.sample([questions[i] for i in indices], draw)

        data = make_step(sample, self.method, step, self.advantages)
        self.tracks.record(step, data)
        return replace(data, metrics={**data.metrics, **metrics}, seconds={**data.seconds, **seconds})

    def save_pending(self, step: int) -> None:
        """Save the data of steps that were sampled but not yet trained on; without `lag` save nothing.

        Args:
            step: The number of finished steps. The next `lag` steps, from this one, are saved.
        """
        if self.method.lag:
            steps = range(step, min(step + self.method.lag, self.context.stage.steps))
            save_waiting(self.job.work / "waiting", step, {step: self.queue.get(step) for step in steps})

    def write_tables(self, folder: Path, steps: int) -> None:
        """Write `rollouts.parquet` and `monitor.parquet` for the first `steps` steps."""
        schema = rollouts_schema(self.method)
        join_parquet([self._file(step) for step in range(steps)], schema, folder / "rollouts.parquet")
        self.tracks.write_table(folder, steps)

    def _load_weights(self, version: int) -> None:
        """Load the learner's weights into the engine; `version` is the number of steps that they were trained for."""
        self.engine.load_weights(self.crew.weights(as_copies=self.parallel), version)
        self.offloaded, self.version = False, version

    def _ensure_weights(self) -> None:
        """Load the weights into the engine again if the engine was offloaded."""
        if self.offloaded:
            self._load_weights(self.version)

    def _offload_engine(self) -> None:
        """Free the engine's memory for the trainer."""
        if not self.offloaded:
            self.engine.release()
        self.offloaded = True

    def _score_tokens(self, by_reference: bool, with_entropies: bool, batch: TrainBatch) -> Tensor:
        """Score trained tokens with the trainers while the engine is offloaded.

        Args:
            by_reference: Whether the reference model scores, instead of the policy.
            with_entropies: Whether to return entropies too.
            batch: The rows to score.

        Returns:
            Log-probabilities, and entropies in the second row if requested, in nats, [1 or 2, trained tokens].
        """
        self._offload_engine()
        return self.crew.call("score", by_reference, with_entropies, batch=batch).cpu()

    def _file(self, step: int) -> Path:
        """Return the file of a step's rollouts."""
        return self.rollout_files / f"{step:08d}.parquet"

    def _seconds(
        self, data: StepData, handover: tuple[Moment, Moment], waiting: tuple[Moment, Moment], update: Any
    ) -> dict[str, float]:
        """Return the seconds of a step's phases for `timings.parquet`.

        Without `lag`, loading weights into the engine counts as part of the update. With `lag`, it overlaps with
        sampling, and the wait for the step's data is a phase.

        Args:
            data: The step's data, with the seconds of sampling.
            handover: The begin and end of loading weights into the engine.
            waiting: The begin and end of waiting for the step's data.
            update: The begin and end of the update.
        """
        if not self.method.lag:
            return {**data.seconds, **time_spans("update", handover, update)}
        seconds = {**data.seconds, **time_spans("update", update), **time_spans("wait", waiting)}
        if self.parallel:
            # The processor time of the two threads cannot be separated; elapsed times remain.
            seconds = {name: value for name, value in seconds.items() if name.startswith("seconds_")}
        return seconds

    def _require_truths(self) -> None:
        """Check that reference answers exist and fit into the context of the policy and the reference model (E0941).

        Nothing is checked if the method reads no reference answers.
        """
        configs = [self.learner.model.config]
        if self.method.uses_reference:
            configs.append(load_config(reference_folder(self.job)))
        context, longest = (
            min(config.max_position_embeddings for config in configs),
            _longest_response(self.context, self.method),
        )
        require_truths(self.pool.questions, self.method, self.context.loaded.tokenizer, longest, context)

    def _open_functions(self) -> tuple[dict[str, UserFunction], AdvantageFunction | None]:
        """Open the user's functions of the reward, and the user's function of advantages, which is tried once.

        Returns:
            The functions that the reward calls, by name; and the function of advantages, None if the method names none.
        """

        def open_one(python: Python, role: str, workers: int = 2) -> UserFunction:
            """Open a function of the user's, which is closed with the stage.

            Args:
                python: The function in the spec.
                role: The use of the function, for messages.
                workers: The number of processes that run the function.
            """
            function = open_function(python, role, self.job.folder, self.job.resources, workers)
            return self.opened.enter_context(closing(function))

        functions = {
            term.function: open_one(Python(function=term.function, **term.limits), "reward")
            for term in self.method.reward.terms
        }
        if self.method.advantage.own is None:
            return functions, None
        function = open_one(self.method.advantage.own, "advantage", workers=1)
        function.advantages(TRIAL_GROUPS)
        return functions, function.advantages

    def _open_engine(self) -> Engine:
        """Open the engine of rollouts, with the weights that the stage starts from.

        An engine that shares devices with the trainer is told how many bytes the trainer still needs.
        """
        return open_engine(
            self.job.inputs["start"] / "checkpoint",
            self.job.resources,
            _longest_sequence(self.context, self.method),
            self.job.work / PLACE,
            None if self.job.resources.disaggregated else self.learner.bytes_still_needed,
            self.context.model.precision,
            self.method.caches,
        )

    def _make_sampler(self, functions: Mapping[str, UserFunction]) -> RolloutSampler:
        """Build the sampler that generates and grades the responses of each step."""
        context, method, job, tokenizer = self.context, self.method, self.job, self.context.loaded.tokenizer
        grading, seed = context.stage.data.grading, job.task.work["seed"]
        stop = stop_tokens(tokenizer, job.inputs["start"] / "checkpoint")
        phases = Phases.of(method.rollout, context.model, tokenizer, is_uncut=bool(method.cut_at))
        verifier = open_verifier(grading.verifier, grading.tolerance, job.folder, job.resources)
        grader = Grader(
            self.opened.enter_context(closing(verifier)),
            tokenizer,
            stop,
            grading.answer,
            method.forcing,
            thinking_of(context.model, grading),
            prefixes=True,
        )
        queue = GradingQueue(lambda rollouts: grade(rollouts, lambda _: grader))
        self.opened.callback(queue.close, drop=True)
        sampling = sampling_of(method.rollout, stop, logprobs=True)
        choose = partial(choose_wording, method.wordings, self.pool.references, seed)
        return RolloutSampler(
            generator=Generator(self.engine, tokenizer, sampling, method.forcing, phases),
            grader=grader,
            queue=queue,
            rollouts=method.batch.rollouts,
            reward=method.reward,
            shared_splits=self.pool.shared_splits,
            question_splits=self.pool.question_splits,
            references=self.pool.references,
            seed=context.seed,
            wordings=Wordings.of(method, context.model, tokenizer, context.seed, choose),
            functions=functions,
            models=self._score_tokens,
            cut_at=method.cut_at,
            marks=marks_of(context.model) if method.counts_thinking else None,
        )


class PpoFollower(StageRunner):
    """A stage of PPO on a rank other than 0, which trains on the batches of rank 0."""

    def __init__(self, context: StageContext, method: Ppo) -> None:
        """Wait for rank 0's engine to start, then run this rank's part of loading the weights into it."""
        super().__init__()
        self.context, self.method = context, method
        self.crew = Crew(context.learner, context.reference)
        context.learner.ranks.barrier()
        self.crew.serve()

    def run_step(self, step: int) -> Numbers:
        """Run rank 0's calls until the step is sampled, then take part in the update; return metrics without seconds."""
        self.crew.serve()
        return _update(self.context, broadcast_batch(self.crew.ranks, None), self.method, step), {}


def _update(
    context: StageContext,
    batch: TrainBatch,
    method: Ppo,
    step: int,
    metrics: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Run this process's part of a step's update, and let a teacher follow the policy every `ema.every` steps.

    `context.reference` is the teacher if the method has a teacher, else the reference model, or None.

    Args:
        context: The settings and objects of the stage.
        batch: The step's batch, the same on all ranks.
        method: The settings of PPO.
        step: The step, counted from 0.
        metrics: The step's metrics before the update, on rank 0, for the numbers of the loss that follow them.

    Returns:
        The metrics of the update.
    """
    learner, reference = context.learner, context.reference
    # In bfloat16, engine and trainer round intermediate results differently.
    engine_is_exact = learner.scorer.precision == torch.float32 and context.model.precision != "bfloat16"
    engine_is_exact &= context.job.resources.engine == "embedded"
    numbers = learner.ranks.broadcast(None if metrics is None else step_numbers(method, metrics))
    rollout = method.rollout.model_copy(update={"temperature": numbers["temperature"]})
    method = method.model_copy(update={"rollout": rollout})
    row = update(
        learner, batch, method, context.seed, step, engine_is_exact, reference, context.loss, numbers
    )
    ema = method.teacher_follows
    if reference is not None and ema is not None and (step + 1) % ema.every == 0:
        reference.update_ema(learner, ema.decay)
    return row


def can_overlap(job: Job) -> bool:
    """Return whether the engine can generate while the trainer works.

    An embedded engine can on a CPU, where both share the cores. Another engine can if it has its own GPUs.
    """
    embedded = job.resources.engine == "embedded"
    return job.resources.device == "cpu" if embedded else job.resources.disaggregated


def _ages(table: pl.DataFrame, step: int) -> dict[str, float]:
    """Return the metrics `lag` and `lag_max`: the mean and largest age of a step's responses, in steps.

    Args:
        table: The rollouts of the step, with the versions of the weights that sampled them.
        step: The step, counted from 0; the age of a response is the number of steps since its oldest weights.
    """
    ages = step - table["weight_versions"].list.min()
    return {"lag": float(ages.mean()), "lag_max": float(ages.max())}  # type: ignore[arg-type]


def _longest_sequence(context: StageContext, method: Ppo) -> int | None:
    """Return the largest number of tokens of a sequence that the engine must support; None for the full context.

    An embedded engine always gets None. Else the number counts prompt, response and forced answer.
    """
    if context.job.resources.engine == "embedded":
        return None
    return _longest_response(context, method) + forced_length(method.forcing, context.loaded.tokenizer)


def _longest_response(context: StageContext, method: Ppo) -> int:
    """Return the largest number of tokens of a prompt with its response.

    A wording's prefix, and the inserted text that ends thinking, are counted too.
    """
    tokenizer = context.loaded.tokenizer
    prompt = method.max_prompt + longest_prefix(method.wordings, tokenizer)
    phases = Phases.of(method.rollout, context.model, tokenizer)
    return prompt + method.rollout.max_tokens + (0 if phases is None else len(phases.ending))
