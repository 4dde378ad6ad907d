"""How often intervals hold the truth: studies drawn from a model whose truth is known in; coverage and bias out.

    python -m benchmarks.intervals            # goes on where it stopped; writes tables/intervals.json and INTERVALS.md
    python -m benchmarks.intervals --share .1 # a tenth of the studies, printed and not written

The model knows nothing of the code under test. A response is right at a budget once it has reached its answer. Whether it
ever does, and after how many tokens, has normal effects (on the probit scale, and of the logarithm) of the training, the
question, the question with the arm, the question with the training, and the sample; so an arm's true curve is a product of
two normal distribution functions, in closed form.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import KEPT as TABLES
from benchmarks.tables import ROOT, markdown, rewrite
from reodsl.diagnostics import in_percent
from reodsl.numbers.intervals import ArmScores, Interval, compare_arms, score_arms

PAGE = ROOT / "benchmarks" / "INTERVALS.md"
KEPT = ROOT / "runs" / "intervals.json"
TABLE = TABLES / "intervals.json"
"""The data of the page's tables: by scenario the number of studies and the sum of each measure over them."""

BENCHMARKS, QUESTIONS, SAMPLES = ("first", "second"), 48, 2
GRID = (0, 8, 16, 24, 32, 40, 48, 64, 96, 128)
JUDGED = "judged"
PRINTED = 0.05
"""Half of the last printed digit of REG, in tokens: as near as an interval can be read."""
DRAWS = 200
"""Draws of the percentile bootstrap that stands beside for comparison."""

# Standard deviations: whether a response gets there (probit), and the logarithm of when.
TRAINING = (0.12, 0.06)
QUESTION, WITH_ARM, WITH_TRAINING, SAMPLE = (0.8, 0.35), (0.25, 0.12), (0.3, 0.15), (1.0, 0.2)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """Arms of a frontier, with `reach` (probit) and `pace` (tokens) from the best to the worst; a further arm is judged."""

    name: str
    seeds: int
    arms: int
    studies: int
    reach: tuple[float, float] = (1.6, 1.6)
    pace: tuple[float, float] = (30.0, 30.0)
    training: tuple[float, float] = TRAINING
    judged: tuple[float, float] = (1.65, 20.0)
    uneven: float = 1.0
    """The factor by which seeds change the last arm more than the first; arms between rise by even factors."""

    @property
    def apart(self) -> bool:
        """Whether the first arm alone is the frontier, and its REG 0 in any study: it says nothing of intervals."""
        return self.pace[1] > 2 * self.pace[0]

    def settings(self) -> tuple[Floats, Floats]:
        """Reach and logarithm of the pace by arm; the judged arm is last, and a little ahead of all."""
        reach = np.append(np.linspace(*self.reach, self.arms), self.judged[0])
        return reach, np.log(np.append(np.linspace(*self.pace, self.arms), self.judged[1]))

    def trainings(self) -> Floats:
        """The standard deviations of the effects of a training, [arms, 2]."""
        side = math.sqrt(self.uneven)
        deviations: Floats = np.geomspace(1 / side, side, self.arms + 1)[:, None] * np.array(self.training)
        return deviations


FAR: dict[str, Any] = {"reach": (1.6, 0.6), "pace": (24.0, 60.0)}
NEAR: dict[str, Any] = {"reach": (1.6, 1.4), "pace": (28.0, 32.0)}
SAME: dict[str, Any] = {"training": (0.0, 0.0)}
SCENARIOS = (
    Scenario("1 seed, 2 arms, equal", 1, 2, 300, **SAME),
    Scenario("1 seed, 5 arms, apart", 1, 5, 300, **SAME, **FAR),
    Scenario("1 seed, 13 arms, equal", 1, 13, 300, **SAME),
    Scenario("1 seed, 5 arms, equal but for their training", 1, 5, 300),
    Scenario("3 seeds, 2 arms, apart", 3, 2, 300, **FAR),
    Scenario("3 seeds, 5 arms, equal", 3, 5, 300),
    Scenario("3 seeds, 5 arms, near", 3, 5, 300, **NEAR),
    Scenario("3 seeds, 13 arms, equal", 3, 13, 300),
    Scenario("3 seeds, 13 arms, apart", 3, 13, 300, **FAR),
    Scenario("10 seeds, 2 arms, equal", 10, 2, 300),
    Scenario("10 seeds, 5 arms, apart", 10, 5, 300, **FAR),
    Scenario("10 seeds, 5 arms, near", 10, 5, 300, **NEAR),
    Scenario("10 seeds, 13 arms, equal", 10, 13, 300),
)


def equal(seeds: int, uneven: float) -> Scenario:
    """Twelve equal arms, the first of which is the baseline."""
    factor = f"{max(uneven, 1 / uneven):g}"
    change = {
        False: f", seeds change the baseline {factor} times as much as the last arm",
        True: f", seeds change the last arm {factor} times as much as the baseline",
    }
    name = f"{seeds} seed{'s' * (seeds > 1)}{'' if uneven == 1 else change[uneven > 1]}"
    more = SAME if seeds == 1 else {"uneven": uneven}
    return Scenario(name, seeds, 11, 600, judged=(1.6, 30.0), **more)


STARS = (equal(1, 1), *(equal(seeds, uneven) for uneven in (1, 9, 1 / 9) for seeds in (2, 3, 5, 10)))
"""Studies of equal arms, in which every star is a false one."""


def truth(reach: Floats, pace: Floats, spreads: Sequence[tuple[float, float]]) -> Floats:
    """The expected scores at the budgets, by arm: [arms, budgets]. `spreads` are those that it is the mean over."""
    normal = NormalDist()
    width = np.sqrt(1 + sum(a**2 for a, _ in spreads)), np.sqrt(sum(b**2 for _, b in spreads))
    return np.array([
        [
            0.0 if budget == 0 else normal.cdf(a / width[0]) * normal.cdf((np.log(budget) - t) / width[1])
            for budget in GRID
        ]
        for a, t in zip(reach, pace, strict=True)
    ])  # fmt: skip


def study(scenario: Scenario, number: int) -> tuple[dict[str, list[ArmScores]], Floats]:
    """A study drawn from the model: the scores of its arms, and their true curves.

    With one seed what is estimated is about the models that were trained, and so is the truth.
    """
    rng = np.random.default_rng([int.from_bytes(hashlib.sha256(scenario.name.encode()).digest()[:4]), number])
    reach, pace = scenario.settings()
    shape = (len(reach), scenario.seeds, len(BENCHMARKS), QUESTIONS)
    effects = [
        ((1.0, 1.0), (*shape[:2], 1, 1)),
        (QUESTION, (1, 1, *shape[2:])),
        (WITH_ARM, (shape[0], 1, *shape[2:])),
        (WITH_TRAINING, shape),
    ]
    drawn = [[sd * rng.standard_normal(size) for sd in spread] for spread, size in effects]
    trainings = scenario.trainings()
    drawn[0] = [sd[:, None, None, None] * each for sd, each in zip(trainings.T, drawn[0], strict=True)]
    gets = sum((each[0] for each in drawn), reach[:, None, None, None])
    when = sum((each[1] for each in drawn), pace[:, None, None, None])
    # Whether a sample gets there is a comparison with a standard normal, which is the 1 in `truth`.
    there = rng.standard_normal((*shape, SAMPLES)) < gets[..., None]
    at = np.exp(when[..., None] + SAMPLE[1] * rng.standard_normal((*shape, SAMPLES)))
    right = (there & (at <= np.array(GRID)[:, None, None, None, None, None])).mean(axis=-1)
    length = np.minimum(at, GRID[-1]).mean(axis=-1)
    names = [*(f"arm{index}" for index in range(scenario.arms)), JUDGED]
    scores = {
        name: [
            ArmScores(
                {b: right[:, arm, seed, k].T.copy() for k, b in enumerate(BENCHMARKS)},
                {b: right[-1, arm, seed, k].copy() for k, b in enumerate(BENCHMARKS)},
                {b: length[arm, seed, k].copy() for k, b in enumerate(BENCHMARKS)},
            )
            for seed in range(scenario.seeds)
        ]
        for arm, name in enumerate(names)
    }
    spreads = [QUESTION, WITH_ARM, WITH_TRAINING, (0.0, SAMPLE[1])]
    if scenario.seeds == 1:
        trained = [each[:, 0, 0, 0] for each in drawn[0]]
        return scores, truth(reach + trained[0], pace + trained[1], spreads)
    curves = [
        truth(reach[[arm]], pace[[arm]], [(sds[0], sds[1]), *spreads])[0] for arm, sds in enumerate(trainings)
    ]
    return scores, np.array(curves)


def weights() -> Floats:
    """The trapezoid rule on the grid, written out."""
    steps = np.diff(GRID)
    return np.append(steps, 0) / 2 + np.append(0, steps) / 2


def percentile(scores: Mapping[str, Sequence[ArmScores]], arms: int, number: int) -> tuple[Floats, Floats]:
    """The usual bootstrap of seeds and questions: 2.5% and 97.5% of REG, against each draw's best, and of differences.

    Shape [2, arms] each; it is what the intervals are compared with.
    """
    rng = np.random.default_rng(number)
    names = list(scores)
    seeds = len(scores[names[0]])
    curves: Floats = np.zeros((DRAWS, len(names), len(GRID)))
    lots = rng.multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS) / seeds
    for b in BENCHMARKS:
        table = np.array([[each.forced[b] for each in scores[name]] for name in names])
        counts = rng.multinomial(QUESTIONS, np.full(QUESTIONS, 1 / QUESTIONS), DRAWS) / QUESTIONS
        means = np.tensordot(counts, table, axes=(1, 2))  # draws, arms, seeds, budgets
        curves += np.einsum("dasx,ds->dax", means, lots) / len(BENCHMARKS)
    areas = curves @ weights()
    gaps = curves[:, :arms].max(axis=1) @ weights() - areas.T
    both = gaps, (areas[:, 0] - areas.T)
    low, high = (np.quantile(each, [0.025, 0.975], axis=1) for each in both)
    return low, high


def outcomes(scenario: Scenario, number: int) -> dict[str, list[float]]:
    """What became of one study: for each quantity a number for each of its arms."""
    scores, curves = study(scenario, number)
    areas = curves @ weights()
    gaps = curves[: scenario.arms].max(axis=0) @ weights() - areas
    seeds = tuple(range(scenario.seeds))
    scored = score_arms(
        scores, GRID, list(scores)[: scenario.arms], seeds=seeds, grid=GRID, relative_to="arm0"
    )
    rows = [row for row in scored if row.benchmark == "mean" and row.seed is None]
    usual, usual_difference = percentile(scores, scenario.arms, number)
    out: dict[str, list[float]] = {name: [] for name in MEASURES}
    for index, row in enumerate(rows):
        assert row.reg is not None
        assert row.difference is not None
        assert row.reg_plain is not None
        if index or not scenario.apart:
            out["reg"].append(holds(row.reg, gaps[index]))
            out["reg_bias"].append(row.reg.value - gaps[index])
            out["plain_bias"].append(row.reg_plain - gaps[index])
            out["usual"].append(usual[0, index] - PRINTED <= gaps[index] <= usual[1, index] + PRINTED)
        if index:
            wanted = areas[0] - areas[index]
            out["difference"].append(holds(row.difference, wanted))
            out["difference_bias"].append(row.difference.value - wanted)
            out["usual_difference"].append(usual_difference[0, index] <= wanted <= usual_difference[1, index])
    return out


def stars(scenario: Scenario, number: int) -> dict[str, list[float]]:
    """The outcome of one study of equal arms: whether intervals hold the truth, and whether any comparison has a star.

    A star of the table on a single benchmark needs one on the mean, so there is none without a comparison that has it.
    """
    scores, curves = study(scenario, number)
    areas = dict(zip(scores, curves @ weights(), strict=True))
    pairs = compare_arms(scores, GRID, seeds=scenario.seeds, grid=GRID, against="arm0")
    held = {
        frozenset((one, two)): float(holds(each, areas[two] - areas[one]))
        for (one, two), each in pairs.reg.items()
    }
    of_first = [held[frozenset(("arm0", name))] for name in scores if name != "arm0"]
    every = [*pairs.reg.values(), *pairs.accuracy.values()]
    return {
        "held": of_first,
        "first": of_first[:1],
        "last": of_first[-1:],
        "raw": [float(any(each.excludes_zero for each in every))],
        "starred": [float(any(each.significant for each in every))],
    }


STAR_MEASURES = ("held", "first", "last", "raw", "starred")
MEASURES = ("difference", "difference_bias", "usual_difference", "reg", "reg_bias", "plain_bias", "usual")


def holds(interval: Interval, wanted: float) -> bool:
    """Whether an interval holds a truth, as it is printed."""
    assert interval.low is not None
    assert interval.high is not None
    return interval.low - PRINTED <= wanted <= interval.high + PRINTED


@dataclass
class Tally:
    """Sums over the studies done, by measure."""

    studies: int
    sums: dict[str, float]

    def mean(self, measure: str) -> float:
        """A measure's mean over studies and their arms."""
        return self.sums[measure] / self.studies


def run(scenario: Scenario, studies: int, kept: Tally | None = None, every: float = 10.0) -> Iterator[Tally]:
    """The tally as it grows, at least every so many seconds, and at its end; it goes on from `kept`."""
    measures, drawn = (STAR_MEASURES, stars) if scenario in STARS else (MEASURES, outcomes)
    tally = kept or Tally(0, dict.fromkeys(measures, 0.0))
    started = time.monotonic()
    while tally.studies < studies:
        for measure, values in drawn(scenario, tally.studies).items():
            tally.sums[measure] += float(np.mean(values))
        tally.studies += 1
        if time.monotonic() - started > every:
            started = time.monotonic()
            yield tally
    yield tally


def table(tallies: Mapping[str, Tally]) -> str:
    """Return the table of INTERVALS.md on intervals and biases."""

    def share(tally: Tally, measure: str) -> str:
        return (
            f"{tally.mean(measure):+.2f}"
            if measure.endswith("bias")
            else f"{in_percent(tally.mean(measure), 1)}%"
        )

    rows = [
        (each.name, *(share(tally, measure) for measure in MEASURES))
        for each in SCENARIOS
        if (tally := tallies.get(each.name)) is not None
    ]
    differences = (">difference: in interval", ">bias", ">percentile bootstrap")
    gaps = (">REG: in interval", ">bias, cross-fitted", ">bias, plain", ">percentile bootstrap, plain")
    return markdown(("300 studies each", *differences, *gaps), rows)


def star_table(tallies: Mapping[str, Tally]) -> str:
    """Return the table of INTERVALS.md on stars."""
    rows = [
        (
            each.name,
            *(f"{in_percent(tally.mean(measure), 1)}%" for measure in STAR_MEASURES),
        )
        for each in STARS
        if (tally := tallies.get(each.name)) is not None
    ]
    held = (">difference: in interval", ">first arm", ">last arm")
    found = (">studies with an interval that excludes 0", ">studies with a star")
    return markdown(("600 studies each", *held, *found), rows)


def ends(tallies: Mapping[str, Tally]) -> str:
    """Return a sentence on how often intervals hold the truth, at the least and at the most."""
    shares = {
        measure: [100 * tallies[each.name].mean(measure) for each in SCENARIOS if each.name in tallies]
        for measure in ("difference", "reg")
    }
    least, most = ({name: f"{end(each):.1f}" for name, each in shares.items()} for end in (min, max))
    return (
        f"Intervals contain the true difference in {least['difference']} to {most['difference']}% of studies, "
        f"and the true REG in {least['reg']} to {most['reg']}%."
    )


def texts(tallies: Mapping[str, Tally]) -> dict[str, str]:
    """Return both tables by the names of their markers in the page."""
    return {"intervals": f"{table(tallies)}\n\n{ends(tallies)}", "stars": star_table(tallies)}


def committed() -> dict[str, Tally]:
    """The committed tallies, by scenario."""
    return {name: Tally(**tally) for name, tally in json.loads(TABLE.read_text()).items()}


def mark() -> str:
    """A digest of the code that is tried and of what tries it: tallies of other code are not gone on with."""
    files = sorted((ROOT / "reodsl" / "numbers").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*files, Path(__file__)])).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="the share of the studies that is drawn")
    parser.add_argument("--only", default="", help="scenarios whose name holds this; the page stays as it is")
    args = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if kept.get("mark") != mark():
        kept = {"mark": mark(), "tallies": {}}
    tallies: dict[str, Tally] = {}
    for scenario in (each for each in (*STARS, *SCENARIOS) if args.only in each.name):
        studies = max(1, round(args.share * scenario.studies))
        before = kept["tallies"].get(scenario.name)
        for tally in run(scenario, studies, None if before is None else Tally(**before)):
            tallies[scenario.name] = tally
            kept["tallies"][scenario.name] = asdict(tally)
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(kept))
        drawn = {scenario.name: tallies[scenario.name]}
        print((star_table if scenario in STARS else table)(drawn).splitlines()[-1], flush=True)
    if args.share == 1 and not args.only:
        rounded = {
            name: {"studies": each.studies, "sums": {m: round(value, 6) for m, value in each.sums.items()}}
            for name, each in tallies.items()
        }
        TABLE.write_text(json.dumps(rounded, indent=1) + "\n")
        rewrite(PAGE, texts(committed()))


if __name__ == "__main__":
    main()
