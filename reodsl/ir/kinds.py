"""The table of kinds: every record type of the language, made from the classes that declare its settings."""

from __future__ import annotations

from reodsl.ir import cluster, data, model, study, task, training, wording
from reodsl.ir.setting import Kind, kinds_in

KINDS: dict[str, Kind] = {
    kind.name: kind
    for module in (training, model, wording, data, task, study, cluster)
    for kind in kinds_in(module)
}

DECLARED = (
    "model", "tokenizer", "task", "traces", "data", "forcing", "wording", "budgets", "reward", "selection", "measure",
    "recipe", "experiment", "benchmark", "suite", "cluster", "frontier", "published", "study",
)  # fmt: skip
"""Kinds that stand at the top of a file."""

FORMULAS = ("reward", "selection", "measure")
"""Kinds whose braces hold formulas over responses, and which take parameters of their own."""

METRICS = ("train.accuracy", "train.reward", "train.length", "train.loss")
"""The metrics that a plateau can watch, each the part after the point."""
