"""A study's verdict: every two arms' difference of REG, who leads and who ties; and what a gap consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.numbers.intervals import Comparisons, column_weights
from reodsl.numbers.reg import integration_grid

if TYPE_CHECKING:
    import polars as pl


SMALL = 0.1
"""The share of the baseline's REG that a margin may be for two arms to be called the same within it.

What methods claim over each other is a fifth of it and more; a tenth is half of the least that anybody would report.
"""

KEYS = ("benchmark", "question", "seed", "sample")


@dataclass(frozen=True, slots=True)
class Common:
    """Counts of two arms' paired responses: those that are the `same` text, of all that were `compared`."""

    same: int
    compared: int


@dataclass(frozen=True, slots=True)
class PairDifference:
    """REG of `one` minus that of `two`, in tokens and on the mean over benchmarks: below 0, `one` is ahead.

    `low` and `high` are the ends of the interval of this difference by itself, and `p` is its two-sided probability
    if the two were equal; `p_holm` is that corrected for all comparisons of the study, and `significant` whether it is small
    enough for a star. Two one-sided tests, corrected for all pairs, find the arms the same within `same_within` tokens and
    within no less. All are None, and `significant` is false, where the data tell no spread. `common` counts the equal
    responses.
    """

    one: str
    two: str
    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    significant: bool = False
    same_within: float | None = None
    common: Common | None = None

    def turned(self) -> PairDifference:
        """Return the same pair with its arms in the other order."""
        return replace(
            self,
            one=self.two,
            two=self.one,
            value=0.0 - self.value,
            low=None if self.high is None else 0.0 - self.high,
            high=None if self.low is None else 0.0 - self.low,
        )


@dataclass(frozen=True, slots=True)
class StudyVerdict:
    """The verdict of a study about its arms, by REG on the mean over benchmarks.

    `arms` are all of them, best first, members of the frontier too. `leaders` are those whose REG no arm's is significantly
    below, so that no difference between two of them is significant; `tied` are their pairs. `pairs` are every two arms, the
    better one first. `against_baseline` has each other arm minus `baseline`, of arms beyond `arms` too, in their order.
    `margin` is the largest `same_within`, in tokens, that is worth naming: a tenth of the baseline's REG; None where there
    is no baseline, or the interval of its REG holds 0. `comparisons` is the number that is corrected for. It rests on
    `seeds` and `questions`.
    """

    arms: tuple[str, ...]
    leaders: tuple[str, ...]
    tied: tuple[PairDifference, ...]
    pairs: tuple[PairDifference, ...]
    baseline: str | None
    against_baseline: tuple[PairDifference, ...]
    margin: float | None
    comparisons: int
    seeds: int
    questions: int
    confidence: float

    @property
    def trained_once(self) -> bool:
        """Return whether it rests on one seed, so that it holds for these trained models, and a new training may differ."""
        return self.seeds == 1

    @property
    def same(self) -> tuple[PairDifference, ...]:
        """Return the pairs that are the same within a margin worth naming."""
        if self.margin is None:
            return ()
        return tuple(e for e in self.pairs if e.same_within is not None and e.same_within <= self.margin)


def judge(
    comparisons: Comparisons,
    *,
    baseline: str | None = None,
    baseline_reg: tuple[float, float] | None = None,
    common: Mapping[frozenset[str], Common] | None = None,
) -> StudyVerdict:
    """Return the verdict of a study's comparisons, on those arms of which every two are compared.

    `baseline_reg` is the REG of the baseline and the lower end of its interval, which say what margin is worth naming.
    `common` has the equal responses by pair of arms.
    """
    arms = comparisons.arms
    compared = [
        PairDifference(
            *(one, two, known.value, known.low, known.high, known.p, known.p_holm, known.significant),
            comparisons.within.get((one, two)),
            (common or {}).get(frozenset((one, two))),
        )
        for (one, two), known in comparisons.reg.items()
    ]
    pairs = tuple(pair for pair in compared if pair.one in arms and pair.two in arms)
    beaten = {pair.two for pair in compared if pair.significant}
    leaders = tuple(arm for arm in arms if arm not in beaten)
    return StudyVerdict(
        arms,
        leaders,
        tuple(pair for pair in pairs if pair.one in leaders and pair.two in leaders),
        pairs,
        baseline,
        tuple(
            pair if pair.two == baseline else pair.turned()
            for pair in compared
            if baseline in (pair.one, pair.two)
        ),
        SMALL * baseline_reg[0] if baseline_reg is not None and baseline_reg[1] > 0 else None,
        comparisons.count,
        comparisons.seeds,
        comparisons.questions,
        comparisons.confidence,
    )


def common_of(folders: Mapping[tuple[str, int | None], Path]) -> dict[frozenset[str], Common]:
    """Return how many responses every two arms have in common, by the evaluations of arms and seeds."""
    import polars as pl

    parts: dict[str, list[pl.DataFrame]] = {}
    for (arm, seed), folder in folders.items():
        # Results of others may have no text, which is equal to none.
        text = pl.when(pl.col("response").is_not_null()).then(pl.col("response").hash()).alias("response")
        rows = pl.scan_parquet(folder / "samples.parquet", glob=False).select(
            "benchmark", "question", "sample", text
        )
        of_seed = rows if seed is None else rows.with_columns(pl.lit(seed).alias("seed"))
        parts.setdefault(arm, []).append(of_seed.collect(engine="streaming"))
    arms = {arm: pl.concat(frames) for arm, frames in parts.items()}
    return {
        frozenset((one, two)): common_responses(arms[one], arms[two]) for one, two in combinations(arms, 2)
    }


def common_responses(one: pl.DataFrame, two: pl.DataFrame, on: str = "response") -> Common:
    """Count the responses that two arms' samples have in common: equal ones of one question, seed and sample.

    The samples are rows of `samples.parquet`; those of several seeds carry a column `seed`. `on` is the column that is
    compared.
    """
    keys = [key for key in KEYS if key in one.columns and key in two.columns]
    both = one.select(*keys, on).join(two.select(*keys, on), on=keys, suffix="_other")
    return Common(int((both[on] == both[f"{on}_other"]).sum()), both.height)


VERDICT = "verdict.json"
"""The file of a score or a report that holds it."""


def to_json(verdict: StudyVerdict) -> dict[str, Any]:
    """Return a verdict as JSON data."""
    return asdict(verdict)


def from_json(data: Any, called: Mapping[str, str] | None = None) -> StudyVerdict:
    """Return the verdict of JSON data, with the arms that `called` names under those names. Raises ValueError."""
    names = called or {}

    def arm(name: str) -> str:
        return names.get(name, name)

    def pairs(rows: Any) -> tuple[PairDifference, ...]:
        return tuple(
            PairDifference(
                **{
                    **row,
                    "one": arm(row["one"]),
                    "two": arm(row["two"]),
                    "common": None if row["common"] is None else Common(**row["common"]),
                }
            )
            for row in rows
        )

    try:
        return StudyVerdict(
            **{
                **{key: value for key, value in data.items() if key != "sentences"},
                **{key: pairs(data[key]) for key in ("tied", "pairs", "against_baseline")},
                **{key: tuple(arm(each) for each in data[key]) for key in ("arms", "leaders")},
                "baseline": None if data["baseline"] is None else arm(data["baseline"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise ValueError(f"this is no verdict: {failure}") from None


CAUSES = {
    "before": "before an answer was right",
    "after": "after it was right",
    "given_up": "given up too early",
    "cut": "cut off at the longest length",
    "unsolved": "never solved",
}
"""The causes of budgets at which an answer is wrong, in the order of a response, with words for them."""
SAMPLE_KEYS = ("benchmark", "question", "sample")


def weigh(budgets: Sequence[int], to: int | None = None) -> dict[int, float]:
    """Return the tokens that each budget stands for in the integral up to `to`, or up to the last budget."""
    points = integration_grid(to or budgets[-1], budgets)
    weights = column_weights(budgets, points)
    return {b: float(w) for b, w in zip(budgets, weights, strict=True) if b <= points[-1] or w > 0}


def split_losses(forced: pl.LazyFrame, samples: pl.LazyFrame, weights: Mapping[int, float]) -> pl.LazyFrame:
    """Return the tokens that each response loses to each of `CAUSES`, from rows of `forced.parquet` and `samples.parquet`.

    Together they are the integral of 1 less whether its answer is right.
    """
    import polars as pl

    weight, budget, wrong = pl.col("weight"), pl.col("budget"), ~pl.col("correct")
    first = budget.filter(pl.col("correct")).min()
    schema = {"budget": pl.Int64, "weight": pl.Float64}
    table = pl.LazyFrame(list(weights.items()), schema=schema, orient="row")
    cut = samples.select(*SAMPLE_KEYS, (pl.col("finish") == "length").fill_null(False).alias("cut_off"))
    rows = (
        forced.join(table, on="budget")
        .group_by(SAMPLE_KEYS)
        .agg(
            first.is_not_null().alias("solved"),
            weight.filter(wrong).sum().alias("whole"),
            weight.filter(wrong & (budget > first)).sum().alias("after"),
            weight.filter(wrong & ~pl.col("forced") & first.is_null()).sum().alias("ended"),
        )
        .with_columns(pl.col("solved").any().over("benchmark", "question"))
        .join(cut, on=SAMPLE_KEYS, how="left")
    )
    known = pl.when("solved")
    return rows.select(
        *SAMPLE_KEYS,
        known.then(pl.col("whole") - pl.col("after") - pl.col("ended")).otherwise(0.0).alias("before"),
        known.then("after").otherwise(0.0).alias("after"),
        pl.when(pl.col("solved") & ~pl.col("cut_off")).then("ended").otherwise(0.0).alias("given_up"),
        pl.when(pl.col("solved") & pl.col("cut_off")).then("ended").otherwise(0.0).alias("cut"),
        known.then(0.0).otherwise("whole").alias("unsolved"),
    ).sort(SAMPLE_KEYS)
