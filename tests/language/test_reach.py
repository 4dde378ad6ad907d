"""What `--amend` reaches inside values: arguments of calls, settings of what is named, and what it says where it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from reodsl.diagnostics.render import render
from reodsl.ir.base import walk
from reodsl.ir.expression import Constant
from reodsl.ir.reward import Budgets
from reodsl.ir.study import Spec, Suite
from reodsl.ir.training import Experiment, FromTraining, Ppo
from reodsl.language import CompileResult

TEXT = """
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing
from std.rewards   import outcome, reo, length_group_norm
from std.recipes   import ppo

budgets five = exp(from: 4 tokens, to: 128 tokens, n: 5)
reward shorter = length_group_norm(alpha: 0.2)

recipe small = ppo {
  base    = checkpoint(overthinker)
  data    = chain_train
  forcing = chain_forcing
  batch   { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps   = 40 steps
  eval    = chain_suite
}
experiment plain  = small { reward = outcome }
experiment tight  = small { reward = reo(at: five) }
experiment norm   = small { reward = length_group_norm(alpha: 0.4) }
experiment named  = small { reward = shorter }
experiment shrink = small {
  reward = outcome
  stages(cap in halve(from: 64 tokens, to: 32 tokens)) {
    rollout { max_tokens = cap }
  }
}
study all {
  arm base   = checkpoint(overthinker)
  arm plain  = plain
  arm tight  = tight
  arm norm   = norm
  arm named  = named
  arm shrink = shrink
  arm oracle = tight { reward = reo(at: greedy(edge, n: 4)) }
  frontier edge = envelope(of: [base, plain], to: 128 tokens)
  score = reg(against: edge, to: 128 tokens, relative_to: plain)
  report { table main { rows = [base, plain, tight], columns = [accuracy] } }
}
"""


APART = "\n".join(line for line in TEXT.splitlines() if not re.match(r"  (arm oracle|frontier|score) ", line))
"""The same with no arm measured against others."""


def suite(spec: Spec, arm: str) -> Suite:
    return spec.study.arm(arm).suite


def method(spec: Spec, arm: str) -> Ppo:
    checkpoint = spec.study.arm(arm).checkpoint
    assert isinstance(checkpoint, FromTraining)
    experiment: Experiment = checkpoint.experiment
    found = experiment.stages[0].method
    assert isinstance(found, Ppo)
    return found


def split(spec: Spec, arm: str) -> object:
    dense = method(spec, arm).reward.dense
    assert dense is not None
    return dense.split


def numbers(spec: Spec, arm: str) -> set[float]:
    """The numbers that stand in an arm's reward."""
    return {each.value for each in walk(method(spec, arm).reward) if isinstance(each, Constant)}


def budgets(spec: Spec, arm: str) -> tuple[int, ...]:
    found = split(spec, arm)
    assert isinstance(found, Budgets)
    return tuple(found.budgets)


def test_a_suite_whole_or_where_it_is_declared(spec: Callable[..., Spec]) -> None:
    arms = ("base", "plain", "tight", "norm", "named", "shrink", "oracle")
    changed = spec(TEXT, amends={"chain_suite.samples": "9"})
    assert {suite(changed, arm).samples for arm in arms} == {9}
    one = spec(APART, amends={"shrink.eval": "chain_suite { samples = 7 }"})
    assert [suite(one, arm).samples for arm in ("base", "plain", "shrink")] == [2, 2, 7]


def test_a_reward_and_its_budgets_whole(spec: Callable[..., Spec]) -> None:
    changed = spec(TEXT, amends={"norm.reward": "length_group_norm(alpha: 0.3)"})
    assert (0.3 in numbers(changed, "norm"), 0.2 in numbers(changed, "named")) == (True, True)
    assert method(changed, "plain") == method(spec(TEXT), "plain")
    whole = spec(TEXT, amends={"tight.reward": "reo(at: [16 tokens, 64 tokens, 128 tokens])"})
    assert budgets(whole, "tight") == (16, 64)


def test_training_settings_pass_by_what_trains_nothing(spec: Callable[..., Spec]) -> None:
    given = TEXT.replace(
        "arm base   = checkpoint(overthinker)", "arm base = checkpoint(overthinker) { eval = chain_suite }"
    )
    changed = spec(given, amends={"minibatches": "8"})
    assert (method(changed, "plain").minibatches, method(spec(given), "plain").minibatches) == (8, 4)


REFUSED = {
    "E0211-stage": {"shrink.stages.steps": "3"},
    "E0211-stage-unknown": {"shrink.stages.warn.steps": "3"},
    "E0211-stage-none": {"plain.stages.1.steps": "3"},
    "E0211-stage-whose": {"stages.1.steps": "3"},
    "E0211-schedule": {"five.m": "3"},
    "E0211-whole": {"five": "3"},
    "E0211-member": {"edge": "[]"},
    "E0301-inside": {"eval.samples": "7"},
    "E0301-argument": {"plain.reward.alpha": "0.1"},
    "E0301-block": {"plain.optim": "3"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_reached_is_told(
    name: str, compiled: Callable[..., CompileResult], golden: Callable[[str, str], None]
) -> None:
    result = compiled(TEXT, amends=REFUSED[name])
    errors = [each for each in result.diagnostics if each.severity == "error"]
    assert [each.code for each in errors] == [name[:5]]
    golden(f"language/{name}.txt", render(errors, result.sources))


def test_a_value_is_held_to_its_range(codes: Callable[..., list[str]]) -> None:
    assert set(codes(TEXT, amends={"chain_suite.samples": "0"})) == {"E0303"}
    assert set(codes(TEXT, amends={"chain_suite.sampels": "9"})) == {"E0203"}
    assert set(codes(TEXT, amends={"optim.betas": "[0.9, 0.95, 0.99]"})) == {"E0303"}


def test_training_of_a_checkpoint_that_is_only_evaluated_is_refused(codes: Callable[..., list[str]]) -> None:
    assert set(codes(TEXT, amends={"base.optim.lr": "1e-3"})) == {"E0521"}
    given = TEXT.replace(
        "checkpoint(overthinker)\n  arm", "checkpoint(overthinker) { steps = 3 steps }\n  arm"
    )
    assert set(codes(given)) == {"E0521"}
