"""Show how much each arm trained: steps, summed learning rate, questions and tokens, and the data left out."""

from __future__ import annotations

import polars as pl

from reodsl.diagnostics.model import group
from reodsl.ir.training import FromTraining, Ppo, Stage
from reodsl.report import formats
from reodsl.report.markup import Child, data_table, name_cell, samples, tag
from reodsl.report.material import Material

CLOSE_SHARE = 0.05
"""The relative difference up to which two amounts count as equal, as in `reodsl check`."""
COLUMNS = {"steps": 0, "summed rate": 4, "questions": 0, "tokens generated": 0}
"""Digits of each amount in the table. Tokens are not compared, since methods that shorten responses change them."""
DATA = ("questions", "lost", "picked", "dropped")


def trained_amounts(material: Material) -> pl.DataFrame:
    """Return how much RL each arm had, as measured, averaged over seeds; no rows if no training measured tokens.

    Returns:
        Columns `arm`, `steps`, `summed rate` (the learning rate summed over steps), `questions` and `tokens generated`.
    """
    metrics = material.metrics
    if not {"tokens", "lr"} <= set(metrics.columns):
        return pl.DataFrame(schema={"arm": pl.String} | dict.fromkeys(COLUMNS, pl.Float64))
    question_counts = pl.DataFrame(
        [
            (arm.name, i, _count_questions(stage))
            for arm in material.study.arms
            for i, stage in enumerate(arm.stages)
        ],
        schema={"arm": pl.String, "index": pl.Int64, "asked": pl.Int64},
        orient="row",
    )
    return (
        metrics.filter(pl.col("method") == "ppo")
        .join(question_counts, on=["arm", "index"], how="left")
        .group_by("arm", "seed", maintain_order=True)
        .agg(
            pl.len().cast(pl.Float64).alias("steps"),
            pl.col("lr").sum().alias("summed rate"),
            pl.col("asked").sum().cast(pl.Float64).alias("questions"),
            pl.col("tokens").sum().cast(pl.Float64).alias("tokens generated"),
        )
        .group_by("arm", maintain_order=True)
        .agg(pl.col(tuple(COLUMNS)).mean())
    )


def unequal_arms(material: Material) -> list[str]:
    """Return the arms that trained for another amount than the arm that they are compared with.

    Only arms whose stages are all RL are considered. Of the arms that start from one checkpoint, all are compared with
    the study's baseline if it is among them, else with the first. Amounts differ if the steps, the summed learning rate
    or the questions differ by more than `CLOSE_SHARE`.
    """
    rows = {row["arm"]: row for row in trained_amounts(material).to_dicts()}
    score = material.study.score
    rows_by_start = group(
        (arm.checkpoint.experiment.start, rows[arm.name])
        for arm in material.study.arms
        if isinstance(arm.checkpoint, FromTraining)
        and arm.name in rows
        and all(map(_count_questions, arm.stages))
    )
    unequal = []
    for members in rows_by_start.values():
        baseline = next((row for row in members if score and row["arm"] == score.relative_to), members[0])
        unequal += [
            row["arm"]
            for row in members
            if any(
                abs(row[name] - baseline[name]) > CLOSE_SHARE * max(row[name], baseline[name])
                for name in list(COLUMNS)[:3]
            )
        ]
    return sorted(unequal, key=material.ordered_arms.index)


def section(material: Material) -> list[Child]:
    """Return a table of how much RL each arm had, with a warning if arms differ; empty without RL."""
    rows = material.sort_arms(trained_amounts(material))
    if not rows.height:
        return []
    unequal = unequal_arms(material)
    reason = f" The study says why: {material.study.unequal}." if material.study.unequal else ""
    warning_text = (
        f"Trained for a different amount than the arms they are compared with: {', '.join(unequal)}. A difference in REG"
        f" may come from this and not from the method.{reason}"
    )
    seeds_note = " Means over seeds." if len(material.seeds) > 1 else ""
    words = f"How much each arm trained by RL, and how many tokens its responses had.{seeds_note}"
    marks = samples(material.colours)
    body = [
        tag(
            "tr",
            name_cell(row["arm"], marks.get(row["arm"])),
            [tag("td", formats.number(row[name], digits)) for name, digits in COLUMNS.items()],
        )
        for row in rows.to_dicts()
    ]
    head = tag("tr", tag("th", "arm", class_="name"), [tag("th", name) for name in COLUMNS], class_="only")
    warning = [tag("p", warning_text, class_="about warn")] if unequal else []
    return [tag("h3", "Trained amounts"), *warning, tag("p", words, class_="about"), data_table(head, body)]


def data_section(material: Material) -> list[Child]:
    """Return a table of the data left out of each training, averaged over seeds; empty if no training recorded any."""
    if not material.selections.height:
        return []
    rows = (
        material.sort_arms(material.selections)
        .group_by("arm", "stage", "by", maintain_order=True)
        .agg(pl.col(DATA).mean())
        .with_columns((pl.col("lost") / pl.col("questions")).alias("share"))
    )
    drops = bool(rows["dropped"].sum())
    words = (
        "Questions, traces or pairs that were not trained on, and the setting that excludes them. A selection loses a"
        " question if it picks none of its responses"
        + (", and picks with the lowest margins are left out" if drops else "")
        + ("; means over seeds." if len(material.seeds) > 1 else ".")
    )
    several = set(rows.filter(pl.col("arm").is_duplicated())["arm"])
    marks = samples(material.colours)
    body = [
        tag(
            "tr",
            name_cell(row["arm"], marks.get(row["arm"]), row["stage"] if row["arm"] in several else None),
            tag("td", row["by"]),
            tag("td", formats.number(row["questions"], 0)),
            tag("td", formats.number(row["lost"], 0)),
            tag("td", formats.percent(row["share"])),
            tag("td", formats.number(row["picked"], 0)),
            tag("td", formats.number(row["dropped"], 0)) if drops else None,
        )
        for row in rows.to_dicts()
    ]
    heads = ("excluded by", "total", "lost", "lost (%)", "trained on", *(("left out",) if drops else ()))
    head = tag("tr", tag("th", "arm", class_="name"), [tag("th", name) for name in heads], class_="only")
    return [tag("h3", "Left out of training"), tag("p", words, class_="about"), data_table(head, body)]


def _count_questions(stage: Stage) -> int | None:
    """Return the number of questions in a step of RL; None if the stage trains by another method."""
    return stage.method.batch.prompts if isinstance(stage.method, Ppo) else None
