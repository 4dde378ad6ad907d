"""W0608: arms that are compared and train for unequal amounts, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.diagnostics import Diagnostic
from reodsl.ir.training import learning_rate_factor, sum_rate_factors
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE

STUDY = """
experiment other = mine { CHANGE }

study it {
  eval = math_reg
  SETTING
  arm mine  = mine
  arm other = other
}
"""


def unequal(compiled: Callable[..., CompileResult], change: str, setting: str = "") -> list[Diagnostic]:
    text = HEAD + MINE + STUDY.replace("CHANGE", change).replace("SETTING", setting)
    findings = compiled(text).diagnostics
    assert not [each for each in findings if each.severity == "error"], findings
    return [each for each in findings if each.code == "W0608"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("steps = 200 steps", ["steps: 200 against 400", "questions: ", "responses: "]),
        ("optim { lr = 1e-5 }", ["summed learning rate"]),
        ("optim { warmup = 50% }", ["summed learning rate"]),
        ("optim { decay = linear }", ["summed learning rate"]),
        ("batch { prompts = 64 }", ["questions"]),
        ("batch { rollouts = 8 }", ["responses"]),
    ],
)
def test_each_amount_is_compared(
    compiled: Callable[..., CompileResult], change: str, words: list[str]
) -> None:
    (finding,) = unequal(compiled, change)
    assert "`other` and `mine`" in finding.message
    for each in words:
        assert each in finding.labels[0].text


@pytest.mark.parametrize(
    "change",
    [
        "rollout { max_tokens = 8K tokens }",
        "reward = outcome",
        "steps = 395 steps",
        "base = deepseek_7b_of_mine",
    ],
)
def test_equal_amounts_and_other_starts_are_left_alone(
    compiled: Callable[..., CompileResult], change: str
) -> None:
    change = change.replace("base = deepseek_7b_of_mine", "base = qwen3_8b, steps = 200 steps")
    text = "from std.models import qwen3_8b\n" if "qwen3_8b" in change else ""
    findings = compiled(
        text + HEAD + MINE + STUDY.replace("CHANGE", change).replace("SETTING", "")
    ).diagnostics
    assert "W0608" not in [each.code for each in findings]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 60),
    st.one_of(st.integers(0, 70), st.floats(0, 70)),
    st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1)),
)
def test_the_summed_learning_rate_is_that_of_all_steps(
    steps: int, warmup: float, decay_from: float | None
) -> None:
    slow = sum(learning_rate_factor(step, steps, warmup, decay_from) for step in range(steps))
    assert sum_rate_factors(steps, warmup, decay_from) == pytest.approx(slow, rel=1e-9, abs=1e-9)


def test_a_billion_steps_are_not_walked(compiled: Callable[..., CompileResult]) -> None:
    half = "steps = 1000000000 steps, optim { warmup = 10%, decay = linear, decay_from = 5% }"
    (finding,) = unequal(compiled, half)
    assert "steps: 1e+09 against 400" in finding.labels[0].text


def test_a_study_may_say_why(compiled: Callable[..., CompileResult]) -> None:
    assert not unequal(compiled, "steps = 200 steps", 'unequal = "steps are what is compared"')


def test_the_first_stage_of_a_schedule_is_not_the_schedule(compiled: Callable[..., CompileResult]) -> None:
    text = (
        HEAD
        + MINE
        + """
experiment shrink = mine {
  stages(cap in halve(from: 8K tokens, to: 4K tokens)) { rollout { max_tokens = cap }, steps = 200 steps }
}
study it {
  eval = math_reg
  arm mine   = mine
  arm first  = checkpoint(shrink.stages[8K tokens])
  arm shrink = shrink
}
"""
    )
    (finding,) = [each for each in compiled(text).diagnostics if each.code == "W0608"]
    assert "`first` and `mine`" in finding.message
    assert finding.labels[0].text.startswith("steps: 200 against 400")
    assert finding.notes == ()


def test_a_long_list_of_arms_ends_in_a_count(compiled: Callable[..., CompileResult]) -> None:
    arms = "".join(f"  arm a{number} = mine {{ steps = {100 + number} steps }}\n" for number in range(30))
    (finding,) = unequal(compiled, "steps = 200 steps", arms + "  arm same = mine")
    names = ", ".join(f"`a{number}`" for number in range(1, 13))
    assert finding.notes == (f"{names} and 18 more differ too",)
