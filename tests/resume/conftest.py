"""Fixtures of killed runs: a process to copy runs from, and the results of a run that nobody touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resume.harness import EVERY_KIND, SHORT, Forks, Place


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Everything is imported once; every run is a copy."""
    made = Forks()
    yield made
    made.close()


def finished(folder: Path, forks: Forks, options: tuple[str, ...]) -> Place:
    place = Place(folder, forks, options)
    place.run()
    place.assert_tidy()
    return place


@pytest.fixture(scope="session")
def untouched(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The short form, run from the beginning to the end."""
    return finished(tmp_path_factory.mktemp("short"), forks, SHORT)


@pytest.fixture(scope="session")
def every_kind(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Every kind of task, run from the beginning to the end."""
    return finished(tmp_path_factory.mktemp("every_kind"), forks, EVERY_KIND)


@pytest.fixture
def place(forks: Forks, tmp_path: Path) -> Place:
    """A folder of its own, for the short form."""
    return Place(tmp_path, forks)
