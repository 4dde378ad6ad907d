"""The reference says what the compiler does. What else documents say is held by `tests/test_docs.py`."""

from __future__ import annotations

from pathlib import Path

from reodsl.language.reference import reference

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_fresh() -> None:
    path = ROOT / "docs" / "REFERENCE.md"
    assert path.read_text() == reference(), "python -m reodsl.language.reference > docs/REFERENCE.md"
