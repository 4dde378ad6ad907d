"""Rows that nobody had tuned to when they were first graded: docs/GRADING.md gives that count, and the one of today."""

from __future__ import annotations

from pathlib import Path

from runners.verify import Answer, make_verifier

TABLE = Path(__file__).with_name("fresh.tsv")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "GRADING.md"


def test_the_page_counts_the_verdicts_as_they_are() -> None:
    rows = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()]
    assert len(rows) == len({(gold, text) for gold, text, _ in rows}) >= 520
    verifier = make_verifier("math", seconds=20.0)
    try:
        verdicts = verifier.grade([Answer(text, gold) for gold, text, _ in rows])
    finally:
        verifier.close()
    assert all(verdict.unsettled is None for verdict in verdicts)
    right = [verdict.correct for (*_, due), verdict in zip(rows, verdicts, strict=True) if due == "1"]
    wrong = [verdict.correct for (*_, due), verdict in zip(rows, verdicts, strict=True) if due == "0"]
    assert len(right) + len(wrong) == len(rows)
    counted = (len(rows), len(right), right.count(False), len(wrong), wrong.count(True))
    assert f"| since it was tuned to | {' | '.join(map(str, counted))} |" in PAGE.read_text("utf-8")
