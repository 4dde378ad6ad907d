"""Shares in percent: rounded, but never to all or nothing of what is neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tables import ROOT
from reodsl.diagnostics import in_percent
from reodsl.report.formats import percent


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (264 / 265, 0, "99"),
        (1 / 265, 0, "1"),
        (0.0, 0, "0"),
        (1.0, 0, "100"),
        (sum([0.1] * 10), 1, "100.0"),
        (0.99996, 1, "99.9"),
        (0.0001, 1, "0.1"),
        (0.954, 1, "95.4"),
    ],
)
def test_only_all_is_100_and_only_nothing_is_0(share: float, digits: int, text: str) -> None:
    assert in_percent(share, digits) == text
    assert percent(share, digits) == text


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 3))
def test_a_share_is_within_a_digit(part: int, rest: int, digits: int) -> None:
    share = part / (part + rest)
    shown = float(in_percent(share, digits))
    assert 0 < shown < 100
    assert abs(shown - 100 * share) < 10.0**-digits


def test_pages_write_no_share_in_a_form_that_rounds_to_all() -> None:
    """Formats of Python and of f-strings in what writes pages; charts' own labels are drawn by Vega."""
    form = re.compile(r":[.][0-9]%\}|\{100 \*[^{}]*:[.][0-9]f\}%")
    files = [*(ROOT / "reodsl").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    allowed = {"gpu.py", "gpu_engine.py", "gpu_train.py", "gpu_forcing.py", "scale.py"}
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in map(Path, files)
        if path.name not in allowed
        for line in path.read_text("utf-8").splitlines()
        if form.search(line)
    }
    assert not found
