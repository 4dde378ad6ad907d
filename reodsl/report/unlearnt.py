"""Arms that learned from nothing: a run's folder in, one warning that names them out."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import Diagnostic, warning

_NAMED = 12


def unlearnt(folder: Path) -> list[Diagnostic]:
    """A warning (W0803) of stages in which no question's responses ever earned differently. Unreadable ones are none."""
    found = [
        (arm, stage, count)
        for arm in sorted(path for path in (folder / "arms").glob("*") if path.is_dir())
        for stage, count in _stages(arm)
    ]
    if not found:
        return []
    names = [f"`{arm.name}`" + (f", stage {stage + 1}" if count > 1 else "") for arm, stage, count in found]
    listed = "; ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return [
        warning(
            "W0803",
            f"nothing was learned in {listed}: at every step, all responses to a question earned the same",
            where=str(found[0][0]) if len(found) == 1 else str(folder / "arms"),
            help="begin from a model that is sometimes right, take easier questions or more `rollouts`, "
            "or let responses be longer",
        )
    ]


def _stages(arm: Path) -> list[tuple[int, int]]:
    """The positions of an arm's stages without any advantage, each with how many stages there are."""
    import polars as pl

    metrics = sorted((arm / "stages").glob("*/metrics.parquet"))
    found = []
    for path in metrics:
        try:
            equal = pl.read_parquet(path, columns=["equal_groups"])["equal_groups"]
        except (OSError, pl.exceptions.PolarsError):
            continue
        if len(equal) and equal.null_count() == 0 and bool((equal >= 1).all()):
            found.append((int(path.parent.name), len(metrics)))
    return found
