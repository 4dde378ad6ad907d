"""Doubtful references: warned of at the line that names the source, with the rows; nothing where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.plan.places import at_their_lines
from reodsl.report.references import doubtful
from tests.data.test_marks import SPEC
from tests.data.test_references import found as facts_of

ROWS = [("1/4 + 1/4?", r"\frac{1}{2"), ("7 * 8?", "56"), ("Who?", "Evelyn"), ("7 * 8 ?", "7 times 8 is 56.")]


def test_the_warnings_stand_at_the_line_of_the_data(tmp_path: Path, refusal: Callable[..., None]) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.replace("STRIP", ", duplicates = drop"))
    compiled = compile_file(tmp_path / "spec.reo")
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    folder = tmp_path / "mine.data"
    folder.mkdir()
    facts = facts_of(tmp_path, [*ROWS, ("7 * 8?", "54")])
    (folder / "references.json").write_text(json.dumps(facts))
    (tmp_path / "other").mkdir()
    warned = doubtful(graph, {"mine.data": folder, "aime24_questions.data": tmp_path / "other"})
    assert list(warned) == ["mine.data"]
    unread, apart = at_their_lines(compiled.spec, graph, warned)["mine.data"]
    assert [unread.code, apart.code] == ["W0716", "W0717"]
    assert unread.severity == apart.severity == "warning"
    line = next(n for n, text in enumerate(SPEC.split("\n"), 1) if text.startswith("data mine"))
    assert {each.labels[0].span.line for each in (unread, apart)} == {line}
    refusal("runs/W0716.txt", Problem(unread))
    refusal("runs/W0717.txt", Problem(apart))
