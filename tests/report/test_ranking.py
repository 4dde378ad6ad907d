"""Every arm in a line, and every two of them in a matrix."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest

from reodsl.report import ranking as module
from reodsl.report import tables
from reodsl.report.formats import format_signed, interval
from reodsl.report.material import Material
from reodsl.report.ranking import matrix, ranking
from reodsl.report.verdict_words import is_tie


def items(html: object) -> dict[str, str]:
    """Each arm's entry."""
    found = re.findall(r"<li>(.*?)</li>", str(html))
    return {name[1]: each for each in found if (name := re.search(r'class="name">([^<]*)<', each))}


def test_all_arms_stand_in_line(material: Material) -> None:
    table = tables.main(material)
    shown = items(ranking(material, table))
    assert tuple(shown) == material.arms
    assert [arm for arm, html in shown.items() if ">baseline<" in html] == ["vanilla"]
    assert material.verdict is not None
    several = "tied" if is_tie(material.verdict) else "not ranked"
    word = several if len(material.verdict.leaders) > 1 else "leads"
    assert {arm for arm, html in shown.items() if f">{word}<" in html} == set(material.verdict.leaders)
    for row in table.filter(benchmark="mean").to_dicts():
        value = row["difference"]
        assert (format_signed(value) if value is not None else f"{row['reg']:.1f}") in shown[row["arm"]]


@pytest.mark.parametrize(
    ("leaders", "low", "word"),
    [
        (("reo_exp",), -1.0, "leads"),
        (("reo_exp", "reo_oracle"), -1.0, "tied"),
        # A difference that only the correction leaves open is no tie.
        (("reo_exp", "reo_oracle"), 0.5, "not ranked"),
    ],
)
def test_one_arm_leads_and_several_are_tied(
    material: Material, leaders: tuple[str, ...], low: float, word: str
) -> None:
    assert material.verdict is not None
    pair = replace(material.verdict.pairs[0], value=1.0, low=low, high=3.0)
    led = replace(material, verdict=replace(material.verdict, leaders=leaders, tied=(pair,)))
    shown = items(ranking(led, tables.main(led)))
    tags = {arm: set(re.findall(r">(leads|tied|not ranked)<", html)) for arm, html in shown.items()}
    assert tags == {arm: {word} if arm in leaders else set() for arm in material.arms}


def test_what_differs_is_good_below_the_baseline_and_bad_above(material: Material) -> None:
    table = tables.main(material)
    shown = items(ranking(material, table))
    rows = {row["arm"]: row for row in table.filter(benchmark="mean").to_dicts()}
    for arm, html in shown.items():
        tone = re.search(r'<b(?: class="(\w+)")?>', html)
        star, change = rows[arm]["difference_star"], rows[arm]["difference"]
        assert tone is not None
        assert tone[1] == (None if not star else "good" if change < 0 else "bad")
    assert [arm for arm in rows if rows[arm]["difference_star"] and rows[arm]["difference"] > 0] == ["base"]
    assert sum(bool(row["difference_star"]) for row in rows.values()) > 1


def test_of_many_arms_the_first_and_the_baseline_stand_there_and_none_without_a_score(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 2)
    table = tables.main(material)
    html = ranking(material, table)
    assert list(items(html)) == [*material.arms[:2], "vanilla"]
    assert "and 3 more, in the table" in str(html)
    study = material.study.model_copy(update={"score": None})
    bare = replace(material, spec=material.spec.model_copy(update={"study": study}))
    assert ranking(bare, table) is None


def test_the_matrix_has_every_two_arms_in_both_directions(material: Material) -> None:
    verdict = material.verdict
    assert verdict is not None
    html = str(matrix(material))
    rows = re.findall(r'<th class="name" [^>]*>([^<]*)</th>(.*?)</tr>', html)
    columns = re.findall(r'<th scope="col" data-arm="(\w+)">', html)
    cells = {
        (arm, column): cell
        for arm, row in rows
        for column, cell in zip(columns, re.findall(r"<td [^>]*>(.*?)</td>", row), strict=True)
        if cell
    }
    assert [arm for arm, _ in rows] == columns == list(material.arms)
    assert len(cells) == 2 * len(verdict.pairs) == len(columns) * (len(columns) - 1)
    for pair, turned in product(verdict.pairs, (False, True)):
        shown = pair.swapped() if turned else pair
        cell = cells[shown.one, shown.two]
        assert f"<b>{format_signed(shown.value)}{'*' if pair.significant else ''}</b>" in cell
        assert interval(shown.low, shown.high) in cell
        assert pair.common is not None
        assert f"{pair.common.same:,} of {pair.common.compared:,} responses equal" in cell
        assert ("the same within" in cell) == (pair in verdict.same)
    assert matrix(replace(material, verdict=None)) is None


def test_the_matrix_says_what_is_the_same(material: Material) -> None:
    verdict = material.verdict
    assert verdict is not None
    closest = min(verdict.pairs, key=lambda pair: pair.same_within or 0.0)
    html = str(matrix(replace(material, verdict=replace(verdict, margin=closest.same_within))))
    assert html.count("the same within") == 2
