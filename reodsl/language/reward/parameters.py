"""Bind the parameters of a reward or a selection: to numbers, to splits, or left open."""

from __future__ import annotations

from collections.abc import Callable

from reodsl.diagnostics.model import Label, Span
from reodsl.ir.setting import Num
from reodsl.language.context import Context
from reodsl.language.evaluate import bind_argument, declared_type, evaluate
from reodsl.language.reward.names import Environment, constant, open_parameter
from reodsl.language.schema import unit_of
from reodsl.language.units import Quantity
from reodsl.language.values import Definition, Scope, Value
from reodsl.syntax import tree

TAKEN = {
    "y": "the response",
    "x": "the question",
    "group": "a question's responses",
    "ref": "those of the starting model",
    "monitor": "the responses to the monitor set",
}


def own_name(ctx: Context, name: tree.Ident) -> bool:
    """Whether a let or a parameter has a name that means nothing else in a reward."""
    if name.name not in TAKEN:
        return True
    ctx.fail(
        "E0208",
        f"`{name.name}` means {TAKEN[name.name]} here",
        name.span,
        "taken",
        help="give it another name",
    )
    return False


def environment(
    ctx: Context, definition: Definition, env: Environment, *, symbolic: bool, at: Span | None = None
) -> tuple[Environment, Scope] | None:
    """The names that the parameters of a reward or a selection stand for; None with what is missing reported."""
    item = definition.item
    args = dict(definition.args)
    scope_names: dict[str, Callable[[], Value | None]] = {}
    good = True
    for param in item.params or ():
        name = param.name.name
        good = own_name(ctx, param.name) and good
        if name not in args and param.default is not None:
            bound = bind_argument(ctx, definition, param, param.default, Scope(definition.module))
            if bound is None:
                good = False
                continue
            args[name] = bound
        if name in args:
            value = args[name]
            scope_names[name] = lambda value=value: value  # type: ignore[misc]
            if isinstance(value.data, Quantity):
                env.values[name] = constant(float(value.data.number), value.data.unit)
            else:
                env.others[name] = value
        elif symbolic:
            _open_param(ctx, definition, param, env)
        else:
            ctx.fail(
                "E0310",
                f"the {definition.kind} `{definition.name}` needs `{name}`",
                at or definition.span,
                f"no `{name}`",
                others=[Label(param.span, "declared here")],
                help=f"write `{definition.name}({name}: …)`",
            )
            good = False
    return (env, Scope(definition.module).inner(scope_names)) if good else None


def _open_param(ctx: Context, definition: Definition, param: tree.ParamDecl, env: Environment) -> None:
    type_ = declared_type(ctx, param.type)
    low, high = float("-inf"), float("inf")
    if isinstance(type_, Num):
        if param.range is not None:
            ends = [
                evaluate(ctx, end, Scope(definition.module)) for end in (param.range.lower, param.range.upper)
            ]
            numbers = [
                float(end.data.number) for end in ends if end is not None and isinstance(end.data, Quantity)
            ]
            if len(numbers) == 2:
                low, high = numbers
        env.values[param.name.name] = open_parameter(param.name.name, unit_of(type_), low, high)
    elif type_ is not None:
        env.others[param.name.name] = None
    else:
        env.broken.add(param.name.name)
