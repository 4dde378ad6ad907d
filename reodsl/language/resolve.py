"""Questions about studies that checks and lowering share: which suite an arm has, whether it trains."""

from __future__ import annotations

from reodsl.language.finish import EVALUATION
from reodsl.language.studies import Parts
from reodsl.language.values import Record

WITHOUT_TRAINING = frozenset(
    {"base", "eval", "score", "cluster", "engine", "limit", "seed", "expected_length"}
)
"""The settings of an experiment that a checkpoint has too, which is evaluated as it is."""


def arms_of(study: Record) -> tuple[Record, ...]:
    """The arms of a study."""
    parts: Parts = study.made
    return parts.arms


def is_trained(experiment: Record) -> bool:
    """Whether an experiment trains anything; one that is a checkpoint with a suite does not."""
    return not (experiment.made == EVALUATION and "method" not in experiment.fields)


def own_suite(experiment: Record) -> Record | None:
    """The suite that an experiment names, or the one behind the checkpoint that it evaluates."""
    suite = experiment.sub("eval")
    if suite is not None or is_trained(experiment):
        return suite
    base = experiment.sub("base")
    while base is not None and base.kind in ("checkpoint", "stage_of"):
        base = base.made[0] if base.kind == "stage_of" else base.sub("of")
    return own_suite(base) if base is not None and base.kind == "experiment" else None


def arm_suite(study: Record, arm: Record) -> Record | None:
    """The suite of an arm: its own, else the study's, else the one that all other arms share."""
    own = own_suite(arm.made) or study.sub("eval")
    if own is not None:
        return own
    others = [suite for each in arms_of(study) if (suite := own_suite(each.made)) is not None]
    first = others[0] if others else None
    return first if all(other is first or other == first for other in others) else None


def grid_of(suite: Record | None) -> tuple[int, ...]:
    """The budgets of a suite's grid, each once and increasing, in whichever order they are written."""
    grid = suite.data("grid") if suite is not None else None
    return tuple(sorted(set(grid))) if grid else ()
