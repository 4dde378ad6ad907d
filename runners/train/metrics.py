"""Write tables of training as Parquet files, whole or not at all, and measure its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import torch

from reodsl.price.memory import Sizes
from reodsl.store.files import replacing

WHOLE = {"step"}
"""Columns of metrics that hold whole numbers."""


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file that appears whole or not at all."""
    with replacing(path, durable=False) as aside:
        frame.write_parquet(aside)


def join_parquet(parts: Sequence[Path], schema: Mapping[str, Any], path: Path) -> None:
    """Join Parquet files in their order, never in memory as a whole; a column that a part lacks is null there."""
    none = pl.LazyFrame(schema=schema)
    frame = (
        pl.scan_parquet(list(parts), schema=schema, missing_columns="insert", glob=False) if parts else none
    )
    frame.sink_parquet(path, maintain_order=True)


def metrics_table(rows: Sequence[Mapping[str, float]]) -> pl.DataFrame:
    """Return one row a step, `step` counted from 1; a column for every name that any row has, null where one has not."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names},
        schema={name: pl.Int64 if name in WHOLE else pl.Float64 for name in names},
        strict=False,
    )


PEAKS = {
    "H100": 989.4e12,
    "H200": 989.4e12,
    "H800": 989.4e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362.05e12,
}
"""FLOP/s of dense bf16 products by the name of the device, from NVIDIA's data sheets (SXM where there are several)."""


@dataclass(slots=True)
class Tally:
    """Work since it was last emptied: sequences' lengths, and passes over each (a backward pass is two)."""

    runs: list[tuple[int, float]] = field(default_factory=list)

    def add(self, lengths: Sequence[int], passes: float) -> None:
        """Count sequences that are run `passes` times."""
        self.runs.extend((length, passes) for length in lengths)

    def empty(
        self, seconds: float, sizes: Sizes | None, devices: int, peak: float | None
    ) -> dict[str, float]:
        """Return `train_tokens_per_second` (those that a gradient went through) and, where sizes and peak are known, `mfu`.

        Empties the tally. FLOPs are the model's own: what checkpointing computes again is not counted.
        """
        runs, self.runs = self.runs, []
        trained = sum(length for length, passes in runs if passes == 3)
        if not trained or seconds <= 0:
            return {}
        rates = {"train_tokens_per_second": trained / seconds}
        if sizes is not None and peak is not None:
            # Attention is causal: a token attends to half of its sequence on average.
            flops = sum(passes * sizes.forward_flops(length, length**2 / 2) for length, passes in runs)
            rates["mfu"] = flops / (seconds * devices * peak)
        return rates


def peak_flops(device: torch.device) -> float | None:
    """Return the FLOP/s that the device's data sheet gives for dense bf16 products; None where it is not in the table."""
    if device.type == "cpu":
        return None
    name = torch.get_device_module(device).get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)
