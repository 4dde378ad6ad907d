"""Warn of arms that learned nothing."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import Diagnostic, warning

_NAMED = 12


def unlearnt(folder: Path) -> list[Diagnostic]:
    """A warning (W0803) of stages in which no question's responses ever earned differently. Unreadable ones are none."""
    idle = [
        (arm, stage, count, silent)
        for arm in sorted(path for path in (folder / "arms").glob("*") if path.is_dir())
        for stage, count, silent in _stages(arm)
    ]
    if not idle:
        return []
    names = [f"`{arm.name}`" + (f", stage {stage + 1}" if count > 1 else "") for arm, stage, count, _ in idle]
    listed = "; ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    remedy = (
        "most responses have no answer where one is looked for: say where it stands by `answer` in the data"
        if all(silent for *_, silent in idle)
        else "begin from a model that is sometimes right, take easier questions or more `rollouts`, "
        "or let responses be longer"
    )
    return [
        warning(
            "W0803",
            f"nothing was learned in {listed}: at every step, all responses to a question earned the same",
            where=str(idle[0][0]) if len(idle) == 1 else str(folder / "arms"),
            help=remedy,
        )
    ]


def _stages(arm: Path) -> list[tuple[int, int, bool]]:
    """The positions of an arm's stages without any advantage, with how many stages there are, and whether most of the
    stage's responses that ended held no answer."""
    import polars as pl

    from reodsl.report.unanswered import FEW_ANSWERED

    metrics = sorted((arm / "stages").glob("*/metrics.parquet"))
    idle = []
    for path in metrics:
        try:
            table = pl.read_parquet(path, glob=False)
            equal = table["equal_groups"]
        except (OSError, pl.exceptions.PolarsError):
            continue
        if len(equal) and equal.null_count() == 0 and bool((equal >= 1).all()):
            answered = float(table["answered"].mean() or 0) if "answered" in table.columns else 1.0  # type: ignore[arg-type]
            idle.append((int(path.parent.name), len(metrics), answered < FEW_ANSWERED))
    return idle
