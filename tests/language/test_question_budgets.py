"""Budgets of questions from the training of arms: which arms can tell them, and which of them are asked alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.language import CompileResult
from tests.language.conftest import MINE

STUDY = """
from std.models import qwen3_4b
from std.data import areal_boba_7b, deepscaler_and_areal
from std.recipes import ppo, sft
from std.rewards import outcome, reo
from std.selections import shortest
from std.suites import math_reg
"""
STUDY += MINE
STUDY += """
experiment staged = ppo {
  base = qwen3_4b
  data = areal_boba_7b
  reward = outcome
  steps = 400 steps
  stage long  { rollout { max_tokens = 32K tokens } }
  stage short { rollout { max_tokens = 4K tokens } }
  eval = math_reg
}
experiment taught = sft {
  base = checkpoint(mine)
  data = shortest(pool(checkpoint(mine), data: areal_boba_7b, samples: 16, max_tokens: 32K tokens))
  steps = 10 steps
  eval = math_reg
}
experiment capped = mine { rollout { max_tokens = 4K tokens } }
experiment other  = mine { data = deepscaler_and_areal }

study it {
  arm mine   = mine
  arm as_it_comes = checkpoint(qwen3_4b)
  arm trained_on  = checkpoint(mine)
  arm long        = checkpoint(staged.stages[long])
  arm both        = staged
  arm taught      = taught
  arm capped      = capped
  arm other       = other
  arm tailor = mine { reward = reo(at: question_min(rollouts: [ROLLOUTS]MORE)) }
}
"""


@pytest.mark.parametrize(
    ("rollouts", "more", "expected"),
    [
        ("mine", "", []),
        ("trained_on", "", []),
        ("long, both", "", []),
        ("both", "", []),
        ("as_it_comes", "", ["E0405"]),
        ("mine, as_it_comes", "", ["E0405"]),
        ("taught", "", ["E0405"]),
        ("capped", "", ["E0408"]),
        ("capped, mine", "", []),
        ("capped", ", to: 4K tokens", []),
        ("other", "", ["W0404"]),
        ("other, mine", "", []),
    ],
)
def test_arms_that_tell_budgets(
    compiled: Callable[..., CompileResult], rollouts: str, more: str, expected: list[str]
) -> None:
    found = compiled(STUDY.replace("ROLLOUTS", rollouts).replace("MORE", more), target="it")
    told = [each.code for each in found.diagnostics]
    assert [code for code in told if code in ("E0405", "E0408", "W0404")] == expected
    assert [code for code in told if code.startswith("E")] == [c for c in expected if c.startswith("E")]


@pytest.mark.parametrize(("rollouts", "expected"), [("mine", []), ("other", ["W0404"])])
def test_questions_that_a_selection_keeps_are_questions_of_its_pool(
    compiled: Callable[..., CompileResult], rollouts: str, expected: list[str]
) -> None:
    selection = "selection kept { where = mean(correct(z) for z in group) < 1 }\n"
    pool = "pool(checkpoint(qwen3_4b), data: areal_boba_7b, samples: 4, max_tokens: 32K tokens)"
    text = STUDY.replace("ROLLOUTS", rollouts).replace("MORE", "")
    text = text.replace("arm tailor = mine {", f"arm tailor = mine {{ data = kept({pool}),")
    found = compiled(selection + text, target="it").diagnostics
    told = [each for each in found if each.code == "W0404" or each.severity == "error"]
    assert [each.code for each in told] == expected
    assert all("trained on `areal_boba_7b`" in (each.help or "") for each in told)
