"""Rows that nobody had tuned to when they were first graded: docs/GRADING.md gives that count, and the one of today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.ir.data import After, AnswerReader, Boxed, LastNumber
from runners.grade import Claim, ExactVerifier, PooledVerifier, read_answer
from runners.grade.answer import Verifier
from tests.grade.recorded import recorded

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "GRADING.md").read_text("utf-8")
READERS: tuple[AnswerReader, ...] = (Boxed(), After(marker="####"), After(marker="answer is"), LastNumber())


TABLES = [("fresh", ()), *((f"fresh_{part}", READERS) for part in "abcdefghij")]
Rows = list[tuple[str, str, str]]


def rows_of(name: str) -> Rows:
    """Return the references and responses of a table, in which `⏎` is a new line, and what is due: "1" where it is right."""
    lines = (FOLDER / f"{name}.tsv").read_text("utf-8").splitlines()
    rows = [(gold, text.replace("⏎", "\n"), due) for gold, text, due in (line.split("\t") for line in lines)]
    assert len(rows) == len({(gold, text) for gold, text, _ in rows}) >= 500
    return rows


@pytest.fixture(scope="module")
def math() -> Iterator[PooledVerifier]:
    """Open the verifier once, as its processes take seconds to start."""
    verifier = PooledVerifier("math", workers=2, seconds=20.0, memory_mib=1024, fast=True, confined=False)
    yield verifier
    verifier.close()


def graded(verifier: Verifier, readers: tuple[AnswerReader, ...], rows: Rows) -> list[bool]:
    """Return whether each row is graded right."""
    verdicts = verifier.grade(
        [Claim(read_answer(readers, text) if readers else text, gold) for gold, text, _ in rows]
    )
    assert all(verdict.unsettled is None for verdict in verdicts)
    return [verdict.correct for verdict in verdicts]


def counted(rows: Rows, correct: list[bool]) -> tuple[int, int, int, int]:
    """Return how many rows are right, how many of these are rejected, how many are wrong and how many of these accepted."""
    right = [verdict for (*_, due), verdict in zip(rows, correct, strict=True) if due == "1"]
    wrong = [verdict for (*_, due), verdict in zip(rows, correct, strict=True) if due == "0"]
    assert len(right) + len(wrong) == len(rows)
    return len(right), right.count(False), len(wrong), wrong.count(True)


def shares(*parts: tuple[int, int, int, int]) -> str:
    """Return counts as cells of the page: rejected of right and accepted of wrong, for each part."""
    return " | ".join(
        f"{a:,} of {b:,}"
        for right, rejected, wrong, accepted in parts
        for a, b in ((rejected, right), (accepted, wrong))
    )


@pytest.mark.parametrize(("name", "readers"), TABLES)
def test_the_page_counts_the_verdicts_as_they_are(
    name: str, readers: tuple[AnswerReader, ...], math: PooledVerifier, request: pytest.FixtureRequest
) -> None:
    """Mode `exact` is for all rows, `last_number` for those whose reference is one plain number."""
    rows, last = rows_of(name), (LastNumber(),)
    numbers = [row for row in rows if read_answer(last, row[0]) == row[0]]
    with recorded(math, name, request.config.getoption("--update-goldens")):
        correct = graded(math, readers, rows)
        by_last = counted(numbers, graded(math, last, numbers))
    assert f"| `{name}.tsv`, today | {len(rows)} | {' | '.join(map(str, counted(rows, correct)))} |" in PAGE
    if readers:
        parts = [
            counted(
                [row for row in rows if ("\\boxed{" in row[1]) is boxed],
                [
                    is_right
                    for (_, text, _), is_right in zip(rows, correct, strict=True)
                    if ("\\boxed{" in text) is boxed
                ],
            )
            for boxed in (True, False)
        ]
        assert f"| `{name}.tsv` | {shares(*parts)} |" in PAGE
    others = counted(rows, graded(ExactVerifier(), readers, rows))
    assert f"| `{name}.tsv` | {shares(others, by_last)} |" in PAGE
