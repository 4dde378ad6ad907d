"""The first line of an exception's words, whatever it says."""

from __future__ import annotations

import pytest

from reodsl.diagnostics import first_line


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (ValueError("no such layer\nat line 3"), "no such layer"),
        (ValueError("\n\n  set apart  \nmore"), "set apart  "),
        (AssertionError(), "AssertionError"),
        (RuntimeError(" \n "), "RuntimeError"),
        (OSError("x" * 500), "x" * 200),
    ],
)
def test_one_short_line(fault: Exception, line: str) -> None:
    assert first_line(fault) == line


def test_what_stands_for_nothing() -> None:
    assert first_line(ValueError(), "damaged") == "damaged"
    assert first_line(ValueError(), "") == ""
    assert first_line(ValueError("words"), "damaged") == "words"
