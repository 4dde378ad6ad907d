"""How far the miniature's order is the paper's: pairs counted by hand, and changes read off the printed tables."""

from __future__ import annotations

import statistics
from itertools import combinations

import pytest

from benchmarks.ordering import PAPER, agreement, clopper_pearson, counted, disjoint, order, published, reach
from benchmarks.tables import difference, place

PRINTED = {"a": 2.0, "b": 1.0, "c": 3.0, "e": 4.0}


def test_only_pairs_that_are_apart_are_counted_as_ordered() -> None:
    """Measured a < b < c, where a and c are not apart, against b < a < c in print; d is not printed, and e not measured."""
    signs = {("a", "b"): -1, ("a", "c"): 0, ("b", "c"): -1, ("a", "d"): 1}
    assert agreement(signs, PRINTED) == (1, 2, 3, [("a", "b")])
    assert agreement(signs, PRINTED, ["b", "c"]) == (1, 1, 1, [])
    assert agreement({("a", "f"): 1}, {"a": 1.0, "f": 1.0}) == (0, 0, 0, [])
    text = "1 of 2 (50% [0%, 100%]), of 3"
    assert counted(signs, PRINTED, None) == text
    assert counted({("a", "b"): 0}, PRINTED, None) == "no pair of 1 differs"


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # Clopper and Pearson's intervals as tables print them; where all or none agree they have a closed form.
    [
        (3, 10, 0.0667, 0.6525),
        (10, 10, 0.025 ** (1 / 10), 1.0),
        (0, 4, 0.0, 1 - 0.025 ** (1 / 4)),
        (15, 20, 0.5090, 0.9134),
    ],
)
def test_shares_have_the_exact_interval(hits: int, trials: int, low: float, high: float) -> None:
    assert clopper_pearson(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_pairs_that_share_no_arm_are_picked() -> None:
    assert disjoint([("a", "b"), ("b", "c"), ("c", "d")]) == 2
    assert disjoint([("a", "b"), ("a", "c"), ("a", "d")]) == 1
    assert disjoint(list(combinations("abcdefg", 2))) == 3
    assert disjoint([]) == 0


def test_the_interval_of_a_share_is_that_of_as_many_pairs_as_the_jackknife_says() -> None:
    """Ten arms in order but for one pair: without either arm of it all pairs agree, without another one 35 of 36 do."""
    names = "abcdefghij"
    paper = {name: float(place) for place, name in enumerate(names)}
    signs = dict.fromkeys(combinations(names, 2), -1) | {("a", "b"): 1}
    shares = [1.0] * 2 + [35 / 36] * 8
    variance = 9 / 10 * sum((share - statistics.mean(shares)) ** 2 for share in shares)
    worth = 44 / 45 * 1 / 45 / variance * (1.959964 / 2.262157) ** 2
    assert 10 < worth < 20
    assert reach(signs, paper) == pytest.approx(clopper_pearson(44 / 45 * worth, worth), abs=1e-6)


def test_where_all_pairs_agree_the_interval_is_no_point() -> None:
    """Ten arms, all in order: five pairs share no arm, and 0.025 = share^5. With two arms there is one pair."""
    names = "abcdefghij"
    paper = {name: float(place) for place, name in enumerate(names)}
    signs = dict.fromkeys(combinations(names, 2), -1)
    assert reach(signs, paper) == pytest.approx((0.025 ** (1 / 5), 1.0))
    assert reach(signs, paper, ["a", "b"]) == pytest.approx((0.025, 1.0))
    assert reach(dict.fromkeys(signs, 0), paper) is None


def test_the_lines_tell_all_arms_and_those_of_rl() -> None:
    signs = {("a", "b"): 1, ("a", "c"): -1, ("b", "c"): 0}
    text = order(signs, ["a", "b"], {"7B": PRINTED, "Qwen3-4B": {"a": 1.0, "b": 2.0}})
    first, second, last = text.splitlines()
    assert "all arms: 2 of 2 (100% [3%, 100%]), of 3" in first
    assert "RL alone: 1 of 1 (" in first
    assert "all arms: 0 of 1" in second
    assert last.endswith("7B and Qwen3-4B on 0 of 1.")


@pytest.mark.parametrize(
    ("cells", "star", "written"),
    [
        (("-2.04", "-3", "-1"), None, "-2.0 [-3.0, -1.0]"),
        (("0.5", "-1", "2"), None, "+0.5 [-1.0, 2.0]"),
        (("-2.04", "-3", "-1"), "false", "-2.0 [-3.0, -1.0]"),
        (("0.5", "-1", "2"), "true", "+0.5* [-1.0, 2.0]"),
        (("0.5", "", ""), None, "+0.5"),
        (("", "", ""), "", ""),
    ],
)
def test_a_difference_has_its_interval_and_star(
    cells: tuple[str, ...], star: str | None, written: str
) -> None:
    row = dict(zip(("difference", "difference_low", "difference_high"), cells, strict=True))
    assert difference(row if star is None else row | {"difference_star": star}) == written


def test_changes_are_those_of_the_papers_tables() -> None:
    """The 7B model: its main table, and the ablations beside it."""
    changes = published("deepseek_7b")
    assert changes["vanilla"] == 0
    assert changes["mrt"] == pytest.approx(-0.43, abs=0.005)
    assert changes["reo_coef1"] == pytest.approx(-0.693)
    assert set(PAPER.values()) >= {"qwen3_4b", "qwen3_8b"}
    for model in PAPER.values():
        assert published(model)["reo_exp"] < 0


def test_text_goes_between_its_markers() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    assert place(page, {"x": "new"}) == page.replace("old", "new")
    with pytest.raises(SystemExit):
        place(page, {"y": "new"})
