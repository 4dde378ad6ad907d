"""A place for a test of bad input: a folder of its own with the small spec in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.commands import SPEC, Place
from tests.lent import _lent_workers  # noqa: F401


@pytest.fixture
def place(
    tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    monkeypatch.chdir(tmp_path)
    # What the doctor asks a process of its own about torch is for tests/execute/test_survey.py.
    monkeypatch.setattr("runners.execute.survey.survey", tuple)
    made = Place(tmp_path, capsys)
    made.write(SPEC)
    return made


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint that loads, as `transformers` has it."""
    from reodsl.language import compile_file
    from runners.models.folder import save
    from runners.models.prepare import make_fresh

    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "tiny.reo").write_text(SPEC)
    spec = compile_file(folder / "tiny.reo").spec
    assert spec is not None
    from reodsl.graph.lower import lower
    from reodsl.ir.model import Model

    (task,) = (task for task in lower(spec).tasks if task.kind == "model")
    model = Model.model_validate(task.payload["model"])
    made = make_fresh(model.source, 64, 1)  # type: ignore[arg-type]
    save(made.model, made.tokenizer, folder / "whole")
    return folder / "whole"
