"""Points and brackets: settings of a record, the library by full name, metrics, and stages by name or value."""

from __future__ import annotations

from reodsl.diagnostics.model import Label
from reodsl.language.context import Context
from reodsl.language.declare import declared
from reodsl.language.evaluate import evaluated
from reodsl.language.kinds import METRICS
from reodsl.language.modules import library_names
from reodsl.language.names import full_name, study_of_arm, used_at
from reodsl.language.schema import A, Type
from reodsl.language.stages import stage_parts
from reodsl.language.suggest import advice, there_is
from reodsl.language.units import Quantity, scaled, shown
from reodsl.language.values import (
    Arm,
    Experiment,
    Items,
    Record,
    Scope,
    StageList,
    StageRef,
    Value,
    as_written,
    describe,
)
from reodsl.syntax import tree


def attribute(ctx: Context, expr: tree.Attribute, scope: Scope, want: Type | None) -> Value | None:
    """`x.stages`, a setting of a record, or a metric where one is wanted."""
    if isinstance(want, A) and "metric" in want.kinds:
        return metric(ctx, expr)
    if (parts := full_name(expr, scope)) is not None:
        return _from_library(ctx, expr, parts)
    value = evaluated(ctx, expr.value, scope)
    if value is None:
        return None
    if not isinstance(value.data, Record):
        return ctx.fail(
            "E0301",
            f"{describe(value)} has no settings",
            expr.span,
            help="name a declaration before the point",
        )
    record, name = value.data, expr.name.name
    if isinstance(record, Arm):
        record = record.experiment
    if name == "stages" and isinstance(record, Experiment):
        return Value(StageList("stages", {}, expr.span, record.name, of=record), expr.span)
    if isinstance(record, StageList):
        return ctx.fail(
            "E0212",
            "a stage is named in brackets",
            expr.name.span,
            help=f"write `{record.name}.stages[{name}]`",
        )
    found = record.get(name)
    if found is None:
        stages = record.stages if isinstance(record, Experiment) else ()
        known = [*record.fields, *(["stages"] if stages else [])]
        staged = isinstance(record, Experiment) and name in [part.name for part in stage_parts(ctx, record)]
        return ctx.fail(
            "E0203",
            f"{describe(value)} has no `{name}`",
            expr.name.span,
            "unknown",
            help=f"write `{record.name}.stages[{name}]`, if that stage is meant"
            if staged
            else advice(name, known, "it has"),
        )
    return used_at(found, f"{record.name}.{name}" if record.name else name, expr.span)


def _from_library(ctx: Context, expr: tree.Attribute, parts: list[str]) -> Value | None:
    *folders, name = parts
    module, known = ".".join(folders), library_names()
    loaded = ctx.modules.library(module) if module in known else None
    if loaded is None:
        helps = advice(module or name, known, "it has")
        return ctx.fail(
            "E0204", f"there is no module `std.{module or name}`", expr.span, "not found", help=helps
        )
    if name not in loaded.items:
        helps = advice(name, loaded.items, "it has")
        return ctx.fail(
            "E0205", f"`std.{module}` has no `{name}`", expr.name.span, "not in that file", help=helps
        )
    found = declared(ctx, loaded, loaded.items[name])
    return None if found is None else used_at(found, name, expr.span)


def metric(ctx: Context, expr: tree.Attribute) -> Value | None:
    """What a plateau watches."""
    text = f"{expr.value.name}.{expr.name.name}" if isinstance(expr.value, tree.Name) else "?"
    if text not in METRICS:
        return ctx.fail(
            "E0314",
            f"there is no metric `{text}`",
            expr.span,
            "unknown",
            help=advice(text, METRICS, "metrics are"),
        )
    return Value(Record("metric", {}, expr.span, name=expr.name.name), expr.span)


def index(ctx: Context, expr: tree.Index, scope: Scope) -> Value | None:
    """`x.stages[4K tokens]`: a stage by its name or by the value that it was made for."""
    value = evaluated(ctx, expr.value, scope)
    if value is None:
        return None
    if not isinstance(value.data, StageList):
        return ctx.fail(
            "E0301",
            f"{describe(value)} has no elements",
            expr.span,
            help=_without_elements(value),
        )
    record = value.data.of
    parts = stage_parts(ctx, record)
    if not record.stages:
        return ctx.fail(
            "E0212",
            f"`{record.name}` has no stages",
            expr.span,
            "no such stage",
            others=[Label(record.span, "declared here")],
            help=f"name it alone: `{record.name}`",
        )
    shown_as = named = expr.index.name if isinstance(expr.index, tree.Name) else None
    position = next((i for i, part in enumerate(parts) if part.value is None and part.name == named), -1)
    if position < 0 and (named is None or _may_be_a_number(scope, named)):
        wanted = evaluated(ctx, expr.index, scope)
        if wanted is None:
            return None
        position = next((i for i, part in enumerate(parts) if _same(part.value, wanted)), -1)
        shown_as = shown(wanted.data) if isinstance(wanted.data, Quantity) else as_written(wanted)
    if position < 0:
        names = [part.label.strip("`") for part in parts]
        return ctx.fail(
            "E0212",
            f"`{record.name}` has no stage `{shown_as}`",
            expr.index.span,
            "no such stage",
            others=[Label(record.span, "declared here")],
            help=advice(named, names, "its stages are") if named else there_is(names, "its stages are"),
        )
    return Value(
        StageRef(
            "stage_of", {}, expr.span, f"{record.name}.{parts[position].name}", of=record, position=position
        ),
        expr.span,
    )


def _without_elements(value: Value) -> str:
    """The help for brackets behind what is no list of stages."""
    data = value.data
    if isinstance(data, Items):
        return "a list is used as a whole: write the one value here, or give it a `param` of its own"
    if isinstance(data, Experiment) and data.stages:
        return f"name its stages: `{data.name}.stages[…]`"
    return "only stages are chosen by brackets: `EXPERIMENT.stages[4K tokens]`"


def _may_be_a_number(scope: Scope, name: str) -> bool:
    """Whether a name may stand for the value of a stage: a param, an import or a variable, and no declaration or arm."""
    item = scope.module.items.get(name)
    if item is not None:
        return isinstance(item, tree.Param)
    return name in scope.names() and study_of_arm(scope, name) is None


def _same(stage: Value | None, wanted: Value) -> bool:
    if stage is None or not isinstance(stage.data, Quantity) or not isinstance(wanted.data, Quantity):
        return False
    if wanted.literal is not None and not wanted.data.unit:
        return scaled(wanted.literal.value, wanted.literal.suffix, stage.data.unit) == stage.data.number
    return stage.data == wanted.data
