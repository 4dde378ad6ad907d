"""What a study compares, in the cases that no page shows: scores, balanced subsets, wordings, and other arms' budgets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.language import CompileResult
from tests.language.conftest import MINE

HEAD = """
from std.models import qwen3_4b, qwen3_8b, deepseek_7b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.rewards import outcome, reo
from std.suites import math_reg
from std.wordings import low_effort

suite priced = math_reg { expected_length = 8K tokens }
suite fewer = math_reg { samples = 4 }
suite asked = math_reg { wording = low_effort }

experiment other = mine { base = deepseek_7b }
"""
HEAD += MINE


def found(compiled: Callable[..., CompileResult], study: str) -> list[tuple[str, str]]:
    """The code of each finding with the text under its first mark, unused declarations apart."""
    result = compiled(HEAD + study)
    lines = (HEAD + study).split("\n")
    marks = []
    for each in result.diagnostics:
        if each.code != "W0201":
            span = each.labels[0].span
            marks.append((each.code, lines[span.line - 1][span.column - 1 :].split(" ")[0]))
    return marks


SCORED = """
study it {
  arm base  = checkpoint(qwen3_4b) { eval = math_reg }
  arm mine  = mine
  arm other = mine { eval = SUITE }
  frontier edge = envelope(of: [base, mine], to: 32K tokens)
  score = reg(against: edge, to: 16K tokens)
  report { chart one { x = budget, y = accuracy, lines = [base, mine, other] } }
}
"""


@pytest.mark.parametrize(
    ("suite", "expected"), [("fewer", [("E0601", "other")]), ("asked", []), ("math_reg", [])]
)
def test_an_arm_is_scored_as_the_frontier_is_evaluated(
    compiled: Callable[..., CompileResult], suite: str, expected: list[tuple[str, str]]
) -> None:
    assert found(compiled, SCORED.replace("SUITE", suite)) == expected


TABLE = """
study it {
  arm small = checkpoint(qwen3_4b) { eval = math_reg }
  arm large = checkpoint(qwen3_8b) { eval = SUITE }
  report { table one { rows = [small, large], columns = [length], subset = SUBSET } }
}
"""


@pytest.mark.parametrize(
    ("suite", "subset", "expected"),
    [
        ("priced", "balanced", []),
        ("fewer", "balanced", [("E0601", "large],")]),
        ("fewer", "all", [("W0605", "large],")]),
        ("asked", "balanced", []),
        ("math_reg", "balanced", []),
    ],
)
def test_arms_of_a_table(
    compiled: Callable[..., CompileResult], suite: str, subset: str, expected: list[tuple[str, str]]
) -> None:
    assert found(compiled, TABLE.replace("SUITE", suite).replace("SUBSET", subset)) == expected


EVERYTHING = """
study it {
  EVAL
  arm small = checkpoint(qwen3_4b) { eval = math_reg }
  arm large = checkpoint(qwen3_8b) { eval = SUITE }
}
"""


@pytest.mark.parametrize(
    ("suite", "shared", "expected"),
    [
        ("fewer", "", [("W0605", "large")]),
        ("asked", "", []),
        ("math_reg", "eval = math_reg", []),
        ("math_reg", "eval = priced", []),
        ("math_reg", "eval = fewer", [("W0520", "fewer")]),
    ],
)
def test_arms_of_a_report_that_says_nothing(
    compiled: Callable[..., CompileResult], suite: str, shared: str, expected: list[tuple[str, str]]
) -> None:
    assert found(compiled, EVERYTHING.replace("SUITE", suite).replace("EVAL", shared)) == expected


POOLED = """
from std.miniature import overthinker, asked_overthinker, chain_train, chain_suite
from std.recipes import sft
from std.selections import shortest

experiment mine = sft {
  base = checkpoint(BASE)
  data = shortest(pool(checkpoint(OF), data: chain_train, samples: 4, max_tokens: 128 tokens))
  max_tokens = 192 tokens
  batch { prompts = 8 }
  steps = 4 steps
  eval = chain_suite
}
"""


@pytest.mark.parametrize(
    ("base", "of", "expected"),
    [
        ("overthinker", "asked_overthinker", ["checkpoint(asked_overthinker)"]),
        ("asked_overthinker", "overthinker", []),
        ("overthinker", "overthinker", []),
    ],
)
def test_a_pool_in_words_that_the_model_lacks(
    compiled: Callable[..., CompileResult], base: str, of: str, expected: list[str]
) -> None:
    text = POOLED.replace("BASE", base).replace("OF", of)
    spans = [each.labels[0].span for each in compiled(text).diagnostics if each.code == "W0606"]
    assert [
        text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1] for span in spans
    ] == expected


def test_an_arm_of_a_study_is_known_where_it_is_asked_for(compiled: Callable[..., CompileResult]) -> None:
    text = BUDGETS.replace("OTHER", "other") + "\nbudgets own = question_min(rollouts: [base])\n"
    (helps,) = (each.help for each in compiled(HEAD + text).diagnostics if each.code == "E0201")
    assert helps is not None
    assert helps.startswith("`base` is an arm of `it`")


SHOWN = """
study it {
  eval = math_reg
  arm base  = checkpoint(qwen3_4b)
  arm other = other
  SHOWS
}
"""
FRONTIER = "frontier edge = envelope(of: [base], to: 32K tokens)\n  "


@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        ("", []),
        ("report { table main { rows = arms, columns = [accuracy, length] } }", ["W0606"]),
        ("report { chart curves { x = budget, y = accuracy, lines = [base, other] } }", ["W0606"]),
        (FRONTIER + "score = reg(against: edge, to: 16K tokens)", ["W0606"]),
        (
            FRONTIER.replace("[base]", "[base, other]") + "score = reg(against: edge, to: 16K tokens)",
            ["W0606"],
        ),
        (
            "report { table main { rows = arms, columns = [accuracy, length], published = main_qwen3_4b } }",
            [],
        ),
    ],
)
def test_arms_of_two_tokenizers_that_are_shown_together(
    compiled: Callable[..., CompileResult], shows: str, expected: list[str]
) -> None:
    """Once, at the arm; what is beside published numbers is compared as in print."""
    text = HEAD + "\nfrom std.tables import main_qwen3_4b\n" + SHOWN.replace("SHOWS", shows)
    marks = [each for each in compiled(text).diagnostics if each.code == "W0606"]
    assert [each.code for each in marks] == expected
    assert all("other" in text.split("\n")[each.labels[0].span.line - 1] for each in marks)


BUDGETS = """
study it {
  arm base  = checkpoint(qwen3_4b) { eval = math_reg }
  arm other = OTHER
  arm mine  = mine { reward = reo(at: question_min(rollouts: [other])) }
}
"""


@pytest.mark.parametrize(("other", "expected"), [("other", [("W0606", "other]))")]), ("mine", [])])
def test_budgets_of_another_tokenizer(
    compiled: Callable[..., CompileResult], other: str, expected: list[tuple[str, str]]
) -> None:
    marks = found(compiled, BUDGETS.replace("OTHER", other))
    assert [mark for mark in marks if mark[0] == "W0606"] == expected
