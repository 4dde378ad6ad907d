"""What is read of artifacts: a file that is damaged or gone is one clear error, whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.report.material import read_json, read_origin, read_parquet
from reodsl.report.study_tables import _samples

READERS: dict[str, Callable[[Path], object]] = {
    "budgets.json": read_json,
    "reg.parquet": read_parquet,
    "samples.parquet": lambda path: _samples("arm", path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("held", [b"PAR1 and no more", b"\xff{", None])
def test_what_cannot_be_read_is_named(name: str, held: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if held is not None:
        path.write_bytes(held)
    with pytest.raises(Problem) as caught:
        READERS[name](path)
    (found,) = caught.value.diagnostics
    assert (found.code, found.where) == ("E0981", str(path))
    assert len(found.message.splitlines()) == 1
    assert "--verify" in (found.help or "")


def test_an_artifact_without_a_manifest_still_has_its_key(tmp_path: Path) -> None:
    assert (read_origin(tmp_path).key, read_origin(tmp_path).seconds) == (tmp_path.name, None)
