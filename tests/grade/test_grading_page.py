"""The tables of docs/GRADING.md: what is decided here and by math-verify alone, in each mode, and in thinking."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from math_verify import parse, verify

from reodsl.ir.data import LastBox, LastNumber, NamedVerifier
from runners.grade import Claim, Thinking, make_verifier, read_answer
from tests.grade.test_fresh import read_counts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "GRADING.md"
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \| (right|wrong) \| (right|wrong) \|$", re.MULTILINE)


def alone(gold: str, answer: str) -> bool:
    read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    return bool(verify(read[0], read[1], timeout_seconds=None))


@pytest.mark.parametrize("page", ["docs/GRADING.md", "docs/DATA.md"])
def test_every_verifier_with_a_name_is_told_of(page: str) -> None:
    text = (PAGE.parents[1] / page).read_text("utf-8")
    untold = [name for name in get_args(NamedVerifier) if f"`{name}`" not in text]
    assert not untold, f"write {untold} into {page}"


@pytest.mark.slow
def test_the_page_tells_where_math_verify_alone_would_decide_otherwise() -> None:
    rows = ROW.findall(PAGE.read_text("utf-8"))
    assert len(rows) >= 12
    verifier = make_verifier("math", seconds=20.0)
    try:
        verdicts = verifier.grade([Claim(answer, gold) for gold, answer, _, _ in rows])
    finally:
        verifier.close()
    for (gold, answer, here, there), verdict in zip(rows, verdicts, strict=True):
        assert here != there
        assert verdict.correct == (here == "right"), (gold, answer)
        assert alone(gold, answer) == (there == "right"), (gold, answer)


def test_the_page_tells_what_is_read_in_thinking() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (\S+) \| (\S+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    rows = [row for row in rows if "think>" in row[0]]
    assert len(rows) == 4
    for text, read, skip in rows:
        both = [read_answer((LastBox(),), text, thinking=thinking) for thinking in (None, Thinking())]
        assert [f"`{answer}`" if answer else "none" for answer in both] == [read, skip], text


SHAPES = (
    ("7", "7=7"), ("7", "x = 7"), ("7", "3+4=7"), ("7", "3+4=8"), ("7", "[7]"),
    ("12", r"12\ldots"), ("12", "12..."),
    ("5", r"5 \text{ cm}"), (r"5 \text{ cm}", "5"), (r"5 \text{ cm}", r"0.05 \text{ m}"), (r"5 \text{ cm}", r"5 \text{ m}"),
    ("18", "18 eggs"), (r"50\%", "0.5"), ("50", r"50\%"),
    ("C", "(C)"), ("C", "(C) 12"), ("C", "c"),
    ("1, 2", "1 and 2"), ("1, 2", "1"), ("(1, 2)", "1, 2"), ("(1, 2)", "(2, 1)"), (r"\{1, 2\}", "(1, 2)"),
)  # fmt: skip
"""References and answers: equations, brackets, dots, units, choices, and answers of several parts."""
TABLE = re.compile(r"(?<=\n)\| reference \| answer \| `math` \|.*?\n(?=\n)", re.DOTALL)


def by_mode() -> str:
    """The table of what each mode makes of these answers."""
    boxed = [read_answer((LastBox(),), rf"so \boxed{{{answer}}}") for _, answer in SHAPES]
    numbers = [read_answer((LastNumber(),), f"so {answer}") for _, answer in SHAPES]
    columns = []
    for kind, answers in (("math", boxed), ("exact", boxed), ("math", numbers)):
        verifier = make_verifier(kind, seconds=20.0)
        try:
            pairs = zip(answers, SHAPES, strict=True)
            verdicts = verifier.grade([Claim(answer, gold) for answer, (gold, _) in pairs])
        finally:
            verifier.close()
        columns.append(["right" if verdict.correct else "wrong" for verdict in verdicts])
    lines = [
        "| reference | answer | `math` | `exact` | `last_number` reads | then `math` |",
        "|" + " --- |" * 6,
    ]
    for (gold, answer), number, math, exact, then in zip(SHAPES, numbers, *columns, strict=True):
        lines.append(
            f"| `{gold}` | `{answer}` | {math} | {exact} | {f'`{number}`' if number else 'nothing'} | {then} |"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_page_has_the_verdicts_of_each_mode(request: pytest.FixtureRequest) -> None:
    page, table = PAGE.read_text("utf-8"), by_mode()
    if request.config.getoption("--update-goldens"):
        page = TABLE.sub(lambda _: table, page)
        PAGE.write_text(page, "utf-8")
    assert TABLE.findall(page) == [table], "run pytest with --update-goldens, and read the difference"


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("first", "first counts"),
        ("first, box", "first counts, in a box (the last three tables)"),
        ("first, prose", "first counts, without a box (the last three tables)"),
        ("box", "today, in a box"),
        ("prose", "today, without a box"),
        ("exact", "today, `exact`"),
        ("last_number", "today, `last_number`, if the reference is one plain number"),
    ],
)
def test_the_page_sums_the_counts_of_tables(name: str, called: str) -> None:
    counts = [numbers for (_, what), numbers in read_counts().items() if what == name]
    right, rejected, wrong, accepted = map(sum, zip(*counts, strict=True))
    row = f"| {called} | {rejected:,} of {right:,} | {accepted:,} of {wrong:,} |"
    assert row in PAGE.read_text("utf-8"), row
