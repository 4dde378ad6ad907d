"""Shared by all tests: `golden`, which compares a text with a committed file, `--update-goldens`, and `calls`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDENS = Path(__file__).with_name("goldens")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="Write what the tests give to tests/goldens/."
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("path/name.txt", text)`: the text is what tests/goldens/path/name.txt holds, to the byte."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
            return
        assert path.is_file(), f"no golden file {name}: run pytest with --update-goldens, and look at it"
        assert text == path.read_bytes().decode("utf-8"), f"differs from {name} (--update-goldens accepts it)"

    return compare


@pytest.fixture
def calls() -> Callable[[Callable[[], object]], int]:
    """`calls(work)`: how many functions `work` calls, Python's and C's: how its cost grows, without a clock."""

    def count(work: Callable[[], object]) -> int:
        found = 0

        def hear(frame: object, event: str, argument: object) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(hear)
        try:
            work()
        finally:
            sys.setprofile(before)
        return found

    return count
