"""Find the checkpoint that an experiment or arm starts from, its model and its suite, for checks and lowering."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.language.values import (
    DeclaredArm,
    DeclaredExperiment,
    DeclaredStudy,
    Record,
    StageRef,
    write_value,
)

WITHOUT_TRAINING = frozenset(
    {"base", "eval", "score", "cluster", "engine", "limit", "seed", "expected_length"}
)
"""The settings of an experiment that also apply to a checkpoint evaluated without training."""


def find_source(record: Record | None) -> tuple[Record | None, int | None]:
    """Return the experiment or model that a record's weights come from.

    Args:
        record: An arm, a stage of an experiment, a checkpoint, an experiment or a model; None is returned as
            None.

    Returns:
        The experiment or model, and the index of the stage after which the weights are taken; None for the
        last stage.
    """
    stage: int | None = None
    while True:
        if isinstance(record, StageRef):
            stage = record.position
            record = record.of
        elif isinstance(record, DeclaredArm):
            record = record.experiment
        elif record is not None and record.kind in ("checkpoint", "forced"):
            record = record.sub("of")
        else:
            return record, stage


def walk_ancestry(record: Record | None) -> Iterator[tuple[Record, int | None]]:
    """Yield the experiments and at last the model from which a record's weights descend, the nearest first.

    Yields:
        The experiment or model, and the index of the stage after which the weights are taken; None for the
        last stage.
    """
    source, stage = find_source(record)
    while source is not None:
        yield source, stage
        source, stage = find_source(source.sub("base"))


def name_model(model: Record) -> str:
    """Return the name of a model: its repository on a hub, its name on a server, or else its source as written."""
    source = model.part("source")
    if source.kind in ("hub", "served"):
        return str(source.data("repo" if source.kind == "hub" else "model"))
    return f"{source.kind}({', '.join(write_value(slot.value) for slot in source.fields.values())})"


def samples_on_gpus(owner: Record) -> bool:
    """Return whether SGLang servers on a cluster's GPUs generate the responses of a study or experiment."""
    return owner.sub("cluster") is not None and samples_by_servers(owner)


def samples_by_servers(owner: Record) -> bool:
    """Return whether SGLang servers generate the responses of a study or experiment."""
    engine = owner.data("engine")
    return engine == "sglang" or (engine is None and owner.sub("cluster") is not None)


def cap_importance(stage: Record, on_gpus: bool) -> float | None:
    """Return the cap of a stage's importance weights; None if the stage has no importance weights.

    The default is 2 if servers generate the responses, since their kernels give other probabilities than the
    trainer's. The default is None if the loss corrects for this already: by old log-probabilities of the
    engine, by the weights for a lag, or by a decoupled loss.

    Args:
        stage: The settings of the stage.
        on_gpus: Whether servers generate the responses.

    Source:
        Yao et al. 2025.
    """
    cap = stage.data("importance_cap")
    if cap is not None:
        return None if cap == "none" else float(cap)
    is_corrected = (
        stage.data("old_logprobs") == "engine" or bool(stage.data("lag")) or stage.data("loss.decoupled")
    )
    return 2.0 if on_gpus and not is_corrected else None


def walk_starts(experiment: Record) -> Iterator[DeclaredExperiment]:
    """Yield the experiments whose checkpoints an experiment starts from, the nearest first."""
    for source, _ in walk_ancestry(experiment.sub("base")):
        if isinstance(source, DeclaredExperiment):
            yield source


def find_trained(record: Record | None) -> tuple[DeclaredExperiment, int | None] | None:
    """Return the experiment that trained a record's weights, and the index of the stage; None if none trained them.

    The index is None for the last stage.
    """
    for source, stage in walk_ancestry(record):
        if isinstance(source, DeclaredExperiment) and source.is_trained:
            return source, stage
        if source.kind == "model":
            break
    return None


def find_suite(experiment: Record) -> Record | None:
    """Return the suite of an experiment; None without a suite.

    An experiment that does not train evaluates a checkpoint. Without a suite of its own it takes the suite of
    the experiment that the checkpoint comes from.
    """
    for source, _ in walk_ancestry(experiment):
        suite = source.sub("eval")
        if suite is not None or not isinstance(source, DeclaredExperiment) or source.is_trained:
            return suite
    return None


def find_arm_suite(study: DeclaredStudy, arm: DeclaredArm) -> Record | None:
    """Return the suite of an arm: its own, else the study's, else the suite that all arms with a suite share.

    The result is None if there is no such suite.
    """
    chosen = find_suite(arm.experiment) or study.sub("eval")
    if chosen is not None:
        return chosen
    suites = [suite for member in study.arms if (suite := find_suite(member.experiment)) is not None]
    first = suites[0] if suites else None
    return first if all(other is first or other == first for other in suites) else None


def sort_grid(suite: Record | None) -> tuple[int, ...]:
    """Return the token budgets of a suite's grid, sorted and without duplicates; empty without a grid."""
    grid = suite.data("grid") if suite is not None else None
    return tuple(sorted(set(grid))) if grid else ()
