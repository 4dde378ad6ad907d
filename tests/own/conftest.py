"""A place for a study of one's own: an empty folder, and nothing of the user's around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.commands import Place


@pytest.fixture
def place(
    tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    folder = tmp_path / "study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("REODSL_STORE", "JUDGE_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Place(folder, capsys)
