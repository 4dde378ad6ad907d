"""Data sets of reasoning-gym, and their entries as JSON that keeps tuples: some scorers read no lists in their place."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

COMPOSITE = "composite"
"""A task that is made of others: `datasets` are their names, weights and configurations."""


def create_dataset(task: str, size: int, seed: int, options: Mapping[str, Any]) -> Any:
    """Return a data set with the options of a spec. Raises what the package raises for options that do not fit."""
    gym: Any = import_module("reasoning_gym")
    config = dict(options)
    if task == COMPOSITE and isinstance(config.get("datasets"), list):
        kind = import_module("reasoning_gym.composite").DatasetSpec
        config["datasets"] = [kind(**{"weight": 1.0, "config": {}, **spec}) for spec in config["datasets"]]
    return gym.create_dataset(task, size=size, seed=seed, **config)


def pack(value: Any) -> Any:
    """Return a value with tagged tuples, and with records as pairs, since their keys may be numbers."""
    match value:
        case tuple():
            return {"tuple": [pack(item) for item in value]}
        case list():
            return [pack(item) for item in value]
        case dict():
            return {"dict": [[pack(item) for item in pair] for pair in value.items()]}
    return value


def unpack(value: Any) -> Any:
    """Return the value that was packed."""
    match value:
        case {"tuple": parts}:
            return tuple(map(unpack, parts))
        case list():
            return [unpack(item) for item in value]
        case {"dict": pairs}:
            return dict(map(unpack, pairs))
    return value


def entry_of(facts: Mapping[str, Any]) -> Any:
    """Return the entry of a question from its metadata."""
    return unpack(facts["packed"]) if "packed" in facts else facts["entry"]
