"""Units of a reward's constants: the representation keeps none, and every constant's follows from where it stands.

Each expression has a power of tokens. Sums and comparisons want equal powers, products add them, a reward is a
plain number: linear equations, solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from reodsl.ir.expression import (
    Aggregate,
    Bare,
    Binary,
    Call,
    Expression,
    Forced,
    Given,
    If,
    Length,
    Name,
    Number,
    Previous,
    Unary,
)
from reodsl.ir.reward import Reward

Place: TypeAlias = tuple[str | int, ...]
Power: TypeAlias = dict[Place, Fraction]
"""A sum of unknowns, by the place of a constant or let; the empty place stands for 1."""

_ONE: Power = {(): Fraction(1)}
_PLAIN: Power = {}
_KEEPS = frozenset({"abs", "min", "max", "clip"})


def units_of(reward: Reward) -> Mapping[Place, int]:
    """The power of tokens of every constant of a reward, by its place; those that nothing decides are plain."""
    found = _Equations()
    for index, each in enumerate(reward.lets):
        place: Place = ("let", index)
        found.equal(found.power(each.value, place), {place: Fraction(1)})
        found.names[each.name] = {place: Fraction(1)}
    if reward.outcome is not None:
        found.equal(found.power(reward.outcome, ("outcome",)), _PLAIN)
    if reward.dense is not None:
        found.names[reward.dense.var] = _ONE
        found.equal(found.power(reward.dense.value, ("dense",)), _PLAIN)
    for index, part in enumerate(reward.parts):
        found.equal(found.power(part.value, ("part", index)), _PLAIN)
    return found.solved()


class _Equations:
    def __init__(self) -> None:
        self.names: dict[str, Power] = {}
        self.zeros: list[Power] = []
        self.sizes: dict[Place, float] = {}

    def equal(self, one: Power, two: Power) -> None:
        """Note that two powers are the same."""
        self.zeros.append(_minus(one, two))

    def power(self, value: Expression, place: Place) -> Power:
        """The power of an expression, its inner equations noted."""
        match value:
            case Number():
                self.sizes[place] = abs(value.value)
                return {place: Fraction(1)}
            case Name():
                return self.names.get(value.name, _PLAIN)
            case Length() | Previous():
                return _ONE
            case Given():
                return _ONE if value.field.endswith("budget") else _PLAIN
            case Forced() | Bare():
                self.equal(self.power(value.cut, (*place, "cut")), _ONE)
                return _PLAIN
            case Unary():
                inner = self.power(value.value, (*place, "value"))
                return inner if value.fn == "neg" else _PLAIN
            case Binary():
                return self._binary(value, place)
            case Call():
                powers = [self.power(each, (*place, index)) for index, each in enumerate(value.args)]
                for each in powers:
                    self.equal(each, powers[0] if value.fn in _KEEPS else _PLAIN)
                return powers[0] if value.fn in _KEEPS else _PLAIN
            case If():
                self.equal(self.power(value.test, (*place, "test")), _PLAIN)
                then = self.power(value.then, (*place, "then"))
                self.equal(then, self.power(value.other, (*place, "other")))
                return then
            case Aggregate():
                return self._aggregate(value, place)
        return _PLAIN

    def _binary(self, value: Binary, place: Place) -> Power:
        left = self.power(value.left, (*place, "left"))
        right = self.power(value.right, (*place, "right"))
        if value.fn == "*":
            return _minus(left, _minus(_PLAIN, right))
        if value.fn == "/":
            return _minus(left, right)
        if value.fn in ("^", "and", "or"):
            self.equal(left, _PLAIN)
            self.equal(right, _PLAIN)
            return _PLAIN
        self.equal(left, right)
        return left if value.fn in ("+", "-") else _PLAIN

    def _aggregate(self, value: Aggregate, place: Place) -> Power:
        if value.over == "splits":
            self.names[value.var] = _ONE
        inner = self.power(value.value, (*place, "value"))
        if value.where is not None:
            self.equal(self.power(value.where, (*place, "where")), _PLAIN)
        if value.empty is not None:
            empty = self.power(value.empty, (*place, "empty"))
            self.equal(empty, _PLAIN if value.fn == "count" else inner)
        return _PLAIN if value.fn == "count" else inner

    def solved(self) -> dict[Place, int]:
        """Whole powers that meet the equations, the undecided ones 0. Equations that contradict earlier ones are dropped.

        Where either of two constants could have the unit, as in `0.5 * len(y) / 1024`, the larger gets it.
        """
        rows: dict[Place, Power] = {}
        for equation in self.zeros:
            row = _substituted(equation, rows)
            unknowns = [place for place in row if place]
            if not unknowns:
                continue
            unknown = max(unknowns, key=lambda place: self.sizes.get(place, float("inf")))
            scale = row.pop(unknown)
            solution = {place: -factor / scale for place, factor in row.items()}
            for known in rows:
                rows[known] = _substituted(rows[known], {unknown: solution})
            rows[unknown] = solution
        values = {place: row.get((), Fraction(0)) for place, row in rows.items()}
        return {place: int(value) for place, value in values.items() if value.denominator == 1}


def _minus(one: Power, two: Power) -> Power:
    places = {**one, **two}
    found = {place: one.get(place, Fraction(0)) - two.get(place, Fraction(0)) for place in places}
    return {place: value for place, value in found.items() if value}


def _substituted(power: Power, known: Mapping[Place, Power]) -> Power:
    """A power with its known unknowns replaced."""
    found: Power = {}
    for place, factor in power.items():
        for inner, value in known.get(place, {place: Fraction(1)}).items():
            found[inner] = found.get(inner, Fraction(0)) + factor * value
    return {place: value for place, value in found.items() if value}
