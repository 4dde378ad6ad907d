"""Dates, times, versions, words, scores and opposites are read as what they are; five tables count them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.grade import Claim, ExactVerifier, PooledVerifier
from runners.grade.compare import judge, kinds
from runners.grade.compare.kinds import READERS, read_kind, roman_value, same_kind
from tests.grade.recorded import recorded
from tests.sampled import slow_but

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "GRADING.md"
TABLES = ("kinds", "kinds_b", "kinds_c", "kinds_d", "kinds_e")
REJECTED = 0.03
"""Share of right answers that may be rejected; of wrong ones none may be accepted."""


def rows_of(table: str) -> list[tuple[str, str, bool, str]]:
    lines = (FOLDER / f"{table}.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    assert {row[2] for row in rows} == {"0", "1"}
    assert len({(row[0], row[1]) for row in rows}) == len(rows) > 100
    return [(gold, text, due == "1", kind) for gold, text, due, kind in rows]


@pytest.fixture(scope="module")
def math() -> Iterator[PooledVerifier]:
    verifier = PooledVerifier("math", workers=2, seconds=20.0, memory_mib=1024, fast=True, confined=False)
    yield verifier
    verifier.close()


@pytest.mark.parametrize("asks", slow_but([False], [False, True]))
def test_the_page_counts_the_kinds(math: PooledVerifier, request: pytest.FixtureRequest, asks: bool) -> None:
    update = request.config.getoption("--update-goldens")
    count: Counter[tuple[bool, bool]] = Counter()
    for table in TABLES:
        rows = rows_of(table)
        with recorded(math, table, update, asks=asks):
            verdicts = math.grade([Claim(text, gold) for gold, text, _, _ in rows])
        assert all(verdict.unsettled is None for verdict in verdicts)
        correct = [verdict.correct for verdict in verdicts]
        accepted = [
            row[:2] for row, is_accepted in zip(rows, correct, strict=True) if is_accepted and not row[2]
        ]
        rejected = [
            row[:2] for row, is_accepted in zip(rows, correct, strict=True) if row[2] and not is_accepted
        ]
        assert accepted == [], table
        assert len(rejected) <= REJECTED * sum(row[2] for row in rows), rejected
        count.update((row[2], is_accepted) for row, is_accepted in zip(rows, correct, strict=True))
    rejected_of = f"{count[True, False]:,} of {count[True, True] + count[True, False]:,}"
    row = f"| today, dates, words and other kinds | {rejected_of} | 0 of {count[False, False]:,} |"
    assert row in PAGE.read_text("utf-8"), row


def test_an_answer_takes_four_hundred_calls(calls: Callable[[Callable[[], object]], int]) -> None:
    """How fast answers are graded, without a clock: mathematics beside a reference that has been read."""
    rows = [row for table in TABLES for row in rows_of(table)]
    for gold, text, _, _ in rows:
        judge(gold, text, 1e-4)
    work = calls(lambda: [judge(gold, text, 1e-4) for gold, text, _, _ in rows])
    assert work <= 420 * len(rows)


def test_what_compares_answers_imports_nothing_else_of_the_project() -> None:
    room = "runners.grade.compare"
    for path in Path(str(kinds.__file__)).parent.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        names += [
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        ]
        wrong = [
            name
            for name in names
            if name.split(".")[0] in ("runners", "reodsl") and not name.startswith(room)
        ]
        assert not wrong, path.name


EXAMPLES = (
    ("date", "2024-01-02", "January 2, 2024", "2024-02-01"),
    ("date", "July 4, 1776", "the 4th of July, 1776", "July 14, 1776"),
    ("date", "1/2/03", "01/02/2003", "1/3/03"),
    ("date", "2021-10", "October 2021", "2021-11"),
    ("weekday", "Friday", "Fri", "Thu"),
    ("month", "March", "Mar", "May"),
    ("time", "14:30", "2:30 p.m.", "7:15"),
    ("ratio", "23:59", "11:59 PM", "11:59 AM"),
    ("time", "noon", "12:00 PM", "midnight"),
    ("address", "ann@example.org", "Ann@example.org", "nan@example.org"),
    ("address", "fe80::1", "FE80::1", "fe80::2"),
    ("version", "3.10.1", "v3.10.1", "3.1.1"),
    ("version", "v1.2", "1.2", "1.20"),
    ("telephone", "(555) 010-4477", "555-010-4477", "555-010-4478"),
    ("digits", "0110", "0110_2", "0101"),
    ("statements", "I and III", "III, I", "I and II"),
    ("roman", "XIV", "XIV", "XVI"),
    ("labelled", "Quadrant IV", "fourth quadrant", "Quadrant VI"),
    ("ordinal", "third", "3rd", "4th"),
    ("size", "5x7", r"5 \times 7", "7x5"),
    ("sequence", "3-2", "3:2", "1"),
    ("sequence", r"10-15\%", "10% to 15%", "15-20%"),
    ("bound", "5 or more", "at least 5", "at most 5"),
    ("letters", "A-B-C", r"A \to B \to C", "A-C-B"),
    ("word", "act", "Act", "cat"),
    ("word", "RGB", "RGB", "BGR"),
    ("code", "Nf3", "Nf3", "Nf6"),
)


@pytest.mark.parametrize(("kind", "gold", "right", "wrong"), EXAMPLES)
def test_a_reference_is_read_as_its_kind(kind: str, gold: str, right: str, wrong: str) -> None:
    reading = read_kind(gold)
    assert reading is not None
    assert reading.kind == kind
    assert same_kind(gold, right) is True
    assert same_kind(gold, wrong) is False


def test_every_kind_has_an_example() -> None:
    assert {reader.kind for reader in READERS} == {kind for kind, *_ in EXAMPLES}


@pytest.mark.parametrize(
    "text",
    ["42", "073", "000", "3/4", "25/12", "3:4", "xy", "abc", "x+1", "3 - 4i", "5-2ab", r"\frac{1}{2}", "A-B"],
)
def test_numbers_ratios_and_products_are_of_no_kind(text: str) -> None:
    assert read_kind(text) is None


def test_exact_reads_no_words_as_numbers() -> None:
    exact = ExactVerifier()
    assert not exact.grade([Claim("half", "1/2")])[0].correct
    assert not exact.grade([Claim("two dozen", "24")])[0].correct


def test_roman_numerals_have_their_values() -> None:
    """Against numerals written by the oldest rule: subtract the largest sign that fits."""
    signs = (
        *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
        *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
    )
    for number in range(1, 4000):
        left, numeral = number, ""
        for value, sign in signs:
            while left >= value:
                left, numeral = left - value, numeral + sign
        assert roman_value(numeral) == number
        reading = read_kind(numeral)
        if len(numeral) > 1 and set(numeral) - set("CD") and not set(numeral) <= set("IVX"):
            assert reading is not None
            assert (reading.kind, reading.values) == ("roman", {number})


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (r"7 \text{ km east}", r"7000 \text{ m east}", r"7 \text{ km west}"),
        (r"3^\circ \text{ below zero}", r"-3^\circ", r"3^\circ"),
        (r"20\% \text{ increase}", r"increased by 20\%", r"20\% \text{ decrease}"),
        (r"5 \text{ boys}", "5", r"5 \text{ girls}"),
        (r"2 \text{ solutions}", "2", r"2 \text{ no solutions}"),
        (r"12.5^\circ", r"12^\circ 30'", r"12^\circ 50'"),
        ("1234.56", "1.234,56", "1.234,96"),
        ("0.75", "0{,}75", "0{,}57"),
        (r"\$1,50", "1.50", "1, 50"),
        (r"1,50 \text{ EUR}", "1.5", "150"),
        ("0x1F", "1F_{16}", "0x1E"),
        ("24", "two dozen", "three dozen"),
        ("-12", "negative twelve", "twelve"),
        (r"|x| < 1", "(-1, 1)", "[-1, 1]"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1, 2)^T", "(2, 1)^T"),
        (r"\angle ABC", r"\angle CBA", r"\angle ACB"),
        ("a < b", "b > a", "b < a"),
        ("\\text{\u0434\u0430}", "\u0434\u0430", "\u043d\u0435\u0442"),
    ],
)
def test_forms_that_are_left_compare_by_value(gold: str, right: str, wrong: str) -> None:
    assert judge(gold, right, 1e-4) is True
    assert judge(gold, wrong, 1e-4) is False
