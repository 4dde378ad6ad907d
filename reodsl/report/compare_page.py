"""The page of several runs: their arms in one table, one set of curves, and what differs in their specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import listed
from reodsl.diff.compare import compare as compare_specs
from reodsl.diff.render import tables as difference_tables
from reodsl.graph.lower import lower
from reodsl.numbers.verdict import VERDICT, StudyVerdict
from reodsl.report import export, figures, formats, main_table, notes, provenance, standing, tables
from reodsl.report.compare import ComparableArms, Comparison, Run, compare
from reodsl.report.markup import Child, Markup, data_table, tag
from reodsl.report.material import MEAN
from reodsl.report.page import document, navigation, training_section, verdict

MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """A page of several runs, its tables by file name, and the verdict on those that can be compared."""

    html: str
    tables: dict[str, pl.DataFrame]
    verdict: StudyVerdict | None


def draw(runs: Sequence[Run], installed: Mapping[str, str]) -> Drawn:
    """Return the page. Arms that cannot be compared with the others stand in tables of their own, with the reason."""
    comparison = compare(runs)
    gallery = figures.Gallery()
    scored = [tables.main(group.material) for group in comparison.groups]
    sections: list[tuple[str, str, Child]] = [
        ("results", "Results", _results(runs, comparison, scored)),
        ("curves", "Accuracy at every budget", _curves(gallery, comparison)),
        ("lengths", "Lengths and difficulty", _lengths(gallery, comparison)),
        ("training", "Training", training_section(gallery, comparison.trainings)),
        ("specs", "What differs in the specs", _specs(runs)),
        ("runs", "The runs", _runs(runs)),
    ]
    kept = [(key, name, body) for key, name, body in sections if body]
    names = " and ".join(run.label for run in runs)
    body = [
        _top(runs, names, comparison, scored),
        navigation([(key, name) for key, name, _ in kept]),
        _list_missing(runs, comparison),
        tag("main", [tag("section", tag("h2", name), body, id=key) for key, name, body in kept]),
        tag("footer", f"Made by reodsl {installed.get('reodsl', '')}. This page needs no network."),
    ]
    verdict_of_all = comparison.groups[0].material.verdict if comparison.groups else None
    return Drawn(document(names, body, gallery), _frames(comparison, scored), verdict_of_all)


def write_comparison(runs: Sequence[Run], out: Path) -> None:
    """`report.html`, `verdict.json` and `tables/` of several runs, in a folder that is there."""
    drawn = draw(runs, provenance.versions())
    export.write_tables(out / "tables", drawn.tables)
    export.write_verdict(out / VERDICT, drawn.verdict)
    (out / "report.html").write_text(drawn.html, encoding="utf-8")


def _frames(comparison: Comparison, scored: Sequence[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    numbered = [
        frame.with_columns(pl.lit(place).alias("group"))
        for place, frame in enumerate(scored, 1)
        if frame.height
    ]
    curves = [group.material.curves.rename({"name": "arm"}) for group in comparison.groups]
    frames = {
        "main": pl.concat(numbered, how="diagonal_relaxed") if numbered else pl.DataFrame(),
        "curves": pl.concat(curves) if curves else pl.DataFrame(),
        "training": comparison.trainings.metrics,
    }
    return {name: frame for name, frame in frames.items() if frame.height}


def _top(runs: Sequence[Run], names: str, comparison: Comparison, scored: Sequence[pl.DataFrame]) -> Markup:
    arms = sum(len(group.material.arms) for group in comparison.groups)
    facts = [f"{len(runs)} runs", formats.plural(arms, "evaluated arm")]
    if len(comparison.groups) > 1:
        facts.append(f"{len(comparison.groups)} groups that cannot be compared with each other")
    answers = [_answer(group, table) for group, table in zip(comparison.groups, scored, strict=True)]
    return tag(
        "header",
        tag("p", "Comparison of runs", class_="eyebrow"),
        tag("h1", names),
        [verdict(group.material.verdict) for group in comparison.groups[:1]],
        [tag("p", line, class_="lede") for line in answers[:1] if line],
        tag("ul", [tag("li", fact) for fact in facts], class_="facts"),
        class_="top",
    )


def _answer(group: ComparableArms, table: pl.DataFrame) -> str:
    """Return what came out: for every two runs whose methods are compared, which methods differ in REG."""
    sides: dict[str, list[dict[str, Any]]] = {}
    for row in table.filter(pl.col("benchmark") == MEAN).to_dicts():
        if row.get("difference") is not None:
            here, there = row["arm"].partition("/")[0], group.against[row["arm"]].partition("/")[0]
            words = f"{here} against {there}" if group.reference is None else f"Against {group.reference}"
            sides.setdefault(words, []).append(row)
    return " ".join(f"{words}: {_differing(rows, group.reference)}." for words, rows in sides.items())


def _differing(rows: Sequence[Mapping[str, Any]], reference: str | None) -> str:
    """Return which of some arms are apart from what they are compared with, and by how much."""
    parts = []
    for better in (True, False):
        named = [
            f"{row['arm'] if reference else row['arm'].partition('/')[2]} ({formats.format_signed(row['difference'])} "
            f"{formats.interval(row['difference_low'], row['difference_high'])})"
            for row in sorted(rows, key=lambda row: row["difference"], reverse=not better)
            if formats.has_star(row, "difference") and (row["difference"] < 0) == better
        ]
        if named:
            parts.append(f"{'lower' if better else 'higher'} for {listed(named, MOST_NAMED)}")
    noun = "arm" if reference else "method"
    if not parts:
        return f"no {noun}'s REG is significantly different"
    rest = len(rows) - sum(formats.has_star(row, "difference") for row in rows)
    tail = f"; {formats.plural(rest, noun)} not significantly different" if rest else ""
    return f"REG is {' and '.join(parts)} tokens{tail}"


def _list_missing(runs: Sequence[Run], comparison: Comparison) -> Markup | None:
    """List the parts that the page lacks, run by run."""
    lines = [f"{label}: nothing is evaluated yet." for label in comparison.unevaluated]
    lines += [f"{run.label}: {line}" for run in runs for line in run.material.unfinished]
    if not lines:
        return None
    head = tag("b", "Not everything is there.")
    return tag("aside", head, [tag("p", line) for line in lines], class_="unfinished", role="status")


def _results(runs: Sequence[Run], comparison: Comparison, scored: Sequence[pl.DataFrame]) -> list[Child]:
    if not comparison.groups:
        return [tag("p", "No run is evaluated yet.", class_="about")]
    anchors = {
        f"{run.label}/{arm}": place
        for run in runs
        for arm, place in main_table.find_first_evaluations(run.material, run.label).items()
        if arm
    }
    parts: list[Child] = []
    for place, (group, table) in enumerate(zip(comparison.groups, scored, strict=True)):
        if place:
            parts.append(tag("h3", f"Not comparable with the above: {', '.join(group.material.arms)}"))
            parts.append(tag("p", f"What differs: {'; '.join(group.apart)}.", class_="about"))
        parts.append(tag("p", _words(group, table), class_="about"))
        parts.append(main_table.main_table(group.material, table, anchors=anchors))
        parts.append(main_table.buttons(f"compared-{place}", group.material, table))
        parts.append(standing.matrix(group.material.verdict))
    if comparison.same:
        shown = [tag("li", f"{name} is {first}") for name, first in comparison.same.items()]
        parts.append(tag("p", "The same results, which stand above once:", class_="about"))
        parts.append(tag("ul", shown))
    return parts


def _words(group: ComparableArms, table: pl.DataFrame) -> str:
    score = group.material.study.score
    assert score is not None
    curved = table["difference"].drop_nulls().len() > 0
    whom = group.reference or "the same method in the first run that has it"
    words = [
        f"Differences are from {whom}, paired by question and seed. "
        f"Brackets: {100 * score.confidence:g}% intervals; {formats.STAR} significantly different (Holm-corrected)."
    ]
    if curved:
        words.append(
            f"REG is up to {score.to:,} tokens, and its difference is the same against any frontier."
        )
    words.append(notes.approximate(group.material.study))
    if curved and "reg" not in table.columns:
        words.append("REG itself is left out: the runs were not scored against one frontier.")
    if group.unpaired:
        arms = ", ".join(f"{arm} ({why})" for arm, why in group.unpaired.items())
        words.append(f"Without a difference: {arms}.")
    return " ".join(filter(None, words))


def _curves(gallery: figures.Gallery, comparison: Comparison) -> list[Child]:
    parts: list[Child] = []
    for place, group in enumerate(comparison.groups):
        if all(arm.suite.forcing is None for arm in group.material.study.arms):
            continue
        if place:
            parts.append(tag("h3", f"Not comparable with the above: {', '.join(group.material.arms)}"))
        several = group.material.benchmarks if len(group.material.benchmarks) > 1 else ()
        parts.append(figures.curve_group(gallery, group.material, f"curves-{place + 1}", [MEAN, *several]))
    return parts


def _lengths(gallery: figures.Gallery, comparison: Comparison) -> list[Child]:
    groups = [figures.spread_group(gallery, group.material) for group in comparison.groups]
    return [group for group in groups if group is not None]


def _specs(runs: Sequence[Run]) -> list[Child]:
    """Return the settings that differ between each run and the next."""
    parts: list[Child] = []
    for one, other in pairwise(runs):
        a, b = one.material.spec, other.material.spec
        difference = compare_specs(a, b, lower(a), lower(b))
        sides = one.label, other.label
        parts.append(tag("h3", f"{one.label} and {other.label}"))
        shown = [each for each in difference_tables(difference, sides) if each[1]]
        if not (shown or difference.only_a or difference.only_b):
            parts.append(tag("p", "They mean the same.", class_="about"))
        for names, label in ((difference.only_a, one.label), (difference.only_b, other.label)):
            if names:
                parts.append(tag("p", f"Only in {label}: {', '.join(names)}.", class_="about"))
        parts += [_three(heads, rows) for heads, rows in shown]
    return parts


def _three(heads: tuple[str, str, str], rows: Sequence[tuple[str, str, str]]) -> Markup:
    first = heads[0] or "setting"
    head = tag(
        "tr", [tag("th", name, class_="text", scope="col") for name in (first, *heads[1:])], class_="only"
    )
    body = [
        tag(
            "tr",
            tag("th", setting, class_="text mono", scope="row"),
            [tag("td", value, class_="text mono") for value in values],
        )
        for setting, *values in rows
    ]
    return data_table(head, body, f"Settings of {first}", "differences")


def _runs(runs: Sequence[Run]) -> list[Markup]:
    rows = []
    for run in runs:
        spec, material = run.material.spec, run.material
        facts = (
            run.name,
            spec.path,
            ", ".join(str(seed) for seed in material.study.seeds) or formats.NONE,
            f"{len(material.arms)} of {len(material.study.arms)}",
        )
        rows.append(
            tag(
                "tr",
                tag("th", run.label, class_="text", scope="row"),
                [tag("td", fact, class_="text mono") for fact in facts],
                tag("td", tag("code", f"reodsl report {run.name.partition('.')[0]}"), class_="text"),
            )
        )
    names = ("run", "its name", "spec", "seeds", "arms evaluated", "its own report")
    head = tag("tr", [tag("th", name, class_="text", scope="col") for name in names], class_="only")
    return [data_table(head, rows, "Runs"), *(provenance.artifacts(run.material, run.label) for run in runs)]
