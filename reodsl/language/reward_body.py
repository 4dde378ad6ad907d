"""Reward bodies: lets, and one value or one dense line, in types and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Label, Span, error, warning
from reodsl.language.context import Context, Scope
from reodsl.language.evaluate import evaluated
from reodsl.language.params import declared_type
from reodsl.language.reward_constant import report_blind, report_constant
from reodsl.language.reward_names import Body, Data, Environment, Typed
from reodsl.language.reward_parts import part_terms, typed_parts
from reodsl.language.reward_types import typed
from reodsl.language.rewards import Definition, bound_argument
from reodsl.language.schema import Num
from reodsl.language.units import PLAIN, TOKENS, Quantity, unit_words
from reodsl.language.values import Record, Value
from reodsl.syntax import tree
from reodsl.syntax.walk import walk


@dataclass(frozen=True, slots=True)
class TypedReward:
    """A reward that was found sound: its lets in order, its value or its dense value over a split, and what it uses.

    Expressions are canonical data: variables are renamed, numbers in base units. `split` is None where the
    parameter it comes from was not given. `cuts` are where it cuts responses, each with the fewest tokens that can be.
    """

    lets: tuple[tuple[str, Data], ...]
    outcome: Data | None
    dense: Data | None
    split: Record | None
    uses: frozenset[str]
    parts: tuple[Data, ...] = ()
    cuts: tuple[tuple[float, Span], ...] = ()


def typed_reward(
    ctx: Context, record: Record, *, symbolic: bool = False, at: Span | None = None
) -> TypedReward | None:
    """The body of a reward in types and units, or None with what is wrong reported.

    Without arguments for its parameters that is an error at `at`, where it is used, unless `symbolic`, where any value
    in range is meant.
    """

    def typed() -> TypedReward | None:
        found = environment(ctx, record, Environment(), symbolic=symbolic, at=at)
        return None if found is None else _body(ctx, record.made.item, *found)

    return ctx.once_of("symbolic" if symbolic else "typed", record, typed)


TAKEN = {
    "y": "the response",
    "x": "the question",
    "group": "a question's responses",
    "ref": "those of the starting model",
}


def _own_name(ctx: Context, name: tree.Ident) -> bool:
    """Whether a let or a parameter has a name that means nothing else in a reward."""
    if name.name not in TAKEN:
        return True
    ctx.report(
        error(
            "E0208",
            f"`{name.name}` means {TAKEN[name.name]} here",
            name.span,
            "taken",
            help="give it another name",
        )
    )
    return False


def environment(
    ctx: Context, record: Record, env: Environment, *, symbolic: bool, at: Span | None = None
) -> tuple[Environment, Scope] | None:
    """The names that the parameters of a reward or a selection stand for; None with what is missing reported."""
    definition: Definition = record.made
    item = definition.item
    args = dict(definition.args)
    scope_names: dict[str, Callable[[], Value | None]] = {}
    good = True
    for param in item.params or ():
        name = param.name.name
        good = _own_name(ctx, param.name) and good
        if name not in args and param.default is not None:
            bound = bound_argument(ctx, definition, param, param.default, Scope(definition.module))
            if bound is None:
                good = False
                continue
            args[name] = bound
        if name in args:
            value = args[name]
            scope_names[name] = lambda value=value: value  # type: ignore[misc]
            if isinstance(value.data, Quantity):
                number = float(value.data.number)
                env.values[name] = Typed({"op": "number", "value": number}, value.data.unit, number, number)
            else:
                env.others[name] = value
        elif symbolic:
            _open_param(ctx, definition, param, env)
        else:
            ctx.report(
                error(
                    "E0310",
                    f"the {record.kind} `{record.name}` needs `{name}`",
                    at or record.span,
                    f"no `{name}`",
                    others=[Label(param.span, "declared here")],
                    help=f"write `{record.name}({name}: …)`",
                )
            )
            good = False
    return (env, Scope(definition.module).inner(scope_names)) if good else None


def _open_param(ctx: Context, definition: Definition, param: tree.ParamDecl, env: Environment) -> None:
    type_ = declared_type(ctx, param.type)
    low, high = float("-inf"), float("inf")
    if isinstance(type_, Num):
        if param.range is not None:
            ends = [
                evaluated(ctx, end, Scope(definition.module))
                for end in (param.range.lower, param.range.upper)
            ]
            numbers = [
                float(end.data.number) for end in ends if end is not None and isinstance(end.data, Quantity)
            ]
            if len(numbers) == 2:
                low, high = numbers
        env.values[param.name.name] = Typed(
            {"op": "number", "value": 0.0, "open": param.name.name}, type_.dimension, low, high
        )
    elif type_ is not None:
        env.others[param.name.name] = None
    else:
        env.broken.add(param.name.name)


def _body(ctx: Context, item: tree.Decl, env: Environment, scope: Scope) -> TypedReward | None:
    assert item.block is not None
    body = Body(ctx, scope, env)
    lets: list[tuple[str, Data]] = []
    outcome: Data | None = None
    dense: Data | None = None
    split: Record | None = None
    parts: tuple[Data, ...] = ()
    ends: list[Span] = []
    values: list[tuple[Typed, Span]] = []
    good = True
    for part in item.block.items:
        match part:
            case tree.Let():
                value = typed(body, part.value)
                good = good and value is not None
                name = f"let{len(lets) + 1}"
                good = _own_name(ctx, part.name) and good
                if part.name.name in env.values or part.name.name in env.others:
                    ctx.report(
                        error(
                            "E0208",
                            f"`{part.name.name}` is there twice",
                            part.name.span,
                            "again here",
                            help="give it another name",
                        )
                    )
                    good = False
                if value is None:
                    env.broken.add(part.name.name)
                    continue
                env.values[part.name.name] = replace(value, data={"op": "name", "name": name})
                lets.append((name, value.data))
            case tree.ExprStatement():
                ends.append(part.span)
                if terms := part_terms(part.expr):
                    summed = typed_parts(body, terms, values)
                    good, parts = good and summed is not None, summed or ()
                    continue
                value = typed(body, part.expr)
                good = good and value is not None and _plain(ctx, value, part.expr.span)
                outcome = value.data if value is not None else None
                values += [(value, part.expr.span)] if value is not None else []
            case tree.Dense():
                ends.append(part.span)
                found, split = _dense(ctx, body, part, scope)
                good = good and found is not None
                dense = found.data if found is not None else None
                values += [(found, part.body.span)] if found is not None else []
            case _:
                unsaid = isinstance(part, tree.Setting) and part.op == "="
                ctx.report(
                    error(
                        "E0313",
                        "a reward holds `let`s and one value",
                        part.span,
                        help=f"write `let {part.name.name} = …`"
                        if unsaid
                        else "write `let NAME = …`, an expression, or `dense L in at: …`",
                    )
                )
                if unsaid:
                    env.broken.add(part.name.name)
                good = False
    if len(ends) != 1:
        ctx.report(
            error(
                "E0313",
                f"the reward `{item.name.name}` has {len(ends) or 'no'} value{'s' if len(ends) > 1 else ''}",
                ends[1] if len(ends) > 1 else item.name.span,
                "a second value" if len(ends) > 1 else "no value",
                help="end it in one expression such as `correct(y)`, or in one `dense` line",
            )
        )
        return None
    if not good:
        return None
    _unread(ctx, item)
    report_constant(ctx, item.name.name, values, dict(lets))
    report_blind(ctx, item.name.name, values, dict(lets))
    return TypedReward(tuple(lets), outcome, dense, split, frozenset(body.uses), parts, tuple(body.cuts))


def _unread(ctx: Context, item: tree.Decl) -> None:
    """W0203: lets and parameters that nothing in the reward reads."""
    assert item.block is not None
    named = [("let", part.name) for part in item.block.items if isinstance(part, tree.Let)]
    read = {node.name for node in walk(item.block) if isinstance(node, tree.Name)}
    named += [("parameter", param.name) for param in item.params or ()]
    for what, name in named:
        if name.name not in read:
            helps = "use it, or take it out"
            ctx.report(
                warning("W0203", f"the {what} `{name.name}` is never used", name.span, "unused", help=helps)
            )


def _dense(ctx: Context, body: Body, part: tree.Dense, scope: Scope) -> tuple[Typed | None, Record | None]:
    split: Record | None = None
    name = part.over.name if isinstance(part.over, tree.Name) else ""
    if name in body.env.values:
        helps = f"declare it as `{name}: budgets`"
        ctx.report(
            error("E0301", f"`{name}` is a number, and `dense` runs over splits", part.over.span, help=helps)
        )
        return None, None
    if not (name in body.env.others and body.env.others[name] is None):
        from reodsl.language.calls import splits

        over = splits(ctx, part.over, scope, "the splits of `dense`")
        if over is None or not isinstance(over.data, Record):
            return None, None
        split = over.data
    high = float("inf")
    if split is not None and split.made is not None:
        high = float(split.made.l_max)
    variable = Typed({"op": "name", "name": "L"}, TOKENS, 0.0, high)
    inner = replace(body, env=body.env.with_value(part.var.name, variable), variable=part.var.name)
    value = typed(inner, part.body)
    if value is None or not _plain(ctx, value, part.body.span):
        return None, split
    return value, split


def _plain(ctx: Context, value: Typed, span: Span) -> bool:
    if value.unit == PLAIN:
        return True
    ctx.report(
        error(
            "E0302",
            f"a reward is a plain number, and this is {unit_words(value.unit)}",
            span,
            unit_words(value.unit),
            help=("multiply" if dict(value.unit).get("tokens", 0) < 0 else "divide")
            + " by a length, such as `mean(len(z) for z in group)`",
        )
    )
    return False
