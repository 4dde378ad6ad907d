"""The paper's table on the page, and as text to copy: LaTeX, Markdown and CSV, with the numbers and marks of the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import polars as pl

from reodsl.graph.task import parse_role
from reodsl.report import formats, theme
from reodsl.report.markup import Markup, dot, tag
from reodsl.report.material import MEAN, Material, title
from reodsl.report.provenance import anchor
from reodsl.report.results import ALL, Cell, name_columns, results

HEADS = {"accuracy": "Acc (%) ↑", "length": "Len ↓", "reg": "REG ↓", "reg_plain": "REG, plain frontier ↓"}


def main_table(
    material: Material, table: pl.DataFrame, arms: Sequence[str] | None = None, columns: Sequence[str] = ALL
) -> Markup:
    """Return `tables.main` as an HTML table, with a tint for arms that do not belong to the frontier.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        arms: names of arms in order; None for all.
        columns: names of columns: the built-in ones and the study's measures.
    """
    main = results(table, material.arms if arms is None else arms, columns)
    anchors = find_first_evaluations(material)
    colours = material.colours
    dash_indices = theme.dashes(colours)
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    heads = name_columns(material.study, HEADS, " ↓")
    group_columns = [(benchmark, column) for benchmark, names in main.columns.items() for column in names]
    group_starts = {(benchmark, names[0]) for benchmark, names in main.columns.items() if names}
    body = []
    for arm, cells in main.rows.items():
        head = tag(
            "th",
            dot(colours[arm], dash_indices[arm]),
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


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}
_HEADS = {"accuracy": "Acc (%)", "length": "Len", "reg": "REG", "reg_plain": "REG (plain)"}


def rows(
    material: Material, table: pl.DataFrame, arms: Sequence[str] | None, columns: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the table as texts.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        arms: names of arms in order; None for all.
        columns: names of columns.

    Returns:
        The heads of the columns, and a row of cells for each arm, its name first.
    """
    heads = name_columns(material.study, _HEADS)
    main = results(table, material.arms if arms is None else arms, columns)
    head = [
        f"{title(benchmark)} {heads.get(name, name)}"
        for benchmark, names in main.columns.items()
        for name in names
    ]
    return ["arm", *head], [[arm, *(cell.text for cell in cells)] for arm, cells in main.rows.items()]


def latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table as a LaTeX `tabular` with the rules of booktabs.

    Args:
        head: heads of the columns.
        body: rows of cells, the arm's name first.
    """
    lines = [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_escape, head)) + r" \\", r"\midrule"]
    lines += [
        " & ".join(_number(cell) if i else _escape(cell) for i, cell in enumerate(row)) + r" \\"
        for row in body
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in GitHub's Markdown, with special characters escaped.

    Args:
        head: heads of the columns.
        body: rows of cells, the first aligned to the left.
    """

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"([|\\`*_<>\[\]])", r"\\\1", cell) for cell in cells) + " |"

    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([line(head), rule, *(line(row) for row in body)])


def plain(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table as CSV for programs: ASCII signs, no thousands separators, an empty cell for a missing value.

    Args:
        head: heads of the columns.
        body: rows of cells, the arm's name first.
    """
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(head)
    for arm, *cells in body:
        # An apostrophe keeps a spreadsheet from reading a name as a formula.
        name = f"'{arm}" if re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", arm) else arm
        numbers = [re.sub(rf"[{formats.STAR},]", "", cell.replace(formats.MINUS, "-")) for cell in cells]
        writer.writerow([name, *("" if cell == formats.NONE else cell for cell in numbers)])
    return output.getvalue().rstrip("\n")


def buttons(
    name: str,
    material: Material,
    table: pl.DataFrame,
    arms: Sequence[str] | None = None,
    columns: Sequence[str] = ALL,
) -> Markup:
    """Return buttons that copy a table as LaTeX, Markdown or CSV.

    Args:
        name: prefix of element ids, different for each table of a page.
        material: results of the run.
        table: frame of `tables.main`.
        arms: names of arms in order; None for all.
        columns: names of columns.
    """
    head, body = rows(material, table, arms, columns)
    texts = {"LaTeX": latex(head, body), "Markdown": markdown(head, body), "CSV": plain(head, body)}
    keys = {kind: f"{name}-{kind.lower()}" for kind in texts}
    return tag(
        "div",
        tag(
            "div",
            "Copy as",
            [tag("button", kind, type="button", data_copy=keys[kind]) for kind in texts],
            tag("span", "", role="status"),
            class_="copies",
        ),
        [
            tag("pre", text, id=keys[kind], class_="copied", hidden=True, tabindex="0")
            for kind, text in texts.items()
        ],
    )


def _escape(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(char, char) for char in text)


def _number(text: str) -> str:
    """Return a number for LaTeX, with a minus in mathematics and the star raised."""
    return text.replace(formats.MINUS, "$-$").replace(formats.STAR, "$^{*}$").replace(formats.NONE, "--")
