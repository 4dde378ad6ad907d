"""The main table as text to copy: LaTeX, Markdown and CSV, with the numbers and the marks that the page shows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import polars as pl

from reodsl.report import formats, notes
from reodsl.report.markup import Markup, tag
from reodsl.report.material import Material, title
from reodsl.report.results import ALL, CHANGE, results

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
}
_HEADS = {"accuracy": "Acc (%)", "length": "Len", "reg": "REG", "reg_plain": "REG (plain)"}


def rows(
    material: Material, table: pl.DataFrame, arms: Sequence[str] | None, columns: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the heads of the table, and a row of texts for each arm."""
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    heads = {**_HEADS, "difference": CHANGE if baseline is None else f"REG - {baseline}"}
    heads |= {name: notes.nearly(material.study) + heads[name] for name in ("reg", "reg_plain")}
    main = results(table, material.arms if arms is None else arms, columns)
    head = [
        f"{title(place)} {heads.get(name, name)}" for place, names in main.columns.items() for name in names
    ]
    return ["arm", *head], [[arm, *(cell.text for cell in cells)] for arm, cells in main.rows.items()]


def latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a `tabular` with rules of booktabs."""
    lines = [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_escape, head)) + r" \\", r"\midrule"]
    lines += [
        " & ".join(_number(cell) if i else _escape(cell) for i, cell in enumerate(row)) + r" \\"
        for row in body
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table of GitHub's Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"([|\\`*_<>\[\]])", r"\\\1", cell) for cell in cells) + " |"

    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([line(head), rule, *(line(row) for row in body)])


def plain(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return CSV with numbers that programs read: ASCII signs, no separators, nothing where nothing is known."""
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
    columns: Sequence[str] = ALL,
) -> Markup:
    """Return buttons that copy the table; each table of a page has another `name`."""
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
    return "".join(_LATEX.get(char, char) for char in text)


def _number(text: str) -> str:
    """Write a number for LaTeX, with a real minus and the star raised."""
    return text.replace(formats.MINUS, "$-$").replace(formats.APART, "$^{*}$").replace(formats.NONE, "--")
