"""Questions with marks of a chat: warned of at the line that reads them, with the setting that takes the marks off."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.ir.data import Marks
from reodsl.language import compile_file
from reodsl.plan.places import at_their_lines
from reodsl.report.chats import chats, marks_left
from runners.data.marks import strip_marks
from tests.data.test_marks import SPEC

MARKED = [
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n",
    "Why?",
]


def test_the_warning_stands_at_the_line_of_the_data(tmp_path: Path, refusal: Callable[..., None]) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.replace("STRIP", ""))
    compiled = compile_file(tmp_path / "spec.reo")
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    for name, questions in (("mine.data", MARKED), ("aime24_questions.data", ["How many?"])):
        (tmp_path / name).mkdir()
        pl.DataFrame({"question": questions}).write_parquet(tmp_path / name / "questions.parquet")
    folders = {name: tmp_path / name for name in ("mine.data", "aime24_questions.data")}
    found_by_task = chats(graph, folders)
    assert found_by_task["aime24_questions.data"] == []
    (found,) = at_their_lines(compiled.spec, graph, found_by_task)["mine.data"]
    assert found.code == "W0714"
    assert (
        found.labels[0].span.line == SPEC.split("\n").index('data mine { source = file("d.jsonl")STRIP }') + 1
    )
    refusal("runs/W0714.txt", Problem(found))


def test_what_it_says_to_write_takes_the_marks_off() -> None:
    (found,) = marks_left(MARKED, "mine.data")
    assert found.message == "1 of 2 questions hold the marks of a chat (ChatML, as of Qwen)"
    written = re.search(r'marks\(before: "(.*)", after: "(.*)"\)', found.help or "")
    assert written is not None
    before, after = (part.encode().decode("unicode_escape") for part in written.groups())
    assert strip_marks(MARKED[0], [Marks(before=before, after=after)]) == "How many?"
    assert marks_left(["How many?", "Why?"], "mine.data") == []
