"""Charts of how responses are spread: accuracy by difficulty, where answers turn right for good, and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from reodsl.report.artifacts import reading
from reodsl.report.chart_parts import (
    ON,
    WIDTH,
    Cross,
    Rows,
    Width,
    colour,
    dash,
    ends,
    faded,
    focus,
    switches,
)
from reodsl.report.material import Material

HEIGHT = 230
LEVELS = ("always", "3/4 or more", "1/2 to 3/4", "1/4 to 1/2", "less", "never")
"""How often the base model is right on a question, the easiest first."""
BINS = 24
LAST = 0.1
"""The share of a training's steps, its last ones, whose rewards are shown."""
_KEYS = ["benchmark", "question", "sample"]


def difficulty(material: Material, rows: pl.DataFrame, width: Width = WIDTH) -> alt.LayerChart:
    """Accuracy of each arm on questions by how often the base model is right on them, from `difficulty_rows`."""
    datasets = Rows()
    data = datasets.add(rows)
    arms = _arms(material, rows)
    x = alt.X(
        "level:N",
        # No name of an arm: Vega makes an expression of this text, which the page's policy and its parser are strict on.
        title="how often the base is right on the question",
        sort=list(LEVELS),
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy"),
    )
    y = alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format="%"))
    tooltip = [
        alt.Tooltip("arm:N"),
        alt.Tooltip("level:N", title="base is right"),
        alt.Tooltip("accuracy:Q", format=".1%"),
        alt.Tooltip("questions:Q", format=","),
    ]
    base = alt.Chart(data).transform_filter(ON)
    shared: dict[str, Any] = {"color": colour(material, arms), "opacity": faded(0.12)}
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, **shared, **dash(material, arms))
    dots = base.mark_point(filled=True, size=55).encode(x=x, y=y, tooltip=tooltip, **shared)
    hardest = rows.filter(pl.col("level") == rows["level"][-1])
    said = ", ".join(f"{row['arm']} {row['accuracy']:.0%}" for row in hardest.to_dicts()[:12])
    about = f"Accuracy by difficulty. Where {reference(material)} is right {rows['level'][-1]}: {said}."
    chart = alt.layer(line, dots).add_params(focus(), switches())
    return datasets.put(
        chart.properties(width=width, height=HEIGHT, title="accuracy by difficulty", description=about)
    )


def reference(material: Material) -> str:
    """The arm that tells how difficult a question is: the first where others start, else the first arm."""
    return next((arm for arm in material.bases if arm in material.arms), material.arms[0])


def difficulty_rows(material: Material) -> pl.DataFrame:
    """arm, level, accuracy (over samples, seeds and questions) and the number of questions; the easiest first.

    The level of a question is the share of the base model's own responses to it, over all seeds, that are right. The
    base has no rows: its accuracy by its own accuracy says nothing.
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
    level = (
        pl.when(share == 1)
        .then(pl.lit(LEVELS[0]))
        .when(share >= 0.75)
        .then(pl.lit(LEVELS[1]))
        .when(share >= 0.5)
        .then(pl.lit(LEVELS[2]))
        .when(share >= 0.25)
        .then(pl.lit(LEVELS[3]))
        .when(share > 0)
        .then(pl.lit(LEVELS[4]))
        .otherwise(pl.lit(LEVELS[5]))
    )
    levels = base.select("benchmark", "question", level.alias("level"))
    frames = [
        shares.join(levels, on=["benchmark", "question"])
        .group_by("level")
        .agg(share.mean().alias("accuracy"), pl.len().cast(pl.Int64).alias("questions"))
        .select(pl.lit(arm).alias("arm"), "level", "accuracy", "questions")
        for arm, shares in by_question.items()
    ]
    rows = pl.concat(frames)
    place = pl.col("level").replace_strict({name: i for i, name in enumerate(LEVELS)}, return_dtype=pl.Int64)
    return rows.sort(place, maintain_order=True)


def _shares(material: Material, arm: str) -> pl.DataFrame | None:
    """The share of right responses of an arm by question, over samples and seeds."""
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


def settled(material: Material, rows: pl.DataFrame, width: Width = WIDTH) -> alt.LayerChart:
    """The share of responses whose forced answer is right at a budget and at every larger one, a line an arm.

    `rows` are those of `settled_rows`.
    """
    datasets = Rows()
    data = datasets.add(rows)
    arms = _arms(material, rows)
    line = alt.Chart(data).transform_filter(ON).mark_line(strokeWidth=2, interpolate="step-after")
    lined = line.encode(
        x=alt.X("budget:Q", title="budget (tokens of the response)", scale=alt.Scale(nice=False)),
        y=alt.Y("share:Q", title="responses that are right from here on", axis=alt.Axis(format="%")),
        color=colour(material, arms),
        opacity=faded(0.12),
        **dash(material, arms),
    )
    about = f"Share of responses right from a budget on: {ends(rows, 'budget', 'share', '.0%')}."
    chart = alt.layer(lined).add_params(focus(), switches())
    return datasets.put(
        chart.properties(
            width=width, height=HEIGHT, title="where answers turn right for good", description=about
        ),
        Cross("budget", "share", data.name, percent=True),
    )


def settled_rows(material: Material) -> pl.DataFrame:
    """arm, budget, and the share of its responses that are right at this budget of the grid and at every larger one."""
    schema = {"arm": pl.String, "budget": pl.Int64, "share": pl.Float64}
    frames = []
    for arm in material.arms:
        files = [
            folder / "forced.parquet"
            for (name, _), folder in material.evaluations.items()
            if name == arm and (folder / "forced.parquet").is_file()
        ]
        if not files:
            continue
        with reading(files[0]):
            wrong = pl.concat(
                [
                    pl.scan_parquet(file, glob=False)
                    .group_by(_KEYS)
                    .agg(pl.col("budget").filter(~pl.col("correct")).max().alias("last"))
                    .group_by("last")
                    .agg(pl.len().alias("count"))
                    for file in files
                ]
            ).collect(engine="streaming")
            grid = (
                pl.scan_parquet(files[0], glob=False)
                .select(pl.col("budget").unique().sort())
                .collect(engine="streaming")["budget"]
            )
        if len(grid) < 2:
            continue
        total = int(wrong["count"].sum())
        settles = [
            int(wrong.filter(pl.col("last").is_null() | (pl.col("last") < budget))["count"].sum()) / total
            for budget in grid
        ]
        frames.append(
            pl.DataFrame({"arm": [arm] * len(grid), "budget": grid, "share": settles}, schema=schema)
        )
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)


def rewards(material: Material, rows: pl.DataFrame, width: Width = WIDTH) -> alt.LayerChart:
    """The share of an arm's last rollouts by reward, each reward as a share of the arm's largest; a line an arm.

    `rows` are those of `reward_rows`.
    """
    datasets = Rows()
    data = datasets.add(rows)
    arms = _arms(material, rows)
    line = alt.Chart(data).transform_filter(ON).mark_line(strokeWidth=2, interpolate="step")
    axis = alt.Axis(format="%")
    lined = line.encode(
        x=alt.X("reward:Q", title="reward (share of the arm's largest)", axis=axis),
        y=alt.Y("share:Q", title="share of rollouts", axis=axis),
        color=colour(material, arms),
        opacity=faded(0.12),
        **dash(material, arms),
    )
    about = f"Share of the last rollouts by reward: {ends(rows, 'reward', 'share', '.0%')}."
    chart = alt.layer(lined).add_params(focus(), switches())
    return datasets.put(
        chart.properties(
            width=width, height=HEIGHT, title="rewards at the end of training", description=about
        ),
        Cross("reward", "share", data.name, percent=True, share=True),
    )


def reward_rows(material: Material) -> pl.DataFrame:
    """arm, reward (the middle of a stretch, as a share of the arm's largest in size), and the share of rollouts in it.

    Of the last tenth of the steps of each arm's last stage, all seeds together.
    """
    schema = {"arm": pl.String, "reward": pl.Float64, "share": pl.Float64}
    last: dict[tuple[str, int | None], int] = {}
    for arm, seed, index in material.trainings:
        last[arm, seed] = max(index, last.get((arm, seed), 0))
    values: dict[str, list[pl.Series]] = {}
    for (arm, seed, index), folder in material.trainings.items():
        path = folder / "rollouts.parquet"
        if index != last[arm, seed] or not path.is_file():
            continue
        with reading(path):
            scan = pl.scan_parquet(path, glob=False)
            if "reward" not in scan.collect_schema().names():
                continue
            frame = (
                scan.filter(pl.col("step") > (1 - LAST) * pl.col("step").max())
                .select(pl.col("reward").cast(pl.Float64))
                .collect(engine="streaming")
            )
        finite = frame["reward"].drop_nulls()
        values.setdefault(arm, []).append(finite.filter(finite.is_finite()))
    frames = []
    for arm in material.drawn:
        if arm not in values:
            continue
        every = pl.concat(values[arm])
        largest = every.abs().max()
        if not every.len() or not largest:
            continue
        size = 2 / BINS
        place = (every / float(largest) / size).floor().clip(-BINS // 2, BINS // 2 - 1)  # type: ignore[arg-type]
        counts = dict(place.value_counts().rows())
        least = 0 if float(place.min()) >= 0 else -BINS // 2
        places = range(least, BINS // 2)
        frames.append(
            pl.DataFrame(
                {
                    "arm": [arm] * len(places),
                    "reward": [(at + 0.5) * size for at in places],
                    "share": [counts.get(float(at), 0) / every.len() for at in places],
                },
                schema=schema,
            )
        )
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)


def _arms(material: Material, rows: pl.DataFrame) -> Sequence[str]:
    there = set(rows["arm"])
    return [arm for arm in material.drawn if arm in there]
