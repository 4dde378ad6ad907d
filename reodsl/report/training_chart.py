"""Draw trainings: a metric over steps, a line for each arm."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reodsl.report import vega
from reodsl.report.material import Material
from reodsl.report.vega import Cross, Json, Rows, channel, layer

HEIGHT = 210
MOST_POINTS = 400
"""Points of a line; longer runs are thinned."""

FAR = 20.0
"""Rewards that differ by more than this factor are drawn each as a share of its arm's largest."""

LABELS = {
    "reward": "reward",
    "accuracy": "accuracy",
    "length": "response length (tokens)",
    "loss": "loss",
    "entropy": "entropy (nats a token)",
    "clip_fraction": "share of clipped tokens",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "mismatch_median": "engine against trainer, median factor",
    "mismatch_max": "engine against trainer, largest factor",
    "mismatch_kl": "trainer's divergence from the engine (nats a token)",
    "lag": "steps that rollouts lag",
    "verifier_timeouts": "answers the verifier had no time for",
    "verifier_failures": "answers the verifier failed on",
    "reward_failures": "responses the reward's Python failed on",
    "seconds_generate": "seconds to generate",
    "seconds_force": "seconds to force answers",
    "seconds_grade": "seconds to grade",
    "seconds_update": "seconds to update",
    "seconds_wait": "seconds waited for responses",
    "seconds_monitor": "seconds to answer the monitor set",
    "train_tokens_per_second": "tokens trained per second",
    "mfu": "share of the device's peak FLOPs",
    "memory": "memory, the most so far (GB)",
}
"""The metrics that are drawn, in this order, and their names."""

TRACK = "track_"
"""The beginning of metrics that have the values of a reward's tracks; they are drawn after the others."""

COUNTS = ("verifier_timeouts", "verifier_failures", "reward_failures")
"""Metrics whose chart says nothing where it stays at 0."""


def training(material: Material, metric: str, method: str, lines: Sequence[str] | None = None) -> Json:
    """Return a metric over an arm's steps, stages one after another: its mean over seeds in bold, each seed thin.

    Only stages of `method` (ppo, sft, simpo, dpo, ipo) are drawn.
    """
    rows = training_rows(material, metric, method)
    present = set(rows["arm"])
    arms = [arm for arm in material.drawn if arm in present and (lines is None or arm in lines)]
    rows = rows.filter(pl.col("arm").is_in(arms))
    label, drawn = LABELS.get(metric, metric.replace(TRACK, "track ", 1)), metric
    relative = metric == "reward" and _far_apart(rows)
    if relative:
        drawn, label = "of_largest", "reward (share of the arm's largest)"
        largest = pl.col(metric).abs().max().over("arm")
        rows = rows.with_columns(
            (pl.col(metric) / pl.when(largest > 0).then(largest)).fill_null(0).alias(drawn)
        )
    percent = relative or metric in ("accuracy", "clip_fraction", "mfu")
    x = channel("at", title="step", axis={"tickMinStep": 1})
    y = channel(drawn, title=label, axis={"format": "%"} if percent else {}, scale={"zero": False})
    mean = rows.group_by("arm", "at", maintain_order=True).agg(pl.col(*dict.fromkeys((metric, drawn))).mean())
    datasets = Rows()
    data = datasets.add(mean)
    layers: list[Json] = []
    tint = vega.colour(material, arms)
    if rows["seed"].n_unique() > 1:
        thin = {"strokeWidth": 0.8, "opacity": 0.35}
        detail = channel("seed", "nominal")
        layers.append(layer(datasets.add(rows), "line", thin, x=x, y=y, color=tint, detail=detail))
    tooltip = [
        channel("arm", "nominal"),
        channel("at", title="step"),
        channel(metric, format=".4~g"),
    ]
    dots = {"size": 14} if mean.height < 3 * len(arms) else False
    layers.append(vega.lines(data, x, y, material, arms, tooltip=tooltip, point=dots))
    changes = stage_changes(material, method).filter(pl.col("arm").is_in(arms))
    stages = datasets.add(changes) if changes.height else None
    if stages is not None:
        begins = [
            channel("arm", "nominal"),
            channel("stage", "nominal", title="begins"),
            channel("at", title="after step"),
        ]
        dashed = {"strokeDash": [2, 4], "opacity": 0.7}
        layers.append(layer(stages, "rule", dashed, x=x, color=tint, tooltip=begins))
    return vega.chart(
        datasets,
        layers,
        title=label,
        about=f"{label} by step: {vega.ends(mean, 'at', metric, '.4g')}.",
        height=HEIGHT,
        cross=Cross("at", drawn, data, percent=percent, stages=stages),
    )


def stage_changes(material: Material, method: str) -> pl.DataFrame:
    """Return arm, stage, at: the step after which each stage of this method begins that is not its arm's first."""
    empty = pl.DataFrame(schema={"arm": pl.String, "stage": pl.String, "at": pl.Int64})
    if not {"index", "stage"} <= set(material.metrics.columns):
        return empty
    changes = (
        material.metrics.filter((pl.col("method") == method) & (pl.col("index") > 0))
        .group_by("arm", "index", "stage", maintain_order=True)
        .agg(pl.col("at").min() - 1)
        .select("arm", "stage", "at")
    )
    return changes.filter(pl.col("at") > 0)


def _far_apart(rows: pl.DataFrame) -> bool:
    """Return whether one arm's rewards are so large that on one axis another's would be a flat line."""
    largest = rows.group_by("arm").agg(pl.col("reward").abs().max())["reward"]
    largest = largest.filter(largest > 0)
    return len(largest) > 1 and float(largest.max()) > FAR * float(largest.min())  # type: ignore[arg-type]


def metrics_of(material: Material) -> tuple[str, ...]:
    """Return the metrics that may be drawn: those with a name of their own, then tracks."""
    return (*LABELS, *(name for name in material.metrics.columns if name.startswith(TRACK)))


def training_rows(material: Material, metric: str, method: str) -> pl.DataFrame:
    """Return arm, seed, at, and the metric, for the stages of a method; no rows where it was not measured.

    A line of more than `MOST_POINTS` steps becomes the mean of even stretches of them.
    """
    empty = pl.DataFrame(schema={"arm": pl.String, "seed": pl.Int64, "at": pl.Int64, metric: pl.Float64})
    if metric not in material.metrics.columns:
        return empty
    value = pl.col(metric).cast(pl.Float64)
    rows = (
        material.metrics.filter((pl.col("method") == method) & value.is_not_null() & value.is_finite())
        .select("arm", "seed", "at", value)
        .sort("arm", "seed", "at")
    )
    if not rows.height:
        return empty
    steps = rows.group_by("arm", "seed").len()["len"]
    stretch = -(-int(steps.max() or 1) // MOST_POINTS)  # type: ignore[arg-type]
    if stretch == 1:
        return rows
    place = (pl.int_range(pl.len()).over("arm", "seed") // stretch).alias("_place")
    thinned = rows.group_by("arm", "seed", place, maintain_order=True)
    return thinned.agg(pl.col("at").last(), pl.col(metric).mean()).drop("_place")
