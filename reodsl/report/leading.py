"""Which arms charts show, where there are more than can be told apart: those that are asked for, then the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from reodsl.report import theme
from reodsl.report.markup import Markup, tag
from reodsl.report.material import MEAN, Material

MOST = len(theme.COLOURS) * len(theme.DASHES)
"""Arms in a chart: as many as have a look of their own."""


def leading(material: Material, table: pl.DataFrame) -> tuple[str, ...]:
    """Return the arms that charts show, in the study's order; none where they show all. `table` is `tables.main`.

    First the lines that the spec's charts name and the arm that scores are relative to, then some where others start, then
    those of the least REG, or of the highest accuracy where nothing is scored.
    """
    arms = material.drawn
    if len(arms) <= MOST:
        return ()
    study = material.study
    asked = [name for chart in study.charts if len(chart.lines) <= MOST for name in chart.lines]
    if study.score is not None and study.score.relative_to is not None:
        asked.append(study.score.relative_to)
    chosen = dict.fromkeys(name for name in asked if name in arms)
    for name in (*material.bases[: MOST // 4], *best(table), *arms):
        if len(chosen) >= MOST:
            break
        if name in arms:
            chosen[name] = None
    return tuple(name for name in arms if name in chosen)


def best(table: pl.DataFrame) -> list[str]:
    """Return the arms of `tables.main`, those of the least REG first, or of the highest accuracy where nothing is scored."""
    means = table.filter(pl.col("benchmark") == MEAN)
    scored = "reg" in means.columns and means["reg"].drop_nulls().len() > 0
    by = "reg" if scored else "accuracy"
    return means.sort(by, descending=not scored, nulls_last=True, maintain_order=True)["arm"].to_list()


def only(material: Material, arms: Sequence[str]) -> Material:
    """Return a report's material with these arms alone; the frontiers are still those of all."""
    kept = set(arms)

    def of(frame: pl.DataFrame, column: str = "arm") -> pl.DataFrame:
        return frame.filter(pl.col(column).is_in(list(arms))) if column in frame.columns else frame

    return replace(
        material,
        curves=of(material.curves, "name"),
        summary=of(material.summary),
        scores=of(material.scores),
        metrics=of(material.metrics),
        selections=of(material.selections),
        evaluations={key: folder for key, folder in material.evaluations.items() if key[0] in kept},
        trainings={key: folder for key, folder in material.trainings.items() if key[0] in kept},
    )


def left_out(material: Material, shown: Sequence[str]) -> Markup | None:
    """Return a note on the arms that charts do not show, and how to see them; nothing if they show all."""
    if not shown:
        return None
    best = "least REG" if material.study.score is not None else "highest accuracy"
    words = (
        f"Charts show {len(shown)} of {len(material.drawn)} arms: those that the spec's charts name, some where others "
        f"start, and those of the {best}. Tables have all. To draw others, name up to {MOST} in the spec: "
    )
    return tag("p", words, tag("code", "report { chart some { lines = [a, b] } }"), ".", class_="about")
