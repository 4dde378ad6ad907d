"""Studies: arms, frontiers, tables and charts, which see each other by name inside the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reodsl.language import reach
from reodsl.language.blocks import laid
from reodsl.language.bounds import MOST_ARMS
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluated
from reodsl.language.finish import finished, finished_experiment
from reodsl.language.kinds import KINDS
from reodsl.language.meant import meant
from reodsl.language.modules import Loaded
from reodsl.language.records import record, split_amend
from reodsl.language.values import (
    Arm,
    Experiment,
    Frontier,
    Record,
    Scope,
    Section,
    Slot,
    Study,
    Value,
    describe,
    one_of,
)
from reodsl.syntax import tree

ARM_PARENTS = ("experiment", "recipe", "arm", "checkpoint", "model")


def study(ctx: Context, module: Loaded, item: tree.Decl) -> Value | None:
    """The value of a study."""
    if item.block is None:
        return ctx.fail(
            "E0313", "a study is a block", item.name.span, help=f"write `study {item.name.name} {{ … }}`"
        )
    owner = (module.key, item.name.name)
    members = [
        each
        for each in item.block.items
        if isinstance(each, tree.Decl) and each.kind.name in ("arm", "frontier")
    ]
    count = sum(each.kind.name == "arm" for each in members)
    if count > MOST_ARMS:
        return ctx.fail(
            "E0216",
            f"a study has at most {MOST_ARMS:,} arms, and this one has {count:,}",
            item.name.span,
            "too large",
            help="make several studies of it",
        )
    thunks: dict[str, Callable[[], Value | None]] = {}
    for member in members:
        thunks.setdefault(member.name.name, _thunk(ctx, module, item, member, thunks))
    scope = Scope(module).inner(thunks)
    start = Study("study", {}, item.name.span, item.name.name, item.doc or "", owner)
    result = laid(ctx, start, item.block, scope, item.doc or "")
    result = reach.amended(ctx, result, owner, scope)
    values = [thunks[member.name.name]() for member in members]
    records = [value.data for value in values if value is not None and isinstance(value.data, Record)]
    tables, charts, sound = _report(ctx, result, owner)
    complete = finished(ctx, result, KINDS["study"])
    if complete is None or not sound or any(value is None for value in values):
        return None
    arms = tuple(each for each in records if isinstance(each, Arm))
    frontiers = tuple(each for each in records if isinstance(each, Frontier))
    if not arms:
        return ctx.fail(
            "E0313",
            f"the study `{item.name.name}` has no arm",
            item.name.span,
            help="add `arm base = checkpoint(…)`",
        )
    return Value(
        replace(complete, arms=arms, frontiers=frontiers, tables=tables, charts=charts), item.name.span
    )


def _thunk(
    ctx: Context,
    module: Loaded,
    item: tree.Decl,
    member: tree.Decl,
    thunks: dict[str, Callable[[], Value | None]],
) -> Callable[[], Value | None]:
    owner = (module.key, f"{item.name.name}.{member.name.name}")

    def compute() -> Value | None:
        ctx.spend("arms", member.name.span)
        # A member's own name means what is outside of the study, if there is such: `arm vanilla = vanilla`.
        own = member.name.name
        outside = own in module.items or own in module.imports or module.path in ctx.broken_files()
        scope = Scope(module).inner(thunks, own if outside else None)
        return (
            _arm(ctx, member, scope, owner)
            if member.kind.name == "arm"
            else _frontier(ctx, member, scope, owner)
        )

    return lambda: ctx.once(owner, member.name.span, compute)


def _arm(ctx: Context, member: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value | None:
    parent, block = split_amend(member)
    name = member.name.name
    if parent is None:
        return ctx.fail(
            "E0313",
            "an arm is made from an experiment or a checkpoint",
            member.name.span,
            help=f"write `arm {name} = …`",
        )
    value = evaluated(ctx, parent, scope)
    start: Experiment | None = None
    if value is not None:
        start = _underlying(ctx, value, name, member, owner)
    if block is not None or owner in ctx.amends:
        own = start or Experiment("experiment", {}, member.name.span)
        own = replace(own, name=name, owner=owner, span=member.name.span)
        if block is not None:
            own = laid(ctx, own, block, scope, member.doc or own.doc)
        own = reach.amended(ctx, own, owner, scope)
        start = own if start is not None else None
    if start is None:
        return None
    complete = finished_experiment(ctx, start)
    if complete is None:
        return None
    return Value(
        Arm("arm", {}, member.name.span, name, member.doc or "", owner, experiment=complete), member.name.span
    )


def _underlying(
    ctx: Context, value: Value, name: str, member: tree.Decl, owner: tuple[str, str]
) -> Experiment | None:
    """The experiment behind an arm, which may be a checkpoint with nothing to train."""
    match value.data:
        case Arm(experiment=experiment):
            return experiment
        case Experiment(kind="experiment") as experiment:
            return experiment
        case Experiment() as recipe:
            return replace(recipe, kind="experiment", name=name, owner=owner, span=member.name.span)
        case Record(kind="checkpoint" | "model"):
            base = {"base": Slot(value, value.span)}
            at = member.name.span
            return Experiment("experiment", base, at, name, member.doc or "", owner, from_checkpoint=True)
    helps = meant(value, ARM_PARENTS) or f"start from {one_of(ARM_PARENTS)}"
    return ctx.fail(
        "E0311", f"an arm cannot be made from {describe(value)}", value.span, describe(value), help=helps
    )


def _frontier(ctx: Context, member: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value | None:
    name = member.name.name
    if member.value is None or isinstance(member.value, tree.Amend):
        return record(ctx, member, scope, owner)
    value = evaluated(ctx, member.value, scope)
    if value is None:
        return None
    data = value.data
    if isinstance(data, Record) and data.kind == "envelope":
        made = reach.argued(ctx, data, owner, scope)
        if made is None:
            return None
        return Value(
            Frontier("frontier", {}, member.name.span, name, member.doc or "", owner, envelope=made),
            member.name.span,
        )
    if isinstance(data, Record) and data.kind == "frontier":
        return Value(replace(data, name=name, span=member.name.span), member.name.span)
    return ctx.fail(
        "E0311",
        f"a frontier cannot be made from {describe(value)}",
        value.span,
        describe(value),
        help="write `envelope(of: [base, vanilla], to: 32K tokens)`, or name a published frontier",
    )


def _report(
    ctx: Context, result: Record, owner: tuple[str, str]
) -> tuple[tuple[Record, ...], tuple[Record, ...], bool]:
    report = result.sub("report")
    children = report.children if isinstance(report, Section) else {}
    found: dict[str, list[Record]] = {"table": [], "chart": []}
    sound = True
    for item, scope in children.values():
        value = record(ctx, item, scope, (owner[0], f"{owner[1]}.report.{item.name.name}"))
        if value is None or not isinstance(value.data, Record):
            sound = False
        else:
            found[item.kind.name].append(value.data)
    return tuple(found["table"]), tuple(found["chart"]), sound
