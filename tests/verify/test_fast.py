"""The fast path decides as math-verify does, or not at all."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify import parse, verify

from runners.verify.fast import decide, number, tidy

NUMBERS = [
    "0", "-0", "+0", "00", "1", "+1", "-1", "01", "10", "7", "-7", "+7", "1000000", "12345678901234567890",
    "12345678901234567891", "0.5", "00.5", "-0.5", "0.50", "1.0", "7.000", "0.3333333", "0.333333", "0.33", "0.1",
    "999999999.999999999", "1/2", "2/4", "3/6", "-1/2", "1/3", "7/1", "0/5", "\\frac{1}{2}", "\\dfrac{2}{4}",
    "\\tfrac{1}{3}", "-\\frac{1}{2}", "\\frac{-1}{2}", "\\frac{0}{3}", "\\frac{7}{1}", "1/10", "1/0", "333333/1000000",
]  # fmt: skip
TEXTS = [
    "x", "A", "a", "x+1", "\\pi", "\\text{Monday}", "\\text{}", "\\mathrm{th}", "\\ldots", "...", "$", "$5$", "$$5$$",
    "5.", "5!", "5%", "50\\%", "1,000", "1 000", "(1,2)", "[1,2)", "\\{1,2\\}", "1e5", "--7", "nan", "\\infty", "}",
    "{", "\\boxed{}", "5 \\boxed{}", "\\boxed{5}", "\\boxed{$5$}", "\\boxed{\\{1,2\\}}", "\\boxed{5}5}",
    "\\fbox{}a", "x=5", "=", "and", "hours", "5 \\text{ cm}", "\u0665", "\uff15",
    "\\left(1\\right)", "\\$", "a}", "1_000", "0x10", "5\u00a0", "\u2212 5", "",
]  # fmt: skip


def by_math_verify(gold: str, answer: str) -> bool:
    read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    return bool(verify(read[0], read[1], timeout_seconds=None))


@pytest.mark.parametrize("gold", NUMBERS)
def test_numbers_are_decided_as_math_verify_decides_them(gold: str) -> None:
    for answer in NUMBERS:
        decided = decide(gold, answer)
        assert decided is None or decided == by_math_verify(gold, answer), (gold, answer)


def test_texts_are_decided_as_math_verify_decides_them() -> None:
    for gold, answer in itertools.chain(
        zip(TEXTS, TEXTS, strict=True), itertools.product(TEXTS[:12], NUMBERS[:8])
    ):
        decided = decide(gold, answer)
        assert decided is None or decided == by_math_verify(gold, answer), (gold, answer)


plain = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.integers(-20, 20).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False).map(str),
    st.decimals(-1, 1, places=7, allow_nan=False).map(lambda d: f"{d:.7f}"),
    st.tuples(st.integers(-9, 9), st.integers(1, 9)).map(lambda r: f"\\frac{{{r[0]}}}{{{r[1]}}}"),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda r: f"{r[0]}/{r[1]}"),
)


@settings(max_examples=200)
@given(plain, plain)
def test_random_numbers_are_decided_as_math_verify_decides_them(gold: str, answer: str) -> None:
    decided = decide(gold, answer)
    assert decided is None or decided == by_math_verify(gold, answer)


words = st.lists(
    st.sampled_from(
        [
            "x",
            "5",
            "\\text{",
            "}",
            "{",
            "\\{",
            "\\}",
            "\\!",
            "or",
            "inf",
            '"',
            "\\text{a}",
            "\\quad",
            "~",
            "\\\\",
            "a",
            ";",
            "[",
            ")",
            "$",
            " ",
            "th",
            "\\mathrm{th}",
            ",",
            "=",
            "\\frac",
            "%",
            ".",
        ]
    ),
    max_size=9,
).map("".join)


@settings(max_examples=200)
@given(words)
def test_equal_texts_are_decided_as_math_verify_decides_them(text: str) -> None:
    decided = decide(text, f" {text}\n")
    assert decided is None or decided == by_math_verify(text, text)


def test_what_is_plain_is_decided_at_once() -> None:
    assert decide("6", " 6 ") is True
    assert decide("6", "5") is False
    assert decide("\\frac{1}{2}", "0.5") is True
    assert decide("1/2", "0.7") is False
    assert decide("9^{9^{9^9}}", "9^{9^{9^9}}") is True
    assert decide("\\text{Monday}", "\\text{Monday}") is True


def test_what_is_near_or_odd_is_left_to_math_verify() -> None:
    assert decide("1/3", "0.333333") is None
    assert decide("0.5", "50\\%") is None
    assert decide("\\mathrm{th}", "\\mathrm{th}") is None
    assert decide("1/0", "5") is None


@pytest.mark.parametrize(
    "gap", [" ", "\n", "\u00a0", "\u2009", "~", "\\ ", "\\,", "\\;", "\\quad ", " \\qquad "]
)
def test_several_numbers_are_no_answer(gap: str) -> None:
    """math-verify adds numbers up that only space parts, and of some spaces reads what is before the first."""
    for parts in (
        ["1", "1", "1"],
        ["-1", "1"],
        ["1.5", "2"],
        ["2", "3/2"],
        ["\\frac{1}{2}", "1"],
        ["1", "0000"],
    ):
        for gold in ("1", "2", "3", "111", "3.5", "3/2"):
            assert decide(gold, gap.join(parts)) is False, (gold, parts)
    assert decide("1 1 1", "3") is False
    assert decide("1 1 1", " 1  1 1 ") is True


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("(1)(1)", ("1", "2", "11")),
        ("2(3)", ("6", "5", "23")),
        ("(2) 3", ("6", "5", "23")),
        ("\\left(2\\right)\\left(3\\right)", ("6", "5")),
        ("[1][2][-3]", ("-6", "0")),
        ("(\\frac{1}{2}) (4)", ("2", "9/2")),
        ("-(2)(3)", ("-6", "-5", "1")),
    ],
)
def test_numbers_in_brackets_side_by_side_are_no_answer(text: str, readings: tuple[str, ...]) -> None:
    """A product to some, a list to others, and a sum to math-verify."""
    assert [decide(gold, text) for gold in readings] == [False] * len(readings)
    assert decide(text, f" {text} ") is True


def test_a_long_row_of_brackets_is_looked_at_in_moments() -> None:
    for text in ("(1)" * 30_000 + "x", "(" * 90_000, "(1 " * 30_000, "[1)" * 30_000):
        assert decide("6", text) in (None, False)


@pytest.mark.parametrize("gap", [" ", "\u202f", "\\,", "~"])
def test_one_number_may_have_spaces_in_it(gap: str) -> None:
    assert decide("1234567", gap.join(["1", "234", "567"])) is True
    assert decide("1234568", gap.join(["1", "234", "567"])) is False
    assert decide("-12000", gap.join(["-12", "000"])) is True
    assert decide("5/2", gap.join(["2", "1/2"])) is True
    assert decide("-2.5", gap.join(["-2", "\\frac{1}{2}"])) is True
    assert decide("3/2", gap.join(["2", "1/2"])) is False


@pytest.mark.parametrize(
    "text",
    [
        "\\frac 1 2",
        "\\log_2 8",
        "5 -3",
        "1, 2",
        "(1), (2)",
        "(1)(x)",
        "(1)+(2)",
        "[1, 2)",
        "1 x",
        "2\\sqrt 3 5",
    ],
)
def test_spaces_within_expressions_are_left_to_math_verify(text: str) -> None:
    assert decide("7", text) is None


def test_long_digits_are_no_number_here() -> None:
    assert number("9" * 200) is not None
    assert number("9" * 201) is None
    assert number("\u0663") is None


def test_tidying_touches_space_and_outer_dollars_only() -> None:
    assert tidy(" \n$ 1  2 $\t") == "1 2"
    assert tidy("$1$ and $2$") == "$1$ and $2$"
    assert tidy("$$") == "$$"
    assert tidy("\\boxed{ \\frac{1}{2} }") == "\\frac{1}{2}"
    assert tidy("\\boxed{1} and \\boxed{2}") == "\\boxed{1} and \\boxed{2}"
