"""The README's figure: a finished run in, its curves with all arms and with what came out as the title out, as PNG.

The title is the headline of the run's own verdict, never written by hand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import polars as pl

from reodsl.ir import Spec
from reodsl.report import theme
from reodsl.report.curve_chart import curves
from reodsl.report.material import MEAN, Material, read
from reodsl.report.verdict_words import said

WIDTH, HEIGHT, LETTERS = 760, 360, 105
PAPER = {False: "#ffffff", True: "#171a1f"}


def read_tables(run: Path) -> Material:
    """What a run's folder holds of its curves, as a report's material."""
    material = read(Spec.model_validate_json((run / "spec.reo.json").read_bytes()), {})
    tables = run / "tables"
    measured = pl.read_parquet(tables / "curves.parquet")
    score = material.study.score
    edge = pl.read_parquet(tables / "frontier.parquet").drop("arms", strict=False)
    names = measured.select("arm", "seed", "benchmark").unique(maintain_order=True)
    return replace(
        material,
        curves=measured.rename({"arm": "name"}),
        summary=names,
        frontiers=edge.with_columns(pl.lit(score.frontier if score is not None else "").alias("name")),
    )


def chart(run: Path) -> dict[str, Any]:
    """The chart as Vega-Lite: the mean over benchmarks, every arm, the frontier, and what came out above."""
    material = read_tables(run)
    headline = next(iter(said(run)), material.study.name)
    spec: dict[str, Any] = curves(material, MEAN, width=WIDTH).to_dict()
    seeds = len(material.study.seeds)
    spec["title"] = {
        "text": wrap(headline, LETTERS),
        "subtitle": "Accuracy when made to answer at a budget"
        + (f": mean of {seeds} seeds, their range shaded" if seeds > 1 else ""),
        "limit": WIDTH,
        "subtitlePadding": 6,
    }
    return spec | {"height": HEIGHT}


def write_figure(run: Path, image: Path, *, dark: bool = False) -> None:
    """Draw the chart into a PNG, light or dark."""
    import vl_convert

    config = theme.config(dark=dark)
    ink = config["title"]["color"]
    config["title"] |= {"subtitleColor": config["axis"]["labelColor"], "fontSize": 14, "limit": WIDTH}
    config |= {"background": PAPER[dark], "padding": 18}
    spec = chart(run)
    for layer in spec["layer"]:
        dashes = layer["encoding"].get("strokeDash", {})
        if dashes.get("field") == "line":
            dashes["legend"]["symbolStrokeColor"] = ink
    image.write_bytes(vl_convert.vegalite_to_png({**spec, "config": config}, scale=1.5))
