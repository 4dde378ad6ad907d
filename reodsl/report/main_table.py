"""The paper's table on the page, whose script offers it as text to copy: LaTeX, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from reodsl.graph.task import parse_role
from reodsl.report import formats
from reodsl.report.markup import Markup, name_cell, samples, tag
from reodsl.report.material import MEAN, Material, title
from reodsl.report.provenance import anchor
from reodsl.report.results import ALL, Cell, name_columns, results

HEADS = {"accuracy": "Acc (%) ↑", "length": "Len ↓", "reg": "REG ↓", "reg_plain": "REG, plain frontier ↓"}


def main_table(
    material: Material, table: pl.DataFrame, arms: Collection[str] | None = None, columns: Sequence[str] = ALL
) -> Markup:
    """Return `tables.main` as an HTML table in the order of the page, with a tint for arms outside of the frontier.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        arms: names of arms; None for all.
        columns: names of columns: the built-in ones and the study's measures.
    """
    main = results(table, [arm for arm in material.arms if arms is None or arm in arms], columns)
    anchors = find_first_evaluations(material)
    marks = samples(material.colours)
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    heads = name_columns(material.study, HEADS, " ↓")
    group_columns = [(benchmark, column) for benchmark, names in main.columns.items() for column in names]
    group_starts = {(benchmark, names[0]) for benchmark, names in main.columns.items() if names}
    body = []
    for arm, cells in main.rows.items():
        note = "baseline" if arm == baseline else None
        head = name_cell(arm, marks[arm], note, class_="name fixed", role="rowheader")
        data = [
            number(
                cell,
                first=(cell.benchmark, cell.column) in group_starts,
                label=f"{title(cell.benchmark)} {heads.get(cell.column, cell.column)}",
                made_at=anchors.get(arm if cell.column in ("accuracy", "length") else ""),
            )
            for cell in cells
        ]
        is_outside = bool(material.frontier_arms) and arm not in material.frontier_arms
        body.append(tag("tr", head, data, class_="own" if is_outside else None, role="row"))
    groups = [
        tag(
            "th",
            title(benchmark),
            colspan=len(names),
            class_="edge fixed" if benchmark == MEAN else "edge",
            scope="colgroup",
        )
        for benchmark, names in main.columns.items()
    ]
    column_heads = [
        tag(
            "th",
            heads.get(column, column),
            class_=_looks(
                edge=(benchmark, column) in group_starts, fixed=benchmark == MEAN, tight=column == "reg_plain"
            ),
            scope="col",
        )
        for benchmark, column in group_columns
    ]
    top = (
        [tag("tr", tag("th", "arm", class_="name fixed"), column_heads, class_="only")]
        if len(groups) == 1
        else [
            tag("tr", tag("td", "", class_="name fixed"), groups),
            tag("tr", tag("th", "arm", class_="name fixed", scope="col"), column_heads),
        ]
    )
    element = tag(
        "table", tag("thead", top), tag("tbody", body, role="rowgroup"), class_="results", role="table"
    )
    return tag("div", element, class_="scroll", tabindex="0", role="region", aria_label="Results by arm")


def number(cell: Cell, *, first: bool, label: str = "", made_at: str | None = None) -> Markup:
    """Return a cell as HTML: its value, linked to the result that it comes from, its change and its interval.

    Args:
        cell: value and texts.
        first: whether the cell begins a group of columns.
        label: name of the column, for narrow screens that show the table as a list.
        made_at: id of the result's row on the page; None for no link.
    """
    empty = cell.text == formats.NONE
    is_difference = cell.column == "difference"
    text = tag("b", cell.text, class_=cell.tone or None) if is_difference and not empty else cell.text
    tone = "" if is_difference else cell.tone
    return tag(
        "td",
        tag("a", text, href=f"#{made_at}", class_="made") if made_at and not empty else text,
        tag("span", cell.change, class_=f"up {tone}".strip()) if cell.change else None,
        tag("small", cell.interval_text) if cell.interval_text and cell.roomy else None,
        class_=_looks(edge=first, fixed=cell.benchmark == MEAN),
        title=cell.about or None,
        data_label=label or None,
        data_interval=cell.interval_text or None,
        role="cell",
    )


def find_first_evaluations(material: Material) -> dict[str, str]:
    """Return the HTML id of the table row, further down on the page, that describes each arm's first evaluation.

    Returns:
        Ids by the arm's name; the key `""` has the id of the score's row.
    """
    anchors: dict[str, str] = {}
    for index, role in enumerate(map(parse_role, material.artifacts)):
        if role.kind in ("evaluate", "score"):
            anchors.setdefault(role.name if role.kind == "evaluate" else "", anchor(index))
    return anchors


def _looks(**names: bool) -> str | None:
    """Return the names of the CSS classes that are true, joined by spaces; None without any."""
    return " ".join(name for name, holds in names.items() if holds) or None
