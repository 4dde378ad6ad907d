"""Folders for sockets: kept while their maker lives, removed by whoever makes the next, and never what is not theirs."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.machine.scratch import Scratch, sweep

MAKE = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from runners.machine.scratch import Scratch
print(Scratch().folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    yield short
    shutil.rmtree(short)


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
    (place / "reodsl-other").mkdir()
    (place / "reodsl-file").touch()
    target = place / "kept"
    target.mkdir()
    (target / "owner").touch()
    (place / "reodsl-link").symlink_to(target)
    sweep()
    assert {path.name for path in place.iterdir()} == {"reodsl-other", "reodsl-file", "kept", "reodsl-link"}
    assert (target / "owner").is_file()


def test_only_its_user_enters_it(place: Path) -> None:
    mine = Scratch()
    assert stat.S_IMODE(mine.folder.stat().st_mode) == 0o700
    mine.remove()


def test_a_long_place_is_not_taken_for_sockets(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = place / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    mine = Scratch()
    assert mine.folder.parent == Path("/tmp")
    mine.remove()
    assert not mine.folder.exists()


def test_what_cannot_be_removed_yet_keeps_its_mark(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Scratch()
    (mine.folder / "logs").mkdir()
    with monkeypatch.context() as still_written:
        still_written.setattr(shutil, "rmtree", lambda *_, **__: None)
        mine.remove()
    assert (mine.folder / "owner").is_file()
    sweep()
    assert not mine.folder.exists()
