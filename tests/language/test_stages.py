"""Stages that cannot be told apart, hold stages of their own, or are not there; and arms that need themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
    ],
    ids=["one value twice", "one number twice", "in stages", "in a stage", "none", "a range backwards"],
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
