"""Write a run's training metrics as TensorBoard logs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reodsl.diagnostics import problem

_OURS = ".reodsl"
"""How the names of logs end that are ours."""


def write_tensorboard(run: Path) -> Path:
    """Write the metrics of every trained stage in a run's folder to `tensorboard/<arm>/<stage>` there.

    Needs the package `tensorboard`, and no torch. Raises E0982 where it is not installed, and E0118 where a link would lead
    out of the folder. Logs that an earlier call wrote are replaced, so that no step is there twice.
    """
    place = run / "tensorboard"
    for metrics in sorted(run.glob("arms/*/stages/*/metrics.parquet")):
        log = place / metrics.parents[2].name / metrics.parent.name
        if any(each.is_symlink() for each in (place, log.parent, log)):
            raise problem(
                "E0118",
                f"nothing can be written here: `{log.relative_to(run)}` leads through a link",
                where=str(run),
                help="remove the link, or name another place with --out",
            )
        if log.is_dir():
            for old in log.glob(f"events.out.tfevents.*{_OURS}"):
                old.unlink()
        write_scalars(pl.read_parquet(metrics, glob=False), log)
    return place


def write_scalars(table: pl.DataFrame, folder: Path) -> None:
    """Write a scalar for every number of a table of steps, under its column's name."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as missing:
        raise problem(
            "E0982",
            "the package `tensorboard` is not installed",
            help="pip install tensorboard, or leave out --tensorboard",
        ) from missing
    writer = EventFileWriter(str(folder), filename_suffix=_OURS)
    try:
        for row in table.iter_rows(named=True):
            values = [
                Summary.Value(tag=name, simple_value=float(value))
                for name, value in row.items()
                if name != "step" and isinstance(value, (int, float))
            ]
            writer.add_event(Event(step=int(row["step"]), summary=Summary(value=values)))
    finally:
        writer.close()
