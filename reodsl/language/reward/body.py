"""Type the body of a reward: its lets, and one value, one dense line, or parts; warn if nothing can be learnt."""

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
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Expression,
    ForcedAnswer,
    If,
    Infix,
    Length,
    Negation,
    PriorSplit,
    PythonTerm,
    StepStatistic,
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
    FormulaScope,
    LocalFunction,
    Names,
    ResponseLimits,
    TypedExpr,
    check_unit,
    fail,
    make_constant,
    refuse_unit,
)
from reodsl.language.reward.operators import name_value, negate
from reodsl.language.reward.splits import find_splits
from reodsl.language.reward.typing import OVER_STEPS, is_start, type_expression
from reodsl.language.suggest import nearest
from reodsl.language.units import PLAIN, STEPS, TOKENS, Dimension, Quantity, describe_unit, write_amount
from reodsl.language.values import Definition, Record, Scope, Value
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

RESERVED = {
    "y": "the response",
    "x": "the question",
    "group": "a question's responses",
    "ref": "the reference model's responses",
    "monitor": "the responses to the monitor set",
    "batch": "all responses of the step",
}
COPY_COST = 6
"""The additional work for each name that is copied for a local function: a copy takes 100 bytes."""


@dataclass(slots=True)
class TypedReward:
    """A typed reward: variables are renamed, and numbers are in base units."""

    split: Record | None
    """The splits of responses; None without splits, or if a parameter they depend on has no argument."""
    uses: set[str]
    """The needs of the reward in training: `group`, `ref`, `forced`, `teacher` and the like."""
    cuts: list[tuple[TypedExpr, Span]]
    """The cuts of responses: the number of tokens, and the span."""
    lets: list[NamedValue] = field(default_factory=list)
    """Its `let`s, in order."""
    tracks: list[Track] = field(default_factory=list)
    """Its tracks, in order."""
    metrics: list[Metric] = field(default_factory=list)
    """The numbers that it logs, in order."""
    numbers: dict[str, TypedExpr] = field(default_factory=dict)
    """Its tracks and metrics by name, as settings of a stage read them; of two with one name the track."""
    outcome: Expression | None = None
    """The value of a complete response; None with `dense` or parts."""
    dense: Expression | None = None
    """The value at a split `L`."""
    parts: tuple[Part, ...] = ()
    """The parts, each normalised by itself."""
    ends: list[Span] = field(default_factory=list)
    """The spans of its values, of which there should be exactly one."""
    values: list[tuple[TypedExpr, Span]] = field(default_factory=list)
    """The values, which may be constant, with their spans."""
    fields: dict[str, Span] = field(default_factory=dict)
    """The numbers of a question that it reads, each with its first span."""
    is_sound: bool = True
    """True if no line has an error."""


def type_reward(
    ctx: Context,
    record: Definition,
    *,
    symbolic: bool = False,
    span: Span | None = None,
    limits: ResponseLimits | None = None,
) -> TypedReward | None:
    """Type a reward: find units, ranges of values and mistakes, which are reported.

    The result is memoized, except for a call with `limits`.

    Args:
        ctx: The evaluation.
        record: The reward with its arguments.
        symbolic: Whether a parameter without an argument may have any value in its range, and is not an error.
        span: The use of the reward, at which a missing argument is an error.
        limits: The limits of responses where the reward is used; None for any responses.

    Returns:
        The typed reward, or None if it is wrong.
    """

    def read() -> TypedReward:
        env, scope = make_environment(ctx, record, Names(), symbolic=symbolic, span=span)
        return _type_body(ctx, record, env, scope, limits or ResponseLimits())

    if limits is not None:
        return attempt(read)
    return ctx.memoize("symbolic" if symbolic else "typed", record, lambda: attempt(read))


@dataclass(frozen=True, slots=True)
class TypedMeasure:
    """A sound measure: its `let`s in order, and its value."""

    lets: tuple[NamedValue, ...]
    value: TypedExpr

    @property
    def nodes(self) -> Iterator[Node]:
        """Yield every expression of the measure, from its `let`s and its value."""
        for value in (*(let.value for let in self.lets), self.value.data):
            yield from walk_expression(value)


def type_measure(
    ctx: Context, record: Definition, *, symbolic: bool = False, span: Span | None = None
) -> TypedMeasure | None:
    """Type a measure, a number that a study computes from the responses of an arm; mistakes are reported.

    Args:
        ctx: The evaluation.
        record: The measure with its arguments.
        symbolic: Whether a parameter without an argument may have any value in its range, and is not an error.
        span: The use of the measure, at which a missing argument is an error.

    Returns:
        The typed measure, or None if it is wrong.
    """

    def read() -> TypedMeasure:
        """Type the lines of the measure: `let`s and one value, which must read responses.

        Raises:
            NoValue: The measure is wrong, which was reported.
        """
        env, scope = make_environment(ctx, record, Names(responses={}), symbolic=symbolic, span=span)
        body = FormulaScope(ctx, scope, env, is_measure=True, track="")
        lets, values = list[NamedValue](), list[TypedExpr]()
        for item in record.body.items:
            match item:
                case tree.Let():
                    define_let(body, item, lets)
                case tree.ExprStatement() if not values:
                    values.append(type_expression(body, item.expr))
                case _:
                    hint = "write `let NAME = …`, or the value: `mean(correct(z) for z in arm)`"
                    ctx.fail("E0313", "a measure holds `let`s and one value", item.span, help=hint)
        report_unread(ctx, record)
        if not values or not any(
            isinstance(node, (StepStatistic, Variable)) for node in walk_expression(values[0].data)
        ):
            hint = "end it with a formula of means: `mean(correct(z) for z in arm)`"
            name = record.item.name
            ctx.fail("E0313", f"the measure `{name.name}` measures no responses", name.span, help=hint)
        return TypedMeasure(tuple(lets), values[0])

    return ctx.memoize("symbolic" if symbolic else "typed", record, lambda: attempt(read))


def _type_body(
    ctx: Context, reward: Definition, env: Names, scope: Scope, limits: ResponseLimits
) -> TypedReward:
    """Type the lines of a reward's body, and check the whole reward.

    A reward must have exactly one value, and cut responses only at budgets that are known before grading; else it
    is wrong. A reward that does not read all its `let`s, or does not depend on the response, gets a warning.

    Args:
        ctx: The evaluation.
        reward: The reward.
        env: The names that the lines may use, at first only the reward's parameters.
        scope: The scope in which expressions of the file, such as budgets, read the arguments.
        limits: The limits of responses.

    Raises:
        NoValue: The reward is wrong, which was reported.
    """
    item = reward.item
    line_kinds = {
        line.name.name: (line.kind.name if isinstance(line, tree.Decl) else "let", line.name.span)
        for line in reward.body.items
        if isinstance(line, (tree.Let, tree.Decl))
    }
    body = FormulaScope(ctx, scope, env, limits=limits, line_kinds=line_kinds)
    find_splits(body, reward.body)
    typed = TypedReward(body.splits.record, body.uses, body.cuts, fields=body.fields)
    for line in reward.body.items:
        try:
            _read_item(body, line, typed, is_last=line is reward.body.items[-1])
        except NoValue:
            typed.is_sound = False
    if len(typed.ends) != 1:
        count = len(typed.ends)
        ctx.fail(
            "E0313",
            f"the reward `{item.name.name}` has {count or 'no'} value{'s' if count > 1 else ''}",
            typed.ends[1] if count > 1 else item.name.span,
            "a second value" if count > 1 else "no value",
            help="to continue an expression in the next line, put it in ( )"
            if count > 1 and any(map(_begins_with_sign, reward.body.items))
            else "end it with one expression such as `correct(y)`, or with one `dense` line",
        )
    if not typed.is_sound:
        raise NoValue
    report_unread(ctx, reward)
    lets = {let.name: let.value for let in typed.lets}
    report_constant(ctx, item.name.name, typed.values, lets)
    report_blind(ctx, item.name.name, typed.values, lets)
    _require_known_cuts(body, typed.lets)
    return typed


def _require_known_cuts(body: FormulaScope, lets: Sequence[NamedValue]) -> None:
    """Check that the cuts of responses do not depend on whether answers are right, or report E0312.

    All cut responses are graded together, so cuts must be known before grading.

    Args:
        body: The formula with its cuts.
        lets: The `let`s of the reward, in order.

    Raises:
        NoValue: A cut depends on a verdict, which was reported.
    """
    graded = set[str]()
    for let in lets:
        if _is_graded(let.value, graded):
            graded.add(let.name)
    for cut, span in body.cuts:
        if _is_graded(cut.data, graded):
            body.ctx.fail(
                "E0312",
                "where a response is cut depends on whether answers are right",
                span,
                "known only after grading",
                help="cut at budgets, lengths and constants, and choose a value by the verdict: `… if correct(y) else …`",
            )


def _is_graded(value: IR | Node, graded: Container[str], fixed: frozenset[str] = frozenset()) -> bool:
    """Return whether a value is known only after the answers of the current step were graded or scored.

    This is so for verdicts, for numbers by users' functions, and for numbers that models give to tokens. Verdicts
    on responses of the reference model and of earlier steps are known before.

    Args:
        value: A node of an expression.
        graded: The names of `let`s that depend on grading.
        fixed: The variables over responses that were graded before the step.
    """
    match value:
        case ForcedAnswer() | CutAnswer() | PythonTerm() | TokenRun():
            return True
        case Correct():
            return value.of not in fixed
        case Attribute() if value.field in READINGS:
            return READINGS[value.field].graded
        case Variable():
            return value.name in graded
        case Aggregate():
            fixed = fixed | {value.var} if value.over in ("ref", "history") else fixed - {value.var}
    return any(_is_graded(child, graded, fixed) for child in parts_of(value))


def _begins_with_sign(item: tree.BlockItem) -> bool:
    """Return whether a line of a reward begins with `+` or `-`, as if it continued the line above."""
    first = item.expr if isinstance(item, tree.ExprStatement) else None
    while isinstance(first, tree.Binary):
        first = first.left
    return isinstance(first, tree.Unary)


def _read_item(body: FormulaScope, item: tree.BlockItem, reward: TypedReward, *, is_last: bool) -> None:
    """Type a line of a reward's body, and add the result to `reward`.

    A line is a `let`, a track, a metric, a `dense` line or the value. `reward.ends` gets the span of each value, so
    that a missing or a second value can be reported.

    Args:
        body: The names and facts so far, to which a definition is added.
        item: The line.
        reward: The typed reward so far.
        is_last: Whether this is the last line, where the value is expected.

    Raises:
        NoValue: The line is wrong, which was reported.
    """
    match item:
        case tree.Let():
            define_let(body, item, reward.lets)
        case tree.Decl(kind=tree.Ident("track")):
            _define_track(body, item, reward)
        case tree.Decl(kind=tree.Ident("metric")):
            _define_metric(body, item, reward)
        case tree.ExprStatement():
            reward.ends.append(item.span)
            _read_value(body, item.expr, reward)
        case tree.Dense():
            reward.ends.append(item.span)
            value = _type_dense(body, item)
            reward.dense = value.data
            reward.values.append((value, item.body.span))
        case tree.Assignment(name=tree.Ident(name), op="="):
            body.env.invalid.add(name)
            hint = f"write `let {name} = …`"
            if is_last and not reward.ends:
                # The line is meant as the value: a missing value is not a second mistake.
                reward.ends.append(item.span)
                hint = f"leave out `{name} =`: the value of a reward has no name"
            body.ctx.fail("E0313", "a reward holds `let`s and one value", item.span, help=hint)
        case _:
            hint = "write `let NAME = …`, an expression, or `dense L in at: …`"
            if isinstance(item, tree.Decl):
                body.env.invalid.add(item.name.name)
                nearest_word = nearest(item.kind.name, ("let", "track", "metric"))
                hint = f"did you mean `{nearest_word} {item.name.name} = …`?" if nearest_word else hint
            body.ctx.fail("E0313", "a reward holds `let`s and one value", item.span, help=hint)


def _is_free(body: FormulaScope, name: tree.Ident, *scopes: Container[str]) -> bool:
    """Return whether a new name may be defined, and report a name that may not.

    Args:
        body: The formula.
        name: The new name.
        scopes: The sets of names that are already defined. A name in one of them, or a reserved name, is reported.
    """
    is_free = is_own_name(body.ctx, name)
    if any(name.name in scope for scope in scopes):
        _report_duplicate(body.ctx, name)
        is_free = False
    return is_free


def _report_duplicate(ctx: Context, name: tree.Ident) -> None:
    """Report that a name is defined twice."""
    ctx.report(describe_duplicate(name.name, name.span, None, "give it another name"))


def _define_function(body: FormulaScope, item: tree.Let) -> None:
    """Add a local function, `let f(a) = …`, to the names of the body.

    The value of the function is typed at each call. It may use the names that are defined above the function, which
    are copied here.

    Raises:
        NoValue: The name of the function or of a parameter is taken, which was reported.
    """
    env, name = body.env, item.name.name
    params = item.params or ()
    is_free = _is_free(body, item.name, env.values, env.other_params, env.functions, FUNCTIONS)
    seen: set[str] = set()
    for param in params:
        if param.name in seen or param.name in ("x", "group", "ref"):
            _report_duplicate(body.ctx, param)
            is_free = False
        seen.add(param.name)
    # The function may use the names that are defined above it, so that these are copied.
    body.ctx.charge(item.name.span, NAME_STEPS * COPY_COST * env.size)
    closure = replace(
        env,
        values=dict(env.values),
        responses=dict(env.responses),
        other_params=dict(env.other_params),
        functions=dict(env.functions),
    )
    env.functions[name] = LocalFunction(name, params, item.value, closure)
    if not is_free:
        raise NoValue


def define_let(body: FormulaScope, item: tree.Let, lets: list[NamedValue]) -> None:
    """Type a `let`, and add it to the names of the body and to `lets` as `let1`, `let2` and so on.

    Args:
        body: The formula, whose names are added to.
        item: The `let` in the syntax tree.
        lets: The typed `let`s so far.

    Raises:
        NoValue: The value or the name is wrong, which was reported.
    """
    env, name = body.env, item.name.name
    if item.params is not None:
        _define_function(body, item)
        return
    value = attempt(partial(type_expression, body, item.value))
    is_free = _is_free(body, item.name, env.values, env.other_params)
    if value is None:
        env.invalid.add(name)
        raise NoValue
    canonical = f"let{len(lets) + 1}"
    env.values[name] = name_value(body, canonical, value)
    lets.append(NamedValue.model_construct(name=canonical, value=value.data, written=name))
    if not is_free:
        raise NoValue


def _define_track(body: FormulaScope, item: tree.Decl, reward: TypedReward) -> None:
    """Type a track, and add it to the names of the body and to the reward.

    A track is a number that changes from step to step. It is computed before a step samples responses. It can
    therefore read only earlier steps, the monitor set, the number of finished steps, and tracks above it.

    Args:
        body: The formula, whose names are added to.
        item: The track in the syntax tree.
        reward: The typed reward so far.

    Raises:
        NoValue: The track is wrong, which was reported.
    """
    env, name, start = body.env, item.name.name, None
    if item.value is None or item.params is not None:
        hint = f"write `track {name} = mean(len(z) for z in {OVER_STEPS}, empty: 1K tokens)`"
        env.invalid.add(name)
        body.ctx.fail("E0313", "a track is one number", item.span, help=hint)
    inner = replace(body, env=replace(env.before_responses(), invalid={*env.invalid}), track=name)
    value, start = attempt(partial(_type_track, inner, item.value)) or (None, None)
    is_free = _is_free(body, item.name, env.values, env.other_params, env.functions)
    is_free = is_free and is_own_name(body.ctx, item.name, {STEP: "the number of finished steps"})
    if value is None:
        env.invalid.add(name)
        raise NoValue
    if not any(isinstance(node, (StepStatistic, Variable)) for node in walk_expression(value.data)):
        env.invalid.add(name)
        body.ctx.fail(
            "E0313",
            f"the track `{name}` has the same value at every step",
            item.span,
            help=f"write `let {name} = …`, or let it run over `{OVER_STEPS}`, over `monitor`, or use `step`",
        )
    reward.numbers[name] = env.values[name] = TypedExpr(
        Variable(name=f"{TRACK}{name}"), value.unit, value.low, value.high, value.is_condition
    )
    reward.tracks.append(Track.model_construct(name=name, value=value.data, start=start and start.data))
    if not is_free:
        raise NoValue


def _type_track(body: FormulaScope, expr: tree.Expr) -> tuple[TypedExpr, TypedExpr | None]:
    """Type the value of a track, which with a `start` may read its own value at the previous step.

    A track without a `start` is typed as any expression. A track with a `start` is typed twice, since the range of
    its value depends on the range of its previous value. The first pass assumes any previous value, and finds the
    range to which the track is bounded, for example by `clip`. The second pass assumes a previous value in this
    range, and reports mistakes.

    Returns:
        (the value, the value of `start` or None).

    Raises:
        NoValue: The track is wrong, which was reported.
    """
    name = str(body.track)
    starts = [arg for arg in expr.args if is_start(arg)] if isinstance(expr, tree.Call) else []
    if not starts or not isinstance(expr, tree.Call):
        return type_expression(body, expr), None
    start_arg = starts[0]
    if len(starts) > 1 or isinstance(start_arg.value, (tree.Binding, tree.Comprehension)):
        last = body.ctx.text_at(starts[-1].span)
        hint = f"take `{last}` out" if len(starts) > 1 else "write `start: 0`"
        fail(body, "E0310", "a track has one start", starts[-1], hint)
    start = type_expression(body, start_arg.value)
    update = replace(expr, args=tuple(arg for arg in expr.args if arg is not start_arg))

    def type_from(low: float, high: float, ctx: Context, unit: Dimension = start.unit) -> TypedExpr:
        """Return the value of the track if its previous value is from `low` to `high`."""
        previous = TypedExpr(Variable(name=f"{TRACK}{name}"), unit, low, high)
        return type_expression(replace(body, ctx=ctx, env=body.env.with_value(name, previous)), update)

    widest = attempt(partial(type_from, -INF, INF, body.ctx.trial()))
    for unit in (TOKENS, STEPS) if widest is None and start.unit == PLAIN and start.is_constant else ():
        inner = attempt(partial(type_from, -INF, INF, body.ctx.trial(), unit))
        if inner is not None and inner.unit == unit:
            message = f"the track `{name}` is {describe_unit(unit)}, and its start is a plain number"
            amount = write_amount(start.low, unit)
            edits = (Edit(start_arg.value.span, amount),)
            fail(body, "E0302", message, start_arg, f"give it its unit: `start: {amount}`", edits)
    low, high = widest.interval if widest is not None else (-INF, INF)
    value = type_from(min(low, start.low), max(high, start.high), body.ctx)
    check_unit(body, start, value, start_arg.span, update.span, "`start`")
    names = [variable.name for variable in values_of(value.data, Variable)]
    if not any(variable == TRACK + name or variable.startswith(METRIC) for variable in names):
        hint = f"read `{name}`, its value at the step before, or a metric above it, or take `start` out"
        fail(body, "E0310", f"the track `{name}` reads no value of the step before", start_arg, hint)
    return replace(value, low=min(value.low, start.low), high=max(value.high, start.high)), start


def _define_metric(body: FormulaScope, item: tree.Decl, reward: TypedReward) -> None:
    """Type a metric, a number that training logs for each response, and add it to the body and the reward.

    A metric may have any unit. Tracks below it that have a `start` may read its mean over the previous step.

    Args:
        body: The formula, whose metrics are added to.
        item: The metric in the syntax tree.
        reward: The typed reward so far.

    Raises:
        NoValue: The metric is wrong, which was reported.
    """
    name = item.name.name
    if item.value is None or item.params is not None:
        hint = f"write `metric {name} = len(y) / max(len(z) for z in group)`"
        body.ctx.fail("E0313", "a metric is one number", item.span, help=hint)
    value = attempt(partial(type_expression, body, item.value))
    if name in body.metrics:
        _report_duplicate(body.ctx, item.name)
    elif value is not None:
        reward.metrics.append(Metric.model_construct(name=name, value=value.data))
        body.metrics[name] = TypedExpr(Variable(name=f"{METRIC}{name}"), value.unit, value.low, value.high)
        reward.numbers.setdefault(name, body.metrics[name])
        return
    body.env.invalid.add(name)
    raise NoValue


def let_units(ctx: Context, record: Definition) -> dict[Span, Dimension]:
    """Return the unit of each `let` of a reward or a selection, whatever the arguments of its parameters are.

    Returns:
        Units by the spans of the `let`s' names. Local functions and wrong `let`s are left out.
    """
    lets, units = list[NamedValue](), dict[Span, Dimension]()
    with suppress(NoValue):
        env, scope = make_environment(ctx, record, Names(), symbolic=True)
        body = FormulaScope(ctx, scope, env)
        for item in record.body.items:
            if isinstance(item, tree.Let):
                with suppress(NoValue):
                    define_let(body, item, lets)
                    if item.params is None:
                        units[item.name.span] = env.values[item.name.name].unit
    return units


def _read_value(body: FormulaScope, expr: tree.Expr, reward: TypedReward) -> None:
    """Type the value of a complete response and add it to the reward.

    A sum of calls of `z(…)` becomes parts, each normalised separately; another expression is the outcome.

    Args:
        body: The formula.
        expr: The value in the syntax tree.
        reward: The typed reward so far.

    Raises:
        NoValue: The value is wrong, which was reported.
    """
    terms: list[Term] = []
    if _collect_terms(expr, False, terms):
        lets = {let.name: let.value for let in reward.lets}
        reward.parts = tuple(try_all(lambda term: _type_part(body, term, reward.values, lets), terms))
        return
    value = type_expression(body, expr)
    reward.outcome = value.data
    reward.values.append((value, expr.span))
    # After an error in another line, a wrong unit may be its consequence.
    if reward.is_sound:
        _check_plain(body, value, expr.span)


def report_unread(ctx: Context, reward: Definition) -> None:
    """Report W0201 for each `let`, track and parameter that nothing in a reward, measure or selection reads.

    A track that only its own line reads counts as unread; whether a setting reads it is known when all are evaluated
    (`ctx.unread_tracks`). Each body is checked once, however often it is typed, and not at all in a trial, whose
    findings are not reported.
    """
    item = reward.item
    if ctx.is_trial or item.name.span in ctx.visited_bodies:
        return
    ctx.visited_bodies.add(item.name.span)
    named = [("let", line.name) for line in reward.body.items if isinstance(line, tree.Let)]
    counts = _count_names(reward.body)
    for line in reward.body.items:
        if isinstance(line, tree.Decl) and line.kind.name == "track":
            named.append(("track", line.name))
            # A track that only its own line reads is not used.
            counts[line.name.name] -= _count_names(line)[line.name.name]
    named += [("parameter", param.name) for param in item.params or ()]
    for noun, name in named:
        if counts[name.name] <= 0:
            hint = "use it, or take it out"
            unread = warning(
                "W0201", f"the {noun} `{name.name}` is never used", name.span, "unused", help=hint
            )
            if noun == "track":
                ctx.unread_tracks.append((name.name, unread))
            else:
                ctx.report(unread)


def _count_names(node: tree.BraceBlock | tree.Decl) -> Counter[str]:
    """Return how often each name occurs in the expressions of a block or a line."""
    return Counter(name.name for name in walk(node) if isinstance(name, tree.Name))


def _type_dense(body: FormulaScope, line: tree.Dense) -> TypedExpr:
    """Return the typed value of a `dense` line, which a response earns at each split `L`.

    Splits are the positions, in tokens, at which a response is divided.

    Raises:
        NoValue: The splits or the value are wrong, which was reported.
    """
    if body.splits.invalid:
        raise NoValue
    variable = TypedExpr(_SPLIT, TOKENS, 1.0, body.splits.high)
    inner = replace(body, env=body.env.with_value(line.var.name, variable), split_name=line.var.name)
    value = type_expression(inner, line.body)
    _check_plain(body, value, line.body.span)
    return value


def _check_plain(body: FormulaScope, value: TypedExpr, span: Span) -> None:
    """Check that the value of a reward has no unit, or report E0302 and raise `NoValue`."""
    if value.unit != PLAIN:
        refuse_unit(body, f"a reward is a plain number, and this is {describe_unit(value.unit)}", value, span)


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a reward that is a sum of normalised parts, such as `- 0.5 * z(len(y))`."""

    weight: tree.Expr | None
    """The factor as written; None for 1."""
    negative: bool
    """True if it is subtracted."""
    call: tree.Call
    """The call of `z`."""


def _collect_terms(expr: tree.Expr, negative: bool, terms: list[Term]) -> bool:
    """Append the terms of a sum to `terms`, and return whether all are calls of `z`.

    Args:
        expr: The sum, or one term of it.
        negative: Whether the sum is subtracted.
        terms: The terms found so far, which are added to.
    """
    if isinstance(expr, tree.Binary) and expr.op in "+-":
        right = negative != (expr.op == "-")
        return _collect_terms(expr.left, negative, terms) and _collect_terms(expr.right, right, terms)
    match expr:
        case tree.Binary(op="*", right=tree.Call(function=tree.Name("z")) as call):
            terms.append(Term(expr.left, negative, call))
        case tree.Call(function=tree.Name("z")):
            terms.append(Term(None, negative, expr))
        case _:
            return False
    return True


def _type_part(body: FormulaScope, term: Term, values: list[tuple[TypedExpr, Span]], lets: Lets) -> Part:
    """Return a typed part of a reward: the number in `z(…)`, its weight before `z`, and the tokens that earn it.

    The weight must be equal for all responses to a question, since it multiplies normalised numbers.

    Args:
        body: The names and facts of the reward.
        term: The term of the sum, such as `0.5 * z(len(y) / 100 tokens, on: thinking)`.
        values: The list to which the normalised expression is appended, with its span.
        lets: The `let`s of the reward, by name.

    Raises:
        NoValue: The part is wrong, which was reported.
    """
    weight: float | Expression = -1.0 if term.negative else 1.0
    if term.weight is not None:
        value = type_expression(body, term.weight)
        if value.unit != PLAIN:
            message = f"a part is multiplied by a plain number, and this is {describe_unit(value.unit)}"
            fail(body, "E0302", message, term.weight, "divide it by a constant of its unit")
        if varies(value.data, lets):
            message = "the weight of a part differs between the responses of a question"
            hint = "move measures of the response into `z(…)`; numbers, tracks and statistics stay before `z`"
            fail(body, "E0301", message, term.weight, hint)
        if term.negative:
            value = negate(value)
        weight = value.low if value.is_constant else value.data
    first, *rest = term.call.args or (None,)
    if first is None or first.name is not None or isinstance(first.value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", "`z` takes the number to normalise", term.call, "write `z(correct(y))`")
    earner: Earner = "response"
    for arg in rest:
        match arg:
            case tree.Arg(
                name=tree.Ident("on"),
                value=tree.Name("response" | "prefix" | "thinking" | "solution" as word),
            ):
                earner = word
            case _:
                hint = "write which tokens earn the part: `on: prefix`, `on: thinking` or `on: solution`"
                fail(body, "E0310", "besides a number, `z` takes only `on`", arg, hint)
    if earner != "response":
        body.uses.add("prefix" if earner == "prefix" else "phases")
    measured = type_expression(body, first.value)
    if measured.unit != PLAIN:
        refuse_unit(body, "a part of a reward is a plain number", measured, first.value.span)
    values.append((measured, first.span))
    return Part.model_construct(value=measured.data, weight=weight, on=earner)


def is_own_name(ctx: Context, name: tree.Ident, reserved: Mapping[str, str] = RESERVED) -> bool:
    """Return whether a `let`, track or parameter may have a name, and report E0208 for a reserved name.

    Args:
        ctx: The evaluation.
        name: The new name.
        reserved: The names that have a meaning in every formula, with the meaning for the message.
    """
    if name.name not in reserved:
        return True
    ctx.error(
        "E0208",
        f"`{name.name}` means {reserved[name.name]} here",
        name.span,
        "taken",
        help="give it another name",
    )
    return False


def make_environment(
    ctx: Context, definition: Definition, env: Names, *, symbolic: bool, span: Span | None = None
) -> tuple[Names, Scope]:
    """Add the parameters of a reward, measure or selection to its names, with arguments or defaults as values.

    Numbers become constants (`env.values`). Other arguments, such as budgets, become `env.other_params`.

    Args:
        ctx: The evaluation.
        definition: The reward, measure or selection with its arguments.
        env: The names so far, which are added to.
        symbolic: Whether a parameter without an argument may have any value in its range, and is not an error.
        span: The use of the definition, at which a missing argument is an error.

    Returns:
        (the names, the scope in which the file's expressions read the arguments).

    Raises:
        NoValue: An argument is missing or wrong, which was reported.
    """
    item, args = definition.item, dict(definition.args)
    scope_names: dict[str, Callable[[], Value]] = {}
    is_sound = True
    for param in item.params or ():
        name = param.name.name
        is_sound = is_own_name(ctx, param.name) and is_sound
        if name not in args and param.default is not None:
            try:
                args[name] = bind_argument(ctx, definition, param, param.default, Scope(definition.module))
            except NoValue:
                is_sound = False
                continue
        if name in args:
            value = args[name]
            scope_names[name] = lambda value=value: value  # type: ignore[misc]
            if isinstance(value.data, Quantity):
                env.values[name] = make_constant(float(value.data.number), value.data.unit)
            else:
                env.other_params[name] = value
        elif symbolic:
            _define_unbound(ctx, definition, param, env)
        else:
            ctx.error(
                "E0310",
                f"the {definition.kind} `{definition.name}` needs `{name}`",
                span or definition.span,
                f"no `{name}`",
                labels=[Label(param.span, "declared here")],
                help=f"write `{definition.name}({name}: …)`",
            )
            is_sound = False
    if not is_sound:
        raise NoValue
    return env, Scope(definition.module).inner(scope_names)


def _define_unbound(ctx: Context, definition: Definition, param: tree.ParamDecl, env: Names) -> None:
    """Add a parameter without an argument to the names; a number has the range of its declaration.

    Args:
        ctx: The evaluation.
        definition: The reward, measure or selection.
        param: The declaration of the parameter.
        env: The names, which are added to.
    """
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
        # No name of the language begins with `?`.
        variable = Variable(name=f"?{param.name.name}")
        env.values[param.name.name] = TypedExpr(variable, read_unit(type_), low, high, is_unbound=True)
        env.params[param.name.name] = param
    elif type_ is not None:
        env.other_params[param.name.name] = None
    else:
        env.invalid.add(param.name.name)


Lets: TypeAlias = Mapping[str, Expression]
"""The values of a reward's `let`s, by name."""


def report_constant(ctx: Context, name: str, values: Sequence[tuple[TypedExpr, Span]], lets: Lets) -> None:
    """Report W0301 for each value of a reward that is the same for every response to a question.

    Args:
        ctx: The evaluation.
        name: The name of the reward.
        values: The value, or the normalised parts, with their spans.
        lets: The `let`s of the reward, by name.
    """
    for value, span in values:
        if value.low != value.high and varies(value.data, lets):
            continue
        text = f"always {value.low:g}" if value.low == value.high else "does not depend on the response `y`"
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


def report_blind(ctx: Context, name: str, values: Sequence[tuple[TypedExpr, Span]], lets: Lets) -> None:
    """Report W0302 if a reward depends on the response but never on whether its answer is right.

    Args:
        ctx: The evaluation.
        name: The name of the reward.
        values: The value, or the normalised parts, with their spans.
        lets: The `let`s of the reward, by name.
    """
    formulas = [value.data for value, _ in values]
    if (
        not values
        or any(
            isinstance(node, (Correct, ForcedAnswer, CutAnswer, TokenRun))
            for data in formulas
            for node in _walk_lets(data, lets)
        )
        or not any(varies(data, lets) for data in formulas)
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


def varies(data: Expression, lets: Lets) -> bool:
    """Return whether an expression, or a `let` that it reads, measures the response `y`.

    The value of such an expression differs between the responses to a question. A column of the question, although
    represented as an attribute of `y`, is equal for all responses and does not count.
    """
    return any(
        isinstance(node, (Length, Correct, ForcedAnswer, CutAnswer, Attribute, PythonTerm, TokenRun))
        and node.of == "y"
        and not (isinstance(node, Attribute) and node.field not in READINGS)
        for node in _walk_lets(data, lets)
    )


def cancelled_factors(data: Expression, lets: Lets, over_batch: bool) -> list[Expression]:
    """Return the factors of a reward that are equal for all responses that a z-score compares.

    A z-score divides by the standard deviation, and so cancels such a factor. The factors 1 and -1 and factors that
    differ between the splits of a response are left out.

    Args:
        data: The expression of the reward.
        lets: The `let`s of the reward, by name.
        over_batch: True if the z-score compares all responses of a step: a factor must then be equal for all
            questions. False if it compares only the responses to one question.
    """

    def is_equal_factor(factor: Expression) -> bool:
        """Return whether a factor is equal for all responses that are compared, and is not 1 or -1."""
        nodes = list(_walk_lets(factor, lets))
        of_split = any(isinstance(node, (Weight, WeightAt, PriorSplit)) or node == _SPLIT for node in nodes)
        of_question = any(isinstance(node, (Aggregate, Attribute)) for node in nodes)
        is_sign = isinstance(factor, Constant) and abs(factor.value) == 1
        return not (is_sign or of_split or varies(factor, lets) or (over_batch and of_question))

    return [factor for factor in (_find_factors(data, lets, {}) or {}).values() if is_equal_factor(factor)]


Factors: TypeAlias = dict[Expression | int, Expression] | None
"""The factors of an expression, by a key that equal factors share; None for 0, which has every factor."""


def _find_factors(data: Expression, lets: Lets, memo: dict[int, Factors]) -> Factors:
    """Return the factors of an expression, from `memo` if the factors of this object were found before.

    Args:
        data: The expression.
        lets: The `let`s of the reward, by name.
        memo: The factors found so far, by the `id` of the expression.
    """
    if id(data) not in memo:
        memo[id(data)] = _split_factors(data, lets, memo)
    return memo[id(data)]


def _split_factors(data: Expression, lets: Lets, memo: dict[int, Factors]) -> Factors:
    """Compute the factors of an expression from its operands; `memo` has the factors found so far.

    A product has the factors of both operands. A quotient has only the factors of its dividend. A sum, a difference
    and an `if` have the factors that both operands share. A `let` that measures the response has the factors of its
    value. All other expressions are their own only factor. The result is None for the constant 0, which has every
    factor.

    Args:
        data: The expression.
        lets: The `let`s of the reward, by name.
        memo: The factors found so far, by the `id` of the expression.
    """
    match data:
        case Constant(value=0.0):
            return None
        case Variable() if data.name in lets and varies(data, lets):
            return _find_factors(lets[data.name], lets, memo)
        case Negation(fn="neg"):
            return _find_factors(data.value, lets, memo)
        case Infix(fn="/"):
            return _find_factors(data.left, lets, memo)
        case Infix(fn="*" | "+" | "-"):
            left, right = (_find_factors(item, lets, memo) for item in (data.left, data.right))
            if data.fn == "*":
                return None if left is None or right is None else left | right
        case If():
            left, right = (_find_factors(item, lets, memo) for item in (data.then, data.other))
        case _:
            return {data if isinstance(data, (Constant, Variable)) else id(data): data}
    if left is None or right is None:
        return right if left is None else left
    return {key: item for key, item in left.items() if key in right}


_SPLIT = Variable(name="L")
"""The current split of a `dense` line."""


def _walk_lets(data: Expression, lets: Lets) -> Iterator[IR | Node]:
    """Yield every node of an expression and of the `let`s that it reads, each node once."""
    waiting, seen = list[IR | Node]([data]), set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        waiting += parts_of(node)
        if isinstance(node, Variable) and node.name in lets:
            waiting.append(lets[node.name])
