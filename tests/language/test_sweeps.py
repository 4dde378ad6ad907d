"""`arms(x in […]) { … }`: an arm for each value or combination, its name, and the list of them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.ir.study import Spec
from reodsl.ir.training import FromTraining, Ppo
from reodsl.language import CompileResult
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

TEXT = """from std.miniature import chain_suite, chain_train, overthinker
from std.recipes import ppo
from std.rewards import outcome

reward cheap(cost: number in 0..1) {
  correct(y) - cost * len(y) / max(len(z) for z in group)
}

experiment mine = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  reward = outcome
  batch { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps = 4 steps
  optim { lr = 5e-4 }
  eval = chain_suite
}

study compare {
  arm base = checkpoint(overthinker)
  arms(w in [0.1, 0.3], cap in [64 tokens, 128 tokens]) {
    arm swept = mine { reward = cheap(cost: w), rollout { max_tokens = cap } }
  }
  report { table main { rows = [base] + swept, columns = [accuracy, length] } }
}
"""


def method(spec: Spec, name: str) -> Ppo:
    checkpoint = spec.study.arm(name).checkpoint
    assert isinstance(checkpoint, FromTraining)
    found = checkpoint.experiment.stages[0].method
    assert isinstance(found, Ppo)
    return found


def test_an_arm_for_each_combination(spec: Callable[..., Spec]) -> None:
    made = spec(TEXT)
    names = [f"swept_w{w}_cap{cap}" for w in ("0_1", "0_3") for cap in (64, 128)]
    assert [arm.name for arm in made.study.arms] == ["base", *names]
    assert made.study.tables[0].rows == ("base", *names)
    assert [method(made, name).rollout.max_tokens for name in names] == [64, 128, 64, 128]
    by_hand = spec(
        TEXT.replace("arms(w in [0.1, 0.3], cap in [64 tokens, 128 tokens]) {", "")
        .replace("cost: w", "cost: 0.3")
        .replace("= cap }", "= 64 tokens }")
        .replace("  }\n  report", "  report")
        .replace("[base] + swept", "[base, swept]")
    )
    # What an arm computes does not depend on how it was written.
    assert method(made, "swept_w0_3_cap64") == method(by_hand, "swept")


def test_all_arms_of_a_sweep_are_amended_together(spec: Callable[..., Spec]) -> None:
    made = spec(TEXT, amends={"swept.optim.lr": "1e-6"})
    rates = {
        arm.checkpoint.experiment.stages[0].optim.lr
        for arm in made.study.arms
        if arm.name != "base" and isinstance(arm.checkpoint, FromTraining)
    }
    assert rates == {1e-6}


def test_the_formatter_knows_sweeps() -> None:
    spread = TEXT.replace("arms(w in [0.1, 0.3],", "arms( w  in [0.1,0.3],")
    assert "arms(w in [0.1, 0.3], cap in [64 tokens, 128 tokens]) {" in (
        format_source(Source("s.reo", spread)).text
    )


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ("w in [0.1, 0.3]", "w in [0.1, 0.1]", "E0208"),
        ("w in [0.1, 0.3]", "w in 0.1", "E0301"),
        ("w in [0.1, 0.3], cap in [64 tokens, 128 tokens]", "", "E0310"),
        ("cap in [", "w in [", "E0208"),
        ("arm swept = mine", "frontier swept = mine", "E0202"),
        ("cap in [64 tokens, 128 tokens]", "cap in [1, 2]", "E0302"),
    ],
)
def test_what_is_wrong_is_said_once(
    compiled: Callable[..., CompileResult], right: str, wrong: str, code: str
) -> None:
    found = [
        each.code for each in compiled(TEXT.replace(right, wrong)).diagnostics if each.severity == "error"
    ]
    assert found[:1] == [code]


def test_a_sweep_is_not_larger_than_a_study(compiled: Callable[..., CompileResult]) -> None:
    values = ", ".join(f"{number / 1000}" for number in range(500))
    text = TEXT.replace(
        "w in [0.1, 0.3], cap in [64 tokens, 128 tokens]", f"w in [{values}], cap in [{values}]"
    )
    assert [each.code for each in compiled(text).diagnostics if each.severity == "error"] == ["E0216"]
