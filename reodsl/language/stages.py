"""Complete the stages of an experiment: each its experiment with the stage's block laid over it."""

from __future__ import annotations

from dataclasses import replace

from reodsl.ir.kinds import KINDS
from reodsl.language.blocks import lay_block
from reodsl.language.changes import amend_stage, apply_amends
from reodsl.language.context import Context, Failed, attempt, try_all
from reodsl.language.evaluate import list_stages
from reodsl.language.finish import fill_defaults
from reodsl.language.values import DeclaredExperiment, DeclaredStage


def lay_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment, each with all its settings; one without a part if none is declared."""
    if not experiment.stages:
        return [(None, experiment)]
    complete: list[tuple[DeclaredStage | None, DeclaredExperiment]] = []
    parts, alone = list_stages(ctx, experiment), replace(experiment, stages=())
    for number, part in enumerate(parts):
        stage = lay_block(ctx, alone, part.block, part.scope, part.block.doc or experiment.doc)
        stage = report_nested(ctx, stage)
        stage = apply_amends(ctx, stage, experiment.owner, part.scope, stage=True)
        complete.append((part, amend_stage(ctx, stage, parts, number, experiment.stage_changes)))
    return complete


def complete_experiment(ctx: Context, experiment: DeclaredExperiment) -> DeclaredExperiment:
    """Return an experiment with its defaults, every stage complete. Raises `Failed`."""
    if not experiment.is_trained:
        return experiment
    complete = complete_stages(ctx, experiment)
    if not complete:
        raise Failed
    # A suite named in the stages is the experiment's as well.
    last = complete[-1][1].fields.get("eval")
    return experiment if last is None or "eval" in experiment.fields else experiment.with_field("eval", last)


def complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment with every default filled in; none if one of them lacks a setting."""
    # Every check and the lowering ask for them.
    return ctx.compute_once("stages", experiment, lambda: _complete_stages(ctx, experiment))


def _complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    def complete(
        stage: tuple[DeclaredStage | None, DeclaredExperiment],
    ) -> tuple[DeclaredStage | None, DeclaredExperiment]:
        part, record = stage
        ctx.spend("stages", record.span)
        return part, fill_defaults(ctx, record, KINDS["experiment"], part)

    return attempt(lambda: try_all(complete, lay_stages(ctx, experiment))) or []


def report_nested(ctx: Context, stage: DeclaredExperiment) -> DeclaredExperiment:
    """Return a stage without stages of its own, which are reported."""
    for each in stage.stages[:1]:
        ctx.error(
            "E0202",
            "a stage holds no stages",
            each.span,
            "not here",
            help="write them after one another in the experiment: `stage NAME { … }`",
        )
    return replace(stage, stages=()) if stage.stages else stage
