"""Records: from a declaration, or an amended expression, to a parent with a block laid over it."""

from __future__ import annotations

from dataclasses import replace

from reodsl.language import reach
from reodsl.language.blocks import laid
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluated
from reodsl.language.finish import UNKNOWN, finished, finished_experiment
from reodsl.language.kinds import KINDS
from reodsl.language.meant import meant
from reodsl.language.schema import Kind, kinds_of
from reodsl.language.values import (
    Compound,
    Experiment,
    Frontier,
    Owner,
    Record,
    Scope,
    Slot,
    Value,
    article,
    describe,
    one_of,
)
from reodsl.syntax import tree

FROM_CHECKPOINT = ("checkpoint", "model")
PARTS = {
    "traces": ("style", "one way to write a step", 'style plain { template = "{value} {op} {next} ." }'),
    "published": ("row", "the numbers of one arm", 'row vanilla { title = "Vanilla RL", accuracy = 46.9% }'),
}
"""What the declarations inside a kind's block are, and how to write one."""


def split_amend(item: tree.Decl) -> tuple[tree.Expr | None, tree.Block | None]:
    """What a declaration is made from, and the block laid over it."""
    if isinstance(item.value, tree.Amend):
        return item.value.base, item.value.block
    return item.value, item.block


def record(ctx: Context, item: tree.Decl, scope: Scope, owner: Owner) -> Value | None:
    """The value of a declaration whose settings the table of kinds describes."""
    kind = KINDS[item.kind.name]
    parent, block = split_amend(item)
    start = _empty(kind, item, owner)
    if parent is not None:
        inherited = derived(ctx, parent, kind, start, scope)
        if inherited is None:
            return None
        start = inherited
    if block is not None:
        start = laid(ctx, start, block, scope, item.doc or start.doc)
    start = reach.amended(ctx, start, owner, scope)
    if isinstance(start, Compound):
        start = _parted(ctx, start, owner)
    if UNKNOWN in start.broken:
        return None
    if not kind.partial:
        complete = completed(ctx, start, kind)
        if complete is None:
            return None
        start = complete
    return Value(start, item.name.span)


def completed(ctx: Context, record: Record, kind: Kind) -> Record | None:
    """A record with its defaults filled in; None with what it lacks reported."""
    if isinstance(record, Experiment) and kind.name == "experiment":
        return finished_experiment(ctx, record)
    return finished(ctx, record, kind)


CLASSES: dict[str, type[Record]] = {
    "experiment": Experiment,
    "recipe": Experiment,
    "traces": Compound,
    "published": Compound,
    "frontier": Frontier,
}
"""The kinds with more to them than settings."""


def _empty(kind: Kind, item: tree.Decl, owner: Owner) -> Record:
    """A record of a kind that nothing is said of yet."""
    make = CLASSES.get(kind.name, Record)
    return make(kind.name, {}, item.name.span, item.name.name, item.doc or "", owner)


def _parted(ctx: Context, start: Compound, owner: Owner) -> Record:
    """Traces with their styles, or a published table with its rows, evaluated in the order of their declarations."""
    child, what, example = PARTS[start.kind]
    found = []
    for item, scope in start.children.values():
        value = record(ctx, item, scope, (owner[0], f"{owner[1]}.{item.name.name}"))
        if value is not None and isinstance(value.data, Record):
            found.append(value.data)
    if not start.children:
        ctx.fail(
            "E0304",
            f"`{start.name}` needs a {child}: {what}",
            start.span,
            f"no `{child}`",
            help=f"add `{example}`",
        )
    whole = bool(found) and len(found) == len(start.children)
    return replace(start, parts=tuple(found), broken=start.broken if whole else start.broken | {UNKNOWN})


def derived(ctx: Context, parent: tree.Expr, kind: Kind, start: Record, scope: Scope) -> Record | None:
    """A record of `kind` that begins as its parent is; None for a parent of the wrong kind.

    An unknown parent gives a record that is broken as a whole, so that the block over it is still looked at.
    """
    value = evaluated(ctx, parent, scope)
    if value is None:
        return replace(start, broken=frozenset({UNKNOWN}))
    above = value.data
    if not isinstance(above, Record) or above.kind not in kind.parents:
        return ctx.fail(
            "E0311",
            f"{article(kind.name)} {kind.name} cannot be made from {describe(value)}",
            parent.span,
            describe(value),
            help=_begun(value, kind, start.name),
        )
    if above.kind in FROM_CHECKPOINT and isinstance(start, Experiment):
        return replace(start, fields={"base": Slot(value, parent.span)}, from_checkpoint=True)
    return replace(above, kind=start.kind, span=start.span, name=start.name, doc=start.doc, owner=start.owner)


def _begun(value: Value, kind: Kind, name: str) -> str:
    """How to begin a declaration that was made from a value of the wrong kind."""
    source = kind.fields.get("source")
    if source is not None and isinstance(value.data, Record) and value.data.kind in kinds_of(source.type):
        return f"say it in a block: `{kind.name} {name} {{ source = {value.data.kind}(…), … }}`"
    if not kind.parents:
        return f"write `{kind.name} {name} {{ … }}`"
    return meant(value, kind.parents) or f"start from {one_of(kind.parents)}"


def amended(ctx: Context, expr: tree.Amend, scope: Scope) -> Value | None:
    """`base { overrides }` as an expression: the base with its settings changed."""
    value = evaluated(ctx, expr.base, scope)
    if value is None:
        return None
    above = value.data
    if isinstance(above, Record) and above.kind in FROM_CHECKPOINT:
        base = {"base": Slot(value, expr.base.span)}
        above = Experiment("experiment", base, expr.span, from_checkpoint=True)
    kind = KINDS.get(above.kind) if isinstance(above, Record) else None
    if not isinstance(above, Record) or kind is None or kind.form == "call":
        return ctx.fail(
            "E0311",
            f"{describe(value)} has no settings to change",
            expr.base.span,
            help="name a declaration",
        )
    result = laid(ctx, replace(above, owner=None), expr.block, scope, expr.block.doc or above.doc)
    if kind.partial:
        return Value(result, expr.span)
    complete = completed(ctx, result, kind)
    return None if complete is None else Value(complete, expr.span)
