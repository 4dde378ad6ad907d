"""Data sets of reasoning-gym, and their entries as JSON that preserves tuples, because some scorers reject lists."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

COMPOSITE = "composite"
"""A task that combines other tasks; its option `datasets` has their names, weights and configurations."""


def create_dataset(task: str, size: int, seed: int, options: Mapping[str, Any]) -> Any:
    """Return a data set of the package reasoning-gym.

    Args:
        task: The name of the task.
        size: The number of questions.
        seed: The seed of the questions.
        options: The task's options in the spec.

    Raises:
        Exception: The package's exceptions for unsuitable options.
    """
    gym: Any = import_module("reasoning_gym")
    config = dict(options)
    if task == COMPOSITE and isinstance(config.get("datasets"), list):
        cls = import_module("reasoning_gym.composite").DatasetSpec
        config["datasets"] = [cls(**{"weight": 1.0, "config": {}, **spec}) for spec in config["datasets"]]
    return gym.create_dataset(task, size=size, seed=seed, **config)


def pack(value: Any) -> Any:
    """Return a value as JSON from which `unpack` restores it.

    A tuple becomes `{"tuple": items}`. A dict becomes `{"dict": pairs}`, because JSON would turn keys that are numbers
    into texts.
    """
    match value:
        case tuple():
            return {"tuple": [pack(item) for item in value]}
        case list():
            return [pack(item) for item in value]
        case dict():
            return {"dict": [[pack(item) for item in pair] for pair in value.items()]}
    return value


def unpack(value: Any) -> Any:
    """Return the value from which `pack` made a JSON value."""
    match value:
        case {"tuple": parts}:
            return tuple(map(unpack, parts))
        case list():
            return [unpack(item) for item in value]
        case {"dict": pairs}:
            return dict(map(unpack, pairs))
    return value


def entry_of(facts: Mapping[str, Any]) -> Any:
    """Return the reasoning-gym entry in a question's metadata: `packed` restored by `unpack`, else `entry` as it is."""
    return unpack(facts["packed"]) if "packed" in facts else facts["entry"]
