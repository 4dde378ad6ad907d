"""Suites of accuracy alone: no grid, no forcing, and nothing that needs a curve."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.study import Spec
from reodsl.language import CompileResult

TEXT = """
from std.miniature import overthinker, easy
suite whole { benchmarks = [easy], max_tokens = 128 tokens, temperature = 0.6, top_p = 0.95, samples = 2 MORE }
study it {
  arm base  = checkpoint(overthinker) { eval = whole }
  STUDY
}
"""


def text(more: str = "", study: str = "") -> str:
    return TEXT.replace("MORE", more and f", {more}").replace("STUDY", study)


def test_a_suite_needs_no_grid(spec: Callable[..., Spec]) -> None:
    made = spec(text())
    suite = made.study.arm("base").suite
    assert (suite.grid, suite.forcing) == ((128,), None)
    assert [chart.x for chart in made.study.charts] == []
    assert [task.kind for task in lower(made).tasks][-2:] == ["evaluate", "report"]


@pytest.mark.parametrize(
    ("more", "study", "code"),
    [
        ("grid = [0 tokens, 64 tokens, 128 tokens]", "", "E0304"),
        ("", "frontier edge = envelope(of: [base], to: 128 tokens)", "E0607"),
        ("", "score = reg(against: edge, to: 64 tokens)", "E0607"),
        ("", "report { chart curves { x = budget, y = accuracy, lines = [base] } }", "E0609"),
    ],
)
def test_what_needs_a_curve_needs_a_grid(
    compiled: Callable[..., CompileResult], more: str, study: str, code: str
) -> None:
    head = ""
    if "score" in study:
        curve = "curve easy { accuracy = [0.1, 0.5] }"
        head = "from std.miniature import chain_model\n"
        head += f"frontier edge {{ base = chain_model, budgets = [0 tokens, 64 tokens]\n {curve} }}\n"
    found = [each for each in compiled(head + text(more, study)).diagnostics if each.severity == "error"]
    assert [each.code for each in found] == [code]
    assert "forcing" in (found[0].help or "")


def test_reg_ends_with_the_grid_where_nothing_else_is_said(spec: Callable[..., Spec]) -> None:
    more = "grid = [0 tokens, 64 tokens], forcing = chain_forcing"
    made = spec(text(more).replace("import overthinker", "import chain_forcing, overthinker"))
    assert made.study.arm("base").suite.reg_to == 64


RULES = """
from std.paper import qwen3_4b
budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)
study it { SCORE
  report { chart some { x = X, y = Y, lines = [LINES] } } }
"""


@pytest.mark.parametrize(
    ("axes", "lines", "words"),
    [
        ("count error", "five", "shows errors on a frontier, and the study has no score"),
        ("count accuracy", "five", "has an axis of budget schedules and an axis of arms"),
        ("budget error", "five", "has an axis of budget schedules and an axis of arms"),
        ("count budget", "qwen3_4b", "counts budgets, and "),
        ("budget accuracy", "five", "is over budget, and "),
        ("count budget", "linear(to: 32K tokens, n: 5)", "has no name"),
    ],
)
def test_a_chart_of_rules_has_their_axes_and_their_lines(
    compiled: Callable[..., CompileResult], axes: str, lines: str, words: str
) -> None:
    x, y = axes.split()
    text = RULES.replace("X", x).replace("Y", y).replace("LINES", lines).replace("SCORE", "")
    (fault,) = compiled(text).diagnostics
    assert fault.code == "E0609"
    assert words in fault.message
    assert fault.help
    assert compiled(
        text.replace(f"x = {x}, y = {y}, lines = [{lines}]", "x = count, y = budget, lines = [five]")
    ).spec


def test_errors_are_on_a_frontier_that_reaches_as_far(compiled: Callable[..., CompileResult]) -> None:
    scored = "score = reg(against: qwen3_4b, to: 16K tokens)"
    text = RULES.replace("X", "count").replace("Y", "error").replace("LINES", "five").replace("SCORE", scored)
    assert compiled(text).spec
    (fault,) = compiled(text.replace("32K", "64K")).diagnostics
    assert "is from 0 to 65,536 tokens, and the frontier `qwen3_4b` is from 0 to 32,768" in fault.message
    assert fault.help == "use budgets `to: 32768 tokens`"


def test_rules_of_many_budgets_are_bounded_as_all_checking_is(compiled: Callable[..., CompileResult]) -> None:
    """4,096 budgets are 8 million in the schedules of one, of two, and so on."""
    text = RULES.replace("X", "count").replace("Y", "budget").replace("LINES", "five").replace("SCORE", "")
    found = compiled(
        text.replace("exp(from: 1K tokens, to: 32K tokens, n: 5)", "linear(to: 32K tokens, n: 4096)")
    )
    assert found.spec is None
    assert [each.code for each in found.diagnostics] == ["E0216"]


def test_a_study_without_arms_has_a_chart(compiled: Callable[..., CompileResult]) -> None:
    (fault,) = compiled("study it { }").diagnostics
    assert (fault.code, fault.message) == ("E0313", "the study `it` has no arm")
    rules = (
        compiled(
            RULES.replace("X", "count").replace("Y", "budget").replace("LINES", "five").replace("SCORE", "")
        )
        .spec.study.charts[0]
        .rules
    )
    assert rules[0].schedules[0] == (1024,)
    assert rules[0].schedules[4] == (1024, 2048, 4096, 8192, 16384)
