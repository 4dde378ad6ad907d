"""The notebook in examples/ runs as it stands: quickly without its trainings, and whole in the heavy tests."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from examples.execute import NOTEBOOK, execute, read, tags
from reodsl.door import FinishedRun
from reodsl.report.export import report_tables, write_tables
from reodsl.report.material import read as read_material
from tests.report.synthetic import world

ROOT = NOTEBOOK.parents[1]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's two folders, as the notebook finds them, and no display."""
    (tmp_path / "specs").mkdir()
    shutil.copy(ROOT / "specs" / "quickstart.reo", tmp_path / "specs")
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "REODSL_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def trains(cell: dict[str, Any]) -> bool:
    return "trains" in tags(cell)


@pytest.mark.slow
def test_every_cell_that_does_not_train_runs(place: Path) -> None:
    made = world(place / "made")
    (place / "made" / "report.html").write_text("")
    material = read_material(made.spec, made.inputs)
    write_tables(place / "made" / "tables", report_tables(material))
    run = FinishedRun(place / "made" / "report.html", made.spec, made.inputs)
    notebook = read()
    execute(notebook, {"run": run}, skip=trains)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sum(trains(cell) for cell in code) == 2
    assert not list(place.glob("specs/.reodsl/objects/*"))
    shown = "\n".join(json.dumps(cell["outputs"]) for cell in code if not trains(cell))
    assert "error[E0303]: `n` must be from 1 to 16" in shown
    assert '"image/png": "iVBOR' in shown


def test_the_notebook_is_whole_and_has_its_outputs() -> None:
    notebook = read()
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            ast.parse("".join(cell["source"]))
            assert cell["outputs"], f"{cell['id']} shows nothing: run `python examples/execute.py`"
    text = NOTEBOOK.read_text("utf-8")
    assert "Traceback" not in text
    assert str(Path.home()) + "/" not in text
    assert str(ROOT) not in text


@pytest.mark.heavy
def test_the_whole_notebook_runs(place: Path) -> None:
    notebook = read()
    execute(notebook, {}, skip=lambda cell: False)
    assert all(cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert list(place.glob("examples/runs/*/report.html"))
