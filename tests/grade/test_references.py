"""References that nothing reads are told from numbers, formulas and words; everything in the table of answers is read."""

from __future__ import annotations

import pytest

from runners.grade import SEPARATOR, Claim, make_verifier
from runners.grade.checks import find_unreadable
from runners.grade.compare import expressions
from tests.grade.test_graded import rows

pytestmark = pytest.mark.slow

UNREAD = (
    r"\frac{1}{2",
    "2 +",
    "(1, 2",
    "1 2 3",
    "???",
    "-",
    "sin(x)",
    "2tan(x)",
    "see solution 3",
    "The answer is 4 because 2+2",
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72",
    r"\begin{cases} x & y \\ 1 & 2 \end{cases}",
    '<img src="a.png">',
    r"\unknown{3}",
    "x" * 30_000,
)
READ = (
    # Names, days, choices and other words are texts, and compared as such.
    "Evelyn",
    "Ada Lovelace",
    "George W. Bush",
    "São Paulo",
    "星期三",
    "Monday",
    "none",
    "C",
    "(B)",
    r"\textbf{(D)}",
    r"\text{June 20}",
    "A and C",
    "6:30",
    "4 apples",
    "Area = 5",
    r"\sin A=\frac12",
    "a:b=7:32",
    "(D) Alina",
    r"x<2 \text{ or } x>3",
    "2:3",
    r"3\sqrt{2}",
    r"\sin \theta",
    r"x_{max} + 1",
    "x^2 + y^2 = 1",
    "k = 1, 2, or 3",
    r"(-\infty, 3) \cup [5, \infty)",
    r"\frac{1}{3}\begin{pmatrix} -1 & 2 \\ 2 & -1 \end{pmatrix}",
    r"\emptyset",
    "4.5e33",
)


def test_what_nothing_reads_is_told_from_numbers_formulas_and_words() -> None:
    found = find_unreadable([*UNREAD, *READ])
    assert [text for text, mark in zip(UNREAD, found, strict=False) if not mark] == []
    assert [text for text, mark in zip(READ, found[len(UNREAD) :], strict=True) if mark] == []


def test_every_reference_and_right_answer_of_the_table_is_read() -> None:
    texts = list(dict.fromkeys(text for row in rows() if row.right for text in (row.gold, row.text)))
    marked = [text for text, mark in zip(texts, find_unreadable(texts), strict=True) if mark]
    # Two whole phrases are right answers of the table, and nobody's references.
    assert marked == ["64 dollars for the 16 glasses", "Yes, because $3 > 2$"]


def test_one_of_several_right_answers_is_enough() -> None:
    assert find_unreadable([SEPARATOR.join(("???", "4")), SEPARATOR.join(("???", "2 +"))]) == [False, True]


def test_numbers_choices_and_words_start_no_process() -> None:
    assert [expressions(each) for each in ("42", r"5 \text{ cm}", "B", "Monday", r"\{1, 2\}")] == [[]] * 5
    assert expressions(r"(\sqrt{2}, 3)") == [r"\sqrt{2}"]


def test_what_is_unread_is_right_for_its_own_text_alone() -> None:
    """The reason for the warning, by the verifier itself: answers that a reader would take are wrong."""
    others = (
        ("sin(x)", r"\sin(x)"),
        ("2tan(x)", r"2\tan(x)"),
        ("1 2 3", "1, 2, 3"),
        ("Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72", "72"),
    )
    verifier = make_verifier("math")
    try:
        verdicts = verifier.grade([Claim(text, gold) for gold, text in others])
        own = verifier.grade([Claim(gold, gold) for gold, _ in others])
    finally:
        verifier.close()
    assert [verdict.correct for verdict in verdicts] == [False] * len(others)
    assert all(verdict.correct for verdict in own)
