"""Rank arms: choose the arms that charts show, list all by REG, and compare all pairs in a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from reodsl.numbers.verdict import PairDifference
from reodsl.report import formats, notes, theme
from reodsl.report.markup import Markup, cut, data_table, name_cell, samples, tag
from reodsl.report.material import MEAN, Material
from reodsl.report.results import cell, say_against
from reodsl.report.verdict_words import equal, format_margin, is_tie

MOST = len(theme.COLOURS) * len(theme.DASHES)
"""The most arms in a chart: the number of combinations of colour and dashes."""


def choose_highlighted(material: Material) -> tuple[str, ...]:
    """Choose at most `MOST` arms that charts show, in the study's order; empty if the study has no more than that.

    Arms are chosen in this order: arms named in the spec's charts, the baseline, some arms that others start from, and
    the best of all others. Charts that name more than `MOST` arms do not count. All arms of the other charts and the
    baseline are chosen, even if they are more than `MOST`.
    """
    arms = material.chart_arms
    if len(arms) <= MOST:
        return ()
    study = material.study
    declared_arms = [name for chart in study.charts if len(chart.lines) <= MOST for name in chart.lines]
    declared_arms += [study.score.relative_to or ""] if study.score is not None else []
    candidates = dict.fromkeys((*declared_arms, *material.bases[: MOST // 4], *material.arms, *arms))
    chosen = [name for name in candidates if name in arms][: max(MOST, len({*declared_arms} & {*arms}))]
    return tuple(name for name in arms if name in chosen)


def keep_arms(material: Material, arms: Sequence[str]) -> Material:
    """Return a report's material with only some arms' curves, scores, metrics and folders of evaluations and trainings.

    Everything else is unchanged, so frontiers are still those of all arms.
    """
    names = set(arms)

    def keep(frame: pl.DataFrame, column: str = "arm") -> pl.DataFrame:
        """Return the rows of the kept arms; a frame without the column is returned unchanged."""
        return frame.filter(pl.col(column).is_in(list(arms))) if column in frame.columns else frame

    return replace(
        material,
        curves=keep(material.curves, "name"),
        summary=keep(material.summary),
        scores=keep(material.scores),
        metrics=keep(material.metrics),
        selections=keep(material.selections),
        evaluations={key: folder for key, folder in material.evaluations.items() if key[0] in names},
        trainings={key: folder for key, folder in material.trainings.items() if key[0] in names},
    )


def note_left_out(material: Material, highlighted: Sequence[str]) -> Markup | None:
    """Return a note on the arms that charts leave out, and how to draw them; None if charts show all arms."""
    if not highlighted:
        return None
    best = "lowest REG" if material.study.score is not None else "highest accuracy"
    words = (
        f"Charts show {len(highlighted)} of {len(material.chart_arms)} arms: arms named in the spec's charts, some that "
        f"others start from, and arms with the {best}. Tables have all arms. To choose, name up to {MOST} in the spec: "
    )
    return tag("p", words, tag("code", "report { chart some { lines = [a, b] } }"), ".", class_="about")


MOST_LISTED = 24
"""The most arms in the ranking beside the first chart; the table has all arms."""


def ranking(material: Material, table: pl.DataFrame) -> Markup | None:
    """Return a list of at most `MOST_LISTED` arms and the baseline, in the order of the page; None without a score.

    Each arm has a button that switches its curve, and REG's difference from the baseline, or REG itself if there is no
    difference. Tags mark leaders (`leads`, `tied` or `not ranked`) and the baseline.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
    """
    score = material.study.score
    if score is None or "reg" not in table.columns:
        return None
    rows = {row["arm"]: row for row in table.filter(pl.col("benchmark") == MEAN).to_dicts()}
    marks = samples(material.colours)
    verdict = material.verdict
    leaders = verdict.leaders if verdict is not None else ()
    tied = verdict is not None and is_tie(verdict)
    state = "leads" if len(leaders) == 1 else "tied" if tied else "not ranked"
    base, mark = score.relative_to, notes.nearly(material.study)
    items = []
    arms = [arm for arm in material.arms if arm in rows][:MOST_LISTED]
    arms += [base] if base is not None and base in rows and base not in arms else []
    for arm in arms:
        compared = rows[arm].get("difference") is not None
        lead = cell(rows[arm], MEAN, "difference" if compared else "reg", roomy=True)
        number = tag("b", "" if compared else mark, lead.text, class_=lead.tone or None)
        tags = {state: arm in leaders, "baseline": arm == base}
        parts = (
            marks[arm],
            tag("span", cut(arm), class_="name"),
            [tag("span", word, class_="tag") for word, fits in tags.items() if fits],
            tag("span", number, " ", tag("small", lead.interval_text if compared else "REG"), class_="value"),
        )
        items.append(tag("li", tag("button", parts, type="button", data_arm=arm, aria_pressed="true")))
    if len(arms) < len(rows):
        items.append(tag("li", f"and {len(rows) - len(arms)} more, in the table"))
    head = "REG" if base is None else say_against(base)
    return tag("div", tag("p", f"{head}, in tokens: lower is better"), tag("ol", items), class_="standing")


def matrix(material: Material) -> Markup | None:
    """Return the REG differences of all pairs as a folded table: the row's arm minus the column's arm.

    It is None without a verdict or for fewer than two arms.
    """
    verdict = material.verdict
    if verdict is None or len(verdict.arms) < 2:
        return None
    arms = [arm for arm in material.arms if arm in verdict.arms]
    pairs = {(pair.one, pair.two): pair for pair in verdict.pairs}
    pairs |= {(pair.two, pair.one): pair.swapped() for pair in verdict.pairs}
    same = {frozenset((pair.one, pair.two)) for pair in verdict.same}
    heads = [tag("th", cut(arm), scope="col", data_arm=arm) for arm in arms]
    head = tag("tr", tag("td", ""), heads, class_="only")
    body = [
        tag(
            "tr",
            name_cell(arm, None),
            [
                _cell(other, pairs[arm, other], frozenset((arm, other)) in same)
                if (arm, other) in pairs
                else tag("td", data_arm=other)
                for other in arms
            ],
        )
        for arm in arms
    ]
    words = (
        "REG of the row's arm minus that of the column's, in tokens, paired by question and seed: above 0 the column's "
        f"arm has the lower REG. Brackets: {100 * verdict.confidence:g}% intervals, not corrected; {formats.STAR} "
        f"significantly different after correcting for all {verdict.comparisons:,} comparisons of the study (Holm). "
        "Equal: both arms wrote the same text for the same sample."
    )
    scrolled = data_table(head, body, "All pairs")
    inside = tag("div", tag("p", words), class_="inside")
    return tag("details", tag("summary", "All pairs"), inside, scrolled, id="pairs")


def _cell(column: str, pair: PairDifference, same: bool) -> Markup:
    """Return a pair's difference with its star and interval, its margin of equivalence, and its equal responses.

    Args:
        column: arm of the column.
        pair: difference of the row's arm from the column's arm.
        same: whether the pair is equivalent within a margin.
    """
    mark = formats.STAR if pair.significant else ""
    common = equal(pair)
    return tag(
        "td",
        tag("b", formats.format_signed(pair.value), mark),
        tag("small", formats.interval(pair.low, pair.high)),
        tag("small", f"the same within {format_margin(pair)}") if same else None,
        tag("small", f"{common} equal") if common else None,
        data_arm=column,
    )
