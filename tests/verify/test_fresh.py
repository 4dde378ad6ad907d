"""Rows that nobody had tuned to when they were first graded: docs/GRADING.md gives that count, and the one of today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.ir.data import After, AnswerReader, Boxed, Final, LastNumber
from runners.verify import Claim, make_verifier, read_answer
from runners.verify.answer import Verifier

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "GRADING.md").read_text("utf-8")
READERS: tuple[AnswerReader, ...] = (Boxed(), After(marker="####"), Final())


TABLES = [("fresh", ()), *((f"fresh_{part}", READERS) for part in "abcdefghij")]
Rows = list[tuple[str, str, str]]


def rows_of(name: str) -> Rows:
    """Return the references and responses of a table, in which `⏎` is a new line, and what is due: "1" where it is right."""
    lines = (FOLDER / f"{name}.tsv").read_text("utf-8").splitlines()
    rows = [(gold, text.replace("⏎", "\n"), due) for gold, text, due in (line.split("\t") for line in lines)]
    assert len(rows) == len({(gold, text) for gold, text, _ in rows}) >= 500
    return rows


@pytest.fixture(scope="module")
def verifiers() -> Iterator[dict[str, Verifier]]:
    """Open the verifiers once, as their processes take seconds to start."""
    opened = {mode: make_verifier(mode, seconds=20.0) for mode in ("math", "exact")}
    yield opened
    for verifier in opened.values():
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
    name: str, readers: tuple[AnswerReader, ...], verifiers: dict[str, Verifier]
) -> None:
    rows = rows_of(name)
    correct = graded(verifiers["math"], readers, rows)
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


@pytest.mark.parametrize(("name", "readers"), TABLES)
def test_the_page_counts_the_verdicts_of_other_modes(
    name: str, readers: tuple[AnswerReader, ...], verifiers: dict[str, Verifier]
) -> None:
    """Mode `exact` is for all rows, `last_number` for those whose reference is one plain number."""
    rows, last = rows_of(name), (LastNumber(),)
    numbers = [row for row in rows if read_answer(last, row[0]) == row[0]]
    others = counted(rows, graded(verifiers["exact"], readers, rows))
    by_last = counted(numbers, graded(verifiers["math"], last, numbers))
    assert f"| `{name}.tsv` | {shares(others, by_last)} |" in PAGE
