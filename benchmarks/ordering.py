"""docs/MINIATURE.md's tables: a finished run of the miniature's whole table in, and how far its order is the paper's out.

    python -m benchmarks.ordering runs/miniature-…

Measured: the mean over benchmarks and seeds. Published: the paper's changes of REG from vanilla RL, on its 1.5B and 7B
models, the two on which it trains every method.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from reodsl.language import compile_file

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "MINIATURE.md"
PAPER = {"1.5B": "deepseek_1_5b", "7B": "deepseek_7b"}
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"

# Rows of other names: the mildest cap that is printed, and the ablation "Task-Specific-Hard".
SAME = {"budget_32": "budget_4k", "reo_hard": "reo_task_hard"}


def published(model: str) -> dict[str, float]:
    """Each printed row's change of REG from vanilla RL, as a share; vanilla's own is 0."""
    spec = compile_file(ROOT / "specs" / "paper" / f"{model}.reo").spec
    assert spec is not None
    changes: dict[str, float] = {}
    for table in (each.published for each in spec.study.tables):
        if table is None or table.relative_to != "vanilla":
            continue
        mean = table.benchmarks.index("mean")
        (vanilla,) = (row.reg[mean] for row in table.rows if row.name == "vanilla")
        for row in table.rows:
            changes[row.name] = row.reg_change[mean] if row.reg_change else row.reg[mean] / vanilla - 1
    return changes


def agreement(one: Mapping[str, float], two: Mapping[str, float]) -> tuple[int, int, list[tuple[str, str]]]:
    """Of the pairs of rows in both: how many stand in one order, how many there are, and those that do not (Kendall)."""
    pairs = list(combinations(sorted(set(one) & set(two)), 2))
    against = [(a, b) for a, b in pairs if (one[a] - one[b]) * (two[a] - two[b]) < 0]
    return len(pairs) - len(against), len(pairs), against


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.0f}%"


def tables(run: Path) -> tuple[str, str]:
    """The table of the arms, and the lines on the order; a row for each arm, as it came out."""
    import polars as pl

    main = pl.read_parquet(run / "tables" / "main.parquet").filter(pl.col("benchmark") == "mean")
    seeds = pl.read_parquet(run / "tables" / "per_seed.parquet").filter(pl.col("benchmark") == "mean")
    rows = {row["arm"]: row for row in main.iter_rows(named=True)}
    vanilla = rows["vanilla"]["reg"]
    measured = {SAME.get(name, name): row["reg"] / vanilla - 1 for name, row in rows.items()}
    paper = {size: published(model) for size, model in PAPER.items()}
    lines = [
        "| arm | accuracy | length | REG | by seed | to vanilla RL | paper, 1.5B | paper, 7B |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for arm, row in rows.items():
        name = SAME.get(arm, arm)
        each = seeds.filter(pl.col("arm") == arm).sort("seed")["reg"]
        lines.append(
            f"| {arm} | {100 * row['accuracy']:.1f}% | {row['length']:.1f} | {row['reg']:.1f} | "
            f"{', '.join(f'{value:.1f}' for value in each)} | {percent(measured[name])} | "
            f"{' | '.join(percent(found.get(name)) for found in paper.values())} |"
        )
    order = []
    for size, found in paper.items():
        alike, of, against = agreement(measured, found)
        named = {right: left for left, right in SAME.items()}
        count: dict[str, int] = {}
        for pair in against:
            for name in pair:
                count[name] = count.get(name, 0) + 1
        most = sorted(count, key=lambda name: -count[name])[:4]
        order.append(
            f"- {size}: {alike} of {of} pairs of arms stand in the paper's order. Most often out of it: "
            f"{', '.join(f'{named.get(name, name)} ({count[name]})' for name in most) or 'none'}."
        )
    both, of, against = agreement(paper["1.5B"], paper["7B"])
    order.append(f"- For comparison, the paper's own two models agree with each other on {both} of {of}.")
    return "\n".join(lines), "\n".join(order)


def placed(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of that name."""
    before, begin, rest = page.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    if not end:
        raise SystemExit(f"{PAGE} has no markers named {name}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    arms, order = tables(parser.parse_args().run)
    PAGE.write_text(placed(placed(PAGE.read_text(), "arms", arms), "order", order))


if __name__ == "__main__":
    main()
