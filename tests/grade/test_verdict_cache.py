"""Verdicts are kept by reference, answer and metadata, up to a number and a size."""

from __future__ import annotations

import pytest

from runners.grade import answer
from runners.grade.answer import LONGEST_CACHED_TEXT, CachedVerifier, Claim, Verdict


def test_the_oldest_and_long_texts_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit makes young; of the five claims two are kept."""
    monkeypatch.setattr(answer, "CACHED_VERDICTS", 2)
    verifier = CachedVerifier(lambda claims: [Verdict(True, "checked") for _ in claims], lambda: None)
    long = Claim("x" * LONGEST_CACHED_TEXT, "y")
    one, swapped, other = Claim("x", "y", "1"), Claim("y", "x", "1"), Claim("x", "y", "2")
    asked = [one, swapped, long, one, other, one, swapped, long]
    told = [verifier.grade([claim])[0].status for claim in asked]
    assert told == ["checked"] * 3 + ["cached", "checked", "cached", "checked", "checked"]
