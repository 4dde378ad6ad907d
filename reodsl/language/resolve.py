"""What checks and lowering both ask of experiments and arms: where their weights come from, and their suite."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.language.values import Arm, Experiment, Record, StageRef, Study, as_written

WITHOUT_TRAINING = frozenset(
    {"base", "eval", "score", "cluster", "engine", "limit", "seed", "expected_length"}
)
"""The settings of an experiment that a checkpoint has too, which is evaluated as it is."""


def source_of(record: Record | None) -> tuple[Record | None, int | None]:
    """The experiment or model whose weights a record stands for, and the stage that is meant, where one is named."""
    stage: int | None = None
    while True:
        if isinstance(record, StageRef):
            stage = record.position
            record = record.of
        elif isinstance(record, Arm):
            record = record.experiment
        elif record is not None and record.kind == "checkpoint":
            record = record.sub("of")
        else:
            return record, stage


def ancestry(record: Record | None) -> Iterator[tuple[Record, int | None]]:
    """What weights go back to, each with its stage as in `source_of`: an experiment, what that starts from, … a model."""
    source, stage = source_of(record)
    while source is not None:
        yield source, stage
        source, stage = source_of(source.sub("base"))


def model_name(model: Record) -> str:
    """Return the name of a model's weights: its repository's on a hub, else its source as a spec has it."""
    source = model.part("source")
    if source.kind == "hub":
        return str(source.data("repo"))
    return f"{source.kind}({', '.join(as_written(slot.value) for slot in source.fields.values())})"


def starts(experiment: Record) -> Iterator[Experiment]:
    """The experiments whose checkpoints one starts from, the nearest first."""
    for source, _ in ancestry(experiment.sub("base")):
        if isinstance(source, Experiment):
            yield source


def trained_checkpoint(record: Record | None) -> tuple[Experiment, int | None] | None:
    """The experiment that trained what a record stands for, and the stage where one is named; None for a model."""
    for source, stage in ancestry(record):
        if isinstance(source, Experiment) and source.is_trained:
            return source, stage
        if source.kind == "model":
            break
    return None


def same_record(one: Record, two: Record) -> bool:
    """Whether two records are one declaration, with the same settings."""
    return one is two or (one.owner == two.owner and one == two)


def own_suite(experiment: Record) -> Record | None:
    """The suite that an experiment names, or the one behind the checkpoint that it evaluates."""
    for source, _ in ancestry(experiment):
        suite = source.sub("eval")
        if suite is not None or not isinstance(source, Experiment) or source.is_trained:
            return suite
    return None


def arm_suite(study: Study, arm: Arm) -> Record | None:
    """The suite of an arm: its own, else the study's, else the one that all other arms share."""
    chosen = own_suite(arm.experiment) or study.sub("eval")
    if chosen is not None:
        return chosen
    others = [suite for each in study.arms if (suite := own_suite(each.experiment)) is not None]
    first = others[0] if others else None
    return first if all(other is first or other == first for other in others) else None


def grid_of(suite: Record | None) -> tuple[int, ...]:
    """The budgets of a suite's grid, each once and increasing, in whichever order they are written."""
    grid = suite.data("grid") if suite is not None else None
    return tuple(sorted(set(grid))) if grid else ()
