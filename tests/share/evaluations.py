"""A finished study as `gather` finds one in a store, made of synthetic artifacts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from reodsl.graph.task import parse_role
from reodsl.report.material import read
from reodsl.share.evaluated import ExportMaterial, FinishedEvaluation
from tests.report.synthetic import world

ENDED = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def shared(
    folder: Path, *, seeds: tuple[int, ...] = (1,), text: str = "", doc: str = "A story."
) -> ExportMaterial:
    """All evaluations of a study on two benchmarks; `text` is in every question, answer and response."""
    made = world(folder, seeds=seeds, benchmarks=("easy", "hard"), text=text, doc=doc)
    arms = {arm.name: arm for arm in made.spec.study.arms}
    evaluations = []
    for role, place in made.inputs.items():
        parsed = parse_role(role)
        if parsed.kind != "evaluate":
            continue
        # What was forced at each budget, of the first questions.
        forced = pl.read_parquet(place / "examples.parquet").drop("characters", "forced_text")
        forced.with_columns(pl.lit(True).alias("forced")).write_parquet(place / "forced.parquet")
        key = place.name.encode().hex().ljust(64, "0")
        versions = {"reodsl": "0.1.0", "torch": "2.13.0"}
        evaluations.append(
            FinishedEvaluation(arms[parsed.name], parsed.seed, key, place, ENDED, 30.0, versions)
        )
    return ExportMaterial(read(made.spec, made.inputs), tuple(evaluations), ())
