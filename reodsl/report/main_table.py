"""The paper's table on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from reodsl.graph.task import parse_role
from reodsl.report import formats, notes, theme
from reodsl.report.markup import Markup, dot, tag
from reodsl.report.material import MEAN, Material, title
from reodsl.report.provenance import anchor
from reodsl.report.results import ALL, CHANGE, Cell, results

HEADS = {
    "accuracy": "Acc (%) ↑",
    "length": "Len ↓",
    "reg": "REG ↓",
    "reg_plain": "REG, plain frontier ↓",
}


def main_table(
    material: Material,
    table: pl.DataFrame,
    arms: Sequence[str] | None = None,
    columns: Sequence[str] = ALL,
    anchors: Mapping[str, str] | None = None,
) -> Markup:
    """Return `tables.main` as an HTML table. Arms outside the frontier (the ones that it judges) are tinted.

    `anchors` are those of `find_first_evaluations`, unless the page has them elsewhere.
    """
    main = results(table, material.arms if arms is None else arms, columns)
    anchors = find_first_evaluations(material) if anchors is None else anchors
    colours = material.colours
    kinds = theme.dashes(colours)
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    near = notes.nearly(material.study)
    change = CHANGE if baseline is None else f"REG − {baseline}'s"
    heads = {"difference": f"{change} ↓"}
    heads |= {name: near * name.startswith("reg") + head for name, head in HEADS.items()}
    shown = [(place, column) for place, names in main.columns.items() for column in names]
    starts = {(place, names[0]) for place, names in main.columns.items() if names}
    body = []
    for arm, cells in main.rows.items():
        head = tag(
            "th",
            dot(colours[arm], kinds[arm]),
            arm,
            tag("span", "baseline", class_="tag") if arm == baseline else None,
            class_="name fixed",
            scope="row",
            role="rowheader",
            title=arm,
        )
        data = [
            number(
                cell,
                first=(cell.place, cell.column) in starts,
                label=f"{title(cell.place)} {heads.get(cell.column, cell.column)}",
                made_at=anchors.get(arm if cell.column in ("accuracy", "length") else ""),
            )
            for cell in cells
        ]
        judged = bool(material.framed) and arm not in material.framed
        body.append(tag("tr", head, data, class_="own" if judged else None, role="row"))
    groups = [
        tag(
            "th",
            title(place),
            colspan=len(names),
            class_="edge fixed" if place == MEAN else "edge",
            scope="colgroup",
        )
        for place, names in main.columns.items()
    ]
    named = [
        tag(
            "th",
            heads.get(column, column),
            class_=_looks(edge=(place, column) in starts, fixed=place == MEAN, tight=column == "reg_plain"),
            scope="col",
        )
        for place, column in shown
    ]
    top = (
        [tag("tr", tag("th", "arm", class_="name fixed"), named, class_="only")]
        if len(groups) == 1
        else [
            tag("tr", tag("td", "", class_="name fixed"), groups),
            tag("tr", tag("th", "arm", class_="name fixed", scope="col"), named),
        ]
    )
    whole = tag(
        "table", tag("thead", top), tag("tbody", body, role="rowgroup"), class_="results", role="table"
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="Results by arm")


def number(cell: Cell, *, first: bool, label: str = "", made_at: str | None = None) -> Markup:
    """Return one cell of the page: its value, which leads to how it was made, and its change and interval.

    `label` names it where the table is shown as a list.
    """
    empty = cell.text == formats.NONE
    lead = cell.column == "difference"
    text = tag("b", cell.text, class_=cell.tone or None) if lead and not empty else cell.text
    tone = "" if lead else cell.tone
    return tag(
        "td",
        tag("a", text, href=f"#{made_at}", class_="made") if made_at and not empty else text,
        tag("span", cell.change, class_=f"up {tone}".strip()) if cell.change else None,
        tag("small", cell.around) if cell.around and cell.roomy else None,
        class_=_looks(edge=first, fixed=cell.place == MEAN),
        title=cell.about or None,
        data_label=label or None,
        role="cell",
    )


def find_first_evaluations(material: Material, label: str = "") -> dict[str, str]:
    """Map each arm to the place on the page where its first evaluation is explained, and `` to that of the score.

    `label` is that of the run, on a page of several.
    """
    anchors: dict[str, str] = {}
    for place, role in enumerate(map(parse_role, material.artifacts)):
        if role.kind in ("evaluate", "score"):
            anchors.setdefault(role.name if role.kind == "evaluate" else "", anchor(place, label))
    return anchors


def _looks(**names: bool) -> str | None:
    """Return the classes that hold."""
    return " ".join(name for name, holds in names.items() if holds) or None
