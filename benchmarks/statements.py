"""Whether what is said of simulated studies is true, and whether all places that say it agree.

    python -m benchmarks.statements            # goes on where it stopped; writes tables/statements.json and INTERVALS.md
    python -m benchmarks.statements --share .1 # a tenth of the studies, printed and not written

Studies are drawn as in `benchmarks/intervals.py`. Texts are read as a reader reads them: names and stars, and no object
behind them. Shares near 0 and 1 are drawn from the same model, and their truth is an integral over its effects.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from benchmarks import intervals, miniature, tables
from benchmarks import study as readme
from benchmarks.intervals import GRID, SAME, Floats, Scenario, weights
from benchmarks.tables import ROOT, markdown, rewrite
from reodsl.diagnostics import in_percent
from reodsl.numbers.crossed import spread_of
from reodsl.numbers.curves import Curve
from reodsl.numbers.intervals import (
    ArmScores,
    Comparisons,
    Scores,
    bound_interval,
    compare_arms,
    count_questions,
    interval_of,
    score_arms,
)
from reodsl.numbers.verdict import StudyVerdict, judge
from reodsl.report.export import write_verdict
from reodsl.report.verdict_words import MOST_NAMED, read_sentences, sentences

PAGE = ROOT / "benchmarks" / "INTERVALS.md"
KEPT = ROOT / "runs" / "statements.json"
TABLE = tables.KEPT / "statements.json"
BASE = "vanilla"
STUDIES, EQUAL_STUDIES, SHARE_STUDIES = 1000, 600, 4000

Arms = dict[str, list[ArmScores]]


def drawn(number: int) -> Scenario:
    """A study of 2 to 12 arms and 1 to 10 seeds: all equal, a little apart, or far apart, some shaken more by seeds."""
    rng = np.random.default_rng([20, number])
    arms, seeds = int(rng.integers(2, 13)), int(rng.integers(1, 11))
    far = float(rng.choice([0.0, 0.0, 0.15, 1.0]))
    return Scenario(
        f"statements {number}",
        seeds,
        arms - 1,
        1,
        reach=(1.6, 1.6 - far),
        pace=(30.0, 30.0 * (1 + far)),
        judged=(1.6, float(rng.choice([30.0, 28.0, 20.0]))),
        uneven=float(rng.choice([1.0, 9.0, 1 / 9])),
        **({} if seeds > 1 else SAME),
    )


def named(scores: Mapping[str, list[ArmScores]]) -> Arms:
    """The arms of a study, one of which is the baseline by its name."""
    return {BASE if name == "arm0" else name: of_arm for name, of_arm in scores.items()}


def compared(arms: Arms, baseline: str | None = BASE) -> Comparisons:
    """The comparisons of a study."""
    seeds = len(next(iter(arms.values())))
    return compare_arms(arms, GRID, seeds=seeds, grid=GRID, against=baseline)


def contradictions(number: int) -> list[str]:
    """What the sentence, the table, `ls`, the README and EVIDENCE say of a study that does not go together."""
    scenario = drawn(number)
    scores, _ = intervals.study(scenario, number)
    arms = named(scores)
    comparisons = compared(arms)
    # Stars need no frontier, which drops out of differences.
    top = {name: Curve(GRID, (1.0,) * len(GRID)) for name in intervals.BENCHMARKS}
    options: dict[str, Any] = {"seeds": range(scenario.seeds), "grid": GRID, "relative_to": BASE}
    rows = score_arms(arms, GRID, top, comparisons=comparisons, **options)
    means = {row.model: row for row in rows if row.benchmark == "mean" and row.seed is None}
    of_base = means[BASE].reg
    assert of_base is not None
    assert of_base.low is not None
    verdict = judge(comparisons, baseline=BASE, baseline_reg=(of_base.value, of_base.low))
    stars = {
        arm: math.copysign(1, row.difference.value)
        for arm, row in means.items()
        if row.difference is not None and row.difference.significant
    }
    found = misread(sentences(verdict), stars, arms, verdict)
    with tempfile.TemporaryDirectory() as place, patch.object(tables, "KEPT", Path(place)):
        folder = Path(place)
        write_verdict(folder / "study_verdict.json", verdict)
        write_verdict(folder / "verdict.json", verdict)
        if read_sentences(folder) != sentences(verdict):
            found.append("`ls` says something else")
        keep_tables(folder, rows, scenario.seeds)
        found += read_pages(stars, verdict)
    return found


def misread(
    lines: Sequence[str],
    stars: Mapping[str, float],
    arms: Sequence[str] | Mapping[str, Any],
    verdict: StudyVerdict,
) -> list[str]:
    """What the sentences say that the stars of the table, or those of all pairs, do not."""
    found = []
    head = lines[0]
    lower, higher = ({arm for arm, sign in stars.items() if sign == side} for side in (-1, 1))
    pairs = {frozenset((pair.one, pair.two)) for pair in verdict.pairs if pair.significant}

    def names(text: str) -> list[str]:
        return [arm for arm in arms if re.search(rf"\b{arm}\b", text)]

    if "No arm has a significantly lower" in head and lower:
        found.append("no arm is said to be lower beside a star")
    elif match := re.match(r"(.+) (?:has|have) a significantly lower REG", head):
        if not set(names(match[1])) <= lower:
            found.append("an arm is said to be significantly lower without a star")
    elif match := re.match(
        r"(.+) (?:has|have) a lower REG than .+; for (.+) the difference is significant", head
    ):
        sure = set(names(match[2]))
        if not sure <= lower or (len(names(match[1])) <= MOST_NAMED and set(names(match[1])) & lower - sure):
            found.append("stars and the arms that are said to differ are not the same")
    elif match := re.match(r"(\w+) leads: its REG is lower", head):
        if match[1] not in lower:
            found.append("an arm leads without a star")
    elif "leads: every other arm has a significantly higher" in head:
        if higher != set(arms) - {BASE}:
            found.append("not every arm has a star")
    elif head != f"{BASE}, the baseline, leads." and "No arm has" not in head:
        found.append(f"this sentence is not known: {head}")
    if lower and (BASE in verdict.leaders or not re.search("lower|for", head)):
        found.append("a star is not in the sentence")
    for text in re.findall(r"(?:; |\. )([^.;]*?) are tied", head):
        whom = verdict.leaders if text.lower() == "they" else names(text)
        if frozenset(whom) in pairs:
            found.append("two arms are tied beside a star")
    if "cannot be ranked" in head and any(set(pair) <= set(verdict.leaders) for pair in pairs):
        found.append("arms cannot be ranked beside a star")
    for line in lines[1:]:
        if (match := re.match(r"(\w+) and (\w+) differ most", line)) and frozenset(match.groups()) in pairs:
            found.append("two that differ most have a star")
    return found


def keep_tables(folder: Path, rows: Sequence[Scores], seeds: int) -> None:
    """Write a study's numbers as those that are kept for the README and for EVIDENCE."""
    kept, of_seeds, by_seed = [], [], []
    for row in rows:
        assert row.reg is not None
        assert row.difference is not None
        own = {"arm": row.model, "benchmark": row.benchmark, "reg": row.reg.value}
        own |= {"accuracy": row.accuracy.value, "length": row.length.value, "reg_plain": row.reg_plain}
        change = row.difference if row.model != BASE else None
        own |= {f"difference{end}": getattr(change, of, None) for end, of in ENDS.items()}
        if row.seed is None and row.benchmark == "mean":
            kept.append(own)
        if row.seed is not None or seeds == 1:
            by_seed.append({**own, "seed": row.seed or 0})
            of_seeds += [by_seed[-1]] if row.benchmark == "mean" else []
    for name, frame in (("study", kept), ("study_seeds", of_seeds), ("two_ways", by_seed)):
        pl.DataFrame(frame, infer_schema_length=None).write_csv(folder / f"{name}.csv")


ENDS = {"": "value", "_low": "low", "_high": "high", "_star": "significant"}


def read_pages(stars: Mapping[str, float], verdict: StudyVerdict) -> list[str]:
    """What the README's block says that the report does not, and what EVIDENCE's table says of significance or order."""
    found = []
    block = readme.text()
    if not block.startswith(next(iter(sentences(verdict)))):
        found.append("the README has other sentences")
    if starred(block) != set(stars):
        found.append("the README has other stars")
    evidence, below = miniature.arms_table("two_ways"), miniature.separated("two_ways")
    # Its test is one of seeds alone, so it may not speak as the report does.
    if starred(evidence) or "significant" in below:
        found.append("EVIDENCE has stars of its own")
    order = [*verdict.arms]
    for match in re.finditer(r"^- (\w+) is below (.+)\.$", below, re.MULTILINE):
        if any(order.index(match[1]) > order.index(other) for other in match[2].split(", ")):
            found.append("EVIDENCE has arms in another order")
    return found


def starred(text: str) -> set[str]:
    """The arms of a table's rows that have a star."""
    return {
        line.split(" | ")[0].removeprefix("| ")
        for line in text.splitlines()
        if line.startswith("|") and "*" in line
    }


EIGHT = Scenario(
    "8 arms within 3 tokens, 10 seeds", 10, 7, EQUAL_STUDIES, pace=(30.0, 33.0), judged=(1.6, 30.0)
)
"""Arms that differ by less than a study can tell, so that being called the same within too little is likeliest."""


def false_sameness(number: int, scenario: Scenario = EIGHT) -> tuple[bool, bool, bool]:
    """Whether any pair of a study differs by more than its margin: uncorrected, corrected, and as the report names them."""
    scores, curves = intervals.study(scenario, number)
    arms = named(scores)
    areas = dict(zip(arms, curves @ weights(), strict=True))

    def false(pairs: Mapping[tuple[str, str], float]) -> bool:
        return any(abs(areas[one] - areas[two]) > margin for (one, two), margin in pairs.items())

    with patch("reodsl.numbers.intervals.EQUIVALENCE_ERROR", 0.05 * math.comb(len(arms), 2)):
        alone = compared(arms).within
    comparisons = compared(arms)
    verdict = judge(comparisons, baseline=BASE, baseline_reg=(20.0, 15.0))
    spoken = {(pair.one, pair.two): pair.same_within or 0.0 for pair in verdict.same}
    return false(alone), false(comparisons.within), false(spoken)


REACHES = (0.5, 1.6, 2.5, 3.3)
SEEDS = (1, 2, 3, 4, 6, 10)
EFFECTS = (0.12, 0.8, 0.25, 0.3)
"""Standard deviations (probit) of what a training, a question, a question with the arm and with the training change."""
QUESTIONS, SAMPLES, BENCHMARKS = 48, 2, 2
SHARES: dict[str, Callable[[Floats], Floats]] = {
    "accuracy": lambda chance: chance,
    "pass_at(2)": lambda chance: 1 - (1 - chance) ** 2,
}


@lru_cache
def true_share(measure: str, reach: float, training: float | None) -> float:
    """The expected share by Gauss and Hermite's rule over all effects; that of one training where its effect is given."""
    points, mass = np.polynomial.hermite_e.hermegauss(80)
    spread = math.sqrt(sum(sd**2 for sd in EFFECTS[training is not None :]))
    chance = np.array([NormalDist().cdf(reach + (training or 0.0) + spread * point) for point in points])
    return float(mass @ SHARES[measure](chance) / mass.sum())


def cover_share(reach: float, seeds: int, number: int) -> dict[str, list[float]]:
    """Whether intervals of shares hold the truth of one study: Student's, the report's, and whether that is sound."""
    rng = np.random.default_rng([30, round(10 * reach), seeds, number])
    training = EFFECTS[0] * rng.standard_normal(seeds)
    right = {}
    for name in range(BENCHMARKS):
        of_question = EFFECTS[1] * rng.standard_normal(QUESTIONS) + EFFECTS[2] * rng.standard_normal(
            QUESTIONS
        )
        gets = reach + training[:, None] + of_question + EFFECTS[3] * rng.standard_normal((seeds, QUESTIONS))
        right[str(name)] = rng.standard_normal((seeds, QUESTIONS, SAMPLES)) < gets[..., None]
    found = {}
    for measure in SHARES:
        cells = {
            name: (each.mean(axis=-1) if measure == "accuracy" else each.any(axis=-1).astype(float))
            for name, each in right.items()
        }
        spread = spread_of(cells)
        students = interval_of(cells, spread, 0.95)
        own = bound_interval(students, 0.0, 1.0, 0.95, spread, count_questions(cells))
        truth = true_share(measure, reach, float(training[0]) if seeds == 1 else None)
        held = [float(each.low <= truth <= each.high) for each in (students, own)]  # type: ignore[operator]
        sound = own.low is not None and own.high is not None and 0 <= own.low < own.high <= 1
        found[measure] = [*held, float(sound)]
    return found


def jobs() -> dict[str, tuple[int, Callable[[int], list[float]]]]:
    """Each part by its name: its studies, and what becomes of one."""
    parts: dict[str, tuple[int, Callable[[int], list[float]]]] = {
        "statements": (STUDIES, lambda number: [float(bool(contradictions(number)))]),
        "same": (EQUAL_STUDIES, lambda number: [float(each) for each in false_sameness(number)]),
    }
    for reach in REACHES:
        for seeds in SEEDS:

            def of(number: int, reach: float = reach, seeds: int = seeds) -> list[float]:
                return [value for values in cover_share(reach, seeds, number).values() for value in values]

            parts[f"share {reach} {seeds}"] = (SHARE_STUDIES, of)
    return parts


def share_table(sums: Mapping[str, Sequence[float]]) -> str:
    """Return how often the intervals of shares hold the truth, by seeds; Student's with four seeds beside."""
    rows = []
    for place, measure in enumerate(SHARES):
        for reach in REACHES:
            of_seeds = {seeds: sums[f"share {reach} {seeds}"] for seeds in SEEDS}
            shares = [in_percent(each[1 + 3 * place + 1] / each[0], 1) + "%" for each in of_seeds.values()]
            students = [
                in_percent(of_seeds[seeds][1 + 3 * place] / of_seeds[seeds][0], 1) + "%" for seeds in (1, 4)
            ]
            rows.append((measure, f"{in_percent(true_share(measure, reach, None), 1)}%", *shares, *students))
    head = [f">{seeds} seed{'s' * (seeds > 1)}" for seeds in SEEDS]
    return markdown(("measure", ">truth", *head, ">Student's, 1 seed", ">Student's, 4 seeds"), rows)


def texts(sums: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Return the page's texts by the names of their markers. Each sum begins with the number of studies."""
    count, wrong = sums["statements"]
    studies, alone, corrected, spoken = sums["same"]
    return {
        "statements": f"In {wrong:,.0f} of {count:,.0f} simulated studies of 2 to 12 arms and 1 to 10 seeds one of these "
        "contradicts another.",
        "same": f"In {studies:,.0f} studies of {EIGHT.name}, two arms differ by more than a margin in "
        f"{in_percent(alone / studies, 1)}% where each margin stands by itself, in {in_percent(corrected / studies, 1)}% "
        f"with the correction, and in {in_percent(spoken / studies, 1)}% by more than one that the report names.",
        "shares": share_table(sums),
    }


def main() -> None:
    """Draw the studies that are not drawn yet, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="the share of the studies that is drawn")
    parser.add_argument("--only", default="", help="parts whose name begins so; the page stays as it is")
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    sums: dict[str, list[float]] = kept["sums"] if kept.get("mark") == intervals.mark() else {}
    for name, (studies, draw) in jobs().items():
        saved = time.monotonic()
        wanted = max(1, round(asked.share * studies))
        while name.startswith(asked.only) and (done := sums.get(name, [0.0]))[0] < wanted:
            values = draw(int(done[0]))
            rest = done[1:] or [0.0] * len(values)
            sums[name] = [done[0] + 1, *(a + b for a, b in zip(rest, values, strict=True))]
            if time.monotonic() - saved > 10 or sums[name][0] == wanted:
                saved = time.monotonic()
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps({"mark": intervals.mark(), "sums": sums}))
        if name in sums:
            print(name, sums[name], flush=True)
    if asked.share == 1 and not asked.only:
        lines = (f" {json.dumps(name)}: {json.dumps(of)}" for name, of in sums.items())
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        rewrite(PAGE, texts(sums))


if __name__ == "__main__":
    main()
