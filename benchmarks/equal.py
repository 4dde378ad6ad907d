"""Run the registered study of docs/PREREGISTERED.md, and write its tables.

    python -m benchmarks.equal TASK STEPS FOLDER SEED…   # train what is missing, with runs in FOLDER; then keep the numbers
    python -m benchmarks.equal                           # write the page's tables from the numbers that are kept

TASK is `two_ways` or `chain`. The numbers of its primary look (`STEPS`) are kept in benchmarks/tables/equal_TASK.parquet,
with a row for each arm, seed and question; those of other looks as means over questions in equal_steps.csv.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.tables import KEPT, ROOT, markdown, rewrite
from reodsl.diagnostics import in_percent
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.intervals import ArmCells, Interval, column_weights, difference, typical_of
from reodsl.numbers.reg import holm
from reodsl.store.layout import arm_folder

PAGE = ROOT / "docs" / "PREREGISTERED.md"
LONGEST = {"two_ways": 160, "chain": 128}
"""The longest response of each task, in tokens; areas under curves end there."""
RIVALS = {
    "norm": "length reward, normalised in the group",
    "harmony": "length-harmonizing reward",
    "budget": "token budget",
}
SAME = {"reo_10": "ten budgets", "oracle": "the oracle's budgets"}
"""The arms that are tested for being the same as REO-RL with five budgets."""
SEEDS = range(3001, 3043)
"""The seeds that test, as the page registers them."""
STEPS = {"two_ways": 8, "chain": 16}
"""The steps of the primary look of each task; other looks take the first `FEW` seeds."""
LOOKS = (4, 8, 16, 36)
FEW = 3
LEVEL = 0.05
MARGIN = 1.5
"""The difference of REG in tokens within which two arms count as the same."""
POINT = 0.01
"""The mean accuracy that REO-RL may lose where it is called ahead."""

Cells = Mapping[str, ArmCells]


def read_cells(run: Path, longest: int, seed: int) -> pl.DataFrame:
    """Return a row for each arm and question of a finished run with a single seed.

    Args:
        run: The run's folder.
        longest: The budget at which areas end, in tokens.
        seed: The run's seed.

    Returns:
        Columns `arm`, `seed`, `benchmark`, `question` (a number from 0), `accuracy`, `length` (tokens), and `area`: the area
        between an accuracy of 1 and the question's curve, in tokens. It differs from REG by what is the same for all arms.
    """
    parts = []
    for arm in pl.read_parquet(run / "tables" / "per_seed.parquet")["arm"].unique(maintain_order=True):
        scores, budgets = arm_scores(run / arm_folder(arm, str(seed)), arm)
        points = [budget for budget in budgets if budget <= longest]
        weights = column_weights(budgets, points)
        for benchmark, forced in scores.forced.items():
            measured = {
                "accuracy": scores.accuracy[benchmark],
                "length": scores.length[benchmark],
                "area": weights.sum() - forced @ weights,
            }
            table = pl.DataFrame(measured).with_row_index("question")
            parts.append(
                table.select(
                    pl.lit(arm).alias("arm"),
                    pl.lit(seed).alias("seed"),
                    pl.lit(benchmark).alias("benchmark"),
                    pl.all(),
                )
            )
    return pl.concat(parts).with_columns(pl.col("accuracy", "length", "area").cast(pl.Float32))


def read_generated(run: Path) -> pl.DataFrame:
    """Return what each trained arm of a run generated in its steps of RL.

    Returns:
        Columns `arm`, `generated` (tokens of responses) and `forced` (answers that were forced at budgets).
    """
    steps = pl.read_parquet(run / "tables" / "training.parquet").filter(pl.col("method") != "sft")
    return steps.group_by("arm", maintain_order=True).agg(
        pl.col("tokens").sum().cast(pl.Int64).alias("generated"),
        pl.col("forced_answers").sum().cast(pl.Int64).alias("forced"),
    )


def arrange(rows: pl.DataFrame) -> Cells:
    """Return each arm's numbers as arrays of seeds and questions.

    Args:
        rows: Rows of `read_cells`, of the same seeds for every arm.
    """
    seeds = rows["seed"].n_unique()

    def matrices(of_arm: pl.DataFrame, measure: str) -> dict[str, NDArray[np.float64]]:
        """Return a measure by benchmark, [seeds, questions]."""
        return {
            name: part.sort("seed", "question")[measure].cast(pl.Float64).to_numpy().reshape(seeds, -1)
            for (name,), part in of_arm.partition_by("benchmark", as_dict=True).items()
        }

    return {
        arm: ArmCells(
            area=matrices(part, "area"),
            accuracy=matrices(part, "accuracy"),
            length=matrices(part, "length"),
            replicated=seeds > 1,
        )
        for (arm,), part in rows.partition_by("arm", as_dict=True).items()
    }


def subtract(cells: Cells, first: str, second: str, measure: str = "area") -> Interval:
    """Return a measure of one arm less that of another, paired by seed and question, with its 95% interval."""
    places = sorted(cells[first].area)
    return difference(
        cells[first], cells[second], measure, places, 1 - LEVEL, typical_of(cells.values(), places)
    )


def tell(found: Interval, scale: float = 1.0) -> str:
    """Return a difference with its interval, as in `-1.32 [-2.10, -0.54]`."""
    assert found.low is not None
    assert found.high is not None
    return f"{scale * found.value:+.2f} [{scale * found.low:.2f}, {scale * found.high:.2f}]"


def judge(gap: Interval, accuracy: Interval, p: float) -> str:
    """Return what the registration says that a comparison means."""
    if p > LEVEL:
        return "not separated"
    if gap.value > 0:
        return "behind"
    return "ahead" if accuracy.value >= -POINT else "lower REG, at a price in accuracy"


def primary(tasks: Mapping[str, Cells]) -> str:
    """Return the table of the primary comparisons, corrected together by Holm's method."""
    pairs = [(task, rival) for task in tasks for rival in RIVALS]
    gaps = [subtract(tasks[task], "reo_5", rival) for task, rival in pairs]
    rows = []
    for (task, rival), gap, p in zip(pairs, gaps, holm([gap.p or 0.0 for gap in gaps]), strict=True):
        accuracy = subtract(tasks[task], "reo_5", rival, "accuracy")
        rows.append(
            (task, RIVALS[rival], tell(gap), f"{p:.4f}", tell(accuracy, 100), judge(gap, accuracy, p))
        )
    head = ("task", "REO-RL against", ">REG, tokens [95%]", ">p (Holm)", ">accuracy, points", "verdict")
    return markdown(head, rows)


def equivalence(tasks: Mapping[str, Cells]) -> str:
    """Return the table of the pairs that are tested for being the same: two one-sided tests at 5%."""
    rows = []
    for task, cells in tasks.items():
        for other, name in SAME.items():
            gap = subtract(cells, "reo_5", other)
            reach = abs(gap.value) + gap.spreads[-1].half_width(1 - LEVEL)
            rows.append((task, name, tell(gap), f"{reach:.2f}", "yes" if reach < MARGIN else "no"))
    return markdown(
        (
            "task",
            "REO-RL with five budgets, and",
            ">REG, tokens [95%]",
            ">the same within",
            f"within {MARGIN:g}",
        ),
        rows,
    )


def list_arms(rows: pl.DataFrame, task: str) -> str:
    """Return a row for each arm: means over seeds and questions."""
    measures = ("accuracy", "length", "area", "generated", "forced")
    means = rows.group_by("arm", maintain_order=True).agg(pl.col(*measures).mean())
    (vanilla,) = means.filter(pl.col("arm") == "vanilla")["area"]
    body = [
        (
            arm,
            f"{in_percent(accuracy, 1)}%",
            f"{length:.1f}",
            f"{area - vanilla:+.2f}",
            *("–" if count is None else f"{count:,.0f}" for count in trained),
        )
        for arm, accuracy, length, area, *trained in means.sort("area").iter_rows()
    ]
    head = (task, ">accuracy", ">tokens", ">REG less vanilla RL's", ">tokens in training", ">forced answers")
    return markdown(head, body)


def texts() -> dict[str, str]:
    """Return the page's tables by the names of their markers."""
    made = {}
    paths = {task: KEPT / f"equal_{task}.parquet" for task in LONGEST}
    rows = {task: pl.read_parquet(path) for task, path in paths.items() if path.exists()}
    done = {task: rows[task]["seed"].n_unique() if task in rows else 0 for task in LONGEST}
    made["equal_primary"] = (
        "No seed is registered."
        if not SEEDS
        else " ".join(f"{task}: {count} of {len(SEEDS)} seeds are done." for task, count in done.items())
    )
    # No table before all seeds are done: nobody looks, and nothing stops early.
    if SEEDS and all(count == len(SEEDS) for count in done.values()):
        tasks = {task: arrange(of_task) for task, of_task in rows.items()}
        tables = [list_arms(of_task, task) for task, of_task in rows.items()]
        made["equal_primary"] = "\n\n".join([primary(tasks), equivalence(tasks), *tables])
    made["equal_steps"] = tell_looks()
    return made


def tell_looks() -> str:
    """Return a row for each arm with its REG less that of vanilla RL after other numbers of steps."""
    path = KEPT / "equal_steps.csv"
    if not path.exists():
        return "No look is done."
    means = (
        pl.read_csv(path)
        .group_by("task", "steps", "arm", maintain_order=True)
        .agg(pl.col("area").mean(), pl.len())
    )
    looks = means.select("task", "steps", "len").unique(maintain_order=True).rows()
    areas = {(task, steps, arm): area for task, steps, arm, area, _ in means.iter_rows()}
    body = [
        (
            arm,
            *(f"{areas[task, steps, arm] - areas[task, steps, 'vanilla']:+.2f}" for task, steps, _ in looks),
        )
        for arm in means["arm"].unique(maintain_order=True)
    ]
    return markdown(
        (
            "REG less vanilla RL's",
            *(f">{task}, {steps} steps ({seeds} seeds)" for task, steps, seeds in looks),
        ),
        body,
    )


def train(target: str, out: Path, values: Iterable[str]) -> None:
    """Run a study of a registered spec with values of its parameters; finished tasks are not run again.

    Args:
        target: The study, whose name ends with its task's.
        out: The folder for the results.
        values: Parameters, as in `rl_steps=16`.
    """
    task = next(task for task in LONGEST if target.endswith(task))
    words = [word for value in values for word in ("--set", value)]
    spec = ROOT / "specs" / "miniature" / f"equal_{task}.reo"
    program = Path(sys.executable).with_name("reodsl")
    subprocess.run(
        [program, "run", spec, "--target", target, "--local", "-q", "--out", out, *words], check=True
    )


def keep(rows: pl.DataFrame, path: Path, of: Sequence[str]) -> None:
    """Add rows to a kept table; rows that are equal in the columns `of` are replaced."""
    read, write = (
        (pl.read_parquet, pl.DataFrame.write_parquet)
        if path.suffix == ".parquet"
        else (pl.read_csv, pl.DataFrame.write_csv)
    )
    if path.exists():
        rows = pl.concat([read(path, schema=rows.schema) if path.suffix == ".csv" else read(path), rows])
    write(rows.unique([*of], keep="last", maintain_order=True).sort(*of, maintain_order=True), path)


def main() -> None:
    """Train the seeds that are named, if any are, or write the page."""
    if not sys.argv[1:]:
        rewrite(PAGE, texts())
        return
    task, steps, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    is_primary = steps == STEPS[task]
    allowed = SEEDS if is_primary else SEEDS[:FEW] if steps in LOOKS else ()
    for seed in map(int, sys.argv[4:]):
        if seed not in allowed:
            raise SystemExit(f"seed {seed} with {steps} steps is not registered in {PAGE.name}")
        out = folder / f"{task}-{steps}-{seed}"
        if not (out / "tables" / "per_seed.parquet").exists():
            train(f"equal_{task}", out, [f"seeds=[{seed}]", f"rl_steps={steps}"])
        rows = read_cells(out, LONGEST[task], seed)
        if is_primary:
            rows = rows.join(read_generated(out), on="arm", how="left", maintain_order="left")
            keep(rows, KEPT / f"equal_{task}.parquet", ("arm", "seed", "benchmark", "question"))
            continue
        means = rows.group_by("arm", "seed", maintain_order=True).agg(
            pl.col("accuracy", "length", "area").mean().round(4)
        )
        keep(
            means.select(pl.lit(task).alias("task"), pl.lit(steps).alias("steps"), pl.all()),
            KEPT / "equal_steps.csv",
            ("task", "steps", "arm", "seed"),
        )


if __name__ == "__main__":
    main()
