"""The headline: what each judged arm gains over the baseline, as cards; computed, never written by hand."""

from __future__ import annotations

from typing import Any

import polars as pl

from reodsl.ir.study import Score
from reodsl.report import formats, notes
from reodsl.report.main_table import spread
from reodsl.report.markup import Markup, tag
from reodsl.report.material import MEAN, Material

MOST_CARDS = 4


def headline_arms(material: Material, table: pl.DataFrame) -> list[str]:
    """The arms that the frontier judges, smallest mean REG first; without any, the best arms beside the baseline."""
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    rows = table.filter((pl.col("benchmark") == MEAN) & (pl.col("arm") != (baseline or "")))
    judged = rows.filter(~pl.col("arm").is_in(list(material.framed))) if material.framed else rows.clear()
    chosen = judged if judged.height else rows
    if "reg" in chosen.columns:
        chosen = chosen.sort("reg", nulls_last=True, maintain_order=True)
    return chosen["arm"].head(MOST_CARDS).to_list()


def cards(material: Material, table: pl.DataFrame) -> Markup | None:
    """A card an arm: REG's difference from the baseline in large, then accuracy, length and REG; nothing without a score."""
    score = material.study.score
    if score is None or "reg" not in table.columns:
        return None
    colour = material.colours
    rows = {row["arm"]: row for row in table.filter(pl.col("benchmark") == MEAN).to_dicts()}
    shown = [
        _card(rows[arm], colour[arm], score, notes.nearly(material.study))
        for arm in headline_arms(material, table)
    ]
    return tag("div", shown, class_="cards") if shown else None


def _card(row: dict[str, Any], colour: str, score: Score, near: str) -> Markup:
    """REG's difference from the baseline leads, in tokens; in percent only where the baseline's own is apart from 0."""
    baseline, confidence = score.relative_to, score.confidence
    change, low, high = (row.get(f"difference{end}") for end in ("", "_low", "_high"))
    if baseline is not None and change is not None:
        marked = formats.starred(row, "difference")
        big: list[str] = [
            tag(
                "span",
                formats.difference(row),
                class_=("good" if change < 0 else "bad") if marked else None,
            ),
            tag("small", " tokens of REG against ", baseline),
        ]
    else:
        big = [near + formats.number(row.get("reg")), tag("small", " tokens of REG")]
        low, high = row.get("reg_low"), row.get("reg_high")
    if low is not None and high is not None:
        ends = f"{100 * confidence:g}% interval {formats.number(low)} to {formats.number(high)}"
        percent = row.get("change_pct")
        ends += "" if percent is None else f"; {formats.signed(percent, 0)}%"
        big.append(tag("small", ends, class_="ends"))
    accuracy, length = row.get("accuracy_change"), row.get("length_pct")
    apart = formats.starred(row, "accuracy_change")
    return tag(
        "div",
        tag("h2", tag("span", class_="dot", style=f"background:{colour}"), row["arm"]),
        tag(
            "dl",
            tag("dd", big, class_="big"),
            _line(
                "accuracy",
                formats.percent(row["accuracy"]) + "%",
                _points(accuracy) + (formats.APART if apart else ""),
                spread(row, "accuracy", 100.0),
            ),
            _line("length", formats.number(row["length"]), _relative(length), spread(row, "length")),
            _line(f"{near}REG", formats.number(row.get("reg")), "", spread(row, "reg")),
        ),
        class_="card",
    )


def _line(name: str, value: str, change: str, spread_text: str) -> list[Markup]:
    small = " · ".join(text for text in (change, spread_text) if text)
    return [tag("dt", name), tag("dd", value), tag("dd", small, class_="quiet")]


def _points(change: float | None) -> str:
    return "" if change is None else f"{formats.signed(100 * change)} points"


def _relative(change: float | None) -> str:
    return "" if change is None else f"{formats.signed(change, 0)}%"
