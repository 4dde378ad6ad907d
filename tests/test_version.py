"""The version: one number, a dated heading in the changelog for it, and nothing that a result is known by."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import reodsl
from reodsl.graph.lower import lower
from reodsl.graph.task import identity, material
from reodsl.ir import digest
from reodsl.language import compile_file

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
KINDS = ("Added", "Changed", "Fixed", "Removed", "Security")
HEADING = re.compile(r"^## (?:Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\))$")


def test_the_number_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "reodsl/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", reodsl.__version__)


def test_the_changelog_begins_with_what_is_unreleased_and_then_this_version() -> None:
    headings = [line for line in CHANGELOG.splitlines() if line.startswith("## ")]
    assert all(HEADING.match(line) for line in headings), headings
    assert headings[0] == "## Unreleased"
    assert headings[1].startswith(f"## {reodsl.__version__} (")
    assert f"\ndate-released: {headings[1][-11:-1]}\n" in (ROOT / "CITATION.cff").read_text()
    assert len(CHANGELOG.split("\n## ")[2].split()) <= 1200


def test_changes_are_added_changed_or_fixed() -> None:
    kinds = [line for line in CHANGELOG.splitlines() if line.startswith("### ")]
    assert set(kinds) <= {f"### {kind}" for kind in ("Before you upgrade", *KINDS)}
    for part in re.split(r"^## .*$", CHANGELOG, flags=re.MULTILINE)[1:]:
        before, *_ = re.split(r"^### ", part, flags=re.MULTILINE)
        assert "\n- " not in before, "an entry belongs under Added, Changed, Fixed or Removed"
        own = re.findall(r"^### (\w+)$", part, flags=re.MULTILINE)
        assert own == [kind for kind in KINDS if kind in own]


def test_no_result_is_known_by_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = compile_file(ROOT / "specs" / "quickstart.reo").spec
    assert spec is not None

    def keys() -> list[str]:
        assert spec is not None
        return [digest(material(task, identity(task), {})) for task in lower(spec).tasks]

    before = keys()
    monkeypatch.setattr(reodsl, "__version__", "9.9.9")
    assert keys() == before
    # The command says it, the language server does, and what made a result is noted beside it.
    readers = {
        str(path.relative_to(ROOT))
        for package in ("reodsl", "runners")
        for path in (ROOT / package).rglob("*.py")
        if "reodsl.__version__" in path.read_text()
    }
    assert readers == {"reodsl/cli/main.py", "reodsl/lsp/server.py", "runners/execute/perform.py"}
