"""Rows of scores against the functions for whole curves; intervals against formulas written out; pairing; coverage."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.intervals import PAGE, SCENARIOS, STARS, committed, outcomes, texts
from benchmarks.tables import place
from reodsl.diagnostics import Problem
from reodsl.numbers.arm_scores import ArmScores
from reodsl.numbers.crossed import spread_of
from reodsl.numbers.curves import Curve, envelope
from reodsl.numbers.intervals import (
    MEASURES,
    ArmCells,
    Comparisons,
    EdgeGroups,
    Interval,
    add_stars,
    compare_arms,
    correct,
    difference,
    fitted_spread,
    one_sided,
    round_interval,
    score_arms,
)
from reodsl.numbers.intervals import scores as score_row
from reodsl.numbers.reg import reg_table, t_quantile
from tests.numbers.test_verdict import slow_holm

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


ONE = {"base": [scores(1)], "short": [scores(2)], "reo": [scores(3, 0.2)]}
THREE = {name: [scores(10 * k + seed, 0.2 * (k == 2)) for seed in range(3)] for k, name in enumerate(ONE)}
SEEDS = (4, 5, 6)


def rows_of(arms, frontier, **more):
    seeds = SEEDS if any(len(each) > 1 for each in arms.values()) else (4,)
    found = score_arms(arms, BUDGETS, frontier, seeds=seeds, **OPTIONS, **{"relative_to": "base"} | more)
    return {(row.model, row.benchmark, row.seed): row for row in found}


def curves_of(arm):
    return {b: Curve(BUDGETS, tuple(arm.forced[b].mean(axis=0).tolist())) for b in SIZES}


def test_rows_stand_by_model_and_benchmark_then_by_seed():
    names = [(m, b, None) for m in ONE for b in (*SIZES, "mean")]
    assert list(rows_of(ONE, ["base", "short"])) == names
    several = [(m, b, seed) for seed in SEEDS for m, b, _ in names]
    assert list(rows_of(THREE, ["base", "short"])) == [*names, *several]


def test_plain_reg_is_the_papers_in_every_seed_and_the_mean_of_those():
    rows = rows_of(THREE, ["base", "short"])
    tables = []
    for index, seed in enumerate(SEEDS):
        curves = {name: curves_of(of_seeds[index]) for name, of_seeds in THREE.items()}
        edge = envelope({m: curves[m] for m in ("base", "short")}).curves
        tables.append(reg_table(edge, curves, **OPTIONS))
        for m in THREE:
            for b in (*SIZES, "mean"):
                assert rows[m, b, seed].reg_plain == pytest.approx(tables[-1][m, b].reg, abs=1e-9)
                wanted = tables[-1][m, b].reg - tables[-1]["base", b].reg
                assert rows[m, b, seed].difference.value == pytest.approx(wanted, abs=1e-9)
    for m in THREE:
        for b in (*SIZES, "mean"):
            own = np.mean([table[m, b].reg for table in tables])
            base = np.mean([table["base", b].reg for table in tables])
            assert rows[m, b, None].reg_plain == pytest.approx(own, abs=1e-9)
            assert rows[m, b, None].difference.value == pytest.approx(own - base, abs=1e-9)
            # The frontier cancels, so it is the same between REGs against the cross-fitted one.
            gap = rows[m, b, None].reg.value - rows["base", b, None].reg.value
            assert gap == pytest.approx(own - base, abs=1e-9)


def test_a_difference_within_a_seed_needs_no_other_seed():
    """REG is linear in curves, so that a frontier drops out of a difference, be it of all seeds or of one."""
    together = rows_of(THREE, ["base", "short"])
    for index, seed in enumerate(SEEDS):
        alone = rows_of({name: [of_seeds[index]] for name, of_seeds in THREE.items()}, ["base", "short"])
        for m, b, _ in alone:
            one, same = alone[m, b, None], together[m, b, seed]
            assert one.reg_plain == pytest.approx(same.reg_plain, abs=1e-9)
            assert one.difference.value == pytest.approx(same.difference.value, abs=1e-9)
            gaps = [each.reg.value for each in (one, alone["base", b, None], same, together["base", b, seed])]
            assert gaps[0] - gaps[1] == pytest.approx(gaps[2] - gaps[3], abs=1e-8)
        moved = alone["base", "mean", None].reg.value - together["base", "mean", seed].reg.value
        assert abs(moved) > 0.1, "REG itself is against another frontier"


def test_the_mean_over_seeds_is_the_studys_value():
    rows = rows_of(THREE, ["base", "short"])
    for m in THREE:
        for b in (*SIZES, "mean"):
            for what in ("accuracy", "length", "reg", "difference", "accuracy_change", "length_change"):
                each = [getattr(rows[m, b, seed], what).value for seed in SEEDS]
                assert getattr(rows[m, b, None], what).value == pytest.approx(np.mean(each), abs=1e-9)
                assert getattr(rows[m, b, SEEDS[0]], what).low is None


def test_with_one_seed_an_interval_of_a_difference_is_students_over_questions():
    rows = rows_of(ONE, ["base", "short"])
    each = ONE["reo"][0].accuracy["hard"] - ONE["base"][0].accuracy["hard"]
    reach = t_quantile(0.975, 11) * each.std(ddof=1) / math.sqrt(12)
    found = rows["reo", "hard", None].accuracy_change
    assert (found.low, found.value, found.high) == pytest.approx(
        (each.mean() - reach, each.mean(), each.mean() + reach)
    )


def test_the_draws_are_paired():
    """A copy of the baseline differs from it by exactly nothing, and is not apart from it."""
    arms = {"base": ONE["base"], "copy": ONE["base"], "half": [dataclasses.replace(ONE["base"][0])]}
    arms["half"][0] = dataclasses.replace(
        arms["half"][0], forced={b: v * 0.5 + 0.25 for b, v in arms["half"][0].forced.items()}
    )
    rows = rows_of(arms, ["base"])
    for b in (*SIZES, "mean"):
        copy = rows["copy", b, None]
        assert (copy.difference.low, copy.difference.value, copy.difference.high) == (0, 0, 0)
        assert not copy.difference.excludes_zero
        assert copy.change_pct is None  # the baseline is its own frontier: REG 0
        assert (copy.reg.low, copy.reg.high) == (0, 0)
    assert rows["half", "mean", None].difference.low < rows["half", "mean", None].difference.high


def test_a_percentage_needs_a_denominator_that_is_apart_from_0():
    rows = rows_of(ONE, ["reo"])
    base = rows["base", "mean", None].reg
    assert base.excludes_zero
    wanted = 100 * rows["short", "mean", None].difference.value / base.value
    assert rows["short", "mean", None].change_pct == pytest.approx(wanted)
    of_seeds = rows_of(THREE, ["reo"])
    gap = of_seeds["base", "mean", SEEDS[0]].reg.value
    wanted = 100 * of_seeds["short", "mean", SEEDS[0]].difference.value / gap
    assert of_seeds["short", "mean", SEEDS[0]].change_pct == pytest.approx(wanted)
    near = rows_of(ONE, ["base", "short"])
    assert not near["base", "mean", None].reg.excludes_zero
    assert near["reo", "mean", None].change_pct is None
    assert near["reo", "mean", None].difference.excludes_zero


@pytest.mark.parametrize("right", [True, False])
def test_an_interval_of_accuracy_ends_where_none_can_be(right):
    """All answers but one are alike, or all, so that Student's interval would go on past 0 or 1 or have no width."""
    alike = {b: np.where(np.arange(q) > 0, float(right), float(not right)) for b, q in SIZES.items()}
    arms = {name: [dataclasses.replace(ONE[name][0], accuracy=alike)] for name in ("base", "reo")}
    found = rows_of(arms, ["reo"])["base", "easy", None].accuracy
    assert 0 < found.low < found.value < found.high < 1
    same = {b: np.full(q, float(right)) for b, q in SIZES.items()}
    arms["base"] = [dataclasses.replace(ONE["base"][0], accuracy=same)]
    for benchmark, questions in {**SIZES, "mean": 4 / (1 / 7 + 1 / 12)}.items():
        found = rows_of(arms, ["reo"])["base", benchmark, None].accuracy
        # Wilson's interval of a share that is 0 or 1, with Student's quantile.
        width = 1 / (1 + questions / t_quantile(0.975, questions - 1) ** 2)
        assert (found.low, found.high) == pytest.approx((1 - width, 1) if right else (0, width))


def test_a_model_that_is_the_same_for_all_seeds_is_given_once():
    """As if it had been evaluated once a seed with the same scores."""
    once = {**THREE, "base": THREE["base"][:1]}
    thrice = {**THREE, "base": THREE["base"][:1] * 3}
    assert rows_of(once, ["base", "short"]) == rows_of(thrice, ["base", "short"])
    assert rows_of(once, ["base", "short"])["base", "mean", None].accuracy.low is not None


def test_an_arm_outside_the_frontier_may_be_beyond_it():
    rows = rows_of(THREE, ["base", "short"])
    assert rows["reo", "mean", None].reg.high < 0
    for row in rows.values():
        if row.seed is None:
            assert row.reg.low <= row.reg.value <= row.reg.high
            assert row.reg.value <= row.reg_plain + 1e-9 or row.model == "reo"


def test_equal_input_gives_equal_output():
    assert rows_of(THREE, ["base", "short"]) == rows_of(THREE, ["base", "short"])


def test_one_question_has_values_and_no_intervals():
    def first(arm):
        return ArmScores(
            {"easy": arm.forced["easy"][:1], "hard": arm.forced["hard"]},
            {"easy": arm.accuracy["easy"][:1], "hard": arm.accuracy["hard"]},
            {"easy": arm.length["easy"][:1], "hard": arm.length["hard"]},
        )

    rows = rows_of({m: [first(arm) for arm in arms] for m, arms in ONE.items()}, ["base", "short"])
    for b in ("easy", "mean"):
        row = rows["reo", b, None]
        assert row.reg.low is None
        assert row.difference.low is None
        assert not row.difference.excludes_zero
        assert row.accuracy.value > 0
    assert rows["reo", "hard", None].reg.low is not None


def test_a_published_mean_scores_the_mean_only_and_differences_need_no_frontier():
    edge = {"Average": Curve((0, 128), (0.9, 0.9))}
    rows = rows_of(ONE, edge)
    assert rows["reo", "easy", None].reg is None
    assert rows["reo", "easy", None].difference is not None
    curves = {m: curves_of(arm) for m, (arm,) in ONE.items()}
    wanted = reg_table(edge, curves, **OPTIONS)["reo", "mean"].reg
    assert rows["reo", "mean", None].reg.value == pytest.approx(wanted)
    assert rows["reo", "mean", None].reg_plain == pytest.approx(wanted)
    assert rows["reo", "mean", None].reg.low < wanted < rows["reo", "mean", None].reg.high


def test_a_gap_to_a_fitted_frontier_has_a_degree_of_freedom_less_than_groups():
    """On one benchmark; its variance is the mean of that by groups and of the jackknife's."""
    rng = np.random.default_rng(3)
    groups, sizes = np.repeat(np.arange(4), [2, 3, 1, 2]), np.array([2.0, 3.0, 1.0, 2.0])
    area, cells, without = rng.random((1, 8)), rng.random((1, 4)), rng.random(4)
    found = fitted_spread(
        ArmCells({"b": area}, {}, {}, False), {"b": EdgeGroups(cells, cells, without, sizes, groups)}
    )
    assert found.question_df == pytest.approx(3)
    gaps = [without[g] - area[0, groups != g].mean() for g in range(4)]
    jackknifed = 3 / 4 * sum((gap - sum(gaps) / 4) ** 2 for gap in gaps)
    by_group = [cells[0, g] - area[0, groups == g].mean() for g in range(4)]
    fixed = spread_of({"b": np.array([by_group])}).questions
    assert found.questions == pytest.approx((fixed + jackknifed) / 2)


def test_a_row_takes_the_typical_variance_of_its_study():
    rng = np.random.default_rng(5)
    arm, base = (
        ArmCells(*({"b": rng.random((2, 9)) + shift} for _ in range(3)), True) for shift in (0.01, 0.0)
    )
    typical = {(what, True): 1.0 for what in MEASURES}
    row = score_row("arm", "b", ["b"], arm, base, 0.95, typical)
    bare = score_row("arm", "b", ["b"], arm, base, 0.95)
    wanted = difference(arm, base, "accuracy", ["b"], 0.95, typical)
    assert row.accuracy_change == wanted
    assert row.accuracy_change.p > bare.accuracy_change.p


def test_a_gap_that_is_nothing_is_written_without_a_sign():
    assert math.copysign(1.0, round_interval(Interval(-1e-12)).value) == 1.0


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.5, 2.0, 50.0])
def test_a_truth_between_two_ends_is_covered_at_its_worst_as_often_as_is_said(gap):
    normal = NormalDist()
    c = normal.inv_cdf(one_sided(gap, 1.0, 0.95))
    # The truth at either end: missed beyond the near end, or beyond the far one.
    assert normal.cdf(c + gap) - normal.cdf(-c) == pytest.approx(0.95, abs=1e-9)
    assert one_sided(-1.0, 1.0, 0.95) == 0.975
    assert one_sided(1.0, 0.0, 0.95) == 0.95


@pytest.mark.parametrize(
    "name", ["1 seed, 5 arms, apart", pytest.param("3 seeds, 5 arms, equal", marks=pytest.mark.heavy)]
)
def test_intervals_hold_a_known_truth_about_as_often_as_they_say(name):
    """A small cut of `make intervals`: 95% of what 24 studies say, less four standard errors of as many independent ones."""
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    found = [outcomes(scenario, 100_000 + number) for number in range(24)]
    for measure in ("difference", "reg"):
        assert np.mean([value for each in found for value in each[measure]]) > 0.95 - 4 * math.sqrt(
            0.05 * 0.95 / 24
        )
    errors = [np.mean(each["reg_bias"]) for each in found]
    assert abs(np.mean(errors)) < 1.0 + 4 * np.std(errors) / math.sqrt(24)
    if name.endswith("equal"):
        assert np.mean([each["plain_bias"] for each in found]) > 3
        assert np.mean([value for each in found for value in each["usual"]]) < 0.6


def row(model, benchmark, difference, accuracy=None):
    rows = rows_of(ONE, ["base"])
    p = {"difference": difference, "accuracy_change": accuracy}
    changes = {what: None if each is None else Interval(1.0, 0.5, 1.5, each) for what, each in p.items()}
    return dataclasses.replace(rows["reo", "mean", None], model=model, benchmark=benchmark, **changes)


def of_means(rows, confidence):
    """Comparisons that are those of the rows' means, and no others."""
    means = {each.model: each for each in rows if each.benchmark == "mean" and each.model != "base"}
    every = [
        *(each.difference for each in means.values()),
        *(each.accuracy_change for each in means.values()),
    ]
    corrected = correct(every, confidence)
    reg = {(name, "base"): each for name, each in zip(means, corrected, strict=False)}
    accuracy = dict(zip(means, corrected[len(reg) :], strict=True))
    against = dict.fromkeys(means, "base")
    return Comparisons((), reg, accuracy, {}, against, len(every), 1, 1, confidence)


def test_a_star_on_a_benchmark_needs_the_means():
    rows = [
        row("a", "easy", 0.004, 0.5),
        row("a", "mean", 0.03, 0.3),
        row("b", "easy", 0.004, 0.003),
        row("b", "mean", 0.001, 0.01),
        row("base", "mean", 1.0, 1.0),
    ]
    found = {(each.model, each.benchmark): each for each in add_stars(rows, of_means(rows, 0.95))}
    wanted = dict(zip(("ad", "aa", "bd", "ba"), slow_holm([0.03, 0.3, 0.001, 0.01]), strict=True))
    of_easy = dict(zip(("ad", "aa", "bd", "ba"), slow_holm([0.004, 0.5, 0.004, 0.003]), strict=True))
    for model in "ab":
        for what, letter in (("difference", "d"), ("accuracy_change", "a")):
            mean, easy = (getattr(found[model, place], what) for place in ("mean", "easy"))
            assert mean.p_holm == pytest.approx(wanted[model + letter])
            assert easy.p_holm == pytest.approx(max(of_easy[model + letter], mean.p_holm))
            assert (mean.significant, easy.significant) == (mean.p_holm <= 0.05, easy.p_holm <= 0.05)
            assert (mean.low, mean.high) == (0.5, 1.5)  # the interval stays as it is
    assert [found["b", place].difference.significant for place in ("mean", "easy")] == [True, True]
    assert not found["a", "mean"].difference.significant
    assert of_easy["ad"] <= 0.05
    assert not found["a", "easy"].difference.significant
    assert not found["base", "mean"].difference.significant
    assert {each.difference.significant for each in add_stars(rows, of_means(rows, 0.9))} == {True, False}


def test_a_p_value_is_that_of_the_interval_that_ends_at_zero():
    options = OPTIONS | {"seeds": 3}
    for two, change in compare_arms(THREE, BUDGETS, **options).reg.items():
        for off, apart in ((-1e-6, True), (1e-6, False)):
            again = compare_arms(THREE, BUDGETS, confidence=1 - change.p + off, **options).reg[two]
            assert again.excludes_zero is apart


def test_the_committed_tables_are_the_pages():
    page = PAGE.read_text()
    assert place(page, texts(committed())) == page
    tallies = committed()
    assert {each.name: each.studies for each in (*SCENARIOS, *STARS)} == {
        name: tally.studies for name, tally in tallies.items()
    }
    for scenario in SCENARIOS:
        assert 0.93 < tallies[scenario.name].mean("difference") < 0.97, scenario.name
    for scenario in STARS:
        assert tallies[scenario.name].mean("starred") <= 0.05, scenario.name
        assert 0.93 < tallies[scenario.name].mean("held") < 0.97, scenario.name


def test_bad_input():
    def code(arms=ONE, budgets=BUDGETS, frontier=("base",), **options):
        with pytest.raises(Problem) as caught:
            score_arms(arms, budgets, frontier, **{**OPTIONS, **options})
        (found,) = caught.value.diagnostics
        assert found.help
        return found.code

    (base,) = ONE["base"]
    fewer = dataclasses.replace(base, accuracy={**base.accuracy, "hard": base.accuracy["hard"][1:]})
    nan = dataclasses.replace(base, length={**base.length, "hard": base.length["hard"] * np.nan})
    percent = dataclasses.replace(base, forced={b: v * 100 for b, v in base.forced.items()})
    lacking = dataclasses.replace(base, forced={"easy": base.forced["easy"]})
    assert code(arms={}) == "E0431"
    assert code(arms={"base": [ArmScores({}, {}, {})]}) == "E0431"
    for bad in (fewer, nan, percent, lacking):
        assert code(arms={"base": [base], "x": [bad]}) == "E0431"
    assert code(budgets=(0, 16, 32)) == "E0431"
    assert code(budgets=(0, 16, 32, 64, 64)) == "E0421"
    assert code(frontier=("nobody",)) == "E0114"
    assert code(relative_to="nobody") == "E0114"
    assert code(frontier={"easy": Curve((0, 128), (1, 1))}) == "E0425"
    assert code(frontier={b: Curve((0, 64), (1, 1)) for b in SIZES}) == "E0424"
    assert code(l_max=256, grid=(0, 256)) == "E0424"
    assert code(arms={"base": [base], "x": [base, base]}, seeds=(1, 2, 3)) == "E0431"
    assert code(confidence=95) == "E0303"
