"""The page: one HTML text that works offline, runs only its own script and reaches no network."""

from __future__ import annotations

import base64
import hashlib
import json
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
    formats,
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
from reodsl.report.curve_chart import add_intervals, is_logarithmic
from reodsl.report.markup import Child, Markup, json_block, tag, with_code
from reodsl.report.material import MEAN, Material, reading
from reodsl.report.ranking import choose_highlighted, keep_arms, note_left_out
from reodsl.report.study_tables import Subset, balanced_table

_HERE = Path(__file__).parent


def page(
    material: Material,
    gallery: figures.Gallery,
    installed: Mapping[str, str],
    live: str | None = None,
    settling: Sequence[str] | None = None,
) -> str:
    """Return the report as one HTML document; sections without content are left out.

    If the study has many arms, charts show only some of them, and a note above each section of charts says so.

    Args:
        material: results of the run.
        gallery: collection that the charts are added to, from which they can also be written as files.
        installed: versions of the installed packages, by name.
        live: relative address that returns the run's state, if a server shows the page.
        settling: lines of `verdict_words.settle`, if they are known.
    """
    study = material.study
    table = tables.main(material)
    material = replace(
        material, curves=add_intervals(material), highlighted_arms=choose_highlighted(material)
    )
    charts, note = material, note_left_out(material, material.highlighted_arms)
    if note is not None:
        charts = keep_arms(material, material.highlighted_arms)
    rows = table.filter(pl.col("arm").is_in(list(charts.chart_arms)))
    first = first_chart(gallery, charts, table, ranking.ranking(material, table))
    sections: list[tuple[str, str, Child]] = [
        ("results", "Results", _results(material, table)),
        ("curves", "Accuracy at every budget", _below_note(note, _curves(gallery, charts))),
        ("tradeoff", "Accuracy, length and REG", _below_note(note, _tradeoff(gallery, charts, rows))),
        ("gap", "Where the gap comes from", _below_note(note, _gap(gallery, charts))),
        ("training", "Training", _below_note(note, training_section(gallery, charts))),
        ("budgets", "Budgets and weights", _budgets(gallery, material)),
        ("examples", "Responses", examples.section(material)),
        ("provenance", "Provenance", provenance.section(material, installed)),
    ]
    present = [(key, name, body) for key, name, body in sections if body]
    lines = [tag("b", "This study is not finished."), *(tag("p", line) for line in material.unfinished)]
    unfinished = tag("aside", lines, class_="unfinished", role="status") if lines[1:] else None
    body = [
        header(
            material,
            table,
            first,
            verdict_words.settle(material.spec, material.verdict) if settling is None else settling,
        ),
        navigation([(key, name) for key, name, _ in present], live),
        unfinished,
        tag("main", [tag("section", tag("h2", name), body, id=key) for key, name, body in present]),
        tag("footer", f"Made by reodsl {installed.get('reodsl', '')}. This page needs no network."),
    ]
    return document(study.name, body, gallery, live)


def _below_note(note: Markup | None, parts: Sequence[Child]) -> list[Child]:
    """Return a section's elements below a note; without a note or without elements, only the elements."""
    return [note, *parts] if note is not None and parts else list(parts)


def navigation(sections: Sequence[tuple[str, str]], live: str | None = None) -> Markup:
    """Return links to sections, and the switch between light and dark.

    Args:
        sections: id and name of each section.
        live: relative address of the run's state; if given, a link to all runs and a field for the state are added.
    """
    links = [tag("a", name, href=f"#{key}") for key, name in sections]
    state = None
    if live is not None:
        links, state = [tag("a", "All runs", href="../"), *links], tag("span", id="state", role="status")
    toggle = tag("button", "Light / dark", type="button", id="theme")
    return tag("nav", tag("div", tag("div", links, class_="links"), state, toggle), aria_label="Sections")


def document(name: str, body: Child, gallery: figures.Gallery, live: str | None = None) -> str:
    """Return a complete HTML document of a body, charts and scripts.

    Its Content-Security-Policy runs only these scripts, by their hashes, and forbids requests; with `live` it allows
    requests to the page's own server.

    Args:
        name: title of the document.
        body: content of the page.
        gallery: charts of the page.
        live: relative address of the run's state, if a server shows the page.
    """
    charts, rows = gallery.blocks()
    # A block of its own hides the script's names from Vega's, which are global.
    script = "{" + "".join((_HERE / f).read_text("utf-8") for f in ("elements.js", "page.js")) + "}"
    scripts = (gallery.script or drawing.vega_script(), script)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    connect = "'none'" if live is None else "'self'"
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
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


def first_chart(
    gallery: figures.Gallery, material: Material, table: pl.DataFrame, ranking_list: Markup | None
) -> Child:
    """Return the mean curves of the study's first chart of accuracy over budgets, beside the ranking of arms.

    Without such a chart, only the ranking is returned.

    Args:
        gallery: collection that the chart is added to.
        material: results of the run.
        table: frame of `tables.main`.
        ranking_list: list of arms whose buttons switch curves on and off; None without a score.
    """
    charts = _curve_charts(material)
    if not charts:
        return ranking_list
    study, score = material.study, material.study.score
    about: list[Child] = ["Each response is cut off at the budget and the model must answer immediately. "]
    if score is not None and material.frontier().height:
        edge = "the cross-fitted frontier, whose best arm is chosen on other questions,"
        about.append(
            f"The dashed line is {_name_frontier(material)}. REG, the reasoning efficiency gap, is the area between "
            f"{edge if material.frontier_arms else 'it'} "
            "and an arm's curve, in tokens: lower is better, and below 0 an arm beats the frontier. "
        )
    if score is not None and score.relative_to in material.arms:
        about.append(f"{notes.star(score)} ")
    if material.curves["low"].drop_nulls().len():
        about.append(f"Shading: {100 * study.confidence:g}% intervals. ")
    if score is not None and score.relative_to in material.arms and material.frontier().height:
        about.append(f"The gap of {score.relative_to} to it is filled. ")
        about.append(tag("span", "Point at another arm to see its gap. ", class_="screen"))
    if score is not None and score.relative_to in material.arms and "reg_plain" in table.columns:
        areas = dict(table.filter(benchmark=MEAN).select("arm", "reg_plain").iter_rows())
        texts = {arm: f"{arm} {formats.number(area)}" for arm, area in areas.items()}
        logarithmic = is_logarithmic(material.curves["budget"])
        filled = [
            "The filled area is REG against the plain frontier: ",
            tag("b", texts.get(score.relative_to), data_areas=json.dumps(texts)),
            " tokens.",
        ]
        uneven = "The axis is logarithmic, so the filled area is not REG."
        about += [
            tag("span", filled, data_axis="linear", hidden=logarithmic),
            tag("span", uneven, data_axis="logarithmic", hidden=not logarithmic),
        ]
    group = figures.curve_group(gallery, material, charts[0][0], [MEAN], keys=ranking_list)
    return [tag("div", group, class_="first"), tag("p", about, class_="note")]


def _name_frontier(material: Material) -> str:
    """Return what the scored frontier is, with its arms or, if these are fewer, the arms outside."""
    inside = [arm for arm in material.arms if arm in material.frontier_arms]
    outside = [arm for arm in material.arms if arm not in inside]
    if not inside:
        return "the published frontier"
    arms = verdict_words.join_arms(inside)
    if len(outside) < len(inside):
        arms = f"all arms but {verdict_words.join_arms(outside)}" if outside else "all arms"
    return f"the plain frontier, the best measured accuracy at each budget among {arms}"


def _curve_charts(material: Material) -> list[tuple[str, Sequence[str]]]:
    """Return the name and the arms of each chart of accuracy over budgets.

    Returns:
        A pair for each such chart that the spec declares, else one pair for a chart `curves`. In a pair, empty arms
        stand for all arms. There are no pairs if no arm's answers are forced, or if nothing is evaluated.
    """
    if all(arm.suite.forcing is None for arm in material.study.arms) or not material.curves.height:
        return []
    declared = [c for c in material.study.charts if c.x == "budget" and c.y == "accuracy"]
    return [(chart.name, chart.lines) for chart in declared] or [("curves", ())]


def header(material: Material, table: pl.DataFrame, first: Child, settling: Sequence[str]) -> Markup:
    """Return the head of the page: name, verdict, description, numbers of arms and questions, and the first chart.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        first: element with the first chart.
        settling: lines of `verdict_words.settle`.
    """
    study = material.study
    counts = material.summary.filter(pl.col("benchmark") != MEAN).group_by("benchmark").max()
    facts = [
        (len(material.arms), "arm"),
        (max(1, len(material.seeds)), "seed"),
        (len(material.benchmarks), "benchmark"),
        (int(counts["questions"].sum() or 0), "question"),
    ]
    items = [tag("li", tag("b", f"{n:,}"), f" {noun}{'' if n == 1 else 's'}") for n, noun in facts if n]
    return tag(
        "header",
        tag("p", "Reasoning efficiency report", class_="eyebrow"),
        tag("h1", study.name),
        verdict(material.verdict, settling, _describe(material, table)),
        tag(
            "div",
            tag("p", with_code(study.doc), class_="lede") if study.doc else None,
            tag("ul", items, class_="facts"),
            class_="said",
        ),
        first,
        class_="top",
    )


def verdict(
    study_verdict: StudyVerdict | None, settling: Sequence[str] = (), otherwise: Sequence[str] = ()
) -> Markup | None:
    """Return the sentences of a verdict for the head of a page, the first as a headline; None without any sentence.

    Args:
        study_verdict: the verdict.
        settling: a sentence on what would settle the difference of the two best arms, and a command, if there are any.
        otherwise: sentences without a verdict.
    """
    lines = verdict_words.sentences(study_verdict) or otherwise
    if not lines:
        return None
    more = tag("p", " ".join(lines[1:])) if lines[1:] else None
    advice = tag("p", settling[0]) if settling else None
    commands = [
        tag("details", tag("summary", "How to run this"), tag("code", command)) for command in settling[1:]
    ]
    words = tag("p", lines[0], class_="headline"), more, advice, commands
    return tag("div", words, class_="verdict")


def _describe(material: Material, table: pl.DataFrame) -> list[str]:
    """Return sentences on what a study without a verdict has: its best accuracy and shortest responses, or why none.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
    """
    study, means = material.study, table.filter(pl.col("benchmark") == MEAN)
    if not means.height:
        charts, begun = plural(len(study.charts), "chart"), material.metrics["arm"].n_unique()
        return [
            f"No arm is evaluated yet; {begun} of {plural(len(study.arms), 'arm')} began to train."
            if study.arms
            else f"This study compares no models: it has {charts} of frontiers or of rules for budgets."
        ]
    best, least = (
        means.sort(name, descending=name == "accuracy", nulls_last=True, maintain_order=True).row(
            0, named=True
        )
        for name in ("accuracy", "length")
    )
    accuracy, length = formats.percent(best["accuracy"]) + "%", formats.number(least["length"]) + " tokens"
    if means.height == 1:
        return [f"Only {best['arm']} is evaluated: its accuracy is {accuracy}, its mean length {length}."]
    shortest = "and" if best["arm"] == least["arm"] else f"and {least['arm']}"
    return [
        f"{best['arm']} has the highest accuracy, {accuracy}, {shortest} the least mean length, {length}.",
        *(
            ["The study names no score, so no difference between its arms is tested."]
            if study.score is None
            else []
        ),
    ]


def _results(material: Material, table: pl.DataFrame) -> list[Child]:
    """Return the section of results: notes, the study's tables or else the main table, and an explanation.

    If nothing is evaluated yet, only a note says so; the section is empty for a study without arms.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
    """
    study, score = material.study, material.study.score
    sampled = note_samples(material)
    if not table.height:
        return [tag("p", "Nothing is evaluated yet.", class_="about"), sampled] if study.arms else []
    note = f"REG is in tokens: smaller is better. {notes.approximate(study)} " if score is not None else ""
    elements: list[Child] = [
        tag("p", note, spread_note(material), class_="about"),
        note_evaluations(material),
        sampled,
        *_list_inexact(material),
    ]
    if study.tables:
        for layout in study.tables:
            if len(study.tables) > 1:
                elements.append(tag("h3", layout.name))
            elements += _table(material, table, layout)
    else:
        elements.append(main_table.main_table(material, table))
    paragraphs = [tag("p", line) for line in _explain_table(material) if line]
    explanation = tag("details", tag("summary", "How to read this"), tag("div", paragraphs, class_="inside"))
    return [*elements, ranking.matrix(material), explanation, *_list_accepted(material)]


def _explain_table(material: Material) -> list[str]:
    """Return paragraphs that explain how the table's numbers are measured and biased; some may be empty texts."""
    study, score = material.study, material.study.score
    base = score.relative_to if score is not None else None
    return [
        "Accuracy and length are means over complete responses; length is in tokens.",
        f"REG, the reasoning efficiency gap, is the signed area between the frontier {score.frontier} and the arm's "
        f"curve up to {score.to:,} tokens. Below 0 an arm beats the frontier."
        if score is not None
        else "",
        notes.approximate(study),
        "Arms have one order on the whole page: by REG, or without a score by accuracy, best first. The base model and the "
        "baseline stand among the others by their numbers, and arms without a number last. The head of a column is a button "
        "that orders the page by the column.",
        "Arrows in the column heads show the better direction.",
        f"{formats.NONE} in {listed([measure.name for measure in study.measures], 5)}: no value, as for an accuracy that "
        "an arm never reaches."
        if study.measures
        else "",
        f"Signed numbers are differences from {base}, paired by seed and question. "
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
    """List the arms whose responses differ from what their models would write, with the reasons (W0809)."""
    if "inexact" not in material.curves.columns:
        return []
    rows = material.curves.drop_nulls("inexact").select("inexact", arm="name").unique(maintain_order=True)
    arms = ", ".join(f"{arm} ({reasons})" for reasons, arm in material.sort_arms(rows).iter_rows())
    return [tag("p", f"Not exactly what their models would answer (W0809): {arms}.", class_="about")]


def _list_accepted(material: Material) -> list[Child]:
    """List the stored results that a person accepted after a change, with the changes and the person's reason."""
    if not material.acceptances:
        return []
    lines = [
        tag("li", tag("code", item["task"]), f" ({'; '.join(item['changes'])}): {item['because']}")
        for item in material.acceptances
    ]
    words = "These results were accepted after a change instead of being computed again:"
    return [tag("h3", "Results accepted as they were"), tag("p", words, class_="about"), tag("ul", lines)]


def _table(material: Material, table: pl.DataFrame, layout: Table) -> list[Child]:
    """Return a declared table as HTML, and a comparison with published numbers if any.

    A table with `subset = balanced` has only the questions that all of its arms solve. If there are none, only a
    sentence says so.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        layout: the declared table: its rows, columns and subset.
    """
    elements: list[Child] = []
    if layout.subset == "balanced":
        subset = balanced_table(material, layout.rows)
        elements.append(tag("p", _subset_words(subset), class_="about"))
        if not any(subset.questions):
            return elements
        table = subset.table
    elements.append(main_table.main_table(material, table, layout.rows, layout.column_names))
    return [*elements, study_tables.published_comparison(layout, study_tables.compare_numbers(layout, table))]


def _subset_words(subset: Subset) -> str:
    """Return a sentence on the number of questions in a balanced subset."""
    sizes = dict.fromkeys(subset.questions)
    count = " or ".join(str(size) for size in sizes) or "no"
    by_seed = " (by seed)" if len(sizes) > 1 else ""
    return (
        f"On the balanced subset: the {count} of {subset.num_questions} questions{by_seed} that every arm of this table "
        "solves in more than half of its samples. Lengths are means of right responses, averaged question by question."
    )


def spread_note(material: Material) -> str:
    """Return a sentence on the seeds, and an explanation of the brackets or spreads beside values."""
    seeds = max(1, len(material.seeds))
    means = f"Means over {plural(seeds, 'seed')}. " if seeds > 1 else "One seed. "
    return (means + notes.intervals(material.study, seeds)).strip()


def _curves(gallery: figures.Gallery, material: Material) -> list[Markup]:
    """Return the section of curves: each chart of accuracy over budgets, on the mean and on each benchmark.

    The mean of the first chart is left out, since the head of the page shows it. With one benchmark, which equals the
    mean, only means are drawn. The section is empty if no chart is left.
    """
    single_benchmarks = material.benchmarks if len(material.benchmarks) > 1 else ()
    elements = []
    for chart_index, (name, lines) in enumerate(_curve_charts(material)):
        benchmarks = [*((MEAN,) if chart_index else ()), *single_benchmarks]
        if benchmarks:
            elements.append(tag("h3", name) if chart_index else None)
            elements.append(figures.curve_group(gallery, material, name, benchmarks, lines))
    about = "Responses shorter than the budget are graded unchanged. Names switch arms on and off."
    return [tag("p", about, class_="about"), *filter(None, elements)] if elements else []


def _tradeoff(gallery: figures.Gallery, material: Material, table: pl.DataFrame) -> list[Markup]:
    """Return the section on accuracy, length and REG; empty if nothing is evaluated.

    It has the arms as points, the spec's charts over length or step, and distributions of responses.

    Args:
        gallery: collection that the charts are added to.
        material: results of the run.
        table: frame of `tables.main`, with the arms of the charts.
    """
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
    """Return the section on tokens lost by cause; empty without a score or without forced answers."""
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
    """Return charts of the metrics of all trainings, trained amounts, and the data left out of training."""
    groups = figures.training_groups(gallery, material)
    about = (
        "Averaged over seeds; stages are shown in sequence. Arms have different rewards, so do not compare reward curves "
        "across arms."
    )
    unusable = material.metrics.select((~pl.selectors.float().is_finite()).sum()).to_dicts()
    counts = {name: count for row in unusable for name, count in row.items() if count}
    words = ", ".join(f"{name} at {plural(count, 'step')}" for name, count in counts.items())
    missing = tag("p", f"Not drawn, since it is no number: {words}.", class_="about warn") if words else None
    content: list[Child] = [missing] if missing else []
    content += [tag("p", about, class_="about"), note_trainings(material), *groups] if groups else []
    content += trained_amounts.section(material)
    return content + trained_amounts.data_section(material)


def _budgets(gallery: figures.Gallery, material: Material) -> list[Markup]:
    """Return the section on the budgets at which dense rewards divide a response, with a table and charts.

    The table has each arm's budgets. The charts are those of the spec that compare rules for budgets, or frontiers.
    """
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
    """Return a note on answers in evaluations without a verdict; None if every answer has a verdict.

    An answer has no verdict if the verifier failed or exceeded its time limit. It counts as wrong.
    """
    means = material.summary.filter(pl.col("benchmark") == MEAN)
    words = say_failed(_sum_counts(means))
    if not words:
        return None
    worst = means.with_columns((pl.col("verifier_timeouts") + pl.col("verifier_failures")).alias("all"))
    arm = worst.sort("all", descending=True, maintain_order=True)["arm"][0]
    files = [table for folder in material.evaluations.values() for table in list_tables(folder)]
    return _draw_note(f"{words}, most of them in {arm}; these answers count as wrong.", files)


def note_trainings(material: Material) -> Markup | None:
    """Return a note on failures of the verifier and of the reward's Python in trainings; None without failures."""
    # The metrics of a training do not count its responses to the monitor set.
    monitored = [folder / "monitor.parquet" for folder in material.trainings.values()]
    metric_counts = _sum_counts(material.metrics)
    with reading(monitored[0].parent if monitored else Path()):
        counts = {
            name: metric_counts.get(name, 0) + monitored_count
            for name, monitored_count in count_kinds(count_reasons(monitored)).items()
        }
    words = say_failed(counts)
    files = [table for folder in material.trainings.values() for table in list_tables(folder)]
    return _draw_note(f"{words} while training; {say_counted(counts)}.", files) if words else None


def note_samples(material: Material) -> Markup | None:
    """Return a note on the answers in stored samples without a verdict; None without such answers.

    Stored samples are responses that are sampled once: pools and reference samples.
    """
    files = {name: list_tables(folder) for name, folder in material.sample_folders.items()}
    with reading(next(iter(material.sample_folders.values()), Path())):
        failed = [name for name, tables in files.items() if count_reasons(tables)]
        counts = count_kinds(count_reasons(table for tables in files.values() for table in tables))
    words = f"{say_failed(counts)} in the samples of {listed(failed, MOST_REASONS)}; they count as wrong."
    return _draw_note(words, (table for tables in files.values() for table in tables)) if failed else None


def _sum_counts(rows: pl.DataFrame) -> dict[str, float]:
    """Return the sum of each column of counted failures (`COUNTS`) that the rows have."""
    return {name: float(rows[name].sum()) for name in COUNTS if name in rows.columns}


def _draw_note(words: str, files: Iterable[Path]) -> Markup:
    """Return a warning with the commonest reasons that files of responses record.

    Args:
        words: text of the warning.
        files: tables with the column `unsettled`.
    """
    files = list(files)
    with reading(files[0].parent if files else Path()):
        lines = [tag("li", line) for line in say_reasons(count_reasons(files), MOST_REASONS)]
    return tag("div", tag("p", words), tag("ul", lines) if lines else None, class_="about warn")
