"""Rewards and settings as text: from the intermediate representation back to the language, with units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from reodsl.diagnostics.model import quote
from reodsl.ir.expression import (
    METRIC,
    READINGS,
    TRACK,
    Aggregate,
    AnswerRun,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Expression,
    ForcedAnswer,
    FunctionCall,
    If,
    Infix,
    Length,
    Negation,
    PriorSplit,
    PythonTerm,
    StepStatistic,
    TextNumber,
    TokenRun,
    Variable,
    Weight,
    WeightAt,
)
from reodsl.ir.reward import NamedValue, Reward, Track

# The precedence of each form of expression in the grammar, from the loosest to the tightest.
_IF, _OR, _AND, _NOT, _COMPARE, _SUM, PRODUCT, _UNARY, _POWER, _ATOM = range(10)
_LEVELS: Mapping[str, tuple[int, int, int]] = {
    "or": (_OR, _OR, _AND),
    "and": (_AND, _AND, _NOT),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), (_COMPARE, _SUM, _SUM)),
    **dict.fromkeys("+-", (_SUM, _SUM, PRODUCT)),
    **dict.fromkeys("*/", (PRODUCT, PRODUCT, _UNARY)),
    "^": (_POWER, _ATOM, _UNARY),
}
"""The precedence of each operator, and the least precedence of its left and right operands without parentheses."""


_LET = re.compile(r"\blet\d+\b(?![.:])")
"""The name of a `let` in the representation, such as `let1`."""
_VARIABLE = re.compile(r"[zM]\d*")
"""Names of responses (`z1`) and splits (`M1`) in the representation."""


def let_names(lets: Iterable[NamedValue]) -> dict[str, str]:
    """Return the name of each `let` in the spec, by its name in the representation.

    A `let` whose name could be mistaken for a response or a split, such as `z1`, is left out.
    """
    return {let.name: let.written for let in lets if let.written and not _VARIABLE.fullmatch(let.written)}


def as_written(text: str, names: Mapping[str, str]) -> str:
    """Return the text of a formula with the names that `let`s have in the spec.

    Args:
        text: A text with names of the representation, such as `let1`.
        names: The names in the spec, as `let_names` returns them.
    """
    return _LET.sub(lambda name: names.get(name[0], name[0]), text)


def reward_lines(reward: Reward) -> list[str]:
    """Return the lines of a reward's body in the language.

    Tracks, lets and metrics come first, then the value: one expression, the expression of a `dense` line, or the
    sum of parts.
    """
    lines = [f"track {item.name} = {track_text(item)}" for item in reward.tracks]
    lines += [f"let {item.name} = {expression_text(item.value)}" for item in reward.lets]
    lines += [f"metric {item.name} = {expression_text(item.value)}" for item in reward.metrics]
    if reward.outcome is not None:
        lines.append(expression_text(reward.outcome))
    if reward.dense is not None:
        lines.append(expression_text(reward.dense.value))
    sums = []
    for term in reward.parts:
        weight = "" if term.weight == 1 else f"{weight_text(term.weight)} * "
        earner = "" if term.on == "response" else f", on: {term.on}"
        sums.append(f"{weight}z({expression_text(term.value)}{earner})")
    return [*lines, " + ".join(sums)] if sums else lines


def weight_text(weight: float | Expression) -> str:
    """Return the weight of a reward's part as a spec writes it before `* z(…)`."""
    return number_text(weight) if isinstance(weight, float) else expression_text(weight, PRODUCT)


def track_text(track: Track) -> str:
    """Return the value of a track as a spec writes it, with its `start` if it has any."""
    text = expression_text(track.value)
    return (
        text if track.start is None else f"{text.removesuffix(')')}, start: {expression_text(track.start)})"
    )


def number_text(value: float, tokens: bool = False) -> str:
    """Return a number as a spec writes it: `0.2`, `1e-6`, `16K tokens`.

    Args:
        value: The number.
        tokens: Whether the number is a number of tokens, and has this unit.
    """
    if not tokens:
        integer = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if integer else repr(value).replace("e-0", "e-")
    if value.is_integer() and value and value % 1024 == 0 and abs(value) < 1024**2:
        return f"{int(value) // 1024}K tokens"
    return f"{number_text(value)} tokens"


def expression_text(value: Expression, least: int = _IF) -> str:
    """Return an expression as a spec writes it.

    Args:
        value: The expression.
        least: The precedence that the text needs where it is used, such as that of `*`. If the outermost operator
            of the expression has a lower precedence, the text is in parentheses. By default it never is.
    """
    text, level = _write_expression(value)
    return text if level >= least else f"({text})"


def _write_expression(value: Expression) -> tuple[str, int]:
    """Return an expression as a spec writes it, with its precedence.

    Returns:
        (the text, the precedence of its outermost operator). A caller puts the text in parentheses if it needs a
        higher precedence; `_ATOM`, for a name or a call, is the highest.
    """
    match value:
        case Constant():
            return _write_constant(value)
        case Variable():
            return value.name.removeprefix(TRACK).removeprefix(METRIC), _ATOM
        case Length():
            return f"len({value.of})", _ATOM
        case Correct():
            return f"correct({value.of})", _ATOM
        case ForcedAnswer():
            return f"correct(answer({value.of}[:{expression_text(value.cut)}]))", _ATOM
        case CutAnswer():
            return f"correct({value.of}[:{expression_text(value.cut)}])", _ATOM
        case TextNumber():
            return value.written(value.of), _ATOM
        case Attribute():
            name, _, count = value.field.partition("@")
            if name not in READINGS:
                return f"x.{name}", _ATOM
            return f"{name}({value.of}{f', {count}' if count else ''})", _ATOM
        case PythonTerm():
            units = {"batch": "", "seconds": " seconds", "memory": " GiB"}
            limits = [f"{name}: {limit:g}{units[name]}" for name, limit in value.limits.items()]
            return f"python({', '.join((quote(value.function), value.of, *limits))})", _ATOM
        case Weight():
            return f"{value.rule}(L)", _ATOM
        case WeightAt():
            return f"{value.rule}({value.of})", _ATOM
        case PriorSplit():
            return "before(L)", _ATOM
        case Negation(fn="not"):
            return f"not {expression_text(value.value, _NOT)}", _NOT
        case Negation():
            return f"-{expression_text(value.value, _UNARY)}", _UNARY
        case Infix():
            level, left, right = _LEVELS[value.fn]
            first, second = expression_text(value.left, left), expression_text(value.right, right)
            return f"{first} {value.fn} {second}", level
        case FunctionCall():
            return f"{value.fn}({', '.join(map(expression_text, value.args))})", _ATOM
        case If():
            then, test = expression_text(value.then, _OR), expression_text(value.test, _OR)
            return f"{then} if {test} else {expression_text(value.other)}", _IF
        case Aggregate():
            earlier = "history(x)" if value.last is None else f"history(x, last: {value.last})"
            return _write_statistic(value, earlier if value.over == "history" else value.over), _ATOM
        case TokenRun():
            tokens = value.of + ("" if value.cut is None else f"[:{expression_text(value.cut)}]")
            source = "truth" if value.truth else "answer" if isinstance(value, AnswerRun) else ""
            return _write_statistic(value, f"{source}({tokens})" if source else tokens), _ATOM
        case StepStatistic():
            steps = f"steps({value.window} step{'s' * (value.window != 1)})"
            return _write_statistic(value, steps if value.over == "steps" else value.over), _ATOM


def _write_constant(constant: Constant) -> tuple[str, int]:
    """Return (a constant as a spec writes it, the precedence of the text).

    A constant whose unit is another power of tokens is written as a product, such as `2 / 1 tokens`, which the
    language reads as a constant.
    """
    value, unit = constant.value, constant.unit
    if unit in (0, 1):
        return number_text(value, tokens=unit == 1), _UNARY if value < 0 else _ATOM
    factor = " * 1 tokens" if unit > 0 else " / 1 tokens"
    return number_text(value) + factor * abs(unit), PRODUCT


def _write_statistic(value: Aggregate | StepStatistic | TokenRun, over: str) -> str:
    """Return a statistic as a spec writes it: `mean(VALUE for VAR in OVER if CONDITION, empty: …)`.

    Args:
        value: The statistic.
        over: What it runs over, as a spec writes it.
    """
    counts_all = value.fn == "count" and isinstance(value.value, Constant) and value.value.value == 1
    var = "t" if isinstance(value, TokenRun) else value.var
    inner = var if counts_all else expression_text(value.value, _OR)
    text = f"{inner} for {var} in {over}"
    if value.where is not None:
        text += f" if {expression_text(value.where, _OR)}"
    if isinstance(value, StepStatistic) and value.at is not None:
        text += f", at: {expression_text(value.at)}"
    if value.empty is not None:
        text += f", empty: {expression_text(value.empty)}"
    return f"{value.fn}({text})"


ABSENT = "\0absent"
"""The value that stands for a missing setting in a comparison; no setting has this value."""
_TOKENS = frozenset({
    "max_tokens", "max_prompt", "context", "l_max", "reg_to", "to", "answer_tokens", "expected_length", "grid", "budgets",
})  # fmt: skip
_STEPS = frozenset({"steps", "warmup_steps", "save_every", "window"})
_UNITS = {
    **dict.fromkeys(("bandwidth", "interconnect", "network"), (1e9, "GB/s")),
    "flops": (1e12, "TFLOP/s"),
    "memory": (1, "GiB"),
}
"""The unit that people write a setting in, with its size in the unit of the spec."""
_LISTED = 8
"""The largest number of items that are shown of a list."""


def value_text(setting: str, value: Any) -> str:
    """Return the value of a setting as a person writes it: `32K tokens`, `400 GB/s`, `on`, `none`.

    Args:
        setting: The path of the setting, whose last name decides the unit.
        value: The value as JSON data, or `ABSENT`. A long list shows its first three items and its last item.
    """
    name = setting.rpartition(".")[2]
    if value == ABSENT:
        return "not there"
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float() if name in _TOKENS:
            return number_text(float(value), tokens=True)
        case int() if name in _STEPS:
            return f"{value} step{'' if value == 1 else 's'}"
        case int() | float() if name == "limit":
            return (
                f"{number_text(value / 1000)}K gpu_hours"
                if value >= 1000
                else f"{number_text(float(value))} gpu_hours"
            )
        case int() | float() if name in _UNITS:
            size, unit = _UNITS[name]
            return f"{value / size:,.6g} {unit}"
        case int():
            return str(value)
        case float():
            return number_text(value)
        case str():
            return value if value and value == value.strip() and value.isprintable() else quote(value)
        case list() | tuple():
            return _write_list(name, list(value))
        case Mapping():
            return str(value.get("kind") or value.get("op") or f"{len(value)} settings")
    return str(value)


def _write_list(name: str, value: list[Any]) -> str:
    """Return a list as `[1, 2] tokens`, for a setting with the name `name`.

    A list of more than `_LISTED` items is shortened to their number, the first three items and the last.
    """
    items = [value_text(name, item).removesuffix(" tokens") for item in value]
    if len(items) > _LISTED:
        items = [*items[:3], "…", items[-1]]
        return f"{len(value)}: {', '.join(items)}" + (" tokens" if name in _TOKENS else "")
    return f"[{', '.join(items)}]" + (" tokens" if name in _TOKENS else "")
