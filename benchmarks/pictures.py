"""Draw every picture of the documents into docs/ from what the repository has.

    python -m benchmarks.pictures           # draw all; the report's by Chromium
    python -m benchmarks.pictures .reodsl   # first keep the numbers of the store's last run of specs/quickstart.reo

SVGs are for light and dark pages. `tests/test_study.py` draws them again and compares. Screenshots of the report cannot be
compared with what another browser draws, so `pictures.json` has their digests and that of the page that they show.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import runpy
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.tables import KEPT, ROOT, read_rows
from reodsl.diagnostics import plural
from reodsl.ir import Spec
from reodsl.language import compile_file
from reodsl.numbers.verdict import from_json, to_json
from reodsl.report import drawing, tables, theme
from reodsl.report.curve_chart import add_intervals, curves
from reodsl.report.figures import Gallery
from reodsl.report.material import MEAN, Material, read
from reodsl.report.page import document, first_chart, header, navigation
from reodsl.report.ranking import ranking
from reodsl.report.run import material_of
from reodsl.report.tradeoff_charts import scatter
from reodsl.report.vega import map_parts
from reodsl.report.verdict_words import settle
from reodsl.store.runs import records
from reodsl.store.store import Store

DOCS = ROOT / "docs"
RUN, SCREENSHOTS = KEPT / "quickstart.json", KEPT / "pictures.json"
WIDTH, HEIGHT = 760, 360
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Every machine has letters of these widths.
FONT = "'Liberation Sans', Arial, Helvetica, sans-serif"


def keep(store: Store) -> None:
    """Keep what the pictures show of the last run of the quickstart."""
    run = next(record for record in reversed(records(store)) if record.study == "quickstart")
    material, _ = material_of(store, run)
    frames = {
        "curves": add_intervals(material).filter(benchmark=MEAN),
        "frontiers": material.frontiers.filter(benchmark=MEAN),
        "scores": material.scores.filter(benchmark=MEAN),
        "summary": material.summary.select("arm", "seed", "benchmark", "questions"),
        "table": tables.main(material).filter(benchmark=MEAN),
    }
    kept = {
        name: frame.with_columns(pl.selectors.float().round(6)).to_dict(as_series=False)
        for name, frame in frames.items()
    }
    assert material.verdict is not None
    RUN.write_text(json.dumps(kept | {"verdict": to_json(material.verdict)}) + "\n")


def read_kept() -> tuple[Material, pl.DataFrame]:
    """Return the kept run as a report's material, and its main table."""
    kept = json.loads(RUN.read_text())
    verdict = from_json(kept.pop("verdict"))
    frames = {name: pl.DataFrame(columns) for name, columns in kept.items()}
    table = frames.pop("table")
    return replace(read(compiled("quickstart"), {}), verdict=verdict, **frames), table  # type: ignore[arg-type]


def compiled(name: str) -> Spec:
    """Return a spec of specs/."""
    spec = compile_file(ROOT / "specs" / f"{name}.reo").spec
    assert spec is not None, name
    return spec


def draw_quickstart() -> dict[str, Any]:
    """Return the curves of the kept run, with a name at the end of each line in place of a legend."""
    material, _ = read_kept()
    seeds = max(1, len(material.seeds))
    title = {
        "text": "Accuracy when made to answer at a budget",
        "subtitle": f"specs/quickstart.reo with {plural(seeds, 'seed')}; 95% intervals are shaded",
        "subtitleColor": theme.LIGHT["muted"],
        "subtitlePadding": 6,
        "limit": WIDTH,
    }
    chart = curves(material, MEAN, width=WIDTH, with_names=True) | {"title": title, "height": HEIGHT}
    return map_parts(chart, lambda node: node | {"legend": None} if has_arms(node) else node)  # type: ignore[no-any-return]


def has_arms(node: object) -> bool:
    """Return whether a part of a chart has a legend of arms, which has columns."""
    return isinstance(node, dict) and "columns" in (node.get("legend") or {})


def draw_smollm2() -> dict[str, Any]:
    """Return accuracy over length of the real language model's arms, from the table that EVIDENCE.md shows."""
    rows = [row for row in read_rows("smollm2_results") if row["benchmark"] == MEAN]
    table = pl.DataFrame(rows).with_columns(pl.exclude("arm", "benchmark").cast(pl.Float64, strict=False))
    material = replace(read(compiled("smollm2_reo_exp"), {}), summary=table)
    return scatter(material, table) | {
        "title": "Accuracy over length, with 95% intervals",
        "width": WIDTH // 2,
    }


def as_svg(chart: dict[str, Any]) -> str:
    """Return a chart as SVG whose colours follow the page's, light or dark."""
    config = theme.config() | {"background": theme.LIGHT["paper"], "padding": 18, "font": FONT}
    head, end, rest = next(drawing.pictures([chart | {"config": config}])).svg.decode().partition(">")
    rules = [
        f'  [{part}="{colour}"] {{ {part}: {theme.DARK[name]} }}\n'
        for name, colour in theme.LIGHT.items()
        for part in ("fill", "stroke")
    ]
    style = f"\n<style>\n@media (prefers-color-scheme: dark) {{\n{''.join(rules)}}}\n</style>"
    return head + end + style + rest.replace("><", ">\n<") + "\n"


def draw() -> dict[str, str]:
    """Return each SVG of the documents by its name."""
    flows = runpy.run_path(str(DOCS / "site" / "picture.py"))
    charts = {"quickstart-curves": draw_quickstart(), "smollm2-arms": draw_smollm2()}
    return {name: flows["draw_flow"](flow) for name, flow in flows["FLOWS"].items()} | {
        name: as_svg(chart) for name, chart in charts.items()
    }


def report_page() -> str:
    """Return the first screen of the kept run's report as a page."""
    material, table = read_kept()
    gallery = Gallery()
    chart = first_chart(gallery, material, table, ranking(material, table))
    body = [header(material, table, chart, settle(material.spec, material.verdict)), navigation([])]
    return document(material.study.name, body, gallery)


def digests(page: str) -> dict[str, str]:
    """Return the digests of the screenshots, and of the page that they show without its scripts."""
    shown = re.sub(r"<script>.*?</script>|<meta [^>]*>", "", page, flags=re.S)
    parts = {"page": shown.encode()} | {path.name: path.read_bytes() for path in sorted(DOCS.glob("*.png"))}
    return {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}


def take_screenshot(page: str, image: Path, browser: str, *, dark: bool) -> None:
    """Draw the top of a page into a PNG, without a network.

    The browser's own sandbox is off, because it does not start for root otherwise; the page is this project's own.
    """
    with tempfile.TemporaryDirectory() as profile:
        shown = Path(profile) / "page.html"
        theme_of_page = f'<html lang="en" data-theme="{"dark" if dark else "light"}">'
        shown.write_text(page.replace('<html lang="en">', theme_of_page, 1), "utf-8")
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--proxy-server=127.0.0.1:9",
        ]
        options += [f"--user-data-dir={profile}", "--window-size=1400,840", "--virtual-time-budget=5000"]
        command = [browser, *options, f"--screenshot={image.resolve()}", shown.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Keep a run's numbers, if a store is named, and draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, nargs="?")
    if (store := parser.parse_args().store) is not None:
        keep(Store(store))
    for name, text in draw().items():
        (DOCS / f"{name}.svg").write_text(text)
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("docs/report.png stays as it was: no Chromium here (apt-get install chromium)")
    page = report_page()
    for dark, end in ((False, ""), (True, "-dark")):
        take_screenshot(page, DOCS / f"report{end}.png", browser, dark=dark)
    SCREENSHOTS.write_text(json.dumps(digests(page), indent=1) + "\n")


if __name__ == "__main__":
    main()
