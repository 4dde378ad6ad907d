"""Numbers and texts: what they mean, what is refused, and one spelling for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics.model import quote
from reodsl.ir.data import After, Regex, reader_words
from reodsl.ir.expression import PythonTerm
from reodsl.ir.reward_text import expression_text
from reodsl.syntax.literals import LiteralFault, canonical_number, read_number, read_string


@pytest.mark.parametrize(
    ("text", "value", "suffix"),
    [
        ("16K", 16, "K"),
        ("0.2%", 0.2, "%"),
        ("5e-6", 5e-6, None),
        ("1_000", 1000, None),
        ("1_000.5M", 1000.5, "M"),
        ("007", 7, None),
        ("2G", 2, "G"),
        ("0.0", 0.0, None),
        ("1e3", 1000.0, None),
    ],
)
def test_values(text: str, value: float, suffix: str | None) -> None:
    read = read_number(text)
    assert read == (value, suffix)
    assert isinstance(read, tuple)
    assert type(read[0]) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "advice"),
    [
        ("5k", "E0136", "`5K`"),
        ("16Ktokens", "E0136", "`16K tokens`"),
        ("400steps", "E0136", "`400 steps`"),
        ("0x1f", "E0136", "decimal"),
        (".5", "E0136", "`0.5`"),
        (".5%", "E0136", "`0.5%`"),
        (".5k", "E0136", "`0.5K`"),
        ("1.2.3", "E0136", "1..16"),
        ("1__0", "E0136", "1_000"),
        ("5e", "E0136", ""),
        ("1_", "E0136", "1_000"),
        ("1" * 65, "E0136", "exponent"),
        ("9" * 100_000, "E0136", "exponent"),
        ("1e400", "E0136", "1e299"),
        ("1e300G", "E0136", "1e299"),
        ("1e-400", "E0136", "`0`"),
        ("1e99999999999999999999", "E0136", "1e299"),
    ],
)
def test_what_is_no_number(text: str, code: str, advice: str) -> None:
    fault = read_number(text)
    assert isinstance(fault, LiteralFault)
    assert fault.code == code
    assert advice in fault.help


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("5E-06", "5e-6"),
        ("0.20%", "0.2%"),
        ("1_00_0", "1_000"),
        ("1_0", "10"),
        ("10000", "10000"),
        ("1_0_0_0_0", "10_000"),
        ("016K", "16K"),
        ("1.50", "1.5"),
        ("1.0", "1.0"),
        ("1.0e5", "1e5"),
        ("1e+05", "1e5"),
        ("0", "0"),
        ("0.00", "0.0"),
    ],
)
def test_one_spelling(text: str, spelling: str) -> None:
    assert canonical_number(text) == spelling


NUMBERS = st.from_regex(
    r"[0-9]{1,9}(_[0-9]{1,3}){0,2}(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?[KMG%]?", fullmatch=True
)


@given(NUMBERS)
def test_the_spelling_keeps_value_and_kind(text: str) -> None:
    read = read_number(text)
    spelled = canonical_number(text)
    assert read_number(spelled) == read
    assert canonical_number(spelled) == spelled
    assert isinstance(read, tuple)
    assert type(read_number(spelled)[0]) is type(read[0])  # type: ignore[index]


@pytest.mark.parametrize(
    ("quoted", "value"),
    [(r'"a\nb\t\r\"\\"', 'a\nb\t\r"\\'), (r'"\u{e9}\u{1F600}"', "é😀"), ('"é"', "é"), ('""', "")],
)
def test_escapes(quoted: str, value: str) -> None:
    assert read_string(quoted) == (value, [])


@pytest.mark.parametrize(
    "quoted", [r'"\b"', r'"\["', r'"\u00e9"', r'"\u{110000}"', r'"\u{d800}"', r'"\x41"', r'"\0"']
)
def test_other_escapes_are_faults_where_they_stand(quoted: str) -> None:
    value, (fault,) = read_string(quoted)
    assert value == quoted[1:-1]
    assert fault.code == "E0134"
    assert quoted[fault.offset : fault.offset + 2] == quoted[1:3]


@given(st.text(st.characters(codec="utf-8")))
def test_quoting_and_reading_agree(value: str) -> None:
    quoted = quote(value)
    assert read_string(quoted) == (value, [])
    assert all(character.isprintable() for character in quoted)
    # What prints a text of a spec quotes alike.
    assert reader_words(After(marker=value)) == f"after({quoted})"
    assert reader_words(Regex(pattern=value)) == f"regex({quoted})"
    assert expression_text(PythonTerm(function=value, of="y")) == f"python({quoted}, y)"
