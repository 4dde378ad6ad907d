"""What `--amend` reaches inside values: arguments of calls, settings of what is named, and what it says where it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from reodsl.diagnostics.render import render
from reodsl.ir.base import walk
from reodsl.ir.expression import Constant
from reodsl.ir.reward import Budgets, OracleBudgets
from reodsl.ir.study import Spec, Suite
from reodsl.ir.training import Experiment, FromTraining, Ppo
from reodsl.language import Compiled

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


def test_an_argument_of_a_call(spec: Callable[..., Spec]) -> None:
    changed = spec(TEXT, amends={"score.to": "64", "score.relative_to": "base"})
    assert changed.study.score is not None
    assert (changed.study.score.to, changed.study.score.relative_to) == (64, "base")
    assert {(c.target, c.value) for c in changed.changes} == {
        ("score.to", "64"),
        ("score.relative_to", "base"),
    }
    lines = changed.study.score.given_at
    assert (lines["to"].path, lines["relative_to"].path) == ("--amend score.to", "--amend score.relative_to")


def test_a_setting_of_a_suite_in_every_arm_or_in_one(spec: Callable[..., Spec]) -> None:
    arms = ("base", "plain", "tight", "norm", "named", "shrink", "oracle")
    assert {suite(spec(TEXT, amends={"eval.samples": "7"}), arm).samples for arm in arms} == {7}
    one = spec(APART, amends={"shrink.eval.samples": "7"})
    assert {arm: suite(one, arm).samples for arm in ("base", "plain", "shrink")} == {
        "base": 2, "plain": 2, "shrink": 7,
    }  # fmt: skip
    whole = spec(TEXT, amends={"eval": "chain_suite { samples = 9 }"})
    assert {suite(whole, arm).samples for arm in arms} == {9}


def test_an_argument_of_a_reward_wherever_a_reward_has_it(spec: Callable[..., Spec]) -> None:
    before = spec(TEXT)
    assert (0.4 in numbers(before, "norm"), 0.2 in numbers(before, "named")) == (True, True)
    changed = spec(TEXT, amends={"reward.alpha": "0.3"})
    assert 0.3 in numbers(changed, "norm")
    assert 0.3 in numbers(changed, "named")
    assert method(changed, "plain") == method(before, "plain")
    one = spec(TEXT, amends={"norm.reward.alpha": "0.3"})
    assert (0.3 in numbers(one, "norm"), 0.2 in numbers(one, "named")) == (True, True)
    declared = spec(TEXT, amends={"shorter.alpha": "0.3"})
    assert (0.4 in numbers(declared, "norm"), 0.3 in numbers(declared, "named")) == (True, True)


def test_budgets_are_computed_again(spec: Callable[..., Spec]) -> None:
    assert budgets(spec(TEXT), "tight") == (4, 8, 16, 32, 64)
    for target in ("five.n", "tight.reward.at.n"):
        assert budgets(spec(TEXT, amends={target: "2"}), "tight") == (4, 23)
    oracle = split(spec(TEXT, amends={"oracle.reward.at.n": "3"}), "oracle")
    assert isinstance(oracle, OracleBudgets)
    assert oracle.n == 3
    whole = spec(TEXT, amends={"tight.reward.at": "[16 tokens, 64 tokens, 128 tokens]"})
    assert budgets(whole, "tight") == (16, 64)


def test_a_frontier_and_names_of_the_study(spec: Callable[..., Spec]) -> None:
    changed = spec(TEXT, amends={"edge.of": "[base, plain, norm]"})
    assert changed.study.frontiers[0].of == ("base", "plain", "norm")


def test_a_copy_is_changed_and_not_what_is_named(spec: Callable[..., Spec]) -> None:
    changed = spec(APART, amends={"tight.eval.samples": "7"})
    assert [suite(changed, arm).samples for arm in ("plain", "tight")] == [2, 7]
    declared = spec(TEXT, amends={"chain_suite.samples": "7"})
    assert [suite(declared, arm).samples for arm in ("base", "plain", "tight", "shrink")] == [7] * 4


def test_training_settings_pass_by_what_trains_nothing(spec: Callable[..., Spec]) -> None:
    given = TEXT.replace(
        "arm base   = checkpoint(overthinker)", "arm base = checkpoint(overthinker) { eval = chain_suite }"
    )
    changed = spec(given, amends={"minibatches": "8"})
    assert (method(changed, "plain").minibatches, method(spec(given), "plain").minibatches) == (8, 4)


REFUSED = {
    "argument": {"score.too": "64"},
    "parameter": {"reward.alhpa": "0.1"},
    "none": {"plain.reward.alpha": "0.1"},
    "nowhere": {"cluster.nodes": "2"},
    "unset": {"plain.cluster.nodes": "2"},
    "checkpoint": {"plain.base.steps": "3"},
    "number": {"plain.optim.lr.x": "3"},
    "list": {"plain.eval.grid.to": "3"},
    "block": {"plain.optim": "3"},
    "stage": {"shrink.stages.steps": "3"},
    "stage-unknown": {"shrink.stages.warn.steps": "3"},
    "stage-none": {"plain.stages.1.steps": "3"},
    "stage-whose": {"stages.1.steps": "3"},
    "declared": {"score.against.to": "64"},
    "body": {"bare.alpha": "0.1"},
    "schedule": {"five.m": "3"},
    "whole": {"five": "3"},
    "member": {"edge": "[]"},
    "report": {"report": "[base]"},
    "table": {"report.main": "[base]"},
    "table-unknown": {"all.report.mian.rows": "[base]"},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_reached_is_told(
    name: str, compiled: Callable[..., Compiled], golden: Callable[[str, str], None]
) -> None:
    text = TEXT + "\nreward bare(alpha: number) {\n  alpha * correct(y)\n}\n"
    result = compiled(text, amends=REFUSED[name])
    errors = [each for each in result.diagnostics if each.severity == "error"]
    assert [each.code for each in errors] == ["E0211"]
    golden(f"language/E0211-{name}.txt", render(errors, result.sources))


def test_a_value_in_there_is_held_to_its_range(codes: Callable[..., list[str]]) -> None:
    assert set(codes(TEXT, amends={"reward.alpha": "2"})) == {"E0303"}
    assert set(codes(TEXT, amends={"score.to": "64 steps"})) == {"E0302"}
    assert set(codes(TEXT, amends={"eval.samples": "0"})) == {"E0303"}
    assert set(codes(TEXT, amends={"five.n": "64"})) == {"E0412"}
    assert set(codes(TEXT, amends={"eval.sampels": "9"})) == {"E0203"}
    assert set(codes(TEXT, amends={"optim.betas": "[0.9, 0.95, 0.99]"})) == {"E0303"}


def test_training_of_a_checkpoint_that_is_only_evaluated_is_refused(codes: Callable[..., list[str]]) -> None:
    assert set(codes(TEXT, amends={"base.optim.lr": "1e-3"})) == {"E0521"}
    given = TEXT.replace(
        "checkpoint(overthinker)\n  arm", "checkpoint(overthinker) { steps = 3 steps }\n  arm"
    )
    assert set(codes(given)) == {"E0521"}
