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
EXPLAINED = "correct(y) - cost * len(y) / max(len(z) for z in group)"
SUM = (
    "divide a length by another to get a plain number: `len(y) / max(len(z) for z in group)`, "
    "or by a number: `… / 1 token`"
)
VALUES = "end it with one expression such as `correct(y)`, or with one `dense` line"
PYTHON = "write `{` here, and `}` behind the block: indentation means nothing"


@pytest.mark.parametrize(
    ("right", "wrong", "code", "at", "remedy"),
    [
        # A reward without its arguments is shown where it is used, not where it is declared.
        ("= cheap(cost: 0.5)", "= cheap", "E0310", "cheap", "write `cheap(cost: …)`"),
        # `for` and `in` are no arguments, whatever the parameters are called.
        ("= cheap(cost: 0.5)", "= cheap(z in group)", "E0310", "z in group", "give it values"),
        ("= cheap(cost: 0.5)", "= chaep(cost: 0.5)", "E0201", "chaep", "did you mean `cheap`?"),
        (
            " ppo\n",
            " ppo\nfrom std.rewards import reo\nreward more = roe(at: [4 tokens])\n",
            "E0201",
            "roe",
            "did you mean `reo`?",
        ),
        # What other tools call a setting leads to its name here.
        ("replicate = [1]", "seeds = [1]", "E0203", "seeds", "did you mean `replicate`?"),
        ("replicate = [1]", "seed = 1", "E0203", "seed", "did you mean `replicate`?"),
        ("replicate = [1]", "budget = 1 gpu_hours", "E0203", "budget", "did you mean `limit`?"),
        # A name that a wrong import was to bring is not an error of its own.
        ("chain_train,", "chain_trian,", "E0204", "chain_trian", "did you mean `chain_train`?"),
        ("std.recipes", "std.recipe", "E0204", "std.recipe", "did you mean `std.recipes`?"),
        (EXPLAINED, "correct(y) - len(y)", "E0302", "correct(y)", SUM),
        (EXPLAINED, "len(y) + 5", "E0302", "len(y)", "give the number its unit: `5 tokens`"),
        (
            EXPLAINED,
            "len(y) * len(y) + len(y)",
            "E0302",
            "len(y) * len(y)",
            "bring both to one unit, or make each a plain number: `… / 1 token / 1 token` and `… / 1 token`",
        ),
        (
            EXPLAINED,
            "correct(y) / len(y)",
            "E0302",
            "correct(y) / len(y)",
            "make it a plain number: `… * 1 token`",
        ),
        (
            EXPLAINED,
            "len(y)",
            "E0302",
            "len(y)",
            "make it a plain number: `… / 1 token`, or divide it by a length, such as `mean(len(z) for z in group)`",
        ),
        ("decay_from = 50%", "decay_from = 50", "E0303", "50", "write `50%`, if a share is meant"),
        ("decay_from = 50%", "decay_from = 500", "E0303", "500", None),
        ("decay_from = 50%", "decay_from = 150%", "E0303", "150%", None),
        # What a recipe has in place of a wrong setting is not checked as if it were meant.
        (
            "max_tokens = 128 tokens",
            "max_tokens = 128 steps",
            "E0302",
            "128 steps",
            "write `128 tokens`, if it is that many",
        ),
        ("max_tokens = 128 tokens", "max_tokens = 1 Ktokens", "E0305", "Ktokens", "write `1K tokens`"),
        ("max_tokens = 128 tokens", "max_tokens = 1 k", "E0305", "k", "write `1K`"),
        ("decay_from = 50%", "decay_from = 50 percent", "E0305", "percent", "write `50%`"),
        ("max_tokens = 128 tokens", "max_tokens = 128 tokns", "E0305", "tokns", "did you mean `tokens`?"),
        # The item of a list is shown, not the list.
        ("[base, mine]", '[base, "mine"]', "E0301", '"mine"', None),
        ("replicate = [1]", "replicate = 1", "E0301", "1", "write `[1]`"),
        (
            "replicate = [1]",
            "replicate = 3",
            "E0301",
            "3",
            "write `[3]`, or `[1, 2, 3]`, if so many are meant",
        ),
        ("replicate = [1]", "replicate = 2..4", "E0301", "2..4", "write `[2, 3, 4]`"),
        (
            "arm mine = mine",
            "arm mine = chain_train",
            "E0311",
            "chain_train",
            "start from an experiment, a recipe, an arm, a checkpoint or a model",
        ),
        # A name that the library has is imported, whatever else is spelt like it.
        (", chain_train", "", "E0201", "chain_train", "import it: `from std.miniature import chain_train`"),
        ("import ppo", "import ppo as p", "E0201", "ppo", "this file imports it as `p`"),
        # What Python and YAML write.
        ("lr = 5e-4", 'lr = "5e-4"', "E0301", '"5e-4"', "write `5e-4`, without quotes"),
        ("decay = linear", 'decay = "linear"', "E0301", '"linear"', "write `linear`, without quotes"),
        ("lr = 5e-4", "lr = -5e-4", "E0303", "-5e-4", "write `0.0005`"),
        ("[base, mine]", "None", "E0314", "None", "write one of `arms`"),
        (
            "  steps =",
            "  seed = None\n  steps =",
            "E0201",
            "None",
            "leave out a setting that you do not want",
        ),
        ("  steps =", "  advantage { batch = True }\n  steps =", "E0201", "True", "write `true`"),
        (
            "128 tokens }",
            "128tokens }",
            "E0136",
            "128tokens",
            "write `128 tokens`, with a space before a unit",
        ),
        ("= 40 steps", "= 1k steps", "E0136", "1k", "write `1K`: the suffixes are K, M, G and %"),
        (
            "= 40 steps",
            "= 1,024 steps",
            "E0313",
            "024 steps",
            "a number has no commas: write `1024 steps`, or `1_024 steps`",
        ),
        ("mine = ppo {", "mine = ppo:\n  {", "E0130", ":", PYTHON),
        ("experiment mine", 'experiment "mine"', "E0130", '"mine"', "write `experiment mine`"),
        ("experiment mine", "experiment my-run", "E0130", "-", "write `experiment my_run`"),
        ("batch {", "batch = {", "E0140", "{", "write `batch { … }`, without the `=`"),
        ("number in 0..1", "float", "E0314", "float", "write `number`"),
        # A setting one level off, or of a block beside.
        (
            "128 tokens }",
            "128 tokens, rollouts = 8 }",
            "E0203",
            "rollouts",
            "`rollouts` is a setting of `batch`: write `batch { rollouts = … }` beside this block",
        ),
        (
            "  steps =",
            "  max_tokens = 128 tokens\n  steps =",
            "E0521",
            "max_tokens",
            "write `rollout { max_tokens = … }`",
        ),
        ("  data =", "  dataset =", "E0203", "dataset", "did you mean `data`?"),
        (
            "  steps =",
            "  learning_rate = 1\n  steps =",
            "E0203",
            "learning",
            "did you mean `optim { lr = … }`?",
        ),
        (
            "= cheap(cost: 0.5)",
            "= reo(at: [4 tokens])",
            "E0201",
            "reo",
            "import it: `from std.rewards import reo`",
        ),
        (
            "lr = 5e-4",
            "betas = 0.9, 0.95, lr = 5e-4",
            None,
            "0.95",
            "a list is written in brackets: `betas = [0.9, 0.95]`",
        ),
        (
            "batch { prompts = 32, rollouts = 8 }",
            "batch(prompts: 32)",
            None,
            "batch",
            "write `batch { prompts = 32 }`: it is a block, and no call",
        ),
        (
            "= 40 steps",
            "= 40 steps\n  until = plateau(accuracy, window: 9 steps, within: 1%)",
            "E0314",
            "accuracy",
            "write `train.accuracy`",
        ),
        # What other tools have for a setting or a word, and a declaration inside another without its name.
        (
            "  steps =",
            "  method = grpo\n  steps =",
            "E0314",
            "grpo",
            "write `ppo`: over a question's rollouts, as advantages are here, it is GRPO",
        ),
        ("  steps =", "  method = pp\n  steps =", "E0314", "pp", "did you mean `ppo`?"),
        ("optim { lr", "optim { learning_rate", "E0203", "learning_rate", "did you mean `lr`?"),
        (
            "  steps =",
            "  clip_high = 0.28\n  steps =",
            "E0203",
            "clip_high",
            "did you mean `clip { high = … }`?",
        ),
        (
            "  steps =",
            "  stages = [1, 2]\n  steps =",
            "E0203",
            "stages",
            "did you mean `stages(NAME in LIST) { … }`?",
        ),
        (
            "  steps = 40 steps",
            "  stage { steps = 40 steps }\n  steps = 40 steps",
            "E0203",
            "stage",
            "it has a name: `stage NAME { … }`",
        ),
        ("table main {", "table {", "E0203", "table", "it has a name: `table NAME { … }`"),
        ("replicate =", "arms = [mine]\n  replicate =", "E0203", "arms", "did you mean `arm NAME = …`?"),
        # A value for a block, a word that a response has too, and two blocks in a line.
        (
            "batch { prompts = 32, rollouts = 8 }",
            "batch = 32",
            "E0301",
            "32",
            "write `batch { prompts = 32 }`",
        ),
        ("[accuracy, length]", "[accuracy, len]", "E0314", "len]", "did you mean `length`?"),
        (
            "[accuracy, length] } }",
            "[accuracy, length] } chart c { x = budget, y = accuracy, lines = [mine] } }",
            "E0142",
            "chart",
            "start a new line, or put a comma before `chart`",
        ),
        # There are no loops.
        (
            "arm mine = mine",
            "arm mine = mine\n  arm a in [1, 2] = mine",
            "E0130",
            "in",
            "there are no loops: write `arm NAME = VALUE` for each value",
        ),
        # A length that no lower number could make room for is not told to be lower.
        ("  max_prompt = 32 tokens\n", "", "E0501", "128", "lower `max_prompt` by 896 tokens"),
        (
            "= cheap(cost: 0.5)",
            "= cheap(cost: 0.5) + cheap(cost: 0.1)",
            "E0301",
            "cheap",
            "a reward is one formula: declare `reward NAME { … }` with both in it",
        ),
        # In a reward.
        (
            EXPLAINED,
            "cheap(cost)",
            "E0201",
            "cheap",
            "`cheap` is a reward, and not a function: write its formula here as a `let`",
        ),
        (
            EXPLAINED,
            "correct(y)\n  - cost * len(y) / 128 tokens",
            "E0313",
            "-",
            "to continue an expression in the next line, put it in ( )",
        ),
        (EXPLAINED, "correct(y)\n  cost", "E0313", "cost", VALUES),
        (
            EXPLAINED,
            "cost * count(M for M in splits if correct(answer(y[:M])))",
            "E0301",
            "splits",
            "name them: `for M in at`, with `at: budgets` among the reward's parameters, "
            "or `for M in [1K tokens, 4K tokens]`",
        ),
        (EXPLAINED, "correct - 1", "E0201", "correct", "call it: `correct(y)`"),
        (EXPLAINED, "1 - y.length / 1 token", "E0301", "y.length", "measure it by a function: `len(y)`"),
        (EXPLAINED, "r = correct(y)\n  r", "E0313", "r =", "write `let r = …`"),
        (EXPLAINED, "r = correct(y)", "E0313", "r =", "leave out `r =`: the value of a reward has no name"),
    ],
)
def test_a_mistake(
    right: str, wrong: str, code: str | None, at: str, remedy: str | None, tmp_path: Path
) -> None:
    assert SPEC.count(right) == 1
    path = tmp_path / "spec.reo"
    path.write_text(SPEC.replace(right, wrong))
    errors = [each for each in check_file(path).diagnostics if each.severity == "error"]
    if code is None:  # The mistake has a second side, which is told as well.
        errors = [each for each in errors if each.code == "E0313"]
    else:
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
