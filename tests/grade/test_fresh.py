"""Rows that nobody had tuned to when they were first graded: counts.tsv has the first count and today's of each table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from pathlib import Path

import pytest

from reodsl.ir.data import After, AnswerReader, LastBox, LastNumber
from runners.grade import Claim, ExactVerifier, PooledVerifier, read_answer
from runners.grade.answer import Verifier
from tests.grade.recorded import recorded

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
COUNTS = FOLDER / "counts.tsv"
READERS: tuple[AnswerReader, ...] = (LastBox(), After(marker="####"), After(marker="answer is"), LastNumber())


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


def read_counts() -> dict[tuple[str, ...], tuple[int, ...]]:
    """Read the counts of each table and name: right answers, rejected ones, wrong answers, accepted ones."""
    rows = [line.split("\t") for line in COUNTS.read_text("utf-8").splitlines()[1:]]
    return {(table, name): tuple(map(int, numbers)) for table, name, *numbers in rows}


@pytest.mark.parametrize(("name", "readers"), TABLES)
def test_verdicts_are_counted_as_they_are(
    name: str, readers: tuple[AnswerReader, ...], math: PooledVerifier, request: pytest.FixtureRequest
) -> None:
    """Mode `exact` is for all rows, `last_number` for those whose reference is one plain number."""
    rows, last, update = rows_of(name), (LastNumber(),), request.config.getoption("--update-goldens")
    numbers = [row for row in rows if read_answer(last, row[0]) == row[0]]
    with recorded(math, name, update):
        correct = graded(math, readers, rows)
        found = {"last_number": counted(numbers, graded(math, last, numbers))}
    found |= {"today": counted(rows, correct), "exact": counted(rows, graded(ExactVerifier(), readers, rows))}
    for part in ("box", "prose") if readers else ():
        kept = [("\\boxed{" in text) is (part == "box") for _, text, _ in rows]
        found[part] = counted(list(compress(rows, kept)), list(compress(correct, kept)))
    if update:
        counts = {**read_counts(), **{(name, what): counts for what, counts in found.items()}}
        lines = ["\t".join(map(str, (*key, *numbers))) for key, numbers in counts.items()]
        COUNTS.write_text("\n".join([COUNTS.read_text("utf-8").split("\n")[0], *lines, ""]), "utf-8")
    assert {what: read_counts()[name, what] for what in found} == found
