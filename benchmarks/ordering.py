"""Write docs/EVIDENCE.md's tables of every method: a finished run of `specs/miniature/paper.reo`, and its agreement with the
paper's order.

    python -m benchmarks.ordering RUN   # keep a run's numbers in benchmarks/tables/, and write the page's tables
    python -m benchmarks.ordering       # write the page's tables from the numbers that are kept

Measured: the mean over benchmarks and seeds, and paired differences with intervals. Only pairs of arms whose difference
has an interval without 0 count as ordered; intervals are not corrected. Published: the paper's changes of REG, on each of
its models.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import NormalDist

import polars as pl

from benchmarks.tables import ROOT, difference, markdown, number, path_of, read_rows, rewrite
from reodsl.diagnostics import in_percent
from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Ppo
from reodsl.language import compile_file
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.intervals import Interval, compare_arms
from reodsl.numbers.reg import incomplete_beta, t_quantile
from reodsl.store.layout import arm_folder

PAGE = ROOT / "docs" / "EVIDENCE.md"
PAPER = {"1.5B": "deepseek_1_5b", "7B": "deepseek_7b", "Qwen3-4B": "qwen3_4b", "Qwen3-8B": "qwen3_8b"}
BASELINES = {"qwen3_4b": "base", "qwen3_8b": "base"}
"""What the paper's changes are from, where it is not vanilla RL."""
# Rows of other names: the mildest cap that is printed, and the ablation "Task-Specific-Hard".
SAME = {"budget_32": "budget_4k", "reo_hard": "reo_task_hard"}

OFFLINE = ("sft_shortest", "sft_tops", "simpo_dast", "simpo_shortest", "simpo_tops", "hgpo")
"""Arms that learn from selected responses, and HGPO, whose reward minds no length within a mode."""
LONG = ("base", "vanilla", "l1_exact", *OFFLINE)
"""Arms that do not press for short responses; the rest do."""

LAST = 4
"""Steps at the end of training over which the lengths of what asks for a length are told."""
NUMBERS = (
    *("accuracy", "length", "difference", "difference_low", "difference_high", "difference_star"),
    *("reg", "reg_plain", "change_pct"),
)
"""What is kept of each arm."""

Pair = tuple[str, str]


def published(model: str) -> dict[str, float]:
    """Return each printed row's change of REG, as a share, from that of vanilla RL or of the base model, by what is printed.

    The baseline has 0. An order is the same from any baseline.
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
    """Return how many pairs have the paper's order, of how many that differ, of how many in both; and the others.

    `signs` has for each pair of arms whether the first has the larger REG (1), the smaller (-1), or the two do not differ
    (0). Only `arms` count, or all. A pair that is equal in print has no order, and does not count.
    """
    kept = in_both(signs, paper, arms)
    against = [(a, b) for (a, b), sign in kept.items() if sign * (paper[a] - paper[b]) < 0]
    apart = sum(sign != 0 for sign in kept.values())
    return apart - len(against), apart, len(kept), against


def in_both(
    signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None
) -> dict[Pair, int]:
    """Return the pairs of counted arms that have an order in print."""
    return {
        (a, b): sign
        for (a, b), sign in signs.items()
        if a in paper and b in paper and paper[a] != paper[b] and (arms is None or (a in arms and b in arms))
    }


def reach(
    signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None = None
) -> tuple[float, float] | None:
    """Return the 95% interval of the share of differing pairs that agree; None if no pair differs.

    Pairs share arms, so they count as fewer independent pairs: as many as a jackknife over arms gives. The interval is
    Clopper and Pearson's for that many (Korn and Graubard 1998). If the jackknife gives nothing, as when all pairs agree,
    they count as the pairs that share no arm with each other.
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
    """Count pairs that share no arm, by taking first those whose arms are in the fewest pairs."""
    left, picked = list(pairs), 0
    while left:
        degree = Counter(arm for pair in left for arm in pair)
        one = min(left, key=lambda pair: (degree[pair[0]] + degree[pair[1]], pair))
        left = [pair for pair in left if not set(pair) & set(one)]
        picked += 1
    return picked


def clopper_pearson(hits: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson 1934); `hits` and `trials` need not be whole numbers."""
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
    """Return which of each two arms has the larger REG; 0 if the interval of their difference contains 0."""
    return {
        pair: 0 if not each.excludes_zero else 1 if each.value > 0 else -1
        for pair, each in differences.items()
    }


def differences_of(run: Path, study: Study) -> dict[Pair, Interval]:
    """Return the paired difference of REG of each two arms of a run, over its seeds and questions."""
    read = {}
    grid: tuple[int, ...] = ()
    for arm in study.arms:
        places = [run / arm_folder(arm.name, str(seed)) for seed in sorted(study.seeds)]
        there = [place for place in places if place.exists()] or [run / arm_folder(arm.name, "")]
        scored = [arm_scores(place, arm.name) for place in there]
        read[arm.name], grid = [scores for scores, _ in scored], scored[0][1]
    l_max = study.score.to if study.score is not None else grid[-1]
    return dict(compare_arms(read, grid, seeds=len(study.seeds), l_max=l_max, grid=grid).reg)


def trained_by_rl(study: Study) -> list[str]:
    """Return the arms whose last stage is RL, by the paper's names."""
    return [
        SAME.get(arm.name, arm.name)
        for arm in study.arms
        if isinstance(arm.checkpoint, FromTraining)
        and isinstance(arm.checkpoint.experiment.stages[arm.checkpoint.stage].method, Ppo)
    ]


def keep(run: Path) -> None:
    """Keep a run's arms, the differences of each two of them, and the lengths of what asks for a length."""
    study = Spec.model_validate_json((run / "spec.reo.json").read_text("utf-8")).study
    mean = pl.col("benchmark") == "mean"
    main = pl.read_parquet(run / "tables" / "main.parquet").filter(mean)
    seeds = pl.read_parquet(run / "tables" / "per_seed.parquet").filter(mean).sort("arm", "seed")
    reg_by_seed = pl.col("reg").round(4).cast(pl.String).str.join(" ").alias("by_seed")
    frame = main.select("arm", *(pl.col(name).round(4) for name in NUMBERS))
    by_seed = seeds.group_by("arm", maintain_order=True).agg(reg_by_seed)
    frame.join(by_seed, on="arm", maintain_order="left").write_csv(path_of("paper"))
    ends = ("value", "low", "high")
    pairs = [
        (*pair, *(None if (end := getattr(each, name)) is None else round(end, 4) for name in ends))
        for pair, each in differences_of(run, study).items()
    ]
    for name, columns, rows in (
        ("paper_pairs", ["one", "two", "difference", "low", "high"], pairs),
        ("paper_asked", ["seed", "asked", "length"], asked_lengths(run, study)),
    ):
        pl.DataFrame(rows, schema=columns, orient="row").write_csv(path_of(name))


def asked_lengths(run: Path, study: Study, arm: str = "l1_exact") -> list[tuple[int, int, float]]:
    """Return the mean length in the last steps of an arm's training, by seed and by the length that a question asks for."""
    lengths = []
    for seed in sorted(study.seeds):
        (path,) = (run / arm_folder(arm, str(seed)) / "stages").glob("*/rollouts.parquet")
        rollouts = pl.read_parquet(path)
        last = rollouts.filter(pl.col("step") > pl.col("step").max() - LAST)
        means = last.group_by("budget").agg(pl.col("tokens").mean()).sort("budget")
        lengths += [(seed, budget, round(length, 1)) for budget, length in means.iter_rows()]
    return lengths


def kept_differences() -> dict[Pair, Interval]:
    """Return the kept difference of REG of each two arms."""
    ends = ("difference", "low", "high")
    return {
        (row["one"], row["two"]): Interval(*(number(row[name]) for name in ends))  # type: ignore[arg-type]
        for row in read_rows("paper_pairs")
    }


def arms_table(paper: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each arm, with its change in print on each of the paper's models."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{value:+.0f}%"

    rows = []
    for row in read_rows("paper"):
        arm = row["arm"]
        printed = [each.get(SAME.get(arm, arm)) for each in paper.values()]
        rows.append(
            (
                *(arm, f"{in_percent(float(row['accuracy']), 1)}%", f"{float(row['length']):.1f}"),
                difference(row),
                f"{float(row['reg']):.1f}",
                *(percent(None if each is None else 100 * each) for each in printed),
            )
        )
    head = ("arm", ">accuracy", ">length", ">REG vs. vanilla [95% interval]", ">REG")
    baselines = {model: f" (to {name})" for model, name in BASELINES.items()}
    printed_heads = (f">paper, {size}{baselines.get(model, '')}" for size, model in PAPER.items())
    return markdown((*head, *printed_heads), rows)


def groups(differences: Mapping[Pair, Interval]) -> str:
    """Return sentences on the pairs of arms that differ in REG, by what the arms have in common."""
    arms = list(dict.fromkeys(arm for pair in differences for arm in pair))
    signs = signs_of(differences)
    signs |= {(b, a): -sign for (a, b), sign in signs.items()}
    short = [arm for arm in arms if arm not in LONG]
    across = sum(signs[arm, other] < 0 for arm in short for other in OFFLINE)
    pairs = list(combinations(short, 2))
    within = [(a, b) if signs[a, b] < 0 else (b, a) for a, b in pairs if signs[a, b]]
    chance = 0.05 * len(pairs)
    sentences = [
        f"{across} of {len(OFFLINE) * len(short)} pairs of an arm of SFT, SimPO or HGPO with one of the {len(short)} RL arms"
        " that reward short responses have an interval that excludes 0, and the latter is lower.",
        f"{len(within)} of {len(pairs)} pairs among those {len(short)} have such an interval; about {chance:.0f} would by"
        f" chance if all were equal{': ' if within else ''}{', '.join(f'{a} below {b}' for a, b in within)}.",
    ]
    for other, called in (("l1_exact", "L1-Exact"), ("vanilla", "vanilla RL")):
        left = [arm for arm in short if signs[arm, other] >= 0]
        but = f", all but {', '.join(left)}" if left and len(left) < len(short) else ""
        sentences.append(
            f"{len(short) - len(left)} of the {len(short)} have an interval below {called}{but}."
        )
    asked: dict[int, list[float]] = {}
    for row in read_rows("paper_asked"):
        asked.setdefault(int(row["asked"]), []).append(float(row["length"]))
    lengths = "; ".join(
        f"{length}: {', '.join(f'{each:.0f}' for each in by_seed)}" for length, by_seed in asked.items()
    )
    sentences.append(
        f"In the last {LAST} steps of L1-Exact, questions that ask for a length get, by seed: {lengths} tokens."
    )
    return "\n".join(f"- {line}" for line in sentences)


def texts() -> dict[str, str]:
    """Return every table of the kept numbers, by the name of its markers in the page."""
    study = compile_file(ROOT / "specs" / "miniature" / "paper.reo").spec
    assert study is not None
    paper = {size: published(model) for size, model in PAPER.items()}
    differences = kept_differences()
    signs = {(SAME.get(a, a), SAME.get(b, b)): sign for (a, b), sign in signs_of(differences).items()}
    lines = order(signs, trained_by_rl(study.study), paper)
    return {"arms": arms_table(paper), "order": lines, "apart": groups(differences)}


def order(signs: Mapping[Pair, int], rl: Sequence[str], paper: Mapping[str, Mapping[str, float]]) -> str:
    """Return the lines on the order on each of the paper's models, over all arms and over those of RL alone."""
    named = {right: left for left, right in SAME.items()}
    lines = []
    for size, printed in paper.items():
        parts = [
            f"{what}: {counted(signs, printed, arms)}"
            for what, arms in (("all arms", None), ("RL alone", rl))
        ]
        count = Counter(name for pair in agreement(signs, printed)[3] for name in pair)
        out = (
            ", ".join(f"{named.get(name, name)} ({times})" for name, times in count.most_common(4)) or "none"
        )
        lines.append(f"- {size}: {'; '.join(parts)}. Out of order: {out}.")
    both = [
        f"{one} and {two} on {alike} of {of}"
        for one, two in combinations(paper, 2)
        for alike, of in [alike_in_print(paper[one], paper[two])]
        if of
    ]
    return "\n".join([*lines, f"- In print: {', '.join(both)}."])


def counted(signs: Mapping[Pair, int], paper: Mapping[str, float], arms: Collection[str] | None) -> str:
    """Return `9 of 11 (82% [40%, 100%]), of 21`: the pairs in order, those that differ, and all."""
    alike, apart, of, _ = agreement(signs, paper, arms)
    if not apart:
        return f"no pair of {of} differs"
    around = reach(signs, paper, arms)
    # An end is no share of its own: it is rounded as it is.
    ends = "" if around is None else " [{:.0f}%, {:.0f}%]".format(*(100 * end for end in around))
    return f"{alike} of {apart} ({in_percent(alike / apart)}%{ends}), of {of}"


def alike_in_print(one: Mapping[str, float], two: Mapping[str, float]) -> tuple[int, int]:
    """Return how many pairs of rows two of the paper's models order alike, and how many both order."""
    signs = {(a, b): (one[a] > one[b]) - (one[a] < one[b]) for a, b in combinations(sorted(one), 2)}
    alike, apart, _, _ = agreement(signs, two)
    return alike, apart


def main() -> None:
    """Keep a run, if one is named, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    run = parser.parse_args().run
    if run is not None:
        keep(run)
    rewrite(PAGE, texts())


if __name__ == "__main__":
    main()
