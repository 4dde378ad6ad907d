"""The README's table: a finished study's tables in, the table between the README's markers out, as they came out.

    python -m benchmarks.study runs/quickstart-…

Also copies the study's main chart to docs/, and pictures the top of its report there where the machine has Chromium.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.picture import browser, picture

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def table(run: Path) -> str:
    """The mean over benchmarks for each arm, over all seeds; accuracy and REG seed by seed."""
    import polars as pl

    main = pl.read_parquet(run / "tables" / "main.parquet").filter(pl.col("benchmark") == "mean")
    seeds = pl.read_parquet(run / "tables" / "per_seed.parquet").filter(pl.col("benchmark") == "mean")
    several = seeds["seed"].n_unique()
    lines = [
        f"| mean of {several} seeds | accuracy | length | REG | to vanilla RL | accuracy by seed | REG by seed |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in main.iter_rows(named=True):
        each = seeds.filter(pl.col("arm") == row["arm"]).sort("seed")
        accuracies = ", ".join(f"{100 * value:.1f}" for value in each["accuracy"])
        gaps = ", ".join(f"{value:.1f}" for value in each["reg"])
        change = "" if row["change_pct"] is None or row["arm"] == "vanilla" else f"{row['change_pct']:+.0f}%"
        lines.append(
            f"| {row['arm']} | {100 * row['accuracy']:.1f}% | {row['length']:.1f} | {row['reg']:.1f} | {change} | "
            f"{accuracies} | {gaps} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{table(run)}\n{END}{after}")
    program = browser()
    if program is None:
        print("docs/report.png stays as it was: no Chromium here (apt-get install chromium)")
    else:
        picture(run / "report.html", ROOT / "docs" / "report.png", program)
    shutil.copy(run / "charts" / "curves-Average-linear.png", ROOT / "docs" / "quickstart-curves.png")


if __name__ == "__main__":
    main()
