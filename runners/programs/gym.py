"""Data sets of reasoning-gym by name and options, and their entries as questions hold them.

It is in this package because workers read it: `runners.verify` brings more than the memory that some of them have.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runners.programs.values import unpacked

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


def parts_of(dataset: Any) -> list[Any]:
    """Return a data set with all that it is made of."""
    inside = getattr(dataset, "datasets", None)
    parts = inside.values() if isinstance(inside, dict) else ()
    return [dataset, *(deeper for part in parts for deeper in parts_of(part))]


def entry_of(facts: Mapping[str, Any]) -> Any:
    """Return the entry of a question, out of its metadata."""
    if "packed" not in facts:
        return facts["entry"]
    return unpacked(facts["packed"], lambda number: None)
