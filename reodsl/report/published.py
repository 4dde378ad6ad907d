"""Published numbers beside measured ones, with their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from reodsl.ir.study import PublishedTable, Table
from reodsl.numbers.reg import change_pct
from reodsl.report import formats
from reodsl.report.markup import Markup, tag
from reodsl.report.material import MEAN, title

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
    head = tag("thead", top, tag("tr", tag("th", "arm", class_="name"), heads))
    return tag("div", tag("table", head, tag("tbody", body)), class_="scroll", tabindex="0")


def _cells(row: dict[str, Any], measure: str) -> list[Markup]:
    scale = 100.0 if measure == "accuracy" else 1.0
    values = [row.get(name) for name in ("measured", "published", "difference")]
    numbers = [None if value is None else scale * value for value in values]
    texts = [formats.number(numbers[0]), formats.number(numbers[1]), formats.format_signed(numbers[2])]
    return [tag("td", text, class_="edge" if i == 0 else None) for i, text in enumerate(texts)]
