"""The paper's table as markup: accuracy, length and REG by benchmark and on average, with changes from the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from reodsl.report import formats, theme
from reodsl.report.markup import Markup, tag
from reodsl.report.material import MEAN, Material, title

Column = Literal["accuracy", "length", "reg"]
HEADS: dict[Column, str] = {"accuracy": "Acc (%) ↑", "length": "Len ↓", "reg": "REG ↓"}


def places(table: pl.DataFrame) -> tuple[str, ...]:
    """The column groups: each benchmark and the average, or the average alone where there is one benchmark."""
    names = table["benchmark"].unique(maintain_order=True).to_list()
    benchmarks = [name for name in names if name != MEAN]
    return (*benchmarks, MEAN) if len(benchmarks) > 1 else (MEAN,)


def shown_columns(table: pl.DataFrame, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The wanted columns that there is anything to show for."""
    return tuple(c for c in columns if c in table.columns and table[c].drop_nulls().len())


def main_table(
    material: Material,
    table: pl.DataFrame,
    rows: Sequence[str] | None = None,
    columns: Sequence[Column] = tuple(HEADS),
) -> Markup:
    """`tables.main` as an HTML table. Arms outside the frontier (the ones that it judges) are tinted."""
    shown = shown_columns(table, columns)
    groups = places(table)
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    colour = theme.colours(material.arms, material.bases)
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    body = []
    for arm in material.arms if rows is None else [name for name in rows if name in material.arms]:
        judged = bool(material.framed) and arm not in material.framed
        head = tag(
            "th",
            tag("span", class_="dot", style=f"background:{colour[arm]}"),
            arm,
            tag("span", "baseline", class_="tag") if arm == baseline else None,
            class_="name",
            scope="row",
            title=arm,
        )
        data = [
            cell(cells.get((arm, place), {}), column, first=i == 0, roomy=place == MEAN or len(groups) < 3)
            for place in groups
            for i, column in enumerate(shown)
        ]
        body.append(tag("tr", head, data, class_="own" if judged else None))
    names = [tag("th", title(p), colspan=len(shown), class_="edge", scope="colgroup") for p in groups]
    heads = [
        tag("th", HEADS[c], class_="edge" if i == 0 else None, scope="col")
        for _ in groups
        for i, c in enumerate(shown)
    ]
    top = (
        [tag("tr", tag("th", "arm", class_="name"), heads, class_="only")]
        if len(groups) == 1
        else [
            tag("tr", tag("th", "", class_="name"), names),
            tag("tr", tag("th", "arm", class_="name"), heads),
        ]
    )
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_="scroll", tabindex="0")


def cell(row: Mapping[str, Any], column: Column, *, first: bool, roomy: bool) -> Markup:
    """One cell: the value and its change from the baseline, green where it is for the better.

    The spread stands below where there is room, else it shows when pointed at.
    """
    value = row.get(column)
    if column == "accuracy":
        change = row.get("accuracy_change")
        text, delta = formats.percent(value), formats.arrow(None if change is None else 100 * change)
        scale, better = 100.0, change is not None and change > 0
    else:
        change = row.get("length_pct" if column == "length" else "change_pct")
        # The paper prints lengths without their change; a difference of a few percent would only add noise.
        text, delta = formats.number(value), "" if column == "length" else formats.arrow(change, unit="%")
        scale, better = 1.0, change is not None and change < 0
    tone = ("good" if better else "bad") if change is not None and delta[:1] in ("↑", "↓") else ""
    around = spread(row, column, scale)
    return tag(
        "td",
        text,
        tag("span", delta, class_=f"up {tone}".strip()) if delta else None,
        tag("small", around) if around and roomy else None,
        class_="edge" if first else None,
        title=around or None,
    )


def spread(row: Mapping[str, Any], column: str, scale: float = 1.0) -> str:
    """`±0.6` over seeds, or the bootstrap interval with one."""
    sd, low, high = (row.get(f"{column}_{end}") for end in ("sd", "low", "high"))
    if sd is not None:
        return formats.spread(scale * sd)
    return formats.interval(None if low is None else scale * low, None if high is None else scale * high)
