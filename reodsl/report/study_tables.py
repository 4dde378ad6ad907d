"""The tables that a study declares: its balanced subset, and published numbers beside measured ones."""

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
from reodsl.report.markup import Markup, data_table, tag
from reodsl.report.material import MEAN, Material, reading, title

_COLUMNS = ("benchmark", "question", "sample", "tokens", "correct")


@dataclass(frozen=True, slots=True)
class Subset:
    """A balanced subset of the questions.

    `table` has a row for each arm: arm, benchmark (`mean`), seeds, accuracy (share), length (tokens), and over several
    seeds `accuracy_sd` and `length_sd`. `questions` counts the subset's questions by seed, `asked` all of them.
    """

    table: pl.DataFrame
    questions: tuple[int, ...]
    asked: int


def balanced_table(material: Material, arms: Sequence[str]) -> Subset:
    """Return the comparison of the paper's tab:frontier between arms, once a seed, and its means over seeds.

    Raises E0431 where arms were asked different questions.
    """
    evaluated = [arm for arm in arms if arm in material.arms]
    rows: list[dict[str, object]] = []
    counts: list[int] = []
    asked = 0
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
                    f"`{arm}` and `{first}` were asked different questions",
                    help="evaluate the arms of a balanced table on one suite",
                )
        subset = balance_questions(
            {arm: right for arm, (_, right, _) in samples.items()},
            {arm: tokens for arm, (_, _, tokens) in samples.items()},
        )
        counts.append(len(subset.questions))
        asked = max(asked, len(names))
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
    return Subset(table, tuple(counts), asked)


Samples = tuple[tuple[tuple[str, str], ...], np.ndarray, np.ndarray]
"""The questions as (benchmark, id) in order; their verdicts and their tokens, both [questions, samples]."""


def _samples(arm: str, folder: Path) -> Samples:
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
            help="find what is damaged with `reodsl ls --verify`; running the spec again makes it anew",
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
PRINTED = (("accuracy", "accuracy"), ("length", "length"), ("reg", "reg"), ("change_pct", "reg_change"))
"""Measures as the main table names them, and as a published row does."""
HEADS = {"accuracy": "Acc (%)", "length": "Len", "reg": "REG", "change_pct": "REG change (%)"}


def compare_numbers(wanted: Table, table: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each number that is measured, published or both: `SCHEMA`; what is missing is null.

    Accuracies are shares, lengths and REG in tokens, changes of REG in percent; `difference` is measured less
    published. `table` is `tables.main`, or that of a balanced subset. Measures that a table does not show are left out.
    """
    printed = wanted.published
    if printed is None:
        return pl.DataFrame(schema=SCHEMA)
    shown = set(wanted.shown) | ({"change_pct"} if "reg" in wanted.shown else set())
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts() if row["arm"] in wanted.rows}
    titles = {row.name: row.title for row in printed.rows}
    measured = [name for name in wanted.rows if any(arm == name for arm, _ in cells)]
    arms = [*titles, *(name for name in measured if name not in titles)]
    places = list(dict.fromkeys([*printed.benchmarks, *(place for _, place in cells)]))
    rows = []
    for arm in arms:
        for place in places:
            for measure, name in PRINTED:
                here = _find_measured(cells, arm, place, measure, printed.relative_to)
                there = _find_published(printed, arm, place, name)
                if measure not in shown or (here is None and there is None):
                    continue
                difference = None if here is None or there is None else here - there
                rows.append((wanted.name, arm, titles.get(arm, ""), place, measure, here, there, difference))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _find_measured(
    cells: Mapping[tuple[str, str], Mapping[str, Any]], arm: str, place: str, measure: str, base: str | None
) -> float | None:
    """Return a number as the paper defines it: REG, and its change, are against the plain frontier."""
    row = cells.get((arm, place), {})
    if measure not in ("reg", "change_pct"):
        return row.get(measure)
    plain = row.get("reg_plain", row.get("reg"))
    if measure == "reg" or plain is None or arm == base:
        return plain if measure == "reg" else None
    there = cells.get((base or "", place), {}) if base is not None else {}
    against = there.get("reg_plain", there.get("reg"))
    return None if against is None else change_pct(plain, against)


def _find_published(printed: PublishedTable, arm: str, place: str, name: str) -> float | None:
    row = next((row for row in printed.rows if row.name == arm), None)
    values: Sequence[float] = getattr(row, name) if row is not None else ()
    if not values or place not in printed.benchmarks:
        return None
    value = values[printed.benchmarks.index(place)]
    return 100 * value if name == "reg_change" else value


def beside(wanted: Table, frame: pl.DataFrame) -> Markup | None:
    """Return `compare_numbers` as HTML: the mean in the open, each benchmark to unfold, and in words the missing numbers."""
    printed = wanted.published
    if printed is None or not frame.height:
        return None
    both = frame.filter(pl.col("measured").is_not_null() & pl.col("published").is_not_null())
    places = frame["benchmark"].unique(maintain_order=True).to_list()
    first = MEAN if MEAN in printed.benchmarks else (both["benchmark"].to_list() or places)[0]
    folded = [place for place in places if place != first and place in printed.benchmarks]
    return tag(
        "div",
        tag("h4", "Beside the published numbers"),
        tag("p", printed.doc, class_="about") if printed.doc else None,
        _place(frame, first),
        [tag("details", tag("summary", title(place)), _place(frame, place)) for place in folded],
        [tag("p", line, class_="about") for line in missing(wanted, frame)],
        class_="published",
    )


def missing(wanted: Table, frame: pl.DataFrame) -> list[str]:
    """List in sentences the numbers that are printed and not measured, and the other way round."""
    printed = wanted.published
    assert printed is not None
    measured = set(frame.filter(pl.col("measured").is_not_null())["arm"])
    there = {row.name: row.title for row in printed.rows}
    evaluated = set(frame.filter(pl.col("measured").is_not_null())["benchmark"])
    lists = (
        ("Published and not measured here", [name for arm, name in there.items() if arm not in measured]),
        ("Measured and not published", [arm for arm in wanted.rows if arm in measured and arm not in there]),
        (
            "Benchmarks in print that were not evaluated here",
            [title(place) for place in printed.benchmarks if evaluated and place not in evaluated],
        ),
    )
    return [f"{what}: {', '.join(names)}." for what, names in lists if names]


def _place(frame: pl.DataFrame, place: str) -> Markup:
    """One benchmark: for each measure what is measured, what is published, and the difference."""
    rows = frame.filter(pl.col("benchmark") == place)
    measures = [
        m
        for m, _ in PRINTED
        if rows.filter((pl.col("measure") == m) & pl.col("published").is_not_null()).height
    ]
    cells = {(row["arm"], row["measure"]): row for row in rows.to_dicts()}
    titles = dict(rows.select("arm", "title").unique(maintain_order=True).iter_rows())
    top = tag("tr", tag("th", title(place), class_="name"), [
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
            tag("th", arm, class_="name", scope="row", title=name or arm),
            [_cells(cells.get((arm, measure), {}), measure) for measure in measures],
        )
        for arm, name in titles.items()
    ]
    return data_table([top, tag("tr", tag("th", "arm", class_="name"), heads)], body)


def _cells(row: dict[str, Any], measure: str) -> list[Markup]:
    scale = 100.0 if measure == "accuracy" else 1.0
    values = [row.get(name) for name in ("measured", "published", "difference")]
    numbers = [None if value is None else scale * value for value in values]
    texts = [formats.number(numbers[0]), formats.number(numbers[1]), formats.format_signed(numbers[2])]
    return [tag("td", text, class_="edge" if i == 0 else None) for i, text in enumerate(texts)]
