"""Formulas are found where they are, and of a hostile one nothing but its letters is left."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reodsl.view.responses import MOST, find_formulas


def letters(tree: list[Any]) -> str:
    """The texts of a tree, with its elements of interest around them."""
    name, _, children = tree
    inside = "".join(each if isinstance(each, str) else letters(each) for each in children)
    return f"{name}({inside})" if name in ("mfrac", "msup", "menclose", "mtable", "msqrt") else inside


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"so $x^2$ is", [("$x^2$", "msup(x2)")]),
        (r"\[ \boxed{\frac12} \]", [(r"\[ \boxed{\frac12} \]", "menclose(mfrac(12))")]),
        (r"\(a<b\) and $$\sqrt 3$$", [(r"\(a<b\)", "a<b"), (r"$$\sqrt 3$$", "msqrt(3)")]),
        (
            r"\[\begin{aligned}a&=b\\c&=d\end{aligned}\]",
            [(r"\[\begin{aligned}a&=b\\c&=d\end{aligned}\]", "mtable(a=bc=d)")],
        ),
        ("it costs $5 and $10 or $ 7 $", []),
        ("$a\nb$ and $ab", []),
        (r"\(\) $$ $$ \[ open", []),
        (r"\(\frac{\) \(y\)", [(r"\(y\)", "y")]),
        (r"\(\href{javascript:window.pwned=1}{a}<img>\)", [(r"\(\href{javascript:window.pwned=1}{a}<img>\)", "a<img>")]),
    ],
)  # fmt: skip
def test_formulas_are_found_and_prices_are_not(text: str, wanted: list[tuple[str, str]]) -> None:
    found = find_formulas(text)
    assert [(text[begin:end], letters(tree)) for begin, end, tree in found] == wanted
    assert "javascript" not in str([tree for _, _, tree in found])


HOSTILE = (
    "\\[" * 400_000,
    "$x" * 400_000,
    "$x$ " * 2_000,
    ("\\(" + "{" * 990 + "\\)") * 900,
    "\\(" + "\\sqrt{" * 90 + "}" * 90 + "\\)",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_costs_a_moment(text: str) -> None:
    began = time.monotonic()
    assert len(find_formulas(text)) <= MOST
    assert time.monotonic() - began < 3
