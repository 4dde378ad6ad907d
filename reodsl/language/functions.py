"""Compute the functions of the language: budgets, lists of tokens and words, and how a stage ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reodsl.diagnostics.model import Label, Problem, Span
from reodsl.ir.setting import (
    CHECKPOINT,
    COUNT,
    SPLITS,
    STEPS,
    TOKENS,
    TOKENS0,
    AnyOf,
    Kind,
    ListOf,
    OfKind,
    OneOf,
    Setting,
    Text,
)
from reodsl.language.bounds import MOST_CANDIDATES
from reodsl.language.context import Context, NoValue
from reodsl.language.resolve import name_model
from reodsl.language.units import TOKENS as IN_TOKENS
from reodsl.language.units import Quantity
from reodsl.language.values import (
    DeclaredFrontier,
    Items,
    Record,
    Slot,
    Value,
    WrittenBudgets,
    describe,
    list_records,
    plain,
)
from reodsl.numbers.budgets import BudgetError, Schedule, exp, explicit, halve, linear
from reodsl.numbers.curves import Curve, Curves, ReferenceFrontier
from reodsl.numbers.greedy import greedy, picks
from reodsl.syntax import tree

Arguments = Mapping[str, Slot]
MOST_ITEMS = 4096


def _signature(name: str, doc: str, fields: dict[str, Setting], positional: tuple[str, ...] = ()) -> Kind:
    """Return the parameters of a function of the language, as a kind with one setting for each parameter."""
    return Kind(name, doc, fields, form="call", positional=positional)


def _required(type_: Any, doc: str, example: str) -> Setting:
    """Return a required parameter."""
    return Setting(type_, doc, required=True, example=example)


SIGNATURES: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _signature(
            "exp",
            "Exponentially spaced budgets: L_i = from (to/from)^((i-1)/n).",
            {
                "from": _required(TOKENS, "the smallest budget", "from: 1K tokens"),
                "to": _required(TOKENS, "the longest response", "to: 32K tokens"),
                "n": _required(COUNT, "budgets below it", "n: 5"),
            },
        ),
        _signature(
            "linear",
            "Evenly spaced budgets: L_i = i to/(n+1).",
            {
                "to": _required(TOKENS, "the longest response", "to: 32K tokens"),
                "n": _required(COUNT, "budgets below it", "n: 5"),
            },
        ),
        _signature(
            "explicit",
            "Budgets as given, and the longest response.",
            {
                "budgets": _required(ListOf(TOKENS), "increasing", "[1K tokens, 4K tokens]"),
                "to": _required(TOKENS, "the longest response", "to: 32K tokens"),
            },
            ("budgets",),
        ),
        _signature(
            "greedy",
            "Oracle budgets: one at a time, each the one that integrates the frontier best.",
            {
                "frontier": _required(OfKind(("frontier",)), "what to integrate", "greedy(edge, n: 5)"),
                "n": _required(COUNT, "how many", "n: 5"),
                "to": Setting(TOKENS, "the longest response; left out, the longest of the rollout"),
                "step": Setting(TOKENS, "the candidates are its multiples", default=1),
            },
            ("frontier",),
        ),
        _signature(
            "question_min",
            "A budget for each question: the smallest at which other arms, as they trained, were right as often as in full.",
            {
                "rollouts": _required(
                    ListOf(OfKind(("arm", "experiment"), "an arm")),
                    "whose training tells, by its own stages of RL; what none of them met is seen at its longest response",
                    "rollouts: [shrink]",
                ),
                "to": Setting(TOKENS, "the longest response; left out, the longest of the rollout"),
                "unsolved": Setting(
                    OneOf(("formula", "l_max", "drop")),
                    "questions that nobody solves: what the formula gives (1), the longest response, or left out",
                    default="formula",
                ),
            },
        ),
        _signature(
            "random_exits",
            "Splits each response at places of its own, drawn evenly from all before its end, and at its end.",
            {
                "n": _required(COUNT, "how many, besides its end", "random_exits(n: 8)"),
                "to": Setting(TOKENS, "the longest response; left out, the longest of the rollout"),
            },
        ),
        _signature(
            "reached",
            "Splits each response at those budgets that lie before its end, and at its end.",
            {
                "at": _required(
                    AnyOf((SPLITS, ListOf(TOKENS, 2))), "the budgets", "reached([1K tokens, 4K tokens])"
                )
            },
            ("at",),
        ),
        _signature(
            "halve",
            "`from`, then half of it each time, down to `to`.",
            {
                "from": _required(TOKENS, "the first", "from: 16K tokens"),
                "to": _required(TOKENS, "the last", "to: 512 tokens"),
            },
        ),
        _signature(
            "every",
            "Multiples of a step: from, from + step, … up to `to`.",
            {
                "step": _required(TOKENS, "the distance", "every(64 tokens, to: 1K tokens)"),
                "from": Setting(TOKENS0, "the first", default=0),
                "to": _required(TOKENS0, "the last, at most", "to: 1K tokens"),
            },
            ("step",),
        ),
        _signature(
            "shares",
            "Counts in a text, each as a share of how many there are.",
            {
                "counts": _required(Text(), "whole numbers", 'shares("21 13 40", of: 960)'),
                "of": _required(COUNT, "how many there are", "of: 960"),
            },
            ("counts",),
        ),
        _signature(
            "words",
            "The words of a text, as a list.",
            {"text": _required(Text(), "words", 'words("a b c")')},
            ("text",),
        ),
        _signature(
            "checkpoint",
            "The weights at the end of an experiment or of one of its stages, or a model as it comes.",
            {
                "of": _required(
                    OfKind(
                        (*CHECKPOINT.kinds, "stage_of", "arm"), "a model, an experiment, or one of its stages"
                    ),
                    "whose",
                    "checkpoint(vanilla.stages[4K tokens])",
                )
            },
            ("of",),
        ),
    )
}
ENDS = _signature(
    "steps",
    "Ends a stage after some steps.",
    {"count": _required(STEPS, "how many", "steps(400)")},
    ("count",),
)
REASONING_STEPS = _signature(
    "steps",
    "Splits a response at its reasoning steps.",
    {
        "separator": _required(Text(nonempty=False), "the text between two chunks", r'separator: "\n\n"'),
        "keywords": _required(ListOf(Text()), "what opens a step", 'keywords: ["Wait", "Alternatively"]'),
        "min_chunks": Setting(COUNT, "chunks before a new step may open", default=1),
        "to": Setting(TOKENS, "the longest response; left out, the longest of the rollout"),
    },
)


def call_function(ctx: Context, name: str, args: Arguments, call: tree.Call) -> Value:
    """Return the value of a call of a function of the language, such as `exp(…)` or `words(…)`.

    Budgets that depend on a run, as of `question_min(…)`, are returned as a record of the arguments. Records
    keep the call in `computed_by`; budgets of `reached(…)` keep the call of the budgets inside it.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        name: The function's name.
        args: The arguments, already converted to the types of the signature.
        call: The call in the syntax tree.

    Raises:
        NoValue: The arguments are wrong, for example budgets that do not increase; the error was reported.
    """
    try:
        if name in _SCHEDULES:
            schedule = _SCHEDULES[name](args)
            ctx.charge(call.span, len(schedule.budgets))
            value = Value(WrittenBudgets("budgets", args, call.span, schedule=schedule), call.span)
        elif name in _UNKNOWN_YET:
            value = Value(Record(_UNKNOWN_YET[name], args, call.span), call.span)
        else:
            value = _IMPLEMENTATIONS[name](ctx, args, call)
    except BudgetError as caught:
        # Label the lines that set the names in the arguments.
        labels = [Label(span, text) for slot in args.values() for span, text in slot.value.defined_at]
        ctx.refuse(caught.at(call.span, labels=labels))
    if not isinstance(value.data, Record) or name == "reached":
        return value
    return replace(value, data=replace(value.data, computed_by=call))


def _take_number(args: Arguments, name: str) -> int:
    """Return a numeric argument as an int, in the base unit, such as tokens."""
    return int(plain(args[name].value))


_SCHEDULES: dict[str, Callable[[Arguments], Schedule]] = {
    "exp": lambda args: exp(*(_take_number(args, name) for name in ("from", "to", "n"))),
    "linear": lambda args: linear(_take_number(args, "to"), _take_number(args, "n")),
    "explicit": lambda args: explicit(
        [int(number) for number in plain(args["budgets"].value)], _take_number(args, "to")
    ),
}
_UNKNOWN_YET = {"question_min": "question_budgets", "random_exits": "exits_split"}
SCHEDULES = (*_SCHEDULES, *_UNKNOWN_YET, "greedy", "reached")
"""The functions that make budgets."""
"""The kinds of the values of functions whose splits are only found while a study runs."""


def make_budgets(ctx: Context, value: Value, items: Sequence[Value]) -> Value:
    """Return budgets from a list of numbers of tokens: the last number is the longest response, not a budget.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        value: The value of the list, for its span.
        items: The numbers of tokens, at least two.

    Raises:
        NoValue: The budgets do not increase; the error was reported.
    """
    numbers = [int(plain(item)) for item in items]
    try:
        schedule = explicit(numbers[:-1], numbers[-1])
    except BudgetError as caught:
        ctx.refuse(caught.at(value.span))
    last = Slot(items[-1], items[-1].span)
    return Value(WrittenBudgets("budgets", {"to": last}, value.span, schedule=schedule), value.span)


def _greedy(ctx: Context, args: Arguments, call: tree.Call) -> Value:
    """Return the value of `greedy(frontier, n, to, step)`: the budgets that best integrate a frontier.

    On a published frontier the budgets are computed here, with the shortest curve's end as the default of
    `to`. On an envelope of arms they can only be computed during the run; the value is then a record of the
    arguments (`oracle_budgets`).

    Raises:
        NoValue: The frontier is wrong, or the search would take too long; the error was reported.
        BudgetError: The numbers of the call give no budgets; `call_function` reports this.
    """
    frontier = args["frontier"].value.data
    if not isinstance(frontier, DeclaredFrontier) or frontier.envelope is not None:
        return Value(Record("oracle_budgets", args, call.span), call.span)
    to, n, step = args.get("to"), _take_number(args, "n"), _take_number(args, "step")
    try:
        curves = ctx.memoize("curves", frontier, lambda: read_curves(frontier))
        l_max = (
            _take_number(args, "to")
            if to is not None
            else min(curve.budgets[-1] for curve in curves.values())
        )
        ctx.charge(call.span, n)
        key = f"greedy {l_max} {n} {step}"
        if (key, id(frontier)) not in ctx.memos:
            # The search reads the frontier at every budget, and tries every candidate for every pick.
            ctx.modules.work_limit.candidates += 6 * l_max + n * (l_max // step)
            if ctx.modules.work_limit.candidates > MOST_CANDIDATES:
                ctx.fail(
                    "E0216",
                    f"the greedy schedules of a spec try at most {MOST_CANDIDATES:,} budgets, "
                    "and with this one they try more",
                    call.span,
                    "too large",
                    help="take fewer budgets, or a larger `step`",
                )
        schedule = ctx.memoize(key, frontier, lambda: greedy(curves, l_max, n, step))
    except BudgetError:
        raise
    except Problem as caught:
        for finding in caught.diagnostics:
            ctx.error(finding.code, finding.message, call.span, help=finding.help)
        raise NoValue from None
    if to is None:
        args = {**args, "to": Slot(Value(Quantity(l_max, IN_TOKENS), call.span), None)}
    return Value(WrittenBudgets("budgets", args, call.span, schedule=schedule), call.span)


def list_smaller(record: WrittenBudgets) -> tuple[tuple[int, ...], ...]:
    """Return the budgets, in tokens, that a schedule has for n = 1, 2, … up to its own number of budgets.

    A list of budgets has no other numbers of budgets, so the result then has only the list itself.

    Args:
        record: The value of `greedy(…)`, `exp(…)` or `linear(…)`, or of a list of budgets.
    """
    count = len(record.schedule.budgets)
    frontier = record.sub("frontier")
    if isinstance(frontier, DeclaredFrontier):
        step = _take_number(record.fields, "step")
        budgets = [pick.budget for pick in picks(read_curves(frontier), record.schedule.l_max, count, step)]
        return tuple(tuple(sorted(budgets[:n])) for n in range(1, count + 1))
    function = getattr(record.computed_by and record.computed_by.function, "name", None)
    if function not in ("exp", "linear"):
        return (record.schedule.budgets,)
    counts = (Slot(Value(Quantity(n), record.span), None) for n in range(1, count + 1))
    return tuple(_SCHEDULES[function]({**record.fields, "n": count_slot}).budgets for count_slot in counts)


def _reached(ctx: Context, args: Arguments, call: tree.Call) -> Value:
    """Return the value of `reached(at)`: a response is divided at the budgets before its end, and at its end.

    The value is the record of the budgets with the flag `reached`.

    Raises:
        NoValue: The budgets are wrong, or they divide responses at their end already (E0301); the error was
            reported.
    """
    budgets = args["at"].value
    if isinstance(budgets.data, Items):
        budgets = make_budgets(ctx, budgets, budgets.data.values)
    split = budgets.data
    if not isinstance(split, Record):
        raise NoValue
    if split.kind in ("steps_split", "exits_split"):
        ctx.fail(
            "E0301",
            f"{describe(budgets)} splits responses at their end already",
            budgets.span,
            help="leave `reached` out",
        )
    flag = Slot(Value(True, call.span), None)
    return Value(
        replace(split, fields={**split.fields, "reached": flag}, span=call.span),
        call.span,
        budgets.defined_at,
    )


def _every(ctx: Context, args: Arguments, call: tree.Call) -> Value:
    """Return the value of `every(step, from, to)`: the list `from`, `from + step`, … up to `to`, in tokens.

    Raises:
        NoValue: `from` is larger than `to`, or the list is longer than `MOST_ITEMS`; E0303 was reported.
    """
    step, first, last = _take_number(args, "step"), _take_number(args, "from"), _take_number(args, "to")
    if first > last:
        ctx.fail("E0303", "a list must not end before it begins", call.span, help="let `to` be past `from`")
    if (last - first) // step >= MOST_ITEMS:
        ctx.fail("E0303", f"that is more than {MOST_ITEMS} budgets", call.span, help="take a larger step")
    return make_tokens(tuple(range(first, last + 1, step)), call.span)


def make_tokens(numbers: tuple[int, ...], span: Span) -> Value:
    """Return numbers of tokens as the value of a list."""
    return Value(Items(tuple(Value(Quantity(number, IN_TOKENS), span) for number in numbers)), span)


def _shares(ctx: Context, args: Arguments, call: tree.Call) -> Value:
    """Return the value of `shares("21 13 40", of: 960)`: each count of the text divided by `of`.

    Raises:
        NoValue: A word is not a whole number from 0 to `of`; E0303 was reported.
    """
    counts, total = plain(args["counts"].value).split(), _take_number(args, "of")
    valid = (word.isascii() and word.isdigit() and len(word) < 10 and int(word) <= total for word in counts)
    wrong = next((word for word, is_valid in zip(counts, valid, strict=True) if not is_valid), None)
    if wrong is not None:
        span = args["counts"].value.span
        ctx.fail(
            "E0303", f"`{wrong}` is not a count of {total}", span, help=f"write whole numbers up to {total}"
        )
    shares = tuple(Value(Quantity(int(word) / total), call.span) for word in counts)
    return Value(Items(shares), call.span)


def _words(ctx: Context, args: Arguments, call: tree.Call) -> Value:
    """Return the value of `words("a b c")`: the words of the text as a list."""
    words = plain(args["text"].value).split()
    return Value(Items(tuple(Value(word, call.span) for word in words)), call.span)


_IMPLEMENTATIONS: dict[str, Callable[[Context, Arguments, tree.Call], Value]] = {
    "greedy": _greedy,
    "reached": _reached,
    "halve": lambda ctx, args, call: make_tokens(
        halve(_take_number(args, "from"), _take_number(args, "to")), call.span
    ),
    "every": _every,
    "shares": _shares,
    "words": _words,
}


def read_curves(frontier: DeclaredFrontier) -> Curves:
    """Return the curves of a published frontier by benchmark: accuracy by budget in tokens.

    Raises:
        Problem: The numbers are not valid curves.
    """
    if frontier.curves is not None:
        return frontier.curves
    budgets = tuple(frontier.data("budgets"))
    return {curve.name: Curve(budgets, tuple(map(float, curve.data("accuracy")))) for curve in frontier.parts}


def read_reference(frontier: DeclaredFrontier) -> ReferenceFrontier:
    """Return a published frontier with the names of its models.

    Raises:
        Problem: The numbers are not valid curves.
    """
    return ReferenceFrontier(read_curves(frontier), tuple(map(name_model, list_records(frontier, "base"))))
