"""The main table against plain arithmetic over its sources."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace

import polars as pl
import pytest

from reodsl.ir.expression import Constant
from reodsl.ir.reward import Measure
from reodsl.ir.study import Chart, Table
from reodsl.report import formats, tables
from reodsl.report.main_table import find_first_evaluations, main_table, number
from reodsl.report.markup import render
from reodsl.report.material import MEAN, Material
from reodsl.report.results import cell, summary_table
from reodsl.report.tables import _percent as percent
from reodsl.report.tradeoff_charts import scatter

CELL = tuple[str, str]


def cells(frame: pl.DataFrame) -> dict[CELL, dict[str, float]]:
    return {(row["arm"], row["benchmark"]): row for row in frame.to_dicts()}


def test_rows_are_best_first_and_colours_as_in_the_study(material: Material) -> None:
    table = tables.main(material)
    arms = table["arm"].unique(maintain_order=True).to_list()
    assert arms == list(material.arms) == table.filter(benchmark="mean").sort("reg")["arm"].to_list()
    assert list(material.colours) == [arm.name for arm in material.study.arms] != arms
    assert table["benchmark"].to_list()[:4] == ["easy", "medium", "hard", "mean"]
    assert table.height == 6 * 4


def test_one_seed_shows_the_score_as_it_is(material: Material) -> None:
    table = cells(tables.main(material))
    for row in material.scores.to_dicts():
        found = table[row["arm"], row["benchmark"]]
        for name in ("accuracy", "length", "reg", "reg_low", "reg_high", "reg_plain"):
            assert found[name] == pytest.approx(row[name])
        assert found["reg_sd"] is None
        change = 100 * (row["length"] / table["vanilla", row["benchmark"]]["length"] - 1)
        assert found["length_pct"] == (None if row["arm"] == "vanilla" else pytest.approx(change))
        for name in ("difference", "difference_low", "accuracy_change_high", "change_pct"):
            assert found[name] == (None if row["arm"] == "vanilla" else pytest.approx(row[name]))


def test_several_seeds_are_averaged_and_the_interval_is_the_scores(of_seeds: Material) -> None:
    table = cells(tables.main(of_seeds))
    scores = of_seeds.scores.filter(pl.col("benchmark") == "mean").to_dicts()
    for arm in of_seeds.arms:
        own = [r for r in scores if r["arm"] == arm and r["seed"] is not None]
        (whole,) = (r for r in scores if r["arm"] == arm and r["seed"] is None)
        found = table[arm, "mean"]
        assert found["seeds"] == len(own) == 3
        for name in ("accuracy", "length", "reg", "reg_plain"):
            assert found[name] == pytest.approx(statistics.mean(r[name] for r in own))
            assert found[f"{name}_sd"] == pytest.approx(statistics.stdev(r[name] for r in own))
        assert (found["reg_low"], found["reg_high"]) == (whole["reg_low"], whole["reg_high"])
        if arm != "vanilla":
            assert found["difference"] == pytest.approx(statistics.mean(r["difference"] for r in own))
            assert found["difference_low"] == whole["difference_low"]
    assert set(tables.per_seed(of_seeds)["seed"]) == {1, 2, 3}


def test_an_arm_without_a_seed_is_in_every_seeds_score(of_seeds: Material) -> None:
    """A model as it comes is evaluated once, and scored against each seed's frontier."""
    once = of_seeds.summary.filter((pl.col("arm") != "base") | (pl.col("seed") == 1)).with_columns(
        pl.when(pl.col("arm") == "base").then(None).otherwise(pl.col("seed")).alias("seed")
    )
    changed = replace(of_seeds, summary=once)
    seeds = tables.per_seed(changed).filter((pl.col("arm") == "base") & (pl.col("benchmark") == "mean"))
    assert seeds["seed"].to_list() == [1, 2, 3]
    assert seeds["questions"].null_count() == 0


def test_without_a_score_there_is_accuracy_and_length(of_seeds: Material) -> None:
    bare = replace(of_seeds, scores=pl.DataFrame())
    table = tables.main(bare)
    assert "reg" not in table.columns
    mean = of_seeds.summary.filter(arm="reo_exp", benchmark="mean")["length"].mean()
    assert cells(table)["reo_exp", "mean"]["length"] == pytest.approx(mean)


def test_measures_are_columns_beside_the_rest_and_points_of_a_chart(material: Material) -> None:
    """By their calls, with their intervals, on the page and in a terminal."""
    brief = Measure(name="brief(0.5)", value=Constant(value=1))
    shown = Table(name="main", rows=material.arms, columns=("accuracy", brief))
    chart = Chart(name="few", x="length", y=brief, lines=material.arms)
    study = material.study.model_copy(update={"tables": (shown,), "charts": (chart,)})
    row = {"benchmark": "mean", "measure": 0, "value": 0.25, "low": 0.125, "high": 0.375}
    change = {"change": -0.5, "change_low": -0.75, "change_high": -0.25}
    measured = pl.DataFrame(
        [row | change | {"arm": "reo_exp"}, row | dict.fromkeys(change) | {"arm": "base"}]
    )
    changed = replace(material, spec=material.spec.model_copy(update={"study": study}), measures=measured)
    table = tables.main(changed)
    assert cells(table)["reo_exp", "mean"]["brief(0.5)"] == 0.25
    assert tables.main(replace(changed, measures=pl.DataFrame())).columns == tables.main(material).columns
    html = render(main_table(changed, table, shown.rows, shown.column_names))
    assert html.count("[0.125, 0.375]</small>") == 2
    assert "[0.125, 0.375]; −0.500 [−0.750, −0.250]" in html
    assert 'data-label="Average brief(0.5)"' in html
    assert any("brief" in str(column.header) for column in summary_table(study, table).columns)
    drawn = json.dumps(scatter(changed, table, "mean", chart.y_key))
    assert '"title": "brief(0.5)"' in drawn
    assert "reo_exp 0.25 at" in drawn


def test_shares_of_the_frontier_add_up(material: Material) -> None:
    shares = tables.winning_shares(material)
    for _, part in shares.group_by("benchmark"):
        assert part["share"].sum() == pytest.approx(1)
    assert "reo_exp" not in " ".join(shares["arm"])


def test_arms_of_equal_shares_stand_by_name(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    edge = pl.DataFrame({"benchmark": ["b"] * 4, "arms": ["z", "a", "m", "m"]})
    monkeypatch.setattr(tables, "frontier", lambda material: edge)
    assert tables.winning_shares(material).rows() == [("m", "b", 0.5), ("a", "b", 0.25), ("z", "b", 0.25)]


def test_a_number_leads_to_the_first_evaluation_of_its_arm_or_to_the_score(of_seeds: Material) -> None:
    places = list(of_seeds.artifacts)
    wanted = {arm: f"made-{places.index(f'evaluate:{arm}@1')}" for arm in of_seeds.arms}
    assert find_first_evaluations(of_seeds) == wanted | {"": f"made-{places.index('score')}"}


@pytest.mark.parametrize(
    ("column", "row", "better"),
    [
        ("accuracy", {"accuracy": 0.5, "accuracy_change": 0.03}, True),
        ("accuracy", {"accuracy": 0.5, "accuracy_change": -0.03}, False),
        ("reg", {"reg": 9.0, "difference": -3.0}, True),
        ("reg", {"reg": 9.0, "difference": 3.0}, False),
        ("difference", {"difference": -3.0}, True),
        ("difference", {"difference": 3.0}, False),
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_mark_is_green_for_the_better_and_red_for_the_worse(
    column: str, row: dict[str, float], better: bool, apart: bool
) -> None:
    """More accuracy is better, and less REG; a change that may be none has no mark."""
    (stem,) = {"difference", "accuracy_change"} & row.keys()
    about = abs(row[stem]) / (2.0 if apart else 0.5)
    ends = {f"{stem}_low": row[stem] - about, f"{stem}_high": row[stem] + about}
    found = cell(row | ends | {f"{stem}_star": apart}, "easy", column, roomy=False)
    assert found.tone == (("good" if better else "bad") if apart else "")
    html = render(number(found, first=False))
    assert f'title="{found.about}"' in html
    assert {word for word in ("good", "bad") if f'{word}"' in html} == ({found.tone} if apart else set())
    scale = 100 if column == "accuracy" else 1
    # A difference stands in its own column, and is not repeated where the cell is pointed at.
    low, high = (scale * end for end in ends.values())
    assert formats.interval(low, high) in found.about
    assert (formats.format_signed(scale * row[stem]) + " [" in found.about) is (column != "difference")
    assert (formats.format_change(scale * row[stem]) in found.change) is (column != "difference")


@pytest.mark.parametrize("study", ["material", "of_seeds"])
def test_intervals_are_below_means_and_of_benchmarks_only_where_pointed_at(
    study: str, request: pytest.FixtureRequest
) -> None:
    """There are three benchmarks, or two."""
    material: Material = request.getfixturevalue(study)
    html = render(main_table(material, tables.main(material)))
    found = re.findall(r'<td( class="[^"]*")?[^>]*>(.*?)</td>', html)
    assert {"fixed" in looks for looks, inside in found if "<small>" in inside} == {True}
    assert {"fixed" in looks for looks, _ in found} == {True, False}
    heads = re.findall(r'<th colspan="\d+" class="([^"]*)"', html)
    assert sorted(heads) == ["edge"] * (len(heads) - 1) + ["edge fixed"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
def test_a_cell_has_the_looks_of_its_place(first: bool, fixed: bool) -> None:
    """The first of a benchmark has an edge, one that stays in sight is fixed; a cell that is neither has no class."""
    shown = cell({"accuracy": 0.5}, MEAN if fixed else "easy", "accuracy", roomy=False)
    html = render(number(shown, first=first))
    head = html.partition(">")[0]
    classes = head.partition('class="')[2].partition('"')[0].split()
    assert classes == ["edge"] * first + ["fixed"] * fixed
    assert ("class" in head) == (first or fixed)
    assert "50" in html


def test_a_change_in_percent_is_of_the_baselines_size_and_of_nothing_there_is_none() -> None:
    frame = pl.DataFrame({"length": [3.0, 3.0, 3.0], "length_of_baseline": [0.0, 1.0, -2.0]})
    assert frame.select(percent("length")).to_series().to_list() == [None, 200.0, 250.0]
