"""Specs in the style that the language is for: a length reward, staged budgets, and a study with its frontier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Flag, Kind, Num, OneOf, Text
from reodsl.ir.study import Spec
from reodsl.ir.training import Ppo
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate
from reodsl.language.fitting import TypeMismatch, coerce
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.values import Scope
from reodsl.syntax import parse, parse_expression, tree
from reodsl.syntax.source import Source
from tests.language.conftest import HEAD

TEXT = f"""{HEAD}
from std.rewards import length_harmonizing, length_group_norm

param seeds: [int] = [1, 2, 3]

experiment qwen3_4b_shrink = ppo {{
  base = qwen3_4b
  data = areal_boba_7b
  reward = outcome
  stages(cap in halve(from: 16K tokens, to: 512 tokens)) {{
    rollout {{ max_tokens = cap }}
    until = plateau(train.accuracy, window: 20 steps, within: 0.2%) or steps(400)
    eval  = math_reg
  }}
}}

# Any stage is a checkpoint with a name: the paper's row "RL w. Token Budget=4K".
experiment qwen3_4b_budget_4k = checkpoint(qwen3_4b_shrink.stages[4K tokens]) {{ eval = math_reg }}

recipe shared = ppo {{
  base = qwen3_4b
  data = areal_boba_7b
  steps = 400 steps
  eval = math_reg
}}

experiment qwen3_4b_harmonizing = shared {{
  reward = length_harmonizing(gamma: 2)
  reference_samples = 16
}}
experiment qwen3_4b_reo_exp = shared {{ reward = reo(at: exp(from: 1K tokens, to: 32K tokens, n: 5)) }}

study qwen3_4b_all {{
  replicate = seeds
  arm base    = checkpoint(qwen3_4b)
  arm shrink  = qwen3_4b_shrink
  arm early   = qwen3_4b_budget_4k
  arm harmony = qwen3_4b_harmonizing
  arm reo_exp = qwen3_4b_reo_exp
  arm normed  = qwen3_4b_reo_exp {{ reward = length_group_norm(alpha: 0.2) }}

  frontier edge = envelope(of: [base, shrink, harmony], on: math_reg, to: 32K tokens)

  arm oracle  = qwen3_4b_reo_exp {{ reward = reo(at: greedy(edge, n: 5)) }}
  arm qspec   = qwen3_4b_reo_exp {{ reward = reo(at: question_min(rollouts: [shrink, harmony])) }}

  score = reg(against: edge, to: 16K tokens, relative_to: base)
  report {{
    table main   {{ rows = arms, columns = [accuracy, length, reg] }}
    chart curves {{ x = budget, y = accuracy, lines = [base, reo_exp, oracle, qspec, edge] }}
  }}
  limit = 60K gpu_hours
}}
"""


def test_a_whole_study(spec: Callable[..., Spec]) -> None:
    study = spec(TEXT).study
    assert study.seeds == (1, 2, 3)
    assert study.limit == 60_000
    assert study.tables[0].rows == tuple(arm.name for arm in study.arms)
    assert {arm.suite.name for arm in study.arms} == {"math_reg"}
    shrink = study.arm("shrink").checkpoint.experiment  # type: ignore[union-attr]
    caps = [stage.method.rollout.max_tokens for stage in shrink.stages if isinstance(stage.method, Ppo)]
    assert caps == [16384, 8192, 4096, 2048, 1024, 512]
    early = study.arm("early").checkpoint
    assert (early.experiment, early.stage) == (shrink, 2)  # type: ignore[union-attr]


def value_text(kind: Kind, name: str, example: str) -> str:
    """The value in an example: `steps = 400 steps`, `count: 4096`, or a whole call."""
    sign = ":" if kind.form == "call" else "="
    head, found, tail = example.partition(sign)
    return tail if found and head.strip() == name else example


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_examples_of_the_table_are_legal(kind: Kind) -> None:
    module = ParsedFile("example", "example", parse(Source("example", "")).module, False, {}, {})
    for name, field in kind.fields.items():
        assert field.doc, name
        assert field.example or not field.required, f"{kind.name}.{name} is required and has no example"
        if not field.example:
            continue
        expression = parse_expression(Source("example", value_text(kind, name, field.example))).expression
        assert expression is not None, field.example
        if isinstance(field.type, (Num, Text, Flag, OneOf)) and not isinstance(expression, tree.Call):
            context = new_context(Modules(Path()))
            value = evaluate(context, expression, Scope(module), field.type)
            assert value is not None, field.example
            assert not isinstance(coerce(value, field.type), TypeMismatch), field.example
