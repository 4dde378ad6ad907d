"""Mistakes of a first spec: one finding each, where the mistake is, with the remedy that fits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file

SPEC = """from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo

reward cheap(cost: number in 0..1) {
  correct(y) - cost * len(y) / max(len(z) for z in group)
}

experiment mine = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  reward = cheap(cost: 0.5)
  batch { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps = 40 steps
  optim { lr = 5e-4, decay = linear, decay_from = 50% }
  eval = chain_suite
}

study beside {
  replicate = [1]
  arm base = checkpoint(overthinker) { eval = chain_suite }
  arm mine = mine
  report { table main { rows = [base, mine], columns = [accuracy, length] } }
}
"""


def test_a_wrong_setting_hides_no_other_mistake(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    wrong = SPEC.replace("max_tokens = 128 tokens", "max_tokens = 128 steps")
    path.write_text(wrong.replace("steps = 40 steps", "steps = 40 steps\n  minibatches = 3"))
    assert {each.code for each in check_file(path).diagnostics} == {"E0302", "E0502"}
    path.write_text(
        wrong.replace("experiment mine = ppo", "recipe base_of = ppo").replace(
            "study beside", "experiment mine = base_of { rollout { max_tokens = 1K tokens } }\n\nstudy beside"
        )
    )
    assert {each.code for each in check_file(path).diagnostics} == {"E0302", "E0501"}


@pytest.mark.parametrize(
    ("body", "blind"),
    [
        ("1 - len(y) / max(len(z) for z in group)", True),
        ("let spent = len(y) / 128 tokens\n  -spent", True),
        ("mode(y)", True),
        ("correct(y) - len(y) / 128 tokens", False),
        ("let right = correct(y)\n  right * len(y) / 128 tokens", False),
        ("-len(y) / 128 tokens if count(z for z in group if correct(z)) > 4 else 0", False),
        ("correct(y[:64 tokens]) - len(y) / 128 tokens", False),
        ("z(len(y) / 1 tokens) + z(correct(y))", False),
        ("1", False),
    ],
)
def test_a_reward_that_never_asks_what_is_right(body: str, blind: bool, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(f"reward mine {{\n  {body}\n}}\n")
    found = [each.code for each in check_file(path).diagnostics]
    assert ("W0302" in found) == blind, found
    assert not [code for code in found if code.startswith("E")]


def test_a_stage_that_replaces_its_parents_says_so_where_it_lacks_something(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(
        SPEC.replace("experiment mine = ppo", "recipe staged = ppo").replace(
            "  steps = 40 steps\n", "  stage one { steps = 40 steps }\n"
        )
        + "experiment mine = staged {\n  stage one { kl = 0 }\n  stage two { kl = 0 }\n}\n"
    )
    first, second = check_file(path).diagnostics
    assert first.message.startswith("stage `one` of `mine` needs `steps`")
    assert [label.span.line for label in first.labels] == [27, 15]
    assert second.message.startswith("stage `two` of `mine` needs `steps`")
    assert len(second.labels) == 1


@pytest.mark.parametrize(
    ("begun", "paths"),
    [
        ("experiment mine = ppo {", ["base", "data", "reward", "steps"]),
        (
            "experiment mine {\n  method = sft",
            ["base", "data", "batch.prompts", "max_tokens", "optim.algorithm", "optim.lr", "steps"],
        ),
        ("suite mine {\n  samples = 4", ["benchmarks", "max_tokens"]),
    ],
)
def test_all_that_is_missing_is_told_at_once_and_can_be_written_so(
    begun: str, paths: list[str], tmp_path: Path
) -> None:
    head = """from std.models import qwen3_4b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.rewards import outcome
from std.forcing import dynasor
from std.suites import aime24, amc23
"""
    path = tmp_path / "spec.reo"
    path.write_text(f"{head}{begun}\n}}\n")
    (found,) = (each for each in check_file(path).diagnostics if each.severity == "error")
    assert (found.code, found.labels[0].text) == ("E0304", f"lacks {len(paths)} settings")
    assert found.message == f"`mine` needs {', '.join(f'`{each}`' for each in paths[:-1])} and `{paths[-1]}`"
    assert [note.split(",")[0] for note in found.notes] == [f"`{each}`" for each in paths]
    assert found.help is not None
    path.write_text(f"{head}{begun}\n  {found.help.split('`')[1]}\n}}\n")
    assert "E0304" not in [each.code for each in check_file(path).diagnostics]


def test_a_lack_of_stages_that_are_made_alike_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    made = "stages(cap in [64 tokens, 32 tokens]) { rollout { max_tokens = cap } }"
    path.write_text(SPEC.replace("  steps = 40 steps\n", f"  {made}\n"))
    (found,) = check_file(path).diagnostics
    assert found.message.startswith("each of the stages of `mine` needs `steps`")


def test_a_stage_behind_a_point_is_told_of_brackets(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    staged = SPEC.replace("  steps = 40 steps\n", "  stage one { steps = 40 steps }\n")
    path.write_text(staged.replace("arm mine = mine", "arm mine = checkpoint(mine.stages.one)"))
    (found,) = [each for each in check_file(path).diagnostics if each.severity == "error"]
    assert (found.code, found.help) == ("E0212", "write `mine.stages[one]`")
