"""Type the body of a reward: its lets, and one value, one dense line, or parts; warn where it teaches nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from reodsl.diagnostics.model import Edit, Label, Span, warning
from reodsl.ir.base import IR, Node, parts_of, values_of
from reodsl.ir.expression import (
    METRIC,
    READINGS,
    STEP,
    TRACK,
    Aggregate,
    Bare,
    Constant,
    Correct,
    Expression,
    ForcedAnswer,
    Given,
    History,
    If,
    Infix,
    Length,
    Negation,
    Own,
    Previous,
    TokenRun,
    Variable,
    Weight,
    WeightAt,
)
from reodsl.ir.expression import walk as walk_expression
from reodsl.ir.reward import Earner, Metric, NamedValue, Part, Track
from reodsl.ir.setting import Num
from reodsl.language.bounds import NAME_STEPS
from reodsl.language.context import Context, NoValue, attempt, try_all
from reodsl.language.evaluate import bind_argument, evaluate, read_type
from reodsl.language.fitting import read_unit
from reodsl.language.modules import describe_duplicate
from reodsl.language.reward.names import (
    FUNCTIONS,
    INF,
    Body,
    LocalFunction,
    ResponseLimits,
    RewardNames,
    Typed,
    check_unit,
    fail,
    make_constant,
    refuse_unit,
)
from reodsl.language.reward.operators import name_value, negate
from reodsl.language.reward.places import find_splits
from reodsl.language.reward.typing import OVER_STEPS, is_start, type_expression
from reodsl.language.suggest import nearest
from reodsl.language.units import PLAIN, STEPS, TOKENS, Dimension, Quantity, describe_unit, write_amount
from reodsl.language.values import Definition, Record, Scope, Value
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

TAKEN = {
    "y": "the response",
    "x": "the question",
    "group": "a question's responses",
    "ref": "those of the reference model",
    "monitor": "the responses to the monitor set",
    "batch": "all responses of the step",
}
KEPT = 6
"""The further cost of a name that is kept: a copy takes 100 bytes for each."""


@dataclass(slots=True)
class TypedReward:
    """A reward in types: its lets in order, its value or its dense value over a split, and what it uses.

    Variables are renamed, numbers in base units. `split` is where it looks at responses: None where it does not, or
    where the parameter that this comes from was not given. `cuts` are where it cuts responses. `ends` are the places of its
    values, of which there should be one, and `values` what may be constant. `fields` are the numbers of a question that it
    reads, with the first place of each.
    """

    split: Record | None
    uses: set[str]
    cuts: list[tuple[Typed, Span]]
    lets: list[NamedValue] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    outcome: Expression | None = None
    dense: Expression | None = None
    parts: tuple[Part, ...] = ()
    ends: list[Span] = field(default_factory=list)
    values: list[tuple[Typed, Span]] = field(default_factory=list)
    fields: dict[str, Span] = field(default_factory=dict)
    sound: bool = True


def type_reward(
    ctx: Context,
    record: Definition,
    *,
    symbolic: bool = False,
    at: Span | None = None,
    limits: ResponseLimits | None = None,
) -> TypedReward | None:
    """Return the body of a reward in types and units, or None if it is wrong, which is reported.

    A parameter without an argument is an error at `at`, where the reward is used. With `symbolic` it may have any value
    in its range. With `limits`, those of one place that uses it, the reward is typed anew.
    """

    def read() -> TypedReward:
        env, scope = make_environment(ctx, record, RewardNames(), symbolic=symbolic, at=at)
        return _type_body(ctx, record, env, scope, limits or ResponseLimits())

    if limits is not None:
        return attempt(read)
    return ctx.memoize("symbolic" if symbolic else "typed", record, lambda: attempt(read))


@dataclass(frozen=True, slots=True)
class TypedMeasure:
    """A measure that was found sound: its lets in order, and its value."""

    lets: tuple[NamedValue, ...]
    value: Typed

    @property
    def nodes(self) -> Iterator[Node]:
        """Yield all expressions inside it."""
        for value in (*(each.value for each in self.lets), self.value.data):
            yield from walk_expression(value)


def type_measure(
    ctx: Context, record: Definition, *, symbolic: bool = False, at: Span | None = None
) -> TypedMeasure | None:
    """Return the body of a measure in types and units, or None if it is wrong, which is reported, as `type_reward` does."""

    def read() -> TypedMeasure:
        env, scope = make_environment(ctx, record, RewardNames(responses={}), symbolic=symbolic, at=at)
        body = Body(ctx, scope, env, measures=True, track="")
        lets, values = list[NamedValue](), list[Typed]()
        for item in record.body.items:
            match item:
                case tree.Let():
                    define_let(body, item, lets)
                case tree.ExprStatement() if not values:
                    values.append(type_expression(body, item.expr))
                case _:
                    helps = "write `let NAME = …`, or the value: `mean(correct(z) for z in arm)`"
                    ctx.fail("E0313", "a measure holds `let`s and one value", item.span, help=helps)
        report_unread(ctx, record)
        if not values or not any(
            isinstance(each, (History, Variable)) for each in walk_expression(values[0].data)
        ):
            helps = "end it in a number of means: `mean(correct(z) for z in arm)`"
            name = record.item.name
            ctx.fail("E0313", f"the measure `{name.name}` measures no responses", name.span, help=helps)
        return TypedMeasure(tuple(lets), values[0])

    return ctx.memoize("symbolic" if symbolic else "typed", record, lambda: attempt(read))


def _type_body(
    ctx: Context, reward: Definition, env: RewardNames, scope: Scope, limits: ResponseLimits
) -> TypedReward:
    item = reward.item
    written = {
        each.name.name: (each.kind.name if isinstance(each, tree.Decl) else "let", each.name.span)
        for each in reward.body.items
        if isinstance(each, (tree.Let, tree.Decl))
    }
    body = Body(ctx, scope, env, limits=limits, written=written)
    find_splits(body, reward.body)
    reading = TypedReward(body.splits.record, body.uses, body.cuts, fields=body.fields)
    for part in reward.body.items:
        try:
            _read_item(body, part, reading, last=part is reward.body.items[-1])
        except NoValue:
            reading.sound = False
    if len(reading.ends) != 1:
        count = len(reading.ends)
        ctx.fail(
            "E0313",
            f"the reward `{item.name.name}` has {count or 'no'} value{'s' if count > 1 else ''}",
            reading.ends[1] if count > 1 else item.name.span,
            "a second value" if count > 1 else "no value",
            help="to go on in the next line, put the whole value in ( )"
            if count > 1 and any(map(_continues, reward.body.items))
            else "end it in one expression such as `correct(y)`, or in one `dense` line",
        )
    if not reading.sound:
        raise NoValue
    report_unread(ctx, reward)
    lets = {let.name: let.value for let in reading.lets}
    report_constant(ctx, item.name.name, reading.values, lets)
    report_blind(ctx, item.name.name, reading.values, lets)
    _require_known_cuts(body, reading.lets)
    return reading


def _require_known_cuts(body: Body, lets: Sequence[NamedValue]) -> None:
    """Require that no place of a cut depends on an answer. Raises `NoValue`."""
    graded = set[str]()
    for let in lets:
        if _is_graded(let.value, graded):
            graded.add(let.name)
    for place, span in body.cuts:
        if _is_graded(place.data, graded):
            body.ctx.fail(
                "E0312",
                "a response is cut at a place that depends on whether answers are right",
                span,
                "known once all is graded",
                help="cut at budgets, lengths and given numbers, and let a verdict choose: `… if correct(y) else …`",
            )


def _is_graded(value: IR | Node, graded: Container[str], known: frozenset[str] = frozenset()) -> bool:
    """Return whether a value depends on an answer of the step: on a `graded` let, or on a response that is not `known`."""
    match value:
        case ForcedAnswer() | Bare() | Own() | TokenRun():
            return True
        case Correct():
            return value.of not in known
        case Given() if value.field in READINGS:
            return READINGS[value.field].graded
        case Variable():
            return value.name in graded
        case Aggregate():
            known = known | {value.var} if value.over in ("ref", "history") else known - {value.var}
    return any(_is_graded(part, graded, known) for part in parts_of(value))


def _continues(item: tree.BlockItem) -> bool:
    """Return whether a line begins with a sign, like one that continues the line above."""
    first = item.expr if isinstance(item, tree.ExprStatement) else None
    while isinstance(first, tree.Binary):
        first = first.left
    return isinstance(first, tree.Unary)


def _read_item(body: Body, item: tree.BlockItem, so_far: TypedReward, *, last: bool) -> None:
    """Read one item into `so_far`. Raises `NoValue`."""
    match item:
        case tree.Let():
            define_let(body, item, so_far.lets)
        case tree.Decl(kind=tree.Ident("track")):
            _define_track(body, item, so_far)
        case tree.Decl(kind=tree.Ident("metric")):
            _define_metric(body, item, so_far)
        case tree.ExprStatement():
            so_far.ends.append(item.span)
            _read_value(body, item.expr, so_far)
        case tree.Dense():
            so_far.ends.append(item.span)
            value = _type_dense(body, item)
            so_far.dense = value.data
            so_far.values.append((value, item.body.span))
        case tree.Assignment(name=tree.Ident(name), op="="):
            body.env.invalid.add(name)
            helps = f"write `let {name} = …`"
            if last and not so_far.ends:
                # It is meant as the value, which is then not missed as well.
                so_far.ends.append(item.span)
                helps = f"leave out `{name} =`: the value of a reward has no name"
            body.ctx.fail("E0313", "a reward holds `let`s and one value", item.span, help=helps)
        case _:
            helps = "write `let NAME = …`, an expression, or `dense L in at: …`"
            if isinstance(item, tree.Decl):
                body.env.invalid.add(item.name.name)
                meant = nearest(item.kind.name, ("let", "track", "metric"))
                helps = f"did you mean `{meant} {item.name.name} = …`?" if meant else helps
            body.ctx.fail("E0313", "a reward holds `let`s and one value", item.span, help=helps)


def _is_free(body: Body, name: tree.Ident, *taken: Container[str]) -> bool:
    """Return whether a name means nothing else in a reward, and report it if it does."""
    free = is_own_name(body.ctx, name)
    if any(name.name in each for each in taken):
        _report_duplicate(body.ctx, name)
        free = False
    return free


def _report_duplicate(ctx: Context, name: tree.Ident) -> None:
    ctx.report(describe_duplicate(name.name, name.span, None, "give it another name"))


def _define_function(body: Body, item: tree.Let) -> None:
    """Take a function of the body into its names. It is typed where it is called. Raises `NoValue` for a wrong name."""
    env, name = body.env, item.name.name
    params = item.params or ()
    free = _is_free(body, item.name, env.values, env.others, env.functions, FUNCTIONS)
    seen: set[str] = set()
    for param in params:
        if param.name in seen or param.name in ("x", "group", "ref"):
            _report_duplicate(body.ctx, param)
            free = False
        seen.add(param.name)
    # What it may use is kept as it is here, until the reward is read.
    body.ctx.charge(item.name.span, NAME_STEPS * KEPT * env.size)
    closure = replace(
        env,
        values=dict(env.values),
        responses=dict(env.responses),
        others=dict(env.others),
        functions=dict(env.functions),
    )
    env.functions[name] = LocalFunction(name, params, item.value, closure)
    if not free:
        raise NoValue


def define_let(body: Body, item: tree.Let, lets: list[NamedValue]) -> None:
    """Take a let into the names of the body. Raises `NoValue`."""
    env, name = body.env, item.name.name
    if item.params is not None:
        _define_function(body, item)
        return
    value = attempt(partial(type_expression, body, item.value))
    free = _is_free(body, item.name, env.values, env.others)
    if value is None:
        env.invalid.add(name)
        raise NoValue
    canonical = f"let{len(lets) + 1}"
    env.values[name] = name_value(body, canonical, value)
    lets.append(NamedValue.model_construct(name=canonical, value=value.data, written=name))
    if not free:
        raise NoValue


def _define_track(body: Body, item: tree.Decl, so_far: TypedReward) -> None:
    """Take a track into the names of the body, before whose responses it is found. Raises `NoValue`."""
    env, name, start = body.env, item.name.name, None
    if item.value is None or item.params is not None:
        helps = f"write `track {name} = mean(len(z) for z in {OVER_STEPS}, empty: 1K tokens)`"
        env.invalid.add(name)
        body.ctx.fail("E0313", "a track is one number", item.span, help=helps)
    inner = replace(body, env=replace(env.before_responses(), invalid={*env.invalid}), track=name)
    value, start = attempt(partial(_type_track, inner, item.value)) or (None, None)
    free = _is_free(body, item.name, env.values, env.others, env.functions)
    free = free and is_own_name(body.ctx, item.name, {STEP: "the number of steps that are done"})
    if value is None:
        env.invalid.add(name)
        raise NoValue
    if not any(isinstance(each, (History, Variable)) for each in walk_expression(value.data)):
        env.invalid.add(name)
        body.ctx.fail(
            "E0313",
            f"the track `{name}` does not move",
            item.span,
            help=f"write `let {name} = …`, or let it run over `{OVER_STEPS}`, over `monitor`, or use `step`",
        )
    env.values[name] = Typed(
        Variable(name=f"{TRACK}{name}"), value.unit, value.low, value.high, value.condition
    )
    so_far.tracks.append(Track.model_construct(name=name, value=value.data, start=start and start.data))
    if not free:
        raise NoValue


def _type_track(body: Body, written: tree.Expr) -> tuple[Typed, Typed | None]:
    """Return the number that a track is, and what it is at first where it reads the step before. Raises `NoValue`.

    Its range is what its bounds leave of any number before: no value before lies outside.
    """
    name = str(body.track)
    starts = [arg for arg in written.args if is_start(arg)] if isinstance(written, tree.Call) else []
    if not starts or not isinstance(written, tree.Call):
        return type_expression(body, written), None
    at = starts[0]
    if len(starts) > 1 or isinstance(at.value, (tree.Binding, tree.Comprehension)):
        last = body.ctx.text_at(starts[-1].span)
        helps = f"take `{last}` out" if len(starts) > 1 else "write `start: 0`"
        fail(body, "E0310", "a track has one start", starts[-1], helps)
    start = type_expression(body, at.value)
    moved = replace(written, args=tuple(arg for arg in written.args if arg is not at))

    def type_from(low: float, high: float, ctx: Context, unit: Dimension = start.unit) -> Typed:
        before = Typed(Variable(name=f"{TRACK}{name}"), unit, low, high)
        return type_expression(replace(body, ctx=ctx, env=body.env.with_value(name, before)), moved)

    widest = attempt(partial(type_from, -INF, INF, body.ctx.trial()))
    for unit in (TOKENS, STEPS) if widest is None and start.unit == PLAIN and start.constant else ():
        inner = attempt(partial(type_from, -INF, INF, body.ctx.trial(), unit))
        if inner is not None and inner.unit == unit:
            message = f"the track `{name}` is {describe_unit(unit)}, and its start is a plain number"
            amount = write_amount(start.low, unit)
            edits = (Edit(at.value.span, amount),)
            fail(body, "E0302", message, at, f"give it its unit: `start: {amount}`", edits)
    low, high = widest.interval if widest is not None else (-INF, INF)
    value = type_from(min(low, start.low), max(high, start.high), body.ctx)
    check_unit(body, start, value, at.span, moved.span, "`start`")
    read = [each.name for each in values_of(value.data, Variable)]
    if not any(each == TRACK + name or each.startswith(METRIC) for each in read):
        helps = f"read `{name}`, its value at the step before, or a metric above it, or take `start` out"
        fail(body, "E0310", f"the track `{name}` reads nothing of the step before", at, helps)
    return replace(value, low=min(value.low, start.low), high=max(value.high, start.high)), start


def _define_metric(body: Body, item: tree.Decl, so_far: TypedReward) -> None:
    """Take a number that is logged, of any unit. Tracks below it can read its mean at the step before. Raises `NoValue`."""
    name = item.name.name
    if item.value is None or item.params is not None:
        helps = f"write `metric {name} = len(y) / max(len(z) for z in group)`"
        body.ctx.fail("E0313", "a metric is one number", item.span, help=helps)
    value = attempt(partial(type_expression, body, item.value))
    if name in body.logged:
        _report_duplicate(body.ctx, item.name)
    elif value is not None:
        so_far.metrics.append(Metric.model_construct(name=name, value=value.data))
        body.logged[name] = Typed(Variable(name=f"{METRIC}{name}"), value.unit, value.low, value.high)
        return
    body.env.invalid.add(name)
    raise NoValue


def let_units(ctx: Context, record: Definition) -> dict[Span, Dimension]:
    """Return the units of the values that a body's `let`s name, by the names' places, for any arguments."""
    lets, units = list[NamedValue](), dict[Span, Dimension]()
    with suppress(NoValue):
        env, scope = make_environment(ctx, record, RewardNames(), symbolic=True)
        body = Body(ctx, scope, env)
        for item in record.body.items:
            if isinstance(item, tree.Let):
                with suppress(NoValue):
                    define_let(body, item, lets)
                    if item.params is None:
                        units[item.name.span] = env.values[item.name.name].unit
    return units


def _read_value(body: Body, expr: tree.Expr, so_far: TypedReward) -> None:
    """Read the value of a whole response, or the parts that it is the sum of. Raises `NoValue`."""
    if terms := split_terms(expr):
        so_far.parts = type_parts(body, terms, so_far.values, {each.name: each.value for each in so_far.lets})
        return
    value = type_expression(body, expr)
    so_far.outcome = value.data
    so_far.values.append((value, expr.span))
    # After an error elsewhere the unit may follow from it.
    if so_far.sound:
        _check_plain(body, value, expr.span)


def report_unread(ctx: Context, reward: Definition) -> None:
    """Report W0201: lets and parameters that nothing in a reward or a selection reads."""
    item = reward.item
    if ctx.is_trial or item.name.span in ctx.visited_bodies:
        return
    ctx.visited_bodies.add(item.name.span)
    named = [("let", part.name) for part in reward.body.items if isinstance(part, tree.Let)]
    read = _count_names(reward.body)
    for part in reward.body.items:
        if isinstance(part, tree.Decl) and part.kind.name == "track":
            named.append(("track", part.name))
            # What reads itself alone is read by nothing.
            read[part.name.name] -= _count_names(part)[part.name.name]
    named += [("parameter", param.name) for param in item.params or ()]
    for what, name in named:
        if read[name.name] <= 0:
            helps = "use it, or take it out"
            ctx.report(
                warning("W0201", f"the {what} `{name.name}` is never used", name.span, "unused", help=helps)
            )


def _count_names(node: tree.BraceBlock | tree.Decl) -> Counter[str]:
    return Counter(each.name for each in walk(node) if isinstance(each, tree.Name))


def _type_dense(body: Body, part: tree.Dense) -> Typed:
    """Return the value of a line. Raises `NoValue`."""
    if body.splits.invalid:
        raise NoValue
    variable = Typed(_SPLIT, TOKENS, 1.0, body.splits.high)
    inner = replace(body, env=body.env.with_value(part.var.name, variable), variable=part.var.name)
    value = type_expression(inner, part.body)
    _check_plain(body, value, part.body.span)
    return value


def _check_plain(body: Body, value: Typed, span: Span) -> None:
    if value.unit != PLAIN:
        refuse_unit(body, f"a reward is a plain number, and this is {describe_unit(value.unit)}", value, span)


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the sum: its weight as written (None is 1), whether it is subtracted, and its call of `z`."""

    weight: tree.Expr | None
    negative: bool
    call: tree.Call


def split_terms(expr: tree.Expr) -> list[Term]:
    """Return the terms of a sum of `z(…)`, each perhaps multiplied by a number; none for any other expression."""
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
    body: Body, terms: list[Term], values: list[tuple[Typed, Span]], lets: Lets
) -> tuple[Part, ...]:
    """Type the parts; a weight is one number for a question. The measures go to `values`. Raises `NoValue`."""
    return tuple(try_all(lambda term: _type_part(body, term, values, lets), terms))


def _type_part(body: Body, term: Term, values: list[tuple[Typed, Span]], lets: Lets) -> Part:
    weight: float | Expression = -1.0 if term.negative else 1.0
    if term.weight is not None:
        value = type_expression(body, term.weight)
        if value.unit != PLAIN:
            message = f"a part is multiplied by a plain number, and this is {describe_unit(value.unit)}"
            fail(body, "E0302", message, term.weight, "divide it by a constant of its unit")
        if differs(value.data, lets):
            message = "the weight of a part differs between the responses of a question"
            helps = "move what is of the response into `z(…)`; numbers, tracks and statistics stay before it"
            fail(body, "E0301", message, term.weight, helps)
        if term.negative:
            value = negate(value)
        weight = value.low if value.constant else value.data
    first, *rest = term.call.args or (None,)
    if first is None or first.name is not None or isinstance(first.value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", "`z` takes what it normalises", term.call, "write `z(correct(y))`")
    on: Earner = "response"
    for arg in rest:
        match arg:
            case tree.Arg(
                name=tree.Ident("on"),
                value=tree.Name("response" | "prefix" | "thinking" | "solution" as word),
            ):
                on = word
            case _:
                helps = "write `on: prefix`, `on: thinking` or `on: solution`"
                fail(body, "E0310", "`z` takes one thing more: whose tokens earn it", arg, helps)
    if on != "response":
        body.uses.add("prefix" if on == "prefix" else "phases")
    measured = type_expression(body, first.value)
    if measured.unit != PLAIN:
        refuse_unit(body, "a part of a reward is a plain number", measured, first.value.span)
    values.append((measured, first.span))
    return Part.model_construct(value=measured.data, weight=weight, on=on)


def is_own_name(ctx: Context, name: tree.Ident, taken: Mapping[str, str] = TAKEN) -> bool:
    """Return whether a let, a track or a parameter has a name that means nothing else in a reward."""
    if name.name not in taken:
        return True
    ctx.error(
        "E0208",
        f"`{name.name}` means {taken[name.name]} here",
        name.span,
        "taken",
        help="give it another name",
    )
    return False


def make_environment(
    ctx: Context, definition: Definition, env: RewardNames, *, symbolic: bool, at: Span | None = None
) -> tuple[RewardNames, Scope]:
    """Return the names that are the parameters of a reward or a selection. Raises `NoValue` if one is missing."""
    item = definition.item
    args = dict(definition.args)
    scope_names: dict[str, Callable[[], Value]] = {}
    good = True
    for param in item.params or ():
        name = param.name.name
        good = is_own_name(ctx, param.name) and good
        if name not in args and param.default is not None:
            try:
                args[name] = bind_argument(ctx, definition, param, param.default, Scope(definition.module))
            except NoValue:
                good = False
                continue
        if name in args:
            value = args[name]
            scope_names[name] = lambda value=value: value  # type: ignore[misc]
            if isinstance(value.data, Quantity):
                env.values[name] = make_constant(float(value.data.number), value.data.unit)
            else:
                env.others[name] = value
        elif symbolic:
            _define_open(ctx, definition, param, env)
        else:
            ctx.error(
                "E0310",
                f"the {definition.kind} `{definition.name}` needs `{name}`",
                at or definition.span,
                f"no `{name}`",
                others=[Label(param.span, "declared here")],
                help=f"write `{definition.name}({name}: …)`",
            )
            good = False
    if not good:
        raise NoValue
    return env, Scope(definition.module).inner(scope_names)


def _define_open(ctx: Context, definition: Definition, param: tree.ParamDecl, env: RewardNames) -> None:
    type_ = attempt(partial(read_type, ctx, param.type))
    low, high = float("-inf"), float("inf")
    if isinstance(type_, Num):
        if param.range is not None:
            scope = Scope(definition.module)
            with suppress(NoValue):
                ends = try_all(partial(evaluate, ctx, scope=scope), (param.range.lower, param.range.upper))
                numbers = [float(end.data.number) for end in ends if isinstance(end.data, Quantity)]
                if len(numbers) == 2:
                    low, high = numbers
        # No name of the language begins so.
        open_name = Variable(name=f"?{param.name.name}")
        env.values[param.name.name] = Typed(open_name, read_unit(type_), low, high, open=True)
        env.params[param.name.name] = param
    elif type_ is not None:
        env.others[param.name.name] = None
    else:
        env.invalid.add(param.name.name)


Lets: TypeAlias = Mapping[str, Expression]


def report_constant(ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Lets) -> None:
    """Report W0301: a reward, or each part of one, that is the same for every response of a question."""
    for value, span in values:
        if value.low != value.high and differs(value.data, lets):
            continue
        text = f"always {value.low:g}" if value.low == value.high else "nothing here is of the response `y`"
        ctx.report(
            warning(
                "W0301",
                f"the reward `{name}` is the same for every response of a question",
                span,
                text,
                notes=["equal rewards have no advantage: nothing is learnt from them"],
                help="let it depend on the response: `correct(y)`, `len(y)`",
            )
        )


def report_blind(ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Lets) -> None:
    """Report W0302: a reward that never asks whether an answer is right."""
    whole = [value.data for value, _ in values]
    if (
        not values
        or any(
            isinstance(each, (Correct, ForcedAnswer, Bare, TokenRun))
            for data in whole
            for each in _all(data, lets)
        )
        or not any(differs(data, lets) for data in whole)
    ):
        return
    ctx.report(
        warning(
            "W0302",
            f"the reward `{name}` never asks whether an answer is right",
            values[0][1],
            "no `correct`",
            notes=["a model trained by it may end in short, wrong answers"],
            help="let right answers earn more: `correct(y) + …`, or `… if correct(y) else …`",
        )
    )


def differs(data: Expression, lets: Lets) -> bool:
    """Return whether anything in an expression is measured of the response itself, through its lets."""
    return any(
        isinstance(each, (Length, Correct, ForcedAnswer, Bare, Given, Own, TokenRun))
        and each.of == "y"
        and not (isinstance(each, Given) and each.field not in READINGS)
        for each in _all(data, lets)
    )


def cancelled_factors(data: Expression, lets: Lets, over_batch: bool) -> list[Expression]:
    """Return what multiplies all that an expression earns alike, and so is lost in a z-score; a sign is not.

    That is alike for the responses of a question, or `over_batch` for those of all questions.
    """

    def is_alike(data: Expression) -> bool:
        nodes = list(_all(data, lets))
        of_split = any(isinstance(each, (Weight, WeightAt, Previous)) or each == _SPLIT for each in nodes)
        of_question = any(isinstance(each, (Aggregate, Given)) for each in nodes)
        sign = isinstance(data, Constant) and abs(data.value) == 1
        return not (sign or of_split or differs(data, lets) or (over_batch and of_question))

    return [each for each in (_find_factors(data, lets, {}) or {}).values() if is_alike(each)]


Factors: TypeAlias = dict[Expression | int, Expression] | None
"""Factors that multiply a whole expression; None for 0, of which everything is a factor."""


def _find_factors(data: Expression, lets: Lets, read: dict[int, Factors]) -> Factors:
    """Return the factors of an expression; `read` has those of what is shared."""
    if id(data) not in read:
        read[id(data)] = _multiplied(data, lets, read)
    return read[id(data)]


def _multiplied(data: Expression, lets: Lets, read: dict[int, Factors]) -> Factors:
    match data:
        case Constant(value=0.0):
            return None
        case Variable() if data.name in lets and differs(data, lets):
            return _find_factors(lets[data.name], lets, read)
        case Negation(fn="neg"):
            return _find_factors(data.value, lets, read)
        case Infix(fn="/"):
            return _find_factors(data.left, lets, read)
        case Infix(fn="*" | "+" | "-"):
            left, right = (_find_factors(each, lets, read) for each in (data.left, data.right))
            if data.fn == "*":
                return None if left is None or right is None else left | right
        case If():
            left, right = (_find_factors(each, lets, read) for each in (data.then, data.other))
        case _:
            return {data if isinstance(data, (Constant, Variable)) else id(data): data}
    if left is None or right is None:
        return right if left is None else left
    return {key: each for key, each in left.items() if key in right}


_SPLIT = Variable(name="L")
"""The split at hand of a `dense` line."""


def _all(data: Expression, lets: Lets) -> Iterator[IR | Node]:
    """Everything in an expression and in the lets behind its names, what is shared once."""
    waiting, met = list[IR | Node]([data]), set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        waiting += parts_of(each)
        if isinstance(each, Variable) and each.name in lets:
            waiting.append(lets[each.name])
