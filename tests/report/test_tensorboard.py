"""TensorBoard logs hold the numbers of the metrics, once however often they are written."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from reodsl.report.export import write_tensorboard


def test_every_stage_of_every_arm_is_logged_once(tmp_path: Path) -> None:
    stage = tmp_path / "arms" / "vanilla.s1" / "stages" / "0"
    stage.mkdir(parents=True)
    table = pl.DataFrame({"step": [1, 2], "loss": [0.5, 0.25], "accuracy": [None, 0.75]})
    table.write_parquet(stage / "metrics.parquet")
    for _ in range(2):
        place = write_tensorboard(tmp_path)
    events = EventAccumulator(str(place / "vanilla.s1" / "0"))
    events.Reload()
    assert [(each.step, each.value) for each in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
    assert [(each.step, each.value) for each in events.Scalars("accuracy")] == [(2, pytest.approx(0.75))]
    assert set(events.Tags()["scalars"]) == {"loss", "accuracy"}
