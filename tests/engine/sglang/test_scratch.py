"""Folders of servers: kept while their maker lives, removed by whoever makes the next, and never what is not theirs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runners.engine.sglang.scratch import Scratch, sweep

MAKE = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from runners.engine.sglang.scratch import Scratch
print(Scratch().folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_stays_with_its_maker_and_goes_after_it(place: Path) -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKE, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    left = Path(maker.stdout.readline().strip())
    (left / "ipc").touch()
    mine = Scratch()
    assert left.is_dir()
    maker.kill()
    maker.communicate()
    assert left.is_dir()
    another = Scratch()
    assert set(place.iterdir()) == {mine.folder, another.folder}
    mine.remove()
    another.remove()
    assert not list(place.iterdir())


def test_what_nobody_made_so_is_left_alone(place: Path) -> None:
    (place / "sgl-other").mkdir()
    (place / "sgl-file").touch()
    target = place / "kept"
    target.mkdir()
    (target / "owner").touch()
    (place / "sgl-link").symlink_to(target)
    sweep()
    assert {path.name for path in place.iterdir()} == {"sgl-other", "sgl-file", "kept", "sgl-link"}
    assert (target / "owner").is_file()
