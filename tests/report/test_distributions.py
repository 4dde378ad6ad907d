"""Distribution of responses: against counts made one response at a time."""

from __future__ import annotations

from collections import Counter, defaultdict

import polars as pl
import pytest

from reodsl.report.figures import Gallery, spread_group, training_groups
from reodsl.report.line_charts import LENGTHS, LEVELS, difficulty_rows, length_rows, lengths, reference
from reodsl.report.material import Material


def test_difficulty_is_the_base_models_share_of_right_responses(of_seeds: Material) -> None:
    assert reference(of_seeds) == "base"
    verdicts: dict[str, dict[tuple[str, str], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for (arm, _), folder in of_seeds.evaluations.items():
        for row in pl.read_parquet(folder / "samples.parquet").iter_rows(named=True):
            verdicts[arm][row["benchmark"], row["question"]].append(row["correct"])

    def level(share: float) -> str:
        if share in (0, 1):
            return "always" if share else "never"
        return LEVELS[1 + (share < 0.75) + (share < 0.5) + (share < 0.25)]

    expected: dict[tuple[str, str], list[float]] = defaultdict(list)
    for question, right in verdicts["base"].items():
        name = level(sum(right) / len(right))
        for arm in set(verdicts) - {"base"}:
            own = verdicts[arm][question]
            expected[arm, name].append(sum(own) / len(own))
    rows = difficulty_rows(of_seeds)
    assert {(row["arm"], row["level"]): row["accuracy"] for row in rows.to_dicts()} == pytest.approx(
        {key: sum(shares) / len(shares) for key, shares in expected.items()}
    )
    places = [LEVELS.index(name) for name in rows["level"]]
    assert places == sorted(places)
    assert rows.filter(pl.col("arm") == "vanilla")["questions"].sum() == 8


def test_every_chart_over_a_number_tells_the_page_where_its_lines_are(material: Material) -> None:
    gallery = Gallery()
    group = str(spread_group(gallery, material))
    "".join(map(str, training_groups(gallery, material)))
    assert "Difficulty is the share of base" in group
    charts, rows = gallery.blocks()
    for name, chart in charts.items():
        if name == "difficulty":
            continue
        cross = chart["spec"]["usermeta"]["cross"]
        assert {cross["x"], cross["y"], "arm"} <= set(rows[cross["data"]][0]), name
    assert 'name="smooth"' in "".join(map(str, training_groups(Gallery(), material)))


def test_shares_of_lengths_are_those_of_a_count_of_every_response(of_seeds: Material) -> None:
    rows = length_rows(of_seeds)
    size = rows["tokens"].unique().sort()[1]
    for arm in of_seeds.arms:
        counted: Counter[int] = Counter()
        right: Counter[int] = Counter()
        for (name, _), folder in of_seeds.evaluations.items():
            if name == arm:
                for row in pl.read_parquet(folder / "samples.parquet").iter_rows(named=True):
                    counted[row["tokens"] // size * size] += 1
                    right[row["tokens"] // size * size] += row["correct"]
        own = rows.filter(pl.col("arm") == arm)
        assert own["share"].sum() == pytest.approx(1)
        assert own.height <= LENGTHS + 1
        for row in own.to_dicts():
            assert row["share"] == pytest.approx(counted[row["tokens"]] / counted.total())
            if row["right"] is not None:
                assert row["right"] == pytest.approx(right[row["tokens"]] / counted[row["tokens"]])


def test_the_chart_of_lengths_describes_itself(material: Material) -> None:
    chart = lengths(material, length_rows(material))
    assert "vanilla most often from" in chart["description"]
