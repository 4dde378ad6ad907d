"""The table of docs/GRADING.md: what is decided here, and what math-verify alone decides."""

from __future__ import annotations

import re
from pathlib import Path

from math_verify import parse, verify

from reodsl.ir.data import Boxed
from runners.verify import Answer, Thinking, make_verifier, read_answer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "GRADING.md"
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \| (right|wrong) \| (right|wrong) \|$", re.MULTILINE)


def alone(gold: str, answer: str) -> bool:
    read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    return bool(verify(read[0], read[1], timeout_seconds=None))


def test_the_page_tells_where_math_verify_alone_would_decide_otherwise() -> None:
    rows = ROW.findall(PAGE.read_text("utf-8"))
    assert len(rows) >= 12
    verifier = make_verifier("math", seconds=20.0)
    try:
        verdicts = verifier.grade([Answer(answer, gold) for gold, answer, _, _ in rows])
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
        both = [read_answer((Boxed(),), text, thinking=thinking) for thinking in (None, Thinking())]
        assert [f"`{answer}`" if answer else "none" for answer in both] == [read, skip], text
