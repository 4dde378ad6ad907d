"""Draw a run's pictures for the documents: its curves with all arms, and the top of its report, light and dark.

The title of the curves is the headline of the run's own verdict. The report is pictured by Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import polars as pl

from benchmarks.tables import ROOT
from reodsl.ir import Spec
from reodsl.report import theme
from reodsl.report.curve_chart import curves
from reodsl.report.material import MEAN, Material, read
from reodsl.report.verdict_words import read_sentences

WIDTH, HEIGHT, LETTERS = 760, 360, 105
PAPER = {False: "#ffffff", True: "#171a1f"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def draw_pictures(run: Path, charts: str, report: str) -> None:
    """Write `docs/CHARTS.png` and `docs/REPORT.png` with their dark forms; without Chromium the report's stay."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"docs/{report}.png stays as it was: no Chromium here (apt-get install chromium)")
    for dark, end in ((False, ""), (True, "-dark")):
        draw_chart(run, ROOT / "docs" / f"{charts}{end}.png", dark=dark)
        if browser is not None:
            draw_page(run / "report.html", ROOT / "docs" / f"{report}{end}.png", browser, dark=dark)


def read_tables(run: Path) -> Material:
    """Return the curves of a run's folder as a report's material."""
    material = read(Spec.model_validate_json((run / "spec.reo.json").read_bytes()), {})
    measured = pl.read_parquet(run / "tables" / "curves.parquet")
    score = material.study.score
    edge = pl.read_parquet(run / "tables" / "frontier.parquet").drop("arms", strict=False)
    return replace(
        material,
        curves=measured.rename({"arm": "name"}),
        summary=measured.select("arm", "seed", "benchmark").unique(maintain_order=True),
        frontiers=edge.with_columns(pl.lit(score.frontier if score is not None else "").alias("name")),
    )


def chart(run: Path) -> dict[str, Any]:
    """Return the chart as Vega-Lite: every arm and the frontier, by the mean over benchmarks."""
    material = read_tables(run)
    spec: dict[str, Any] = curves(material, MEAN, width=WIDTH, with_names=True)
    seeds = len(material.study.seeds)
    spec["title"] = {
        "text": wrap(next(iter(read_sentences(run)), material.study.name), LETTERS),
        "subtitle": "Accuracy when made to answer at a budget"
        + (f": mean of {seeds} seeds, their range shaded" if seeds > 1 else ""),
        "limit": WIDTH,
        "subtitlePadding": 6,
    }
    return spec | {"height": HEIGHT}


def draw_chart(run: Path, image: Path, *, dark: bool) -> None:
    """Draw the chart into a PNG."""
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


def draw_page(page: Path, image: Path, browser: str, *, dark: bool) -> None:
    """Draw the top of a page into a PNG, without a network.

    The browser's own sandbox is off, because it does not start for root otherwise; the page is this project's own.
    """
    with tempfile.TemporaryDirectory() as profile:
        shown = Path(profile) / "page.html"
        theme_of_page = f'<html lang="en" data-theme="{"dark" if dark else "light"}">'
        shown.write_text(page.read_text("utf-8").replace('<html lang="en">', theme_of_page, 1), "utf-8")
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--proxy-server=127.0.0.1:9",
        ]
        options += [f"--user-data-dir={profile}", "--window-size=1400,1150", "--virtual-time-budget=5000"]
        command = [browser, *options, f"--screenshot={image.resolve()}", shown.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
