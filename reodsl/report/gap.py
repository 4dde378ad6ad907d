"""Show where the gap comes from: the tokens that each arm loses by cause, as a table and as a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reodsl.numbers.intervals import Interval, interval
from reodsl.numbers.verdict import CAUSES, split_losses, weigh
from reodsl.report import formats, vega
from reodsl.report.main_table import number
from reodsl.report.markup import Markup, data_table, name_cell, samples, tag
from reodsl.report.material import MEAN, Material, reading
from reodsl.report.results import Cell
from reodsl.report.vega import Json, Rows, channel, layer

COLOURS = ("#4477aa", "#ccbb44", "#ee6677", "#882255", "#bbbbbb")
ALL = "all"
BATCH_RESPONSES = 100_000
"""Responses whose losses are computed together; a question with more responses makes a batch alone."""
Floats = NDArray[np.float64]
Losses = Mapping[str, Mapping[str, Floats]]
"""Tokens lost, by cause (`all` for the sum of causes) and benchmark: [seeds, questions]."""


def gap_rows(material: Material) -> pl.DataFrame:
    """Return the tokens that each arm loses by cause, on each benchmark and on their mean.

    Returns:
        Columns `arm`, `benchmark`, `cause`, and `value` in tokens with its interval `low` and `high`. `change`, with
        `change_low` and `change_high`, is the difference from the baseline, paired by seed and question; null for the
        baseline. For the cause `all` it is the difference of REG. There are no rows without a score, or if the curves
        are not of the kind `J`.
    """
    score = material.study.score
    arms = {
        arm: losses
        for arm in (material.arms if score is not None and "kind" not in material.curves.columns else ())
        if (losses := _losses(material, arm, score.to if score is not None else 0)) is not None
    }
    base = arms.get(score.relative_to or "") if score is not None else None
    confidence = material.study.confidence
    rows = []
    for arm, losses in arms.items():
        for cause, cells in losses.items():
            for benchmark in (*cells, MEAN) if len(cells) > 1 else (MEAN,):
                names = list(cells) if benchmark == MEAN else [benchmark]
                mean_loss = interval({name: cells[name] for name in names}, confidence)
                rows.append({"arm": arm, "benchmark": benchmark, "cause": cause} | _ends(mean_loss, ""))
                others = base[cause] if base is not None and losses is not base else {}
                if all(name in others and others[name].shape == cells[name].shape for name in cells):
                    paired = {name: cells[name] - others[name] for name in names}
                    rows[-1] |= _ends(interval(paired, confidence), "change_")
    schema = {"arm": pl.String, "benchmark": pl.String, "cause": pl.String} | dict.fromkeys(
        ("value", "low", "high", "change_value", "change_low", "change_high"), pl.Float64
    )
    return pl.DataFrame(rows, schema=schema, orient="row").rename({"change_value": "change"})


def _losses(material: Material, arm: str, to: int) -> Losses | None:
    """Return the tokens that an arm loses by wrong answers, by cause, benchmark, seed and question.

    It is None if an evaluation of the arm in any seed, or its forced answers, are missing.

    Args:
        material: results of the run.
        arm: name of the arm.
        to: last budget that REG integrates to, in tokens.
    """
    folders = material.forced_folders(arm)
    if not folders:
        return None
    seeds = []
    for folder in folders:
        with reading(folder / "forced.parquet"):
            forced = pl.scan_parquet(folder / "forced.parquet", glob=False)
            budgets = forced.select(pl.col("budget").unique().sort()).collect(engine="streaming")["budget"]
            samples = pl.scan_parquet(folder / "samples.parquet", glob=False)
            seeds.append(_average_losses(forced, samples, weigh(budgets.to_list(), to)))
    cells = {
        cause: {
            str(name): np.stack([frame.filter(benchmark=name)[cause].to_numpy() for frame in seeds])
            for name in material.benchmarks
        }
        for cause in CAUSES
    }
    totals = {name: sum(of_cause[name] for of_cause in cells.values()) for name in material.benchmarks}
    return cells | {ALL: totals}  # type: ignore[return-value]


def _average_losses(
    forced: pl.LazyFrame, samples: pl.LazyFrame, weights: Mapping[int, float]
) -> pl.DataFrame:
    """Return the mean losses of each question over its samples, in batches that bound memory.

    Args:
        forced: rows of `forced.parquet`.
        samples: rows of `samples.parquet`.
        weights: tokens that each budget stands for, from `weigh`.

    Returns:
        Columns `benchmark`, `question`, and one for each cause, in tokens.
    """
    question = ["benchmark", "question"]
    sizes = samples.group_by(question).len().sort(question).collect(engine="streaming")
    batches = sizes.with_columns(part=pl.col("len").cum_sum() // BATCH_RESPONSES).partition_by("part")
    means = []
    for batch in batches:
        cuts, responses = (frame.join(batch.lazy(), on=question, how="semi") for frame in (forced, samples))
        lost = split_losses(cuts, responses, weights).group_by(question).agg(pl.col(tuple(CAUSES)).mean())
        means.append(lost.collect(engine="streaming"))
    return pl.concat(means).sort(question)


def _ends(estimate: Interval, prefix: str) -> dict[str, float | None]:
    """Return the columns `value`, `low` and `high` of an estimate, with a prefix before each name."""
    return {
        f"{prefix}{name}": value
        for name, value in asdict(estimate).items()
        if name in ("value", "low", "high")
    }


def gap_table(material: Material, rows: pl.DataFrame) -> Markup:
    """Return a table of the tokens lost by cause, averaged over benchmarks, with changes from the baseline on hover.

    Args:
        material: results of the run.
        rows: frame of `gap_rows`.
    """
    cells = {(row["arm"], row["cause"]): row for row in rows.filter(benchmark=MEAN).to_dicts()}
    heads = {**CAUSES, ALL: "together"}
    body, marks = [], samples(material.colours)
    for arm in dict.fromkeys(arm for arm, _ in cells):
        numbers = []
        for cause, head in heads.items():
            row = cells[arm, cause]
            interval_text, about = formats.interval(row["low"], row["high"]), ""
            if row["change"] is not None:
                ends = formats.interval(row["change_low"], row["change_high"])
                about = f"{formats.format_signed(row['change'])} {ends}"
            value, change = formats.number(row["value"]), formats.format_change(row["change"])
            cell = Cell(MEAN, cause, value, change, interval_text, about)
            numbers.append(number(cell, first=cause == "before", label=head))
        body.append(tag("tr", name_cell(arm, marks[arm]), numbers))
    headings = [tag("th", title, scope="col") for title in heads.values()]
    head = tag("tr", tag("th", "arm", class_="name"), headings, class_="only")
    return data_table(head, body, "Where the gap comes from", "results")


def gap_chart(rows: pl.DataFrame) -> Json:
    """Return a chart of the tokens that each arm loses on average: a bar for each arm, divided by cause.

    Args:
        rows: frame of `gap_rows`.
    """
    means = rows.filter((pl.col("benchmark") == MEAN) & (pl.col("cause") != ALL))
    order = {cause: i for i, cause in enumerate(CAUSES)}
    means = means.select(
        "arm",
        pl.col("value").alias("tokens"),
        pl.col("cause").replace(CAUSES).alias("cause"),
        pl.col("cause").replace_strict(order, return_dtype=pl.Int64).alias("order"),
    )
    arms = means["arm"].unique(maintain_order=True).to_list()
    # Bars are sorted by a column, since Vega compiles a list of names to an expression.
    positions = {arm: i for i, arm in enumerate(arms)}
    means = means.with_columns(place=pl.col("arm").replace_strict(positions, return_dtype=pl.Int64))
    datasets = Rows()
    bars = layer(
        datasets.add(vega.name_rows(means)),
        "bar",
        {},
        switched=False,
        x=channel("tokens", title="tokens of budget at which answers are wrong", axis={"tickCount": 8}),
        y=channel(
            "name", "nominal", title=None, sort={"field": "place", "op": "min"}, axis={"labelFontSize": 12}
        ),
        color=channel(
            "cause",
            "nominal",
            scale={"domain": list(CAUSES.values()), "range": list(COLOURS)},
            legend={"title": None, "orient": "bottom", "columns": {"expr": "width < 320 ? 1 : 2"}},
        ),
        order=channel("order"),
        tooltip=[channel("arm", "nominal"), channel("cause", "nominal"), channel("tokens", format=",.1f")],
    )
    description = ", ".join(
        f"{row['arm']} {row['tokens']:.1f} {row['cause']}" for row in means.to_dicts()[:24]
    )
    return vega.chart(
        datasets,
        [bars],
        title="where the gap comes from",
        about=f"Tokens lost on average by cause: {description}.",
        height=max(120, 34 * len(arms)),
        switches=False,
    )
