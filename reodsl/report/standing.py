"""Set every arm in a line, and every two of them in a matrix."""

from __future__ import annotations

import polars as pl

from reodsl.numbers.verdict import PairDifference, Verdict
from reodsl.report import formats, notes, theme
from reodsl.report.leading import best
from reodsl.report.markup import Markup, dot, tag
from reodsl.report.material import MEAN, Material
from reodsl.report.results import cell
from reodsl.report.verdict_words import equal, within

MOST = 24
"""Arms in a line; a table has all."""


def standing(material: Material, table: pl.DataFrame) -> Markup | None:
    """Return all arms, best first, each with REG's difference from the baseline or REG itself; None without a score."""
    score = material.study.score
    if score is None or "reg" not in table.columns:
        return None
    rows = {row["arm"]: row for row in table.filter(pl.col("benchmark") == MEAN).to_dicts()}
    colours = material.colours
    kinds = theme.dashes(colours)
    leaders = material.verdict.leaders if material.verdict is not None else ()
    base, near = score.relative_to, notes.nearly(material.study)
    items = []
    shown = best(table)[:MOST]
    shown += [base] if base is not None and base in rows and base not in shown else []
    for arm in shown:
        row = rows[arm]
        compared = row.get("difference") is not None
        lead = cell(row, MEAN, "difference" if compared else "reg", roomy=True)
        tags = [
            word
            for word, fits in (
                ("leads", arm in leaders and len(leaders) == 1),
                ("tied", arm in leaders and len(leaders) > 1),
                ("baseline", arm == base),
                ("frontier", arm in material.framed),
            )
            if fits
        ]
        parts = (
            dot(colours[arm], kinds[arm]),
            tag("span", arm, class_="name"),
            [tag("span", word, class_="tag") for word in tags],
            tag("b", "" if compared else near, lead.text, class_=lead.tone or None),
            tag("small", lead.around if compared else "REG"),
        )
        items.append(tag("li", tag("button", parts, type="button", data_arm=arm, aria_pressed="true")))
    if len(shown) < len(rows):
        items.append(tag("li", f"and {len(rows) - len(shown)} more, in the table"))
    head = "REG in tokens" if base is None else f"REG − {base}'s, in tokens"
    return tag("div", tag("p", head), tag("ol", items), class_="standing")


def matrix(verdict: Verdict | None) -> Markup | None:
    """Return every two arms' difference as a folded table: REG of the row's arm minus that of the column's."""
    if verdict is None or len(verdict.arms) < 2:
        return None
    pairs = {(pair.two, pair.one): pair.turned() for pair in verdict.pairs}
    same = {frozenset((pair.one, pair.two)) for pair in verdict.same}
    *columns, _ = verdict.arms
    head = tag("tr", tag("td", ""), [tag("th", arm, scope="col") for arm in columns], class_="only")
    body = [
        tag(
            "tr",
            tag("th", arm, class_="name", scope="row"),
            [
                _cell(pairs[arm, other], frozenset((arm, other)) in same)
                if (arm, other) in pairs
                else tag("td", "")
                for other in columns
            ],
        )
        for arm in verdict.arms[1:]
    ]
    words = (
        "REG of the row's arm minus that of the column's, in tokens, paired by question and seed: above 0 the column's "
        f"arm is ahead. [ ] {100 * verdict.confidence:g}% interval of each pair by itself; {formats.APART} differs with all "
        f"{len(verdict.pairs)} pairs counted (Holm). Equal responses have one text, for one sample of a question."
    )
    whole = tag("table", tag("thead", head), tag("tbody", body))
    scrolled = tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="Every two arms")
    inside = tag("div", tag("p", words), class_="inside")
    return tag("details", tag("summary", "Every two arms"), inside, scrolled, id="pairs")


def _cell(pair: PairDifference, same: bool) -> Markup:
    mark = formats.APART if pair.apart else ""
    common = equal(pair)
    return tag(
        "td",
        tag("b", formats.signed(pair.value), mark),
        tag("small", formats.interval(pair.low, pair.high)),
        tag("small", f"the same within {within(pair)}") if same else None,
        tag("small", f"{common} equal") if common else None,
    )
