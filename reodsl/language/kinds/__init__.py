"""The table of kinds: every record of the language with its settings, their types, defaults and sense."""

from __future__ import annotations

from reodsl.language.kinds.data import KINDS_OF_DATA
from reodsl.language.kinds.models import KINDS_OF_MODELS
from reodsl.language.kinds.studies import KINDS_OF_STUDIES
from reodsl.language.kinds.training import KINDS_OF_TRAINING, TRAINING
from reodsl.language.schema import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (*KINDS_OF_TRAINING, *KINDS_OF_MODELS, *KINDS_OF_DATA, *KINDS_OF_STUDIES)
}

DECLARED = (
    "model", "tokenizer", "task", "traces", "data", "forcing", "wording", "budgets", "reward", "selection", "recipe",
    "experiment", "benchmark", "suite", "cluster", "frontier", "published", "study",
)  # fmt: skip
"""Kinds that stand at the top of a file."""

METRICS = ("train.accuracy", "train.reward", "train.length", "train.loss")
"""What a plateau can watch; the metric is the part after the point."""

__all__ = ["DECLARED", "KINDS", "METRICS", "TRAINING"]
