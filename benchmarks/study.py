"""The README's table: a finished study's tables in, the table between the README's markers out, as they came out.

    python -m benchmarks.study runs/quickstart-…

Also draws the study's curves with all arms into docs/, and pictures the top of its report there where the machine has
Chromium: each light and dark.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.figure import write_figure
from benchmarks.ordering import worded
from benchmarks.picture import browser, picture

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def table(run: Path) -> str:
    """The mean over benchmarks for each arm, over all seeds; the paired difference first, then each seed by itself.

    `±` is one standard deviation over seeds, brackets are the report's intervals over seeds and questions.
    """
    import polars as pl

    main = pl.read_parquet(run / "tables" / "main.parquet").filter(pl.col("benchmark") == "mean")
    seeds = pl.read_parquet(run / "tables" / "per_seed.parquet").filter(pl.col("benchmark") == "mean")
    several = seeds["seed"].n_unique()
    lines = [
        f"| mean of {several} seeds | REG − vanilla's [95% interval] | REG ± SD | REG, plain frontier | accuracy ± SD "
        "| length | accuracy by seed | REG by seed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in main.iter_rows(named=True):
        each = seeds.filter(pl.col("arm") == row["arm"]).sort("seed")
        accuracies = ", ".join(f"{100 * value:.1f}" for value in each["accuracy"])
        gaps = ", ".join(f"{value:.1f}" for value in each["reg"])
        difference = worded(row["difference"], row["difference_low"], row["difference_high"])
        lines.append(
            f"| {row['arm']} | {difference} | {around(row, 'reg')} | {row['reg_plain']:.1f} "
            f"| {around(row, 'accuracy', 100)}% | {row['length']:.1f} | {accuracies} | {gaps} |"
        )
    return "\n".join(lines)


def around(row: dict[str, float | None], measure: str, scale: float = 1.0) -> str:
    """A mean with its standard deviation over seeds, where there are several."""
    value, sd = row[measure], row.get(f"{measure}_sd")
    assert value is not None
    return f"{scale * value:.1f}" + ("" if sd is None else f" ± {scale * sd:.1f}")


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
        picture(run / "report.html", ROOT / "docs" / "report-dark.png", program, dark=True)
    write_figure(run, ROOT / "docs" / "quickstart-curves.png")
    write_figure(run, ROOT / "docs" / "quickstart-curves-dark.png", dark=True)


if __name__ == "__main__":
    main()
