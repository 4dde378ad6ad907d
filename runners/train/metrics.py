"""Tables of training as Parquet files that are written atomically, and measures of training speed."""

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


def join_parquet(files: Sequence[Path], schema: Mapping[str, Any], path: Path) -> None:
    """Concatenate Parquet files in their order, without loading them into memory.

    Args:
        files: The files to read.
        schema: The columns of the result and their types; a column that a file lacks is null in its rows.
        path: The file to write.
    """
    empty = pl.LazyFrame(schema=schema)
    frame = (
        pl.scan_parquet(list(files), schema=schema, missing_columns="insert", glob=False) if files else empty
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
    "H100": 989.4e12, "H200": 989.4e12, "H800": 989.4e12, "A100": 312e12, "A800": 312e12, "L40S": 362.05e12,
}  # fmt: skip
"""FLOP/s of dense bf16 matrix products by a part of the device's name, from NVIDIA's data sheets (SXM versions)."""


@dataclass(slots=True)
class ThroughputCounter:
    """The sequences that were run since the counter was last emptied."""

    runs: list[tuple[int, float, bool]] = field(default_factory=list)
    """The tokens of each sequence, its cost in forward passes, and whether it had a backward pass."""

    def add(self, lengths: Sequence[int], passes: float, trained: bool) -> None:
        """Count sequences.

        Args:
            lengths: Tokens of each sequence.
            passes: The cost in forward passes; a backward pass costs two, or one if the weights are frozen.
            trained: Whether the sequences had a backward pass.
        """
        self.runs.extend((length, passes, trained) for length in lengths)

    def empty(
        self, seconds: float, sizes: Sizes | None, devices: int, peak: float | None
    ) -> dict[str, float]:
        """Return the throughput since the last call, and reset the counter.

        Only the FLOPs of forward and backward passes are counted, not those that activation checkpointing repeats.

        Args:
            seconds: Seconds that the work took.
            sizes: The model's sizes, None if its config lacks them.
            devices: Number of devices.
            peak: FLOP/s of one device, None if unknown.

        Returns:
            `train_tokens_per_second`, the tokens with a backward pass per second; and `mfu`, the model FLOPs
            utilisation (0 to 1), if sizes and peak are known. Empty if no token had a backward pass, or `seconds` is 0.
        """
        runs, self.runs = self.runs, []
        trained_tokens = sum(length for length, _, trained in runs if trained)
        if not trained_tokens or seconds <= 0:
            return {}
        rates = {"train_tokens_per_second": trained_tokens / seconds}
        if sizes is not None and peak is not None:
            # Attention is causal: a token attends to half of its sequence on average.
            flops = sum(passes * sizes.forward_flops(length, length**2 / 2) for length, passes, _ in runs)
            rates["mfu"] = flops / (seconds * devices * peak)
        return rates


def peak_flops(device: torch.device) -> float | None:
    """Return the FLOP/s of dense bf16 matrix products of one device; None if `PEAK_FLOPS` lacks the device."""
    if device.type == "cpu":
        return None
    name = torch.get_device_module(device).get_device_name(device)
    return next((peak for model, peak in PEAK_FLOPS.items() if model in name), None)
