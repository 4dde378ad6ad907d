"""Describe the types of settings in words, and fit values to them, or return why they do not fit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from reodsl.diagnostics.model import Span
from reodsl.ir.names import Form
from reodsl.ir.setting import (
    AnyOf,
    Block,
    Condition,
    Flag,
    ListOf,
    Num,
    OfKind,
    OfReward,
    OneOf,
    Range,
    Text,
    Type,
)
from reodsl.language.hints import explain_method, first_help, suggest_declaration
from reodsl.language.units import (
    Dimension,
    Quantity,
    describe_unit,
    format_quantity,
    name_unit,
    read_dimension,
    scale,
)
from reodsl.language.values import Bounds, Items, Record, Symbol, Value, article, describe, write_value
from reodsl.syntax.scanner import clip_text


def read_unit(type_: Num) -> Dimension:
    """Return the unit of a numeric type as a dimension; empty for a plain number."""
    return read_dimension(type_.unit or None) or ()


def list_kinds(type_: Type) -> tuple[str, ...]:
    """Return the kinds of record that a type accepts as a single value or in a list; empty if it takes no records."""
    match type_:
        case OfKind():
            return type_.kinds
        case Block():
            return (type_.kind,)
        case ListOf():
            return list_kinds(type_.item)
        case AnyOf():
            return tuple(kind for option in type_.options for kind in list_kinds(option))
    return ()


def describe_type(type_: Type) -> str:
    """Return a type in words: `a number of tokens`, `a list of benchmarks`."""
    match type_:
        case Num():
            noun = f"number of {type_.unit}" if type_.unit else "whole number" if type_.integer else "number"
            return f"a {noun}"
        case Text():
            return "a text"
        case Flag():
            return "true or false"
        case OneOf():
            return (
                "one of " + ", ".join(type_.words) if len(type_.words) > 1 else f"the word {type_.words[0]}"
            )
        case ListOf():
            return f"a list of {_describe_plural(type_.item)}"
        case Range():
            return "a range such as 2..8"
        case OfKind():
            return type_.of or " or ".join(f"{article(kind)} {kind}" for kind in type_.kinds)
        case Block():
            return "a block { … }"
        case OfReward():
            return "a track or metric of the reward (`reward.NAME`)"
        case Condition():
            return "a condition on a question"
        case AnyOf():
            return ", or ".join(describe_type(option) for option in type_.options)


def _describe_plural(type_: Type) -> str:
    """Return a type in the plural: `numbers of tokens`, `benchmarks`, `words among accuracy, length`."""
    match type_:
        case Num():
            return (
                f"numbers of {type_.unit}" if type_.unit else "whole numbers" if type_.integer else "numbers"
            )
        case Text():
            return "texts"
        case OneOf():
            return "words among " + ", ".join(type_.words)
        case OfKind():
            plurals = (kind if kind.endswith("s") else f"{kind}s" for kind in type_.kinds)
            return f"things, each {type_.of}" if type_.of else " or ".join(plurals)
    return f"things, each {describe_type(type_)}"


MOST_COUNTED = 16


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """The reason why a value does not fit a type."""

    code: str
    """The code of the error."""
    message: str
    """The message, with `{what}` for the setting."""
    text: str
    """The words at the value."""
    value: Value
    """The value that does not fit."""
    help: str | None = None
    otherwise: str | None = None
    """The help if neither the value nor the setting's example suggests any."""


def coerce(value: Value, type_: Type) -> Value | TypeMismatch:
    """Return a value converted to a type, or the reason why it does not fit.

    A literal number without a unit takes the type's unit. A single value becomes a list if the type allows it
    (`lone`). For a choice of types, the first type that fits is taken.
    """
    match type_:
        case Num():
            return _coerce_number(value, type_)
        case Text():
            if not isinstance(value.data, str):
                return _refuse_kind(value, type_)
            if type_.nonempty and not (value.data if type_.blank else value.data.strip()):
                blank = (
                    ("is only white space", "no visible characters")
                    if value.data
                    else ("is empty", "nothing in it")
                )
                return TypeMismatch("E0303", f"{{what}} {blank[0]}", blank[1], value, "write some text")
            return (
                value
                if type_.form is None or type_.form.holds(value.data)
                else _refuse_name(value, type_.form)
            )
        case Flag():
            return value if isinstance(value.data, bool) else _refuse_kind(value, type_)
        case OneOf() | OfReward():
            name = value.data.name if isinstance(value.data, Symbol) else ""
            fits = name in type_.words if isinstance(type_, OneOf) else name.startswith("reward.")
            return value if fits else _refuse_kind(value, type_)
        case ListOf():
            return _coerce_list(value, type_)
        case Range():
            return _coerce_bounds(value, type_)
        case OfKind():
            if isinstance(value.data, Record) and value.data.kind in type_.kinds:
                return value
            return _refuse_kind(value, type_)
        case Block():
            if isinstance(value.data, Record) and value.data.kind == type_.kind:
                return value
            return _refuse_kind(value, type_)
        case Condition():
            return value
        case AnyOf():
            misfits = []
            for option in type_.options:
                fitted = coerce(value, option)
                if isinstance(fitted, Value):
                    return fitted
                misfits.append(fitted)
                if isinstance(option, ListOf) and isinstance(value.data, Items):
                    return fitted
            ranged = [misfit for misfit in misfits if misfit.code != "E0301"]
            return ranged[0] if ranged else _refuse_kind(value, type_)


def _refuse_name(value: Value, form: Form) -> TypeMismatch:
    """Return the mismatch of a text that is not a valid name, such as the name of a repository.

    Args:
        value: The text.
        form: The form that names have.
    """
    text = str(value.data)
    words = f"more than {form.longest:,} characters" if len(text) > form.longest else "no such name"
    return TypeMismatch(
        "E0317",
        f"{{what}} names {form.noun}, and `{clip_text(text)}` cannot be one",
        words,
        value,
        f"write {form.words}: `{form.example}`, for example",
    )


def _refuse_kind(value: Value, type_: Type) -> TypeMismatch:
    """Return the mismatch of a value of a wrong kind: for example a text for a setting that is a number."""
    words = describe_type(type_)
    message = f"{{what}} is {words}, not {describe(value)}"
    advice = (
        _suggest_unquoted(value, type_)
        or suggest_declaration(value, list_kinds(type_))
        or _suggest_method(value, type_)
    )
    return TypeMismatch("E0301", message, describe(value), value, advice, f"write {words}")


def _suggest_method(value: Value, type_: Type) -> str | None:
    """Return how a spec writes a training method that the user named where another value belongs.

    Users may write `method = "GRPO"`. GRPO is no word of the language but a combination of settings, which the help
    tells. The method may be named by the text of the value, or by the name of a record.

    Args:
        value: The value, which does not fit the type.
        type_: The type. A method is only looked for if the type has fixed words or is a block of settings.

    Returns:
        The help; None for another type, or if the value names no known method.
    """
    if not isinstance(type_, (OneOf, Block)):
        return None
    data = value.data
    name = data if isinstance(data, str) else data.name if isinstance(data, Record) else ""
    return explain_method(name)


def _suggest_unquoted(value: Value, type_: Type) -> str | None:
    """Return help for a text that would fit a type without its quotes, such as `"0.5"`; None for other texts."""
    if not isinstance(value.data, str):
        return None
    bare = re.fullmatch(r"\d+(\.\d+)?([eE]-?\d+)?", value.data)
    fits_type = {
        Num: re.fullmatch(r"\d+(\.\d+)?([eE]-?\d+)?[KMG%]?( [a-z_]+)?", value.data)
        and (bare is None or not isinstance(type_, Num) or type_.holds(float(value.data))),
        Flag: value.data in ("true", "false"),
        OneOf: isinstance(type_, OneOf) and value.data in type_.words,
    }
    return f"write `{value.data}`, without quotes" if fits_type.get(type(type_)) else None


def _coerce_number(value: Value, type_: Num) -> Value | TypeMismatch:
    """Return a number in the unit and range of a type, or the reason why it does not fit.

    A literal without a unit gets the type's unit, and a float that is whole becomes an int if the type is for
    integers or has a unit. The reason is E0302 for a wrong unit, and E0303 for a number that is not whole or
    outside the range.
    """
    data = value.data
    if not isinstance(data, Quantity):
        return _refuse_kind(value, type_)
    target = read_unit(type_)
    if data.unit != target and not data.unit and value.literal is not None and value.literal.suffix != "%":
        number = scale(value.literal.value, value.literal.suffix, target)
        if number is not None:
            data = Quantity(number, target)
    example = f"write `{type_.example}`, for example" if type_.example else None
    if data.unit != target:
        rewritten, in_range = (
            f"`{format_quantity(Quantity(data.number, target))}`",
            type_.takes(data.number),
        )
        unit, bare = name_unit(data.unit), not data.unit
        is_base_unit = len(data.unit) == 1 and data.unit[0][1] == 1
        typed = f"; a name for a number of {unit} has the type `{unit}`" if is_base_unit else ""
        rows = (
            (
                not bare and not target and bool(value.defined_at),
                f"divide by a number of {unit} to get a plain number, or set it as a `number`, without a unit{typed}",
            ),
            (in_range and not target, f"write {rewritten}, without a unit{typed}"),
            (
                # A param of type `int` takes no unit in its value, so its type has to change.
                in_range and bare and bool(value.defined_at),
                f"write {rewritten} here, or set it from a value of the type `{name_unit(target)}`",
            ),
            (in_range and bare, f"give the value its unit: {rewritten}"),
            (in_range and not value.defined_at, f"write {rewritten}, if it is that many"),
        )
        hint = first_help(rows) or example
        return TypeMismatch(
            "E0302",
            f"{{what}} is {describe_unit(target)}, and this is {describe_unit(data.unit)}",
            format_quantity(data),
            value,
            hint,
            f"write a number {describe_unit(target)}" if target else f"write {describe_unit(target)}",
        )
    if (type_.integer or target) and isinstance(data.number, float):
        if not data.number.is_integer():
            if type_.integer:
                return TypeMismatch(
                    "E0303",
                    "{what} is a whole number",
                    format_quantity(data),
                    value,
                    _suggest_whole(data, type_),
                )
        else:
            data = Quantity(int(data.number), data.unit)
    if not type_.holds(data.number):
        share = type_.high == 1 and not type_.integer and type_.holds(data.number / 100)
        ranges = (
            (
                data.number < 0 and type_.holds(-data.number),
                f"write `{format_quantity(Quantity(-data.number, target))}`",
            ),
            (
                # A type with an example, such as a learning rate, is no share; `150%` is written as a share already.
                example is None and share and value.literal is not None and value.literal.suffix != "%",
                f"write `{format_quantity(Quantity(data.number))}%`, if a share is meant",
            ),
        )
        hint = first_help(ranges) or example
        words = type_.range_words()
        message, otherwise = f"{{what}} must be {words}", f"write a number {words}"
        return TypeMismatch("E0303", message, format_quantity(data), value, hint, otherwise)
    return replace(value, data=data)


def _suggest_whole(data: Quantity, type_: Num) -> str:
    """Return help that writes the whole number nearest to `data` inside the type's range."""
    number = round(data.number)
    if type_.low is not None:
        number = max(number, int(type_.low) + type_.above)
    if type_.high is not None:
        number = min(number, int(type_.high) - type_.below)
    return f"write `{format_quantity(Quantity(number, data.unit))}`"


def _coerce_list(value: Value, type_: ListOf) -> Value | TypeMismatch:
    """Return a list whose items are converted to the type of items, or the reason why it does not fit.

    A value that is not a list becomes a list of one item if the type is `lone`.
    """
    data = value.data
    if not isinstance(data, Items):
        inner = coerce(value, type_.item)
        if not type_.lone:
            hint = f"write `[{write_value(value)}]`" if isinstance(inner, Value) and type_.least < 2 else None
            if numbers := _suggest_numbers(value, type_.item):
                hint = f"{hint}, or `{numbers}`, if so many are meant" if hint else f"write `{numbers}`"
            return replace(_refuse_kind(value, type_), help=hint)
        return Value(Items((inner,)), value.span, value.defined_at) if isinstance(inner, Value) else inner
    if len(data.values) < type_.least:
        hint = "add to the list" if data.values else "write its items"
        return TypeMismatch(
            "E0303", f"{{what}} needs at least {type_.least} in its list", "too few", value, hint
        )
    if type_.most is not None and len(data.values) > type_.most:
        message = f"{{what}} has at most {type_.most} in its list, and these are {len(data.values)}"
        return TypeMismatch("E0303", message, "too many", data.values[type_.most], "remove items")
    items = []
    for item in data.values:
        fitted = coerce(item, type_.item)
        if isinstance(fitted, TypeMismatch):
            return replace(fitted, message=fitted.message.replace("{what}", "each of {what}", 1))
        items.append(fitted)
    return replace(value, data=Items(tuple(items)))


def _suggest_numbers(value: Value, item: Type) -> str | None:
    """Return the list `[1, 2, 3, 4]` as a suggestion for the range `1..4` or the count `4`.

    The result is None if the type's items are not whole numbers without a unit, or if the list would have fewer
    than 2 or more than `MOST_COUNTED` numbers.
    """
    data = value.data
    ends = (data.low.data, data.high.data) if isinstance(data, Bounds) else (Quantity(1), data)
    numbers = [end.number for end in ends if isinstance(end, Quantity) and not end.unit]
    if not isinstance(item, Num) or not item.integer or item.unit or len(numbers) < 2:
        return None
    low, high = (int(number) for number in numbers)
    if (low, high) != tuple(numbers) or not 1 <= high - low < MOST_COUNTED:
        return None
    return f"[{', '.join(map(str, range(low, high + 1)))}]"


def _coerce_bounds(value: Value, type_: Range) -> Value | TypeMismatch:
    """Return a range whose ends are converted to the type's ends, or the reason why it does not fit."""
    data = value.data
    if not isinstance(data, Bounds):
        return _refuse_kind(value, type_)
    low, high = coerce(data.low, type_.item), coerce(data.high, type_.item)
    if isinstance(low, TypeMismatch):
        return low
    if isinstance(high, TypeMismatch):
        return high
    ends = [end.data.number for end in (low, high) if isinstance(end.data, Quantity)]
    if ends != sorted(ends):
        return TypeMismatch(
            "E0303", "{what} must not end before it begins", "", value, "write the smaller number first"
        )
    return replace(value, data=Bounds(low, high))


def make_typed(data: Any, type_: Type, span: Span) -> Value:
    """Return plain data as a value of a type.

    Args:
        data: A number, text, bool or tuple.
        type_: The type. It gives a number its unit, and decides whether a text is a word; of a choice of types
            the first is used.
        span: The span that the value gets.
    """
    if isinstance(type_, AnyOf):
        type_ = type_.options[0]
    if isinstance(data, tuple) and isinstance(type_, ListOf):
        return Value(Items(tuple(make_typed(item, type_.item, span) for item in data)), span)
    if isinstance(data, str):
        return Value(Symbol(data) if isinstance(type_, OneOf) else data, span)
    if isinstance(data, bool):
        return Value(data, span)
    return Value(Quantity(data, read_unit(type_) if isinstance(type_, Num) else ()), span)
