"""The runner of `train` tasks: it trains a checkpoint, and writes the trained checkpoint, optimizer state and tables.

An interrupted stage continues from its last saved step and gives the same bytes as without an interruption, because all
randomness is a function of the run's seed, the stage's index and the step. A stage takes over the optimizer state of the
experiment's previous stage if both have the same algorithm and method. The learning-rate curve, with its warm-up, starts
anew with each stage.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from reodsl.diagnostics import problem
from reodsl.graph.job import Job, Progress
from reodsl.ir.model import Model
from reodsl.ir.training import Lora, Plateau, Ppo, Sft, Stage
from reodsl.price.memory import Recipe, from_config
from reodsl.store.live import add_step, begin_steps
from runners.data.draws import derive_seed
from runners.machine.clock import peak_memory
from runners.machine.memory import explain_oom, explain_training
from runners.models.bounds import require_same_tokens
from runners.models.folder import LoadedModel, load_config, load_tokenizer, save
from runners.models.tensors import TensorFiles
from runners.train.adapters import merge_state, remove_adapters
from runners.train.agreement import Disagreement
from runners.train.checkpoint import (
    Row,
    TrainingState,
    iter_local_shards,
    load_state,
    load_trained_model,
    save_state,
    save_tensors,
)
from runners.train.launch import train_together
from runners.train.metrics import metrics_table, peak_flops, write_parquet
from runners.train.optimizers import (
    build_optimizers,
    full_optimizer_state,
    load_optimizer_state,
    set_learning_rate,
)
from runners.train.own_loss import open_loss
from runners.train.ppo_stage import PpoFollower, PpoStage
from runners.train.ranks import ALONE, Ranks
from runners.train.sharding import Scorer, enable_activation_checkpointing, full_state
from runners.train.stages import PreferenceStage, SftStage, StageContext, StageRunner, reference_folder
from runners.train.update import Learner

SAVE_SECONDS, SAVE_SHARE = 10.0, 19.0
"""A stage is saved when `SAVE_SECONDS` plus `SAVE_SHARE` times the duration of the last save have passed. Saving thus takes
at most a twentieth of the time."""
PROGRESS_METRICS = ("reward", "accuracy", "length", "loss")
UNJUDGED_METRICS = ("verifier_timeouts", "verifier_failures", "reward_failures")
POOL_COUNTS = ("questions", "traces", "pairs")
MIN_ANSWERED_SHARE = 0.5
"""Progress shows the share of finished responses with an answer if it is below this share."""


def train(job: Job) -> None:
    """Train a stage with `job.resources.trainers` processes, including this process.

    It writes `checkpoint/`, `optimizer/`, `metrics.parquet`, `timings.parquet`, `train.json`, and for PPO
    `rollouts.parquet`.

    Raises:
        Problem: E0405, E0505, E0510 or E0920 to E0941 for unsuitable data, rewards or values, E0936 if engine and
            trainer disagree, E0937 if memory runs out, or E0938 if a process ends.
    """
    stage: Stage = job.task.work["stage"]
    if job.resources.trainers > 1 or _is_sharded(stage, job):
        train_together(job, "runners.train.run:train_among")
    else:
        train_among(job, ALONE)


def train_among(job: Job, ranks: Ranks) -> None:
    """Train a stage together with the other ranks; rank 0 writes the results.

    The stage continues after the steps in the saved state, if a state was saved.

    Args:
        job: The job of the stage.
        ranks: The rank of this process among the training processes; `ALONE` for a single process.
    """
    stage: Stage = job.task.work["stage"]
    model: Model = job.task.work["model"]
    index: int = job.task.work["index"]
    seed = derive_seed(job.task.work["seed"], "stage", index)
    start = job.inputs["start"] / "checkpoint"
    user_loss = open_loss(stage.method, job.folder, job.resources) if isinstance(stage.method, Ppo) else None
    tokenizer = load_tokenizer(start)
    learner = _build_learner(stage, job, ranks)
    carried_over = index > 0 and _carry_over(job.inputs["start"] / "optimizer", stage, learner)
    reference = _load_reference(stage, job, learner) if stage.method.uses_reference else None
    ema = reference.model if reference is not None and stage.method.ema_reference else None
    state = load_state(job.work, learner.model, learner.optimizers, ranks, ema)
    loaded = LoadedModel(learner.model, tokenizer)
    context = StageContext(stage, model, job, loaded, learner, seed, reference, tuple(state.rows), user_loss)
    with _open_stage(context) as runner:
        context = replace(context, stage=_limit_steps(stage, runner.num_examples))
        _run(context, runner, state, ema)
    _finish(context, runner, state, carried_over)


def _is_sharded(stage: Stage, job: Job) -> bool:
    """Return whether even a single process wraps its model in FSDP2, as one shard.

    This is done on a GPU if passes run in bfloat16, because FSDP2 then casts one layer at a time.
    """
    return job.resources.device != "cpu" and _choose_precision(stage, job) != torch.float32


def _choose_precision(stage: Stage, job: Job) -> torch.dtype:
    """Return the precision of forward passes: the stage's setting, else the model's, else the device's default."""
    device, precision = job.resources.device, stage.precision
    if precision == "auto":
        precision = job.task.work["model"].precision
    if precision == "auto":
        precision = "float32" if device == "cpu" else "bfloat16"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _build_learner(stage: Stage, job: Job, ranks: Ranks) -> Learner:
    """Load the model to train, and build its optimizers and its learner.

    Activation checkpointing is on if the stage says so, or by default on a GPU.
    """
    device = job.resources.device
    start = job.inputs["start"] / "checkpoint"
    model, scorer = _place_model(stage, job, ranks, start, stage.lora)
    if stage.checkpointing == "on" or (stage.checkpointing == "auto" and device != "cpu"):
        enable_activation_checkpointing(model)
    optimizers = build_optimizers(model, stage.optim)
    learner = Learner.of(model, optimizers, stage.optim.grad_norm, ranks, scorer, stage.microbatch)
    learner = replace(learner, shares_device=not job.resources.disaggregated)
    sizes, teacher = learner.sizes, None
    if "teacher" in job.inputs:
        teacher = from_config(load_config(reference_folder(job)).to_dict())
    return learner if sizes is None else replace(learner, recipe=Recipe.of(stage, sizes, teacher))


def _place_model(
    stage: Stage, job: Job, ranks: Ranks, folder: Path, lora: Lora | None = None
) -> tuple[Any, Scorer]:
    """Load a model onto this process's device; if `ranks` has a mesh, only this process's shard.

    Args:
        stage: The stage, whose precision the passes get.
        job: The job of the stage.
        ranks: The processes of the training.
        folder: The checkpoint.
        lora: The settings of adapters to add; None for no adapters.

    Returns:
        The model, and the scorer that runs its forward pass.
    """
    device = torch.device(job.resources.device)
    seed = derive_seed(job.task.work["seed"], "lora", job.task.work["index"])
    sizes = from_config(load_config(folder).to_dict())
    activity = "while weights were put on the device"
    with explain_oom(device, lambda: explain_training(sizes, device, activity)):
        return load_trained_model(folder, device, _choose_precision(stage, job), ranks, lora, seed)


def _load_reference(stage: Stage, job: Job, learner: Learner) -> Learner:
    """Load the frozen reference model: a teacher, or the checkpoint that the stage started from.

    If the policy has adapters and there is no teacher, its own frozen weights without adapters are the reference model,
    and nothing is loaded. A reference model that follows the policy by a moving average is always loaded.

    Args:
        stage: The stage.
        job: The job of the stage.
        learner: The policy; its counter of throughput counts the reference model's passes too.

    Raises:
        Problem: E0514, if a teacher has another vocabulary.
    """
    folder = reference_folder(job)
    if "teacher" in job.inputs:
        require_same_tokens(job.inputs["start"] / "checkpoint", folder)
    elif learner.adapted and not stage.method.ema_reference:
        return replace(learner, optimizers=(), base=True)
    model, scorer = _place_model(stage, job, learner.ranks, folder)
    reference = Learner.of(model, (), 0.0, learner.ranks, scorer, stage.microbatch)
    sizes, own_sizes = reference.sizes, learner.sizes
    cost = sizes.products / own_sizes.products if sizes is not None and own_sizes is not None else 1.0
    return replace(reference, throughput=learner.throughput, cost=cost)


def _open_stage(context: StageContext) -> StageRunner:
    """Build the runner of the stage on this process, by its method."""
    method = context.stage.method
    if isinstance(method, Ppo):
        runner_class = PpoStage if context.learner.ranks.is_rank_zero else PpoFollower
        return runner_class(context, method)
    return SftStage(context, method) if isinstance(method, Sft) else PreferenceStage(context, method)


def _limit_steps(stage: Stage, sequences: int) -> Stage:
    """Return the stage with at most as many steps as its `passes` over the data take; PPO stages stay unchanged.

    Args:
        stage: The stage.
        sequences: The number of traces or pairs in a pass over the data.
    """
    if stage.passes is None or isinstance(stage.method, Ppo):
        return stage
    steps = math.ceil(stage.passes * sequences / stage.method.batch)
    return stage.model_copy(update={"steps": min(stage.steps, steps)})


def _run(context: StageContext, runner: StageRunner, state: TrainingState, ema: Any) -> None:
    """Run the stage's remaining steps, up to the last step or a plateau.

    After each step, metrics are recorded, progress is reported, and the state is saved if `SAVE_SECONDS` or `save_every`
    say so. The state after the last step is not saved by itself.

    Args:
        context: The settings and objects of the stage.
        runner: Runs a single step.
        state: The finished steps, to which new steps are added.
        ema: The model of a teacher that follows the policy by a moving average, else None; its weights are saved too.
    """
    stage, job, learner, ranks = context.stage, context.job, context.learner, context.learner.ranks
    saved_steps, saved_at, saving_seconds = state.steps, time.monotonic(), 0.0
    sizes, peak, left_out = learner.sizes, peak_flops(learner.device), _count_left_out(runner.facts)

    def save() -> None:
        """Save the state of the training, and note when this was and how long it took."""
        nonlocal saved_steps, saved_at, saving_seconds
        start = time.monotonic()
        runner.save_pending(state.steps)
        save_state(job.work, learner.model, learner.optimizers, state, ranks, ema)
        saved_steps, saved_at = state.steps, time.monotonic()
        saving_seconds = saved_at - start

    if left_out:
        job.progress(Progress(state.steps, stage.steps, left_out))
    if ranks.is_rank_zero:
        begin_steps(job.work, state.rows)
    while state.steps < stage.steps and not _has_levelled(stage.plateau, state.rows):
        step = state.steps
        factor = stage.optim.rate_factor(step, stage.steps)
        set_learning_rate(learner.optimizers, factor)
        start = time.perf_counter()
        try:
            row, seconds = runner.run_step(step)
        except Disagreement:
            # This step has changed no weights, so the state after the previous step can be saved.
            if step > saved_steps:
                save()
            raise
        seconds["seconds"] = time.perf_counter() - start
        memory = peak_memory(learner.device.type)
        if memory is not None:
            seconds["memory"] = memory / 1e9
        passes = sum(seconds.get(f"seconds_{phase}", 0.0) for phase in ("update", "score"))
        seconds |= learner.throughput.empty(passes, sizes, ranks.world, peak)
        is_due = time.monotonic() - saved_at >= SAVE_SECONDS + SAVE_SHARE * saving_seconds
        row, seconds, is_due = ranks.broadcast((row, seconds, is_due))
        state.rows.append({"step": step + 1, **row, "lr": stage.optim.lr * factor})
        state.seconds.append({"step": step + 1, **seconds})
        if ranks.is_rank_zero:
            add_step(job.work, state.rows[-1])
        numbers = {name: row[name] for name in PROGRESS_METRICS if name in row}
        if row.get("answered", 1.0) < MIN_ANSWERED_SHARE:
            numbers["answered"] = row["answered"]
        numbers["tokens_per_second"] = row["tokens"] / seconds["seconds"]
        numbers |= left_out | count_unjudged(state.rows)
        job.progress(Progress(state.steps, stage.steps, numbers))
        if is_due or (stage.save_every > 0 and state.steps % stage.save_every == 0):
            save()


def count_unjudged(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return how many answers of all steps were not judged, by the kind of failure.

    Args:
        rows: The metrics of each step.

    Returns:
        Counts by the names in `UNJUDGED_METRICS`; counts of 0 are left out.
    """
    counts = {name: sum(row.get(name, 0.0) for row in rows) for name in UNJUDGED_METRICS}
    return {name: count for name, count in counts.items() if count}


def _count_left_out(facts: Mapping[str, int]) -> dict[str, float]:
    """Return the numbers of questions, traces or pairs that are trained on and that are left out, by name.

    The result is empty if nothing is left out.
    """
    left_out = {name: float(count) for name, count in facts.items() if name.startswith("left_out") and count}
    counts = {name: float(count) for name, count in facts.items() if name in POOL_COUNTS}
    return counts | left_out if left_out else {}


def _has_levelled(plateau: Plateau | None, rows: list[Row]) -> bool:
    """Return whether training has reached its plateau.

    The plateau is reached if a metric's mean over the last `window` steps minus its mean over the `window` steps before
    is at most `within`; a fall of the metric counts too. Without a plateau, or before 2 `window` steps, return False.

    Raises:
        Problem: E0314, if training does not measure the metric.
    """
    if plateau is None or len(rows) < 2 * plateau.window:
        return False
    name = plateau.metric.removeprefix("train.")
    if name not in rows[-1]:
        raise problem(
            "E0314",
            f"the stage ends at a plateau of `{plateau.metric}`, which training does not measure",
            where="until",
            notes=["it measures " + ", ".join(sorted(rows[-1]))],
            help="name a metric from the list",
        )
    values = [row[name] for row in rows]
    last, earlier = values[-plateau.window :], values[-2 * plateau.window : -plateau.window]
    return sum(last) / plateau.window - sum(earlier) / plateau.window <= plateau.within


def _carry_over(folder: Path, stage: Stage, learner: Learner) -> bool:
    """Load the previous stage's optimizer state, if it can be used.

    Both stages must have the same algorithm and method, and neither may have adapters.

    Args:
        folder: The folder `optimizer/` of the previous stage.
        stage: The stage that begins.
        learner: The policy, whose optimizers get the state.

    Returns:
        Whether the state was loaded.
    """
    path = folder / "state.safetensors"
    if not path.is_file():
        return False
    stored = TensorFiles([path])
    of_same_kind = (stored.facts["algorithm"], stored.facts["method"]) == (
        stage.optim.algorithm,
        stage.method.kind,
    )
    # The moments of adapters are useless for the next stage: its adapters are new, the old ones are merged.
    if stage.lora is not None or "adapters" in stored.facts or not of_same_kind:
        return False
    for name, value in iter_local_shards(stored, learner.model, learner.ranks):
        load_optimizer_state(learner.model, learner.optimizers, {name: value})
    return True


def _finish(context: StageContext, runner: StageRunner, state: TrainingState, carried_over: bool) -> None:
    """Write the checkpoint, the optimizer state and the tables, on rank 0; all ranks take part in gathering tensors.

    Args:
        context: The settings and objects of the stage.
        runner: The stage's runner, which writes tables of its own.
        state: The finished steps.
        carried_over: Whether the optimizer state of the previous stage was used, for `train.json`.
    """
    job, stage, learner, model = context.job, context.stage, context.learner, context.loaded.model
    cpu = torch.device("cpu")
    weights = None
    if learner.sharded:
        weights = full_state(model, learner.ranks, cpu, torch.float32)
    elif learner.adapted:
        weights = {name: value.to(cpu) for name, value in merge_state(model).items()}
    # Every rank takes part in gathering, and rank 0 alone keeps the full tensors.
    gathered = full_optimizer_state(model, learner.optimizers)
    tensors = {name: tensor.to(cpu) for name, tensor in gathered if learner.ranks.is_rank_zero}
    if not learner.ranks.is_rank_zero:
        return
    remove_adapters(model)
    host_model = model.to(cpu) if weights is None else model
    save(host_model, context.loaded.tokenizer, job.out / "checkpoint", weights)
    (job.out / "optimizer").mkdir()
    facts: dict[str, object] = {"algorithm": stage.optim.algorithm, "method": stage.method.kind}
    if learner.adapted:
        facts["adapters"] = True
    save_tensors(job.out / "optimizer" / "state.safetensors", tensors, facts)
    write_parquet(metrics_table(state.rows), job.out / "metrics.parquet")
    write_parquet(metrics_table(state.seconds), job.out / "timings.parquet")
    runner.write_tables(job.out, state.steps)
    reason = "plateau" if state.steps < stage.steps else "steps"
    summary = {"steps": state.steps, "ended": reason, "optimizer_carried_over": carried_over, **runner.facts}
    (job.out / "train.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n", "utf-8")
