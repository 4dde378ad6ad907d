"""The types of settings, and how a value is fitted to one: the value in that type, or why it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from reodsl.language.units import (
    Dimension,
    Quantity,
    dimension,
    scaled,
    shown,
    unit_name,
    unit_words,
)
from reodsl.language.values import Bounds, Items, Record, Symbol, Value, article, as_written, describe


@dataclass(frozen=True, slots=True)
class Num:
    """A number in `unit`; `whole` ones are integers; inside `low..high`, an end left out where `open`."""

    unit: str = ""
    whole: bool = False
    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    example: str = ""

    @property
    def dimension(self) -> Dimension:
        """The unit as a dimension."""
        return dimension(self.unit or None) or ()

    def holds(self, number: float) -> bool:
        """Whether a number is in the range."""
        low = self.low is None or (number > self.low if self.above else number >= self.low)
        high = self.high is None or (number < self.high if self.below else number <= self.high)
        return low and high

    def takes(self, number: float) -> bool:
        """Whether a number, in the unit, is one of these."""
        return self.holds(number) and (not self.whole or float(number).is_integer())

    def range_words(self) -> str:
        """The range in a sentence: `from 1 to 16`, `above 0`."""
        last = self.high if self.high is not None else self.low
        unit = f" {self.unit.removesuffix('s') if last == 1 else self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None and not (self.above or self.below):
            return f"from {_bare(self.low)} to {_bare(self.high)}{unit}"
        parts = []
        if self.low is not None:
            parts.append(f"{'above' if self.above else 'at least'} {_bare(self.low)}")
        if self.high is not None:
            parts.append(f"{'below' if self.below else 'at most'} {_bare(self.high)}")
        return " and ".join(parts) + unit


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `nonempty` refuses one of blanks alone."""

    nonempty: bool = True


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A list of `least` or more, and of `most` at most; a lone value counts as a list of one where `lone`."""

    item: Type
    least: int = 1
    lone: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Between:
    """A range `low..high` of whole numbers."""

    item: Num


@dataclass(frozen=True, slots=True)
class A:
    """A thing of one of these kinds. `of` says it in words when the list of kinds would not read well."""

    kinds: tuple[str, ...]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A nested block of settings, `name { … }`, of a kind."""

    kind: str


@dataclass(frozen=True, slots=True)
class Either:
    """The first of some types that a value fits."""

    options: tuple[Type, ...]


Type: TypeAlias = Num | Text | Flag | Choice | Many | Between | A | Block | Either


@dataclass(frozen=True, slots=True)
class Field:
    """One setting. `example` shows how to write it; `methods` are the training methods that have it (empty: any)."""

    type: Type
    doc: str
    required: bool = False
    default: Any = None
    example: str = ""
    methods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A record type: its settings, described once.

    `form`: `declared` (`suite s { … }`), `block` inside another, or `call` (`hub("…")`, whose leading arguments
    are `positional`). `parents` are the kinds it can be amended from; `children` the declarations it may hold.
    `partial` ones may leave required settings open, to be given where they are used.
    """

    name: str
    doc: str
    fields: Mapping[str, Field]
    form: str = "declared"
    positional: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    partial: bool = False
    example: str = field(default="")


def _bare(number: float) -> str:
    """A bound as a person writes it: `16`, `16,777,216`, `0.5`."""
    return f"{int(number):,}" if float(number).is_integer() else f"{number:g}"


def type_words(type_: Type) -> str:
    """A type for people: `a number of tokens`, `one of causal, own`."""
    match type_:
        case Num():
            noun = f"number of {type_.unit}" if type_.unit else "whole number" if type_.whole else "number"
            return f"a {noun}"
        case Text():
            return "a text"
        case Flag():
            return "true or false"
        case Choice():
            return (
                "one of " + ", ".join(type_.words) if len(type_.words) > 1 else f"the word {type_.words[0]}"
            )
        case Many():
            return f"a list of {_plural(type_.item)}"
        case Between():
            return "a range such as 2..8"
        case A():
            return type_.of or " or ".join(f"{article(kind)} {kind}" for kind in type_.kinds)
        case Block():
            return "a block { … }"
        case Either():
            return ", or ".join(type_words(option) for option in type_.options)


def _plural(type_: Type) -> str:
    """A type in the plural: `numbers of tokens`, `benchmarks`, `words among accuracy, length`."""
    match type_:
        case Num():
            return f"numbers of {type_.unit}" if type_.unit else "whole numbers" if type_.whole else "numbers"
        case Text():
            return "texts"
        case Choice():
            return "words among " + ", ".join(type_.words)
        case A():
            return f"things, each {type_.of}" if type_.of else " or ".join(f"{kind}s" for kind in type_.kinds)
    return f"things, each {type_words(type_)}"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a value does not fit a type: a code, a message for `{what}`, the words at the value, and help.

    `otherwise` is the help where the setting has no example of its own either.
    """

    code: str
    message: str
    text: str
    value: Value
    help: str | None = None
    otherwise: str | None = None


def fit(value: Value, type_: Type) -> Value | Misfit:
    """`value` as the type has it: a bare number takes the type's unit, a lone value may become a list."""
    match type_:
        case Num():
            return _fit_number(value, type_)
        case Text():
            if not isinstance(value.data, str):
                return _other(value, type_)
            if type_.nonempty and not value.data.strip():
                return Misfit("E0303", "{what} is empty", "nothing in it", value, "write some text")
            return value
        case Flag():
            return value if isinstance(value.data, bool) else _other(value, type_)
        case Choice():
            if isinstance(value.data, Symbol) and value.data.name in type_.words:
                return value
            return _other(value, type_)
        case Many():
            return _fit_list(value, type_)
        case Between():
            return _fit_bounds(value, type_)
        case A():
            if isinstance(value.data, Record) and value.data.kind in type_.kinds:
                return value
            return _other(value, type_)
        case Block():
            if isinstance(value.data, Record) and value.data.kind == type_.kind:
                return value
            return _other(value, type_)
        case Either():
            misfits = []
            for option in type_.options:
                fitted = fit(value, option)
                if isinstance(fitted, Value):
                    return fitted
                misfits.append(fitted)
                if isinstance(option, Many) and isinstance(value.data, Items):
                    return fitted
            ranged = [misfit for misfit in misfits if misfit.code != "E0301"]
            return ranged[0] if ranged else _other(value, type_)


def _other(value: Value, type_: Type) -> Misfit:
    words = type_words(type_)
    message = f"{{what}} is {words}, not {describe(value)}"
    return Misfit("E0301", message, describe(value), value, _unquoted(value, type_), f"write {words}")


def _unquoted(value: Value, type_: Type) -> str | None:
    """The help for a text that would fit if it were none."""
    if not isinstance(value.data, str):
        return None
    fits = {
        Num: re.fullmatch(r"\d+(\.\d+)?([eE]-?\d+)?[KMG%]?( [a-z_]+)?", value.data),
        Flag: value.data in ("true", "false"),
        Choice: isinstance(type_, Choice) and value.data in type_.words,
    }
    return f"write `{value.data}`, without quotes" if fits.get(type(type_)) else None


def _fit_number(value: Value, type_: Num) -> Value | Misfit:
    data = value.data
    if not isinstance(data, Quantity):
        return _other(value, type_)
    want = type_.dimension
    if data.unit != want and not data.unit and value.literal is not None and value.literal.suffix != "%":
        number = scaled(value.literal.value, value.literal.suffix, want)
        if number is not None:
            data = Quantity(number, want)
    example = f"write `{type_.example}`, for example" if type_.example else None
    if data.unit != want:
        same = f"`{shown(Quantity(data.number, want))}`"
        helps = example
        if data.unit and not want and value.via:
            helps = f"divide by a number of {unit_name(data.unit)} to get a plain number"
        elif type_.takes(data.number) and not want:
            helps = f"write {same}, without a unit"
        elif type_.takes(data.number) and not data.unit:
            helps = f"give the value its unit: {same}"
        elif type_.takes(data.number) and not value.via:
            helps = f"write {same}, if it is that many"
        return Misfit(
            "E0302",
            f"{{what}} is {unit_words(want)}, and this is {unit_words(data.unit)}",
            shown(data),
            value,
            helps,
            f"write a number {unit_words(want)}" if want else f"write {unit_words(want)}",
        )
    if (type_.whole or want) and isinstance(data.number, float):
        if not data.number.is_integer():
            if type_.whole:
                return Misfit("E0303", "{what} is a whole number", shown(data), value, _near(data, type_))
        else:
            data = Quantity(int(data.number), data.unit)
    if not type_.holds(data.number):
        helps = example
        if data.number < 0 and type_.holds(-data.number):
            helps = f"write `{shown(Quantity(-data.number, want))}`"
        # A type with an example of its own, such as a learning rate, is no share.
        elif example is None and type_.high == 1 and not type_.whole and type_.holds(data.number / 100):
            helps = f"write `{shown(Quantity(data.number))}%`, if a share is meant"
        words = type_.range_words()
        message, otherwise = f"{{what}} must be {words}", f"write a number {words}"
        return Misfit("E0303", message, shown(data), value, helps, otherwise)
    return replace(value, data=data)


def _near(data: Quantity, type_: Num) -> str:
    """The nearest whole number of the range."""
    number = round(data.number)
    if type_.low is not None:
        number = max(number, int(type_.low) + type_.above)
    if type_.high is not None:
        number = min(number, int(type_.high) - type_.below)
    return f"write `{shown(Quantity(number, data.unit))}`"


def _fit_list(value: Value, type_: Many) -> Value | Misfit:
    data = value.data
    if not isinstance(data, Items):
        lone = fit(value, type_.item)
        if not type_.lone:
            helps = f"write `[{as_written(value)}]`" if isinstance(lone, Value) else None
            return replace(_other(value, type_), help=helps)
        return Value(Items((lone,)), value.span, value.via) if isinstance(lone, Value) else lone
    if len(data.values) < type_.least:
        helps = "add to the list" if data.values else "write what belongs in it"
        return Misfit("E0303", f"{{what}} needs at least {type_.least} in its list", "too few", value, helps)
    if type_.most is not None and len(data.values) > type_.most:
        message = f"{{what}} has at most {type_.most} in its list, and these are {len(data.values)}"
        return Misfit("E0303", message, "too many", data.values[type_.most], "take out what is too much")
    items = []
    for item in data.values:
        fitted = fit(item, type_.item)
        if isinstance(fitted, Misfit):
            return replace(fitted, message=fitted.message.replace("{what}", "each of {what}", 1))
        items.append(fitted)
    return replace(value, data=Items(tuple(items)))


def _fit_bounds(value: Value, type_: Between) -> Value | Misfit:
    data = value.data
    if not isinstance(data, Bounds):
        return _other(value, type_)
    low, high = fit(data.low, type_.item), fit(data.high, type_.item)
    for end in (low, high):
        if isinstance(end, Misfit):
            return end
    assert isinstance(low, Value)
    assert isinstance(high, Value)
    assert isinstance(low.data, Quantity)
    assert isinstance(high.data, Quantity)
    if low.data.number > high.data.number:
        return Misfit(
            "E0303", "{what} must not end before it begins", "", value, "write the smaller number first"
        )
    return replace(value, data=Bounds(low, high))
