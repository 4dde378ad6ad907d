"""A disk that fills up, or that may only be read: told clearly, and the run goes on when the cause is gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.cli.main import main
from tests.resume.harness import SPEC, Place, same
from tests.resume.moments_of_runs import AT_A_CHECKPOINT


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def disk(place: Place) -> Iterator[Path]:
    """A small file system of its own for the store; needs a superuser who may mount."""
    store = place.folder / "store"
    store.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=64k", "none", store)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system is not allowed here")
    yield store
    while os.path.ismount(store):
        subprocess.run(["umount", store], check=True)


def plan(spec: Path, options: list[str]) -> int:
    """The exit code of planning."""
    with pytest.raises(SystemExit) as caught:
        main(["plan", str(spec), *options])
    return int(str(caught.value.code))


def grow(disk: Path, kib: int) -> None:
    mount("-o", f"remount,size={kib}k", disk)


pytestmark = pytest.mark.heavy
# In moments, without what is left being compared to the byte: tests/bad_input/test_store.py.

SOME, MANY = (64, 500, 900), (64, 100, 200, *range(400, 4000, 200))


@pytest.mark.parametrize("sizes", [SOME, MANY])
def test_a_full_disk_is_told_and_the_run_goes_on_with_more_room(
    place: Place, disk: Path, untouched: Place, sizes: tuple[int, ...]
) -> None:
    refused = 0
    for size in sizes:
        grow(disk, size)
        running = place.start()
        if running.wait() == 0:
            break
        assert "Traceback" not in running.text
        assert "error[E0950]: no space left to store results" in running.text
        assert "reodsl gc" in running.text
        place.assert_whole()
        refused += 1
    assert refused >= 3
    grow(disk, 64 * 1024)
    place.run()
    place.assert_tidy()
    same(untouched.contents(), place.contents())


def test_a_store_that_may_only_be_read_is_told(place: Place, disk: Path, untouched: Place) -> None:
    """From the beginning, and from the middle of a task on."""
    grow(disk, 64 * 1024)
    running = place.stopped(AT_A_CHECKPOINT)
    # Over itself: what is open stays writable, and every path leads to the mount that is not.
    mount("--bind", disk, disk)
    mount("-o", "remount,bind,ro", disk)
    running.go_on()
    running.refused("E0950")
    place.start().refused("E0950")
    # What only reads goes on working.
    told = ["--store", str(disk), "--target", "short", "--json"]
    assert main(["ls", "--store", str(disk), "--verify"]) == 0
    assert plan(place.folder / SPEC, told) == 2
    subprocess.run(["umount", disk], check=True)
    place.run()
    place.assert_tidy()
    same(untouched.contents(), place.contents())
