"""A place for a study of one's own, with nothing of the user's around it, and one for packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Confined processes read folders of packages alone, by their names.
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    loaded = [name for name in sys.modules if name.partition(".")[0] == "sums"]
    before = {name: sys.modules.pop(name) for name in loaded}
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "sums"]:
        del sys.modules[name]
    sys.modules.update(before)
