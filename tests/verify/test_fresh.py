"""Rows that nobody had tuned to when they were first graded: docs/GRADING.md gives that count, and the one of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir.data import After, AnswerReader, Boxed, LastNumber, Regex, Whole, reader_words
from runners.verify import Answer, make_verifier, read_answer

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "GRADING.md").read_text("utf-8")
SPAN = r"(?:\$[^$]+\$|\*\*[^*]+\*\*|\\\(.+?\\\))"
NUMBER = r"[-+−]?\\?[$€£]?\d(?:[\d,./:]*\d)?"
READERS: tuple[AnswerReader, ...] = (
    Boxed(),
    After(marker="####"),
    Regex(pattern=r"(?im)\banswer(?:\*\*)?\s*(?:is|:|\n)[:\s*]*(.+?)(?:\.\s|\.?$)"),
    Regex(pattern=r"\A\s*([A-Za-z]\w* ?= ?[^\n$]*[^\s.$]|(?:[^\s$]+\s+){0,4}[^\s$]*[^\s.$])\s*\z"),
    Regex(pattern=f"({SPAN}(?:(?:, and|,| and| or) {SPAN})*)"),
    Regex(pattern=rf"({NUMBER}(?:(?:, and|,| and| or) {NUMBER})*(?: [A-Za-z]+)*)\W*\z"),
    LastNumber(),
    Whole(),
)


@pytest.mark.parametrize(
    ("name", "readers"), [("fresh", ()), *((f"fresh_{part}", READERS) for part in "abcde")]
)
def test_the_page_counts_the_verdicts_as_they_are(name: str, readers: tuple[AnswerReader, ...]) -> None:
    """Rows of the later tables are responses, in which `⏎` is a new line, and are read as the page says."""
    lines = (FOLDER / f"{name}.tsv").read_text("utf-8").splitlines()
    rows = [(gold, text.replace("⏎", "\n"), due) for gold, text, due in (line.split("\t") for line in lines)]
    assert len(rows) == len({(gold, text) for gold, text, _ in rows}) >= 500
    answers = [Answer(read_answer(readers, text) if readers else text, gold) for gold, text, _ in rows]
    verifier = make_verifier("math", seconds=20.0)
    try:
        verdicts = verifier.grade(answers)
    finally:
        verifier.close()
    assert all(verdict.unsettled is None for verdict in verdicts)
    right = [verdict.correct for (*_, due), verdict in zip(rows, verdicts, strict=True) if due == "1"]
    wrong = [verdict.correct for (*_, due), verdict in zip(rows, verdicts, strict=True) if due == "0"]
    assert len(right) + len(wrong) == len(rows)
    counted = (len(rows), len(right), right.count(False), len(wrong), wrong.count(True))
    assert f"| `{name}.tsv`, today | {' | '.join(map(str, counted))} |" in PAGE


def test_the_page_says_how_the_responses_are_read() -> None:
    for reader in READERS:
        assert reader_words(reader).removeprefix("regex(").removesuffix(")") in PAGE
