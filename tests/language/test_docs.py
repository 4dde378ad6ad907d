"""The reference says what the compiler does. What else documents say is held by `tests/test_docs.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language.reference import REWARDS, reference
from reodsl.language.reward.names import NUMERIC

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_fresh(request: pytest.FixtureRequest) -> None:
    path = ROOT / "docs" / "REFERENCE.md"
    if request.config.getoption("--update-goldens"):
        path.write_text(reference())
    assert path.read_text() == reference(), "run `make golden` and read the difference"


def test_the_reference_has_every_function_of_rewards() -> None:
    # What is typed as `e^x` is kept as `exp`.
    names = ["e^" if name == "exp" else name for name in NUMERIC]
    assert [name for name in names if f"`{name}" not in REWARDS] == []
