"""A built wheel, installed by pip without a network, works outside the checkout: its library, its command and a real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_input.commands import SPEC

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel's contents and its command, as pip lays them out."""
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = built.glob("reodsl-*.whl")
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--no-index", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
    )
    return site


def run(site: Path, cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command that pip installed, with what the wheel needs from this environment and nothing of the checkout."""
    return subprocess.run(
        [str(site / "bin" / "reodsl"), *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )


def places(site: Path, cwd: Path) -> list[str]:
    """Where a process outside the checkout finds both packages, the runners by their entry point."""
    code = (
        "from reodsl.plan.registry import load_registry; load_registry();"
        "import reodsl, runners; print(reodsl.__file__, runners.__file__, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_wheel_holds_the_standard_library_and_both_packages(installed: Path) -> None:
    here = {path.name for path in ROOT.joinpath("stdlib").rglob("*.reo")}
    assert here
    assert {path.name for path in (installed / "reodsl" / "stdlib").rglob("*.reo")} == here
    assert (installed / "runners" / "registry.py").exists()
    tables = Path("reodsl") / "syntax" / "tables.json"
    assert (installed / tables).read_bytes() == (ROOT / tables).read_bytes()


def test_a_spec_checks_and_is_planned_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.reo"
    spec.write_text((ROOT / "specs" / "quickstart.reo").read_text())
    assert places(installed, tmp_path) == [
        str(installed / package / "__init__.py") for package in ("reodsl", "runners")
    ]
    done = run(installed, tmp_path, "check", "mine.reo")
    assert done.returncode == 0, done.stderr
    assert "mine.reo: ok" in done.stdout
    done = run(installed, tmp_path, "plan", "mine.reo")
    assert done.returncode == 2, done.stderr
    assert re.search(r"^Plan: \d+ run\.", done.stdout, re.MULTILINE)


def test_a_spec_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    """A model is made, trained and evaluated, and the report drawn; then there is nothing to do."""
    (tmp_path / "tiny.reo").write_text(SPEC)
    done = run(installed, tmp_path, "run", "tiny.reo", "--local", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "finished"
    assert "<html" in (tmp_path / told["report"]).read_text()
    done = run(installed, tmp_path, "plan", "tiny.reo")
    assert done.returncode == 0, done.stderr


def test_published_numbers_are_at_hand_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    edge = "std.paper.qwen3_4b"
    schedule = f"greedy({edge}, to: 32K tokens, n: 5)"
    done = run(installed, tmp_path, "budgets", schedule, "--frontier", edge, "--json")
    assert done.returncode == 0, done.stderr
    assert '"approximation_error"' in done.stdout
