"""Chains: expressions read as they are meant, values that wrap or grow, and texts that are no chains."""

from __future__ import annotations

import random

import pytest

from runners.data.fold import chain_of_expression


def test_an_expression_is_walked_from_left_to_right() -> None:
    chain = chain_of_expression("12 + 7 - -3 - 40")
    assert chain is not None
    assert chain.start == 12
    assert [(step.label, step.words, step.amount) for step in chain.steps] == [
        ("1", "+ 7", 7),
        ("2", "- -3", 3),
        ("3", "- 40", -40),
    ]
    assert chain.end == -18
    assert chain.word(-18) == "-18"


def test_ends_are_pythons() -> None:
    draw = random.Random(4)
    for _ in range(200):
        text = str(draw.randint(-999, 999))
        for _ in range(draw.randint(1, 6)):
            text += f" {draw.choice('+-')} {draw.randint(-999, 999)}"
        chain = chain_of_expression(text)
        assert chain is not None
        assert chain.end == eval(text)


@pytest.mark.parametrize(
    "text", ["", "12", "1 * 2", "1+2", "1 + 2 ", "1 + x", "1 + 2; import os", "١ + 2", "1 + 2\n"]
)
def test_other_texts_are_no_chains(text: str) -> None:
    assert chain_of_expression(text) is None
