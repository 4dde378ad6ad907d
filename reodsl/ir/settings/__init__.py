"""The settings of the language, each declared once: its name, type, unit, range, default and sense.

A kind is a class of annotated settings. The class of the representation that holds them inherits it, and so has them as
fields; the compiler checks specs against `KINDS`, and the reference, completion and JSON Schema are made from the same.
"""

from __future__ import annotations

from reodsl.ir.setting import Kind, kinds_in
from reodsl.ir.settings import data, models, studies, training
from reodsl.ir.settings.training import TRAINING

KINDS: dict[str, Kind] = {
    kind.name: kind for module in (training, models, data, studies) for kind in kinds_in(module)
}

DECLARED = (
    "model", "tokenizer", "task", "traces", "data", "forcing", "wording", "budgets", "reward", "selection", "recipe",
    "experiment", "benchmark", "suite", "cluster", "frontier", "published", "study",
)  # fmt: skip
"""Kinds that stand at the top of a file."""

METRICS = ("train.accuracy", "train.reward", "train.length", "train.loss")
"""What a plateau can watch; the metric is the part after the point."""

__all__ = ["DECLARED", "KINDS", "METRICS", "TRAINING"]
