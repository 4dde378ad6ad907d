"""Stages that cannot be told apart, hold stages of their own, or are not there; and arms that need themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE

PARAM = "param n: int = 5 in 9..2\n"


def staged(*lines: str) -> str:
    return "\n".join((HEAD, MINE, "experiment staged = mine {", *lines, "}"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (staged("stages(cap in [64 tokens, 64 tokens]) { rollout { max_tokens = cap } }"), "E0208"),
        (staged("stages(a in [64 tokens]) { steps = 3 }", "stages(b in [64 steps]) { steps = b }"), "E0208"),
        (staged("stages(a in [2, 1]) {", "stages(b in [64 steps]) { steps = b }", "}"), "E0202"),
        (staged("stage one {", "stage two { steps = 3 }", "}"), "E0202"),
        (f"{HEAD}{MINE}experiment at = checkpoint(mine.stages[4K tokens]) {{ eval = math_reg }}", "E0212"),
        (f"{HEAD}{PARAM}{MINE}experiment other = mine {{ epochs = n }}", "E0303"),
        (staged("until = steps(9)", "steps = 8"), "E0208"),
        (staged("steps = 8", "until = steps(9)"), "E0208"),
    ],
    ids=[
        "one value twice",
        "one number twice",
        "in stages",
        "in a stage",
        "none",
        "a range backwards",
        "end",
        "steps",
    ],
)
def test_refused(codes: Callable[..., list[str]], text: str, code: str) -> None:
    assert codes(text) == [code]


def test_an_arm_that_needs_itself_is_drawn(codes: Callable[..., list[str]]) -> None:
    own = "arm own = mine { reward = reo(at: question_min(rollouts: [own])) }"
    assert codes(f"{HEAD}{MINE}study all {{\n{own}\n}}") == ["E0209"]
    assert codes(f"{HEAD}{MINE}study all {{\narm mine = mine\n}}") == []


def test_stages_one_after_another_are_right(codes: Callable[..., list[str]]) -> None:
    lines = (
        "stage warm { steps = 3 }",
        "stages(cap in [64 tokens, 32 tokens]) { rollout { max_tokens = cap } }",
    )
    assert codes(staged(*lines), target="staged") == []


CURRICULUM = f"""{HEAD}{MINE}
param cap: tokens = 64 tokens
experiment staged = mine {{
  stage up {{ rollout {{ max_tokens = 4K tokens }} }}
  stage top {{ steps = 3 }}
}}
experiment shrunk = mine {{
  stages(each in [128 tokens, 64 tokens]) {{ rollout {{ max_tokens = each }} }}
}}
study all {{
  arm top = WHERE
  arm other = mine
}}
"""


@pytest.mark.parametrize(
    ("where", "code", "message", "remedy"),
    [
        ("staged.stages[tops]", "E0212", "`staged` has no stage `tops`", "did you mean `top`?"),
        ("staged.stages[last]", "E0212", "`staged` has no stage `last`", "its stages are `top`, `up`"),
        ("staged.stages[3]", "E0212", "`staged` has no stage `3`", "its stages are `top`, `up`"),
        # Neither an arm, not even the one that is declared here, nor a declaration is the value of a stage.
        ("shrunk.stages[top]", "E0212", "`shrunk` has no stage `top`", "its stages are `128 tokens`, `64 tokens`"),
        ("staged.stages[other]", "E0212", "`staged` has no stage `other`", "its stages are `top`, `up`"),
        ("staged.stages[mine]", "E0212", "`staged` has no stage `mine`", "its stages are `top`, `up`"),
        ("staged.stages.top", "E0212", "a stage is named in brackets", "write `staged.stages[top]`"),
        (
            "staged.top",
            "E0203",
            "the experiment `staged` has no `top`",
            "write `staged.stages[top]`, if that stage is meant",
        ),
        ("staged[top]", "E0301", "the experiment `staged` has no elements", "name its stages: `staged.stages[…]`"),
    ],
)  # fmt: skip
def test_a_stage_that_is_not_there(
    compiled: Callable[..., CompileResult], where: str, code: str, message: str, remedy: str
) -> None:
    found = compiled(CURRICULUM.replace("WHERE", f"checkpoint({where})")).diagnostics
    (wrong,) = (each for each in found if each.severity == "error")
    assert (wrong.code, wrong.message, wrong.help) == (code, message, remedy)


def test_a_stage_by_a_param(codes: Callable[..., list[str]]) -> None:
    assert codes(CURRICULUM.replace("WHERE", "checkpoint(shrunk.stages[cap])")) == []


def test_a_list_has_no_elements(compiled: Callable[..., CompileResult]) -> None:
    text = (
        f"{HEAD}param lrs: [number] = [1e-6, 2e-6]\n{MINE}experiment x = mine {{ optim {{ lr = lrs[0] }} }}"
    )
    (wrong,) = (each for each in compiled(text).diagnostics if each.severity == "error")
    assert (wrong.code, wrong.message) == ("E0301", "a list of 2 has no elements")
    assert wrong.help == (
        "a list has no elements to choose: write the value here, or declare it as a `param`"
    )
