"""The tables that a study declares: balanced subsets of the questions, and published beside measured numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.study import PublishedTable, Table
from reodsl.numbers.arm_scores import balance_questions
from reodsl.numbers.reg import change_pct
from reodsl.report import formats
from reodsl.report.markup import Markup, data_table, name_cell, tag, with_code
from reodsl.report.material import MEAN, Material, reading, title

_COLUMNS = ("benchmark", "question", "sample", "tokens", "correct")


@dataclass(frozen=True, slots=True)
class Subset:
    """A balanced subset of the questions."""

    table: pl.DataFrame
    """A row for each arm: arm, benchmark (`mean`), seeds, accuracy (share), length (tokens), and over several seeds
    `accuracy_sd` and `length_sd`."""
    questions: tuple[int, ...]
    """Number of the subset's questions in each seed."""
    num_questions: int
    """Number of all questions."""


def balanced_table(material: Material, arms: Sequence[str]) -> Subset:
    """Compare arms on the questions that all of them solve in more than half of their samples.

    The questions are chosen in each seed, and the results are averaged over seeds. Arms without an evaluation are left
    out.

    Args:
        material: results of the run.
        arms: names of the compared arms.

    Raises:
        Problem: E0431 if the arms were evaluated on different questions.

    Source: tab:frontier of the paper.
    """
    evaluated = [arm for arm in material.arms if arm in arms]
    rows: list[dict[str, object]] = []
    counts: list[int] = []
    num_questions = 0
    for seed in material.seeds or (None,):
        folders = {
            arm: folder
            for arm in evaluated
            if (folder := material.evaluations.get((arm, seed)) or material.evaluations.get((arm, None)))
        }
        if not folders:
            continue
        samples = {arm: _samples(arm, folder) for arm, folder in folders.items()}
        first, (names, _, _) = next(iter(samples.items()))
        for arm, (questions, _, _) in samples.items():
            if questions != names:
                raise problem(
                    "E0431",
                    f"`{arm}` and `{first}` were evaluated on different questions",
                    help="evaluate the arms of a balanced table on one suite",
                )
        subset = balance_questions(
            {arm: right for arm, (_, right, _) in samples.items()},
            {arm: tokens for arm, (_, _, tokens) in samples.items()},
        )
        counts.append(len(subset.questions))
        num_questions = max(num_questions, len(names))
        rows += [
            {"arm": arm, "seed": seed, "accuracy": subset.accuracy[arm], "length": subset.length[arm]}
            for arm in samples
        ]
    schema = {"arm": pl.String, "seed": pl.Int64, "accuracy": pl.Float64, "length": pl.Float64}
    several = pl.len() > 1
    table = (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("arm", maintain_order=True)
        .agg(
            pl.lit(MEAN).alias("benchmark"),
            pl.len().alias("seeds"),
            pl.col("accuracy", "length").mean(),
            *[pl.when(several).then(pl.col(m).std()).alias(f"{m}_sd") for m in ("accuracy", "length")],
        )
    )
    return Subset(table, tuple(counts), num_questions)


Samples = tuple[tuple[tuple[str, str], ...], np.ndarray, np.ndarray]
"""The questions as (benchmark, id) in order; their verdicts and their tokens, both [questions, samples]."""


def _samples(arm: str, folder: Path) -> Samples:
    """Read the verdicts and the tokens of an arm's samples, sorted by benchmark, question and sample.

    Args:
        arm: name of the arm, for messages.
        folder: folder of an evaluation.

    Raises:
        Problem: E0431 if questions have different numbers of samples, E0981 if the file cannot be read.
    """
    with reading(folder / "samples.parquet"):
        frame = (
            pl.scan_parquet(folder / "samples.parquet", glob=False)
            .select(_COLUMNS)
            .sort("benchmark", "question", "sample")
            .collect()
        )
    counts = frame.group_by("benchmark", "question", maintain_order=True).len()
    if counts["len"].n_unique() > 1:
        raise problem(
            "E0431",
            f"`{arm}` has more samples of some questions than of others",
            where=str(folder),
            help="find what is damaged with `reodsl ls --verify`; running the spec again computes it again",
        )
    shape = (counts.height, -1)
    names = tuple(counts.select("benchmark", "question").iter_rows())
    return (
        names,
        frame["correct"].cast(pl.Float64).to_numpy().reshape(shape),
        frame["tokens"].to_numpy().reshape(shape),
    )


SCHEMA = {
    "table": pl.String,
    "arm": pl.String,
    "title": pl.String,
    "benchmark": pl.String,
    "measure": pl.String,
    "measured": pl.Float64,
    "published": pl.Float64,
    "difference": pl.Float64,
}
FIELDS = (("accuracy", "accuracy"), ("length", "length"), ("reg", "reg"), ("change_pct", "reg_change"))
"""Measures as the main table names them, and as a published row does."""
HEADS = {"accuracy": "Acc (%)", "length": "Len", "reg": "REG", "change_pct": "REG change (%)"}


def compare_numbers(layout: Table, table: pl.DataFrame) -> pl.DataFrame:
    """Compare the numbers of a table with the published numbers; without published numbers there are no rows.

    Args:
        layout: the study's table. Measures that it does not show are left out.
        table: frame of `tables.main`, or of a balanced subset.

    Returns:
        A row with the columns of `SCHEMA` for each number that is measured, published or both; arms that are only
        published come last. Accuracies are shares, lengths and REG tokens, changes of REG percent; `difference` is
        measured minus published. A missing number is null.
    """
    printed = layout.published
    if printed is None:
        return pl.DataFrame(schema=SCHEMA)
    measures = set(layout.column_names) | ({"change_pct"} if "reg" in layout.column_names else set())
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts() if row["arm"] in layout.rows}
    titles = {row.name: row.title for row in printed.rows}
    benchmarks = list(dict.fromkeys([*printed.benchmarks, *(benchmark for _, benchmark in cells)]))
    rows = []
    for arm in dict.fromkeys((*(arm for arm, _ in cells), *titles)):
        for benchmark in benchmarks:
            for measure, name in FIELDS:
                measured = _find_measured(cells, arm, benchmark, measure, printed.relative_to)
                published = _find_published(printed, arm, benchmark, name)
                if measure not in measures or (measured is None and published is None):
                    continue
                difference = None if measured is None or published is None else measured - published
                values = (measure, measured, published, difference)
                rows.append((layout.name, arm, titles.get(arm, ""), benchmark, *values))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


Cells = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows of `tables.main` by arm and benchmark."""


def _find_measured(cells: Cells, arm: str, benchmark: str, measure: str, base: str | None) -> float | None:
    """Return a measured number as the paper defines it.

    REG is against the plain frontier (the best measured accuracy at each budget), if the study has it. The change of REG
    is computed from this REG, relative to the arm `base`.

    Args:
        cells: rows of `tables.main` by arm and benchmark.
        arm: name of the arm.
        benchmark: name of the benchmark.
        measure: column of `tables.main`.
        base: arm that published changes of REG are relative to, if any.

    Returns:
        The number; None if it was not measured.
    """
    row = cells.get((arm, benchmark), {})
    if measure not in ("reg", "change_pct"):
        return row.get(measure)
    plain = row.get("reg_plain", row.get("reg"))
    if measure == "reg" or plain is None or arm == base:
        return plain if measure == "reg" else None
    base_row = cells.get((base or "", benchmark), {}) if base is not None else {}
    base_value = base_row.get("reg_plain", base_row.get("reg"))
    return None if base_value is None else change_pct(plain, base_value)


def _find_published(printed: PublishedTable, arm: str, benchmark: str, name: str) -> float | None:
    """Return a published number in the unit of the measured number; None if it is not published.

    Args:
        printed: the published table.
        arm: name of the arm.
        benchmark: name of the benchmark.
        name: attribute of a published row, such as `reg_change`.
    """
    row = next((row for row in printed.rows if row.name == arm), None)
    values: Sequence[float] = getattr(row, name) if row is not None else ()
    if not values or benchmark not in printed.benchmarks:
        return None
    value = values[printed.benchmarks.index(benchmark)]
    return 100 * value if name == "reg_change" else value


def published_comparison(layout: Table, frame: pl.DataFrame) -> Markup | None:
    """Return `compare_numbers` as HTML: the mean is open, each benchmark folded; None without published numbers.

    If the mean is not published, the first compared benchmark is open instead.

    Args:
        layout: the study's table.
        frame: frame of `compare_numbers`.
    """
    printed = layout.published
    if printed is None or not frame.height:
        return None
    both = frame.filter(pl.col("measured").is_not_null() & pl.col("published").is_not_null())
    benchmarks = frame["benchmark"].unique(maintain_order=True).to_list()
    first = MEAN if MEAN in printed.benchmarks else (both["benchmark"].to_list() or benchmarks)[0]
    folded = [name for name in benchmarks if name != first and name in printed.benchmarks]
    return tag(
        "div",
        tag("h4", "Comparison with published numbers"),
        tag("p", with_code(printed.doc), class_="about") if printed.doc else None,
        _table(frame, first),
        [tag("details", tag("summary", title(name)), _table(frame, name)) for name in folded],
        [tag("p", line, class_="about") for line in list_unmatched(layout, frame)],
        class_="published",
    )


def list_unmatched(layout: Table, frame: pl.DataFrame) -> list[str]:
    """Return sentences that name the arms and benchmarks that are only published or only measured."""
    printed = layout.published
    assert printed is not None
    measured = frame.filter(pl.col("measured").is_not_null())["arm"].unique(maintain_order=True).to_list()
    titles = {row.name: row.title for row in printed.rows}
    evaluated = set(frame.filter(pl.col("measured").is_not_null())["benchmark"])
    lists = (
        ("Published and not measured here", [name for arm, name in titles.items() if arm not in measured]),
        ("Measured and not published", [arm for arm in measured if arm not in titles]),
        (
            "Benchmarks in print that were not evaluated here",
            [title(name) for name in printed.benchmarks if evaluated and name not in evaluated],
        ),
    )
    return [f"{heading}: {', '.join(names)}." for heading, names in lists if names]


def _table(frame: pl.DataFrame, name: str) -> Markup:
    """Return the comparison on a benchmark: measured and published value of each measure, and their difference.

    Measures without any published value on the benchmark are left out.

    Args:
        frame: frame of `compare_numbers`.
        name: name of the benchmark.
    """
    rows = frame.filter(pl.col("benchmark") == name)
    measures = [
        m
        for m, _ in FIELDS
        if rows.filter((pl.col("measure") == m) & pl.col("published").is_not_null()).height
    ]
    cells = {(row["arm"], row["measure"]): row for row in rows.to_dicts()}
    titles = dict(rows.select("arm", "title").unique(maintain_order=True).iter_rows())
    group_head = tag("tr", tag("th", title(name), class_="name"), [
        tag("th", HEADS[m], colspan=3, class_="edge", scope="colgroup") for m in measures
    ])  # fmt: skip
    heads = [
        tag("th", name, class_="edge" if i == 0 else None, scope="col")
        for _ in measures
        for i, name in enumerate(("measured", "published", "difference"))
    ]
    body = [
        tag(
            "tr",
            name_cell(arm, None, title=name or arm),
            [_cells(cells.get((arm, measure), {}), measure) for measure in measures],
        )
        for arm, name in titles.items()
    ]
    return data_table([group_head, tag("tr", tag("th", "arm", class_="name"), heads)], body)


def _cells(row: dict[str, Any], measure: str) -> list[Markup]:
    """Return three cells: the measured number, the published number and their difference.

    Args:
        row: row of `compare_numbers`; empty for empty cells.
        measure: name of the measure; accuracies are shown in percent.
    """
    scale = 100.0 if measure == "accuracy" else 1.0
    values = [row.get(name) for name in ("measured", "published", "difference")]
    numbers = [None if value is None else scale * value for value in values]
    texts = [formats.number(numbers[0]), formats.number(numbers[1]), formats.format_signed(numbers[2])]
    return [tag("td", text, class_="edge" if i == 0 else None) for i, text in enumerate(texts)]
