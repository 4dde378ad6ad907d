"""Stages: the blocks that an experiment declares for them, one by one or over a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reodsl.diagnostics.model import Label
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluated
from reodsl.language.units import Quantity, shown
from reodsl.language.values import Experiment, Items, Scope, Stage, StagesOver, Value, describe
from reodsl.syntax import tree

MOST_STAGES = 256


def stages_over(ctx: Context, item: tree.Nested, scope: Scope) -> list[StagesOver]:
    """The stages of `stages(NAME in LIST) { … }`, one for each element; none with the reason reported."""
    binding = item.args[0].value if len(item.args) == 1 else None
    if isinstance(binding, tree.Compare) and binding.op == "in" and isinstance(binding.left, tree.Name):
        binding = tree.Binding(tree.Ident(binding.left.name, binding.left.span), binding.right, binding.span)
    if not isinstance(binding, tree.Binding):
        ctx.fail(
            "E0310",
            "`stages` runs over a list",
            item.name.span,
            help="write `stages(cap in halve(from: 16K tokens, to: 512 tokens)) { … }`, or `stage NAME { … }`",
        )
        return []
    return [StagesOver(binding.var, binding.over, item.block, scope, item.name.span)]


def stage_block(ctx: Context, item: tree.Decl, scope: Scope) -> Stage | None:
    """The stage of `stage NAME { … }`; None with the reason reported."""
    if item.block is None:
        return ctx.fail(
            "E0313", "a stage is a block", item.name.span, help=f"write `stage {item.name.name} {{ … }}`"
        )
    return Stage(item.name.name, f"`{item.name.name}`", None, item.block, scope, item.name.span)


def in_place_of(
    old: Iterable[Stage | StagesOver], new: Iterable[Stage | StagesOver]
) -> tuple[Stage | StagesOver, ...]:
    """New stages, which know the ones of the same names that they stand in for."""
    before = {each.name: each.span for each in old if isinstance(each, Stage)}
    return tuple(
        replace(each, replaced=before.get(each.name)) if isinstance(each, Stage) else each for each in new
    )


def stage_parts(ctx: Context, record: Experiment) -> list[Stage]:
    """The stages that a record declares, those made from a list spelled out."""
    parts: list[Stage] = []
    for stage in record.stages:
        if isinstance(stage, Stage):
            parts.append(stage)
            continue
        over = evaluated(ctx, stage.over, stage.scope)
        if over is None:
            continue
        if not isinstance(over.data, Items) or not over.data.values:
            ctx.fail(
                "E0301",
                f"`stages` runs over a list, not over {describe(over)}",
                stage.over.span,
                help="write `stages(cap in [64 tokens, 32 tokens]) { … }`",
            )
            continue
        if len(over.data.values) > MOST_STAGES:
            ctx.fail(
                "E0216",
                f"an experiment has at most {MOST_STAGES} stages, and these are {len(over.data.values)}",
                stage.over.span,
                "too many",
                others=[Label(place, text) for place, text in over.via],
                help="take a larger step, or give one stage more steps",
            )
            continue
        for each in over.data.values:
            value = replace(each, literal=None)
            name = str(value.data.number) if isinstance(value.data, Quantity) else str(len(parts))
            label = shown(value.data) if isinstance(value.data, Quantity) else name
            scope = _with(stage, value)
            parts.append(Stage(name, label, value, stage.block, scope, stage.span, changes=stage.changes))
    return _unlike(ctx, parts)


def _unlike(ctx: Context, parts: list[Stage]) -> list[Stage]:
    """The stages without those that have the name of an earlier one, which are reported: results go by these names."""
    found: dict[str, Stage] = {}
    for part in parts:
        before = found.setdefault(part.name, part)
        if before is part:
            continue
        places = [each.value.span if each.value is not None else each.span for each in (before, part)]
        ctx.fail(
            "E0208",
            f"two stages are called {part.label}",
            places[1],
            "again here",
            others=[Label(places[0], "first here")],
            help="make each value once, or write stages with names of their own: `stage NAME { … }`",
        )
    return list(found.values())


def require_flat(ctx: Context, stage: Experiment) -> Experiment:
    """A stage, in which stages of its own are reported."""
    for each in stage.stages[:1]:
        ctx.fail(
            "E0202",
            "a stage holds no stages",
            each.span,
            "not here",
            help="write them after one another in the experiment: `stage NAME { … }`",
        )
    return replace(stage, stages=())


def _with(stage: StagesOver, value: Value) -> Scope:
    return stage.scope.inner({stage.var.name: lambda: value})
