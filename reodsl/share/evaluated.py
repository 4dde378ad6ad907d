"""Finished evaluations of a run, which it has to share, and their numbers in the form of other tools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, problem, warning
from reodsl.graph.lower import lower
from reodsl.graph.task import parse_role
from reodsl.ir.study import Arm
from reodsl.report.material import Material, read
from reodsl.store.runs import Record, require_spec
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class FinishedEvaluation:
    """A finished evaluation: its files, and when it was done, by which versions of what.

    `checkpoint` is the folder of the model; None where the store has it no longer.
    """

    arm: Arm
    seed: int | None
    key: str
    folder: Path
    ended: datetime
    seconds: float
    versions: dict[str, str]
    checkpoint: Path | None

    @property
    def name(self) -> str:
        """Return `reo_exp.s1`, or the arm alone if no seed changes it."""
        return self.arm.name if self.seed is None else f"{self.arm.name}.s{self.seed}"

    @property
    def began(self) -> datetime:
        """Return when the evaluation started."""
        return self.ended - timedelta(seconds=self.seconds)

    def samples(self, benchmark: str) -> pl.DataFrame:
        """Return the responses on a benchmark, a row each, by question and sample."""
        rows = pl.scan_parquet(self.folder / "samples.parquet", glob=False).filter(
            pl.col("benchmark") == benchmark
        )
        return rows.sort("question", "sample", maintain_order=True).collect()

    def forced(self, benchmark: str) -> pl.DataFrame:
        """Return the answers at every budget of a benchmark: `question`, `sample`, `budget`, `answer`, `correct`."""
        rows = pl.scan_parquet(self.folder / "forced.parquet", glob=False).filter(
            pl.col("benchmark") == benchmark
        )
        return rows.sort("question", "sample", "budget").collect()


@dataclass(frozen=True, slots=True)
class Shared:
    """The material of a run's report, its finished evaluations in the study's order, and a warning of missing ones."""

    material: Material
    evaluations: tuple[FinishedEvaluation, ...]
    findings: tuple[Diagnostic, ...]


def gather(store: Store, record: Record, arms: Sequence[str] = ()) -> Shared:
    """Return the finished results of a run, with the evaluations of `arms`, by default all.

    Raises E0957 if none is finished, E0968 if the run's spec was not kept, E0981 if a result cannot be read, and
    E0994 for an arm that the study does not evaluate.
    """
    spec = require_spec(store, record)
    graph = lower(spec)
    known = {arm.name: arm for arm in spec.study.arms}
    for name in arms:
        if name not in known:
            raise problem(
                "E0994",
                f"the study {record.study!r} has no arm {name!r}",
                where=record.name,
                help=f"there is {', '.join(known)}",
            )
    inputs: dict[str, Path] = {}
    evaluations: list[FinishedEvaluation] = []
    missing: list[str] = []
    for role, task in graph["report"].inputs.items():
        key = record.tasks.get(task, "")
        manifest = store.get(key) if key else None
        place = parse_role(role)
        if manifest is not None:
            inputs[role] = store.path(key)
        if place.kind != "evaluate" or (arms and place.name not in arms):
            continue
        if manifest is None:
            missing.append(task)
            continue
        start = record.tasks.get(graph[task].inputs.get("start", ""), "")
        checkpoint = store.path(start) / "checkpoint"
        evaluations.append(
            FinishedEvaluation(
                arm=known[place.name],
                seed=place.seed,
                key=key,
                folder=store.path(key),
                ended=datetime.fromisoformat(manifest.created),
                seconds=float(manifest.provenance.get("seconds") or 0),
                versions={str(name): str(of) for name, of in manifest.provenance.get("versions", {}).items()},
                checkpoint=checkpoint if start and checkpoint.is_dir() else None,
            )
        )
    if not evaluations:
        raise problem(
            "E0957",
            f"none of the {len(missing)} evaluations of this run is finished yet",
            where=record.name,
            help=f"look again later: reodsl watch; or finish the run: reodsl run {record.path}",
        )
    findings = [_warn_of_missing(record, missing)] if missing else []
    return Shared(read(spec, inputs), tuple(evaluations), tuple(findings))


def _warn_of_missing(record: Record, missing: Sequence[str]) -> Diagnostic:
    return warning(
        "W0805",
        f"what is written leaves out {len(missing)} evaluations that are not there",
        where=record.name,
        notes=(f"left out: {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}",),
        help=f"finish the run, which does only what is missing: reodsl run {record.path}",
    )


def benchmarks(material: Material, one: FinishedEvaluation) -> list[str]:
    """Return the names of an arm's benchmarks, in the order of the study."""
    there = set(material.summary.filter(pl.col("arm") == one.arm.name)["benchmark"])
    return [name for name in material.benchmarks if name in there]


def mean_and_error(samples: pl.DataFrame, column: str) -> tuple[float, float]:
    """Return the mean of a column over samples and then questions, and its standard error over questions.

    The error is the standard deviation (n - 1) of the questions' means over the root of their number; 0 for one question.
    """
    means = samples.group_by("question").agg(pl.col(column).cast(pl.Float64).mean())[column]
    error = float(means.std() or 0.0) / math.sqrt(len(means)) if len(means) > 1 else 0.0  # type: ignore[arg-type]
    return float(means.mean() or 0.0), error  # type: ignore[arg-type]


def curve(material: Material, one: FinishedEvaluation, benchmark: str) -> dict[str, float]:
    """Return the accuracy of forced answers by budget in tokens; these are text, as keys of JSON are."""
    seed = pl.col("seed").is_null() if one.seed is None else pl.col("seed") == one.seed
    rows = material.curves.filter(
        (pl.col("name") == one.arm.name) & seed & (pl.col("benchmark") == benchmark)
    )
    return {str(row["budget"]): row["accuracy"] for row in rows.sort("budget").iter_rows(named=True)}


def score(material: Material, one: FinishedEvaluation, benchmark: str) -> dict[str, Any]:
    """Return the row of the study's score, in tokens: `reg`, `difference` and the like; empty without a score.

    It is of the evaluation's seed if the score has rows by seed, else over all seeds.
    """
    scores = material.scores
    if not scores.height:
        return {}
    rows = scores.filter((pl.col("arm") == one.arm.name) & (pl.col("benchmark") == benchmark))
    mine = rows.filter(pl.col("seed") == one.seed) if one.seed is not None else rows
    row = next((mine if mine.height else rows.filter(pl.col("seed").is_null())).iter_rows(named=True), {})
    kept = ("reg", "reg_low", "reg_high", "reg_plain", "difference", "difference_low", "difference_high")
    return {name: row[name] for name in kept if row.get(name) is not None and math.isfinite(row[name])}
