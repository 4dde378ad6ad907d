"""benchmarks/SCALE.md is what benchmarks/scale.json says, by the script that writes both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scale import save
from benchmarks.scale_report import PHASES, draw

HERE = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_page_is_made_of_the_measurements(tmp_path: Path) -> None:
    save(json.loads((HERE / "scale.json").read_text()), tmp_path)
    assert (tmp_path / "SCALE.md").read_text() == (HERE / "SCALE.md").read_text()


@pytest.mark.heavy
def test_reports_of_drawn_responses_are_made_phase_by_phase(tmp_path: Path) -> None:
    draw(tmp_path, 9_600)
    for phase in PHASES.values():
        phase(tmp_path)
    (page,) = tmp_path.glob("*/report.html")
    assert "REG" in page.read_text()
