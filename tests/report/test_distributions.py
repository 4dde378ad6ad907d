"""How responses are spread: against counts made one response at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.report.figures import Gallery, spread_group, training_groups
from reodsl.report.material import Material
from reodsl.report.spread_charts import (
    LENGTHS,
    LEVELS,
    REWARDS,
    difficulty_rows,
    length_rows,
    lengths,
    reference,
    reward_rows,
    settled_rows,
)
from tests.report.synthetic import GRID


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


def test_an_answer_settles_where_it_and_all_after_it_are_right(of_seeds: Material) -> None:
    folders = [folder for (arm, _), folder in of_seeds.evaluations.items() if arm == "reo_exp"]
    answers: dict[tuple[int, str, str], dict[int, bool]] = defaultdict(dict)
    for place, folder in enumerate(folders):
        for row in pl.read_parquet(folder / "forced.parquet").iter_rows(named=True):
            answers[place, row["benchmark"], row["question"]][row["budget"]] = row["correct"]
    rows = settled_rows(of_seeds).filter(pl.col("arm") == "reo_exp")
    assert rows["budget"].to_list() == list(GRID)
    for budget, share in rows.select("budget", "share").iter_rows():
        right = [all(each[b] for b in GRID if b >= budget) for each in answers.values()]
        assert share == pytest.approx(sum(right) / len(right))


def test_rewards_are_those_of_the_last_steps_of_the_last_stage(tmp_path: Path, material: Material) -> None:
    for index, rewards in ((0, [5.0] * 40), (1, [9.0] * 36 + [2.0, -1.0, 2.0, 0.5])):
        folder = tmp_path / str(index)
        folder.mkdir()
        pl.DataFrame({"step": range(1, 41), "reward": rewards}).write_parquet(folder / "rollouts.parquet")
    trainings = {("vanilla", 1, 0): tmp_path / "0", ("vanilla", 1, 1): tmp_path / "1"}
    rows = reward_rows(replace(material, trainings=trainings))
    assert rows["arm"].unique().to_list() == ["vanilla"]
    assert rows["share"].sum() == pytest.approx(1)
    # The largest is 2: rewards are 1, -1/2, 1 and 1/4 of it.
    at = {round(reward, 6): share for reward, share in rows.select("reward", "share").iter_rows() if share}
    half = 1 / REWARDS
    assert at == pytest.approx(
        {round(1 - half, 6): 0.5, round(-0.5 + half, 6): 0.25, round(0.25 + half, 6): 0.25}
    )


def test_every_chart_over_a_number_tells_the_page_where_its_lines_are(material: Material) -> None:
    gallery = Gallery()
    group = str(spread_group(gallery, material))
    "".join(map(str, training_groups(gallery, material)))
    assert "How difficult a question is says base" in group
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
