"""Type the expressions of a reward: from syntax to the representation, with units and ranges of values.

This is one file, since expressions contain calls, calls contain statistics, and statistics contain expressions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NoReturn, TypeAlias

from reodsl.diagnostics.model import Edit, Label, Span, listed, plural
from reodsl.ir.expression import FUNCTIONS as NUMBERS
from reodsl.ir.expression import (
    MEMORY,
    READINGS,
    STEP,
    UNDER,
    Aggregate,
    AnswerRun,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Expression,
    ForcedAnswer,
    Function,
    FunctionCall,
    If,
    Infix,
    Length,
    LimitedPythonTerm,
    Negation,
    PythonTerm,
    Statistic,
    StepStatistic,
    TextNumber,
    TokenRun,
    Variable,
    Weight,
    WeightAt,
    WeightRule,
    walk,
)
from reodsl.ir.expression import TOKENS as TOKEN_NUMBERS
from reodsl.ir.names import OWN_CODE, PATTERNS, pattern_fault
from reodsl.language.bounds import EXPRESSION_STEPS, NAME_STEPS
from reodsl.language.context import NoValue, attempt, try_all
from reodsl.language.evaluate import CONSTRUCTORS, bind, is_reward, lookup, read_number
from reodsl.language.hints import FUNCTIONS_ELSEWHERE
from reodsl.language.reward.names import (
    BATCH,
    FUNCTIONS,
    INF,
    NUMERIC,
    RESPONSE,
    STATISTICS,
    TRACK_WORDS,
    WEIGHTS,
    FormulaScope,
    LocalFunction,
    TypedExpr,
    check_unit,
    fail,
    make_constant,
)
from reodsl.language.reward.operators import (
    apply_function,
    calculate,
    choose,
    combine_facts,
    compare,
    connect,
    exponentiate,
    invert,
    list_facts,
    narrow,
    negate,
)
from reodsl.language.reward.splits import (
    are_splits,
    check_splits,
    find_previous,
    is_current_split,
    is_split_variable,
    make_split_variable,
    name_split_variable,
)
from reodsl.language.suggest import nearest, suggest
from reodsl.language.units import PLAIN, STEPS, TOKENS, Quantity, write_amount
from reodsl.language.values import plain
from reodsl.syntax import tree
from reodsl.syntax.scanner import clip_text

DEEPEST_FORMULA = 120
"""The deepest nesting of a formula."""
Source: TypeAlias = Literal["group", "ref", "history", "splits"]
"""The sources of a statistic: responses to a question now, of the reference model or in earlier steps; or splits."""
HISTORY = "history(x)"
"""The expression for all responses to a question in earlier steps."""


def type_condition(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Type an expression that must be true or false.

    Raises:
        NoValue: The expression is wrong, or is a number, which was reported.
    """
    value = type_expression(body, expr)
    if value.is_condition:
        return value
    fail(body, "E0301", "a condition is true or false, and this is a number", expr, "compare it: `… > 0`")


def type_expression(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Type an expression of a formula: return its representation with its unit and the range of its values.

    The range is narrowed by the conditions around the expression: in `1 / len(y) if len(y) > 5 else 0`, the length
    is above 5. The work and the depth of nesting are counted against the limits of the language.

    Args:
        body: The formula, with the names that the expression may use.
        expr: The expression in the syntax tree.

    Raises:
        NoValue: The expression is wrong, which was reported.
    """
    if body.depth > DEEPEST_FORMULA:
        body.ctx.fail("E0209", "this is nested too deep", expr.span, help="give parts of it names with `let`")
    body.ctx.charge(expr.span, EXPRESSION_STEPS)
    body.depth += 1
    try:
        value = _type_node(body, expr)
        # `narrow` hashes the expression, which is cheap only for a leaf; operators narrow others if they need to.
        is_leaf = isinstance(value.data, (Variable, Length, Correct, Attribute))
        return narrow(body, value) if is_leaf else value
    finally:
        body.depth -= 1


def _type_node(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Type an expression by the rules of its class in the syntax tree.

    An attribute such as `x.level` reads a column of the question. Only rewards and the `when` of a wording may read
    columns. In the code, `body.track` is None in a reward, a `when` and a selection, empty in a measure, and otherwise
    the name of a track.

    Raises:
        NoValue: The expression is wrong, which was reported.
    """
    match expr:
        case tree.Number():
            quantity = read_number(body.ctx, expr)
            return make_constant(float(quantity.number), quantity.unit)
        case tree.Name():
            return _type_name(body, expr)
        case tree.Unary():
            value = type_expression(body, expr.operand)
            return value if expr.op == "+" else negate(value)
        case tree.Binary(op="^", left=tree.Name("e")) if "e" not in body.env.values:
            return exponentiate(body, expr.right, type_expression(body, expr.right))
        case tree.Binary():
            left, right = try_all(partial(type_expression, body), (expr.left, expr.right))
            return calculate(body, expr, left, right)
        case tree.Compare():
            if expr.op == "in":
                fail(body, "E0301", "`in` has no meaning in a reward", expr, "compare two numbers")
            left, right = try_all(partial(type_expression, body), (expr.left, expr.right))
            return compare(body, expr, expr.op, left, right)
        case tree.Logic():
            left, right = try_all(partial(type_condition, body), (expr.left, expr.right))
            return connect(body, expr.op, left, right)
        case tree.Not():
            return invert(type_condition(body, expr.operand))
        case tree.IfElse():
            return _type_choice(body, expr)
        case tree.Call():
            return _type_call(body, expr)
        case tree.Attribute() if _name_field(expr) and (body.is_selection or body.track):
            hint = "measure responses: `len(z)`, `correct(z)` or `mode(z)`"
            fail(body, "E0301", f"{_name_body(body)} knows no number of a question", expr, hint)
        case tree.Attribute() if (field := _name_field(expr)) and body.track is None:
            if field in READINGS:
                message = f"`{field}` is a number of a response, and not of a question"
                hint = f"write `{field}(y)`; a column of the data needs another name"
                fail(body, "E0301", message, expr, hint)
            unit = TOKENS if field.endswith("budget") else PLAIN
            body.uses.add(field if unit == TOKENS else "given")
            body.fields.setdefault(field, expr.span)
            return TypedExpr(Attribute(of="y", field=field), unit, -INF, INF)
        case tree.Attribute(value=tree.Name(response)) if response in body.env.responses:
            measure = {"correct": "correct", "reward": "correct", "accuracy": "correct"}
            named = expr.name.name if expr.name.name in READINGS else measure.get(expr.name.name, "len")
            hint = f"{named}({response})"
            fail(body, "E0301", "a response has no settings", expr, f"measure it by a function: `{hint}`")
        case tree.Slice():
            hint = f"write `correct(answer({body.ctx.text_at(expr.span)}))`"
            fail(body, "E0301", "a cut response is not a number", expr, hint)
    fail(body, "E0301", "a reward is made of numbers", expr, "use numbers, responses and statistics here")


def _name_field(expr: tree.Expr) -> str:
    """Return the column of the question that an expression reads: `info.level` for `x.info.level`.

    The text is empty for another expression.
    """
    names: list[str] = []
    while isinstance(expr, tree.Attribute):
        names.insert(0, expr.name.name)
        expr = expr.value
    return ".".join(names) if isinstance(expr, tree.Name) and expr.name == "x" else ""


def _type_name(body: FormulaScope, expr: tree.Name) -> TypedExpr:
    """Type a name in a formula, or report why it is not a number.

    A name may be a value of the formula (a parameter, `let` or track), `step` in a track, a parameter of the file,
    or `pi`. All other names are errors, whose messages depend on what the name means elsewhere. In the code,
    `body.track` is None in a reward or selection, empty in a measure, `batch` in a statistic over the batch, and
    otherwise the name of the track.

    Raises:
        NoValue: The name is not a number, which was reported.
    """
    name, env = expr.name, body.env
    if name in env.values:
        return env.values[name]
    if name in env.invalid:
        raise NoValue
    if name == env.token:
        fail(body, "E0301", f"`{name}` is a token, and not a number", expr, f"write `prob({name})`")
    if body.track is not None and (
        name == body.track or (name in body.metrics and name != STEP and not env.call_stack)
    ):
        if body.track in env.values:
            return body.metrics[name]
        env.invalid.update(
            (body.track, *body.metrics)
        )  # Report one error, however many values a track reads.
        hint = f"bound the value and give its first value: `clip({name} + …, LOW, HIGH, start: 0)`"
        fail(body, "E0320", f"the track `{body.track}` reads the step before, and has no start", expr, hint)
    if body.track not in (None, BATCH) and name == STEP and not body.is_measure:
        return TypedExpr(Variable(name=STEP), STEPS, 0.0, INF)
    if name in env.responses or name in ("group", BATCH, "ref", "x"):
        forms = {item: f"mean(len(z) for z in {item})" for item in ("group", BATCH, "ref")} | {
            "x": "x.budget"
        }
        fail(body, "E0301", f"`{name}` is not a number", expr, f"write `{forms.get(name, f'len({name})')}`")
    if name in env.other_params:
        fail(body, "E0301", f"`{name}` is not a number", expr, f"run over it: `dense L in {name}: …`")
    declared = lookup(body.ctx, body.scope.module, name)
    if declared is not None and isinstance(declared[1], tree.Param):
        value = body.ctx.value_of(*declared)
        if isinstance(value.data, Quantity):
            return make_constant(float(value.data.number), value.data.unit)
    if declared is None and name == "pi" and name not in body.scope.module.imports:
        return make_constant(math.pi, PLAIN)
    if declared is None and name in FUNCTIONS and name not in body.scope.module.imports:
        hint = f"call it: `{name}(y)`" if name in ("correct", "len", *READINGS) else f"call it: `{name}(…)`"
        body.ctx.fail(
            "E0201", f"the function `{name}` has no arguments here", expr.span, "not called", help=hint
        )
    if declared is None and name == body.splits.variable:
        body.ctx.fail(
            "E0201",
            f"`{name}` is the current split, and is known only in the `dense` line",
            expr.span,
            "in another line",
            help=f"run over all splits: `count(M for M in splits if …)`, or use a function: `let f({name}) = …`",
        )
    if declared is None and name not in body.scope.module.imports:
        _refuse_order(body, expr)
        noun, hint = (
            ("statistic over tokens", "it may read its tokens, tracks and constants")
            if env.token
            else ("reward", suggest(name, [*env.names(), *FUNCTIONS], "there is"))
        )
        if name == STEP and noun == "reward" and not body.is_selection:
            hint = "a track may read it: write `track done = min(1, step / 100 steps)`, and read `done` here"
        if body.track is not None:
            noun = "statistic over `batch`" if body.track == BATCH else _name_body(body).removeprefix("a ")
            steps = (
                ""
                if body.is_measure
                else "tracks, "
                if body.track == BATCH
                else "`step`, tracks above it, metrics above it if it has a `start`, "
            )
            hint = f"it may read constants, {steps}and what its statistic runs over"
        body.ctx.fail("E0201", f"there is no `{name}` in this {noun}", expr.span, "unknown", help=hint)
    if declared is None:
        raise NoValue
    fail(
        body,
        "E0301",
        f"`{name}` is not a number",
        expr,
        "use numbers, parameters and responses of the reward",
    )


def _refuse_order(body: FormulaScope, expr: tree.Name) -> None:
    """Report E0201 for a name that another line of the body defines, but that this line may not read.

    Three kinds of name are reported: a metric, which is only logged; a name that a later line defines; and a `let`
    that reads itself. The function returns without a report for all other names.

    Raises:
        NoValue: The name was reported.
    """
    kind, span = body.line_kinds.get(expr.name, ("", expr.span))
    if kind == "metric" and body.track is None:
        message = f"`{expr.name}` is a metric, which is logged and not read here"
        hint = f"write `let {expr.name} = …`; a track with a `start` reads a metric's mean at the step before"
        fail(body, "E0201", message, expr, hint)
    if span[1:3] > expr.span[1:3] and (kind != "let" or body.track is None):
        fail(
            body,
            "E0201",
            f"`{expr.name}` is defined in a later line",
            expr,
            "put its line above this one; two lines cannot read each other",
        )
    if kind == "let" and body.track is None and not body.env.token and expr.name not in body.env.functions:
        hint = "write another formula; only a `track` may read its own value, of the step before"
        fail(body, "E0201", f"`{expr.name}` is defined by itself", expr, hint)


def _type_choice(body: FormulaScope, expr: tree.IfElse) -> TypedExpr:
    """Type `THEN if CONDITION else OTHER`.

    Each branch is typed with the facts that hold in it: those of the condition in the first, of its negation in the
    second.
    """
    test = type_condition(body, expr.condition)

    def type_branch(holds: bool) -> TypedExpr:
        """Type the first branch if the condition holds, else the second."""
        inner = body.within(body.env, combine_facts(body.facts, list_facts(body, test.data, holds)))
        return type_expression(inner, expr.then if holds else expr.otherwise)

    return choose(body, expr, test, *try_all(type_branch, (True, False)))


def _type_call(body: FormulaScope, expr: tree.Call) -> TypedExpr:
    """Type a call in a formula: find the rules for its function, or report that there is no such function.

    Statistics come first, since names such as `max` are also functions of numbers. A statistic has a first argument
    `VALUE for VAR in …`, and is typed by what it runs over: tokens, all responses of a step, or the responses to one
    question. Then come functions that the formula defines, measures of a response, numbers of a token, functions of
    splits (the positions, in tokens, at which a response is divided), and functions of numbers.

    Raises:
        NoValue: The call is wrong, which was reported.
    """
    if not isinstance(expr.function, tree.Name):
        fail(body, "E0301", "only a name can be called", expr.function, "write `NAME(…)`")
    name = expr.function.name
    first = expr.args[0].value if expr.args else None
    if isinstance(first, tree.Comprehension) and name in STATISTICS and _are_tokens(body, first.over):
        return _type_tokens(body, expr, first, name)
    if (
        isinstance(first, tree.Comprehension)
        and name in (*STATISTICS, "reach" if body.is_measure else "quantile")
        and body.track_response is None
        and (
            body.track is not None
            or (first.over == tree.Name(BATCH, first.over.span) and not body.is_selection)
        )
    ):
        return _type_history(body, expr, first, name)
    if name in STATISTICS and isinstance(first, tree.Comprehension):
        return _type_statistic(body, expr, first, name)
    if name in body.env.functions:
        return _type_local(body, expr, body.env.functions[name])
    if name in body.env.call_stack:
        fail(
            body,
            "E0313",
            f"the function `{name}` calls itself",
            expr,
            "a function may call only functions above it",
        )
    if name in body.env.invalid:
        raise NoValue
    if name in RESPONSE:
        return _type_measure(body, expr, name)
    if name in TOKEN_NUMBERS or name == "truth":
        return _type_token(body, expr, name)
    if name == "before":
        argument = _take_split_argument(body, expr, "before")
        return find_previous(body, type_expression(body, argument), argument)
    if name in WEIGHTS:
        return _type_weight(body, expr, name)
    if name in NUMERIC:
        return _type_numeric(body, expr, name)
    if name == "z":
        hint = "write the value as a sum of parts: `z(correct(y)) + 0.5 * z(mode(y) == 0, on: prefix)`"
        fail(body, "E0301", "`z(…)` normalises a part of a reward, a term of a sum", expr, hint)
    if name in STATISTICS:
        fail(body, "E0310", f"`{name}` runs over responses", expr, f"write `{name}(len(z) for z in group)`")
    _refuse_history(body, expr)
    hint = FUNCTIONS_ELSEWHERE.get(name.lower()) or suggest(
        name, [*FUNCTIONS, *body.env.functions], "functions are"
    )
    if name == "quantile":
        hint = "only a track has quantiles: `track most = quantile(len(z) for z in monitor, at: 90%)`"
    if is_reward(body.ctx, body.scope.module, name):
        hint = f"`{name}` is a reward, and not a function: write its formula here as a `let`"
    body.ctx.fail(
        "E0201", f"there is no function `{name}` in a reward", expr.function.span, "unknown", help=hint
    )


def _type_local(body: FormulaScope, expr: tree.Call, function: LocalFunction) -> TypedExpr:
    """Type a call of a local function, `let f(a) = …`: its value, with the arguments as its parameters.

    The value may use the parameters and the names defined above the function (`closure` in the code). It cannot use
    the names of the caller (`outer`). An argument that names a response stays a response, and all other arguments
    are typed as numbers.

    Args:
        body: The formula, with the names of the caller.
        expr: The call.
        function: The local function, with the names that its value may use.

    Raises:
        NoValue: An argument or the function is wrong, which was reported.
    """
    example = f"{function.name}({', '.join(param.name for param in function.params)})"
    if len(expr.args) != len(function.params):
        count = len(function.params)
        fail(
            body, "E0310", f"`{function.name}` takes {plural(count, 'argument')}", expr, f"write `{example}`"
        )
    outer, closure = body.env, function.env
    body.ctx.charge(expr.span, NAME_STEPS * (outer.size + closure.size))
    values = dict(closure.values)
    responses = closure.responses | {f"?{response}": response for response in outer.responses.values()}
    other_args = dict(closure.other_params)
    split_param = None
    for param, arg in zip(function.params, expr.args, strict=True):
        name = param.name
        for names in (values, responses, other_args):
            names.pop(name, None)
        if arg.name is not None or isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            fail(body, "E0310", f"`{function.name}` takes plain arguments", arg, f"write `{example}`")
        if isinstance(arg.value, tree.Name) and arg.value.name in outer.responses:
            responses[name] = outer.responses[arg.value.name]
            continue
        values[name] = type_expression(body, arg.value)
        if isinstance(arg.value, tree.Name) and arg.value.name == body.split_name:
            split_param = name
    env = replace(
        closure,
        values=values,
        responses=responses,
        other_params=other_args,
        sampled=outer.sampled,
        call_stack=(*outer.call_stack, function.name),
        split_count=outer.split_count,
    )
    inner = replace(body, env=env, split_name=split_param)
    try:
        return type_expression(inner, function.value)
    except NoValue:
        # Report a wrong function once, however often it is called. A trial reports nothing.
        if not body.ctx.is_trial:
            outer.functions.pop(function.name, None)
            outer.invalid.add(function.name)
        raise


def _take_only(body: FormulaScope, expr: tree.Call, name: str, example: str) -> tree.Expr:
    """Return the argument of a call that must have exactly one argument.

    Args:
        body: The formula, for the report.
        expr: The call.
        name: The name of the function.
        example: A right call, for the help of the error.

    Raises:
        NoValue: The call has not exactly one unnamed argument, which was reported.
    """
    if len(expr.args) == 1 and expr.args[0].name is None:
        value = expr.args[0].value
        if not isinstance(value, (tree.Binding, tree.Comprehension)):
            return value
    fail(body, "E0310", f"`{name}` takes one argument", expr, f"write `{example}`")


def _name_response(body: FormulaScope) -> str:
    """Return the name of the innermost variable over responses, such as `z` or `y`, for an example in a message."""
    return next((response for response in reversed(body.env.responses) if not response.startswith("?")), "z")


def _find_response(body: FormulaScope, expr: tree.Expr | tree.Binding | tree.Comprehension) -> str:
    """Return the canonical name of the response that an expression names.

    Raises:
        NoValue: The expression is not the name of a response, which was reported.
    """
    if isinstance(expr, tree.Name) and expr.name in body.env.responses:
        return body.env.responses[expr.name]
    over = (
        "arm" if body.is_measure else BATCH if body.track == BATCH else OVER_STEPS if body.track else "group"
    )
    names = "`y`, or " * ("y" in body.env.responses) + f"the variable of `… for z in {over}`"
    fail(body, "E0301", "this is not a response", expr, f"name a response: {names}")


def _type_own_code(body: FormulaScope, expr: tree.Call) -> TypedExpr:
    """Type `python("FILE.py:FUNCTION", y)`, a number that a user's function computes from a response.

    Raises:
        NoValue: The call is wrong, which was reported. This includes a response that the function cannot read: of
            the reference model, of earlier steps, or in a selection, a measure or a track.
    """
    example = f'python("style.py:score", {_name_response(body)})'
    match [arg for arg in expr.args if not arg.name]:
        case [tree.Arg(value=tree.String(function)) as first, second]:
            response = _find_response(body, second.value)
        case _:
            fail(body, "E0310", "`python` takes a function and a response", expr, f"write `{example}`")
    if not OWN_CODE.holds(function):
        message = f"`python` names {OWN_CODE.noun}, and `{clip_text(function)}` is not {OWN_CODE.noun}"
        fail(body, "E0317", message, first, f"write {OWN_CODE.words}: `{example}`, for example")
    if body.is_selection or response in body.env.sampled or body.track is not None:
        noun = "a selection's responses" if body.is_selection else "responses of `ref` and of `history(x)`"
        noun = f"the responses of {_name_body(body)}" if body.track is not None else noun
        fail(
            body,
            "E0301",
            f"a user's function cannot read {noun}",
            expr,
            'call it on a response of a reward: `python("style.py:score", y)`',
        )
    term = _set_limits(body, expr, second, PythonTerm(function=function, of=response))
    first_term, first_span = body.code_terms.setdefault(function, (term, expr.span))
    if first_term.limits != term.limits:
        body.ctx.fail(
            "E0310",
            f"`{clip_text(function)}` has other limits in another term of this reward",
            expr.span,
            labels=(Label(first_span, "with other limits"),),
            help="give all calls of a function the same limits, since its values are computed once",
        )
    return TypedExpr(term, PLAIN, -INF, INF)


def _set_limits(body: FormulaScope, expr: tree.Call, response: tree.Arg, term: PythonTerm) -> PythonTerm:
    """Return a call of a user's function with the limits that its arguments set: batch, seconds and memory.

    Args:
        body: The formula.
        expr: The call in the syntax tree, such as `python("style.py:score", y, seconds: 5 seconds)`.
        response: The argument that is the response.
        term: The call without limits, which is returned if all limits are the defaults.
    """
    if len(expr.args) == 2:
        return term
    args = tuple(arg for arg in expr.args if arg is not response)
    bound = bind(body.ctx, replace(expr, args=args), CONSTRUCTORS["python"], body.scope)
    limits = {name: plain(bound[name].value) for name in ("batch", "seconds", "memory")}
    limited = LimitedPythonTerm(function=term.function, of=term.of, **limits)
    return limited if limited != LimitedPythonTerm(function=term.function, of=term.of) else term


def _name_body(body: FormulaScope) -> str:
    """Return what kind of formula is typed, for a message: "a reward", "a track", "a selection" and so on."""
    if body.track == BATCH:
        return "`batch`"
    if body.is_measure or body.is_selection:
        return "a measure" if body.is_measure else "a selection"
    return "a reward" if body.track is None else "a track"


def _type_reading(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Type a call such as `ended(y)`, which reads a number of a response.

    If `reading.votes` is 1, the call has a second argument, the number of responses that vote. This number becomes
    part of the attribute's name, as in `NAME@4`.

    Args:
        body: The formula.
        expr: The call.
        name: The function, a key of `READINGS`.

    Raises:
        NoValue: The call is wrong, or formulas of this kind cannot read the number, which was reported.
    """
    reading, body_name = READINGS[name], _name_body(body)
    example = (reading.call or f"{name}(y)").replace("(y", f"({_name_response(body)}")
    if body_name not in reading.bodies:
        allowed = listed(sorted(item for item in reading.bodies if item != "`batch`"), 4)
        hint = f"measure `len(z)` or `correct(z)` here; `{reading.call or example}` is for {allowed}"
        fail(body, "E0301", f"{body_name} does not know `{name}` of a response", expr, hint)
    if reading.text:
        return _type_text(body, expr, name, example)
    args = [arg.value for arg in expr.args if arg.name is None]
    values = [arg for arg in args if not isinstance(arg, (tree.Binding, tree.Comprehension))]
    if not len(expr.args) == len(values) == 1 + reading.votes:
        takes = "a response and a number of votes" if reading.votes else "one argument"
        fail(body, "E0310", f"`{name}` takes {takes}", expr, f"write `{example}`")
    first, *more = values
    response, field = _find_response(body, first), name
    for vote in more:
        votes = type_expression(body, vote)
        if votes.unit != PLAIN or not (
            votes.is_unbound or (votes.is_constant and votes.low >= 1 and votes.low % 1 == 0)
        ):
            fail(body, "E0301", "a vote is among a whole number of responses", vote, f"write `{example}`")
        field = f"{name}@{int(votes.low) if votes.is_constant else 1}"
    body.uses.add(name)
    if response in body.env.sampled and not (reading.sampled and body.env.sampled[response] == "ref"):
        hint = "measure them by `len(z)` or `correct(z)`, or in a reward measure responses of `group`"
        source = f"`{HISTORY}`" if reading.sampled else f"`ref` and of `{HISTORY}`"
        fail(body, "E0301", f"`{name}` of responses of {source} is not stored", expr, hint)
    high = body.limits.wordings - 1 if name == "mode" else reading.high
    unit, high = (TOKENS, min(high, body.limits.longest)) if reading.tokens else (PLAIN, high)
    return TypedExpr(Attribute(of=response, field=field), unit, reading.low, high, reading.condition)


def _type_text(body: FormulaScope, expr: tree.Call, name: str, example: str) -> TypedExpr:
    """Type `matches(y, "PATTERN")` or `number(y, "PATTERN", empty: 0)`, which read the text of a response.

    The first argument may also be `thinking(y)` or `answer(y)`, for this part of the text.

    Args:
        body: The formula.
        expr: The call.
        name: The function.
        example: A right call, for messages.

    Raises:
        NoValue: The call is wrong, which was reported.
    """
    reading, is_number = READINGS[name], name == "number"
    source: Literal["response", "thinking", "answer"] = "response"
    match expr.args:
        case (
            tree.Arg(name=None, value=argument),
            tree.Arg(name=None, value=tree.String() as pattern),
            *rest,
        ) if is_number or not rest:
            fault = pattern_fault(pattern.value, groups=int(is_number))
        case _:
            message = f"`{name}` takes a response and a regular expression in quotes"
            fail(body, "E0310", message, expr, f"write `{example}`")
    match argument:
        case tree.Call(function=tree.Name("thinking" | "answer" as source), args=(tree.Arg(value=inner),)):
            if source == "thinking":
                type_expression(body, argument)
            argument = inner
    response, empties = _find_response(body, argument), _type_empty(body, rest, name)
    if response in body.env.sampled:
        message = f"the text of responses of `ref` and of `{HISTORY}` is not stored"
        fail(body, "E0301", message, expr, "read the texts of `y` and of responses of `group`")
    if fault is not None:
        fail(body, "E0722", f"this regular expression cannot be used: {fault}", pattern, PATTERNS)
    if is_number and not empties:
        hint = f"give its value for this case: `{example}`"
        edits = (_append_argument(expr, ", empty: 0"),)
        fail(body, "E0306", "`number` may find no number in the text", expr, hint, edits)
    empty = empties[-1][1] if empties else make_constant(0.0, PLAIN)
    if empty.unit != PLAIN or not (empty.is_constant or empty.is_unbound):
        fail(
            body,
            "E0310",
            "`empty` of a text's number is a constant without a unit",
            rest[-1],
            f"write `{example}`",
        )
    data = TextNumber(
        of=response,
        field="number" if is_number else "matches",
        source=source,
        pattern=pattern.value,
        empty=empty.low if empty.is_constant else 0.0,
    )
    low, high = min(reading.low, empty.low), max(reading.high, empty.high)
    return TypedExpr(data, PLAIN, low, high, reading.condition)


def _type_measure(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Type a call that measures a response: `len`, `correct`, `python` or a function of `READINGS`.

    The argument of `correct` may be a response `y`, its beginning `y[:L]`, or an answer forced after the beginning,
    `answer(y[:L])`. `correct(answer(y))` means the same as `correct(y)`.

    Args:
        body: The formula.
        expr: The call.
        name: The name of the function.

    Raises:
        NoValue: The call is wrong, which was reported.
    """
    if name == "python":
        return _type_own_code(body, expr)
    if name in READINGS:
        return _type_reading(body, expr, name)
    argument = _take_only(body, expr, name, f"{name}({_name_response(body)})")
    if name == "answer":
        hint = f"grade it: `correct({body.ctx.text_at(expr.span)})`"
        fail(body, "E0301", "an answer is not a number", expr, hint)
    if name == "len":
        return TypedExpr(Length(of=_find_response(body, argument)), TOKENS, 1.0, body.limits.longest)
    if (
        isinstance(argument, tree.Call)
        and isinstance(argument.function, tree.Name)
        and argument.function.name == "answer"
    ):
        argument = _take_only(body, argument, "answer", f"answer({_name_response(body)})")
        if isinstance(argument, tree.Slice):
            return _type_cut(body, argument, "forced")
    if isinstance(argument, tree.Slice):
        return _type_cut(body, argument, "bare")
    return TypedExpr(Correct(of=_find_response(body, argument)), PLAIN, 0.0, 1.0, True)


def _are_tokens(body: FormulaScope, over: tree.Expr) -> bool:
    """Return whether a statistic that runs over an expression runs over tokens.

    This is so for a response `y`, its beginning `y[:L]`, its answer `answer(y)`, and the reference answer
    `truth(y)`.
    """
    if isinstance(over, tree.Call):
        return isinstance(over.function, tree.Name) and over.function.name in ("truth", "answer")
    response = over.value if isinstance(over, tree.Slice) else over
    return isinstance(response, tree.Name) and response.name in body.env.responses


def _type_tokens(body: FormulaScope, expr: tree.Call, over: tree.Comprehension, name: Statistic) -> TypedExpr:
    """Type a statistic over tokens, such as `mean(prob(t) for t in y)`.

    A model gives each token a number, such as its probability. The statistic may read only these numbers, tracks
    and constants. An argument `empty` is required if there may be no token to run over: after a condition, in an
    answer, or in a beginning of less than one token.

    Args:
        body: The formula.
        expr: The call of the statistic.
        over: The statistic's value, variable and condition, and the tokens that it runs over.
        name: The statistic.

    Raises:
        NoValue: The statistic is wrong, which was reported.
    """
    source, function, cut = over.over, "", None
    if isinstance(source, tree.Call) and isinstance(source.function, tree.Name):
        function = source.function.name
        source = _take_only(body, source, function, f"{function}({_name_response(body)})")
    is_truth = function == "truth"
    if isinstance(source, tree.Slice):
        if function == "answer":
            hint = "run over the answer of a complete response, `answer(y)`, or the reference answer, `truth(y[:L])`"
            fail(body, "E0301", "no model scores the tokens of a forced answer", over.over, hint)
        response, cut, upper = _read_cut(body, source)
        body.cuts.append((cut, upper.span))
    else:
        response = _find_response(body, source)
    body_name = _name_body(body)
    if body_name not in ("a reward", "`batch`") or response in body.env.sampled:
        noun = f"the responses of {body_name}"
        if response in body.env.sampled:
            noun = f"responses of `ref` and of `{HISTORY}`"
        hint = "let a reward run over tokens of `y` or of responses of `group`: `mean(logprob(t) for t in y)`"
        fail(body, "E0301", f"no model scores the tokens of {noun}", over.over, hint)
    inner = replace(body, env=replace(body.env.before_responses(), token=over.var.name), facts={}, tests={})
    value, where, empties = _type_inside(body, inner, name, over, expr.args[1:])
    for typed, item in ((value, over.expr), (where, over.condition or over)):
        for node in walk(typed.data) if typed is not None else ():
            if not isinstance(node, (Constant, Variable, Negation, Infix, FunctionCall, If)):
                hint = "use `prob(t)`, `logprob(t)`, `entropy(t)`, tracks and constants"
                fail(body, "E0301", "a statistic over tokens reads only scores of its tokens", item, hint)
    may_be_empty = where is not None or function == "answer"
    may_be_empty = may_be_empty or (cut is not None and cut.low < 1 and not is_truth)
    reason = "perhaps no token is left" if may_be_empty else ""
    empty, low, high = _bound_statistic(body, expr, over, name, value, empties, reason)
    data = (AnswerRun if function == "answer" else TokenRun)(
        fn=name,
        of=response,
        truth=is_truth,
        cut=cut.data if cut is not None else None,
        value=value.data,
        where=where.data if where is not None else None,
        empty=empty,
    )
    teacher_numbers = {name for name in data.names if name.endswith(UNDER)}
    body.uses |= {*data.scorers, *["truth"] * is_truth, *teacher_numbers}
    return TypedExpr(data, PLAIN if name == "count" else value.unit, low, high)


def _type_token(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Type a call such as `prob(t)`, a number that a model gives the current token of a statistic over tokens.

    The model is the policy, or with `under: teacher` the teacher.

    Args:
        body: The formula inside the statistic.
        expr: The call.
        name: The function: `prob`, `logprob` or `entropy`, or `truth`, which is an error here.

    Raises:
        NoValue: The call is wrong or outside such a statistic, which was reported.
    """
    if name == "truth":
        hint = f"run over its tokens: `mean(prob(t) for t in {body.ctx.text_at(expr.span)})`"
        fail(body, "E0301", "the reference answer is not a number", expr, hint)
    example = f"mean({name}(t) for t in {_name_response(body)})"
    token, *more = expr.args or (None,)
    if token is None or not body.env.token or token.value != tree.Name(body.env.token, token.value.span):
        fail(body, "E0301", f"`{name}` is of a token", expr, f"run over tokens: `{example}`")
    for arg in more:
        if arg.name is None or arg.name.name != "under":
            fail(
                body,
                "E0310",
                f"`{name}` takes a token, and the model that scores it",
                arg,
                f"write `{name}(t, under: teacher)`",
            )
        if arg.value != tree.Name("teacher", arg.value.span):
            hint = "write `under: teacher`: the recipe's `teacher`, or without it the reference model"
            fail(body, "E0301", "besides the policy, only the teacher scores tokens", arg, hint)
    low, high = TOKEN_NUMBERS[name][1]
    return TypedExpr(Variable(name=f"{name}(t{UNDER if more else ')'}"), PLAIN, low, high)


def _type_cut(body: FormulaScope, expr: tree.Slice, op: Literal["forced", "bare"]) -> TypedExpr:
    """Type the verdict on a response that is cut at a budget.

    Only rewards may grade all cuts. A measure may force answers at budgets of its suite's grid. A selection and a
    track grade only complete responses.

    Args:
        body: The formula.
        expr: The cut response, such as `y[:L]`.
        op: "forced" to grade the answer that is forced after the cut (`correct(answer(y[:L]))`), "bare" to grade the
            cut text without forcing (`correct(y[:L])`).

    Raises:
        NoValue: The cut is wrong, or these responses cannot be cut, which was reported.
    """
    response, cut, upper = _read_cut(body, expr)
    if response in body.env.sampled:
        hint = "cut responses of `group`: `mean(correct(answer(z[:L])) for z in group)`"
        fail(body, "E0301", f"only complete responses of `ref` and of `{HISTORY}` are graded", expr, hint)
    if body.is_measure and op == "forced":
        if not (cut.is_constant or cut.is_unbound or is_split_variable(cut)):
            hint = "cut at a number, or run over the budgets: `… correct(answer(z[:L])) for L in grid`"
            fail(body, "E0301", "an evaluation forces answers only at budgets of its grid", upper, hint)
    elif body.track is not None or body.is_selection:
        hint = (
            "measure `correct(z)` or `len(z)`"
            if body.is_measure
            else "measure `correct(z)`, `len(z)` or `mode(z)`"
        )
        fail(body, "E0301", f"only complete responses of {_name_body(body)} are graded", expr, hint)
    body.uses.add(op)
    body.cuts.append((cut, upper.span))
    answer = (ForcedAnswer if op == "forced" else CutAnswer)(of=response, cut=cut.data)
    return TypedExpr(answer, PLAIN, 0.0, 1.0, True)


def _read_cut(body: FormulaScope, expr: tree.Slice) -> tuple[str, TypedExpr, tree.Expr]:
    """Type the parts of a cut response such as `y[:L]`.

    Returns:
        (the canonical name of the response, the typed number of tokens, the number in the syntax tree).

    Raises:
        NoValue: The cut is wrong, which was reported.
    """
    if expr.lower is not None or expr.upper is None:
        end = expr.upper or expr.lower
        budget = body.ctx.text_at(end.span) if end is not None else "1K tokens"
        fail(
            body,
            "E0301",
            "a cut keeps the beginning of a response",
            expr,
            f"write `{body.ctx.text_at(expr.value.span)}[:{budget}]`",
        )
    response, cut = _find_response(body, expr.value), type_expression(body, expr.upper)
    if cut.unit != TOKENS:
        fail(
            body,
            "E0302",
            "a response is cut at a number of tokens",
            expr.upper,
            f"give the number its unit: `{cut.low:g} tokens`"
            if not cut.unit and cut.low == cut.high
            else "write `y[:1K tokens]`, or `y[:L]`",
            (Edit(expr.upper.span, f"{cut.low:g} tokens"),)
            if isinstance(expr.upper, tree.Number) and not cut.unit
            else (),
        )
    return response, cut, expr.upper


def _type_weight(body: FormulaScope, expr: tree.Call, rule: WeightRule) -> TypedExpr:
    """Type a call of a weight rule such as `trapezoid(L)`, the coefficient of a split in a sum over splits.

    Splits are the positions, in tokens, at which a response is divided and rewarded. The argument is the current
    split of a `dense` line, or a statistic's variable over splits.

    Args:
        body: The formula with its splits.
        expr: The call.
        rule: The rule, which is the name of the function.

    Raises:
        NoValue: The argument is another number than a split, which was reported.
    """
    argument = _take_split_argument(body, expr, rule)
    value = type_expression(body, argument)
    body.uses.add("weight")
    if is_current_split(value):
        return TypedExpr(Weight(rule=rule), PLAIN, 0.0, INF)
    if is_split_variable(value) and isinstance(value.data, Variable):
        return TypedExpr(WeightAt(rule=rule, of=value.data.name), PLAIN, 0.0, INF)
    example = f"{rule}({body.split_name})" if body.split_name else f"sum({rule}(M) * … for M in splits)"
    fail(body, "E0301", f"`{rule}` takes a split of the reward", argument, f"write `{example}`")


def _take_split_argument(body: FormulaScope, expr: tree.Call, name: str) -> tree.Expr:
    """Return the argument of a call that only a formula with splits may have.

    Splits are the positions, in tokens, at which a response is divided.

    Args:
        body: The formula.
        expr: The call.
        name: The name of the function.

    Raises:
        NoValue: The formula has no splits, or the call has not one argument, which was reported.
    """
    argument = _take_only(body, expr, name, f"{name}(L)")
    if body.splits.invalid:
        raise NoValue
    if body.splits.over is None or body.track is not None:
        noun = _name_body(body) if body.track is not None else "this reward"
        hint = f"use it in `dense L in at: {name}(L) * …`, or in a statistic: `… {name}(M) … for M in at`"
        fail(body, "E0301", f"`{name}` takes a split, and {noun} has no splits", expr, hint)
    return argument


def is_start(arg: tree.Arg) -> bool:
    """Return whether an argument is `start: …`, the first value of a track that reads its previous value."""
    return arg.name is not None and arg.name.name == "start"


def _type_numeric(body: FormulaScope, expr: tree.Call, name: Function) -> TypedExpr:
    """Type a call of a function of numbers, such as `max(0, len(y) / 100 tokens)`.

    Args:
        body: The formula.
        expr: The call.
        name: The name of the function.

    Raises:
        NoValue: The arguments are wrong, which was reported.
    """
    values: list[tuple[tree.Expr, TypedExpr | None]] = []
    # Named arguments come first: a wrong name is reported rather than the argument that is then missing.
    for arg in sorted(expr.args, key=lambda item: item.name is None):
        if is_start(arg):
            if body.track in body.env.invalid:
                raise NoValue
            hint = (
                "let the outermost call of a track have it: `track price = clip(price + …, 0, 1, start: 0)`"
            )
            fail(body, "E0310", "only the outermost call of a track has a start", arg, hint)
        if arg.name is not None or isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            is_near = body.track and arg.name is not None and nearest(arg.name.name, ["start"])
            hint = "did you mean `start`?" if is_near else f"write `{name}(…)` with numbers only"
            fail(body, "E0310", f"`{name}` takes numbers", arg, hint)
        values.append((arg.value, attempt(partial(type_expression, body, arg.value))))
    arity = NUMBERS[name].arity
    if len(expr.args) != arity and not (NUMBERS[name].more and len(expr.args) > arity):
        counts = {1: "one number", 2: "two numbers", 3: "three numbers: value, lower bound, upper bound"}
        counts[2] += " or more" * NUMBERS[name].more
        hint = f"give it {counts[arity]}"
        if NUMBERS[name].more:
            hint += f", or let it run over responses: `{name}(len(z) for z in group)`"
        fail(body, "E0310", f"`{name}` takes {counts[arity]}", expr, hint)
    typed = [(operand, value) for operand, value in values if value is not None]
    if len(typed) < len(values):
        raise NoValue
    return apply_function(body, expr, name, typed)


def _type_statistic(
    body: FormulaScope, expr: tree.Call, over: tree.Comprehension, name: Statistic
) -> TypedExpr:
    """Type a statistic over responses to a question, or over splits, such as `mean(len(z) for z in group)`.

    Splits are the positions, in tokens, at which a response is divided. An argument `empty` is required if there
    may be nothing to run over: with a condition, or over earlier steps. A sum and a count are then 0 and need none.

    Args:
        body: The formula.
        expr: The call of the statistic.
        over: The statistic's value, variable and condition, and what it runs over.
        name: The statistic.

    Raises:
        NoValue: The statistic is wrong, which was reported.
    """
    source = _find_source(body, over.over)
    if source is None:
        _refuse_source(body, name, over.over)
    if source == "ref" and "y" not in body.env.responses:
        hint = "run over `group`, the pool's responses"
        fail(body, "E0301", "a selection has no reference model", over.over, hint)
    if source == "splits" and over.var.name == body.split_name:
        hint = "give the variable another name: `for M in splits`"
        fail(body, "E0208", f"`{over.var.name}` is the current split of the `dense` line", over, hint)
    if source == "splits" and not body.is_measure:
        check_splits(body, over.over)
    last = _read_last(body, over.over) if source == "history" else None
    inner, variable = _enter_statistic(body, over, source)
    value, where, empties = _type_inside(body, inner, name, over, expr.args[1:])
    reason = NO_EARLIER if source == "history" else NONE_LEFT if over.condition is not None else ""
    most = body.limits.group if source == "group" else INF
    empty, low, high = _bound_statistic(body, expr, over, name, value, empties, reason, most)
    data = Aggregate(
        fn=name,
        var=variable,
        over=source,
        last=last,
        value=value.data,
        where=where.data if where is not None else None,
        empty=empty,
    )
    return TypedExpr(data, PLAIN if name == "count" else value.unit, low, high)


def _type_inside(
    body: FormulaScope, inner: FormulaScope, name: str, over: tree.Comprehension, args: Sequence[tree.Arg]
) -> tuple[TypedExpr, TypedExpr | None, list[tuple[Span, TypedExpr]]]:
    """Type what is inside a statistic: `mean(VALUE for VAR in … if CONDITION, empty: …)`.

    Args:
        body: The formula around the statistic, which types `empty`.
        inner: The same formula with the statistic's variable, which types value and condition.
        name: The statistic.
        over: The value, the variable and the condition in the syntax tree.
        args: The other arguments of the call.

    Returns:
        (the value, the condition or None, each `empty` with its span).

    Raises:
        NoValue: The value or the condition is wrong, which was reported.
    """
    # `count(z for z in group if correct(z))` counts responses, whatever its value would be.
    is_count = name == "count" and isinstance(over.expr, tree.Name) and over.expr.name == over.var.name
    value = make_constant(1.0, PLAIN) if is_count else attempt(partial(type_expression, inner, over.expr))
    where = attempt(partial(type_condition, inner, over.condition)) if over.condition is not None else None
    empties = _type_empty(body, args, name)
    if value is None or (over.condition is not None and where is None):
        raise NoValue
    return value, where, empties


def _append_argument(call: tree.Call, text: str) -> Edit:
    """Return the edit that writes a text before the closing parenthesis of a call."""
    span = call.span
    return Edit(
        span._replace(line=span.end_line, column=span.end_column - 1, end_column=span.end_column - 1), text
    )


NO_EARLIER, NONE_LEFT = "the first step has no earlier responses", "perhaps no response meets the condition"
"""Why a statistic may have nothing to run over."""
OVER_STEPS = "steps(20 steps)"
"""An example of the earlier steps that a track's statistic runs over."""


def _type_history(body: FormulaScope, expr: tree.Call, over: tree.Comprehension, name: str) -> TypedExpr:
    """Type a statistic that has one value for all responses of a step.

    The name says `history` although only one of its forms runs over earlier steps. In a track, the statistic runs
    over earlier steps or over the monitor set; in a reward, over the batch; and in a measure, over the responses of
    an arm or of the baseline. In the code, `window` is the number of earlier steps, or 0 for all other forms.

    Args:
        body: The formula. Its `track` is None in a reward.
        expr: The call of the statistic.
        over: The statistic's value, variable and condition, and what it runs over.
        name: The statistic, or `quantile`.

    Raises:
        NoValue: The statistic is wrong, which was reported.
    """
    _refuse_history(body, over.over)
    source, window = _read_arm(body, over.over, name), 0
    if body.track is None:
        # Its variable `z` may have the name of an outer variable, whose facts must not be used.
        body = replace(body, env=body.env.before_responses(), track=BATCH, facts={})
        source = "batch"
    if source is None:
        window = _read_window(body, over.over)
        source = "steps" if window else "monitor"
    env = replace(body.env, responses={over.var.name: "z"})
    inner = replace(body, env=env, track_response="z")
    shares = [arg for arg in expr.args[1:] if arg.name is not None and arg.name.name == "at"]
    other_args = [arg for arg in expr.args[1:] if arg not in shares]
    share = attempt(partial(_type_share, body, expr, name, shares))
    value, where, empties = _type_inside(body, inner, name, over, other_args)
    if name in _SHARES and share is None:
        raise NoValue
    if name == "reach":
        if value.data != Correct(of="z"):
            hint = f"write `{_SHARES[name]}`"
            fail(body, "E0301", "`reach` follows the share of right responses", over.expr, hint)
        value = replace(value, unit=TOKENS, high=INF)
    reason = NO_EARLIER if window else NONE_LEFT if over.condition is not None else ""
    empty, low, high = _bound_statistic(body, expr, over, name, value, empties, reason)
    if body.is_measure and any(
        isinstance(node, Variable) and node.name.startswith("let")
        for typed in (value, where)
        for node in (walk(typed.data) if typed is not None else ())
    ):
        hint = "let each mean read only its responses, and combine means outside of them"
        fail(body, "E0301", "a mean of a measure reads another mean", over, hint)
    data = StepStatistic(
        fn=name,  # type: ignore[arg-type]
        var="z",
        over=source,
        window=window or 1,
        value=value.data,
        at=share.data if share is not None else None,
        where=where.data if where is not None else None,
        empty=empty,
    )
    return TypedExpr(data, PLAIN if name == "count" else value.unit, low, high)


def _read_arm(
    body: FormulaScope, over: tree.Expr, name: str
) -> Literal["arm", "base", "steps", "monitor", "batch"] | None:
    """Return what the mean of a measure runs over: the responses of an arm, or of the baseline.

    Args:
        body: The formula.
        over: The expression that the statistic runs over.
        name: The statistic.

    Returns:
        "arm" or "base"; None in a formula that is not a measure.

    Raises:
        NoValue: The statistic is not a mean, or runs over something else, which was reported.
    """
    if not body.is_measure:
        return None
    if name not in ("mean", "reach"):
        hint = f"take a mean; inside it `{name}(… for w in group)` runs over the responses to the question of `z`"
        fail(body, "E0301", f"a measure is made of means over responses, and this is a `{name}`", over, hint)
    match over:
        case tree.Name("arm" | "base" as source):
            return source
    message = "a measure runs over an arm's responses, or over the baseline's"
    fail(body, "E0301", message, over, "write `for z in arm`, or `for z in base`")


def _read_window(body: FormulaScope, over: tree.Expr) -> int:
    """Return over how many earlier steps a statistic of a track runs: `N` for `steps(N steps)`, 0 for `monitor`.

    If `N` is a parameter whose argument is not known yet, the result is 1.

    Raises:
        NoValue: The statistic runs over something else, which was reported.
    """
    match over:
        case tree.Name("monitor"):
            body.uses.add("monitor")
            return 0
        case tree.Call(function=tree.Name("steps"), args=(tree.Arg(name=None, value=count),)) if (
            not isinstance(count, (tree.Binding, tree.Comprehension))
        ):
            value = type_expression(body, count)
            if value.unit == STEPS and value.is_constant and value.low >= 1 and value.low == int(value.low):
                return int(value.low)
            if value.unit == STEPS and value.is_unbound:
                return 1
            message = "`steps(…)` takes a whole number of steps, 1 or more"
            fail(body, "E0301", message, count, f"write `for z in {OVER_STEPS}`")
    fail(
        body,
        "E0301",
        "a track runs over the responses of earlier steps, or of the monitor set",
        over,
        f"write `for z in {OVER_STEPS}`, or `for z in monitor`",
    )


_SHARES = {
    "quantile": f"quantile(len(z) for z in {OVER_STEPS}, at: 50%, empty: 1K tokens)",
    "reach": "reach(correct(z) for z in arm, at: 90%)",
}
"""An example of each statistic with the argument `at`."""


def _type_share(body: FormulaScope, expr: tree.Call, name: str, shares: list[tree.Arg]) -> TypedExpr | None:
    """Type the argument `at` of a quantile, or of the accuracy that is reached, such as `at: 90%`.

    Args:
        body: The formula.
        expr: The call of the statistic.
        name: The statistic.
        shares: The arguments of the call that are named `at`.

    Returns:
        The share, or None for a statistic without one.

    Raises:
        NoValue: The share is missing, wrong, or of another statistic, which was reported.
    """
    if name not in _SHARES:
        for arg in shares:
            fail(body, "E0310", f"`{name}` takes no share", arg, "take `at` out, or write `quantile(…)`")
        return None
    hint = f"write `{_SHARES[name]}`"
    if len(shares) != 1 or isinstance(shares[0].value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", f"`{name}` needs one share, `at`", expr, hint)
    value = type_expression(body, shares[0].value)
    if value.unit != PLAIN or value.high <= 0 or value.low > 1:
        fail(body, "E0301", f"`{name}` is at a share above 0 and up to 1", shares[0], hint)
    return value


def _find_source(body: FormulaScope, over: tree.Expr) -> Source | None:
    """Return what a statistic over responses or splits runs over, as the formula allows.

    Returns:
        "group", "ref", "history" or "splits" in a reward; "group" in a track; "group" or, for the budgets of the
        suite, "splits" in a measure; "group" or "ref", which the caller refuses, in a selection. None for all other
        expressions.
    """
    match over:
        case tree.Name("group" | "ref" as source) if source == "group" or body.track is None:
            return source
        case tree.Call(
            function=tree.Name("history"), args=(tree.Arg(name=None, value=tree.Name("x")), *_)
        ) if body.track is None and not body.is_selection:
            return "history"
        case tree.Name("grid" | "splits") if body.is_measure:
            return "splits"
    if body.track is not None or body.is_selection:
        return None
    return "splits" if over == tree.Name("splits", over.span) or are_splits(body, over) else None


def _read_last(body: FormulaScope, over: tree.Expr) -> int | None:
    """Return how many of the last responses to a question `history(x, last: N)` has; None without `last`.

    If `N` is a parameter whose argument is not known yet, the result is 1.

    Raises:
        NoValue: `N` is no whole number from 1 to `MEMORY`, or there is another argument, which was reported.
    """
    assert isinstance(over, tree.Call)
    match over.args[1:]:
        case ():
            return None
        case (tree.Arg(name=tree.Ident("last"), value=count),) if not isinstance(
            count, (tree.Binding, tree.Comprehension)
        ):
            value = type_expression(body, count)
            if value.unit == PLAIN and value.is_unbound:
                return 1
            if value.unit == PLAIN and value.is_constant and value.low in range(1, MEMORY + 1):
                return int(value.low)
    fail(
        body, "E0301", f"`last` is a whole number from 1 to {MEMORY:,}", over, "write `history(x, last: 32)`"
    )


def _refuse_history(body: FormulaScope, expr: tree.Expr) -> None:
    """Report E0301 if an expression that the caller cannot accept is the name `history` or a call `history(…)`.

    A statistic of a reward runs over the responses to its question in earlier steps by `for z in history(x)`. All
    other uses of `history` are errors. In a reward, the message says how `history(x)` is used. In a measure or a
    selection, it says that there are no earlier steps. In a track, whose value is the same for all questions, the
    help is to use `history(x)` in a reward. If the expression is not `history`, the function returns without a
    report, and the caller reports its own error.

    Args:
        body: The formula.
        expr: The expression, which the caller found to be wrong.

    Raises:
        NoValue: The expression is `history` or a call of it, which was reported.
    """
    function = expr.function if isinstance(expr, tree.Call) else expr
    if function != tree.Name("history", function.span):
        return
    message = f"`{HISTORY}` is all responses to the question in earlier steps"
    hint = f"write `for z in {HISTORY}`"
    if body.is_measure or body.is_selection:
        message, hint = f"{_name_body(body)} has no earlier steps", f"use `{HISTORY}` in a reward"
    elif body.track is not None:
        hint = f"let a reward run over it; {_name_body(body)} is the same for all questions"
    fail(body, "E0301", message, expr, hint)


def _refuse_source(body: FormulaScope, name: str, expr: tree.Expr) -> NoReturn:
    """Report E0301 for a statistic that runs over neither responses nor splits.

    Splits are the positions, in tokens, at which a response is divided. The help depends on the kind of formula, and
    on words that have a meaning elsewhere, such as `monitor` in a track.

    Args:
        body: The formula.
        name: The statistic.
        expr: The expression that the statistic runs over.

    Raises:
        NoValue: Always.
    """
    _refuse_history(body, expr)
    hint = "`group` is the question's responses, `batch` the step's, `ref` the reference model's"
    if body.track is not None:
        grid = ", or over `grid`, the budgets" if body.is_measure else ""
        message = f"an inner `{name}` runs over `group`, the responses to the same question{grid}"
        fail(
            body, "E0301", message, expr, f"only the outermost statistic of {_name_body(body)} runs over more"
        )
    function = expr.function if isinstance(expr, tree.Call) else expr
    if isinstance(function, tree.Name) and function.name in TRACK_WORDS:
        fail(
            body,
            "E0301",
            "only a track reads responses of earlier steps or of the monitor set",
            expr,
            f"write `track usual = {name}(… for z in …)`, and read `usual`",
        )
    if body.is_selection:
        hint = "`group` is the question's responses in the pool"
    elif body.splits.over is not None:
        hint += ", `splits` this reward's budgets: `sum(correct(y[:M]) for M in splits if M < len(y))`"
    forms = {"group": "group", BATCH: BATCH, "history": HISTORY, "truth": "truth(y)", "answer": "answer(y)"}
    if isinstance(function, tree.Name) and (nearest_name := nearest(function.name, forms)) is not None:
        hint = f"write `… in {forms[nearest_name]}`"
    fail(body, "E0301", f"`{name}` runs over `group` or `ref`", expr, hint)


def _enter_statistic(
    body: FormulaScope, over: tree.Comprehension, source: Source
) -> tuple[FormulaScope, str]:
    """Return the formula inside a statistic, with the statistic's variable, and the canonical name of the variable.

    Args:
        body: The formula around the statistic.
        over: The value and the variable of the statistic.
        source: What the variable runs over.
    """
    name = over.var.name
    if source != "splits":
        body.uses.add(source)
        # Inside a local function, a parameter and its argument are two names of one response: count canonical names.
        variable = f"z{len({*body.env.responses.values()} - {'y'}) or ''}"
        return body.within(body.env.with_response(name, variable, source)), variable
    body.ctx.charge(over.span, NAME_STEPS * body.env.size)
    variable = name_split_variable(body)
    return body.within(body.env.with_split_variable(name, make_split_variable(body, variable))), variable


def _type_empty(body: FormulaScope, args: Sequence[tree.Arg], name: str) -> list[tuple[Span, TypedExpr]]:
    """Type the arguments `empty: …` of a statistic: its value if it has nothing to run over.

    The syntax allows this argument more than once; the caller uses the last.

    Args:
        body: The formula around the statistic.
        args: The arguments after the first.
        name: The statistic.

    Returns:
        For each argument, (span, value).

    Raises:
        NoValue: An argument has another name or is wrong, which was reported.
    """
    typed = []
    for arg in args:
        if arg.name is not None and arg.name.name == "under":
            hint = "move it to the number of a token: `entropy(t, under: teacher)`"
            fail(body, "E0310", "`under` names the model that scores a token", arg, hint)
        if (
            arg.name is None
            or arg.name.name != "empty"
            or isinstance(arg.value, (tree.Binding, tree.Comprehension))
        ):
            hint = "write `empty: …`, its value if nothing is left"
            fail(body, "E0310", f"the only other argument of `{name}` is `empty`", arg, hint)
        typed.append((arg.value.span, type_expression(body, arg.value)))
    return typed


def _bound_statistic(
    body: FormulaScope,
    expr: tree.Call,
    over: tree.Comprehension,
    name: str,
    value: TypedExpr,
    empties: Sequence[tuple[Span, TypedExpr]],
    reason: str,
    most: float = INF,
) -> tuple[Expression | None, float, float]:
    """Return the value of a statistic over nothing, if given, and the smallest and the largest value of the statistic.

    Args:
        body: The formula around the statistic.
        expr: The call of the statistic.
        over: The statistic's value, variable and condition, and what it runs over.
        name: The statistic.
        value: The typed expression whose values the statistic combines.
        empties: Each `empty` with its span; the last one counts.
        reason: Why the statistic may run over nothing; empty if it never does.
        most: The largest number of items that it may run over; infinity if unknown.

    Raises:
        NoValue: An `empty` is missing, or has another unit than the value, which was reported.
    """
    if reason and not empties and name not in ("sum", "count"):
        argument = f"empty: {write_amount(1, value.unit)}"
        body.ctx.fail(
            "E0306",
            f"`{name}` may have nothing to run over: {reason}",
            (over.condition or over).span,
            "may leave nothing",
            help=f"give its value for this case: `{name}(…{' if …' * (over.condition is not None)}, {argument})`",
            edits=(_append_argument(expr, f", {argument}"),),
        )
    low, high = value.low, value.high
    if name == "count":
        low, high = (0.0 if reason else 1.0), most
    elif name == "std":
        low, high = 0.0, (high - low) / 2 if math.isfinite(high - low) else INF
    elif name == "sum":
        low, high = ((0.0 if reason else low) if low >= 0 else -INF), (0.0 if high <= 0 else INF)
    if not empties:
        return None, low, high
    span, empty = empties[-1]
    if name != "count":
        check_unit(body, empty, value, span, over.expr.span, "`empty`")
    return empty.data, min(low, empty.low), max(high, empty.high)
