"""Evaluation: from expressions to values, in the types that settings want."""

from __future__ import annotations

from reodsl.diagnostics.model import Label, Span
from reodsl.language import arithmetic
from reodsl.language.context import DEEPEST, Context
from reodsl.language.examples import in_file, with_imports
from reodsl.language.fitting import fit
from reodsl.language.modules import Loaded
from reodsl.language.names import named
from reodsl.language.schema import Either, Many, Type
from reodsl.language.suggest import advice
from reodsl.language.units import UNITS, Quantity, dimension, scaled
from reodsl.language.values import Bounds, Items, Scope, Value, describe
from reodsl.syntax import tree

MOST_VALUES = 2**14


def fitted(
    ctx: Context, expr: tree.Expr, scope: Scope, want: Type, what: str, example: str = ""
) -> Value | None:
    """The value of an expression in the type of the setting `what`, or None with the reason reported."""
    value = evaluated(ctx, expr, scope, want)
    return None if value is None else settled(ctx, value, want, what, example, scope.module)


def settled(
    ctx: Context, value: Value, want: Type, what: str, example: str = "", module: Loaded | None = None
) -> Value | None:
    """A value in a type, or None with a diagnostic that names the setting and where its value comes from.

    With `module`, the example is one for that file.
    """
    if isinstance(value.data, Items):
        ctx.spend("lists", value.span, value.data.size)
    result = fit(value, want)
    if isinstance(result, Value):
        return result
    example, imports = in_file(ctx, module, example, want)
    return ctx.fail(
        result.code,
        result.message.replace("{what}", f"`{what}`"),
        result.value.span,
        result.text,
        others=[Label(place, text) for place, text in result.value.via],
        help=result.help
        or (f"write `{example}`, for example{with_imports(imports)}" if example else result.otherwise),
    )


def evaluated(ctx: Context, expr: tree.Expr, scope: Scope, want: Type | None = None) -> Value | None:
    """The value of an expression; `want` tells words from names and gives lists their items' type."""
    ctx.spend("expressions", expr.span)
    ctx.depth += 1
    try:
        if ctx.depth > DEEPEST * 6:
            return ctx.fail("E0209", "this is nested too deep", expr.span, help="give parts of it names")
        value = _evaluated(ctx, expr, scope, want)
        return None if value is None or too_long(ctx, value, expr.span) else value
    finally:
        ctx.depth -= 1


def too_long(ctx: Context, value: Value, span: Span) -> bool:
    """Whether a list is longer than any spec needs, which is reported: lists that join themselves grow without end."""
    if not isinstance(value.data, Items):
        return False
    if value.data.size - 1 <= MOST_VALUES:
        ctx.spend("lists", span, value.data.size)
        return False
    ctx.fail(
        "E0216",
        f"a list holds at most {MOST_VALUES} values, and this would hold {value.data.size - 1}",
        span,
        "too large",
        help="keep what is this large in a file of data, and name the file",
    )
    return True


def _evaluated(ctx: Context, expr: tree.Expr, scope: Scope, want: Type | None) -> Value | None:
    match expr:
        case tree.Number():
            return number(ctx, expr)
        case tree.String():
            return Value(expr.value, expr.span)
        case tree.Bool():
            return Value(expr.value, expr.span)
        case tree.Name():
            return named(ctx, expr, scope, want)
        case tree.ListExpr():
            item = _item(want)
            values = [evaluated(ctx, each, scope, item) for each in expr.items]
            whole = tuple(value for value in values if value is not None)
            return Value(Items(whole), expr.span) if len(whole) == len(values) else None
        case tree.Range():
            low, high = evaluated(ctx, expr.lower, scope), evaluated(ctx, expr.upper, scope)
            return Value(Bounds(low, high), expr.span) if low is not None and high is not None else None
        case tree.Unary():
            operand = evaluated(ctx, expr.operand, scope)
            return None if operand is None else arithmetic.unary(ctx, expr, operand)
        case tree.Binary():
            left, right = evaluated(ctx, expr.left, scope, want), evaluated(ctx, expr.right, scope, want)
            return None if left is None or right is None else arithmetic.binary(ctx, expr, left, right)
        case tree.Compare():
            left, right = evaluated(ctx, expr.left, scope), evaluated(ctx, expr.right, scope)
            return None if left is None or right is None else arithmetic.compare(ctx, expr, left, right)
        case tree.Logic():
            left, right = evaluated(ctx, expr.left, scope, want), evaluated(ctx, expr.right, scope, want)
            return None if left is None or right is None else arithmetic.logic(ctx, expr, left, right)
        case tree.Not():
            operand = evaluated(ctx, expr.operand, scope)
            return None if operand is None else arithmetic.negation(ctx, expr, operand)
        case tree.IfElse():
            return _if_else(ctx, expr, scope, want)
        case tree.Call():
            from reodsl.language.calls import called

            return called(ctx, expr, scope)
        case tree.Attribute():
            from reodsl.language.attributes import attribute

            return attribute(ctx, expr, scope, want)
        case tree.Index():
            from reodsl.language.attributes import index

            return index(ctx, expr, scope)
        case tree.Slice():
            return ctx.fail(
                "E0308",
                "a response is cut inside a reward only",
                expr.span,
                help="write `y[:L]` in a `reward`",
            )
        case tree.Amend():
            from reodsl.language.records import amended

            return amended(ctx, expr, scope)


def number(ctx: Context, expr: tree.Number) -> Value | None:
    """The quantity that a number is; without a unit it stays open to the one of its setting."""
    unit = dimension(expr.unit)
    if unit is None:
        return ctx.fail(
            "E0305",
            f"there is no unit `{expr.unit}`",
            expr.unit_span or expr.span,
            "not a unit",
            help=_unit_meant(expr) or advice(expr.unit or "", UNITS, "units are"),
        )
    if expr.suffix == "%" and unit:
        return ctx.fail(
            "E0302", "a share has no unit", expr.span, "% of what?", help=f"write `{expr.text}` alone"
        )
    value = scaled(expr.value, expr.suffix, unit)
    if value is None:
        return ctx.fail(
            "E0303", "this number is past all sense", expr.span, "too large", help="write a smaller one"
        )
    return Value(Quantity(value, unit), expr.span, literal=expr if expr.unit is None else None)


def _unit_meant(expr: tree.Number) -> str | None:
    """The help for a suffix or a share that is written as a unit: `16 K`, `16 Ktokens`, `5 percent`."""
    unit, number = expr.unit or "", expr.text.split()[0]
    if unit in ("percent", "pct"):
        return f"write `{number}%`"
    if unit[:1] in ("K", "k", "M", "G") and not expr.suffix and unit[1:] in ("", *UNITS):
        return f"write `{number}{unit[0].upper()}{f' {unit[1:]}' if unit[1:] else ''}`"
    return None


def _if_else(ctx: Context, expr: tree.IfElse, scope: Scope, want: Type | None) -> Value | None:
    condition = evaluated(ctx, expr.condition, scope)
    if condition is None:
        return None
    if not isinstance(condition.data, bool):
        return ctx.fail(
            "E0301",
            f"a condition is true or false, not {describe(condition)}",
            expr.condition.span,
            help="compare it: `… > 0`",
        )
    return evaluated(ctx, expr.then if condition.data else expr.otherwise, scope, want)


def _item(want: Type | None) -> Type | None:
    if isinstance(want, Many):
        return want.item
    if isinstance(want, Either):
        return next((_item(option) for option in want.options if isinstance(option, Many)), None)
    return None
