"""Declare settings: type, unit, range and sense, and the table of kinds that have them.

A class of settings annotates them: `lr: Annotated[float, Setting(LR, "learning rate", "lr = 5e-6")]`. What has no value in
the class is required. The class of the representation inherits it, so pydantic's field and the language's setting are one.
Of a setting that the representation holds in another form the annotation is a `ClassVar`, and the model has no such field;
the `Setting` then says whether it is required, and its default. This is read whenever a spec is checked, and is light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, dataclass_transform, get_args, get_origin

from reodsl.ir.names import Form


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
    """A text; `nonempty` refuses one of blanks alone, unless it may be `blank`; `form` all but names safe in a path."""

    nonempty: bool = True
    blank: bool = False
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


WORDS = Choice(())
"""The words that the annotation's `Literal` has."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, as the metadata of an annotation. `later` ones were added once results had been stored.

    Those are left out of a spec's canonical form where they are at their default, so that they change no result's
    identity. `required` and `default` are read of settings that the representation has in another form alone.
    """

    type: Type
    doc: str
    example: str = ""
    methods: tuple[str, ...] = ()
    later: bool = False
    required: bool | None = None
    default: Any = None

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The JSON Schema of the field, with the setting's sense, unit and range."""
        return {**handler(schema), "description": self.doc, **_json_range(self.type)}


T = TypeVar("T")


@dataclass_transform(kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Mark a class whose annotations are settings, which is not a kind by itself."""
    return cls


@dataclass_transform(kw_only_default=True)
def kind(
    name: str,
    *,
    form: str = "declared",
    positional: tuple[str, ...] = (),
    parents: tuple[str, ...] = (),
    children: tuple[str, ...] = (),
    example: str = "",
) -> Callable[[type[T]], type[T]]:
    """Make a class of settings a kind of the language, whose sense is the class's docstring."""

    def mark(cls: type[T]) -> type[T]:
        doc = " ".join((cls.__doc__ or "").split())
        declared = Kind(name, doc, settings_of(cls), form, positional, parents, children, example=example)
        cls.__kind__ = declared  # type: ignore[attr-defined]
        return cls

    return mark


def kinds_in(module: ModuleType) -> Iterator[Kind]:
    """The kinds that a module declares, in their order."""
    for value in vars(module).values():
        if isinstance(value, Kind):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__ and "__kind__" in vars(value):
            yield vars(value)["__kind__"]


def settings_of(cls: type, methods: tuple[str, ...] = ()) -> dict[str, Field]:
    """The settings that a class and those it inherits declare; `methods` are those that have all of them."""
    declared: dict[str, Field] = {}
    for owner in reversed(cls.__mro__):
        declared.update(declared_in(owner, methods))
    return declared


def declared_in(cls: type, methods: tuple[str, ...] = ()) -> dict[str, Field]:
    """The settings that a class declares itself."""
    return {
        name: _field(cls, name, note, elsewhere, setting, methods)
        for name, note, elsewhere, setting in _annotated(cls)
    }


def later_settings(cls: type) -> frozenset[str]:
    """The names of the settings of a class that were added once results had been stored."""
    return frozenset(
        name for owner in cls.__mro__ for name, _, _, setting in _annotated(owner) if setting.later
    )


def _json_range(type_: Type) -> dict[str, Any]:
    """A number's unit and range as JSON Schema has them."""
    if not isinstance(type_, Num):
        return {}
    facts = {
        "unit": type_.unit or None,
        "exclusiveMinimum" if type_.above else "minimum": type_.low,
        "exclusiveMaximum" if type_.below else "maximum": type_.high,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _annotated(cls: type) -> Iterator[tuple[str, Any, bool, Setting]]:
    """The settings of a class: name, annotation, and whether the representation has it in another form."""
    for name, note in vars(cls).get("__annotations__", {}).items():
        # Attributes and not `get_origin`, which takes ten times as long: every command waits for this.
        elsewhere = getattr(note, "__origin__", None) is ClassVar
        for each in getattr(note.__args__[0] if elsewhere else note, "__metadata__", ()):
            if isinstance(each, Setting):
                yield name, note, elsewhere or each.required is not None, each


def _field(
    cls: type, name: str, note: Any, elsewhere: bool, setting: Setting, methods: tuple[str, ...]
) -> Field:
    return Field(
        _with_words(setting.type, note),
        setting.doc,
        required=bool(setting.required) if elsewhere else name not in vars(cls),
        default=setting.default if elsewhere else vars(cls).get(name),
        example=setting.example,
        methods=setting.methods or methods,
    )


def _with_words(type_: Type, note: Any) -> Type:
    """A type with the words of the annotation in place of `WORDS`."""
    if type_ is WORDS:
        return Choice(_words(note))
    if isinstance(type_, Many) and type_.item is WORDS:
        return replace(type_, item=Choice(_words(note)))
    return type_


def _words(note: Any) -> tuple[str, ...]:
    """The words of the `Literal` in an annotation."""
    if get_origin(note) is Literal:
        return get_args(note)
    return next((words for inner in get_args(note) if (words := _words(inner))), ())


def _bare(number: float) -> str:
    """A bound as a person writes it: `16`, `16,777,216`, `0.5`."""
    return f"{int(number):,}" if float(number).is_integer() else f"{number:g}"
