"""Fixtures of execution: a bench in this process, and one on a local Ray that all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.plan.registry import Machine
from tests.execute.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One local Ray instance for all tests: it takes seconds to start."""
    from runners.execute.instance import start_ray

    # An empty entry is the working folder, and later tests have strangers' modules there.
    paths = filter(None, [*sys.path, os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with start_ray(None):
        yield


@pytest.fixture
def ray_bench(tmp_path: Path, ray_session: None) -> Bench:
    return Bench(tmp_path, Machine())
