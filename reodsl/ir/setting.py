"""Declare settings: type, unit, range and description, and the kinds of records that have them.

A setting is a field of a class of the representation: `lr: float = setting(LR, "learning rate", "lr = 5e-6")`. A field
without a default is required. The compiler checks specs against these fields; the reference, completion and the JSON Schema
are made from them as well.

- `spelled` is where a spec writes a field that has another name there: `spelled="clip.low"` is `low` in the block `clip`.
- A `ClassVar` is a setting that the representation has in another form; `part_of` marks the fields of that form.
- `flatten` marks a field whose own settings a spec writes beside those of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from reodsl.ir.names import Form


@dataclass(frozen=True, slots=True)
class Num:
    """A number in `unit`, within its range."""

    unit: str = ""  # its unit; empty for none
    integer: bool = False  # whether it is an integer
    low: float | None = None  # the least value, or None
    high: float | None = None  # the greatest value, or None
    above: bool = False  # whether `low` itself is excluded
    below: bool = False  # whether `high` itself is excluded
    example: str = ""  # how to write it

    def holds(self, number: float) -> bool:
        """Return whether a number, in the unit, is in the range."""
        low = self.low is None or (number > self.low if self.above else number >= self.low)
        high = self.high is None or (number < self.high if self.below else number <= self.high)
        return low and high

    def takes(self, number: float) -> bool:
        """Return whether a number, in the unit, is in the range and an integer if it must be."""
        return self.holds(number) and (not self.integer or float(number).is_integer())

    def range_words(self) -> str:
        """Return the range with its unit for a message: `from 1 to 16 tokens`, `above 0`."""
        last = self.high if self.high is not None else self.low
        unit = f" {self.unit.removesuffix('s') if last == 1 else self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None and not (self.above or self.below):
            return f"from {_write_bound(self.low)} to {_write_bound(self.high)}{unit}"
        bounds = (
            ("above" if self.above else "at least", self.low),
            ("below" if self.below else "at most", self.high),
        )
        return " and ".join(f"{word} {_write_bound(end)}" for word, end in bounds if end is not None) + unit


@dataclass(frozen=True, slots=True)
class Text:
    """A text. `nonempty` refuses blanks alone unless `blank`; `form` is the pattern of texts that become parts of paths."""

    nonempty: bool = True
    blank: bool = False
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A word of a fixed set."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of at least `least` and at most `most` items; if `lone`, a single value counts as a list."""

    item: Type
    least: int = 1
    lone: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A range `low..high` of integers."""

    item: Num


@dataclass(frozen=True, slots=True)
class OfKind:
    """A record of any of these kinds; `of` names them if the list of kinds would not read well."""

    kinds: tuple[str, ...]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A nested block of settings, `name { … }`, of a kind.

    A value in its place, `name = …`, is the value of its setting `alone`.
    """

    kind: str
    alone: str = ""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The first of some types that a value fits."""

    options: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OfReward:
    """A track or a metric of the stage's reward, `reward.NAME`: a number that each step has anew."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a question, in the language of rewards."""


Type: TypeAlias = Num | Text | Flag | OneOf | ListOf | Range | OfKind | Block | AnyOf | OfReward | Condition
WORDS = OneOf(())
"""The words of the annotation's `Literal`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its type, its description, and how a spec writes it."""

    type: Type  # its type
    doc: str  # its description
    required: bool = False  # whether a spec must give it, but for `unless`
    default: Any = None  # its default in the language, or None
    example: str = ""  # how to write it
    methods: tuple[str, ...] = ()  # training methods that have it; empty for all
    later: bool = False  # added after results were stored; no part of identity at its default
    unless: tuple[str, ...] = ()  # settings beside which it may be left out

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON Schema of the field, with the description, unit and range of the setting.

        pydantic calls this method, and `handler` returns the schema of the field's type.
        """
        return {**handler(schema), "description": self.doc, **_json_range(self.type)}


@dataclass(frozen=True, slots=True)
class SpecPath:
    """The path at which a spec writes a field.

    It starts at the class's own block or declaration, or after a `/` at the block around that.
    """

    path: str
    later: bool = False


@dataclass(frozen=True, slots=True)
class FlatFields:
    """A class whose settings a spec writes beside the settings of the class that holds it."""

    cls: type


@dataclass(frozen=True, slots=True)
class Kind:
    """A record type with its settings."""

    name: str  # its name
    doc: str  # its description
    fields: Mapping[str, Setting]  # its settings
    form: str = "declared"  # `declared` (`suite s { … }`), `block`, or `call` (`hub("…")`)
    positional: tuple[str, ...] = ()  # leading arguments of a call
    parents: tuple[str, ...] = ()  # kinds that it can be amended from
    children: tuple[str, ...] = ()  # declarations that it may hold
    partial: bool = False  # whether required settings may be given where it is used
    example: str = field(default="")  # how to write it
    cls: Any = None  # the class of the representation, if it has one


def setting(
    type_: Type,
    doc: str,
    example: str = "",
    *,
    default: Any = ...,
    required: bool | None = None,
    in_spec: Any = None,
    methods: tuple[str, ...] = (),
    later: bool = False,
    spelled: str = "",
    unless: tuple[str, ...] = (),
) -> Any:
    """Declare a field of the representation that is a setting of the language.

    Args:
        type_: The type that a spec's value must have, with unit and range.
        doc: The description for documents and editors.
        example: How a spec writes the setting.
        default: The default of the field; without it the setting is required.
        required: False if a spec may omit a field that has no default, or whose default has no word in a spec.
        in_spec: The default in the language, if it is not `default`.
        methods: The training methods that have the setting; empty for all.
        later: Whether canonical JSON omits the default, because results were stored before the setting existed.
        spelled: The path at which a spec writes the field, if it is not the field's name.
        unless: The settings beside which a required setting may be left out.
    """
    if required is None and default is not ...:
        required, in_spec = (False, default if in_spec is None and not _is_model(default) else in_spec)
    info: FieldInfo = Field(default, **_pattern(type_))
    info.metadata.append(Setting(type_, doc, required is not False, in_spec, example, methods, later, unless))
    if spelled:
        info.metadata.append(SpecPath(spelled))
    return info


def part_of(path: str, *, default: Any = ..., later: bool = False) -> Any:
    """Declare a field that has part of the value of the setting which a spec writes at `path`.

    Args:
        path: The path of the setting in a spec.
        default: The default of the field.
        later: Whether canonical JSON omits the default, because results were stored before the field existed.
    """
    info: FieldInfo = Field(default)
    info.metadata.append(SpecPath(path, later))
    return info


def flatten(cls: type) -> Any:
    """Declare a field of class `cls` whose settings a spec writes beside those of the enclosing class."""
    info: FieldInfo = Field()
    info.metadata.append(FlatFields(cls))
    return info


def _is_model(value: Any) -> bool:
    """Return whether a value is an object of the representation, or a tuple with such an object."""
    return hasattr(value, "model_fields") or (isinstance(value, tuple) and any(map(_is_model, value)))


def _pattern(type_: Type) -> dict[str, Any]:
    """Return pydantic's `pattern` and `max_length` for a text that becomes part of a path; empty for other types."""
    if not isinstance(type_, Text) or type_.form is None or type_.form.free:
        return {}
    return {"pattern": f"^(?:{type_.form.pattern})$", "max_length": type_.form.longest}


T = TypeVar("T")


def kind(
    name: str,
    *,
    form: str = "declared",
    positional: tuple[str, ...] = (),
    parents: tuple[str, ...] = (),
    children: tuple[str, ...] = (),
    example: str = "",
) -> Callable[[type[T]], type[T]]:
    """Make a class of the representation a kind of record in the language (a decorator).

    The first paragraph of the class's docstring describes the kind in documents.

    Args:
        name: The word of the kind in a spec.
        form: "declared" (`suite s { … }`), "block" (`clip { … }`), or "call" (`hub("…")`).
        positional: The leading arguments of a call that need no names.
        parents: The kinds that a declaration can be amended from.
        children: The declarations that it may contain.
        example: How a spec writes it.
    """

    def mark(cls: type[T]) -> type[T]:
        """Add the description of the kind to a class as `__kind__`, and return the class."""
        doc = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        fields = settings_of(cls)
        if form == "call":
            # The settings of a flattened class have examples `name = …`, and a call has `name: …`.
            for field_name, inner in fields.items():
                rewritten = inner.example.replace(f"{field_name} = ", f"{field_name}: ", 1)
                fields[field_name] = replace(inner, example=rewritten)
        declared = Kind(name, doc, fields, form, positional, parents, children, example=example, cls=cls)
        cls.__kind__ = declared  # type: ignore[attr-defined]
        return cls

    return mark


def kinds_in(module: ModuleType) -> Iterator[Kind]:
    """Yield the kinds that a module declares, in their order."""
    for value in vars(module).values():
        if isinstance(value, Kind):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__ and "__kind__" in vars(value):
            yield vars(value)["__kind__"]


def settings_of(cls: type, methods: tuple[str, ...] = ()) -> dict[str, Setting]:
    """Return the settings that a spec writes for a class, by name, inherited settings included.

    Args:
        cls: The class of the representation.
        methods: The training methods that have settings which name no methods themselves.
    """
    declared: dict[str, Setting] = {}
    for owner in reversed(cls.__mro__):
        declared.update(declared_in(owner, methods))
    return declared


def declared_in(cls: type, methods: tuple[str, ...] = ()) -> dict[str, Setting]:
    """Return the settings that a class itself declares, by name, without inherited ones and nested blocks.

    Args:
        cls: The class of the representation.
        methods: The training methods that have settings which name no methods themselves.
    """
    declared: dict[str, Setting] = {}
    for name, info in _infos(cls):
        path = place_of(name, info)
        inner = next((mark.cls for mark in info.metadata if isinstance(mark, FlatFields)), None)
        if inner is not None:
            declared.update(settings_of(inner, methods))
        elif "." not in path and not path.startswith("/"):
            declared.update(_named(path, info, methods))
    return declared


def settings_below(cls: type, block: str) -> dict[str, Setting]:
    """Return the settings of a class that a spec writes in another block than the class's own, by their names there.

    Args:
        cls: The class of the representation.
        block: The start of their paths, such as `clip.`; `/` is the block around the class's own block.
    """
    below: dict[str, Setting] = {}
    for owner in reversed(cls.__mro__):
        for name, info in _infos(owner):
            path = place_of(name, info)
            if path.startswith(block):
                below.update(_named(path.removeprefix(block), info, ()))
    return below


@cache
def written_fields(cls: type) -> tuple[tuple[str, str | type], ...]:
    """Return the fields of a class that a spec writes directly; fields that are `part_of` a setting are left out.

    Returns:
        (name, path in the spec) for each field, or (name, class) for a flattened field.
    """
    pairs: list[tuple[str, str | type]] = []
    for name, info in cls.__pydantic_fields__.items():  # type: ignore[attr-defined]
        inner = next((mark.cls for mark in info.metadata if isinstance(mark, FlatFields)), None)
        if inner is not None:
            pairs.append((name, inner))
        elif any(isinstance(mark, Setting) for mark in info.metadata) or not any(
            isinstance(mark, SpecPath) for mark in info.metadata
        ):
            pairs.append((name, place_of(name, info)))
    return tuple(pairs)


@cache
def field_places(cls: type) -> tuple[tuple[str, str], ...]:
    """Return (name, path in a spec) for every field of a class; the path may be that of a setting that it is part of."""
    return tuple((name, place_of(name, info)) for name, info in cls.__pydantic_fields__.items())  # type: ignore[attr-defined]


def place_of(name: str, info: FieldInfo) -> str:
    """Return the path at which a spec writes a field, which is its name if the field declares no other path."""
    return next((mark.path for mark in info.metadata if isinstance(mark, SpecPath)), name)


def later_settings(cls: type) -> frozenset[str]:
    """Return the names of a class's fields that were added after results had been stored."""
    return frozenset(
        name
        for owner in cls.__mro__
        for name, info in _infos(owner)
        if any(isinstance(mark, (Setting, SpecPath)) and mark.later for mark in info.metadata)
    )


def _infos(cls: type) -> Iterator[tuple[str, FieldInfo]]:
    """Yield (name, description by pydantic) for each field or setting that a class itself declares, in order."""
    fields = getattr(cls, "__pydantic_fields__", {})
    for name in vars(cls).get("__annotations__", {}):
        info = fields.get(name) or vars(cls).get(name)
        if isinstance(info, FieldInfo):
            yield name, info


def _named(name: str, info: FieldInfo, methods: tuple[str, ...]) -> Mapping[str, Setting]:
    """Return a dictionary with the setting of a field, or an empty one if the field is not a setting.

    Args:
        name: The name of the setting in a spec.
        info: The field.
        methods: The training methods that have the setting, if it names no methods itself.
    """
    for mark in info.metadata:
        if isinstance(mark, Setting):
            type_ = _with_words(mark.type, info.annotation)
            return {name: replace(mark, type=type_, methods=mark.methods or methods)}
    return {}


def _json_range(type_: Type) -> dict[str, Any]:
    """Return the unit and range of a number as entries of JSON Schema; empty for another type.

    Of several types the first counts.
    """
    if isinstance(type_, AnyOf):
        type_ = type_.options[0]
    if not isinstance(type_, Num):
        return {}
    facts = {
        "unit": type_.unit or None,
        "exclusiveMinimum" if type_.above else "minimum": type_.low,
        "exclusiveMaximum" if type_.below else "maximum": type_.high,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _with_words(type_: Type, note: Any) -> Type:
    """Return a type in which `WORDS` is replaced by the words of the field's annotation.

    Args:
        type_: The type of a setting.
        note: The annotation of the field, such as `Literal["auto", "on"]`.
    """
    if type_ is WORDS:
        return OneOf(_words(note))
    if isinstance(type_, ListOf) and type_.item is WORDS:
        return replace(type_, item=OneOf(_words(note)))
    return type_


def _words(note: Any) -> tuple[str, ...]:
    """Return the words of the first `Literal` in an annotation; empty without a `Literal`."""
    if get_origin(note) is Literal:
        return get_args(note)
    return next((words for inner in get_args(note) if (words := _words(inner))), ())


def _write_bound(number: float) -> str:
    """Return a bound of a range as a person writes it: `16`, `16,777,216`, `0.5`."""
    return f"{int(number):,}" if float(number).is_integer() else f"{number:g}"


TOKENS = Num("tokens", integer=True, low=1, example="32K tokens")
TOKENS0 = Num("tokens", integer=True, low=0)
LENGTHS = Num("tokens", low=0)
STEPS = Num("steps", integer=True, low=1, example="400 steps")
STEPS0 = Num("steps", integer=True, low=0)
LAG = Num("steps", integer=True, low=0, high=16)
COUNT = Num(integer=True, low=1, high=2**24)
NATURAL = Num(integer=True, low=0, high=2**53)
SHARE = Num(low=0, high=1)
UTILISED = Num(low=0, high=1, above=True)
POSITIVE = Num(low=0, above=True)
TEMPERATURE = Num(low=0, high=10)
TOP_P = UTILISED
ENGINES = OneOf(("embedded", "sglang"))
BETA = Num(low=0, high=1, below=True, example="0.95")
LR = Num(low=0, high=1, above=True, example="5e-6")
HOURS = Num("gpu_hours", low=0, above=True, example="4K gpu_hours")
PPO = ("ppo",)
PAIRS = ("simpo", "dpo")
SEQUENCES = ("sft", *PAIRS)
SFT = ("sft",)
SIMPO = ("simpo",)
CHECKPOINT = OfKind(("model", "experiment", "checkpoint"), "a model or a checkpoint")
SPLITS = OfKind(("budgets", "oracle_budgets", "question_budgets", "steps_split", "exits_split"), "budgets")
MODEL_SOURCES = ("hub", "folder", "architecture", "served")
DATA_SOURCES = ("generated", "file", "hub", "package")
QUESTIONS = OfKind(("data", "selected"), "data, or a selection of a pool")
READER = AnyOf(
    (
        OneOf(("boxed", "last_number", "code", "whole")),
        OfKind(("after", "regex"), '`after("…")` or `regex("…")`'),
    )
)
