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

INTEGER_COLUMNS = {"step"}
"""Columns of metrics that hold whole numbers."""


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file atomically: a reader sees the complete file or none."""
    with replacing(path, durable=False) as temporary:
        frame.write_parquet(temporary)


def join_parquet(parts: Sequence[Path], schema: Mapping[str, Any], path: Path) -> None:
    """Concatenate Parquet files in their order, without loading them; a column that a file lacks is null in its rows."""
    none = pl.LazyFrame(schema=schema)
    frame = (
        pl.scan_parquet(list(parts), schema=schema, missing_columns="insert", glob=False) if parts else none
    )
    frame.sink_parquet(path, maintain_order=True)


def metrics_table(rows: Sequence[Mapping[str, float]]) -> pl.DataFrame:
    """Return a table with a row for each step.

    Args:
        rows: The metrics of each step, by name, with `step` counted from 1.

    Returns:
        A column for every name of any row, in order of appearance; null if a step lacks the name.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names},
        schema={name: pl.Int64 if name in INTEGER_COLUMNS else pl.Float64 for name in names},
        strict=False,
    )


PEAK_FLOPS = {
    "H100": 989.4e12,
    "H200": 989.4e12,
    "H800": 989.4e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362.05e12,
}
"""FLOP/s of dense bf16 products by the device's name, from NVIDIA's data sheets (the SXM figure if there are several)."""


@dataclass(slots=True)
class ThroughputCounter:
    """Work since the counter was last emptied: each sequence's tokens and passes (a backward pass is two)."""

    runs: list[tuple[int, float]] = field(default_factory=list)

    def add(self, lengths: Sequence[int], passes: float) -> None:
        """Count sequences that are run `passes` times.

        Args:
            lengths: Tokens of each sequence.
            passes: Forward passes, of which a backward pass costs two.
        """
        self.runs.extend((length, passes) for length in lengths)

    def empty(
        self, seconds: float, sizes: Sizes | None, devices: int, peak: float | None
    ) -> dict[str, float]:
        """Return the rates since the last call, and empty the counter.

        FLOPs are the model's own: what activation checkpointing computes again is not counted.

        Args:
            seconds: Seconds that the work took.
            sizes: The model's sizes, None if its config does not tell them.
            devices: Number of devices.
            peak: FLOP/s of one device, None if unknown.

        Returns:
            `train_tokens_per_second`, the tokens that a gradient went through; and `mfu`, the model FLOPs utilisation
                (0 to 1),
            if sizes and peak are known. Empty if nothing was trained.
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
    """Return the FLOP/s of dense bf16 products in the device's data sheet; None if `PEAK_FLOPS` lacks the device.

    Returns:
        FLOP/s of a single device.
    """
    if device.type == "cpu":
        return None
    name = torch.get_device_module(device).get_device_name(device)
    return next((peak for model, peak in PEAK_FLOPS.items() if model in name), None)
