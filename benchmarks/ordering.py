"""docs/EVIDENCE.md's tables of every method: a finished run of `specs/miniature/paper.reo` in, and how far its order is the
paper's out.

    python -m benchmarks.ordering RUN   # keep a run's numbers in benchmarks/tables/, and write the page's tables
    python -m benchmarks.ordering       # write the page's tables from the numbers that are kept

Measured: the mean over benchmarks and seeds, and paired differences with intervals. Only pairs of arms whose difference
has an interval without 0 count as ordered. Published: the paper's changes of REG, on each of its models.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from reodsl.language import compile_file
from reodsl.numbers.probabilities import incomplete_beta, t_quantile

if TYPE_CHECKING:
    from reodsl.ir.study import Study
    from reodsl.numbers.intervals import Interval

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "EVIDENCE.md"
PAPER = {"1.5B": "deepseek_1_5b", "7B": "deepseek_7b", "Qwen3-4B": "qwen3_4b", "Qwen3-8B": "qwen3_8b"}
BASELINES = {"qwen3_4b": "base", "qwen3_8b": "base"}
"""What the paper's changes are from, where it is not vanilla RL."""
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"

# Rows of other names: the mildest cap that is printed, and the ablation "Task-Specific-Hard".
SAME = {"budget_32": "budget_4k", "reo_hard": "reo_task_hard"}

OFFLINE = ("sft_shortest", "sft_tops", "simpo_dast", "simpo_shortest", "simpo_tops", "hgpo")
"""Arms that learn from selected responses, and HGPO, whose reward minds no length within a mode."""
LONG = ("base", "vanilla", "l1_exact", *OFFLINE)
"""Arms that do not press for short responses; the rest do."""

ARMS, PAIRS, ASKED = (
    ROOT / "benchmarks" / "tables" / f"{name}.csv" for name in ("paper", "paper_pairs", "paper_asked")
)
LAST = 4
"""Steps at the end of training over which the lengths of what asks for a length are told."""
NAME = "arm"
NUMBERS = (
    *("accuracy", "length", "difference", "difference_low", "difference_high"),
    *("reg", "reg_plain", "change_pct"),
)
"""What is kept of each arm."""

Pair = tuple[str, str]


def published(model: str) -> dict[str, float]:
    """Each printed row's change of REG from that of vanilla RL, or of the base model where that is the baseline, as a share.

    The baseline's own is 0. An order needs no more: it is the same from any baseline.
    """
    spec = compile_file(ROOT / "specs" / "paper" / f"{model}.reo").spec
    assert spec is not None
    changes: dict[str, float] = {}
    for table in (each.published for each in spec.study.tables):
        if table is None or table.relative_to != BASELINES.get(model, "vanilla"):
            continue
        mean = table.benchmarks.index("mean")
        (baseline,) = (row.reg[mean] for row in table.rows if row.name == table.relative_to)
        for row in table.rows:
            changes[row.name] = row.reg_change[mean] if row.reg_change else row.reg[mean] / baseline - 1
    return changes


def agreement(
    signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None = None
) -> tuple[int, int, int, list[Pair]]:
    """How many pairs stand in the paper's order, of how many that are apart, of how many in both; and those that do not.

    `signs` says by pair of arms whether the first has the larger REG (1), the smaller (-1), or neither is told (0). `arms`
    are those that count, all where there are none. A pair that is equal in print has no order, and counts nowhere.
    """
    kept = in_both(signs, paper, arms)
    against = [(a, b) for (a, b), sign in kept.items() if sign * (paper[a] - paper[b]) < 0]
    apart = sum(sign != 0 for sign in kept.values())
    return apart - len(against), apart, len(kept), against


def in_both(
    signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None
) -> dict[Pair, int]:
    """The pairs of counted arms that have an order in print."""
    return {
        (a, b): sign
        for (a, b), sign in signs.items()
        if a in paper and b in paper and paper[a] != paper[b] and (arms is None or (a in arms and b in arms))
    }


def reach(
    signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None = None
) -> tuple[float, float] | None:
    """The 95% interval of the share of separated pairs that agree; None where no pair is apart.

    Pairs share arms, so that they say less than as many independent ones. How many they are worth is told by leaving out one
    arm at a time (jackknife), and the interval is Clopper and Pearson's for that many (Korn and Graubard 1998). Where the
    jackknife tells nothing, as where all pairs agree, they are worth the pairs that share no arm with each other.
    """
    names = sorted({arm for pair in signs for arm in pair if arm in paper and (arms is None or arm in arms)})
    alike, apart, _, _ = agreement(signs, paper, names)
    if apart == 0:
        return None
    share = alike / apart
    worth = float(disjoint([pair for pair, sign in in_both(signs, paper, names).items() if sign]))
    left = [agreement(signs, paper, [name for name in names if name != out]) for out in names]
    if len(names) >= 3 and all(counts[1] for counts in left):
        shares = [counts[0] / counts[1] for counts in left]
        count, mean = len(shares), sum(shares) / len(shares)
        variance = (count - 1) / count * sum((each - mean) ** 2 for each in shares)
        if 0 < share < 1 and variance > 0:
            # The jackknife's variance has as many degrees of freedom as arms, less one.
            few = NormalDist().inv_cdf(0.975) / t_quantile(0.975, count - 1)
            worth = min(share * (1 - share) / variance * few**2, float(apart))
    return clopper_pearson(share * worth, worth)


def disjoint(pairs: Sequence[Pair]) -> int:
    """How many pairs can be picked that share no arm, by taking first those whose arms are in the fewest pairs."""
    left, picked = list(pairs), 0
    while left:
        degree = Counter(arm for pair in left for arm in pair)
        one = min(left, key=lambda pair: (degree[pair[0]] + degree[pair[1]], pair))
        left = [pair for pair in left if not set(pair) & set(one)]
        picked += 1
    return picked


def clopper_pearson(hits: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson 1934); `hits` and `trials` need not be whole numbers."""
    tail = (1 - confidence) / 2

    def quantile(probability: float, a: float, b: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if incomplete_beta(middle, a, b) < probability else (low, middle)
        return (low + high) / 2

    low = quantile(tail, hits, trials - hits + 1) if hits > 0 else 0.0
    high = quantile(1 - tail, hits + 1, trials - hits) if hits < trials else 1.0
    return low, high


def signs_of(differences: Mapping[Pair, Interval]) -> dict[Pair, int]:
    """Which of each two arms has the larger REG, by the paper's names; 0 where the interval of their difference holds 0."""
    return {
        (SAME.get(a, a), SAME.get(b, b)): 0 if not each.apart else 1 if each.value > 0 else -1
        for (a, b), each in differences.items()
    }


def differences_of(run: Path, study: Study) -> dict[Pair, Interval]:
    """The paired difference of REG of each two arms of a run, over its seeds and questions."""
    from reodsl.numbers.arm_scores import arm_scores
    from reodsl.numbers.intervals import pairwise
    from reodsl.store.layout import arm_folder

    read = {}
    grid: tuple[int, ...] = ()
    for arm in study.arms:
        places = [run / arm_folder(arm.name, str(seed)) for seed in sorted(study.seeds)]
        there = [place for place in places if place.exists()] or [run / arm_folder(arm.name, "")]
        scored = [arm_scores(place, arm.name) for place in there]
        read[arm.name], grid = [scores for scores, _ in scored], scored[0][1]
    l_max = study.score.to if study.score is not None else grid[-1]
    return pairwise(read, grid, seeds=len(study.seeds), l_max=l_max, grid=grid)


def trained_by_rl(study: Study) -> list[str]:
    """The arms whose last stage is RL, by the paper's names."""
    from reodsl.ir.training import FromTraining, Ppo

    return [
        SAME.get(arm.name, arm.name)
        for arm in study.arms
        if isinstance(arm.checkpoint, FromTraining)
        and isinstance(arm.checkpoint.experiment.stages[arm.checkpoint.stage].method, Ppo)
    ]


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.0f}%"


def worded(
    difference: float | None, low: float | None, high: float | None, starred: bool | None = None
) -> str:
    """A difference with its interval, and `*` where it has a star; if that is not known, where the interval leaves out 0."""
    if difference is None or low is None or high is None:
        return "" if difference is None else f"{difference:+.1f}"
    star = (low > 0 or high < 0) if starred is None else starred
    return f"{difference:+.1f}{'*' if star else ''} [{low:.1f}, {high:.1f}]"


def keep(run: Path) -> None:
    """Write a run's arms, and the differences of each two of them, into `benchmarks/tables/`."""
    import polars as pl

    from reodsl.ir import Spec

    study = Spec.model_validate_json((run / "spec.reo.json").read_text("utf-8")).study
    mean = pl.col("benchmark") == "mean"
    main = pl.read_parquet(run / "tables" / "main.parquet").filter(mean)
    seeds = pl.read_parquet(run / "tables" / "per_seed.parquet").filter(mean).sort("arm", "seed")
    reg_by_seed = pl.col("reg").round(4).cast(pl.String).str.join(" ").alias("by_seed")
    frame = main.select(NAME, *(pl.col(name).round(4) for name in NUMBERS))
    by_seed = seeds.group_by(NAME, maintain_order=True).agg(reg_by_seed)
    frame.join(by_seed, on=NAME, maintain_order="left").write_csv(ARMS)
    pl.DataFrame(
        [
            (a, b, *(None if end is None else round(end, 4) for end in (each.value, each.low, each.high)))
            for (a, b), each in differences_of(run, study).items()
        ],
        schema=["one", "two", "difference", "low", "high"],
        orient="row",
    ).write_csv(PAIRS)
    pl.DataFrame(asked_lengths(run, study), schema=["seed", "asked", "length"], orient="row").write_csv(ASKED)


def asked_lengths(run: Path, study: Study, arm: str = "l1_exact") -> list[tuple[int, int, float]]:
    """The mean length in the last steps of an arm's training, by seed and by the length that a question asks for."""
    import polars as pl

    from reodsl.store.layout import arm_folder

    lengths = []
    for seed in sorted(study.seeds):
        (path,) = (run / arm_folder(arm, str(seed)) / "stages").glob("*/rollouts.parquet")
        rollouts = pl.read_parquet(path)
        last = rollouts.filter(pl.col("step") > pl.col("step").max() - LAST)
        means = last.group_by("budget").agg(pl.col("tokens").mean()).sort("budget")
        lengths += [(seed, budget, round(length, 1)) for budget, length in means.iter_rows()]
    return lengths


def kept(path: Path) -> list[dict[str, str]]:
    """The rows of a kept table."""
    with path.open() as file:
        return list(csv.DictReader(file))


def kept_differences() -> dict[Pair, Interval]:
    """The kept difference of REG of each two arms."""
    from reodsl.numbers.intervals import Interval

    return {
        (row["one"], row["two"]): Interval(*(number(row[name]) for name in ("difference", "low", "high")))
        for row in kept(PAIRS)
    }


def number(text: str) -> Any:
    """A kept number; None where there was none."""
    return float(text) if text else None


def arms_table(paper: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each arm, as it came out, with its change in print by each of the paper's models."""
    heads = [
        f"paper, {size}" + (f" (to {BASELINES[model]})" if model in BASELINES else "")
        for size, model in PAPER.items()
    ]
    lines = [
        "| arm | accuracy | length | REG − vanilla's [95% interval] | REG | REG by seed | REG, plain frontier | "
        f"to vanilla RL | {' | '.join(heads)} |",
        f"| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | {' | '.join('---:' for _ in paper)} |",
    ]
    for row in kept(ARMS):
        arm, value = row[NAME], {name: number(row[name]) for name in NUMBERS}
        change = value["change_pct"]
        difference = worded(value["difference"], value["difference_low"], value["difference_high"])
        by_seed = ", ".join(f"{float(each):.1f}" for each in row["by_seed"].split())
        printed = " | ".join(percent(each.get(SAME.get(arm, arm))) for each in paper.values())
        lines.append(
            f"| {arm} | {100 * value['accuracy']:.1f}% | {value['length']:.1f} | {difference} | {value['reg']:.1f} | "
            f"{by_seed} | {value['reg_plain']:.1f} | {percent(None if change is None else change / 100)} | {printed} |"
        )
    return "\n".join(lines)


def groups(differences: Mapping[Pair, Interval]) -> str:
    """Which pairs of arms are apart in REG, by what the arms have in common."""
    arms = list(dict.fromkeys(arm for pair in differences for arm in pair))
    signs = {pair: 0 if not each.apart else 1 if each.value > 0 else -1 for pair, each in differences.items()}
    signs |= {(b, a): -sign for (a, b), sign in signs.items()}
    short = [arm for arm in arms if arm not in LONG]
    across = sum(signs[arm, other] < 0 for arm in short for other in OFFLINE)
    pairs = list(combinations(short, 2))
    within = [(a, b) if signs[a, b] < 0 else (b, a) for a, b in pairs if signs[a, b]]
    chance = 0.05 * len(pairs)
    sentences = [
        f"{across} of {len(OFFLINE) * len(short)} pairs of an arm of SFT, SimPO or HGPO with one of the {len(short)} RL arms"
        " that reward short responses differ, and the latter is lower.",
        f"{len(within)} of {len(pairs)} pairs among those {len(short)} differ; about {chance:.0f} would be by chance if"
        f" all were equal{': ' if within else ''}{', '.join(f'{a} below {b}' for a, b in within)}.",
    ]
    for other, called in (("l1_exact", "L1-Exact"), ("vanilla", "vanilla RL")):
        left = [arm for arm in short if signs[arm, other] >= 0]
        but = f", all but {', '.join(left)}" if left and len(left) < len(short) else ""
        sentences.append(f"{len(short) - len(left)} of the {len(short)} are below {called}{but}.")
    asked: dict[int, list[float]] = {}
    for row in kept(ASKED):
        asked.setdefault(int(row["asked"]), []).append(float(row["length"]))
    lengths = "; ".join(
        f"{length}: {', '.join(f'{each:.0f}' for each in by_seed)}" for length, by_seed in asked.items()
    )
    sentences.append(
        f"In the last {LAST} steps of L1-Exact, questions that ask for a length get, by seed: {lengths} tokens."
    )
    return "\n".join(f"- {line}" for line in sentences)


def tables() -> dict[str, str]:
    """By the name of its markers in the page, every table of the kept numbers."""
    study = compile_file(ROOT / "specs" / "miniature" / "paper.reo").spec
    assert study is not None
    paper = {size: published(model) for size, model in PAPER.items()}
    differences = kept_differences()
    lines = order(signs_of(differences), trained_by_rl(study.study), paper)
    return {"arms": arms_table(paper), "order": lines, "apart": groups(differences)}


def order(signs: Mapping[Pair, int], rl: Sequence[str], paper: Mapping[str, Mapping[str, float]]) -> str:
    """The lines on the order: by each of the paper's models, over all arms and over those of RL alone."""
    named = {right: left for left, right in SAME.items()}
    lines = []
    for size, printed in paper.items():
        parts = [
            f"{what}: {counted(signs, printed, arms)}"
            for what, arms in (("all arms", None), ("RL alone", rl))
        ]
        count: dict[str, int] = {}
        for name in (name for pair in agreement(signs, printed)[3] for name in pair):
            count[name] = count.get(name, 0) + 1
        most = sorted(count, key=lambda name: -count[name])[:4]
        out = ", ".join(f"{named.get(name, name)} ({count[name]})" for name in most) or "none"
        lines.append(f"- {size}: {'; '.join(parts)}. Most often out of order: {out}.")
    both = [
        f"{one} and {two} on {alike} of {of}"
        for one, two in combinations(paper, 2)
        for alike, of in [alike_in_print(paper[one], paper[two])]
        if of
    ]
    return "\n".join([*lines, f"- For comparison, models of the paper agree in print: {', '.join(both)}."])


def counted(signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None) -> str:
    """`9 of 11 differing pairs have the paper's order (82% [40%, 100%]), of 21`."""
    alike, apart, of, _ = agreement(signs, paper, arms)
    if not apart:
        return f"no pair of {of} differs"
    around = reach(signs, paper, arms)
    ends = "" if around is None else f" [{100 * around[0]:.0f}%, {100 * around[1]:.0f}%]"
    return f"{alike} of {apart} differing pairs have the paper's order ({100 * alike / apart:.0f}%{ends}), of {of}"


def alike_in_print(one: Mapping[str, float], two: Mapping[str, float]) -> tuple[int, int]:
    """Of the pairs of rows that both of the paper's models order, how many they order alike, and how many there are."""
    signs = {(a, b): (one[a] > one[b]) - (one[a] < one[b]) for a, b in combinations(sorted(one), 2)}
    alike, apart, _, _ = agreement(signs, two)
    return alike, apart


def placed(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of that name."""
    before, begin, rest = page.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    if not end:
        raise SystemExit(f"{PAGE} has no markers named {name}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def written(page: str) -> str:
    """The page with all tables in their places."""
    for name, text in tables().items():
        page = placed(page, name, text)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    run = parser.parse_args().run
    if run is not None:
        keep(run)
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
