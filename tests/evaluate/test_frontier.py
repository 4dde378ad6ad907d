"""Frontiers, budgets and scores against slow references on small made-up evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.task import part_digest
from reodsl.ir import canonical
from reodsl.ir.study import Frontier, PublishedCurve, Score
from reodsl.numbers import intervals
from reodsl.numbers.curve_files import read_frontier
from reodsl.numbers.greedy import greedy
from reodsl.numbers.verdict import from_json
from runners.evaluate import frontier as runners
from runners.evaluate.tables import curves
from tests.evaluate.conftest import MakeJob

GRID = (0, 2, 4, 8, 16, 32)
BENCHMARKS = ("easy", "hard")
QUESTIONS, SAMPLES = 12, 3


def evaluation(folder: Path, seed: int, pace: float, grid: tuple[int, ...] = GRID) -> Path:
    """The folder of an `evaluate` artifact in which answers become right at about `pace` tokens."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    samples: list[dict[str, Any]] = []
    forced: list[dict[str, Any]] = []
    for benchmark in BENCHMARKS:
        for q in range(QUESTIONS):
            for s in range(SAMPLES):
                at = rng.exponential(pace * (2 if benchmark == "hard" else 1))
                keys = {"benchmark": benchmark, "question": f"q{q}", "sample": s}
                tokens = int(rng.integers(5, 33))
                samples.append(
                    keys
                    | {"correct": at <= 32, "tokens": tokens, "finish": "stop", "response": f"{tokens} words"}
                )
                forced += [keys | {"budget": b, "correct": bool(at <= b)} for b in grid]
    # Rows come in any order: nothing may depend on it.
    pl.DataFrame(samples).sample(fraction=1, shuffle=True, seed=seed).write_parquet(
        folder / "samples.parquet"
    )
    pl.DataFrame(forced).sample(fraction=1, shuffle=True, seed=seed).write_parquet(folder / "forced.parquet")
    (folder / "curves.json").write_text(json.dumps(curves(folder / "forced.parquet", BENCHMARKS)))
    return folder


@pytest.fixture
def arms(tmp_path: Path) -> dict[str, Path]:
    paces = {"arm:slow": 20.0, "arm:quick": 4.0, "arm:own": 2.0}
    return {
        role: evaluation(tmp_path / role.removeprefix("arm:"), i, pace)
        for i, (role, pace) in enumerate(paces.items())
    }


def made_frontier(job: MakeJob, arms: dict[str, Path], to: int = 32) -> Path:
    rule = Frontier(name="", of=("slow", "quick"), to=to)
    inputs = {role: arms[role] for role in ("arm:slow", "arm:quick")}
    made = job("frontier", {"frontier": canonical(rule)}, inputs, f"frontier-{to}")
    runners.frontier(made)
    return made.out


def score_rows(
    job: MakeJob, inputs: dict[str, Path], **changes: Any
) -> dict[tuple[str, str], dict[str, Any]]:
    rule = Score(frontier="", to=changes.pop("to", 32), **changes)
    made = job("score", {"score": canonical(rule)}, inputs, "score")
    runners.score(made)
    return {
        (row["model"], row["benchmark"]): row for row in pl.read_parquet(made.out / "reg.parquet").to_dicts()
    }


def means(folder: Path, benchmark: str) -> dict[int, float]:
    rows = [r for r in pl.read_parquet(folder / "forced.parquet").to_dicts() if r["benchmark"] == benchmark]
    return {b: float(np.mean([r["correct"] for r in rows if r["budget"] == b])) for b in GRID}


def area(top: dict[int, float], own: dict[int, float], to: int = 32) -> float:
    points = [b for b in GRID if b <= to]
    gaps = [top[b] - own[b] for b in points]
    return sum((b - a) * (g + h) / 2 for a, b, g, h in zip(points, points[1:], gaps, gaps[1:], strict=False))


def test_a_frontier_is_the_best_of_its_arms(job: MakeJob, arms: dict[str, Path]) -> None:
    out = made_frontier(job, arms)
    found = json.loads((out / "frontier.json").read_text())
    winners = pl.read_parquet(out / "winners.parquet").to_dicts()
    for benchmark in BENCHMARKS:
        own = {arm: means(arms[f"arm:{arm}"], benchmark) for arm in ("slow", "quick")}
        wanted = [max(own["slow"][b], own["quick"][b]) for b in GRID]
        assert found[benchmark]["accuracy"] == pytest.approx(wanted)
        for row in winners:
            if row["benchmark"] == benchmark:
                assert row["accuracy"] == pytest.approx(own[row["arm"]][row["budget"]])
                assert row["winner"] == (row["accuracy"] == row["frontier"])
    assert len(winners) == 2 * 2 * len(GRID)


def test_a_frontier_ends_where_it_is_told_to(job: MakeJob, arms: dict[str, Path]) -> None:
    assert read_frontier(made_frontier(job, arms, to=8) / "frontier.json")["easy"].budgets == (0, 2, 4, 8)


def test_published_curves_are_kept_as_they_are(job: MakeJob) -> None:
    curve = PublishedCurve(benchmark="Average", budgets=(0, 32), accuracy=(0.1, 0.9))
    rule = Frontier(name="", to=32, published=(curve,))
    made = job("frontier", {"frontier": canonical(rule)}, {})
    runners.frontier(made)
    assert read_frontier(made.out / "frontier.json")["Average"].accuracy == (0.1, 0.9)
    assert not (made.out / "winners.parquet").exists()


def test_a_score_finds_the_arms_of_a_frontier_by_what_they_were_called_then(
    job: MakeJob, arms: dict[str, Path]
) -> None:
    frontier = made_frontier(job, arms)
    wanted = score_rows(job, arms | {"frontier": frontier}, relative_to="slow")
    contents = {}
    for role, folder in arms.items():
        files = {"curves.json": {"sha256": role}}
        (folder / "manifest.json").write_text(json.dumps({"files": files}))
        contents[role] = part_digest({"curves.json": role}, ())
    (frontier / "manifest.json").write_text(json.dumps({"made": {"contents": contents}}))
    new = {"arm:slow": "arm:first", "arm:quick": "arm:slow", "arm:own": "arm:own"}
    other = {new[role]: folder for role, folder in arms.items()}
    found = score_rows(job, other | {"frontier": frontier}, relative_to="first")
    for (arm, benchmark), row in wanted.items():
        name = new[f"arm:{arm}"].removeprefix("arm:")
        assert found[name, benchmark] == row | {"model": name}


@pytest.mark.parametrize("to", [32, 8])
def test_reg_is_the_signed_area_to_the_frontier(job: MakeJob, arms: dict[str, Path], to: int) -> None:
    rows = score_rows(job, arms | {"frontier": made_frontier(job, arms)}, to=to, relative_to="slow")
    for benchmark in BENCHMARKS:
        own = {arm: means(arms[f"arm:{arm}"], benchmark) for arm in ("slow", "quick", "own")}
        top = {b: max(own["slow"][b], own["quick"][b]) for b in GRID}
        for arm, curve in own.items():
            row = rows[arm, benchmark]
            assert row["reg_plain"] == pytest.approx(area(top, curve, to))
            assert row["reg_low"] <= row["reg"] <= row["reg_high"]
            wanted = area(top, curve, to) - area(top, own["slow"], to)
            assert row["difference"] == pytest.approx(wanted)
            base = rows["slow", benchmark]
            assert row["reg"] - base["reg"] == pytest.approx(wanted)
            if base["reg_low"] > 0:
                assert row["change_pct"] == pytest.approx(100 * wanted / base["reg"])
            else:
                assert row["change_pct"] is None
            samples = pl.read_parquet(arms[f"arm:{arm}"] / "samples.parquet").filter(benchmark=benchmark)
            assert row["accuracy"] == pytest.approx(samples["correct"].mean())
            assert row["length"] == pytest.approx(samples["tokens"].mean())
    for arm in ("slow", "quick", "own"):
        for what in ("reg", "reg_plain"):
            mean = (rows[arm, "easy"][what] + rows[arm, "hard"][what]) / 2
            assert rows[arm, "mean"][what] == pytest.approx(mean)
        change = rows[arm, "mean"]["accuracy"] - rows["slow", "mean"]["accuracy"]
        assert rows[arm, "mean"]["accuracy_change"] == pytest.approx(change)
    assert rows["own", "mean"]["reg"] < 0, "an arm outside the frontier may beat it"


def test_an_arm_that_is_the_frontier_has_no_gap(job: MakeJob, arms: dict[str, Path]) -> None:
    made = job(
        "frontier",
        {"frontier": canonical(Frontier(name="", of=("quick",), to=32))},
        {"arm:quick": arms["arm:quick"]},
    )
    runners.frontier(made)
    row = score_rows(job, arms | {"frontier": made.out})["quick", "mean"]
    assert (row["reg"], row["reg_low"], row["reg_high"]) == (0, 0, 0)
    assert row["change_pct"] is None
    assert row["accuracy_change"] is None


def test_a_score_is_over_all_seeds_and_has_a_row_for_each(
    job: MakeJob, arms: dict[str, Path], tmp_path: Path
) -> None:
    """Seeds as roles name them, in any order; an arm without one is the same for all."""
    quick = {3: arms["arm:quick"], 12: evaluation(tmp_path / "more", 7, 6.0)}
    own = {3: arms["arm:own"], 12: evaluation(tmp_path / "again", 8, 3.0)}
    roles = {"arm:quick@12": quick[12], "arm:own@3": own[3], "arm:own@12": own[12], "arm:quick@3": quick[3]}
    inputs = {**roles, "arm:slow": arms["arm:slow"], "frontier": made_frontier(job, arms)}
    rule = Score(frontier="", to=32, relative_to="slow")
    made = job("score", {"score": canonical(rule)}, inputs, "score")
    runners.score(made)
    rows = {
        (row["model"], row["seed"]): row
        for row in pl.read_parquet(made.out / "reg.parquet").filter(benchmark="hard").to_dicts()
    }
    assert set(rows) == {(arm, seed) for arm in ("slow", "quick", "own") for seed in (None, 3, 12)}
    base = means(arms["arm:slow"], "hard")
    for seed in (3, 12):
        wanted = area(base, means(own[seed], "hard"))
        assert rows["own", seed]["difference"] == pytest.approx(wanted)
        top = {b: max(base[b], means(quick[seed], "hard")[b]) for b in GRID}
        assert rows["own", seed]["reg_plain"] == pytest.approx(area(top, means(own[seed], "hard")))
    both = [rows["own", seed]["difference"] for seed in (3, 12)]
    assert rows["own", None]["difference"] == pytest.approx(np.mean(both))
    assert rows["own", None]["difference_low"] < rows["own", None]["difference"]
    verdict = from_json(json.loads((made.out / "verdict.json").read_text()))
    assert set(verdict.arms) == {"slow", "quick", "own"}
    assert (verdict.baseline, verdict.seeds, verdict.questions) == ("slow", 2, 2 * QUESTIONS)
    (own_to_slow,) = (each for each in verdict.against_baseline if each.one == "own")
    averages = {
        seed: np.mean([area(means(arms["arm:slow"], b), means(own[seed], b)) for b in BENCHMARKS])
        for seed in own
    }
    assert own_to_slow.value == pytest.approx(np.mean(list(averages.values())))
    # An arm that is the same for all seeds has its responses compared in each.
    assert own_to_slow.common is not None
    assert own_to_slow.common.compared == 2 * len(BENCHMARKS) * QUESTIONS * SAMPLES
    texts = {
        place: dict(pl.read_parquet(place / "samples.parquet").select(key, "response").iter_rows())
        for key in [pl.concat_str("benchmark", "question", "sample").alias("key")]
        for place in (arms["arm:slow"], *own.values())
    }
    slow = texts[arms["arm:slow"]]
    assert own_to_slow.common.same == sum(texts[own[s]][key] == slow[key] for s in own for key in slow)


def test_of_many_arms_the_best_and_the_baseline_are_judged(
    job: MakeJob, arms: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "MAX_PAIRED", 2)
    rule = Score(frontier="", to=32, relative_to="slow")
    made = job("score", {"score": canonical(rule)}, arms | {"frontier": made_frontier(job, arms)}, "score")
    runners.score(made)
    assert from_json(json.loads((made.out / "verdict.json").read_text())).arms == ("own", "quick", "slow")
    monkeypatch.setattr(intervals, "MAX_PAIRED", 1)
    runners.score(made)
    assert from_json(json.loads((made.out / "verdict.json").read_text())).arms == ("own", "slow")


def test_a_mean_frontier_scores_the_mean(job: MakeJob, arms: dict[str, Path]) -> None:
    curve = PublishedCurve(benchmark="Average", budgets=(0, 16, 32), accuracy=(0.1, 0.8, 0.9))
    made = job("frontier", {"frontier": canonical(Frontier(name="", to=32, published=(curve,)))}, {})
    runners.frontier(made)
    rows = score_rows(job, arms | {"frontier": made.out}, relative_to="slow")
    top = dict(zip(GRID, np.interp(GRID, curve.budgets, curve.accuracy), strict=True))
    own = [means(arms["arm:own"], benchmark) for benchmark in BENCHMARKS]
    wanted = area(top, {b: (own[0][b] + own[1][b]) / 2 for b in GRID})
    assert rows["own", "mean"]["reg"] == pytest.approx(wanted)
    assert rows["own", "easy"]["reg"] is None
    assert rows["own", "easy"]["accuracy"] is not None


def test_arms_on_other_grids_are_refused(job: MakeJob, arms: dict[str, Path], tmp_path: Path) -> None:
    frontier = made_frontier(job, arms)
    arms["arm:own"] = evaluation(tmp_path / "coarse", 9, 2.0, grid=(0, 32))
    with pytest.raises(Problem) as caught:
        score_rows(job, arms | {"frontier": frontier})
    assert caught.value.diagnostics[0].code == "E0424"


def test_oracle_budgets_are_greedy_on_the_frontier(job: MakeJob, arms: dict[str, Path]) -> None:
    edge = made_frontier(job, arms)
    split = {"kind": "oracle", "frontier": "", "n": 2, "l_max": 32, "step": 2}
    made = job("budgets", {"split": split}, {"frontier": edge}, "oracle")
    runners.budgets(made)
    found = json.loads((made.out / "budgets.json").read_text())
    assert tuple(found["budgets"]) == greedy(read_frontier(edge / "frontier.json"), 32, 2, 2).budgets
    assert sum(found["weights"]) == pytest.approx(32 - found["budgets"][0] / 2)
    assert abs(found["approximation_error"]) < 0.2


L_MAX = 12


def trained_rollouts(folder: Path, seed: int, size: int, longest: int) -> tuple[Path, list[tuple[str, Any]]]:
    """A `train` artifact's rollouts, made up, and each group with what every prefix answers: `[rollouts, L_MAX + 1]`.

    Questions come again in other steps, and twice in one, where some were replaced.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir()
    rows: list[dict[str, Any]] = []
    groups = []
    for step, q in ((step, q) for step in (1, 1, 2, 3) for q in rng.permutation(15)[:8]):
        right = np.zeros((size, L_MAX + 1), dtype=bool)
        for rollout in range(size):
            tokens = int(rng.integers(1, longest + 1))
            count = min(tokens, int(rng.integers(0, 4)))
            cuts = sorted(rng.choice(np.arange(1, tokens + 1), size=count, replace=False).tolist())
            bare = [bool(rng.random() < 0.1 * (q % 7)) for _ in cuts]
            # With very many boxes the last ones are not followed, and the whole response says otherwise.
            correct = bool(rng.random() < 0.1) if count == 3 else bool(bare and bare[-1])
            for budget in range(L_MAX + 1):
                held = [verdict for at, verdict in zip(cuts, bare, strict=True) if at <= budget]
                right[rollout, budget] = correct if budget >= tokens else bool(held and held[-1])
            told = {"tokens": tokens, "correct": correct, "bare_cuts": cuts, "bare": bare}
            rows.append({"step": step, "question": f"q{q}", "rollout": rollout, **told})
        groups.append((f"q{q}", right))
    lists = {"bare_cuts": pl.List(pl.Int64), "bare": pl.List(pl.Boolean)}
    pl.DataFrame(rows, schema_overrides=lists).write_parquet(folder / "rollouts.parquet")
    return folder, groups


def asked_questions(folder: Path, count: int) -> Path:
    folder.mkdir()
    pl.DataFrame({"id": [f"q{i}" for i in range(count)]}).write_parquet(folder / "questions.parquet")
    return folder


def own_split(unsolved: str = "formula") -> dict[str, Any]:
    return {"split": {"kind": "question", "rollouts": [], "l_max": L_MAX, "unsolved": unsolved}}


@pytest.mark.parametrize("unsolved", ["formula", "l_max", "drop"])
def test_question_budgets_are_the_smallest_over_every_length_and_group(
    job: MakeJob, tmp_path: Path, unsolved: str
) -> None:
    """The paper's formula, L by L: arms with groups of unlike sizes, responses shorter and longer than the last budget."""
    one, groups = trained_rollouts(tmp_path / "a", 1, size=4, longest=16)
    two, more = trained_rollouts(tmp_path / "b", 2, size=6, longest=9)
    inputs = {"arm:a": one, "arm:b:1": two, "data": asked_questions(tmp_path / "data", 17)}
    made = job("budgets", own_split(unsolved), inputs, "question")
    runners.budgets(made)
    found = json.loads((made.out / "budgets.json").read_text())
    best: dict[str, Any] = {}
    for question, right in (*groups, *more):
        best[question] = np.maximum(best.get(question, 0.0), right.mean(axis=0))
    assert found["l_max"] == L_MAX
    assert set(found["questions"]) == set(best)
    for question, reached in best.items():
        if reached[L_MAX] == 0:
            assert found["questions"][question] == {"formula": 1, "l_max": L_MAX, "drop": None}[unsolved]
        else:
            smallest = min(n for n in range(1, L_MAX + 1) if reached[n] >= reached[L_MAX])
            assert found["questions"][question] == smallest
    assert len(set(found["questions"].values())) > 3, "the made-up rollouts tell questions apart"
    assert found["unsolved"] == sum(reached[L_MAX] == 0 for reached in best.values()) > 0
    assert found["unmet"] == 17 - len(best) >= 2


def test_questions_of_other_data_count_for_nothing(job: MakeJob, tmp_path: Path) -> None:
    one, groups = trained_rollouts(tmp_path / "a", 1, size=2, longest=16)
    made = job("budgets", own_split(), {"arm:a": one, "data": asked_questions(tmp_path / "data", 4)})
    runners.budgets(made)
    found = json.loads((made.out / "budgets.json").read_text())["questions"]
    assert set(found) == {f"q{i}" for i in range(4)} & {question for question, _ in groups}


def test_rollouts_on_other_questions_alone_are_refused(job: MakeJob, tmp_path: Path) -> None:
    one, _ = trained_rollouts(tmp_path / "a", 1, size=2, longest=16)
    data = tmp_path / "data"
    data.mkdir()
    pl.DataFrame({"id": ["r1", "r2"]}).write_parquet(data / "questions.parquet")
    with pytest.raises(Problem) as caught:
        runners.budgets(job("budgets", own_split(), {"arm:a": one, "data": data}))
    assert caught.value.diagnostics[0].code == "E0405"
    assert "2 questions" in str(caught.value)
