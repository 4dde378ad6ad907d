"""Work of tasks as lowering makes it, out of the JSON that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reodsl.ir import IR
from reodsl.ir.data import Data, Grading
from reodsl.ir.model import Model
from reodsl.ir.reward import Measure, OracleBudgets, QuestionBudgets, Selection
from reodsl.ir.study import Frontier, Score, Suite
from reodsl.ir.training import FromResults, Sampling, Stage

PARTS: dict[str, type[IR]] = {
    "base": FromResults, "data": Data, "frontier": Frontier, "grading": Grading, "model": Model,
    "rollout": Sampling, "score": Score, "selection": Selection, "stage": Stage, "suite": Suite,
}  # fmt: skip


def work_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a payload as values of the representation; those that are values already stay."""
    work = dict(payload)
    for name, each in payload.items():
        if name == "measures":
            work[name] = tuple(Measure.model_validate(one) for one in each)
        elif name == "split" and isinstance(each, Mapping):
            kind = OracleBudgets if each["kind"] == "oracle" else QuestionBudgets
            work[name] = kind.model_validate(each)
        elif name in PARTS and isinstance(each, Mapping) and not (name == "suite" and "forced" in each):
            work[name] = PARTS[name].model_validate(each)
    return work
