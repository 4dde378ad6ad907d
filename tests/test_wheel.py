"""A built wheel works outside the checkout, its standard library included."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel's contents, as `pip install` lays them out."""
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = built.glob("reodsl-*.whl")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(site: Path, cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "reodsl.cli.main", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )


def test_the_wheel_holds_the_standard_library_and_both_packages(installed: Path) -> None:
    here = {path.name for path in ROOT.joinpath("stdlib").rglob("*.reo")}
    assert here
    assert {path.name for path in (installed / "reodsl" / "stdlib").rglob("*.reo")} == here
    assert (installed / "runners" / "registry.py").exists()


def test_a_spec_checks_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.reo"
    spec.write_text((ROOT / "specs" / "quickstart.reo").read_text())
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import reodsl; print(reodsl.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert where.startswith(str(installed))
    done = run(installed, tmp_path, "check", "mine.reo")
    assert done.returncode == 0, done.stderr
    assert "mine.reo: ok" in done.stdout


def test_published_numbers_are_at_hand_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    edge = "std.paper.qwen3_4b"
    schedule = f"greedy({edge}, to: 32K tokens, n: 5)"
    done = run(installed, tmp_path, "budgets", schedule, "--frontier", edge, "--json")
    assert done.returncode == 0, done.stderr
    assert '"approximation_error"' in done.stdout
