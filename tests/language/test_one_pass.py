"""One pass reports every error: one that has no value ends its own piece of the spec, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.language import CompileResult

HEAD = """from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo
reward cheap(cost: number, bonus: number) { bonus * correct(y) - cost }
"""
PIECES = {
    "arguments": "budgets b = exp(from: one, to: two, n: 5)",
    "elements of a list": "budgets b = [one, 4K tokens, two]",
    "operands": "param b: int = one + two",
    "ends of a range": "param b: int = 1 in one..two",
    "settings": "suite b = chain_suite { samples = one, max_tokens = two }",
    "a setting and one of a block": "experiment b = ppo { steps = one, optim { lr = two } }",
    "declarations": "param b: int = one\nparam c: int = two",
    "a parent and the block over it": "suite b = one { samples = two }",
    "arguments of a reward": "reward b = cheap(cost: one, bonus: two)",
    "lets of a reward": "reward b { let a = one\nlet c = two\ncorrect(y) }",
    "operands of a reward": "reward b { one + two }",
    "branches of a choice": "reward b { one if correct(y) else two }",
    "a statistic and its condition": "reward b { mean(one for z in group if two > 0) }",
    "terms of a sum": "reward b { z(one) + z(two) }",
    "sides of a pick": "selection b { preferred = argmin(one for z in group)\nrejected = argmax(two for z in group) }",
    "arms": "study b { arm x = one\narm y = two }",
    "lists of a sweep": "study b { arms(x in one, y in two) { arm z = ppo } }",
}


@pytest.mark.parametrize("text", PIECES.values(), ids=PIECES)
def test_both_errors_are_reported(text: str, compiled: Callable[..., CompileResult]) -> None:
    messages = [each.message for each in compiled(f"{HEAD}{text}\n").diagnostics if each.severity == "error"]
    for name in ("one", "two"):
        assert any(f"`{name}`" in message for message in messages), (name, messages)
