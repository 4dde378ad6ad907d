"""Verdicts are kept by reference and answer, up to a number and a size."""

from __future__ import annotations

from runners.grade.answer import LONGEST_CACHED_TEXT, Claim, Verdict, VerdictCache

RIGHT = Verdict(True, "checked")


def test_the_reference_and_the_metadata_are_part_of_the_key() -> None:
    cache = VerdictCache(10)
    cache.put(Claim("x", "y", "1"), RIGHT)
    assert cache.find(Claim("x", "y", "1")) == RIGHT
    assert cache.find(Claim("y", "x", "1")) is None
    assert cache.find(Claim("x", "y", "2")) is None


def test_the_oldest_leaves_first_and_a_hit_makes_young() -> None:
    cache = VerdictCache(2)
    first, second, third = (Claim(str(n), "g") for n in range(3))
    cache.put(first, RIGHT)
    cache.put(second, RIGHT)
    cache.find(first)
    cache.put(third, RIGHT)
    assert len(cache) == 2
    assert cache.find(second) is None
    assert cache.find(first) == RIGHT


def test_a_long_text_is_not_kept() -> None:
    cache = VerdictCache(2)
    cache.put(Claim("x" * LONGEST_CACHED_TEXT, "y"), RIGHT)
    assert len(cache) == 0
