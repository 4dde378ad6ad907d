"""The types of settings, and the kinds of things that have them: what may be written, and how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from reodsl.ir.names import Form
from reodsl.language.units import Dimension, dimension
from reodsl.language.values import article


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
    """A text; `nonempty` refuses one of blanks alone, `form` all but names that are safe in a path."""

    nonempty: bool = True
    form: Form | None = None


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


def kinds_of(type_: Type) -> tuple[str, ...]:
    """The kinds of record that a type takes, itself or in a list."""
    match type_:
        case A():
            return type_.kinds
        case Many():
            return kinds_of(type_.item)
        case Either():
            return tuple(kind for option in type_.options for kind in kinds_of(option))
    return ()


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
