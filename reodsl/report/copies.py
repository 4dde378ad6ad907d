"""The main table as text to copy: LaTeX, Markdown and CSV, with the numbers and the marks that the page shows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import polars as pl

from reodsl.report import formats, notes
from reodsl.report.main_table import CHANGE, Column, columns_of, ordered_places
from reodsl.report.markup import Markup, tag
from reodsl.report.material import Material, title

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
}
_HEADS = {"accuracy": "Acc (%)", "length": "Len", "reg": "REG", "reg_plain": "REG (plain)"}


def rows(
    material: Material, table: pl.DataFrame, arms: Sequence[str] | None, columns: Sequence[Column]
) -> tuple[list[str], list[list[str]]]:
    """The heads of the table, and a row of texts for each arm."""
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    heads = {**_HEADS, "difference": CHANGE if baseline is None else f"REG - {baseline}"}
    heads |= {name: notes.nearly(material.study) + heads[name] for name in ("reg", "reg_plain")}
    places = [
        (place, column) for place in ordered_places(table) for column in columns_of(table, place, columns)
    ]
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    head = ["arm", *(f"{title(place)} {heads[column]}" for place, column in places)]
    body = []
    for arm in material.arms if arms is None else [name for name in arms if name in material.arms]:
        line = [arm]
        for place, column in places:
            row = cells.get((arm, place), {})
            if column == "difference":
                line.append(formats.difference(row))
            elif column == "accuracy":
                line.append(formats.percent(row.get(column)))
            else:
                line.append(formats.number(row.get(column)))
        body.append(line)
    return head, body


def latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A `tabular` with rules of booktabs."""
    lines = [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_escaped, head)) + r" \\", r"\midrule"]
    lines += [
        " & ".join(_number(cell) if i else _escaped(cell) for i, cell in enumerate(row)) + r" \\"
        for row in body
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of GitHub's Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"([|\\`*_<>\[\]])", r"\\\1", cell) for cell in cells) + " |"

    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([line(head), rule, *(line(row) for row in body)])


def plain(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """CSV with numbers that programs read: ASCII signs, no separators, nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for arm, *cells in body:
        # A name that begins as a formula does is not a formula.
        name = f"'{arm}" if re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", arm) else arm
        numbers = [re.sub(rf"[{formats.APART},]", "", cell.replace(formats.MINUS, "-")) for cell in cells]
        writer.writerow([name, *("" if cell == formats.NONE else cell for cell in numbers)])
    return out.getvalue().rstrip("\n")


def buttons(
    name: str,
    material: Material,
    table: pl.DataFrame,
    arms: Sequence[str] | None = None,
    columns: Sequence[Column] = ("accuracy", "length", "reg"),
) -> Markup:
    """Buttons that copy the table; `name` sets several tables of a page apart."""
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


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def _number(text: str) -> str:
    """A number as LaTeX sets it: a minus that is one, the mark raised."""
    return text.replace(formats.MINUS, "$-$").replace(formats.APART, "$^{*}$").replace(formats.NONE, "--")
