"""A store without space or permission: one error, what was done before it kept, and the run goes on after."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reodsl.store.files
import runners.execute.perform
from reodsl.store.store import Store
from tests.bad_input.commands import FROM_FOLDER, Place, kinds_in, permissions_count, refused, whole

ALL = {"model", "data", "train", "evaluate", "report"}


def finishes(place: Place, store: str) -> None:
    """The same command, once the cause is gone."""
    told = place.run("--store", store)
    assert told.code == 0, told.err
    whole(Path(store), ALL)
    assert not any((Path(store) / "work").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 KiB: enough for what is small, not for a checkpoint with its optimizer."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(disk)], capture_output=True
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    yield disk
    # Lazily: a worker that is ending may still hold a file.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_fills(place: Place, small_disk: Path) -> None:
    store = small_disk / "store"
    told = place.run("--store", str(store))
    refused(told, "E0950", str(store), "no space left", "reodsl gc", "--store DIR")
    done = kinds_in(store)
    whole(store, done)
    assert done < ALL
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    finishes(place, str(store))


def test_a_full_disk_is_told_before_anything_starts(place: Place, small_disk: Path) -> None:
    with contextlib.suppress(OSError):
        (small_disk / "rest").write_bytes(b"0" * 200_000)
    store = small_disk / "store"
    refused(place.run("--store", str(store)), "E0950", str(store), "no space left")
    assert {path.name for path in small_disk.rglob("*") if path.is_file()} == {"rest"}


@pytest.mark.parametrize("at", range(3, 40, 6))
def test_no_space_at_any_write(place: Place, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The disk is full from the `at`-th time on that a file is to be kept on it for good."""
    real, count = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal count
        count += 1
        if count >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(reodsl.store.files.os, "fsync", full)
        # Every result waits for the disk, so that how many waits there are does not turn on how long a task took.
        patch.setattr(runners.execute.perform, "SYNC_SECONDS", 0.0)
        told = place.run("--store", "store")
    refused(told, "E0950", "store", "no space left")
    done = kinds_in(Path("store"))
    whole(Path("store"), done)


def test_a_limit_on_the_size_of_files(place: Place) -> None:
    """As `ulimit -f` sets it, or a file system without large files: the report is too large for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_000, before[1]))
    try:
        told = place.run("--store", "store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused(told, "E0950", "store", "`ulimit -f` allows", "ulimit -f unlimited")
    whole(Path("store"), ALL - {"report"})


@pytest.mark.parametrize("shut", ["store/objects", "store/tmp", "store/runs", "store/locks", "store/work"])
def test_a_store_that_may_not_be_written(place: Place, shut: str) -> None:
    Store(Path("store")).open()
    Path(shut).chmod(0o555)
    with permissions_count():
        told = place.run("--store", "store")
    refused(told, "E0950", "store", "permission denied", "--store DIR")
    Path(shut).chmod(0o755)
    done = kinds_in(Path("store"))
    whole(Path("store"), done)
    # Only what keeps nothing between attempts may be there.
    assert done <= {"model", "data"}


def test_a_folder_that_may_not_be_written(place: Place, refusal: Callable[..., None]) -> None:
    Path("shut").mkdir(mode=0o555)
    with permissions_count():
        told = place.run("--store", "shut/store")
        refused(told, "E0950", "shut/store", "permission denied")
        refused(place.run("--out", "shut/out"), "E0118", "shut/out", "permission denied", "--out")
    refusal("commands/E0950.txt", told.err)
    assert not any(Path("shut").iterdir())
    assert not Path(".reodsl").exists()


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file(place: Place) -> None:
    place.write("mine", "file")
    place.write("model,benchmark,budget,accuracy\n", "curves.csv")
    before = place.files()
    refused(place.run("--out", "file"), "E0118", "file", "not a folder")
    (place.folder / "folder.json").mkdir()
    told = place.call("frontier", "curves.csv", "--out", "folder.json")
    refused(told, "E0118", "folder.json", "it is a folder")
    assert place.files() == before


FOREIGN: dict[str, tuple[str, str]] = {
    "a file": ("E0952", "it is a file"),
    "below a file": ("E0952", "it is a file"),
    "a folder with files": ("E0952", "it has other files"),
    "of another version": ("E0952", "another version"),
    "without its mark": ("E0952", "echo reodsl store 1 > s/format"),
    "a device": ("E0952", ""),
    "a name too long": ("E0119", "too long"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_store(place: Place, kind: str, refusal: Callable[..., None]) -> None:
    code, words = FOREIGN[kind]
    store = {"below a file": "s/below", "a device": "/dev/null", "a name too long": "n" * 300}.get(kind, "s")
    match kind:
        case "a file" | "below a file":
            place.write("mine", "s")
        case "a folder with files":
            place.write("mine", "s/notes.txt")
        case "of another version":
            place.write("reodsl store 9\n", "s/format")
        case "without its mark":
            Store(Path("s")).open()
            Path("s/format").unlink()
    before = place.files()
    for told in (place.run("--store", store), place.call("plan", "tiny.reo", "--store", store)):
        refused(told, code, store[:40], words)
        if code == "E0119":
            refusal("commands/E0119.txt", told.err, (store, "nnn…"))
    assert place.files() == before


def test_a_mark_written_again_makes_it_a_store_again(place: Place) -> None:
    Store(Path("s")).open()
    mark = Path("s/format").read_bytes()
    Path("s/format").unlink()
    hint = place.call("plan", "tiny.reo", "--store", "s").err
    subprocess.run(hint[hint.index("echo ") :].strip(), shell=True, check=True)
    assert Path("s/format").read_bytes() == mark


def test_other_commands_leave_a_store_of_another_version_alone(place: Place) -> None:
    place.write("reodsl store 9\n", "s/format")
    for command in (("ls",), ("gc", "--dry-run"), ("why", "tiny.reo", "report")):
        refused(place.call(*command, "--store", "s"), "E0952", "s", "another version")


@pytest.mark.parametrize("command", [("ls",), ("gc", "--dry-run")])
def test_no_store_to_look_at(place: Place, command: tuple[str, ...]) -> None:
    refused(place.call(*command), "E0952", "", "there is no store here", "reodsl run SPEC")
    refused(place.call(*command, "--store", "nowhere"), "E0952", "nowhere", "there is no store here")
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("before", ["empty", "planned by an earlier version"])
def test_an_empty_folder_is_a_store_also_for_a_model_of_a_folder(
    place: Place, checkpoint: Path, before: str
) -> None:
    """What is remembered of the model's files goes into a store alone: `plan` leaves an empty folder as it was."""
    (place.folder / "weights").symlink_to(checkpoint, target_is_directory=True)
    store = place.folder / "s"
    store.mkdir()
    if before != "empty":
        (store / "fingerprints.json").write_text("{}")
    there = sorted(store.iterdir())
    place.write(FROM_FOLDER)
    told = place.call("plan", "tiny.reo", "--store", "s")
    assert told.code == 2, told.err
    assert sorted(store.iterdir()) == there
    finishes(place, "s")
