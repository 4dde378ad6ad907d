"""The paper's table as markup: accuracy, length and REG by benchmark and on average, with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import polars as pl

from reodsl.graph.identity import parse_role
from reodsl.report import formats, notes, theme
from reodsl.report.markup import Markup, dot, tag
from reodsl.report.material import MEAN, Material, title
from reodsl.report.provenance import anchor

Column = Literal["accuracy", "length", "reg"]
Shown = Literal["difference", "accuracy", "length", "reg", "reg_plain"]
Named = TypeVar("Named", bound=str)
CHANGE = "change of REG"
"""The head of differences where each method is compared with itself, and not with a baseline."""
HEADS: dict[str, str] = {"accuracy": "Acc (%) ↑", "length": "Len ↓", "reg": "REG ↓"}


def places(table: pl.DataFrame) -> tuple[str, ...]:
    """The column groups: each benchmark and the average, or the average alone where there is one benchmark."""
    names = table["benchmark"].unique(maintain_order=True).to_list()
    benchmarks = [name for name in names if name != MEAN]
    return (*benchmarks, MEAN) if len(benchmarks) > 1 else (MEAN,)


def ordered_places(table: pl.DataFrame) -> tuple[str, ...]:
    """The column groups as the page has them: the average first, which stays while the benchmarks are scrolled."""
    columns = places(table)
    return (columns[-1], *columns[:-1])


def shown_columns(table: pl.DataFrame, columns: Sequence[Named]) -> tuple[Named, ...]:
    """The wanted columns that there is anything to show for."""
    return tuple(c for c in columns if c in table.columns and table[c].drop_nulls().len())


def columns_of(table: pl.DataFrame, place: str, wanted: Sequence[Column]) -> tuple[Shown, ...]:
    """The columns of a group. On average the difference of REG comes first, and REG is against both frontiers."""
    shown = shown_columns(table, wanted)
    if place != MEAN or "reg" not in wanted:
        return tuple(shown)
    known = [
        name
        for name in ("difference", "reg_plain")
        if name in table.columns and table[name].drop_nulls().len()
    ]
    first: tuple[Shown, ...] = ("difference",) if "difference" in known else ()
    last: tuple[Shown, ...] = ("reg_plain",) if "reg_plain" in known else ()
    return (*first, *shown, *last)


def main_table(
    material: Material,
    table: pl.DataFrame,
    rows: Sequence[str] | None = None,
    columns: Sequence[Column] = ("accuracy", "length", "reg"),
    anchors: Mapping[str, str] | None = None,
) -> Markup:
    """`tables.main` as an HTML table. Arms outside the frontier (the ones that it judges) are tinted.

    `anchors` are `made_by` of the material, unless the page has them elsewhere.
    """
    groups = ordered_places(table)
    anchors = made_by(material) if anchors is None else anchors
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    colour = material.colours
    kinds = theme.dashes(colour)
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    change = CHANGE if baseline is None else f"REG − {baseline}'s"
    called = HEADS | {"difference": f"{change} ↓", "reg_plain": "REG, plain frontier ↓"}
    near = notes.nearly(material.study)
    called |= {name: near + called[name] for name in ("reg", "reg_plain")}
    body = []
    for arm in material.arms if rows is None else [name for name in rows if name in material.arms]:
        judged = bool(material.framed) and arm not in material.framed
        head = tag(
            "th",
            dot(colour[arm], kinds[arm]),
            arm,
            tag("span", "baseline", class_="tag") if arm == baseline else None,
            class_="name fixed",
            scope="row",
            role="rowheader",
            title=arm,
        )
        data = [
            cell(
                cells.get((arm, place), {}),
                column,
                first=i == 0,
                roomy=place == MEAN or len(groups) < 3,
                label=f"{title(place)} {called[column]}",
                fixed=place == MEAN,
                made_at=anchors.get("" if column in ("reg", "reg_plain", "difference") else arm),
            )
            for place in groups
            for i, column in enumerate(columns_of(table, place, columns))
        ]
        body.append(tag("tr", head, data, class_="own" if judged else None, role="row"))
    names = [
        tag(
            "th",
            title(p),
            colspan=len(columns_of(table, p, columns)),
            class_="edge fixed" if p == MEAN else "edge",
            scope="colgroup",
        )
        for p in groups
    ]
    heads = [
        tag(
            "th",
            called[c],
            class_=" ".join(["edge"] * (i == 0) + ["fixed"] * (p == MEAN) + ["tight"] * (c == "reg_plain"))
            or None,
            scope="col",
        )
        for p in groups
        for i, c in enumerate(columns_of(table, p, columns))
    ]
    top = (
        [tag("tr", tag("th", "arm", class_="name fixed"), heads, class_="only")]
        if len(groups) == 1
        else [
            tag("tr", tag("td", "", class_="name fixed"), names),
            tag("tr", tag("th", "arm", class_="name fixed", scope="col"), heads),
        ]
    )
    whole = tag(
        "table", tag("thead", top), tag("tbody", body, role="rowgroup"), class_="results", role="table"
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="Results by arm")


def made_by(material: Material, label: str = "") -> dict[str, str]:
    """Where the page says how a number was made: by arm that of its first evaluation, under `` that of the score.

    `label` is that of the run, on a page of several.
    """
    anchors: dict[str, str] = {}
    for place, role in enumerate(material.artifacts):
        kind, name = parse_role(role).kind, parse_role(role).name
        if kind in ("evaluate", "score"):
            anchors.setdefault(name if kind == "evaluate" else "", anchor(place, label))
    return anchors


def cell(
    row: Mapping[str, Any],
    column: Shown,
    *,
    first: bool,
    roomy: bool,
    label: str = "",
    fixed: bool = False,
    made_at: str | None = None,
) -> Markup:
    """One cell: the value and its difference from the baseline, marked where it is apart from 0, and green for the better.

    The interval stands below where there is room, else it shows when pointed at. The column of differences has the change
    in percent beside it, where that means something. The value leads to how it was made; `label` names it where the
    table is shown as a list.
    """
    scale = 100.0 if column == "accuracy" else 1.0
    # The name of a measure's difference. On average REG's has a column of its own, and lengths' would only add noise.
    stem = {
        "accuracy": "accuracy_change",
        "reg": "" if roomy else "difference",
        "difference": "difference",
    }.get(column, "")
    change, low, high = (
        (row.get(f"{stem}{end}") for end in ("", "_low", "_high")) if stem else (None, None, None)
    )
    marked = formats.starred(row, stem)
    better = change is not None and (change > 0 if column == "accuracy" else change < 0)
    tone = ("good" if better else "bad") if marked else ""
    if column == "difference":
        text, delta = formats.difference(row), formats.arrow(row.get("change_pct"), unit="%")
    else:
        value = row.get(column)
        text = formats.percent(value) if column == "accuracy" else formats.number(value)
        delta = formats.arrow(None if change is None else scale * change) + (formats.APART if marked else "")
    around = spread(row, column, scale)
    about = around
    if stem and column != "difference" and change is not None:
        about = f"{around}; {formats.signed(scale * change)} {interval_text(low, high, scale)}".strip("; ")
    shown = tag("b", text, class_=tone or None) if column == "difference" and text != formats.NONE else text
    return tag(
        "td",
        tag("a", shown, href=f"#{made_at}", class_="made") if made_at and text != formats.NONE else shown,
        tag("span", delta, class_=f"up {tone if column != 'difference' else ''}".strip()) if delta else None,
        tag("small", around) if around and roomy else None,
        class_=" ".join(["edge"] * first + ["fixed"] * fixed) or None,
        title=about or None,
        data_label=label or None,
        role="cell",
    )


def spread(row: Mapping[str, Any], column: str, scale: float = 1.0) -> str:
    """The interval, or `±0.6` over seeds where nothing is scored."""
    low, high, sd = (row.get(f"{column}_{end}") for end in ("low", "high", "sd"))
    if low is not None and high is not None:
        return interval_text(low, high, scale)
    # Of REG against the plain frontier there is no interval: none would hold what it estimates as often as it says.
    return formats.spread(None if sd is None or column == "reg_plain" else scale * sd)


def interval_text(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """`[0.9, 1.4]` in the unit that is shown."""
    return formats.interval(None if low is None else scale * low, None if high is None else scale * high)
