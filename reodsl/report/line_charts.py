"""Draw lines: a metric of trainings over steps, the share of responses by length, and accuracy by difficulty."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reodsl.diagnostics import in_percent
from reodsl.report import vega
from reodsl.report.material import Material, reading
from reodsl.report.vega import Cross, Json, Rows, channel, layer

HEIGHT = 210
MOST_POINTS = 400
"""The most points of a line; the steps of longer runs are averaged in groups."""

FAR_FACTOR = 20.0
"""Arms whose largest rewards differ by more than this factor are drawn as shares of each arm's largest reward."""

LABELS = {
    "reward": "reward",
    "accuracy": "accuracy",
    "length": "response length (tokens)",
    "loss": "loss",
    "entropy": "entropy (nats/token)",
    "clip_fraction": "share of clipped tokens",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "mismatch_median": "engine/trainer probability ratio, median",
    "mismatch_max": "engine/trainer probability ratio, largest",
    "mismatch_kl": "KL of the trainer from the engine (nats/token)",
    "lag": "rollout lag (steps)",
    "verifier_timeouts": "answers on which the verifier timed out",
    "verifier_failures": "answers the verifier failed on",
    "reward_failures": "responses the reward's Python failed on",
    "seconds_generate": "seconds to generate",
    "seconds_force": "seconds to force answers",
    "seconds_grade": "seconds to grade",
    "seconds_score": "seconds to score tokens",
    "seconds_update": "seconds to update",
    "seconds_wait": "seconds waited for responses",
    "seconds_monitor": "seconds to answer the monitor set",
    "train_tokens_per_second": "tokens trained per second",
    "mfu": "share of the device's peak FLOPs",
    "memory": "peak memory so far (GB)",
}
"""The title of each metric that is drawn, in the order of the charts."""

SHARES = ("accuracy", "clip_fraction", "mfu")
"""The metrics that are drawn in percent."""

TRACK = "track_"
"""The prefix of metrics that are values of a reward's tracks; their charts come after those of `LABELS`."""

COUNTS = ("verifier_timeouts", "verifier_failures", "reward_failures")
"""Metrics that have no chart if they are 0 at every step."""


def training(material: Material, metric: str, method: str, lines: Sequence[str] | None = None) -> Json:
    """Return a chart of a metric by step: a bold line for each arm's mean over seeds, a thin line for each seed.

    Stages of an arm follow one another on the axis, and a dashed rule marks the start of each later stage. If the largest
    rewards of two arms differ by more than `FAR_FACTOR`, rewards are drawn as shares of each arm's largest reward.

    Args:
        material: results of the run.
        metric: column of `metrics.parquet`.
        method: kind of the stages that are drawn (`ppo`, `sft`, `simpo` or `dpo`).
        lines: arms that are drawn; None for all.
    """
    rows = training_rows(material, metric, method)
    present = set(rows["arm"])
    arms = [arm for arm in material.ordered_arms if arm in present and (lines is None or arm in lines)]
    rows = material.sort_arms(rows.filter(pl.col("arm").is_in(arms)))
    label, column = LABELS.get(metric, metric.replace(TRACK, "track ", 1)), metric
    relative = metric == "reward" and _differ_much(rows)
    if relative:
        column, label = "of_largest", "reward (share of the arm's largest)"
        largest = pl.col(metric).abs().max().over("arm")
        rows = rows.with_columns(
            (pl.col(metric) / pl.when(largest > 0).then(largest)).fill_null(0).alias(column)
        )
    percent = relative or metric in SHARES
    x = channel("at", title="step", axis={"tickMinStep": 1})
    y = channel(column, title=label, **vega.axis(rows[column], {"format": "%"} if percent else None))
    mean = rows.group_by("arm", "at", maintain_order=True).agg(
        pl.col(*dict.fromkeys((metric, column))).mean()
    )
    datasets = Rows()
    data = datasets.add(mean)
    layers: list[Json] = []
    tint = vega.colour(material.colours, arms)
    if rows["seed"].n_unique() > 1:
        thin = {"strokeWidth": 0.8, "opacity": 0.35}
        detail = channel("seed", "nominal")
        layers.append(layer(datasets.add(rows), "line", thin, x=x, y=y, color=tint, detail=detail))
    tooltip = [channel("arm", "nominal"), channel("at", title="step"), channel(metric, format=".4~g")]
    dots = {"size": 40} if mean.height < 3 * len(arms) else False
    layers.append(vega.lines(data, x, y, material.colours, arms, tooltip=tooltip, point=dots))
    changes = stage_changes(material, method).filter(pl.col("arm").is_in(arms))
    stages = datasets.add(changes) if changes.height else None
    if stages is not None:
        stage_tooltip = [
            channel("arm", "nominal"),
            channel("stage", "nominal", title="begins"),
            channel("at", title="after step"),
        ]
        dashed = {"strokeDash": [2, 4], "opacity": 0.7}
        layers.append(layer(stages, "rule", dashed, x=x, color=tint, tooltip=stage_tooltip))
    return vega.chart(
        datasets,
        layers,
        title=label,
        about=f"{label} by step: {vega.ends(mean, 'at', metric, '.4g')}.",
        height=HEIGHT,
        cross=Cross("at", column, data, percent=percent, stages=stages),
    )


def stage_changes(material: Material, method: str) -> pl.DataFrame:
    """Return the step after which each stage of a method begins, without the first stage of an arm.

    Returns:
        Columns `arm`, `stage` (name of the stage that begins) and `at` (the last step before it).
    """
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


def _differ_much(rows: pl.DataFrame) -> bool:
    """Return whether the largest rewards of two arms differ by more than `FAR_FACTOR`.

    On a common axis the smaller reward would then be a flat line.
    """
    largest = rows.group_by("arm").agg(pl.col("reward").abs().max())["reward"]
    largest = largest.filter(largest > 0)
    return len(largest) > 1 and float(largest.max()) > FAR_FACTOR * float(largest.min())  # type: ignore[arg-type]


def metrics_of(material: Material) -> tuple[str, ...]:
    """Return the names of metrics that may be drawn: those in `LABELS`, then the tracks of rewards."""
    return (*LABELS, *(name for name in material.metrics.columns if name.startswith(TRACK)))


def training_rows(material: Material, metric: str, method: str) -> pl.DataFrame:
    """Return a metric by step for the stages of a method; no rows if the metric was not measured.

    Returns:
        Columns `arm`, `seed`, `at` (a step) and the metric. If a line has more than `MOST_POINTS` steps, each row is
        the mean over a group of successive steps, at the last step of the group.
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
    group_size = -(-int(steps.max() or 1) // MOST_POINTS)  # type: ignore[arg-type]
    if group_size == 1:
        return rows
    group_index = (pl.int_range(pl.len()).over("arm", "seed") // group_size).alias("_place")
    thinned = rows.group_by("arm", "seed", group_index, maintain_order=True)
    return thinned.agg(pl.col("at").last(), pl.col(metric).mean()).drop("_place")


LEVELS = ("always", "3/4 or more", "1/2 to 3/4", "1/4 to 1/2", "less", "never")
"""Levels of difficulty by the share of the base model's responses that are right, the easiest first."""
LENGTHS = 32
"""Number of bins of equal size from 0 to the longest response of any arm."""


def lengths(material: Material, rows: pl.DataFrame) -> Json:
    """Return a chart of the share of each arm's responses by length, over all seeds and benchmarks.

    Args:
        material: results of the run.
        rows: frame of `length_rows`.
    """
    datasets = Rows()
    data = datasets.add(rows)
    x = channel("tokens", title="response length (tokens)")
    tooltip = [
        channel("arm", "nominal"),
        channel("tokens", title="from tokens", format=","),
        channel("share", title="responses", format=".1%"),
        channel("right", title="share right", format=".1%"),
    ]
    arms = [arm for arm in material.arms if arm in set(rows["arm"])]
    y = channel("share", title="share of responses", axis={"format": "%"})
    line = vega.lines(data, x, y, material.colours, arms, tooltip=tooltip, interpolate="step-after")
    peaks = rows.sort("share", descending=True).unique("arm", keep="first", maintain_order=True)
    peaks_text = ", ".join(
        f"{row['arm']} most often from {row['tokens']:g} tokens on ({in_percent(row['share'])}%)"
        for row in material.sort_arms(peaks).to_dicts()[:12]
    )
    return vega.chart(
        datasets,
        [line],
        title="response lengths",
        about=f"Share of responses by length in tokens: {peaks_text}.",
        height=210,
        cross=Cross("tokens", "share", data, percent=True),
    )


def length_rows(material: Material) -> pl.DataFrame:
    """Return a histogram of each arm's response lengths.

    Returns:
        Columns `arm`, `tokens` (the first length of a bin), `share` (of the arm's responses that are in the bin), and
        `right` (the share of responses in the bin that are right; null for an empty bin). Each arm's last bin is empty.
    """
    counts: list[pl.DataFrame] = []
    for (arm, _), folder in material.evaluations.items():
        path = folder / "samples.parquet"
        if path.is_file():
            with reading(path):
                counts.append(
                    pl.scan_parquet(path, glob=False)
                    .group_by("tokens")
                    .agg(pl.len().alias("count"), pl.col("correct").sum().alias("hits"))
                    .with_columns(pl.lit(arm).alias("arm"))
                    .collect(engine="streaming")
                )
    if not counts:
        return pl.DataFrame(
            schema={"arm": pl.String, "tokens": pl.Int64, "share": pl.Float64, "right": pl.Float64}
        )
    exact = pl.concat(counts)
    longest = int(exact["tokens"].max() or 0)  # type: ignore[arg-type]
    bin_size = max(1, -(-(longest + 1) // LENGTHS))
    first = (pl.col("tokens") // bin_size * bin_size).alias("tokens")
    bins = exact.group_by("arm", first).agg(pl.col("count", "hits").sum())
    all_bins = (
        bins.select("arm")
        .unique()
        .join(pl.DataFrame({"tokens": range(0, longest + bin_size + 1, bin_size)}), how="cross")
    )
    return (
        all_bins.join(bins, on=["arm", "tokens"], how="left")
        .with_columns(pl.col("count", "hits").fill_null(0))
        .with_columns(
            (pl.col("count") / pl.col("count").sum().over("arm")).alias("share"),
            pl.when(pl.col("count") > 0).then(pl.col("hits") / pl.col("count")).alias("right"),
        )
        .select("arm", "tokens", "share", "right")
        .sort("arm", "tokens")
    )


def difficulty(material: Material, rows: pl.DataFrame) -> Json:
    """Return a chart of each arm's accuracy by the difficulty of questions.

    Args:
        material: results of the run.
        rows: frame of `difficulty_rows`.
    """
    datasets = Rows()
    data = datasets.add(rows)
    arms = [arm for arm in material.arms if arm in set(rows["arm"])]
    x = channel(
        "level",
        "nominal",
        # The title names no arm: Vega compiles it to an expression, and a name may break its parser or the page's policy.
        title="how often the base is right on the question",
        sort=list(LEVELS),
        axis={"labelAngle": 0, "labelOverlap": "greedy"},
    )
    y = channel("accuracy", title="accuracy", axis={"format": "%"})
    tooltip = [
        channel("arm", "nominal"),
        channel("level", "nominal", title="base is right"),
        channel("accuracy", format=".1%"),
        channel("questions", format=","),
    ]
    look: Json = {"color": vega.colour(material.colours, arms), "opacity": vega.faded(0.12)}
    dots = layer(data, "point", {"filled": True, "size": 55}, x=x, y=y, tooltip=tooltip, **look)
    hardest = rows.filter(pl.col("level") == rows["level"][-1])
    words = ", ".join(f"{row['arm']} {in_percent(row['accuracy'])}%" for row in hardest.to_dicts()[:12])
    return vega.chart(
        datasets,
        [vega.lines(data, x, y, material.colours, arms), dots],
        title="accuracy by difficulty",
        about=f"Accuracy by difficulty. Where {reference(material)} is right {rows['level'][-1]}: {words}.",
        height=230,
    )


def reference(material: Material) -> str:
    """Return the arm that defines difficulty: the study's first evaluated arm that others start from, else its first."""
    names = (*material.bases, *(arm.name for arm in material.study.arms))
    return next(arm for arm in names if arm in material.arms)


def difficulty_rows(material: Material) -> pl.DataFrame:
    """Return each arm's accuracy by the difficulty of questions, the easiest first.

    The difficulty of a question is the share of the base model's responses that are right, over all seeds. The base
    model itself has no rows, since its accuracy defines the levels.

    Returns:
        Columns `arm`, `level`, `accuracy` (a share, over samples, seeds and questions) and `questions`, their number.
    """
    empty = pl.DataFrame(
        schema={"arm": pl.String, "level": pl.String, "accuracy": pl.Float64, "questions": pl.Int64}
    )
    by_question = {
        arm: shares
        for arm in material.arms
        if (shares := _shares(material, arm)) is not None and shares.height
    }
    base = by_question.pop(reference(material), None) if material.arms else None
    if base is None or not by_question:
        return empty
    share = pl.col("share")
    bounds = zip(LEVELS, (1, 0.75, 0.5, 0.25, 1e-9, 0), strict=True)
    level = pl.coalesce(pl.when(share >= least).then(pl.lit(name)) for name, least in bounds)
    levels = base.select("benchmark", "question", level.alias("level"))
    frames = [
        shares.join(levels, on=["benchmark", "question"])
        .group_by("level")
        .agg(share.mean().alias("accuracy"), pl.len().cast(pl.Int64).alias("questions"))
        .select(pl.lit(arm).alias("arm"), "level", "accuracy", "questions")
        for arm, shares in by_question.items()
    ]
    rows = pl.concat(frames)
    level_index = pl.col("level").replace_strict(
        {name: i for i, name in enumerate(LEVELS)}, return_dtype=pl.Int64
    )
    return rows.sort(level_index, maintain_order=True)


def _shares(material: Material, arm: str) -> pl.DataFrame | None:
    """Return for each question the share of an arm's responses that are right, over samples and seeds.

    Returns:
        Columns `benchmark`, `question` and `share`; None if the arm has no stored responses.
    """
    files = [
        folder / "samples.parquet"
        for (name, _), folder in material.evaluations.items()
        if name == arm and (folder / "samples.parquet").is_file()
    ]
    if not files:
        return None
    with reading(files[0]):
        return (
            pl.concat(
                [
                    pl.scan_parquet(file, glob=False).select("benchmark", "question", "correct")
                    for file in files
                ]
            )
            .group_by("benchmark", "question")
            .agg(pl.col("correct").cast(pl.Float64).mean().alias("share"))
            .sort("benchmark", "question")
            .collect(engine="streaming")
        )
