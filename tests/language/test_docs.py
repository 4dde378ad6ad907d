"""The documentation says what the compiler does: the reference is fresh, and every spec in it is sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reodsl.language import check_file
from reodsl.language.reference import reference

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```reo\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SPECS = [(path.name, text) for path in PAGES if path.is_file() for text in BLOCK.findall(path.read_text())]


def test_the_reference_is_fresh() -> None:
    path = ROOT / "docs" / "REFERENCE.md"
    assert path.read_text() == reference(), "python -m reodsl.language.reference > docs/REFERENCE.md"


@pytest.mark.parametrize(("page", "text"), SPECS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(SPECS)])
def test_specs_in_the_documentation(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(text)
    found = check_file("spec.reo").diagnostics
    assert [each for each in found if each.severity == "error"] == []
