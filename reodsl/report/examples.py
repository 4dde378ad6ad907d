"""A dozen responses on the page, folded: `reodsl view` shows all of them."""

from __future__ import annotations

import shlex
from typing import Any

import polars as pl

from reodsl.report.markup import Markup, tag
from reodsl.report.material import Material, reading

MOST_RESPONSES = 12
"""Responses on the page; with more arms than this, one response of each arm."""
MOST_CHARACTERS = 20_000
"""Characters of a response that are shown; a longer one loses its middle."""


def section(material: Material) -> Markup | None:
    """Return the first sample of each arm for some questions, taken from each benchmark in turn.

    Args:
        material: results of the run.

    Returns:
        At most `MOST_RESPONSES` folded responses, but at least one of each arm; None without stored responses.
    """
    folders = {arm: folder for (arm, _), folder in reversed([*material.evaluations.items()])}
    tables = []
    for arm in material.arms:
        path = folders[arm] / "samples.parquet" if arm in folders else None
        if path is not None and path.is_file():
            with reading(path.parent):
                samples = pl.scan_parquet(path, glob=False).filter(sample=0)
                tables.append(samples.with_columns(pl.lit(arm).alias("arm")))
    if not tables:
        return None
    keys = (
        tables[0]
        .select("benchmark", "question")
        .sort("benchmark", "question")
        .with_columns(turn=pl.int_range(pl.len()).over("benchmark"))
        .sort("turn", "benchmark")
        .head(max(1, MOST_RESPONSES // len(tables)))
    )
    rows = [table.join(keys, on=("benchmark", "question")).collect() for table in tables]
    responses = pl.concat(rows, how="diagonal_relaxed").sort("turn", "benchmark", maintain_order=True)
    questions = responses.partition_by("turn", "benchmark", maintain_order=True)
    view = tag("code", shlex.join(["reodsl", "view", material.study.name]))
    about = "shows all of them, cut at any budget, with the forced answer."
    folds = [tag("div", [_fold(material, row) for row in question.to_dicts()]) for question in questions]
    return tag("div", tag("p", f"{responses.height} responses; ", view, f" {about}", class_="about"), folds)


def _fold(material: Material, row: dict[str, Any]) -> Markup:
    """Return a response as a folded element whose summary names arm, question, length and verdict.

    Args:
        material: results of the run.
        row: row of `samples.parquet`, with `arm`.
    """
    wording = material.study.arm(row["arm"]).name_wording(row.get("mode"))
    verdict = "right" if row["correct"] else "wrong"
    facts = (row["arm"], row["benchmark"], row["question"], wording, f"{row['tokens']:,} tokens", verdict)
    answer = "no answer" if row["answer"] is None else f"answer: {row['answer']}"
    return tag(
        "details",
        tag("summary", " · ".join(fact for fact in facts if fact)),
        tag("div", row["text"], class_="question"),
        tag("div", shorten(row["response"] or ""), class_="trace"),
        tag("div", tag("p", answer), class_="inside"),
        data_arm=row["arm"],
    )


def shorten(text: str) -> str:
    """Return a text of at most about `MOST_CHARACTERS` characters: the middle of a longer text is left out."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} … {text[-half:]}"
