"""Data sets of reasoning-gym, and their entries as JSON that keeps tuples: some scorers read no lists in their place."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

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


def pack(value: Any) -> Any:
    """Return a value with its tuples named as such, and its records as pairs, since their keys may be numbers."""
    match value:
        case tuple():
            return {"tuple": [pack(part) for part in value]}
        case list():
            return [pack(part) for part in value]
        case dict():
            return {"dict": [[pack(part) for part in pair] for pair in value.items()]}
    return value


def unpack(said: Any) -> Any:
    """Return the value that was packed."""
    match said:
        case {"tuple": parts}:
            return tuple(map(unpack, parts))
        case list():
            return [unpack(part) for part in said]
        case {"dict": pairs}:
            return dict(map(unpack, pairs))
    return said


def entry_of(facts: Mapping[str, Any]) -> Any:
    """Return the entry of a question, out of its metadata."""
    return unpack(facts["packed"]) if "packed" in facts else facts["entry"]
