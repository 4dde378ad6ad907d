"""Messages whose help can be followed: what it says to write is taken, and nothing is told of twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.language import Compiled, compile_file
from tests.language.conftest import HEAD, MINE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def errors(compiled: Callable[..., Compiled]) -> Callable[[str], list[Diagnostic]]:
    def run(text: str) -> list[Diagnostic]:
        return [each for each in compiled(text).diagnostics if each.severity == "error"]

    return run


def amended(line: str) -> str:
    return f"{HEAD}{MINE}experiment other = mine {{\n  {line}\n}}\n"


@pytest.mark.parametrize(
    ("line", "helps"),
    [
        ("gspo = true", "did you mean `loss { ratio = sequence }`?"),
        ("loss_type = dapo", "did you mean `loss { … }`?"),
        ("scale_rewards = false", "did you mean `advantage { normalise = … }`?"),
        ("optimiser = adam", "did you mean `optim`?"),
    ],
)
def test_an_objective_of_other_tools_leads_to_the_setting_for_it(
    errors: Callable[[str], list[Diagnostic]], line: str, helps: str
) -> None:
    (found,) = errors(amended(line))
    assert (found.code, found.help) == ("E0203", helps)


@pytest.mark.parametrize("name", ["value_coef", "gae_lambda"])
def test_what_no_objective_has_is_said_to_be_unsupported(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    (found,) = errors(amended(f"{name} = 0.1"))
    assert found.help is not None
    assert found.help.startswith(
        "that is not supported, and no setting is called like it. The objective is made of `reward`"
    )
    assert "more" not in found.help


def test_a_number_of_a_param_leads_to_the_type_that_it_lacks(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    setting = amended("save_every = n")
    (found,) = errors(f"{setting}\nparam n: int = 4")
    assert (
        found.help
        == "write `4 steps` here, or give what it is set from the type `steps` in place of a plain number's"
    )
    (found,) = errors(f"{setting}\nparam n: int = 4 steps")
    assert found.help == "write `4`, without a unit; what is in steps has the type `steps`"
    assert "E0302" not in {each.code for each in errors(f"{setting}\nparam n: steps = 4")}


def test_one_name_for_a_reward_and_an_experiment_is_one_error(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    both = f"{HEAD}reward mine {{\n  correct(y)\n}}\n{MINE}study all {{\n  arm a = mine\n}}\n"
    (found,) = errors(both)
    assert (found.code, found.help) == ("E0208", "give one of them another name")


@pytest.mark.parametrize(("text", "words"), [(r"\n", "is white space alone"), ("", "is empty")])
def test_white_space_is_not_called_empty(
    errors: Callable[[str], list[Diagnostic]], text: str, words: str
) -> None:
    (found,) = errors(f'forcing f {{\n  text = "x"\n  answer_tokens = 3 tokens\n  close = "{text}"\n}}\n')
    assert (found.code, found.message) == ("E0303", f"`close` {words}")


def test_an_experiment_called_dpo_trains_by_dpo(errors: Callable[[str], list[Diagnostic]]) -> None:
    alone = MINE.replace("experiment mine", "experiment dpo").replace(
        "reward = outcome", "reward = outcome\n  method = dpo"
    )
    assert all("needs itself" not in each.message for each in errors(f"{HEAD}{alone}"))


def test_a_change_of_one_experiment_is_not_told_to_name_it() -> None:
    spec = ROOT / "specs" / "miniature" / "dpo_shortest.reo"
    found = compile_file(spec, amends={"dpo_shortest.entropy": "0.01"}).diagnostics
    (wrong,) = [each for each in found if each.severity == "error"]
    assert wrong.code == "E0506"
    assert wrong.help == "leave it out: `dpo_shortest` has no use for it, and only ppo has `entropy`"


def test_nothing_is_trained_by_an_entropy_bonus_at_a_rate_of_0(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    (found,) = errors(amended("entropy = 0.01\n  optim { lr = 0 }"))
    assert (found.code, found.message) == ("E0303", "`lr` must be above 0 and at most 1")
