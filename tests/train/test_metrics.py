"""Tables of training: rows of unlike names, and the parts of a long stage put together without holding them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from runners.train.metrics import join_parquet, metrics_table, write_parquet

SCHEMA = {"step": pl.Int64, "cuts": pl.List(pl.Int64), "mode": pl.Int64}


def test_rows_may_measure_unlike_things() -> None:
    table = metrics_table([{"step": 1, "loss": 2.0}, {"step": 2, "kl": 0.5}])
    assert table.to_dict(as_series=False) == {"step": [1, 2], "loss": [2.0, None], "kl": [None, 0.5]}
    assert table.schema["step"] == pl.Int64


def test_parts_become_one_file_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [
        pl.DataFrame({"step": [2, 1], "cuts": [[4, 8], []], "mode": [0, None]}, schema=SCHEMA),
        # As a version left it that did not have the last column yet.
        pl.DataFrame({"step": [7], "cuts": [[3]]}, schema={name: SCHEMA[name] for name in ("step", "cuts")}),
        pl.DataFrame({"step": [5], "cuts": [[]], "mode": [1]}, schema=SCHEMA),
    ]
    parts = [tmp_path / f"{number}.parquet" for number in (3, 1, 2)]
    for frame, part in zip(frames, parts, strict=True):
        write_parquet(frame, part)
    with monkeypatch.context() as patch:
        # Not one of them is read as a whole: a run has thousands.
        patch.delattr(pl, "read_parquet")
        join_parquet(parts, SCHEMA, tmp_path / "whole.parquet")
    assert pl.read_parquet(tmp_path / "whole.parquet").equals(pl.concat(frames, how="diagonal"))


def test_no_part_is_an_empty_table(tmp_path: Path) -> None:
    join_parquet([], SCHEMA, tmp_path / "none.parquet")
    found = pl.read_parquet(tmp_path / "none.parquet")
    assert (found.height, dict(found.schema)) == (0, SCHEMA)


def test_a_table_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    write_parquet(pl.DataFrame({"a": [1]}), path)

    def fail(self: pl.DataFrame, aside: Path) -> None:
        aside.write_bytes(b"PAR1")
        raise OSError("no space left")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)
    with pytest.raises(OSError, match="no space"):
        write_parquet(pl.DataFrame({"a": [2]}), path)
    assert pl.read_parquet(path)["a"].to_list() == [1]
    assert list(tmp_path.iterdir()) == [path]
