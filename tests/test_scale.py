"""benchmarks/SCALE.md is what benchmarks/scale.json says, by the script that writes both."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.scale import save

HERE = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_page_is_made_of_the_measurements(tmp_path: Path) -> None:
    save(json.loads((HERE / "scale.json").read_text()), tmp_path)
    assert (tmp_path / "SCALE.md").read_text() == (HERE / "SCALE.md").read_text()
