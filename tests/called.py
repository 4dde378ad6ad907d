"""A command called in this process, to its exit code; and a folder with specs to call it in, where toys run tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.cli.main import main
from reodsl.plan.registry import Registry
from runners.execute import execute

SPECS = Path(__file__).resolve().parent.parent / "specs"
QUICKSTART = "quickstart.reo"


def call(*arguments: str) -> int:
    """The exit code of a command."""
    try:
        return main(list(arguments))
    except SystemExit as caught:
        return caught.code if isinstance(caught.code, int) else 1


def beside_quickstart(folder: Path, runners: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the quickstart in a folder, which is the present one for the test, and lets `runners` run specs there."""
    (folder / QUICKSTART).write_text((SPECS / QUICKSTART).read_text())
    monkeypatch.chdir(folder)
    registry = Registry(runners=runners, check=lambda *asked: (), execute=execute)
    monkeypatch.setattr("reodsl.run.load_registry", lambda: registry)
