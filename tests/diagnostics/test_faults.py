"""The first line of an exception's words, whatever it says; and what is wrong with a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from reodsl.diagnostics import first_line, misread
from reodsl.ir import Spec


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


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: json.loads('{"a": }'), "it is not JSON: Expecting value at line 1, column 7"),
        (lambda: json.loads(b'{"a": "\xff"}'), "it is not UTF-8 text: byte 7 is 0xff"),
        (lambda: json.loads('{"a":' * 10_000), "it is nested too deeply"),
        (lambda: json.loads("1" * 5000), "a number in it has thousands of digits"),
        (lambda: json.loads("{}")["request"], "it has no `request`"),
        (lambda: Spec.model_validate({"study": {"name": 3}}), "`study.name`: Input should be a valid string"),
        (lambda: Spec.model_validate(3), "Input should be a valid dictionary or instance of Spec"),
        (lambda: int("x\ny"), "invalid literal for int() with base 10: 'x\\ny'"),
    ],
)
def test_what_is_wrong_with_a_file_of_json(read: Callable[[], object], words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - it is what is told of
        read()
    assert misread(caught.value) == words
