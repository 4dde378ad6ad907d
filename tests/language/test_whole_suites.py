"""Suites of accuracy alone: no grid, no forcing, and nothing that needs a curve."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.spec import Spec
from reodsl.language import Compiled

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
        ("", "score = reg(against: edge, to: 64 tokens)", "E0608"),
        ("", "report { chart curves { x = budget, y = accuracy, lines = [base] } }", "E0609"),
    ],
)
def test_what_needs_a_curve_needs_a_grid(
    compiled: Callable[..., Compiled], more: str, study: str, code: str
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
