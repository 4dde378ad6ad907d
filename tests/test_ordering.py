"""How far the miniature's order is the paper's: pairs counted by hand, and changes read off the printed tables."""

from __future__ import annotations

import pytest

from benchmarks.ordering import agreement, placed, published


def test_pairs_in_one_order_are_counted() -> None:
    """a < b < c against b < a < c: of three pairs, a and b alone have changed places; d is in one order only."""
    alike, of, against = agreement({"a": 1, "b": 2, "c": 3, "d": 0}, {"a": 2, "b": 1, "c": 3})
    assert (alike, of, against) == (2, 3, [("a", "b")])


def test_changes_are_those_of_the_papers_tables() -> None:
    """The 7B model: its main table, and the ablations beside it."""
    changes = published("deepseek_7b")
    assert changes["vanilla"] == 0
    assert changes["mrt"] == pytest.approx(-0.43, abs=0.005)
    assert changes["reo_coef1"] == pytest.approx(-0.693)


def test_text_goes_between_its_markers() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    assert placed(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(SystemExit):
        placed(page, "y", "new")
