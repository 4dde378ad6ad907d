"""The base of every IR value: frozen, closed, with one canonical JSON form and the digest of that form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from reodsl.ir.setting import flatten, later_settings, part_of, setting

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """The line that sets a setting: of a file, or of an option of the command line."""

    # Stored specs may have further fields.
    __pydantic_config__: ClassVar[Any] = {"extra": "ignore"}
    path: str
    line: int


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, part_of, flatten, Field))
class IR(BaseModel):
    """A frozen value of the intermediate representation.

    Fields named in `presentation` (a display name, a docstring) are kept for people and omitted from the canonical form, so
    that renaming a declaration never changes a result's identity. Fields named in `later` were added once results had been
    stored: at their default they are omitted from every dump, which keeps those results. A class is built when its first
    value is, so that a check does not wait for that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    presentation: ClassVar[frozenset[str]] = frozenset()
    later: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Set `later` of a new class: the fields that it lists, and its settings that are declared `later=True`."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.later = cls.later | later_settings(cls)

    @property
    def given_at(self) -> Mapping[str, Origin]:
        """Return the line of the spec that sets each field, by the field's name.

        The empty name has the line of the declaration. Lines are not part of the value: equal values may differ
        in them.
        """
        origins: Mapping[str, Origin] = self.__dict__.get("_given_at", {})
        return origins

    @property
    def dumped_fields(self) -> Sequence[str]:
        """Return the names of the fields in a dump: all but `later` fields at their default."""
        return _without_defaults(self, _fields(type(self)))

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the value as a dictionary without `later` fields at their default.

        Args:
            dump: The function of pydantic that dumps the value; it omits the fields that the caller excludes.
        """
        dumped: dict[str, Any] = dump(self)
        return {name: dumped[name] for name in self.dumped_fields if name in dumped}


V = TypeVar("V", bound=IR)


def locate(value: V, origins: Mapping[str, Origin]) -> V:
    """Record at a value the lines of the spec that set its fields, and return the value.

    Copies of the value keep the lines; dumps do not have them.

    Args:
        value: The value, which is changed.
        origins: The lines, as `IR.given_at` returns them.
    """
    # pydantic would yield an attribute without the leading underscore as a field.
    value.__dict__["_given_at"] = origins
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression. Equal expressions have equal hashes, so that facts about them can be kept in sets.

    Expressions are plain dataclasses, which are made faster than models, and are validated where a model holds them.
    `presentation` and `later` name fields as in `IR`; at None a `later` field is omitted from the canonical form alone.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}
    presentation: ClassVar[frozenset[str]] = frozenset()
    later: ClassVar[frozenset[str]] = frozenset()


def _names_of(kind: Any) -> tuple[str, ...] | None:
    """Return the names of a class's fields, as `names_of` does, without its cache."""
    if issubclass(kind, IR):
        return _fields(kind)
    return tuple(f.name for f in fields(kind)) if issubclass(kind, Node) else None


names_of: Callable[[Any], tuple[str, ...] | None] = cache(_names_of)
"""The names of the fields of a class of the representation, in their order; None for any other class.

Results are cached, since it is slow to find out whether a class is one of pydantic's.
"""


def parts_of(value: IR | Node) -> Iterator[IR | Node]:
    """Yield the direct children of a value, in the order of its fields; items of tuples count as children."""
    for name in names_of(type(value)) or ():
        content = getattr(value, name)
        for item in content if type(content) is tuple else (content,):
            if names_of(type(item)) is not None:
                yield item


def walk(value: IR | Node) -> Iterator[IR | Node]:
    """Yield a value and all its descendants, parents before children."""
    yield value
    for child in parts_of(value):
        yield from walk(child)


def values_of(value: IR | Node, kind: type[T]) -> list[T]:
    """Return the distinct values of a class among a value and its descendants.

    An object that occurs several times is visited once: the time is linear in the number of objects.

    Args:
        value: The value to search.
        kind: The class to look for.
    """
    seen: set[int] = set()
    values: dict[T, None] = {}
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, kind):
            values[current] = None
        waiting += reversed(tuple(parts_of(current)))
    return list(values)


def dumped(value: IR) -> dict[str, Any]:
    """Return the JSON data of a value."""
    return value.model_dump(mode="json")


def canonical(value: Any) -> Any:
    """Return the canonical form of a value as plain JSON data.

    Two kinds of field are omitted: presentation fields, such as names, and `later` fields at their default (fields
    that were added after results had been stored). Tuples become lists, and keys become strings. The identity of a
    result depends on the canonical form alone.

    Raises:
        TypeError: The value contains an object that is neither JSON data nor of the representation.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if names_of(kind) is not None:
        # Most fields have plain values, for which a recursive call would cost most of the time of a plan.
        return {
            name: item if type(item := getattr(value, name)) in PLAIN else canonical(item)
            for name in identifying(value)
        }
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{kind.__name__} has no canonical form")


def anonymous(value: Any) -> Any:
    """Return a value as plain JSON data in which presentation fields, such as names, are empty strings.

    Unlike the canonical form, this data has all required fields, and can be read as values again. Presentation
    fields that are `later` fields (added after results had been stored) are omitted.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, IR):
        presentation = value.presentation
        return {
            name: ""
            if name in presentation
            else content
            if type(content := getattr(value, name)) in PLAIN
            else anonymous(content)
            for name in value.dumped_fields
            if not (name in presentation and name in value.later)
        }
    if isinstance(value, (list, tuple)):
        return [item if type(item) in PLAIN else anonymous(item) for item in value]
    if isinstance(value, dict):
        return {str(key): anonymous(item) for key, item in value.items()}
    return canonical(value)


def identifying(value: IR | Node) -> Sequence[str]:
    """Return the names of the fields that identify a value, which are those in its canonical form."""
    if isinstance(value, Node):
        return [
            name
            for name in names_of(type(value)) or ()
            if name not in value.presentation and not (name in value.later and getattr(value, name) is None)
        ]
    return _without_defaults(value, _identifying_fields(type(value)))


def _without_defaults(value: IR, names: tuple[str, ...]) -> Sequence[str]:
    """Return field names without the `later` fields that have their default in a value.

    Args:
        value: The value.
        names: The names of some of its fields.
    """
    if not value.later:
        return names
    omitted = [name for name, default in _later_defaults(type(value)) if getattr(value, name) == default]
    return [name for name in names if name not in omitted] if omitted else names


@cache
def _fields(kind: type[IR]) -> tuple[str, ...]:
    return tuple(kind.model_fields)


@cache
def _later_defaults(kind: type[IR]) -> tuple[tuple[str, Any], ...]:
    """Return (name, default) for each `later` field of a class, which dumps omit at its default."""
    return tuple((name, field.default) for name, field in kind.model_fields.items() if name in kind.later)


@cache
def _identifying_fields(kind: type[IR]) -> tuple[str, ...]:
    """Return the fields of a class that identify its values: all but presentation fields."""
    return tuple(name for name in kind.model_fields if name not in kind.presentation)


PLAIN = frozenset({str, int, float, bool, type(None)})
"""Classes of values that are JSON data already."""
# The encoder writes plain data itself, and calls `canonical` only for other values.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=canonical)


def canonical_json(value: Any) -> str:
    """Return a value's canonical JSON text: keys sorted, no spaces, floats in their shortest exact spelling."""
    return _ENCODER.encode(value)


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
