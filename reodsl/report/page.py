"""The page: one HTML text that works offline, runs only its own script and reaches no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from reodsl.diagnostics import listed, plural
from reodsl.ir.study import Table
from reodsl.numbers.unsettled import (
    COUNTS,
    count_kinds,
    count_reasons,
    list_tables,
    say_counted,
    say_failed,
    say_reasons,
)
from reodsl.numbers.verdict import StudyVerdict
from reodsl.report import (
    drawing,
    examples,
    figures,
    gap,
    main_table,
    notes,
    provenance,
    ranking,
    schedules,
    study_tables,
    tables,
    theme,
    trained_amounts,
    verdict_words,
)
from reodsl.report.curve_chart import is_logarithmic
from reodsl.report.markup import Child, Markup, json_block, tag
from reodsl.report.material import MEAN, Material, reading
from reodsl.report.ranking import choose_highlighted, keep_arms, note_left_out
from reodsl.report.study_tables import Subset, balanced_table

_HERE = Path(__file__).parent


def page(
    material: Material, gallery: figures.Gallery, installed: Mapping[str, str], live: str | None = None
) -> str:
    """Return the report as HTML.

    Args:
        material: results of the run.
        gallery: collection that the charts are added to, so that they can be written as files too.
        installed: versions of packages here.
        live: address of the run's state, relative to the page, if a server shows the page.
    """
    study = material.study
    table = tables.main(material)
    material = replace(material, highlighted_arms=choose_highlighted(material, table))
    charts, few = material, note_left_out(material, material.highlighted_arms)
    if few is not None:
        charts = keep_arms(material, material.highlighted_arms)
    chosen = table.filter(pl.col("arm").is_in(list(charts.chart_arms)))
    top = _header(material, table, _first_chart(gallery, charts, ranking.ranking(material, table)))
    sections: list[tuple[str, str, Child]] = [
        ("results", "Results", _results(material, table)),
        ("curves", "Accuracy at every budget", _below_note(few, _curves(gallery, charts))),
        ("tradeoff", "Accuracy, length and REG", _below_note(few, _tradeoff(gallery, charts, chosen))),
        ("gap", "Where the gap comes from", _below_note(few, _gap(gallery, charts))),
        ("training", "Training", _below_note(few, training_section(gallery, charts))),
        ("budgets", "Budgets and weights", _budgets(gallery, material)),
        ("examples", "Responses", examples.section(material)),
        ("provenance", "How this was made", provenance.section(material, installed)),
    ]
    present = [(key, name, body) for key, name, body in sections if body]
    body = [
        top,
        navigation([(key, name) for key, name, _ in present], live),
        _note_unfinished(material),
        tag("main", [tag("section", tag("h2", name), body, id=key) for key, name, body in present]),
        tag("footer", f"Made by reodsl {installed.get('reodsl', '')}. This page needs no network."),
    ]
    return document(study.name, body, gallery, live)


def _below_note(note: Markup | None, parts: Sequence[Child]) -> list[Child]:
    """Return the elements of a section below a note, if there are both."""
    return [note, *parts] if note is not None and parts else list(parts)


def navigation(sections: Sequence[tuple[str, str]], live: str | None = None) -> Markup:
    """Return links to sections, by their ids and names, and the switch between light and dark."""
    links = [tag("a", name, href=f"#{key}") for key, name in sections]
    if live is not None:
        links = [tag("a", "All runs", href="../"), *links, tag("span", id="state", role="status")]
    toggle = tag("button", "Light / dark", type="button", id="theme")
    return tag("nav", tag("div", links, toggle), aria_label="Sections")


def document(name: str, body: Child, gallery: figures.Gallery, live: str | None = None) -> str:
    """Return body, charts and scripts as a document that runs only its own scripts, known by their hashes.

    It sends no request, except to the address of its own server that `live` names.
    """
    charts, rows = gallery.blocks()
    # In a scope of their own: Vega's names are those of the whole page.
    script = "{" + "".join((_HERE / f).read_text("utf-8") for f in ("elements.js", "page.js")) + "}"
    scripts = (drawing.vega_script(), script)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    asks = "'none'" if live is None else "'self'"
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {asks}; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", name),
        tag("style", Markup((_HERE / "page.css").read_text("utf-8"))),
    )
    blocks = [
        json_block("configs", {"light": theme.config(), "dark": theme.config(dark=True)}),
        json_block("rows", rows),
        json_block("charts", charts),
        tag("noscript", tag("style", Markup(".vega{display:none}"))),
        *[tag("script", Markup(script)) for script in scripts],
    ]
    return f"<!doctype html>\n{tag('html', head, tag('body', body, blocks, data_live=live), lang='en')}\n"


def _first_chart(gallery: figures.Gallery, material: Material, line: Markup | None) -> Child:
    """Return the mean curves of the study's first chart beside `line`, whose arms switch them."""
    charts = _curve_charts(material)
    if not charts:
        return line
    score = material.study.score
    about = "Each response is cut off at the budget and the model must answer immediately. "
    if score is not None:
        about += (
            "The dashed line is the plain frontier, the best measured accuracy at each budget among the arms marked "
            "`frontier`. "
        )
    if score is not None and score.relative_to is not None:
        about += f"The gap of {score.relative_to} to it is filled; point at another arm to see its gap. " + (
            "The axis is logarithmic, so the filled area is not REG."
            if is_logarithmic(material.curves["budget"])
            else "The filled area is REG against the plain frontier, in tokens."
        )
    group = figures.curve_group(gallery, material, charts[0][0], [MEAN], keys=line)
    return [tag("div", group, class_="first"), tag("p", about.strip(), class_="note")]


def _curve_charts(material: Material) -> list[tuple[str, Sequence[str]]]:
    """Return the charts of accuracy over budgets by name, with their arms: those of the spec, or one of all arms."""
    if all(arm.suite.forcing is None for arm in material.study.arms) or not material.curves.height:
        return []
    declared = [c for c in material.study.charts if c.x == "budget" and c.y == "accuracy"]
    return [(chart.name, chart.lines) for chart in declared] or [("curves", ())]


def _header(material: Material, table: pl.DataFrame, first: Child) -> Markup:
    """Return the head of the page: name, verdict, description, numbers of arms and questions, and the first chart."""
    study = material.study
    questions = material.summary.filter(pl.col("benchmark").is_in(list(material.benchmarks)))
    question_count = questions.group_by("benchmark").agg(pl.col("questions").max())["questions"].sum()
    facts = [
        (len(material.arms), "arm"),
        (max(1, len(material.seeds)), "seed"),
        (len(material.benchmarks), "benchmark"),
        (int(question_count or 0), "question"),
    ]
    items = [tag("li", tag("b", f"{n:,}"), f" {noun}{'' if n == 1 else 's'}") for n, noun in facts if n]
    return tag(
        "header",
        tag("p", "Reasoning efficiency report", class_="eyebrow"),
        tag("h1", study.name),
        verdict(material.verdict),
        tag(
            "div",
            tag("p", study.doc, class_="lede") if study.doc else None,
            tag("ul", items, class_="facts"),
            class_="said",
        ),
        first,
        class_="top",
    )


def verdict(study_verdict: StudyVerdict | None) -> Markup | None:
    """Return a verdict as the first lines of a page, the headline large; None without a verdict."""
    lines = verdict_words.sentences(study_verdict)
    if not lines:
        return None
    return tag("div", tag("p", lines[0], class_="headline"), tag("p", " ".join(lines[1:])), class_="verdict")


def _note_unfinished(material: Material) -> Markup | None:
    """Return a note on the missing parts of a page whose study has not ended."""
    if not material.unfinished:
        return None
    lines = [tag("p", line) for line in material.unfinished]
    return tag("aside", tag("b", "This study is not finished."), lines, class_="unfinished", role="status")


def _results(material: Material, table: pl.DataFrame) -> list[Child]:
    """Return the section of results: notes, the study's tables, and how to read them."""
    study, score = material.study, material.study.score
    sampled = note_samples(material)
    if not table.height:
        return [tag("p", "Nothing is evaluated yet.", class_="about"), sampled] if study.arms else []
    least = f"REG is in tokens: smaller is better. {notes.approximate(study)} " if score is not None else ""
    parts: list[Child] = [
        tag("p", least, spread_note(material), class_="about"),
        note_evaluations(material),
        sampled,
        *_list_inexact(material),
    ]
    if study.tables:
        for layout in study.tables:
            if len(study.tables) > 1:
                parts.append(tag("h3", layout.name))
            parts += _table(material, table, layout)
    else:
        parts.append(main_table.main_table(material, table))
        parts.append(main_table.buttons("main", material, table))
    lines = [tag("p", line) for line in _explain_table(material) if line]
    how = tag("details", tag("summary", "How to read this"), tag("div", lines, class_="inside"))
    return [*parts, ranking.matrix(material.verdict), how, *_list_accepted(material)]


def _explain_table(material: Material) -> list[str]:
    """Explain the table's numbers, how they were made and how they err, a paragraph for each."""
    study, score = material.study, material.study.score
    base = score.relative_to if score is not None else None
    return [
        "Accuracy and length are means over whole responses; length is in tokens.",
        f"REG, the reasoning efficiency gap, is the signed area between the frontier {score.frontier} and the arm's "
        f"curve up to {score.to:,} tokens. Below 0 an arm beats the frontier."
        if score is not None
        else "",
        notes.approximate(study),
        "Arrows in the heads show which way is better.",
        f"Signed numbers beside others are differences from {base}, paired by seed and question. "
        "Differences are the same against any frontier. "
        "They are given in percent only where the denominator's interval excludes 0."
        if base is not None
        else "",
        "Intervals are not corrected: about 1 in 20 equal arms will exclude 0 by chance. Stars are corrected for all "
        "comparisons of the study (Holm): about 1 in 20 studies of equal arms has any."
        if base is not None
        else "",
        notes.frontiers(study),
        "Shaded rows are not part of the frontier." if material.frontier_arms else "",
    ]


def _list_inexact(material: Material) -> list[Child]:
    """List the arms whose responses are not exactly their model's, with the reasons."""
    if "inexact" not in material.curves.columns:
        return []
    rows = material.curves.drop_nulls("inexact").select("name", "inexact").unique(maintain_order=True)
    arms = ", ".join(f"{name} ({why})" for name, why in rows.iter_rows())
    return [tag("p", f"Not exactly what their models would answer (W0809): {arms}.", class_="about")]


def _list_accepted(material: Material) -> list[Child]:
    """List the results that a person accepted after a change, with the reasons."""
    if not material.acceptances:
        return []
    lines = [
        tag("li", tag("code", item["task"]), f" ({'; '.join(item['changes'])}): {item['because']}")
        for item in material.acceptances
    ]
    words = "These results were accepted after a change instead of being computed again:"
    return [tag("h3", "Results accepted as they were"), tag("p", words, class_="about"), tag("ul", lines)]


def _table(material: Material, table: pl.DataFrame, layout: Table) -> list[Child]:
    """Return a table of the study, on its questions, with published numbers if any."""
    parts: list[Child] = []
    if layout.subset == "balanced":
        subset = balanced_table(material, layout.rows)
        parts.append(tag("p", _subset_words(subset), class_="about"))
        if not any(subset.questions):
            return parts
        table = subset.table
    parts.append(main_table.main_table(material, table, layout.rows, layout.column_names))
    name = figures.safe_name(f"table-{layout.name}", ())
    parts.append(main_table.buttons(name, material, table, layout.rows, layout.column_names))
    return [*parts, study_tables.published_comparison(layout, study_tables.compare_numbers(layout, table))]


def _subset_words(subset: Subset) -> str:
    """Return which questions the balanced subset has."""
    sizes = dict.fromkeys(subset.questions)
    count = " or ".join(str(size) for size in sizes) or "no"
    by_seed = " (by seed)" if len(sizes) > 1 else ""
    return (
        f"On the balanced subset: the {count} of {subset.num_questions} questions{by_seed} that every arm of this table "
        "solves in more than half of its samples. Lengths are those of right responses, averaged question by question."
    )


def spread_note(material: Material) -> str:
    """Return what the small numbers mean, over several seeds or within one."""
    seeds = max(1, len(material.seeds))
    means = f"Means over {plural(seeds, 'seed')}. " if seeds > 1 else "One seed. "
    return (means + notes.intervals(material.study, seeds)).strip()


def _curves(gallery: figures.Gallery, material: Material) -> list[Markup]:
    """Return the curves of each benchmark, and the spec's further charts; the mean of the first chart is in the header."""
    several = material.benchmarks if len(material.benchmarks) > 1 else ()
    parts = []
    for chart_index, (name, lines) in enumerate(_curve_charts(material)):
        benchmarks = [*((MEAN,) if chart_index else ()), *several]
        if benchmarks:
            parts.append(tag("h3", name) if chart_index else None)
            parts.append(figures.curve_group(gallery, material, name, benchmarks, lines))
    about = "Responses shorter than the budget are graded unchanged. Names switch arms on and off."
    return [tag("p", about, class_="about"), *filter(None, parts)] if parts else []


def _tradeoff(gallery: figures.Gallery, material: Material, table: pl.DataFrame) -> list[Markup]:
    """Return accuracy, length and REG as points, the charts that the spec declares, and the distribution of responses."""
    if not table.height:
        return []
    about = "Up and to the left is better: more right answers, in fewer tokens."
    if "reg" in table.columns and table["reg"].drop_nulls().len():
        about += " Colour and the second chart show REG: smaller is better, and 0 is the frontier."
    about += f" Bars are {notes.bars(material.study, len(material.seeds))}."
    declared = figures.declared_group(gallery, material)
    extra = [tag("h3", "Declared in the spec"), declared] if declared else []
    content = [tag("p", about, class_="about"), figures.scatter_group(gallery, material, table), *extra]
    spread = figures.spread_group(gallery, material)
    return [*content, spread] if spread is not None else content


def _gap(gallery: figures.Gallery, material: Material) -> list[Markup]:
    """Return the section on tokens lost by cause; empty without a score."""
    rows = gap.gap_rows(material)
    if not rows.height:
        return []
    about = (
        "The tokens of budget at which an arm's answer is wrong, by cause; REG is their sum minus the "
        "frontier's, so the differences between arms add up to the difference of REG. Tokens after a right answer are the "
        "budgets at which the answer is wrong again. A question is never solved if no response is right at any budget, and "
        "is given up by a response that ends wrong."
    )
    chart = tag("div", gallery.figure("gap", gap.gap_chart(rows)), class_="charts two")
    return [tag("p", about, class_="about"), gap.gap_table(material, rows), chart]


def training_section(gallery: figures.Gallery, material: Material) -> list[Child]:
    """Return charts of the metrics of all trainings, their numbers of steps and tokens, and their data."""
    groups = figures.training_groups(gallery, material)
    about = (
        "Averaged over seeds; stages are shown in sequence. Arms have different rewards, so do not compare reward curves "
        "across arms."
    )
    content: list[Child] = (
        [tag("p", about, class_="about"), note_trainings(material), *groups] if groups else []
    )
    content += trained_amounts.section(material)
    return content + trained_amounts.data_section(material)


def _budgets(gallery: figures.Gallery, material: Material) -> list[Markup]:
    """Return the budgets of each arm, and the charts of rules and frontiers."""
    section, charts = schedules.section(material), schedules.draw_lines(gallery, material)
    about = (
        "Budgets at which responses are split for dense rewards. The error is the relative, signed error of the weighted "
        "sum as an estimate of the area under the frontier."
    )
    content = [] if section is None else [tag("p", about, class_="about"), section]
    return content if charts is None else [*content, charts]


MOST_REASONS = 5
"""Reasons that are shown, the commonest first."""


def note_evaluations(material: Material) -> Markup | None:
    """Return how many answers of evaluations count as wrong because the verifier gave no verdict; None without any."""
    means = material.summary.filter(pl.col("benchmark") == MEAN)
    words = say_failed(_sum_counts(means))
    if not words:
        return None
    worst = means.with_columns((pl.col("verifier_timeouts") + pl.col("verifier_failures")).alias("all"))
    arm = worst.sort("all", descending=True, maintain_order=True)["arm"][0]
    files = [table for folder in material.evaluations.values() for table in list_tables(folder)]
    return _draw_note(f"{words}, whole or forced, most of {arm}'s; they count as wrong.", files)


def note_trainings(material: Material) -> Markup | None:
    """Return how many answers of trainings had no verdict, and how many responses failed in the reward's Python."""
    # Metrics have no responses to a monitor set.
    monitored = [folder / "monitor.parquet" for folder in material.trainings.values()]
    metric_counts = _sum_counts(material.metrics)
    with reading(monitored[0].parent if monitored else Path()):
        counts = {
            name: metric_counts.get(name, 0) + more
            for name, more in count_kinds(count_reasons(monitored)).items()
        }
    words = say_failed(counts)
    files = [table for folder in material.trainings.values() for table in list_tables(folder)]
    return _draw_note(f"{words} while training; {say_counted(counts)}.", files) if words else None


def note_samples(material: Material) -> Markup | None:
    """Return how many answers had no verdict in responses that are sampled once: pools and reference samples."""
    files = {name: list_tables(folder) for name, folder in material.sample_folders.items()}
    with reading(next(iter(material.sample_folders.values()), Path())):
        failed = [name for name, tables in files.items() if count_reasons(tables)]
        reasons = count_reasons(table for tables in files.values() for table in tables)
    words = f"{say_failed(count_kinds(reasons))} in the samples of {listed(failed, MOST_REASONS)}; they count as wrong."
    return _draw_reasons(words, reasons) if failed else None


def _sum_counts(rows: pl.DataFrame) -> dict[str, float]:
    return {name: float(rows[name].sum()) for name in COUNTS if name in rows.columns}


def _draw_note(words: str, files: Iterable[Path]) -> Markup:
    files = list(files)
    with reading(files[0].parent if files else Path()):
        return _draw_reasons(words, count_reasons(files))


def _draw_reasons(words: str, reasons: Sequence[tuple[str, int]]) -> Markup:
    lines = [tag("li", line) for line in say_reasons(reasons, MOST_REASONS)]
    return tag("div", tag("p", words), tag("ul", lines) if lines else None, class_="about warn")
