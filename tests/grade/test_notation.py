"""Plain texts: what stands around them, and several numbers that are no answer."""

from __future__ import annotations

from runners.grade.compare import several
from runners.grade.compare.notation import tidy


def test_tidying_touches_space_and_outer_dollars_only() -> None:
    assert tidy(" \n$ 1  2 $\t") == "1 2"
    assert tidy("$1$ and $2$") == "$1$ and $2$"
    assert tidy("$$") == "$$"
    assert tidy("\\boxed{ \\frac{1}{2} }") == "\\frac{1}{2}"
    assert tidy("\\boxed{1} and \\boxed{2}") == "\\boxed{1} and \\boxed{2}"


def test_several_numbers_are_told_from_one() -> None:
    assert several("1 1 1")
    assert several("(1)(2)")
    assert not several("1 234 567")
    assert not several("2 1/2")
    assert not several("1, 2")
