"""Type the body of a reward: its lets, and then one value, one dense line, or a sum of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from reodsl.diagnostics.model import Label, Span, warning
from reodsl.ir.expression import TRACK, Expression, History, Name
from reodsl.ir.expression import walk as walk_expression
from reodsl.ir.setting import Num
from reodsl.language.context import Context
from reodsl.language.evaluate import bind_argument, declared_type, evaluate
from reodsl.language.modules import describe_duplicate
from reodsl.language.reward.names import (
    FUNCTIONS,
    Body,
    Environment,
    Limits,
    LocalFunction,
    Typed,
    constant,
    fail,
)
from reodsl.language.reward.operators import named
from reodsl.language.reward.places import find_splits
from reodsl.language.reward.typing import OVER_STEPS, type_expression
from reodsl.language.reward.warnings import report_blind, report_constant
from reodsl.language.schema import unit_of
from reodsl.language.units import PLAIN, TOKENS, Dimension, Quantity, unit_words
from reodsl.language.values import Definition, Record, Scope, Value
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

TAKEN = {
    "y": "the response",
    "x": "the question",
    "group": "a question's responses",
    "ref": "those of the starting model",
    "monitor": "the responses to the monitor set",
}
KEPT = 6
"""How much more a name costs that is kept: a copy takes 100 bytes for each."""


@dataclass(frozen=True, slots=True)
class TypedPart:
    """One part of a sum: what it measures, what it is multiplied by, and whose tokens earn it."""

    value: Expression
    weight: float
    on: Literal["response", "prefix"]


@dataclass(frozen=True, slots=True)
class TypedReward:
    """A reward that was found sound: its lets in order, its value or its dense value over a split, and what it uses.

    Variables are renamed, numbers in base units. `split` is where it looks at responses: None where it does not, or
    where the parameter that this comes from was not given.
    `cuts` are where it cuts responses, each with the fewest tokens that can be.
    """

    lets: tuple[tuple[str, Expression], ...]
    outcome: Expression | None
    dense: Expression | None
    split: Record | None
    uses: frozenset[str]
    parts: tuple[TypedPart, ...] = ()
    cuts: tuple[tuple[float, Span], ...] = ()
    tracks: tuple[tuple[str, Expression], ...] = ()
    metrics: tuple[tuple[str, Expression], ...] = ()


def type_reward(
    ctx: Context,
    record: Definition,
    *,
    symbolic: bool = False,
    at: Span | None = None,
    limits: Limits | None = None,
) -> TypedReward | None:
    """The body of a reward in types and units, or None with what is wrong reported.

    Without arguments for its parameters that is an error at `at`, where it is used, unless `symbolic`, where any value
    in range is meant. With `limits`, those of one place that uses it, it is typed anew.
    """

    def read() -> TypedReward | None:
        env_and_scope = environment(ctx, record, Environment(), symbolic=symbolic, at=at)
        return None if env_and_scope is None else _body(ctx, record, *env_and_scope, limits or Limits())

    if limits is not None:
        return read()
    return ctx.once_of("symbolic" if symbolic else "typed", record, read)


@dataclass(slots=True)
class _Read:
    """What the items of a body came to so far. `ends` are the places of its values, of which there is one."""

    lets: list[tuple[str, Expression]] = field(default_factory=list)
    tracks: list[tuple[str, Expression]] = field(default_factory=list)
    metrics: list[tuple[str, Expression]] = field(default_factory=list)
    outcome: Expression | None = None
    dense: Expression | None = None
    parts: tuple[TypedPart, ...] = ()
    ends: list[Span] = field(default_factory=list)
    values: list[tuple[Typed, Span]] = field(default_factory=list)
    sound: bool = True


def _body(
    ctx: Context, reward: Definition, env: Environment, scope: Scope, limits: Limits
) -> TypedReward | None:
    item = reward.item
    body, reading = Body(ctx, scope, env, limits=limits), _Read()
    find_splits(body, reward.body)
    for part in reward.body.items:
        reading.sound = _item(body, part, reading) and reading.sound
    if len(reading.ends) != 1:
        count = len(reading.ends)
        return ctx.fail(
            "E0313",
            f"the reward `{item.name.name}` has {count or 'no'} value{'s' if count > 1 else ''}",
            reading.ends[1] if count > 1 else item.name.span,
            "a second value" if count > 1 else "no value",
            help="to go on in the next line, put the whole value in ( )"
            if count > 1 and any(map(_goes_on, reward.body.items))
            else "end it in one expression such as `correct(y)`, or in one `dense` line",
        )
    if not reading.sound:
        return None
    _unread(ctx, reward)
    report_constant(ctx, item.name.name, reading.values, dict(reading.lets))
    report_blind(ctx, item.name.name, reading.values, dict(reading.lets))
    return TypedReward(
        tuple(reading.lets),
        reading.outcome,
        reading.dense,
        body.splits.record,
        frozenset(body.uses),
        reading.parts,
        tuple(body.cuts),
        tuple(reading.tracks),
        tuple(reading.metrics),
    )


def _goes_on(item: tree.BlockItem) -> bool:
    """Whether a line begins with a sign, as one that goes on with the line above."""
    first = item.expr if isinstance(item, tree.ExprStatement) else None
    while isinstance(first, tree.Binary):
        first = first.left
    return isinstance(first, tree.Unary)


def _item(body: Body, item: tree.BlockItem, so_far: _Read) -> bool:
    """Reads one item into `so_far`; whether it is sound."""
    match item:
        case tree.Let():
            return define_let(body, item, so_far.lets)
        case tree.Decl(kind=tree.Ident("track")):
            return _track(body, item, so_far.tracks)
        case tree.Decl(kind=tree.Ident("metric")):
            return _metric(body, item, so_far.metrics)
        case tree.ExprStatement():
            so_far.ends.append(item.span)
            return _value(body, item.expr, so_far)
        case tree.Dense():
            so_far.ends.append(item.span)
            value = _dense(body, item)
            so_far.dense = value.data if value is not None else None
            so_far.values += [(value, item.body.span)] if value is not None else []
            return value is not None
        case _:
            _stray(body, item)
            return False


def _function(body: Body, item: tree.Let) -> bool:
    """Take a function of the body into its names; whether its own names are sound. It is typed where it is called."""
    env, name = body.env, item.name.name
    params = item.params or ()
    good = own_name(body.ctx, item.name)
    if name in env.values or name in env.others or name in env.functions or name in FUNCTIONS:
        body.ctx.report(describe_duplicate(name, item.name.span, None, "give it another name"))
        good = False
    seen: set[str] = set()
    for param in params:
        if param.name in seen or param.name in ("x", "group", "ref"):
            body.ctx.report(describe_duplicate(param.name, param.span, None, "give it another name"))
            good = False
        seen.add(param.name)
    # What it may use is kept as it is here, until the reward is read.
    body.ctx.spend("names", item.name.span, KEPT * env.size)
    closure = replace(
        env,
        values=dict(env.values),
        responses=dict(env.responses),
        others=dict(env.others),
        functions=dict(env.functions),
    )
    env.functions[name] = LocalFunction(name, params, item.value, closure)
    return good


def define_let(body: Body, item: tree.Let, lets: list[tuple[str, Expression]]) -> bool:
    env, name = body.env, item.name.name
    if item.params is not None:
        return _function(body, item)
    value = type_expression(body, item.value)
    good = own_name(body.ctx, item.name) and value is not None
    if name in env.values or name in env.others:
        body.ctx.report(describe_duplicate(name, item.name.span, None, "give it another name"))
        good = False
    if value is None:
        env.broken.add(name)
        return False
    canonical = f"let{len(lets) + 1}"
    env.values[name] = named(body, canonical, value)
    lets.append((canonical, value.data))
    return good


def _track(body: Body, item: tree.Decl, tracks: list[tuple[str, Expression]]) -> bool:
    """Take a track into the names of the body, before whose responses it is found; whether it is sound."""
    env, name = body.env, item.name.name
    if item.value is None or item.params is not None:
        helps = f"write `track {name} = mean(len(z) for z in {OVER_STEPS}, empty: 1K tokens)`"
        body.ctx.fail("E0313", "a track is one number", item.span, help=helps)
        env.broken.add(name)
        return False
    functions = {key: replace(each, env=_before(each.env)) for key, each in env.functions.items()}
    inner = replace(_before(env), functions=functions)
    value = type_expression(replace(body, env=inner, track=name), item.value)
    good = own_name(body.ctx, item.name) and value is not None
    if name in env.values or name in env.others or name in env.functions:
        body.ctx.report(describe_duplicate(name, item.name.span, None, "give it another name"))
        good = False
    if value is None:
        env.broken.add(name)
        return False
    if not any(isinstance(each, (History, Name)) for each in walk_expression(value.data)):
        body.ctx.fail(
            "E0313",
            f"the track `{name}` does not move",
            item.span,
            help=f"write `let {name} = …`, or let it run over `{OVER_STEPS}`, over `monitor`, or use `step`",
        )
        env.broken.add(name)
        return False
    env.values[name] = Typed(Name(name=f"{TRACK}{name}"), value.unit, value.low, value.high, value.condition)
    tracks.append((name, value.data))
    return good


def _before(env: Environment) -> Environment:
    """Return the names of numbers that are known before there is a response."""
    numbers = {
        key: value
        for key, value in env.values.items()
        if value.constant
        or value.open
        or (isinstance(value.data, Name) and value.data.name.startswith(TRACK))
    }
    return replace(env, values=numbers, responses={})


def _metric(body: Body, item: tree.Decl, metrics: list[tuple[str, Expression]]) -> bool:
    """Take a number that is logged, of any unit; whether it is sound. Nothing can read it."""
    name = item.name.name
    if item.value is None or item.params is not None:
        helps = f"write `metric {name} = len(y) / max(len(z) for z in group)`"
        body.ctx.fail("E0313", "a metric is one number", item.span, help=helps)
        return False
    value = type_expression(body, item.value)
    if any(name == each for each, _ in metrics):
        body.ctx.report(describe_duplicate(name, item.name.span, None, "give it another name"))
        return False
    if value is None:
        return False
    metrics.append((name, value.data))
    return True


def let_units(ctx: Context, record: Definition) -> dict[Span, Dimension]:
    """The units of the values that a body's `let`s name, by the names' places, whatever its parameters are given."""
    env_and_scope = environment(ctx, record, Environment(), symbolic=True)
    if env_and_scope is None:
        return {}
    env, scope = env_and_scope
    body, lets, units = Body(ctx, scope, env), list[tuple[str, Expression]](), dict[Span, Dimension]()
    for item in record.body.items:
        if isinstance(item, tree.Let) and define_let(body, item, lets) and item.params is None:
            units[item.name.span] = env.values[item.name.name].unit
    return units


def _value(body: Body, expr: tree.Expr, so_far: _Read) -> bool:
    """The value of a whole response, or the parts that it is the sum of."""
    if terms := part_terms(expr):
        summed = type_parts(body, terms, so_far.values)
        so_far.parts = summed or ()
        return summed is not None
    value = type_expression(body, expr)
    so_far.outcome = value.data if value is not None else None
    so_far.values += [(value, expr.span)] if value is not None else []
    # After an error elsewhere the unit may follow from it.
    return value is not None and (not so_far.sound or _plain(body.ctx, value, expr.span))


def _stray(body: Body, item: tree.BlockItem) -> None:
    if isinstance(item, tree.Setting) and item.op == "=":
        helps = f"write `let {item.name.name} = …`"
        body.env.broken.add(item.name.name)
    else:
        helps = "write `let NAME = …`, an expression, or `dense L in at: …`"
    body.ctx.fail("E0313", "a reward holds `let`s and one value", item.span, help=helps)


def _unread(ctx: Context, reward: Definition) -> None:
    """W0203: lets and parameters that nothing in the reward reads."""
    item = reward.item
    if ctx.trying or item.name.span in ctx.read:
        return
    ctx.read.add(item.name.span)
    named = [("let", part.name) for part in reward.body.items if isinstance(part, tree.Let)]
    named += [
        ("track", part.name)
        for part in reward.body.items
        if isinstance(part, tree.Decl) and part.kind.name == "track"
    ]
    read = {node.name for node in walk(reward.body) if isinstance(node, tree.Name)}
    named += [("parameter", param.name) for param in item.params or ()]
    for what, name in named:
        if name.name not in read:
            helps = "use it, or take it out"
            ctx.report(
                warning("W0203", f"the {what} `{name.name}` is never used", name.span, "unused", help=helps)
            )


def _dense(body: Body, part: tree.Dense) -> Typed | None:
    """The value of a line."""
    if body.splits.broken:
        return None
    variable = Typed(Name(name="L"), TOKENS, 1.0, body.splits.high)
    inner = replace(body, env=body.env.with_value(part.var.name, variable), variable=part.var.name)
    value = type_expression(inner, part.body)
    return value if value is not None and _plain(body.ctx, value, part.body.span) else None


def _plain(ctx: Context, value: Typed, span: Span) -> bool:
    if value.unit == PLAIN:
        return True
    ctx.fail(
        "E0302",
        f"a reward is a plain number, and this is {unit_words(value.unit)}",
        span,
        unit_words(value.unit),
        help=("multiply" if dict(value.unit).get("tokens", 0) < 0 else "divide")
        + " by a length, such as `mean(len(z) for z in group)`",
    )
    return False


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the sum: its weight as written (None is 1), whether it is taken away, and its call of `z`."""

    weight: tree.Expr | None
    negative: bool
    call: tree.Call


def part_terms(expr: tree.Expr) -> list[Term]:
    """The terms of a sum of `z(…)`, each perhaps multiplied by a number; none where it is another expression."""
    terms: list[Term] = []
    return terms if _collect(expr, False, terms) else []


def _collect(expr: tree.Expr, negative: bool, terms: list[Term]) -> bool:
    if isinstance(expr, tree.Binary) and expr.op in "+-":
        right = negative != (expr.op == "-")
        return _collect(expr.left, negative, terms) and _collect(expr.right, right, terms)
    match expr:
        case tree.Binary(op="*", right=tree.Call(function=tree.Name("z")) as call):
            terms.append(Term(expr.left, negative, call))
        case tree.Call(function=tree.Name("z")):
            terms.append(Term(None, negative, expr))
        case _:
            return False
    return True


def type_parts(
    body: Body, terms: list[Term], values: list[tuple[Typed, Span]]
) -> tuple[TypedPart, ...] | None:
    """The parts in types; a weight is one number. None with what is wrong reported. What each measures goes to `values`."""
    parts = [_part(body, term, values) for term in terms]
    typed = tuple(part for part in parts if part is not None)
    return typed if len(typed) == len(parts) else None


def _part(body: Body, term: Term, values: list[tuple[Typed, Span]]) -> TypedPart | None:
    weight = 1.0
    if term.weight is not None:
        value = type_expression(body, term.weight)
        if value is None:
            return None
        if not (value.constant or value.open) or value.unit != PLAIN:
            fail(body, "E0301", "a part is multiplied by a number", term.weight, "move the rest into `z(…)`")
            return None
        weight = value.low if value.constant else 0.0
    first, *rest = term.call.args or (None,)
    if first is None or first.name is not None or isinstance(first.value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", "`z` takes what it normalises", term.call, "write `z(correct(y))`")
        return None
    on: Literal["response", "prefix"] = "response"
    for arg in rest:
        match arg:
            case tree.Arg(name=tree.Ident("on"), value=tree.Name("response")):
                on = "response"
            case tree.Arg(name=tree.Ident("on"), value=tree.Name("prefix")):
                on = "prefix"
            case _:
                fail(
                    body, "E0310", "`z` takes one thing more: whose tokens earn it", arg, "write `on: prefix`"
                )
                return None
    measured = type_expression(body, first.value)
    if measured is None:
        return None
    if measured.unit != PLAIN:
        helps = "divide by a length, such as `mean(len(z) for z in group)`"
        fail(body, "E0302", "a part of a reward is a plain number", first, helps)
        return None
    values.append((measured, first.span))
    return TypedPart(measured.data, -weight if term.negative else weight, on)


def own_name(ctx: Context, name: tree.Ident) -> bool:
    """Return whether a let or a parameter has a name that means nothing else in a reward."""
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
        # No name of the language begins so.
        open_name = Name(name=f"?{param.name.name}")
        env.values[param.name.name] = Typed(open_name, unit_of(type_), low, high, open=True)
    elif type_ is not None:
        env.others[param.name.name] = None
    else:
        env.broken.add(param.name.name)
