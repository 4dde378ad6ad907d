"""Published frontiers in specs: of whose model, on which benchmarks, and at which budgets they score arms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.ir.study import Spec
from reodsl.language import CompileResult

HEAD = """
from std.models import qwen3_4b, qwen3_8b
from std.suites import math_reg, aime24, aime25
from std.paper import qwen3_4b as edge
from std.recipes import ppo
from std.rewards import outcome
from std.data import areal_boba_7b
"""
STUDY = """
study it {
  eval = math_reg
  arm base = checkpoint(qwen3_4b)
  score = reg(against: edge, to: 16K tokens)
}
"""
TWO = STUDY.replace("math_reg", "math_reg { benchmarks = [aime24, aime25] }")
OTHER = STUDY.replace("checkpoint(qwen3_4b)", "checkpoint(qwen3_8b)")
GSM = (
    STUDY.replace("math_reg", "math_reg { benchmarks = [gsm8k] }")
    + "benchmark gsm8k { data = areal_boba_7b }"
)
SPARSE = STUDY.replace("math_reg", "math_reg { grid = [0 tokens, 4K tokens, 16K tokens] }")
MINE = """
frontier mine {
  base    = qwen3_4b
  budgets = BUDGETS
  curve aime24 { accuracy = ACCURACY }
}
""" + STUDY.replace("math_reg", "math_reg { benchmarks = [aime24] }").replace(
    "against: edge", "against: mine"
)
GRID = "every(1K tokens, to: 16K tokens)"


def mine(budgets: str = GRID, accuracy: str = f"[{', '.join(['0.5'] * 17)}]") -> str:
    return MINE.replace("BUDGETS", budgets).replace("ACCURACY", accuracy)


def found(compiled: Callable[..., CompileResult], text: str, letter: str = "E") -> list[tuple[str, str]]:
    return [(each.code, each.message) for each in compiled(HEAD + text).diagnostics if each.code[0] == letter]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OTHER, "the frontier is of Qwen/Qwen3-4B, and `base` goes back to Qwen/Qwen3-8B"),
        (
            STUDY.replace("checkpoint(qwen3_4b)", 'results("theirs.parquet", model: "own")'),
            "the spec does not say which model wrote the responses of `base`, and the frontier is of Qwen/Qwen3-4B",
        ),
        (TWO, "`base` lacks amc23, minerva"),
        (GSM, "`base` lacks aime24, aime25, amc23, minerva and has gsm8k, which the frontier lacks"),
        (SPARSE, "the grid of `base` has no point between 0 and 4096 tokens, where REG is taken at 18"),
        (
            mine("[0 tokens, 8K tokens, 16K tokens]", "[0.1, 0.4, 0.5]"),
            "the frontier `mine` has no point between 0 and 8192 tokens, where REG is taken at 22",
        ),
    ],
)
def test_what_is_not_of_the_arms_is_refused_or_carried_along(
    text: str, words: str, compiled: Callable[..., CompileResult], spec: Callable[..., Spec]
) -> None:
    assert found(compiled, text) == [("E0616", words)]
    allowed = text.replace("to: 16K tokens)", "to: 16K tokens, approximate: true)", 1)
    if "mine" in text:
        allowed = text.replace("against: mine,", "against: mine, approximate: true,")
    assert found(compiled, allowed) == []
    assert ("W0616", f"REG is approximate: {words}") in found(compiled, allowed, "W")
    made = spec(HEAD + allowed)
    assert made.study.score is not None
    assert made.study.score.misfits == (words,)
    # What the score and the charts read is on the same benchmarks as the arms, or a mean where these are others.
    asked = [each.name for each in made.study.arms[0].suite.benchmarks]
    there = [each.benchmark for each in made.study.frontiers[0].published]
    assert there == (["Average"] if asked == ["gsm8k"] else asked)


def test_what_fits_needs_no_leave_and_changes_nothing(
    compiled: Callable[..., CompileResult], spec: Callable[..., Spec]
) -> None:
    assert found(compiled, STUDY) == []
    leave = STUDY.replace("to: 16K tokens)", "to: 16K tokens, approximate: true)")
    assert found(compiled, leave, "W") == found(compiled, STUDY, "W")
    plain, allowed = spec(HEAD + STUDY).study, spec(HEAD + leave).study
    assert plain.score == allowed.score
    assert [curve.benchmark for curve in plain.frontiers[0].published] == [
        "aime24",
        "aime25",
        "amc23",
        "minerva",
    ]


def test_the_chain_of_base_and_the_source_decide_and_not_the_name(
    compiled: Callable[..., CompileResult],
) -> None:
    """A trained model is its base's; a model of another name and the same source is the same."""
    renamed = OTHER.replace("checkpoint(qwen3_8b)", "checkpoint(renamed)")
    source = "model renamed = qwen3_8b { source = hub(SOURCE) }\n"
    assert found(compiled, source.replace("SOURCE", '"Qwen/Qwen3-4B"') + renamed) == []
    assert [code for code, _ in found(compiled, source.replace("SOURCE", '"mine/Other"') + renamed)] == [
        "E0616"
    ]
    folder = source.replace("hub(SOURCE)", 'folder("models/Qwen3-4B")')
    assert "goes back to folder(models/Qwen3-4B)" in found(compiled, folder + renamed)[0][1]
    # Made elsewhere, as its author says.
    made = folder.replace(" }", ", base = qwen3_4b }")
    assert found(compiled, made + renamed) == []
    other = made.replace("base = qwen3_4b", "base = qwen3_8b")
    assert "goes back to Qwen/Qwen3-8B" in found(compiled, other + renamed)[0][1]
    trained = """
experiment first = ppo {
  base = MODEL
  data = areal_boba_7b
  reward = outcome
  steps = 4 steps
  eval = math_reg
}
experiment second = first { base = checkpoint(first) }
""" + OTHER.replace("checkpoint(qwen3_8b)", "second")
    assert found(compiled, trained.replace("MODEL", "qwen3_4b")) == []
    ((code, message),) = found(compiled, trained.replace("MODEL", "qwen3_8b"))
    assert code == "E0616"
    assert message == "the frontier is of Qwen/Qwen3-4B, and `base` goes back to Qwen/Qwen3-8B"


def test_a_frontier_over_arms_is_of_their_models(
    compiled: Callable[..., CompileResult], spec: Callable[..., Spec]
) -> None:
    text = OTHER.replace(
        "  score",
        "  arm mine = checkpoint(qwen3_4b)\n  frontier top = envelope(of: [mine], to: 16K tokens)\n  score",
    )
    text = text.replace("against: edge", "against: top")
    words = "the frontier is of Qwen/Qwen3-4B, and `base` goes back to Qwen/Qwen3-8B"
    assert found(compiled, text) == [("E0616", words)]
    assert found(compiled, text.replace("[mine]", "[mine, base]")) == []
    allowed = spec(HEAD + text.replace("against: top", "against: top, approximate: true"))
    assert allowed.study.score is not None
    assert allowed.study.score.misfits == (words,)


def test_a_frontier_of_several_models_scores_what_was_made_from_any(
    compiled: Callable[..., CompileResult],
) -> None:
    head = "from std.models import deepseek_7b, deepseek_7b_rl\nfrom std.paper import deepseek_7b as wide\n"
    text = head + STUDY.replace("against: edge", "against: wide")
    assert found(compiled, text.replace("checkpoint(qwen3_4b)", "checkpoint(deepseek_7b)")) == []
    assert found(compiled, text.replace("checkpoint(qwen3_4b)", "checkpoint(deepseek_7b_rl)")) == []


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (mine().replace("  base    = qwen3_4b\n", ""), "E0304", "`base`"),
        (mine().replace("  curve", "  # curve"), "E0304", "needs a curve"),
        (mine("[0 tokens, 0 tokens, 16K tokens]", "[0.1, 0.2, 0.3]"), "E0421", "0 is listed twice"),
        (mine(accuracy="[0.1, 0.2]"), "E0421", "17 budgets and 2 accuracies"),
        (mine("[0 tokens]", "[0.1, 0.2]"), "E0303", "at least 2"),
        (mine(accuracy='shares("1 2 x", of: 9)'), "E0303", "`x` is not a count of 9"),
        (mine(accuracy='shares("1 12", of: 9)'), "E0303", "`12` is not a count of 9"),
        (mine().replace("curve aime24", "curve mean"), "E0616", "a mean over unnamed benchmarks"),
        (mine().replace("to: 16K tokens)\n}", "to: 32K tokens)\n}"), "E0607", "ends at 16384"),
    ],
)
def test_a_frontier_that_is_none_is_one_error(
    text: str, code: str, words: str, compiled: Callable[..., CompileResult]
) -> None:
    errors = [each for each in compiled(HEAD + text).diagnostics if each.severity == "error"]
    assert [each.code for each in errors] == [code]
    assert words in errors[0].message
    assert errors[0].help
    assert errors[0].labels


def test_shares_are_counts_of_a_whole(spec: Callable[..., Spec]) -> None:
    counts = " ".join(str(n) for n in range(17))
    made = spec(HEAD + mine(accuracy=f'shares("{counts}", of: 16)'))
    assert made.study.frontiers[0].published[0].accuracy == tuple(n / 16 for n in range(17))
