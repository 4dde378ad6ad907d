"""Metrics of arms that ran: accuracy, length and REG, as means over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.graph.identity import parse_role
from reodsl.graph.task import Graph
from reodsl.store.manifest import arm_labels

MEAN = "mean"
METRICS = ("accuracy", "length", "reg")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over benchmarks and seeds: accuracy a share, length and REG in tokens; None: not measured."""

    accuracy: float | None = None
    length: float | None = None
    reg: float | None = None
    seeds: int = 0


def read_metrics(graph: Graph, folders: Mapping[str, Path]) -> dict[str, Metrics]:
    """Read metrics by arm, for the arms of the graph's report whose evaluations are in `folders` (by task id)."""
    inputs = graph["report"].inputs if "report" in graph else {}
    roles = {parse_role(role): folders[source] for role, source in inputs.items() if source in folders}
    evaluations = {
        (role.name, role.seed): folder for role, folder in roles.items() if role.kind == "evaluate"
    }
    rows: dict[str, list[dict[str, float]]] = {}
    for (arm, _), folder in evaluations.items():
        if (row := _summary(folder / "summary.json")) is not None:
            rows.setdefault(arm, []).append(row)
    regs: dict[str, list[float]] = {}
    for folder in (folder for role, folder in roles.items() if role.kind == "score"):
        called = arm_labels("score", folder, evaluations)
        for arm, value in _regs(folder / "reg.parquet").items():
            regs.setdefault(called.get(arm, arm), []).append(value)
    return {
        arm: Metrics(
            _mean([row["accuracy"] for row in seeds]),
            _mean([row["length"] for row in seeds]),
            _mean(regs.get(arm, [])),
            len(seeds),
        )
        for arm, seeds in rows.items()
    }


def read_table(folder: Path) -> dict[str, Metrics]:
    """Read metrics by arm from the main table of a run's folder; empty without one."""
    import polars as pl

    columns = ["arm", "benchmark", "seeds", "accuracy", "length", "reg"]
    try:
        table = pl.read_parquet(folder / "tables" / "main.parquet", glob=False)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    if not {"arm", "benchmark", "seeds", "accuracy", "length"} <= set(table.columns):
        return {}
    metrics = {}
    for row in table.select(name for name in columns if name in table.columns).iter_rows(named=True):
        if row["benchmark"] == MEAN:
            metrics[row["arm"]] = Metrics(row["accuracy"], row["length"], row.get("reg"), row["seeds"])
    return metrics


def _summary(path: Path) -> dict[str, float] | None:
    try:
        mean: Any = json.loads(path.read_bytes())["mean"]
        return {"accuracy": float(mean["accuracy"]), "length": float(mean["length"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _regs(path: Path) -> dict[str, float]:
    import polars as pl

    try:
        table = pl.read_parquet(path, glob=False)
        means = table.filter(pl.col("benchmark") == MEAN)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    if "seed" in means.columns:
        means = means.filter(pl.col("seed").is_null())
    return {
        str(name): float(reg)
        for name, reg in zip(means["model"], means["reg"], strict=True)
        if reg is not None
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
