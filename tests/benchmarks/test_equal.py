"""The registered study: its numbers are compared as its page says, and neither the page nor its specs change."""

from __future__ import annotations

import hashlib
import re
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import equal, tables, tuning
from reodsl.graph.lower import lower
from reodsl.graph.task import Task
from reodsl.language import compile_file
from reodsl.numbers.curves import Curve
from reodsl.numbers.intervals import Interval
from reodsl.numbers.reg import reg

ROOT = Path(__file__).resolve().parents[2]
SPECS = {task: ROOT / "specs" / "miniature" / f"equal_{task}.reo" for task in equal.LONGEST}


REGISTERED = "affbdb3884b74a6f8e4e4823e99b99ed7973548d29baf770634920e573972965"
"""The SHA-256 of the page's registered block and both specs, one after the other, in the commit that registered them."""


def draw_rows(areas: dict[str, float], seeds: int = 6, questions: int = 20) -> pl.DataFrame:
    """Return rows of arms with given mean areas, whose differences vary by 0.5 over seeds and by 1 over questions."""
    noise = np.random.default_rng(1)
    return pl.DataFrame([
        {"arm": arm, "seed": seed, "benchmark": part, "question": question, "accuracy": 0.9, "length": 30.0}
        | {"area": area + shift + noise.normal(0, 1)}
        for arm, area in areas.items()
        for seed, shift in enumerate(noise.normal(0, 0.5, seeds))
        for part in ("easy", "hard")
        for question in range(questions)
    ])  # fmt: skip


def test_the_page_has_the_tables_of_the_kept_numbers() -> None:
    page = equal.PAGE.read_text()
    assert tables.place(page, equal.texts() | tuning.texts()) == page


def test_neither_the_registration_nor_its_specs_changed() -> None:
    _, begun = equal.PAGE.read_text().split("<!-- registered: begin -->\n")
    block, _ = begun.split("<!-- registered: end -->")
    texts = (block, *(path.read_text() for path in SPECS.values()))
    assert hashlib.sha256("".join(texts).encode()).hexdigest() == REGISTERED
    assert f"Seeds {equal.SEEDS[0]} to {equal.SEEDS[-1]} test" in block


def test_the_registered_seeds_are_those_that_the_tests_need() -> None:
    rows = tuning.texts()["equal_power"].splitlines()[2:]
    assert len(equal.SEEDS) == max(int(cell) for row in rows for cell in row.split("|")[-3:-1])


def test_comparisons_are_judged_as_registered() -> None:
    areas = {"vanilla": 40.0, "reo_5": 20.0, "norm": 26.0, "harmony": 20.1, "budget": 14.0}
    cells = equal.arrange(draw_rows(areas))
    found = equal.subtract(cells, "reo_5", "norm")
    assert found.value == pytest.approx(-6.0, abs=0.8)
    assert found.low is not None
    assert found.high is not None
    assert found.low < -6.0 < found.high
    rows = [line.split(" | ") for line in equal.primary({"chain": cells, "two_ways": cells}).splitlines()[2:]]
    assert [row[-1].removesuffix(" |") for row in rows] == ["ahead", "not separated", "behind"] * 2
    least = min(equal.subtract(cells, "reo_5", rival).p or 0.0 for rival in equal.RIVALS)
    assert min(float(row[3]) for row in rows) == pytest.approx(min(6 * least, 1.0), abs=5e-5), "six, by Holm"
    costly = Interval(-0.02), Interval(-0.005)
    gap = Interval(-3.0)
    assert [equal.judge(gap, of, 0.01) for of in costly] == ["lower REG, at a price in accuracy", "ahead"]


def test_equal_arms_are_the_same_within_the_margin_and_others_are_not() -> None:
    cells = equal.arrange(draw_rows({"reo_5": 20.0, "reo_10": 20.1, "oracle": 24.0}))
    rows = equal.equivalence({"chain": cells}).splitlines()[2:]
    assert [row.split(" | ")[-1] for row in rows] == ["yes |", "no |"]


def test_what_arms_generate_in_training_is_shown(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    steps = [
        ("base", "sft", 500, None),
        ("reo_5", "ppo", 100, 20),
        ("reo_5", "ppo", 60, 10),
        ("vanilla", "ppo", 1200, None),
    ]
    columns = ["arm", "method", "tokens", "forced_answers"]
    pl.DataFrame(steps, columns, orient="row").write_parquet(tmp_path / "tables" / "training.parquet")
    found = equal.read_generated(tmp_path)
    assert found.rows() == [("reo_5", 160, 30), ("vanilla", 1200, 0)]
    rows = draw_rows({"base": 50.0, "vanilla": 40.0, "reo_5": 20.0}).join(found, on="arm", how="left")
    body = [line.strip("| ").split(" | ") for line in equal.list_arms(rows, "chain").splitlines()[2:]]
    told = [("reo_5", "160", "30"), ("vanilla", "1,200", "0"), ("base", "–", "–")]
    assert [(cells[0], *cells[-2:]) for cells in body] == told


def test_an_area_differs_from_reg_by_what_is_the_same_for_all_arms(tmp_path: Path) -> None:
    """A question's area is its REG against an accuracy of 1."""
    folder = tmp_path / "arms" / "norm.s7"
    folder.mkdir(parents=True)
    (tmp_path / "tables").mkdir()
    pl.DataFrame({"arm": ["norm"]}).write_parquet(tmp_path / "tables" / "per_seed.parquet")
    samples = {"benchmark": ["easy"] * 2, "question": ["a", "b"], "correct": [True, False], "tokens": [9, 12]}
    pl.DataFrame(samples).write_parquet(folder / "samples.parquet")
    curves = {"a": (0.0, 1.0, 1.0, 1.0), "b": (0.0, 0.0, 1.0, 0.0)}
    forced = [
        ("easy", q, b, bool(right))
        for q, of in curves.items()
        for b, right in zip((0, 4, 10, 20), of, strict=True)
    ]
    pl.DataFrame(forced, ["benchmark", "question", "budget", "correct"], orient="row").write_parquet(
        folder / "forced.parquet"
    )
    rows = equal.read_cells(tmp_path, 10, 7)
    whole = Curve((0, 10), (1.0, 1.0))
    assert rows["area"].to_list() == [
        pytest.approx(reg(whole, Curve((0, 4, 10), of[:3]), grid=(0, 4, 10))) for of in curves.values()
    ]
    assert rows.select("seed", "question", "length").rows() == [(7, 0, 9.0), (7, 1, 12.0)]


@pytest.mark.parametrize("task", SPECS)
def test_the_spec_has_the_tuned_settings_and_they_are_inside_of_their_grids(task: str) -> None:
    """The first seed alone has the rates around the grid: each arm is worse there than at its better rate of the grid."""
    kept = pl.read_parquet(tuning.path_of(task))
    best = tuning.list_ranked(kept)
    assert set(best["seeds"]) == {10}
    areas = tuning.average(kept.filter(pl.col("seed") == tuning.SEEDS[0]))
    inside, around = (
        dict(areas.filter(pl.col("rate").is_in(rates)).group_by("arm").agg(pl.col("area").min()).iter_rows())
        for rates in (tuning.RATES, tuning.AROUND)
    )
    assert {*inside} == {*around} == {*tuning.ARMS}
    assert all(inside[arm] < around[arm] for arm in tuning.ARMS)
    constants = dict(best.select("arm", "constant").iter_rows())
    for arm, (_, grids) in tuning.CONSTANTS.items():
        assert constants[arm] in list(map(tuning.trim, grids[task]))[1:-1], arm
    source = SPECS[task].read_text()
    for arm, rate, constant, *_ in best.iter_rows():
        assert re.search(rf"param lr_{arm.removesuffix('_5')}: number = {rate}\n", source), (arm, rate)
        if arm in tuning.CONSTANTS:
            assert re.search(rf"param {tuning.CONSTANTS[arm][0]}: \w+ = {constant}\b", source), (
                arm,
                constant,
            )


def test_the_first_seed_tries_every_setting_and_a_further_seed_the_two_best() -> None:
    tried = tuning.list_runs("chain", 1001)
    assert {(rates["norm"], places["norm"]) for _, rates, places in tried} == {
        *product(tuning.RATES, range(5)),
        *((rate, 2) for rate in tuning.AROUND),
    }
    means = tuning.average(
        pl.read_parquet(tuning.path_of("chain")).filter(pl.col("seed").is_in(tuning.SEEDS))
    )
    means = means.filter(pl.col("seeds") == len(tuning.SEEDS))
    further = [
        tuning.list_values("chain", 1009, *settings) for _, *settings in tuning.list_runs("chain", 1009)
    ]
    for arm, (name, _) in tuning.CONSTANTS.items():
        (best, second, *_) = means.filter(pl.col("arm") == arm).sort("area").select("rate", "constant").rows()
        for values, (rate, constant) in zip(further, (best, second), strict=True):
            assert f"lr_{arm}={rate}" in values
            assert f"{name}={constant}" in [tuning.trim(value) for value in values]


def test_a_seed_that_is_not_registered_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(equal, "SEEDS", range(2001, 2010))
    for steps, seed in (("16", "101"), ("8", "2009"), ("9", "2001")):
        monkeypatch.setattr("sys.argv", ["equal", "chain", steps, str(tmp_path), seed])
        with pytest.raises(SystemExit, match="is not registered"):
            equal.main()


def test_a_seed_is_computed_alike_alone_and_among_others() -> None:
    """So every seed may be a run of its own: its trainings and evaluations are those of one run of all."""

    def tasks(seeds: str) -> dict[str, Task]:
        found = compile_file(SPECS["chain"], sets={"seeds": seeds}, target="equal_chain").spec
        assert found is not None
        return {task.id: task for task in lower(found).tasks if task.kind not in ("score", "report")}

    alone, among = tasks("[7]"), tasks("[1,2,7]")
    assert {task.kind for task in alone.values()} >= {"train", "evaluate"}
    assert alone == {name: among[name] for name in alone}
