"""Rewards as text: from the intermediate representation back to expressions of the language, with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reodsl.ir.expression import (
    Aggregate,
    Bare,
    Binary,
    Call,
    Correct,
    Expression,
    Forced,
    Given,
    If,
    Length,
    Name,
    Number,
    Previous,
    Unary,
    Weight,
)
from reodsl.ir.reward import Reward
from reodsl.ir.reward_units import Place, units_of

# How tightly each form binds, loosest first, as the grammar has it.
_IF, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(10)
_LEVELS: Mapping[str, tuple[int, int, int]] = {
    "or": (_OR, _OR, _AND),
    "and": (_AND, _AND, _NOT),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), (_COMPARE, _SUM, _SUM)),
    **dict.fromkeys("+-", (_SUM, _SUM, _PRODUCT)),
    **dict.fromkeys("*/", (_PRODUCT, _PRODUCT, _UNARY)),
    "^": (_POWER, _ATOM, _UNARY),
}
"""Of each operator: its own level, and the least of its left and of its right side."""


def reward_lines(reward: Reward) -> list[str]:
    """The lines of a reward's body: its lets, then its value, its dense line without the split, or its parts."""
    found = _Printer(reward)
    lines = [
        f"let {each.name} = {found.text(each.value, ('let', index))}"
        for index, each in enumerate(reward.lets)
    ]
    if reward.outcome is not None:
        lines.append(found.text(reward.outcome, ("outcome",)))
    if reward.dense is not None:
        lines.append(found.text(reward.dense.value, ("dense",)))
    terms = []
    for index, part in enumerate(reward.parts):
        weight = "" if part.weight == 1 else f"{number_text(part.weight)} * "
        where = "" if part.on == "response" else f", on: {part.on}"
        terms.append(f"{weight}z({found.text(part.value, ('part', index))}{where})")
    return [*lines, " + ".join(terms)] if terms else lines


def number_text(value: float, tokens: bool = False) -> str:
    """A number as a spec writes it: `0.2`, `1e-6`, `16K tokens`."""
    if not tokens:
        whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if whole else repr(value).replace("e-0", "e-")
    if value.is_integer() and value and value % 1024 == 0 and abs(value) < 1024**2:
        return f"{int(value) // 1024}K tokens"
    return f"{number_text(value)} tokens"


class _Printer:
    def __init__(self, reward: Reward) -> None:
        self.units = units_of(reward)

    def text(self, value: Expression, place: Place, least: int = _IF) -> str:
        """The expression at `place`, in parentheses where it binds less tightly than `least`."""
        text, level = self._of(value, place)
        return text if level >= least else f"({text})"

    def _of(self, value: Expression, place: Place) -> tuple[str, int]:
        match value:
            case Number():
                return self._number(value.value, self.units.get(place, 0))
            case Name():
                return value.name, _ATOM
            case Length():
                return f"len({value.of})", _ATOM
            case Correct():
                return f"correct({value.of})", _ATOM
            case Forced():
                return f"correct(answer({value.of}[:{self.text(value.cut, (*place, 'cut'))}]))", _ATOM
            case Bare():
                return f"correct({value.of}[:{self.text(value.cut, (*place, 'cut'))}])", _ATOM
            case Given():
                return (f"mode({value.of})" if value.field == "mode" else f"x.{value.field}"), _ATOM
            case Weight():
                return f"{value.rule}(L)", _ATOM
            case Previous():
                return "before(L)", _ATOM
            case Unary(fn="not"):
                return f"not {self.text(value.value, (*place, 'value'), _NOT)}", _NOT
            case Unary():
                return f"-{self.text(value.value, (*place, 'value'), _UNARY)}", _UNARY
            case Binary():
                own, left, right = _LEVELS[value.fn]
                first = self.text(value.left, (*place, "left"), left)
                second = self.text(value.right, (*place, "right"), right)
                return f"{first} {value.fn} {second}", own
            case Call():
                return f"{value.fn}({self._list(value.args, place)})", _ATOM
            case If():
                then = self.text(value.then, (*place, "then"), _OR)
                test = self.text(value.test, (*place, "test"), _OR)
                return f"{then} if {test} else {self.text(value.other, (*place, 'other'))}", _IF
            case Aggregate():
                return self._aggregate(value, place), _ATOM

    def _list(self, values: Sequence[Expression], place: Place) -> str:
        return ", ".join(self.text(each, (*place, index)) for index, each in enumerate(values))

    def _number(self, value: float, unit: int) -> tuple[str, int]:
        """A constant in tokens to a power; the language reads a product of constants as one."""
        if unit in (0, 1):
            return number_text(value, tokens=unit == 1), _UNARY if value < 0 else _ATOM
        more = " * 1 tokens" if unit > 0 else " / 1 tokens"
        return number_text(value) + more * abs(unit), _PRODUCT

    def _aggregate(self, value: Aggregate, place: Place) -> str:
        counted = value.fn == "count" and isinstance(value.value, Number) and value.value.value == 1
        inner = value.var if counted else self.text(value.value, (*place, "value"), _OR)
        text = f"{inner} for {value.var} in {value.over}"
        if value.where is not None:
            text += f" if {self.text(value.where, (*place, 'where'), _OR)}"
        if value.empty is not None:
            text += f", empty: {self.text(value.empty, (*place, 'empty'))}"
        return f"{value.fn}({text})"
