"""Keep entries of reasoning-gym as JSON with their tuples, sets and numbers, which their scorers read again as they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import islice
from typing import Any

from runners.sandbox.untrusted import MOST_DIGITS

DEEPEST = 100
MOST_ITEMS = 200_000
"""Items that an iterator may give; of one without an end nothing can be told."""
_SMALL = 2**63
# An exponent would be a number of any length in a few characters.
_FRACTION = re.compile(rf"-?[0-9]{{1,{MOST_DIGITS}}}(/[0-9]{{1,{MOST_DIGITS}}})?")

Keep = Callable[[Any], int]
"""Keeps a value that is not plain, and gives its number."""
Find = Callable[[int], Any]
"""Finds the stand-in for a value that the other side keeps, by its number."""


class Uncarried(Exception):
    """A value that cannot be sent."""


def packed(value: Any, keep: Keep, depth: int = 0) -> Any:
    """Return a value as JSON has it. Raises Uncarried where it is nested too deep, or `keep` refuses a part of it."""
    if depth > DEEPEST:
        raise Uncarried("it is nested too deep")

    def each(values: Any) -> list[Any]:
        return [packed(part, keep, depth + 1) for part in values]

    match value:
        case None | bool():
            return value
        case int():
            number = int(value)
            return number if -_SMALL < number < _SMALL else {"int": hex(number)}
        case float():
            return float(value)
        case str():
            return str.__str__(value)
        case list():
            return each(list.__iter__(value))
        case tuple():
            return {"tuple": each(tuple.__iter__(value))}
        case dict():
            return {"dict": [each(pair) for pair in dict.items(value)]}
        case set() | frozenset():
            return {"frozenset" if isinstance(value, frozenset) else "set": each(value)}
        case bytes() | bytearray():
            return {"bytes": bytes(value).hex()}
        case complex():
            return {"complex": [value.real, value.imag]}
        case range():
            return {"range": [value.start, value.stop, value.step]}
        case Decimal() | Fraction():
            return {"decimal" if isinstance(value, Decimal) else "fraction": str(value)}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return packed(value.tolist(), keep, depth + 1)
    if isinstance(value, Iterator):
        items = list(islice(value, MOST_ITEMS + 1))
        if len(items) > MOST_ITEMS:
            raise Uncarried(f"an iterator gives more than {MOST_ITEMS:,} values")
        return {"iterator": each(items)}
    return {"kept": keep(value)}


def unpacked(said: Any, find: Find, depth: int = 0) -> Any:
    """Return the value that the other side packed. Raises Uncarried for what no `packed` gives."""
    if depth > 2 * DEEPEST:
        raise Uncarried("it is nested too deep")

    def each(parts: Any) -> list[Any]:
        if not isinstance(parts, list):
            raise Uncarried("it is no value")
        return [unpacked(part, find, depth + 1) for part in parts]

    if isinstance(said, list):
        return each(said)
    if not isinstance(said, dict):
        return said
    try:
        match said:
            case {"int": str(text)}:
                return int(text, 16)
            case {"tuple": parts}:
                return tuple(each(parts))
            case {"dict": list(pairs)}:
                return dict(map(each, pairs))
            case {"set": parts}:
                return set(each(parts))
            case {"frozenset": parts}:
                return frozenset(each(parts))
            case {"bytes": str(text)}:
                return bytes.fromhex(text)
            case {"complex": [float() as real, float() as imaginary]}:
                return complex(real, imaginary)
            case {"range": [int() as start, int() as stop, int() as step]}:
                return range(start, stop, step)
            case {"decimal": str(text)}:
                return Decimal(text)
            case {"fraction": str(text)} if _FRACTION.fullmatch(text):
                return Fraction(text)
            case {"iterator": parts}:
                return iter(each(parts))
            case {"kept": int(number)}:
                return find(number)
    except (ArithmeticError, ValueError, TypeError) as failure:
        raise Uncarried(f"it is no value: {failure}") from None
    raise Uncarried("it is no value")


COMPOSITE = "composite"
"""A task that is made of others: `datasets` are their names, weights and configurations."""


def create_dataset(task: str, size: int, seed: int, options: Mapping[str, Any]) -> Any:
    """Return a data set with its options, as a spec gives them. Raises what the package raises for those that do not fit."""
    gym: Any = import_module("reasoning_gym")
    given = dict(options)
    if task == COMPOSITE and isinstance(given.get("datasets"), list):
        kind = import_module("reasoning_gym.composite").DatasetSpec
        given["datasets"] = [kind(**{"weight": 1.0, "config": {}, **each}) for each in given["datasets"]]
    return gym.create_dataset(task, size=size, seed=seed, **given)


def entry_of(facts: Mapping[str, Any]) -> Any:
    """Return the entry of a question, out of its metadata."""
    if "packed" not in facts:
        return facts["entry"]
    return unpacked(facts["packed"], lambda number: None)
