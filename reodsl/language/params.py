"""Params: their declared types, their value from the file or from `--set`, and their range."""

from __future__ import annotations

from dataclasses import replace

from reodsl.diagnostics.model import Label
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluated, fitted, settled
from reodsl.language.kinds import DECLARED
from reodsl.language.kinds.types import SPLITS
from reodsl.language.modules import Loaded
from reodsl.language.schema import A, Flag, Many, Num, Text, Type
from reodsl.language.suggest import advice
from reodsl.language.units import UNITS, Quantity, shown
from reodsl.language.values import Items, Scope, Value
from reodsl.syntax import tree

PLAIN_TYPES: dict[str, Type] = {
    "number": Num(),
    "int": Num(whole=True),
    "text": Text(),
    "bool": Flag(),
    "budgets": SPLITS,
}


ELSEWHERE = {
    **dict.fromkeys(("float", "double", "real"), "number"),
    **dict.fromkeys(("integer", "Int", "long"), "int"),
    **dict.fromkeys(("str", "string", "String"), "text"),
    **dict.fromkeys(("boolean", "Bool"), "bool"),
    **dict.fromkeys(("list", "List", "tuple"), "[int]"),
}
"""What other languages call the plain types."""


def declared_type(ctx: Context, written: tree.TypeExpr) -> Type | None:
    """The type that a declaration names."""
    if isinstance(written, tree.ListType):
        item = declared_type(ctx, written.item)
        return None if item is None else Many(item)
    name = written.name
    if name in PLAIN_TYPES:
        return PLAIN_TYPES[name]
    if name in UNITS:
        return Num(UNITS[name])
    if name in DECLARED:
        return A((name,))
    known = [*PLAIN_TYPES, *sorted(set(UNITS.values())), *DECLARED]
    return ctx.fail(
        "E0315",
        f"there is no type `{name}`",
        written.span,
        "unknown",
        help=f"write `{ELSEWHERE[name]}`" if name in ELSEWHERE else advice(name, known, "types are"),
    )


def param_value(ctx: Context, module: Loaded, param: tree.Param) -> Value | None:
    """The value of a param: what `--set` gave, else its default; inside its range."""
    scope = Scope(module)
    type_ = declared_type(ctx, param.type)
    if type_ is None:
        return None
    name = param.name.name
    given = ctx.sets.get((module.key, name))
    if given is not None:
        value = fitted(ctx, given.value, scope, type_, name, _example(type_))
    elif param.default is not None:
        value = fitted(ctx, param.default, scope, type_, name, _example(type_))
    else:
        return ctx.fail(
            "E0304",
            f"the param `{name}` has no value",
            param.name.span,
            "has no default",
            help=f"give it one: `--set {name}=…`",
        )
    if value is not None and param.range is not None:
        value = in_range(ctx, value, param.range, type_, name, scope)
    if value is not None:
        ctx.params[name] = replace(value, literal=None)
        return ctx.params[name]
    return None


def in_range(
    ctx: Context, value: Value, range_: tree.Range, type_: Type, name: str, scope: Scope
) -> Value | None:
    """A value inside a declared range, every item of a list; None with a diagnostic when it is not."""
    item = type_.item if isinstance(type_, Many) else type_
    ends = []
    for end in (range_.lower, range_.upper):
        found = evaluated(ctx, end, scope)
        ends.append(None if found is None else settled(ctx, found, _unbounded(item), f"the range of {name}"))
    low, high = ends
    if (
        low is None
        or high is None
        or not isinstance(low.data, Quantity)
        or not isinstance(high.data, Quantity)
    ):
        return None
    if low.data.number > high.data.number:
        return ctx.fail(
            "E0303",
            f"the range of `{name}` ends before it begins",
            range_.span,
            help=f"write `{shown(high.data)}..{shown(low.data)}`",
        )
    values = value.data.values if isinstance(value.data, Items) else (value,)
    for each in values:
        if isinstance(each.data, Quantity) and not low.data.number <= each.data.number <= high.data.number:
            return ctx.fail(
                "E0303",
                f"`{name}` must be from {shown(low.data)} to {shown(high.data)}",
                each.span,
                shown(each.data),
                others=[Label(range_.span, "its range")],
                help="choose a value inside the range, or widen it where it is declared",
            )
    return value


def _example(type_: Type) -> str:
    """How a value of a param's type is written; empty where that is a name that the spec chooses."""
    match type_:
        case Num():
            return f"8 {type_.unit}".rstrip()
        case Text():
            return '"a text"'
        case Flag():
            return "true"
        case Many():
            inside = _example(type_.item)
            return f"[{inside}]" if inside else ""
    return "[1K tokens, 4K tokens]" if type_ is SPLITS else ""


def _unbounded(type_: Type) -> Type:
    return Num(type_.unit) if isinstance(type_, Num) else type_
