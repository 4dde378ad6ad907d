"""Describe the types of settings in words, and list the kinds that they take."""

from __future__ import annotations

from reodsl.ir.setting import A, Between, Block, Either, Flag, Many, Num, OneOf, Text, Type
from reodsl.language.units import Dimension, read_dimension
from reodsl.language.values import article


def read_unit(type_: Num) -> Dimension:
    """Return the unit of a number as a dimension."""
    return read_dimension(type_.unit or None) or ()


def list_kinds(type_: Type) -> tuple[str, ...]:
    """Return the kinds of record that a type takes, itself or in a list."""
    match type_:
        case A():
            return type_.kinds
        case Many():
            return list_kinds(type_.item)
        case Either():
            return tuple(kind for option in type_.options for kind in list_kinds(option))
    return ()


def describe_type(type_: Type) -> str:
    """Return a type for people: `a number of tokens`, `one of causal, own`."""
    match type_:
        case Num():
            noun = f"number of {type_.unit}" if type_.unit else "whole number" if type_.whole else "number"
            return f"a {noun}"
        case Text():
            return "a text"
        case Flag():
            return "true or false"
        case OneOf():
            return (
                "one of " + ", ".join(type_.words) if len(type_.words) > 1 else f"the word {type_.words[0]}"
            )
        case Many():
            return f"a list of {_describe_plural(type_.item)}"
        case Between():
            return "a range such as 2..8"
        case A():
            return type_.of or " or ".join(f"{article(kind)} {kind}" for kind in type_.kinds)
        case Block():
            return "a block { … }"
        case Either():
            return ", or ".join(describe_type(option) for option in type_.options)


def _describe_plural(type_: Type) -> str:
    """Return a type in the plural: `numbers of tokens`, `benchmarks`, `words among accuracy, length`."""
    match type_:
        case Num():
            return f"numbers of {type_.unit}" if type_.unit else "whole numbers" if type_.whole else "numbers"
        case Text():
            return "texts"
        case OneOf():
            return "words among " + ", ".join(type_.words)
        case A():
            return f"things, each {type_.of}" if type_.of else " or ".join(f"{kind}s" for kind in type_.kinds)
    return f"things, each {describe_type(type_)}"
