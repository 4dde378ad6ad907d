"""Numbers in words against a slow writer of them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from runners.grade.compare.quantity import number_in_words

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"


def write(number: int) -> str:
    """Write a number below a million in words."""
    if number < 20:
        return SMALL.split()[number]
    if number < 100:
        return TENS.split()[number // 10] + (f"-{write(number % 10)}" if number % 10 else "")
    if number < 1000:
        return f"{write(number // 100)} hundred" + (f" and {write(number % 100)}" if number % 100 else "")
    return f"{write(number // 1000)} thousand" + (f" {write(number % 1000)}" if number % 1000 else "")


def test_whole_numbers_are_read_as_they_are_written() -> None:
    for number in (*range(1500), *range(1500, 10**6, 997)):
        assert number_in_words(write(number)) == (number, ""), write(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("one half", "1/2"), ("half", "1/2"), ("two thirds", "2/3"), ("three-quarters", "3/4"), ("a fifth", "1/5"),
        ("two and a half", "5/2"), ("one and three quarters", "7/4"), ("two dozen", "24"), ("half a dozen", "6"),
        ("a hundred", "100"), ("twenty one hundredths", "21/100"),
    ],
)  # fmt: skip
def test_shares_and_dozens(text: str, number: str) -> None:
    assert number_in_words(text) == (Fraction(number), "")


@pytest.mark.parametrize(
    "text",
    [
        "third",
        "a",
        "and",
        "a dozen",
        "two three",
        "twenty twelve",
        "ten five",
        "hundred",
        "one thousand million",
        "apples",
    ],
)
def test_what_is_no_number(text: str) -> None:
    """`third` is a place in a row, and `a dozen` is often said of about twelve."""
    assert number_in_words(text) is None


def test_words_after_a_number_are_what_is_counted() -> None:
    assert number_in_words("forty-seven students") == (47, "students")
