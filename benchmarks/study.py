"""The README's table: a finished study in; its verdict and table between the README's markers out, as they came out.

What it is written from is kept in `benchmarks/tables/`: `study.csv`, `study_seeds.csv` and `study_verdict.json`.

    python -m benchmarks.study runs/quickstart-…

Also draws the study's curves with all arms into docs/, and pictures the top of its report there where the machine has
Chromium: each light and dark.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.figure import write_figure
from benchmarks.ordering import worded
from benchmarks.picture import browser, picture

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MAIN, SEEDS = (ROOT / "benchmarks" / "tables" / f"study{end}.csv" for end in ("", "_seeds"))
VERDICT = MAIN.with_name("study_verdict.json")
BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def keep(run: Path) -> None:
    """Write the numbers of a run that the table needs into `benchmarks/tables/`."""
    import polars as pl

    VERDICT.write_text((run / "verdict.json").read_text())
    for name, path in (("main", MAIN), ("per_seed", SEEDS)):
        rows = pl.read_parquet(run / "tables" / f"{name}.parquet").filter(pl.col("benchmark") == "mean")
        rows.with_columns(pl.selectors.float().round(6)).write_csv(path)


def table() -> str:
    """The mean over benchmarks for each arm, over all seeds; the paired difference first, then each seed by itself.

    `±` is one standard deviation over seeds, brackets are the report's intervals over seeds and questions.
    """
    import polars as pl

    main, seeds = pl.read_csv(MAIN), pl.read_csv(SEEDS)
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
        difference = worded(
            row["difference"], row["difference_low"], row["difference_high"], row["difference_star"]
        )
        lines.append(
            f"| {row['arm']} | {difference} | {around(row, 'reg')} | {row['reg_plain']:.1f} "
            f"| {around(row, 'accuracy', 100)}% | {row['length']:.1f} | {accuracies} | {gaps} |"
        )
    return "\n".join(lines)


def verdict() -> str:
    """The verdict's sentences, which stand before the table; nothing where the kept run has none."""
    if not VERDICT.exists():
        return ""
    return f"{' '.join(json.loads(VERDICT.read_text())['sentences'])}\n\n"


def around(row: dict[str, float | None], measure: str, scale: float = 1.0) -> str:
    """A mean with its standard deviation over seeds, where there are several."""
    value, sd = row[measure], row.get(f"{measure}_sd")
    assert value is not None
    return f"{scale * value:.1f}" + ("" if sd is None else f" ± {scale * sd:.1f}")


def written(page: str) -> str:
    """The page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{verdict()}{table()}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    keep(run)
    README.write_text(written(README.read_text()))
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
