"""Charts on the page: figures, legends, and the data that the page's script draws from."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import polars as pl

from reodsl.report import drawing, tables, theme
from reodsl.report.curve_chart import curves
from reodsl.report.line_charts import (
    COUNTS,
    difficulty,
    difficulty_rows,
    length_rows,
    lengths,
    metrics_of,
    reference,
    training,
    training_rows,
)
from reodsl.report.markup import Markup, cut, legible, samples, tag
from reodsl.report.material import MEAN, Material, title
from reodsl.report.tradeoff_charts import gaps, scatter
from reodsl.report.vega import Json, map_parts


@dataclass(slots=True)
class Gallery:
    """The charts of a report: Vega-Lite specs by name, in the order of the page. Names are of a safe alphabet."""

    specs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pictured: bool = False
    """True if a picture stands in the place of the first chart for a reader without scripts."""
    script: str | None = None
    """The script that draws charts on a page, if the process that drew the picture gave it."""

    def figure(self, name: str, chart: Json, wide: bool = False) -> Markup:
        """Add a chart to the gallery and return the HTML figure that shows it.

        Args:
            name: preferred name, which gets a number if it is in use.
            chart: Vega-Lite spec with a `description`.
            wide: whether the figure is as wide as the page.
        """
        key = safe_name(name, self.specs)
        self.specs[key] = map_parts(chart, lambda node: legible(node) if isinstance(node, str) else node)
        about = chart["description"]
        container = tag("div", class_="vega", data_chart=key, role="img", aria_label=about)
        picture = None
        if self.pictured and len(self.specs) == 1:
            drawn = {"config": {**theme.config(), "background": "white"}, "width": 760}
            first = next(drawing.pictures([self.specs[key] | drawn], "script"))
            self.script, svg = first.image.decode(), base64.b64encode(first.svg).decode()
            picture = tag("noscript", tag("img", src=f"data:image/svg+xml;base64,{svg}", alt=about))
        return tag("figure", container, picture, class_="wide" if wide else None)

    def blocks(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the charts and their data for the page's script.

        Returns:
            Two mappings. For each chart's name, the first has its Vega-Lite spec without data, and the names of its rows.
        For each name of rows, the second has the rows; equal rows of several charts are stored once.
        """
        rows: dict[str, Any] = {}
        charts: dict[str, Any] = {}
        for key, full_spec in self.specs.items():
            spec = {name: value for name, value in full_spec.items() if name != "datasets"}
            rows |= full_spec["datasets"]
            charts[key] = {"spec": spec | {"width": "container"}, "rows": list(full_spec["datasets"])}
        return charts, rows


def safe_name(name: str, used_names: Sequence[str] | dict[str, Any]) -> str:
    """Return a text as a name that is safe in files and attributes and is not used yet.

    The name has at most 60 ASCII letters, digits, `-` and `_`, and then a number if needed.

    Args:
        name: any text.
        used_names: names that are taken.
    """
    stem = (
        "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name)[:60].strip("-")
        or "chart"
    )
    numbered = (f"{stem}-{number}" for number in count(2))
    return next(name for name in chain([stem], numbered) if name not in used_names)


def legend(
    material: Material, arms: Collection[str], *, frontier: bool, visible: Sequence[str] | None = None
) -> Markup:
    """Return buttons that switch arms on and off in every chart of a group, in the order of the page.

    Pointing at a button highlights its arm. With more than two arms, two more buttons switch all on or off.

    Args:
        material: results of the run.
        arms: the arms that have a button.
        frontier: whether the legend has an entry for the frontier.
        visible: arms that are on at first; None for all.
    """
    marks = samples(material.colours)
    entries = [
        tag(
            "button",
            marks[arm],
            cut(arm),
            type="button",
            data_arm=arm,
            aria_pressed="true" if visible is None or arm in visible else "false",
        )
        for arm in material.ordered_arms
        if arm in arms and arm in marks
    ]
    if len(entries) > 2:
        entries += [
            tag("button", word, type="button", data_all=which, class_="all")
            for word, which in (("all", "on"), ("none", "off"))
        ]
    frontier_entry = tag("span", tag("span", class_="dash"), "frontier", class_="key") if frontier else None
    return tag("div", entries, frontier_entry, class_="legend")


def curve_group(
    gallery: Gallery,
    material: Material,
    name: str,
    benchmarks: Sequence[str],
    lines: Sequence[str] = (),
    keys: Markup | None = None,
) -> Markup:
    """Return charts of accuracy over budgets on several benchmarks, the chart of their mean large.

    Args:
        gallery: collection that the charts are added to.
        material: results of the run.
        name: prefix of the charts' names.
        benchmarks: names of benchmarks, or `mean`.
        lines: arms that are switched on at first; empty for all.
        keys: element whose buttons switch arms, in place of a legend.
    """
    arms = [arm for arm in material.arms if arm in lines] or list(material.arms)
    figures = [
        gallery.figure(
            f"{name}-{title(benchmark)}",
            curves(material, benchmark, arms, with_names=benchmark == MEAN),
            wide=benchmark == MEAN,
        )
        for benchmark in benchmarks
    ]
    switches = (
        legend(material, material.arms, frontier=material.frontier().height > 0, visible=arms)
        if keys is None
        else None
    )
    return tag("div", tag("div", switches, tag("div", figures, class_="charts")), keys, data_group=True)


SPREAD: dict[str, tuple[Callable[[Material], pl.DataFrame], Callable[[Material, pl.DataFrame], Json]]] = {
    "lengths": (length_rows, lengths),
    "difficulty": (difficulty_rows, difficulty),
}
"""Charts of distributions of responses, by name: a function for the rows, and a function for the chart of them."""


def spread_group(gallery: Gallery, material: Material) -> Markup | None:
    """Return charts of responses by length and by difficulty; None without stored responses."""
    rows = {name: read(material) for name, (read, _) in SPREAD.items()}
    arms = {arm for frame in rows.values() for arm in frame["arm"]}
    if not arms:
        return None
    charts = [
        gallery.figure(name, draw(material, rows[name]))
        for name, (_, draw) in SPREAD.items()
        if rows[name].height
    ]
    about = f"Difficulty is the share of {reference(material)}'s responses that are right, over all seeds."
    return tag(
        "div",
        tag("h3", "Distribution of responses"),
        tag("p", about, class_="about") if rows["difficulty"].height else None,
        legend(material, arms, frontier=False),
        tag("div", charts, class_="charts two"),
        data_group=True,
    )


def scatter_group(gallery: Gallery, material: Material, table: pl.DataFrame) -> Markup:
    """Return a chart of accuracy over mean length, and a chart of REG with its intervals if the study has a score.

    Args:
        gallery: collection that the charts are added to.
        material: results of the run.
        table: frame of `tables.main`.
    """
    figures = [gallery.figure("accuracy-length", scatter(material, table))]
    if "reg" in table.columns and table["reg"].drop_nulls().len():
        figures.append(gallery.figure("reg", gaps(material, table)))
    return tag("div", figures, class_="charts two")


METHODS = {
    "ppo": "Reinforcement learning",
    "sft": "Supervised fine-tuning",
    "simpo": "Preference training",
    "dpo": "Preference training with a reference model",
}


FIRST_METRICS = {
    "ppo": ("reward", "accuracy", "length"),
    "sft": ("loss",),
    **dict.fromkeys(("simpo", "dpo"), ("loss", "accuracy")),
}
"""The metrics that are shown unfolded, by method; the other metrics are in a folded box."""


def training_groups(gallery: Gallery, material: Material) -> list[Markup]:
    """Return the charts of training metrics, a group for each method, RL first; empty without metrics.

    A group has a legend, controls, the charts of the method's first metrics, and all other charts in a folded box.
    Counts of failures that are 0 at every step have no chart.
    """
    groups = []
    for method, heading in METHODS.items():
        figures: dict[str, Markup] = {}
        arms: set[str] = set()
        for metric in metrics_of(material):
            rows = training_rows(material, metric, method)
            if rows.height and not (metric in COUNTS and rows[metric].max() == 0):
                arms |= set(rows["arm"])
                figures[metric] = gallery.figure(f"{method}-{metric}", training(material, metric, method))
        if not figures:
            continue
        shown_first = [figure for metric, figure in figures.items() if metric in FIRST_METRICS[method]]
        extra = [figure for metric, figure in figures.items() if metric not in FIRST_METRICS[method]]
        box = tag("details", tag("summary", "More measurements"), tag("div", extra, class_="charts inside"))
        keys = legend(material, arms, frontier=False)
        main_charts = tag("div", shown_first, class_="charts")
        last = int(material.metrics.filter(pl.col("method") == method)["at"].max() or 1)  # type: ignore[arg-type]
        parts = (tag("h3", heading), keys, _smoothing(last), main_charts, box if extra else None)
        groups.append(tag("div", parts, data_group=True))
    return groups


def _smoothing(last_step: int) -> Markup:
    """Return a page's controls that smooth the curves of a group of charts and choose their range of steps.

    Args:
        last_step: the last step of any training.
    """

    def step(name: str, value: int) -> Markup:
        """Return a field for the number of a step."""
        return tag("input", type="number", name=name, min=1, max=last_step, value=value)

    return tag(
        "div",
        tag(
            "label",
            "smooth over",
            tag("input", type="range", name="smooth", min=1, max=max(1, min(50, last_step // 2)), value=1),
            tag("output", "1 step"),
        ),
        tag("label", "from step", step("from", 1)),
        tag("label", "to", step("to", last_step)),
        tag("button", "all steps", type="button", name="whole"),
        class_="filters shaping",
        data_last=last_step,
    )


def declared_group(gallery: Gallery, material: Material) -> Markup | None:
    """Return the charts over length or step that the spec declares and that have data; None without any.

    The legend has the arms of the charts over steps, and is left out if there are no such charts.
    """
    table = tables.main(material)
    figures = []
    arms: set[str] = set()
    for chart in material.study.charts:
        if chart.x == "length" and chart.y_key in table.columns and set(chart.lines) & set(table["arm"]):
            figures.append(
                gallery.figure(chart.name, scatter(material, table, MEAN, chart.y_key, chart.lines))
            )
        elif chart.x == "step" and (
            drawn := set(training_rows(material, chart.y_key, "ppo")["arm"]) & set(chart.lines)
        ):
            figures.append(gallery.figure(chart.name, training(material, chart.y_key, "ppo", chart.lines)))
            arms |= drawn
    if not figures:
        return None
    switches = legend(material, arms, frontier=False) if arms else None
    return tag("div", switches, tag("div", figures, class_="charts two"), data_group=True)
