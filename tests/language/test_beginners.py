"""Mistakes of a first spec: one finding each, where the mistake is, with the remedy that fits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file

SPEC = """from std.miniature import overthinker, chain_train, chain_suite, chain_forcing
from std.recipes import ppo

reward cheap(cost: number in 0..1) {
  correct(y) - cost * len(y) / max(len(z) for z in group)
}

experiment mine = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  reward = cheap(cost: 0.5)
  forcing = chain_forcing
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
EXPLAINED = "correct(y) - cost * len(y) / max(len(z) for z in group)"
REO = "dense L in [8 tokens, 128 tokens]: trapezoid(L) * correct(answer(y[:L]))"
SUM = "divide a length by another to get a plain number: `len(y) / max(len(z) for z in group)`"


@pytest.mark.parametrize(
    ("right", "wrong", "code", "at", "remedy"),
    [
        # A reward without its arguments is shown where it is used, not where it is declared.
        ("= cheap(cost: 0.5)", "= cheap", "E0310", "cheap", "write `cheap(cost: …)`"),
        # What other tools call a setting leads to its name here.
        ("replicate = [1]", "seeds = [1]", "E0203", "seeds", "did you mean `replicate`?"),
        ("replicate = [1]", "seed = 1", "E0203", "seed", "did you mean `replicate`?"),
        ("replicate = [1]", "budget = 1 gpu_hours", "E0203", "budget", "did you mean `limit`?"),
        # A name that a wrong import was to bring is not an error of its own.
        ("chain_suite,", "chain_suit,", "E0205", "chain_suit", "did you mean `chain_suite`?"),
        ("std.recipes", "std.recipe", "E0204", "std.recipe", "did you mean `std.recipes`?"),
        (EXPLAINED, "correct(y) - len(y)", "E0302", "correct(y)", SUM),
        (EXPLAINED, "len(y) + 5", "E0302", "len(y)", "give the number its unit: `5 tokens`"),
        (
            EXPLAINED,
            "len(y) * len(y) + len(y)",
            "E0302",
            "len(y) * len(y)",
            "bring both to one unit, or divide each by a length to get plain numbers",
        ),
        (
            EXPLAINED,
            "correct(y) / len(y)",
            "E0302",
            "correct(y) / len(y)",
            "multiply by a length, such as `mean(len(z) for z in group)`",
        ),
        (
            EXPLAINED,
            "len(y)",
            "E0302",
            "len(y)",
            "divide by a length, such as `mean(len(z) for z in group)`",
        ),
        ("decay_from = 50%", "decay_from = 50", "E0303", "50", "write `50%`, if a share is meant"),
        ("decay_from = 50%", "decay_from = 500", "E0303", "500", None),
        # What a recipe has in place of a wrong setting is not checked as if it were meant.
        (
            "max_tokens = 128 tokens",
            "max_tokens = 128 steps",
            "E0302",
            "128 steps",
            "write `max_tokens = 32K tokens`, for example",
        ),
        ("max_tokens = 128 tokens", "max_tokens = 128 tokns", "E0305", "tokns", "did you mean `tokens`?"),
        # The item of a list is shown, not the list.
        ("[base, mine]", '[base, "mine"]', "E0301", '"mine"', None),
        ("replicate = [1]", "replicate = 1", "E0301", "1", "write `[1]`"),
        (
            "arm mine = mine",
            "arm mine = chain_train",
            "E0311",
            "chain_train",
            "start from an experiment, a recipe, an arm, a checkpoint or a model",
        ),
    ],
)
def test_a_mistake(right: str, wrong: str, code: str, at: str, remedy: str | None, tmp_path: Path) -> None:
    assert SPEC.count(right) == 1
    path = tmp_path / "spec.reo"
    path.write_text(SPEC.replace(right, wrong))
    errors = [each for each in check_file(path).diagnostics if each.severity == "error"]
    assert [each.code for each in errors] == [code]
    at_line, column = errors[0].labels[0].span.line, errors[0].labels[0].span.column
    assert path.read_text().splitlines()[at_line - 1][column - 1 :].startswith(at)
    assert remedy is None or errors[0].help == remedy


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


def test_the_spec_without_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(SPEC)
    assert check_file(path).diagnostics == ()


def test_a_forcing_by_default_is_told_of_where_it_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(SPEC.replace("  forcing = chain_forcing\n", "").replace(EXPLAINED, REO))
    found = next(each for each in check_file(path).diagnostics if each.code == "E0721")
    assert found.labels[0].span.path == str(path)
    assert found.help is not None
    assert found.help.startswith("set a `forcing` of this model's words in `mine`")


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
