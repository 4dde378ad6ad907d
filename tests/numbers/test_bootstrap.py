"""The bootstrap against a slow reference that recomputes curves, frontier and REG in each draw; pairing; coverage."""

import dataclasses
import functools

import numpy as np
import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.bootstrap import ArmScores, bootstrap
from reodsl.numbers.curves import Curve
from reodsl.numbers.draws import question_counts
from reodsl.numbers.frontier import envelope
from reodsl.numbers.reg import change_pct, reg_table

BUDGETS = (0, 16, 32, 64, 128)
SIZES = {"easy": 7, "hard": 12}
OPTIONS = {"l_max": 100, "grid": (0, 16, 48, 128)}


def scores(seed, boost=0.0):
    rng = np.random.default_rng(seed)
    forced = {b: np.clip(rng.random((q, 5)) * [0.2, 0.5, 0.7, 1, 1] + boost, 0, 1) for b, q in SIZES.items()}
    return ArmScores(
        forced,
        {b: rng.random(q) for b, q in SIZES.items()},
        {b: rng.integers(5, 128, q).astype(float) for b, q in SIZES.items()},
    )


ARMS = {"base": scores(1), "short": scores(2), "reo": scores(3, 0.2)}


def drawn(seed, benchmark, questions, resamples, **more):
    """All lots together."""
    return np.concatenate(list(question_counts(seed, benchmark, questions, resamples, **more)))


def slow(arms, frontier_of, relative_to, resamples, seed):
    """Every quantity of every draw, by lists of question indices and the functions for whole curves."""
    counts = {b: drawn(seed, b, q, resamples) for b, q in SIZES.items()}
    out = {}
    for draw in range(resamples):
        picked = {b: [i for i in range(q) for _ in range(counts[b][draw][i])] for b, q in SIZES.items()}
        curves = {
            m: {b: Curve(BUDGETS, tuple(arm.forced[b][picked[b]].mean(axis=0).tolist())) for b in SIZES}
            for m, arm in arms.items()
        }
        frontier = (
            frontier_of
            if isinstance(frontier_of, dict)
            else envelope({m: curves[m] for m in frontier_of}).curves
        )
        table = reg_table(frontier, curves, **OPTIONS)
        for m, arm in arms.items():
            for b in (*SIZES, "mean"):
                used = SIZES if b == "mean" else [b]
                base = table[relative_to, b].reg
                row = (
                    np.mean([arm.accuracy[x][picked[x]].mean() for x in used]),
                    np.mean([arm.length[x][picked[x]].mean() for x in used]),
                    table[m, b].reg,
                    table[m, b].reg - base,
                    change_pct(table[m, b].reg, base),
                )
                out.setdefault((m, b), []).append(row)
    return out


@pytest.mark.parametrize(
    "frontier",
    [
        ["base", "short"],
        {b: Curve((0, 64, 128), (0.5, 0.9, 0.95)) for b in SIZES},
    ],
    ids=["recomputed", "fixed"],
)
def test_against_a_slow_reference(frontier):
    found = bootstrap(
        ARMS, BUDGETS, frontier, **OPTIONS, relative_to="base", resamples=60, confidence=0.9, seed=5
    )
    reference = slow(ARMS, frontier, "base", 60, 5)
    assert [(r.model, r.benchmark) for r in found] == [(m, b) for m in ARMS for b in (*SIZES, "mean")]
    for row in found:
        draws = np.array(reference[row.model, row.benchmark])
        for k, interval in enumerate((row.accuracy, row.length, row.reg, row.difference, row.change_pct)):
            low, high = np.quantile(draws[:, k], [0.05, 0.95])
            assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


def test_values_are_those_of_all_questions():
    curves = {
        m: {b: Curve(BUDGETS, tuple(arm.forced[b].mean(axis=0).tolist())) for b in SIZES}
        for m, arm in ARMS.items()
    }
    edge = envelope({m: curves[m] for m in ("base", "short")}).curves
    table = reg_table(edge, curves, **OPTIONS, relative_to="base")
    for row in bootstrap(ARMS, BUDGETS, ["base", "short"], **OPTIONS, relative_to="base", resamples=5):
        expected = table[row.model, row.benchmark]
        assert row.reg.value == pytest.approx(expected.reg, abs=1e-9)
        assert row.change_pct.value == pytest.approx(expected.change_pct, abs=1e-9)
        assert row.difference.value == pytest.approx(
            expected.reg - table["base", row.benchmark].reg, abs=1e-9
        )


def test_the_same_seed_gives_the_same_numbers_and_another_does_not():
    def run(seed):
        return bootstrap(ARMS, BUDGETS, ["base"], **OPTIONS, resamples=50, seed=seed)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_draws_belong_to_seed_and_benchmark_alone():
    alone = {m: ArmScores(*({"hard": f["hard"]} for f in vars_of(arm))) for m, arm in ARMS.items()}
    both = bootstrap(ARMS, BUDGETS, ["base"], **OPTIONS, resamples=50)
    only = bootstrap({"reo": alone["reo"], "base": alone["base"]}, BUDGETS, ["base"], **OPTIONS, resamples=50)
    pick = [r for r in both if (r.model, r.benchmark) == ("reo", "hard")]
    assert [r for r in only if (r.model, r.benchmark) == ("reo", "hard")] == pick


def vars_of(arm):
    return [getattr(arm, field.name) for field in dataclasses.fields(arm)]


def test_the_draws_are_paired():
    """A copy of the baseline differs from it by exactly nothing; a shift by exactly the shift."""
    copy = ARMS["base"]
    shifted = dataclasses.replace(copy, forced={b: v * 0.5 + 0.25 for b, v in copy.forced.items()})
    rows = bootstrap(
        {"base": copy, "copy": copy, "half": shifted},
        BUDGETS,
        ["base"],
        **OPTIONS,
        relative_to="base",
        resamples=40,
    )
    for row in rows:
        if row.model in ("base", "copy"):
            assert (row.difference.low, row.difference.high) == (0, 0)
            assert row.change_pct is None  # the baseline is its own frontier: REG 0
            assert (row.reg.low, row.reg.high) == (0, 0)
    assert any(row.difference.low < row.difference.high for row in rows if row.model == "half")


def test_a_member_of_the_frontier_is_never_beyond_it_and_others_may_be():
    better = {"base": ARMS["base"], "reo": scores(1, 0.3)}
    rows = bootstrap(better, BUDGETS, ["base"], **OPTIONS, resamples=200)
    assert all(row.reg.low >= 0 for row in rows if row.model == "base")
    assert all(row.reg.high < 0 for row in rows if row.model == "reo")


def test_a_published_mean_scores_the_mean_only():
    edge = {"Average": Curve((0, 128), (0.9, 0.9))}
    rows = {
        r.benchmark: r for r in bootstrap(ARMS, BUDGETS, edge, **OPTIONS, relative_to="base", resamples=50)
    }
    assert rows["easy"].reg is None
    assert rows["easy"].difference is None
    assert rows["mean"].reg is not None
    curves = {
        m: {b: Curve(BUDGETS, tuple(arm.forced[b].mean(axis=0).tolist())) for b in SIZES}
        for m, arm in ARMS.items()
    }
    assert rows["mean"].reg.value == pytest.approx(reg_table(edge, curves, **OPTIONS)["reo", "mean"].reg)


def test_counts_are_draws_with_replacement():
    counts = drawn(3, "AIME 2024", 30, 4000)
    assert counts.shape == (4000, 30)
    assert (counts.sum(axis=1) == 30).all()
    # each count is binomial(30, 1/30): mean 1, variance 29/30
    assert counts.mean(axis=0) == pytest.approx(np.ones(30), abs=0.1)
    assert counts.var() == pytest.approx(29 / 30, abs=0.03)
    assert (counts != drawn(3, "AIME 2025", 30, 4000)).any()
    # words of the generator are part of the result's identity
    assert drawn(0, "Math", 5, 2).tolist() == DRAWN


# Raw Philox words under the first 16 bytes of SHA-256 of `0\0Math` as the key, each scaled to 0 … 4 in whole numbers.
DRAWN = [[0, 3, 1, 0, 1], [1, 1, 2, 1, 0]]


@pytest.mark.parametrize("most", [1, 30, 31, 100, 10**9])
def test_draws_are_the_same_however_they_are_cut_into_lots(most):
    lots = list(question_counts(3, "AIME 2024", 30, 50, most=most))
    assert max(lot.size for lot in lots) <= max(30, most)
    assert len(lots) == -(-50 // max(1, most // 30))
    assert np.array_equal(np.concatenate(lots), drawn(3, "AIME 2024", 30, 50))


def test_lots_change_no_bit_of_an_interval(monkeypatch):
    arms = {name: scores(seed) for seed, name in enumerate(("base", "short", "reo"))}
    whole = bootstrap(arms, BUDGETS, ["base", "short"], **OPTIONS, relative_to="base", resamples=50)
    cut = functools.partial(question_counts, most=17)
    monkeypatch.setattr("reodsl.numbers.bootstrap.question_counts", cut)
    assert bootstrap(arms, BUDGETS, ["base", "short"], **OPTIONS, relative_to="base", resamples=50) == whole


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """90% intervals of a mean accuracy over 60 questions; 200 data sets give 180 hits, give or take."""
    hits = 0
    for k in range(200):
        right = (np.random.default_rng(k).random(60) < 0.4).astype(float)
        arm = ArmScores({"q": np.repeat(right[:, None], 2, axis=1)}, {"q": right}, {"q": right})
        (row, _) = bootstrap({"m": arm}, (0, 64), ["m"], grid=(0, 64), resamples=200, confidence=0.9, seed=k)
        hits += row.accuracy.low <= 0.4 <= row.accuracy.high
    assert 165 <= hits <= 192


def test_bad_input():
    def code(arms=ARMS, budgets=BUDGETS, frontier=("base",), **options):
        with pytest.raises(Problem) as caught:
            bootstrap(arms, budgets, frontier, **{**OPTIONS, "resamples": 3, **options})
        (found,) = caught.value.diagnostics
        assert found.help
        return found.code

    base = ARMS["base"]
    fewer = dataclasses.replace(base, accuracy={**base.accuracy, "hard": base.accuracy["hard"][1:]})
    nan = dataclasses.replace(base, length={**base.length, "hard": base.length["hard"] * np.nan})
    percent = dataclasses.replace(base, forced={b: v * 100 for b, v in base.forced.items()})
    lacking = dataclasses.replace(base, forced={"easy": base.forced["easy"]})
    assert code(arms={}) == "E0431"
    assert code(arms={"base": ArmScores({}, {}, {})}) == "E0431"
    for bad in (fewer, nan, percent, lacking):
        assert code(arms={"base": base, "x": bad}) == "E0431"
    assert code(budgets=(0, 16, 32)) == "E0431"
    assert code(budgets=(0, 16, 32, 64, 64)) == "E0423"
    assert code(frontier=("nobody",)) == "E0428"
    assert code(relative_to="nobody") == "E0428"
    assert code(frontier={"easy": Curve((0, 128), (1, 1))}) == "E0425"
    assert code(frontier={b: Curve((0, 64), (1, 1)) for b in SIZES}) == "E0424"
    assert code(l_max=256, grid=(0, 256)) == "E0424"
    assert code(resamples=0) == "E0430"
    assert code(confidence=95) == "E0430"
