"""Charts: valid by Altair's schema, with the numbers they are said to show."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest

from reodsl.ir.study import Chart
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.curves import Curve
from reodsl.numbers.intervals import score_arms
from reodsl.report import tables, theme
from reodsl.report.curve_chart import HEIGHT, add_intervals, curve_rows, curves, draw_picture, frontier_rows
from reodsl.report.export import COLUMN, write_charts
from reodsl.report.figures import Gallery, curve_group, declared_group
from reodsl.report.line_charts import LABELS, MOST_POINTS, metrics_of, training, training_rows
from reodsl.report.material import Material
from reodsl.report.page import page, training_section
from reodsl.report.schedules import _line_chart
from reodsl.report.tradeoff_charts import scatter
from reodsl.report.vega import MOST_LETTERS, NAME_GAP_PIXELS, Rows, axis
from tests.report.synthetic import GRID


def shape_of(value: Any) -> Any:
    """Return a chart without its rows and words: two of one shape come from one function, and meet the schema alike."""
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    if isinstance(value, dict):
        return {
            key: part if key == "type" else shape_of(part) for key, part in value.items() if key != "datasets"
        }
    return type(value).__name__


@pytest.mark.slow
def test_every_chart_meets_the_schema(material: Material, of_seeds: Material) -> None:
    met = set()
    for one in (material, of_seeds):
        page(one, gallery := Gallery(), {})
        table = tables.main(one)
        drawn = [
            *gallery.specs.values(),
            curves(one, "easy", ["base", "reo_exp"]),
            scatter(one, table, measure="reg"),
            training(one, "loss", "sft"),
        ]
        assert len(drawn) > 20
        for chart in drawn:
            shape = json.dumps(shape_of(chart))
            if shape in met:
                continue
            met.add(shape)
            spec = alt.LayerChart.from_dict(chart).to_dict()
            assert spec["datasets"]
            assert spec["title"]
            assert alt.SCHEMA_URL.startswith(chart["$schema"].removesuffix("json"))


def test_curves_carry_the_gap_that_reg_integrates(material: Material) -> None:
    rows = curve_rows(material, "easy", ["reo_exp"]).sort("budget")
    gap = (rows["edge"] - rows["accuracy"]).to_list()
    budgets = rows["budget"].to_list()
    area = sum((b - a) * (f + g) / 2 for a, b, f, g in zip(budgets, budgets[1:], gap, gap[1:], strict=False))
    reg = material.scores.filter(pl.col("arm") == "reo_exp", pl.col("benchmark") == "easy")[
        "reg_plain"
    ].item()
    assert area == pytest.approx(reg)


def test_a_curve_has_the_intervals_of_accuracies(of_seeds: Material) -> None:
    """Each budget is compared with a score whose complete responses are the answers that are forced there."""
    drawn, folders = add_intervals(of_seeds), of_seeds.evaluations
    scored = {arm: [arm_scores(folders[arm, seed], arm)[0] for seed in (1, 2, 3)] for arm in of_seeds.arms}
    for column, budget in ((0, 0), (11, 32), (19, 128)):
        arms = {
            arm: [replace(s, accuracy={b: cells[:, column] for b, cells in s.forced.items()}) for s in of_arm]
            for arm, of_arm in scored.items()
        }
        for row in score_arms(arms, GRID, ["base"], seeds=(1, 2, 3), l_max=128)[: 3 * len(arms)]:
            ends = drawn.filter(name=row.model, benchmark=row.benchmark, budget=budget)["low", "high"]
            assert ends.unique().rows() == [(row.accuracy.low, row.accuracy.high)]
    partly = replace(of_seeds, evaluations={key: folders[key] for key in folders if key != ("base", 2)})
    for known, lacking in ((of_seeds, set()), (partly, {"base"})):
        assert set(add_intervals(known).filter(pl.col("low").is_null())["name"]) == lacking


def test_a_mean_curve_is_the_mean_over_benchmarks(material: Material) -> None:
    own = material.curves.filter((pl.col("name") == "base") & (pl.col("budget") == 64))
    mean = own.filter(pl.col("benchmark") == "mean")["accuracy"].item()
    assert mean == pytest.approx(own.filter(pl.col("benchmark") != "mean")["accuracy"].mean())


def test_equal_values_have_one_tick() -> None:
    for value, text in ((0.5, 0.05), (5e-6, 5e-7), (0.0, 1.0)):
        made = axis([value, value, float("nan"), None])
        assert made["axis"]["values"] == [value]
        assert made["scale"]["domain"] == pytest.approx([value - text, value + text])
    assert axis([1.0, 2.0]) == {"scale": {"zero": False}, "axis": {}}
    # A difference of a thousandth is not as wide as the chart.
    assert axis([0.5, 0.501], margin=0.08)["scale"]["domain"] == pytest.approx([0.49, 0.511], abs=1e-3)


@pytest.mark.parametrize("count", [2, 6, 12, 24])
def test_a_picture_tells_arms_apart_and_leads_from_lines_to_names(count: int) -> None:
    arms = [f"arm_{number:02}_{'of_a_long_name' * (number % 4)}"[:60] for number in range(count)]
    ends = [*(0.9 - 0.001 * number for number in range(count - 1)), 0.3]
    models = {arm: {"q": Curve((0, 8), (0.1, end))} for arm, end in zip(arms, ends, strict=True)}
    svg = draw_picture(models, None, 8, list(models)).svg.decode()
    marks = set(re.findall(r'stroke="(#\w+)" stroke-width="2"(?: stroke-dasharray="([^"]*)")?', svg))
    placed, names = zip(*re.findall(r'\(319,([-\d.]+)\)"[^<]*>([^<]*)</text>', svg), strict=True)
    leaders = re.findall(r'([-\d.]+)\)" x2="12" y2="([-\d.]+)" stroke="#\w+" stroke-width="0.6"', svg)
    height, ats = max(HEIGHT, NAME_GAP_PIXELS * count), [float(at) - 3 for at in placed]
    for at, (start, change), end in zip(ats, leaders, ends, strict=True):
        assert float(start) == pytest.approx(height * (1 - end / 0.9), abs=0.01)
        assert float(start) + float(change) == pytest.approx(at, abs=1)
    assert min(b - a for a, b in pairwise([-14, *ats, height + 14])) >= NAME_GAP_PIXELS - 1
    assert [name[:6] for name in names] == [arm[:6] for arm in arms]
    assert len(marks) >= count == len({*names})
    assert max(map(len, names)) <= 2 * MOST_LETTERS
    # Names of many arms are farther from their lines than two heights of a text.
    assert (max(abs(float(change)) for _, change in leaders) > 2 * 11) == (count > 2)


def test_the_baselines_gap_is_filled_until_an_arm_is_pointed_at(material: Material) -> None:
    chart = curves(material, with_names=True)
    gap = next(part["encoding"] for part in chart["layer"] if part["mark"]["type"] == "area")
    assert gap["opacity"]["condition"]["test"] == "datum.arm === focus || focus === '' && datum.filled"
    (rows,) = (rows for rows in chart["datasets"].values() if "filled" in rows[0])
    assert {row["arm"] for row in rows if row["filled"]} == {"vanilla"}


def test_budgets_that_span_much_are_shown_on_a_logarithmic_axis(material: Material) -> None:
    near = material.curves.filter(pl.col("budget").is_between(16, 256))
    for drawn, logarithmic in ((material.curves, True), (near, False), (near.clear(), False)):
        x = curves(replace(material, curves=drawn, frontiers=material.frontiers.clear()))["layer"][0][
            "encoding"
        ]["x"]
        assert x["title"].endswith("logarithmic") == logarithmic


def test_the_frontier_says_who_reaches_it(material: Material) -> None:
    rows = frontier_rows(material, "easy")
    assert rows["arms"].null_count() == 0
    names = {name for joined in rows["arms"] for name in joined.split(", ")}
    assert names <= {"base", "vanilla", "group_norm", "shrink"}


def test_long_runs_are_thinned_to_means(material: Material) -> None:
    steps = 10 * MOST_POINTS + 3
    frame = pl.DataFrame(
        {
            "arm": "a",
            "seed": 1,
            "method": "ppo",
            "at": range(1, steps + 1),
            "reward": [float(i % 11) for i in range(steps)],
        }
    )
    long = replace(material, metrics=frame)
    rows = training_rows(long, "reward", "ppo")
    assert rows.height <= MOST_POINTS
    assert rows["at"].to_list()[-1] == steps
    assert rows["reward"][0] == pytest.approx(sum(i % 11 for i in range(11)) / 11)
    assert training_rows(long, "reward", "sft").height == 0
    assert training_rows(long, "entropy", "ppo").height == 0


def test_values_of_tracks_are_drawn_after_the_metrics(material: Material) -> None:
    assert metrics_of(material) == tuple(LABELS)
    tracked = replace(material, metrics=material.metrics.with_columns(track_usual=pl.lit(7.0)))
    assert metrics_of(tracked) == (*LABELS, "track_usual")
    drawn = training(tracked, "track_usual", "ppo")["layer"][-1]["encoding"]["y"]
    assert (drawn["field"], drawn["title"]) == ("track_usual", "track usual")


def test_metrics_that_are_no_numbers_are_left_out(material: Material) -> None:
    frame = pl.DataFrame(
        {"arm": "a", "seed": 1, "method": "ppo", "at": [1, 2, 3], "loss": [1.0, float("nan"), None]}
    )
    odd = replace(material, metrics=frame)
    assert training_rows(odd, "loss", "ppo")["at"].to_list() == [1]
    assert "Not drawn, since it is no number: loss at 1 step." in str(training_section(Gallery(), odd)[0])


def test_stages_follow_one_another(of_seeds: Material) -> None:
    at = of_seeds.metrics.filter((pl.col("arm") == "vanilla") & (pl.col("seed") == 2))["at"].to_list()
    assert at == list(range(1, 25))


def test_equal_rows_have_one_name() -> None:
    frame = pl.DataFrame({"a": [1.23456789]})
    one, two = Rows(), Rows()
    assert one.add(frame) == two.add(frame)
    assert one.add(pl.DataFrame({"a": [1.3]})) != one.add(frame)


def test_budgets_on_a_logarithmic_axis_are_whole_numbers(material: Material) -> None:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(curves(material, "easy", width=460))
    assert ">64<" in svg
    assert ">128<" in svg
    assert "e+" not in svg


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_frontier_has_an_entry_of_its_own_in_the_legend(material: Material) -> None:
    """In the files, dashed as it is drawn; not among the arms, and not where there is none."""
    import vl_convert

    gallery = Gallery()
    curve_group(gallery, material, "curves", ["mean", *material.benchmarks], ["base", "reo_exp"])
    svg = vl_convert.vegalite_to_svg({**gallery.specs["curves-Average"], "config": theme.config()})
    entries = [text for text in texts(svg) if text in ("base", "reo_exp", "frontier")]
    # An arm is in the legend and at the end of its line.
    assert sorted(entries) == ["base", "base", "frontier", "reo_exp", "reo_exp"]
    # Once as the line, once in the legend.
    assert svg.count('stroke-dasharray="5,3"') == 2


def test_charts_for_a_paper_are_as_wide_as_a_column_with_their_legends_below(
    material: Material, tmp_path: Path
) -> None:
    gallery = Gallery()
    gallery.figure("curves", curves(material, "easy"))
    gallery.figure("accuracy-length", scatter(material, tables.main(material)))
    write_charts(tmp_path, gallery, material.arms)
    names = ["accuracy-length.pdf", "accuracy-length.svg", "curves.pdf", "curves.svg"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    for name in ("accuracy-length", "curves"):
        svg, pdf = (tmp_path / f"{name}.svg").read_text(), (tmp_path / f"{name}.pdf").read_bytes()
        assert f'width="{COLUMN}"' in svg.partition(">")[0]
        assert b"/MediaBox [0 0 240 " in pdf
        assert b"/FontFile" in pdf
    entries = [text for text in texts((tmp_path / "curves.svg").read_text()) if text in material.arms]
    assert sorted(entries) == sorted(material.chart_arms)


def test_without_a_frontier_no_legend_speaks_of_one(material: Material) -> None:
    bare = replace(material, frontiers=material.frontiers.clear())
    assert bare.frontier().height == 0
    assert "strokeDash" not in json.dumps(curves(bare))


def test_rewards_of_another_size_are_drawn_as_shares_of_each_arms_largest(material: Material) -> None:
    rows = training_rows(material, "reward", "ppo")
    chart = training(material, "reward", "ppo")
    (line,) = chart["layer"]
    assert line["encoding"]["y"]["field"] == "of_largest"
    (points,) = chart["datasets"].values()
    drawn = pl.DataFrame(points)
    for arm in ("reo_exp", "vanilla"):
        own = rows.filter(pl.col("arm") == arm)["reward"]
        shares = drawn.filter(pl.col("arm") == arm)
        assert shares["of_largest"].max() == pytest.approx(1)
        assert shares["reward"].to_list() == pytest.approx(own.to_list())
    (alike,) = training(material, "reward", "ppo", ["vanilla", "group_norm"])["layer"]
    assert alike["encoding"]["y"]["field"] == "reward"


def test_charts_of_the_spec_have_a_legend(material: Material) -> None:
    assert declared_group(Gallery(), material) is None
    chart = Chart(name="progress", x="step", y="reward", lines=("vanilla", "reo_exp"))
    rows = pl.DataFrame({"arm": list("abcdefghi"), "count": range(9), "budget": [8.0] * 9})
    rules = _line_chart(Chart(name="rules", x="count", y="budget", lines=tuple("abcdefghi")), rows)
    looks = rules["layer"][0]["encoding"]
    assert {looks[key]["field"] for key in ("color", "strokeDash")} == {"name"}
    # Beyond the colours there are dashes.
    assert [looks["strokeDash"]["scale"]["range"][index] for index in (0, 8)] == [[1, 0], [7, 3]]
    study = material.study.model_copy(update={"charts": (*material.study.charts, chart)})
    found = declared_group(
        gallery := Gallery(), replace(material, spec=material.spec.model_copy(update={"study": study}))
    )
    assert list(gallery.specs) == ["progress"]
    assert re.findall(r'data-arm="(\w+)"', str(found)) == ["reo_exp", "vanilla"]
