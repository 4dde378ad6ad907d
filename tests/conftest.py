"""Shared by all tests: `golden` and `refusal`, which compare with committed files, `--update-goldens`, `calls`."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from reodsl.cli.output import gather_findings
from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render

GOLDENS = Path(__file__).with_name("goldens")

# How long an example takes says how busy the machine is.
settings.register_profile("reodsl", deadline=None, max_examples=60)
settings.load_profile("reodsl")


def pytest_configure(config: pytest.Config) -> None:
    """Give servers on a processor what SGLang lacks there, by a Python that has it; no test sees a user's store."""
    os.environ.pop("REODSL_STORE", None)
    real, named = Path(__file__).resolve().parents[1] / ".venv-sglang", "REODSL_SGLANG_PYTHON"
    if named in os.environ or not real.exists() or Path("/dev/nvidiactl").exists():
        return
    folder, lacking = (
        Path(tempfile.mkdtemp(prefix="sglang-")),
        Path(__file__).parent / "engine" / "sglang" / "cpu",
    )
    python = folder / "bin" / "python"
    python.parent.mkdir()
    (folder / "lib").symlink_to(real / "lib")
    (folder / "bin" / "ninja").symlink_to(real / "bin" / "ninja")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{lacking}" exec "{real}/bin/python" "$@"\n')
    python.chmod(0o755)
    os.environ[named] = str(python)
    config.add_cleanup(lambda: shutil.rmtree(folder))


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
def refusal(golden: Callable[[str, str], None], tmp_path: Path) -> Callable[..., None]:
    """`refusal("train/E0926.txt", caught.value, task="tiny.train.s1")`: one error, and how a person sees it.

    It is a `Problem`, or what a command wrote; `task`, where it ends one, is named as `reodsl run` does. What names this
    machine is given with what stands for it; the test's own folder is PLACE.
    """

    def compare(name: str, told: Problem | str, *hidden: tuple[str, str], task: str | None = None) -> None:
        if isinstance(told, Problem):
            found = gather_findings({task: told.diagnostics}) if task is not None else told.diagnostics
            told = render(found, {})
        assert re.findall(r"^\w+\[([EWN]\d{4})\]", told, re.MULTILINE) == [Path(name).stem[:5]]
        for here, stands in (*hidden, (str(tmp_path), "PLACE")):
            told = told.replace(here, stands)
        golden(name, told)

    return compare


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no charts, which take most of a small run's time; tests/report and tests/cli/test_report.py draw them."""
    from tests.undrawn import undraw

    undraw(monkeypatch.setattr)


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
