"""Type the expressions of a reward: from syntax to the representation, with units and ranges of values.

Expressions hold calls, calls hold expressions and statistics, and those hold expressions again: one file.
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
    READINGS,
    STEP,
    UNDER,
    Aggregate,
    AnswerRun,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
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
    TokenRun,
    Variable,
    Weight,
    WeightAt,
    WeightRule,
    walk,
)
from reodsl.ir.expression import TOKENS as TOKEN_NUMBERS
from reodsl.ir.names import OWN_CODE
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
Source: TypeAlias = Literal["group", "ref", "history", "splits"]
HISTORY = "history(x)"


def type_condition(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Return an expression that is true or false.

    Raises:
        NoValue: It is a number or wrong, which was reported.
    """
    value = type_expression(body, expr)
    if value.is_condition:
        return value
    message = "a condition is true or false, and this is a number"
    fail(body, "E0301", message, expr, "compare it: `… > 0`")


def type_expression(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Return an expression typed.

    Raises:
        NoValue: It is wrong, which was reported.
    """
    if body.depth > DEEPEST_FORMULA:
        body.ctx.fail("E0209", "this is nested too deep", expr.span, help="give parts of it names with `let`")
    body.ctx.charge(expr.span, EXPRESSION_STEPS)
    body.depth += 1
    try:
        value = _type(body, expr)
        # The hash of a leaf is cheap; that of a whole expression is taken only where its range matters.
        leaf = isinstance(value.data, (Variable, Length, Correct, Attribute))
        return narrow(body, value) if leaf else value
    finally:
        body.depth -= 1


def _type(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
    """Return an expression typed, by its class in the syntax tree."""
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
                message = f"`{field}` is a number of a response, and of no question"
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
            fail(
                body,
                "E0301",
                "a cut response has no value of its own",
                expr,
                f"write `correct(answer({body.ctx.text_at(expr.span)}))`",
            )
    fail(body, "E0301", "a reward is made of numbers", expr, "use numbers, responses and statistics here")


def _name_field(expr: tree.Expr) -> str:
    """Return the number of a question that an expression names: `info.level` for `x.info.level`; else an empty text."""
    names: list[str] = []
    while isinstance(expr, tree.Attribute):
        names.insert(0, expr.name.name)
        expr = expr.value
    return ".".join(names) if isinstance(expr, tree.Name) and expr.name == "x" else ""


def _type_name(body: FormulaScope, expr: tree.Name) -> TypedExpr:
    """Return a name typed, or report why it is no number."""
    name = expr.name
    env = body.env
    if name in env.values:
        return env.values[name]
    if name in env.invalid:
        raise NoValue
    if name == env.token:
        fail(
            body,
            "E0301",
            f"`{name}` is a token, and no number",
            expr,
            f"ask a model about it: `prob({name})`",
        )
    if body.track is not None and (
        name == body.track or (name in body.metrics and name != STEP and not env.call_stack)
    ):
        if body.track in env.values:
            return body.metrics[name]
        env.invalid.update((body.track, *body.metrics))  # One mistake, however many a track reads.
        fail(
            body,
            "E0320",
            f"the track `{body.track}` reads the step before, and has no start",
            expr,
            f"bound the whole, and say what it is at the first step: `clip({name} + …, LOW, HIGH, start: 0)`",
        )
    if body.track not in (None, BATCH) and name == STEP and not body.is_measure:
        return TypedExpr(Variable(name=STEP), STEPS, 0.0, INF)
    if name in env.responses or name in ("group", BATCH, "ref", "x"):
        forms = {item: f"mean(len(z) for z in {item})" for item in ("group", BATCH, "ref")} | {
            "x": "x.budget"
        }
        fail(
            body,
            "E0301",
            f"`{name}` is not a number",
            expr,
            f"measure it: `{forms.get(name, f'len({name})')}`",
        )
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
            "E0201", f"`{name}` stands here without its arguments", expr.span, "not called", help=hint
        )
    if declared is None and name == body.splits.variable:
        body.ctx.fail(
            "E0201",
            f"`{name}` is the split at hand, and known in the `dense` line alone",
            expr.span,
            "not in its line",
            help=f"run over all of them: `count(M for M in splits if …)`, or use a function: `let f({name}) = …`",
        )
    if declared is None and name not in body.scope.module.imports:
        _refuse_order(body, expr)
        noun, hint = (
            ("statistic over tokens", "it knows its tokens, tracks and numbers that are written out")
            if env.token
            else ("reward", suggest(name, [*env.names(), *FUNCTIONS], "there is"))
        )
        if name == STEP and noun == "reward" and not body.is_selection:
            hint = "a track knows it: write `track done = min(1, step / 100 steps)`, and read `done` here"
        if body.track is not None:
            noun = "statistic over `batch`" if body.track == BATCH else _name_body(body).removeprefix("a ")
            steps = (
                ""
                if body.is_measure
                else "tracks, "
                if body.track == BATCH
                else "`step`, tracks above it, metrics above it if it has a `start`, "
            )
            hint = f"it knows constants, {steps}and what its statistic runs over"
        body.ctx.fail("E0201", f"there is no `{name}` in this {noun}", expr.span, "unknown", help=hint)
    if declared is None:
        raise NoValue
    fail(
        body,
        "E0301",
        f"`{name}` is not a number",
        expr,
        "a reward uses numbers, its parameters and its responses",
    )


def _refuse_order(body: FormulaScope, expr: tree.Name) -> None:
    """Report E0201 if a name is a metric, or is defined in this line or further down.

    Raises:
        NoValue: It was reported.
    """
    kind, span = body.line_kinds.get(expr.name, ("", expr.span))
    if kind == "metric" and body.track is None:
        message = f"`{expr.name}` is a metric, which is logged and not read here"
        hint = f"write `let {expr.name} = …`; a track with a `start` reads a metric's mean at the step before"
        fail(body, "E0201", message, expr, hint)
    if span[1:3] > expr.span[1:3] and (kind != "let" or body.track is None):
        hint = "put its line above this one; two lines cannot read each other"
        fail(body, "E0201", f"`{expr.name}` is named further down", expr, hint)
    if kind == "let" and body.track is None and not body.env.token and expr.name not in body.env.functions:
        hint = "write out what it is; a `track` reads its value at the step before"
        fail(body, "E0201", f"`{expr.name}` needs itself", expr, hint)


def _type_choice(body: FormulaScope, expr: tree.IfElse) -> TypedExpr:
    test = type_condition(body, expr.condition)

    def type_branch(holds: bool) -> TypedExpr:
        inner = body.within(body.env, combine_facts(body.facts, list_facts(body, test.data, holds)))
        return type_expression(inner, expr.then if holds else expr.otherwise)

    return choose(body, expr, test, *try_all(type_branch, (True, False)))


def _type_call(body: FormulaScope, expr: tree.Call) -> TypedExpr:
    """Return a call in a formula typed."""
    if not isinstance(expr.function, tree.Name):
        fail(body, "E0301", "only a name can be called", expr.function, "write `NAME(…)`")
    name = expr.function.name
    first = expr.args[0].value if expr.args else None
    if isinstance(first, tree.Comprehension) and name in STATISTICS and _are_tokens(body, first.over):
        return _type_tokens(body, expr, first, name)
    if (
        body.track_response is None
        and isinstance(first, tree.Comprehension)
        and (
            body.track is not None
            or (
                first.over == tree.Name(BATCH, first.over.span)
                and not body.is_selection
                and not body.is_measure
            )
        )
        and name in (*STATISTICS, "quantile")
    ):
        return _type_history(body, expr, first, name)
    statistic = next((item for item in STATISTICS if item == name), None)
    if statistic is not None and expr.args and isinstance(expr.args[0].value, tree.Comprehension):
        return _type_statistic(body, expr, expr.args[0].value, statistic)
    if name in body.env.functions:
        return _type_local(body, expr, body.env.functions[name])
    if name in body.env.call_stack:
        fail(
            body,
            "E0313",
            f"the function `{name}` calls itself",
            expr,
            "write out what it is; a function uses what stands above it",
        )
    if name in body.env.invalid:
        raise NoValue
    if name in RESPONSE:
        return _type_measure(body, expr, name)
    if name in TOKEN_NUMBERS or name == "truth":
        return _type_token(body, expr, name)
    if name == "before":
        argument = _take_splits(body, expr, "before")
        return find_previous(body, type_expression(body, argument), argument)
    for rule in WEIGHTS:
        if rule == name:
            return _type_weight(body, expr, rule)
    for function in NUMERIC:
        if function == name:
            return _type_numeric(body, expr, function)
    if name == "z":
        fail(
            body,
            "E0301",
            "`z(…)` normalises a whole part of a reward",
            expr,
            "let the value be a sum of parts: `z(correct(y)) + 0.5 * z(mode(y) == 0, on: prefix)`",
        )
    if statistic is not None:
        fail(body, "E0310", f"`{name}` runs over responses", expr, f"write `{name}(len(z) for z in group)`")
    _refuse_history(body, expr)
    hint = FUNCTIONS_ELSEWHERE.get(name.lower()) or suggest(
        name, [*FUNCTIONS, *body.env.functions], "functions are"
    )
    if name == "quantile":
        hint = "a track has it: `track most = quantile(len(z) for z in monitor, at: 90%)`"
    if is_reward(body.ctx, body.scope.module, name):
        hint = f"`{name}` is a reward, and no function: write its formula here as a `let`"
    body.ctx.fail(
        "E0201", f"there is no function `{name}` in a reward", expr.function.span, "unknown", help=hint
    )


def _type_local(body: FormulaScope, expr: tree.Call, function: LocalFunction) -> TypedExpr:
    """Return a call of the reward's own function: its body typed, with the arguments for its parameters."""
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
    variable = None
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
            variable = name
    env = replace(
        closure,
        values=values,
        responses=responses,
        other_params=other_args,
        sampled=outer.sampled,
        call_stack=(*outer.call_stack, function.name),
        split_count=outer.split_count,
    )
    inner = replace(body, env=env, split_name=variable)
    try:
        return type_expression(inner, function.value)
    except NoValue:
        # A wrong function is one error, however often it is called. A trial has told of none.
        if not body.ctx.is_trial:
            outer.functions.pop(function.name, None)
            outer.invalid.add(function.name)
        raise


def _take_only(body: FormulaScope, expr: tree.Call, name: str, example: str) -> tree.Expr:
    """Return the argument of a function that takes a single argument.

    Raises:
        NoValue: The call has another number of arguments, which was reported.
    """
    if len(expr.args) == 1 and expr.args[0].name is None:
        value = expr.args[0].value
        if not isinstance(value, (tree.Binding, tree.Comprehension)):
            return value
    fail(body, "E0310", f"`{name}` takes one argument", expr, f"write `{example}`")
    raise NoValue


def _name_response(body: FormulaScope) -> str:
    """Return the name of the innermost response, for an example."""
    return next((response for response in reversed(body.env.responses) if not response.startswith("?")), "z")


def _find_response(body: FormulaScope, expr: tree.Expr) -> str:
    """Return the response that an expression names.

    Raises:
        NoValue: It names no response, which was reported.
    """
    if isinstance(expr, tree.Name) and expr.name in body.env.responses:
        return body.env.responses[expr.name]
    over = (
        "arm" if body.is_measure else BATCH if body.track == BATCH else OVER_STEPS if body.track else "group"
    )
    names = "`y`, or " * ("y" in body.env.responses) + f"the variable of `… for z in {over}`"
    fail(body, "E0301", "this is not a response", expr, f"name one: {names}")


def _type_own_code(body: FormulaScope, expr: tree.Call) -> TypedExpr:
    """Return the type of `python("FILE.py:FUNCTION", y)`, a number that a user's function gives a response."""
    example = f'python("style.py:score", {_name_response(body)})'
    nameless = [arg for arg in expr.args if not arg.name]
    first, second = nameless if len(nameless) == 2 else (None, None)
    if (
        first is None
        or second is None
        or not isinstance(first.value, tree.String)
        or isinstance(second.value, (tree.Binding, tree.Comprehension))
    ):
        fail(body, "E0310", "`python` takes a function and a response", expr, f"write `{example}`")
    function = first.value.value
    if not OWN_CODE.holds(function):
        fail(
            body,
            "E0317",
            f"`python` names {OWN_CODE.noun}, and `{clip_text(function)}` cannot be one",
            first,
            f"write {OWN_CODE.words}: `{example}`, for example",
        )
    of = _find_response(body, second.value)
    if body.is_selection or of in body.env.sampled or body.track is not None:
        noun = "a selection's responses" if body.is_selection else "responses of `ref` and of `history(x)`"
        noun = f"the responses of {_name_body(body)}" if body.track is not None else noun
        fail(
            body,
            "E0301",
            f"{noun} are given to no Python",
            expr,
            'call it on those of a reward: `python("style.py:score", y)`',
        )
    term = _limit(body, expr, second, PythonTerm(function=function, of=of))
    first_term, first_span = body.code_terms.setdefault(function, (term, expr.span))
    if first_term.limits != term.limits:
        body.ctx.fail(
            "E0310",
            f"`{clip_text(function)}` is given other limits than in another term of this reward",
            expr.span,
            labels=(Label(first_span, "the other term"),),
            help="give all terms of a function the same limits: its values are computed once",
        )
    return TypedExpr(term, PLAIN, -INF, INF)


def _limit(body: FormulaScope, expr: tree.Call, response: tree.Arg, plain_term: PythonTerm) -> PythonTerm:
    """Return the term with the limits that the call names; unchanged if it names none."""
    if len(expr.args) == 2:
        return plain_term
    args = tuple(arg for arg in expr.args if arg is not response)
    bound = bind(body.ctx, replace(expr, args=args), CONSTRUCTORS["python"], body.scope)
    limits = {name: plain(bound[name].value) for name in ("batch", "seconds", "memory")}
    term = LimitedPythonTerm(function=plain_term.function, of=plain_term.of, **limits)
    return term if term != LimitedPythonTerm(function=term.function, of=term.of) else plain_term


def _name_body(body: FormulaScope) -> str:
    """Return the kind of the body, for a message."""
    if body.track == BATCH:
        return "`batch`"
    if body.is_measure or body.is_selection:
        return "a measure" if body.is_measure else "a selection"
    return "a reward" if body.track is None else "a track"


def _type_reading(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Return a number of a response that a word of `READINGS` reads."""
    reading, body_name = READINGS[name], _name_body(body)
    example = f"{name}({_name_response(body)}{', 4' * reading.votes})"
    if body_name not in reading.bodies:
        knows = listed(sorted(item for item in reading.bodies if item != "`batch`"), 4)
        hint = f"measure `len(z)` or `correct(z)` here; `{reading.call or example}` is for {knows}"
        fail(body, "E0301", f"{body_name} does not know `{name}` of a response", expr, hint)
    args = [arg.value for arg in expr.args if arg.name is None]
    values = [arg for arg in args if not isinstance(arg, (tree.Binding, tree.Comprehension))]
    if not len(expr.args) == len(values) == 1 + reading.votes:
        takes = "a response and a number of votes" if reading.votes else "one argument"
        fail(body, "E0310", f"`{name}` takes {takes}", expr, f"write `{example}`")
    first, *more = values
    of, field = _find_response(body, first), name
    for vote in more:
        votes = type_expression(body, vote)
        if votes.unit != PLAIN or not (
            votes.is_unbound or (votes.is_constant and votes.low >= 1 and votes.low % 1 == 0)
        ):
            fail(body, "E0301", "a vote is of a whole number of responses", vote, f"write `{example}`")
        field = f"{name}@{int(votes.low) if votes.is_constant else 1}"
    body.uses.add(name)
    if of in body.env.sampled and not (reading.sampled and body.env.sampled[of] == "ref"):
        hint = "measure them by `len(z)` or `correct(z)`, or in a reward those of `group`"
        whose = f"`{HISTORY}`" if reading.sampled else f"`ref` and of `{HISTORY}`"
        fail(body, "E0301", f"`{name}` of responses of {whose} is not kept", expr, hint)
    high = body.limits.wordings - 1 if name == "mode" else reading.high
    unit, high = (TOKENS, min(high, body.limits.longest)) if reading.tokens else (PLAIN, high)
    return TypedExpr(Attribute(of=of, field=field), unit, reading.low, high, reading.condition)


def _type_measure(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Return a number that is measured of a response: `len`, `correct`, `python` or a word of `READINGS`."""
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
    """Return whether a statistic runs over the tokens of a response, of its beginning, or of an answer."""
    if isinstance(over, tree.Call):
        return isinstance(over.function, tree.Name) and over.function.name in ("truth", "answer")
    whose = over.value if isinstance(over, tree.Slice) else over
    return isinstance(whose, tree.Name) and whose.name in body.env.responses


def _type_tokens(body: FormulaScope, expr: tree.Call, over: tree.Comprehension, name: Statistic) -> TypedExpr:
    """Return a statistic of a model's probabilities of tokens, which may read nothing else of a response."""
    source, answers, cut = over.over, "", None
    if isinstance(source, tree.Call) and isinstance(source.function, tree.Name):
        answers = source.function.name
        source = _take_only(body, source, answers, f"{answers}({_name_response(body)})")
    truth = answers == "truth"
    if isinstance(source, tree.Slice):
        if answers == "answer":
            hint = "run over the answer of the whole response, `answer(y)`, or over the reference answer, `truth(y[:L])`"
            fail(body, "E0301", "no model is asked about the tokens of a forced answer", over.over, hint)
        of, cut, upper = _read_cut(body, source)
        body.cuts.append((cut, upper.span))
    else:
        of = _find_response(body, source)
    body_name = _name_body(body)
    if body_name not in ("a reward", "`batch`") or of in body.env.sampled:
        whose = (
            f"responses of `ref` and of `{HISTORY}`"
            if of in body.env.sampled
            else f"the responses of {body_name}"
        )
        hint = "let a reward run over those of `y`, or of `group`: `mean(logprob(t) for t in y)`"
        fail(body, "E0301", f"no model is asked about the tokens of {whose}", over.over, hint)
    inner = replace(body, env=replace(body.env.before_responses(), token=over.var.name), facts={}, tests={})
    value, where, empty = _type_inside(body, inner, name, over, expr.args[1:])
    for typed, item in ((value, over.expr), (where, over.condition or over)):
        for node in walk(typed.data) if typed is not None else ():
            if not isinstance(node, (Constant, Variable, Negation, Infix, FunctionCall, If)):
                hint = (
                    "compare and calculate with `prob(t)`, `logprob(t)`, `entropy(t)`, tracks and constants"
                )
                fail(body, "E0301", "a statistic over tokens reads nothing but its tokens", item, hint)
    data = (AnswerRun if answers == "answer" else TokenRun)(
        fn=name,
        of=of,
        truth=truth,
        cut=cut.data if cut is not None else None,
        value=value.data,
        where=where.data if where is not None else None,
        empty=empty[-1][1].data if empty else None,
    )
    filtered = where is not None or answers == "answer" or (cut is not None and cut.low < 1 and not truth)
    if filtered and not empty and name not in ("sum", "count"):
        edits = (_append_argument(expr, ", empty: 0"),)
        message = f"`{name}` may have nothing to run over: perhaps no token is left"
        hint = f"say what it is then: `{name}(…, empty: 0)`"
        body.ctx.fail("E0306", message, over.span, "may leave nothing", help=hint, edits=edits)
    under = {name for name in data.names if name.endswith(UNDER)}
    body.uses |= {*data.scorers, *["truth"] * truth, *under}
    low, high = _bound_statistic(name, value, filtered, INF)
    if empty:
        check_unit(body, empty[-1][1], value, empty[-1][0], over.expr.span, "`empty`")
        low, high = min(low, empty[-1][1].low), max(high, empty[-1][1].high)
    return TypedExpr(data, value.unit, low, high)


def _type_token(body: FormulaScope, expr: tree.Call, name: str) -> TypedExpr:
    """Return a number that a model gives the current token: the policy, or with `under: teacher` the teacher."""
    if name == "truth":
        hint = f"run over its tokens: `mean(prob(t) for t in {body.ctx.text_at(expr.span)})`"
        fail(body, "E0301", "the reference answer is no number", expr, hint)
    example = f"mean({name}(t) for t in {_name_response(body)})"
    token, *more = expr.args or (None,)
    if token is None or not body.env.token or token.value != tree.Name(body.env.token, token.value.span):
        fail(body, "E0301", f"`{name}` is of a token", expr, f"run over tokens: `{example}`")
    for arg in more:
        if arg.name is None or arg.name.name != "under":
            fail(
                body,
                "E0310",
                f"`{name}` takes a token, and the model to ask",
                arg,
                f"write `{name}(t, under: teacher)`",
            )
        if arg.value != tree.Name("teacher", arg.value.span):
            hint = "write `under: teacher`: the recipe's `teacher`, or without one the reference model"
            fail(body, "E0301", "the one other model that a stage holds is its teacher", arg, hint)
    low, high = TOKEN_NUMBERS[name][1]
    return TypedExpr(Variable(name=f"{name}(t{UNDER if more else ')'}"), PLAIN, low, high)


def _type_cut(body: FormulaScope, expr: tree.Slice, op: Literal["forced", "bare"]) -> TypedExpr:
    """Type the verdict on a cut response, with a forced answer or as it stands (`bare`)."""
    of, cut, upper = _read_cut(body, expr)
    if of in body.env.sampled:
        fail(
            body,
            "E0301",
            f"responses of `ref` and of `{HISTORY}` are graded whole, and not cut",
            expr,
            "cut those of `group`: `mean(correct(answer(z[:L])) for z in group)`",
        )
    if body.is_measure and op == "forced":
        if not (cut.is_constant or cut.is_unbound or is_split_variable(cut)):
            hint = "cut at a number, or run over the budgets: `… correct(answer(z[:L])) for L in grid`"
            fail(body, "E0301", "an evaluation forces answers at its budgets alone", upper, hint)
    elif body.track is not None or body.is_selection:
        whose = _name_body(body)
        fail(
            body,
            "E0301",
            f"{whose}'s responses are graded whole, and not cut",
            expr,
            "measure `correct(z)` or `len(z)`"
            if body.is_measure
            else "measure `correct(z)`, `len(z)` or `mode(z)`",
        )
    body.uses.add(op)
    body.cuts.append((cut, upper.span))
    answer = ForcedAnswer(of=of, cut=cut.data) if op == "forced" else CutAnswer(of=of, cut=cut.data)
    return TypedExpr(answer, PLAIN, 0.0, 1.0, True)


def _read_cut(body: FormulaScope, expr: tree.Slice) -> tuple[str, TypedExpr, tree.Expr]:
    """Return the response that is cut, the number of tokens, and the number as written.

    Raises:
        NoValue: The cut is wrong, which was reported.
    """
    if expr.lower is not None or expr.upper is None:
        end = expr.upper or expr.lower
        budget = body.ctx.text_at(end.span) if end is not None else "1K tokens"
        hint = f"write `{body.ctx.text_at(expr.value.span)}[:{budget}]`"
        fail(body, "E0301", "a response is cut at its end only", expr, hint)
    of = _find_response(body, expr.value)
    cut = type_expression(body, expr.upper)
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
    return of, cut, expr.upper


def _type_weight(body: FormulaScope, expr: tree.Call, rule: WeightRule) -> TypedExpr:
    """Return the coefficient of the current split, or of a statistic's variable over splits."""
    argument = _take_splits(body, expr, rule)
    value = type_expression(body, argument)
    if is_current_split(value):
        body.uses.add("weight")
        return TypedExpr(Weight(rule=rule), PLAIN, 0.0, INF)
    if is_split_variable(value) and isinstance(value.data, Variable):
        body.uses.add("weight")
        return TypedExpr(WeightAt(rule=rule, of=value.data.name), PLAIN, 0.0, INF)
    example = f"{rule}({body.split_name})" if body.split_name else f"sum({rule}(M) * … for M in splits)"
    fail(body, "E0301", f"`{rule}` is of one of the splits", argument, f"write `{example}`")


def _take_splits(body: FormulaScope, expr: tree.Call, name: str) -> tree.Expr:
    """Return the argument of a call that needs splits.

    Raises:
        NoValue: The body has no splits, which was reported.
    """
    argument = _take_only(body, expr, name, f"{name}(L)")
    if body.splits.invalid:
        raise NoValue
    if body.splits.over is None or body.track is not None:
        reason = f"{_name_body(body)} has none" if body.track is not None else "there is none here"
        fail(
            body,
            "E0301",
            f"`{name}` belongs to a split, and {reason}",
            expr,
            f"use it in `dense L in at: {name}(L) * …`, or in a statistic: `… {name}(M) … for M in at`",
        )
    return argument


def is_start(arg: tree.Arg) -> bool:
    """Return whether an argument is the start of a track that reads itself."""
    return arg.name is not None and arg.name.name == "start"


def _type_numeric(body: FormulaScope, expr: tree.Call, name: Function) -> TypedExpr:
    """Return a call of a function of numbers typed."""
    values: list[tuple[tree.Expr, TypedExpr | None]] = []
    # What is wrong with a name is told before what it is missed for.
    for arg in sorted(expr.args, key=lambda item: item.name is None):
        if is_start(arg):
            if body.track in body.env.invalid:
                raise NoValue
            hint = "let the bound be the whole of a track: `track price = clip(price + …, 0, 1, start: 0)`"
            fail(body, "E0310", "only a track has a start, in its outermost call", arg, hint)
        if arg.name is not None or isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            is_near = body.track and arg.name is not None and nearest(arg.name.name, ["start"])
            hint = "did you mean `start`?" if is_near else f"write `{name}(…)` with values alone"
            fail(body, "E0310", f"`{name}` takes numbers", arg, hint)
        values.append((arg.value, attempt(partial(type_expression, body, arg.value))))
    arity = NUMBERS[name].arity
    if len(expr.args) != arity and not (NUMBERS[name].more and len(expr.args) > arity):
        counts = {1: "one number", 2: "two numbers", 3: "three numbers: what, from, to"}
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
    """Return a statistic over responses or splits.

    Raises:
        NoValue: It is wrong, which was reported.
    """
    source = _find_source(body, over.over)
    if source is None:
        _refuse_source(body, name, over.over)
    if source == "ref" and "y" not in body.env.responses:
        fail(
            body,
            "E0301",
            "a selection knows no reference model",
            over.over,
            "run over `group`, the pool's responses",
        )
    if source == "splits" and over.var.name == body.split_name:
        fail(
            body,
            "E0208",
            f"`{over.var.name}` is the split at hand",
            over,
            "run over others by another name: `for M in splits`",
        )
    if source == "splits" and not body.is_measure:
        check_splits(body, over.over)
    inner, variable = _enter_statistic(body, over, source)
    value, where, empties = _type_inside(body, inner, name, over, expr.args[1:])
    earlier = source == "history"
    if (earlier or over.condition is not None) and not empties and name not in ("sum", "count"):
        otherwise = f"empty: {write_amount(1, value.unit)}"
        body.ctx.fail(
            "E0306",
            f"`{name}` may have nothing to run over: "
            + ("at first no response is earlier" if earlier else "perhaps no response meets the condition"),
            over.span if over.condition is None else over.condition.span,
            "may leave nothing",
            help=f"say what it is then: `{name}(… if …, {otherwise})`",
            edits=(_append_argument(expr, f", {otherwise}"),),
        )
    span, empty = empties[-1] if empties else (over.span, None)
    compared = empty if name != "count" else None
    if compared is not None:
        check_unit(body, compared, value, span, over.expr.span, "`empty`")
    data = Aggregate(
        fn=name,
        var=variable,
        over=source,
        value=value.data,
        where=where.data if where is not None else None,
        empty=empty.data if empty is not None else None,
    )
    low, high = _bound_statistic(
        name, value, where is not None or earlier, body.limits.group if source == "group" else INF
    )
    if empty is not None:
        low, high = min(low, empty.low), max(high, empty.high)
    return TypedExpr(data, PLAIN if name == "count" else value.unit, low, high)


def _type_inside(
    body: FormulaScope, inner: FormulaScope, name: str, over: tree.Comprehension, args: Sequence[tree.Arg]
) -> tuple[TypedExpr, TypedExpr | None, list[tuple[Span, TypedExpr]]]:
    """Return the value that a statistic is over, its condition, and its values of `empty` with their spans.

    Raises:
        NoValue: The value or the condition is wrong, which was reported.
    """
    # What is counted does not matter: `count(z for z in group if correct(z))`.
    is_count = name == "count" and isinstance(over.expr, tree.Name) and over.expr.name == over.var.name
    value = make_constant(1.0, PLAIN) if is_count else attempt(partial(type_expression, inner, over.expr))
    where = attempt(partial(type_condition, inner, over.condition)) if over.condition is not None else None
    empties = _type_empty(body, args, name)
    if value is None or (over.condition is not None and where is None):
        raise NoValue
    return value, where, empties


def _append_argument(call: tree.Call, text: str) -> Edit:
    """Return the edit that appends an argument to a call."""
    span = call.span
    return Edit(
        span._replace(line=span.end_line, column=span.end_column - 1, end_column=span.end_column - 1), text
    )


OVER_STEPS = "steps(20 steps)"


def _type_history(body: FormulaScope, expr: tree.Call, over: tree.Comprehension, name: str) -> TypedExpr:
    """Return a statistic that is equal for all responses: over the batch, other steps, the monitor set or an arm."""
    _refuse_history(body, over.over)
    whose, window = _read_arm(body, over.over, name), 0
    if body.track is None:
        # A variable here has the name of one around it, of which facts may be known.
        body = replace(body, env=body.env.before_responses(), track=BATCH, facts={})
        whose = "batch"
    if whose is None:
        window = _read_window(body, over.over)
        whose = "steps" if window else "monitor"
    env = replace(body.env, responses={over.var.name: "z"})
    inner = replace(body, env=env, track_response="z")
    shares = [arg for arg in expr.args[1:] if arg.name is not None and arg.name.name == "at"]
    rest = [arg for arg in expr.args[1:] if arg not in shares]
    share = attempt(partial(_type_share, body, expr, name, shares))
    value, where, empties = _type_inside(body, inner, name, over, rest)
    if name == "quantile" and share is None:
        raise NoValue
    otherwise = f"empty: {write_amount(1, value.unit)}"
    if not empties and name not in ("sum", "count") and (window or over.condition is not None):
        body.ctx.fail(
            "E0306",
            f"`{name}` may have nothing to run over: "
            + (
                "before the first step there are no responses"
                if window
                else "perhaps none meets the condition"
            ),
            over.span,
            "may be nothing",
            help=f"say what it is then: `{name}(…, {otherwise})`",
            edits=(_append_argument(expr, f", {otherwise}"),),
        )
    span, empty = empties[-1] if empties else (over.span, None)
    if empty is not None and name != "count":
        check_unit(body, empty, value, span, over.expr.span, "`empty`")
    if body.is_measure and any(
        isinstance(node, Variable) and node.name.startswith("let")
        for typed in (value, where)
        for node in (walk(typed.data) if typed is not None else ())
    ):
        hint = "let each mean be of responses alone, and combine the means outside of them"
        fail(body, "E0301", "a mean of a measure rests on another mean", over, hint)
    data = StepStatistic(
        fn=name,  # type: ignore[arg-type]
        var="z",
        over=whose,
        window=window or 1,
        value=value.data,
        at=share.data if share is not None else None,
        where=where.data if where is not None else None,
        empty=empty.data if empty is not None else None,
    )
    low, high = _bound_statistic(name, value, True, INF)
    if empty is not None:
        low, high = min(low, empty.low), max(high, empty.high)
    return TypedExpr(data, PLAIN if name == "count" else value.unit, low, high)


def _read_arm(
    body: FormulaScope, over: tree.Expr, name: str
) -> Literal["arm", "base", "steps", "monitor", "batch"] | None:
    """Return whose responses a statistic of a measure runs over; None in a track.

    Raises:
        NoValue: It runs over something else, which was reported.
    """
    if not body.is_measure:
        return None
    if name != "mean":
        hint = f"take a mean; inside it `{name}(… for w in group)` runs over the responses to the question of `z`"
        fail(body, "E0301", f"a measure is made of means over responses, and this is a `{name}`", over, hint)
    match over:
        case tree.Name("arm"):
            return "arm"
        case tree.Name("base"):
            return "base"
    hint = "write `for z in arm`, or `for z in base`"
    fail(body, "E0301", "a measure runs over an arm's responses, or over the baseline's", over, hint)


def _read_window(body: FormulaScope, over: tree.Expr) -> int:
    """Return over how many steps a statistic of a track runs, and 0 for the monitor set.

    Raises:
        NoValue: It runs over something else, which was reported.
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
        "a track runs over the responses of steps before, or of the monitor set",
        over,
        f"write `for z in {OVER_STEPS}`, or `for z in monitor`",
    )
    raise NoValue


def _type_share(body: FormulaScope, expr: tree.Call, name: str, shares: list[tree.Arg]) -> TypedExpr | None:
    """Return the share of a quantile, or None for another statistic.

    Raises:
        NoValue: The share is missing or wrong, which was reported.
    """
    if name != "quantile":
        for arg in shares:
            fail(body, "E0310", f"`{name}` takes no share", arg, "take `at` out, or write `quantile(…)`")
        return None
    example = f"quantile(len(z) for z in {OVER_STEPS}, at: 50%, empty: 1K tokens)"
    if len(shares) != 1 or isinstance(shares[0].value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", "`quantile` takes the share that it is at", expr, f"write `{example}`")
    value = type_expression(body, shares[0].value)
    if value.unit != PLAIN or value.high <= 0 or value.low > 1:
        fail(body, "E0301", "a quantile is at a share above 0 and up to 1", shares[0], f"write `{example}`")
    return value


def _find_source(body: FormulaScope, over: tree.Expr) -> Source | None:
    """Return the source that a statistic runs over."""
    match over:
        case tree.Name("group"):
            return "group"
        case tree.Name("ref") if body.track is None:
            return "ref"
        case tree.Call(function=tree.Name("history"), args=(tree.Arg(name=None, value=tree.Name("x")),)) if (
            body.track is None and not body.is_selection
        ):
            return "history"
        case tree.Name("grid" | "splits") if body.is_measure:
            return "splits"
    if body.track is not None or body.is_selection:
        return None
    return "splits" if over == tree.Name("splits", over.span) or are_splits(body, over) else None


def _refuse_history(body: FormulaScope, expr: tree.Expr) -> None:
    """Report E0301 for earlier responses to a question in a body that has none, or under a wrong name.

    Raises:
        NoValue: It was reported.
    """
    function = expr.function if isinstance(expr, tree.Call) else expr
    if function != tree.Name("history", function.span):
        return
    message, hint = (
        f"`{HISTORY}` is all responses to the question in steps before",
        f"write `for z in {HISTORY}`",
    )
    if body.is_measure or body.is_selection:
        message, hint = (
            f"{_name_body(body)} has no steps before",
            "use it in a reward, where a training remembers",
        )
    elif body.track is not None:
        hint = f"let a reward run over it; {_name_body(body)} is the same for all questions"
    fail(body, "E0301", message, expr, hint)


def _refuse_source(body: FormulaScope, name: str, expr: tree.Expr) -> NoReturn:
    """Report E0301: a statistic over neither responses nor splits.

    Raises:
        NoValue: Always.
    """
    _refuse_history(body, expr)
    hint = "`group` is the question's responses, `batch` the step's, `ref` the reference model's"
    if body.track is not None:
        grid = ", or over `grid`, the budgets" if body.is_measure else ""
        message = f"`{name}` runs over `group` here, the responses to the question of the one at hand{grid}"
        fail(body, "E0301", message, expr, f"{_name_body(body)}'s own statistic is the outermost one")
    function = expr.function if isinstance(expr, tree.Call) else expr
    if isinstance(function, tree.Name) and function.name in TRACK_WORDS:
        fail(
            body,
            "E0301",
            "only a track knows the responses of other steps, or of the monitor set",
            expr,
            f"name the number: `track usual = {name}(… for z in …)`, and read `usual`",
        )
    if body.is_selection:
        hint = "`group` is the question's responses in the pool"
    elif body.splits.over is not None:
        hint += ", `splits` the places of this reward: `sum(correct(y[:M]) for M in splits if M < len(y))`"
    forms = {"group": "group", BATCH: BATCH, "history": HISTORY, "truth": "truth(y)", "answer": "answer(y)"}
    if isinstance(function, tree.Name) and (nearest_name := nearest(function.name, forms)) is not None:
        hint = f"write `… in {forms[nearest_name]}`"
    fail(body, "E0301", f"`{name}` runs over `group` or `ref`", expr, hint)


def _enter_statistic(
    body: FormulaScope, over: tree.Comprehension, source: Source
) -> tuple[FormulaScope, str]:
    """Return the inside of a statistic, whose variable is a response or a split, and the variable's new name."""
    name = over.var.name
    if source != "splits":
        body.uses.add(source)
        # Inside a function a parameter and the variable that it stands for are one response.
        variable = f"z{len({*body.env.responses.values()} - {'y'}) or ''}"
        return body.within(body.env.with_response(name, variable, source)), variable
    body.ctx.charge(over.span, NAME_STEPS * body.env.size)
    variable = name_split_variable(body)
    return body.within(body.env.with_split_variable(name, make_split_variable(body, variable))), variable


def _type_empty(body: FormulaScope, args: Sequence[tree.Arg], name: str) -> list[tuple[Span, TypedExpr]]:
    """Return the values of `empty`, with their spans.

    Raises:
        NoValue: An argument is wrong, which was reported.
    """
    typed = []
    for arg in args:
        if arg.name is not None and arg.name.name == "under":
            why = "`under` names the model that looks at a token"
            fail(body, "E0310", why, arg, "write it there: `entropy(t, under: teacher)`")
        if (
            arg.name is None
            or arg.name.name != "empty"
            or isinstance(arg.value, (tree.Binding, tree.Comprehension))
        ):
            fail(
                body,
                "E0310",
                f"`{name}` takes one thing more: what it is when nothing is left",
                arg,
                "write `empty: …`",
            )
        typed.append((arg.value.span, type_expression(body, arg.value)))
    return typed


def _bound_statistic(name: str, value: TypedExpr, filtered: bool, members: float) -> tuple[float, float]:
    """Return the range of a statistic; `members` bounds the responses of `count`."""
    if name == "count":
        return (0.0 if filtered else 1.0), members
    if name == "std":
        spread = (value.high - value.low) / 2 if math.isfinite(value.high - value.low) else INF
        return 0.0, spread
    if name == "sum":
        low = (0.0 if filtered else value.low) if value.low >= 0 else -INF
        return low, (0.0 if value.high <= 0 else INF)
    return value.low, value.high
