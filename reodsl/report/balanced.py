"""The balanced subset of a table: accuracy and the length of right responses on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from reodsl.diagnostics import problem
from reodsl.numbers.arm_scores import balance_questions
from reodsl.report.artifacts import reading
from reodsl.report.material import MEAN, Material

_COLUMNS = ("benchmark", "question", "sample", "tokens", "correct")


@dataclass(frozen=True, slots=True)
class Subset:
    """A balanced subset of the questions.

    `table` has a row for each arm: arm, benchmark (`mean`), seeds, accuracy (share), length (tokens), and over several
    seeds `accuracy_sd` and `length_sd`. `questions` counts the subset's questions by seed, `asked` all of them.
    """

    table: pl.DataFrame
    questions: tuple[int, ...]
    asked: int


def balanced_table(material: Material, arms: Sequence[str]) -> Subset:
    """Return the comparison of the paper's tab:frontier between arms, once a seed, and its means over seeds.

    Raises E0432 where arms were asked different questions.
    """
    evaluated = [arm for arm in arms if arm in material.arms]
    rows: list[dict[str, object]] = []
    counts: list[int] = []
    asked = 0
    for seed in material.seeds or (None,):
        folders = {
            arm: folder
            for arm in evaluated
            if (folder := material.evaluations.get((arm, seed)) or material.evaluations.get((arm, None)))
        }
        if not folders:
            continue
        samples = {arm: _samples(arm, folder) for arm, folder in folders.items()}
        first, (names, _, _) = next(iter(samples.items()))
        for arm, (questions, _, _) in samples.items():
            if questions != names:
                raise problem(
                    "E0432",
                    f"`{arm}` and `{first}` were asked different questions",
                    help="evaluate the arms of a balanced table on one suite",
                )
        subset = balance_questions(
            {arm: right for arm, (_, right, _) in samples.items()},
            {arm: tokens for arm, (_, _, tokens) in samples.items()},
        )
        counts.append(len(subset.questions))
        asked = max(asked, len(names))
        rows += [
            {"arm": arm, "seed": seed, "accuracy": subset.accuracy[arm], "length": subset.length[arm]}
            for arm in samples
        ]
    schema = {"arm": pl.String, "seed": pl.Int64, "accuracy": pl.Float64, "length": pl.Float64}
    several = pl.len() > 1
    table = (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("arm", maintain_order=True)
        .agg(
            pl.lit(MEAN).alias("benchmark"),
            pl.len().alias("seeds"),
            pl.col("accuracy", "length").mean(),
            *[pl.when(several).then(pl.col(m).std()).alias(f"{m}_sd") for m in ("accuracy", "length")],
        )
    )
    return Subset(table, tuple(counts), asked)


Samples = tuple[tuple[tuple[str, str], ...], np.ndarray, np.ndarray]
"""The questions as (benchmark, id) in order; their verdicts and their tokens, both [questions, samples]."""


def _samples(arm: str, folder: Path) -> Samples:
    with reading(folder / "samples.parquet"):
        frame = (
            pl.scan_parquet(folder / "samples.parquet", glob=False)
            .select(_COLUMNS)
            .sort("benchmark", "question", "sample")
            .collect()
        )
    counts = frame.group_by("benchmark", "question", maintain_order=True).len()
    if counts["len"].n_unique() > 1:
        raise problem(
            "E0432",
            f"`{arm}` has more samples of some questions than of others",
            where=str(folder),
            help="find what is damaged with `reodsl ls --verify`; running the spec again makes it anew",
        )
    shape = (counts.height, -1)
    names = tuple(counts.select("benchmark", "question").iter_rows())
    return (
        names,
        frame["correct"].cast(pl.Float64).to_numpy().reshape(shape),
        frame["tokens"].to_numpy().reshape(shape),
    )
