"""Charts of more arms than can be told apart: which they show, and that the page says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reodsl.report import ranking as module
from reodsl.report.figures import Gallery
from reodsl.report.material import Material
from reodsl.report.page import page
from reodsl.report.ranking import choose_highlighted, keep_arms

FEW = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "MOST", FEW)
    return FEW


@pytest.fixture
def plain(material: Material) -> Material:
    """The study of one seed with one measurement of its trainings: a chart for each says nothing more."""
    measured = ("arm", "seed", "index", "stage", "method", "at", "step", "reward", "loss")
    return replace(material, metrics=material.metrics.select(measured))


def chart_arms(gallery: Gallery) -> set[str]:
    rows = [row for spec in gallery.specs.values() for data in spec["datasets"].values() for row in data]
    return {row["arm"] for row in rows if "arm" in row}


def test_few_arms_are_all_shown_and_nothing_is_said(plain: Material) -> None:
    assert choose_highlighted(plain) == ()
    gallery = Gallery()
    html = page(plain, gallery, {})
    assert "Charts show" not in html
    assert chart_arms(gallery) == set(plain.chart_arms)


def test_of_many_the_ones_asked_for_and_the_best_are_shown(material: Material, few: int) -> None:
    shown = choose_highlighted(material)
    assert len(shown) == few < len(material.chart_arms)
    score = material.study.score
    assert score is not None
    assert score.relative_to in shown
    rest = [arm for arm in material.arms if arm != score.relative_to]
    assert set(shown) == {score.relative_to, *rest[: few - 1]}
    assert list(shown) == [arm for arm in material.chart_arms if arm in shown]


def test_a_quarter_of_what_is_shown_is_where_others_start(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that others start from has by far the most REG."""
    monkeypatch.setattr(module, "MOST", 4)
    assert material.arms[-1] == material.bases[0] == "base"
    assert set(choose_highlighted(material)) == {"vanilla", "base", *material.arms[:2]}


def test_the_page_says_what_charts_leave_out_and_tables_have_all(plain: Material, few: int) -> None:
    gallery = Gallery()
    html = page(plain, gallery, {})
    shown = choose_highlighted(plain)
    assert f"Charts show {few} of {len(plain.chart_arms)} arms" in html
    assert chart_arms(gallery) == set(shown)
    results = html.split('id="results"')[1].split("</section>")[0]
    assert all(f">{arm}<" in results for arm in plain.arms)


def test_an_arm_has_one_colour_in_all_of_a_report(material: Material) -> None:
    last = tuple(arm for arm in material.chart_arms if any(arm == key[0] for key in material.trainings))[-2:]
    whole = replace(material, highlighted_arms=last)
    part = keep_arms(whole, last)
    assert part.chart_arms == whole.chart_arms[:2] == last
    assert {key[0] for key in part.evaluations} == set(last)
    assert {key[0] for key in part.trainings} == {key[0] for key in whole.trainings} & set(last)
    every = whole.colours
    assert part.colours == {arm: every[arm] for arm in last}
