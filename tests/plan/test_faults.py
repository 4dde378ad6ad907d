"""What a task fails by is told at the line of the spec that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.diagnostics import Diagnostic, Span, error
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.language import compile_file
from reodsl.plan.places import locate_failures

TEXT = (Path(__file__).resolve().parent.parent / "resume" / "every_kind.reo").read_text()
LINES = {
    ("harmonizing.train.s1", "E0920"): "experiment harmonizing =",
    ("vanilla.train.s1", "E0920"): "experiment vanilla ",
    ("vanilla.train.s1", "E0926"): "  optim       { algorithm = adamw, lr = 1e-3, warmup",
    ("qspec.train.s1", "E0405"): "  arm qspec ",
    ("qspec.budgets.s1", "E0405"): "  arm qspec ",
    ("selected.select.s1", "E0316"): "  data       = shortest_response(",
    ("preferred.select.s1", "E0513"): "  data       = shorter_preferred(",
    ("preferred.train.s1", "E0513"): "  batch      { prompts = 4 }\n  beta ",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, Graph]:
    path = tmp_path_factory.mktemp("faults") / "every.reo"
    path.write_text(TEXT)
    found = compile_file(str(path), target="every_kind").spec
    assert found is not None
    return found, lower(found)


def told(made: tuple[Spec, Graph], task: str, one: Diagnostic) -> Diagnostic:
    ((found,),) = locate_failures(*made, {task: (one,)}).values()
    return found


@pytest.mark.parametrize(("task", "code"), LINES)
def test_a_failure_is_told_at_its_setting(made: tuple[Spec, Graph], task: str, code: str) -> None:
    start = LINES[task, code]
    assert TEXT.count(start) == 1
    found = told(made, task, error(code, "it failed", where="question 1"))
    (label,) = found.labels
    line = TEXT[: TEXT.index(start)].count("\n") + 1
    text = TEXT.split("\n")[line - 1]
    begin = len(start) - len(start.lstrip()) + 1
    assert label.span == Span(made[0].path, line, begin, line, len(text) + 1)
    assert found.where == "question 1"


def test_what_no_setting_is_to_blame_for_stays_as_it_is(made: tuple[Spec, Graph]) -> None:
    full = error("E0950", "no space is left")
    assert told(made, "vanilla.train.s1", full) is full


def test_a_place_that_is_there_stays(made: tuple[Spec, Graph]) -> None:
    span = Span("other.reo", 1, 1, 1, 2)
    placed = error("E0920", "it failed", span)
    assert told(made, "vanilla.train.s1", placed).labels == placed.labels
