"""A study's verdict: the difference of REG of every pair of arms, who leads and who ties; and the causes of a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.numbers.extension import Extension, extend
from reodsl.numbers.intervals import EQUIVALENCE_ERROR, Comparisons, column_weights
from reodsl.numbers.reg import integration_grid

if TYPE_CHECKING:
    import polars as pl


MARGIN_SHARE = 0.1
"""The largest margin of equivalence as a share of the baseline's REG.

Methods claim differences of at least a fifth of this REG; a tenth is half of the least difference worth reporting.
"""

KEYS = ("benchmark", "question", "seed", "sample")


@dataclass(frozen=True, slots=True)
class EqualResponses:
    """Counts of two arms' paired responses: those with the `same` text, of all that were `compared`."""

    same: int
    compared: int


@dataclass(frozen=True, slots=True)
class PairDifference:
    """REG of the arm `one` minus that of `two`: below 0, `one` is ahead.

    All numbers but `value` are None, and `significant` is false, if the data give no spread.
    """

    one: str
    """An arm."""
    two: str
    """The arm that is subtracted."""
    value: float
    """The difference in tokens on the mean over benchmarks."""
    low: float | None = None
    """The lower end of the uncorrected interval, in tokens."""
    high: float | None = None
    """The upper end of the uncorrected interval, in tokens."""
    p: float | None = None
    """The two-sided p-value against equal arms."""
    p_holm: float | None = None
    """`p` corrected for all comparisons of the study."""
    significant: bool = False
    """True if `p_holm` is small enough for a star."""
    same_within: float | None = None
    """The least margin in tokens within which the arms are the same, by two one-sided tests that are corrected for all
    pairs.
    """
    common: EqualResponses | None = None
    """The equal responses of the two arms."""

    def swapped(self) -> PairDifference:
        """Return the difference with the arms exchanged and the numbers negated."""
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
    """The verdict of a study about its arms, by REG on the mean over benchmarks."""

    arms: tuple[str, ...]
    """All arms, best first, members of the frontier too."""
    leaders: tuple[str, ...]
    """The arms whose REG is not significantly above any arm's."""
    tied: tuple[PairDifference, ...]
    """The pairs of leaders."""
    pairs: tuple[PairDifference, ...]
    """All pairs, the better arm first."""
    baseline: str | None
    """The baseline, if there is one."""
    against_baseline: tuple[PairDifference, ...]
    """Each other arm minus the baseline, including arms that are not in `arms`."""
    margin: float | None
    """The largest `same_within` at which a pair counts as equivalent, in tokens: a tenth of the baseline's REG. None without
    a baseline, or if the interval of its REG contains 0.
    """
    comparisons: int
    """The number of comparisons that is corrected for."""
    seeds: int
    """Seeds of the study."""
    questions: int
    """Questions of the study, over all benchmarks."""
    confidence: float
    """The confidence of intervals, such as 0.95."""
    extension: Extension | None = None
    """The sizes that settle the difference of the two best leaders; None if one arm leads, if the two are equivalent within
    `margin`, or if an earlier version computed the verdict.
    """

    @property
    def trained_once(self) -> bool:
        """Return whether the verdict rests on a single seed, so that another seed may differ."""
        return self.seeds == 1

    @property
    def same(self) -> tuple[PairDifference, ...]:
        """Return the pairs that are equivalent within `margin`."""
        if self.margin is None:
            return ()
        return tuple(e for e in self.pairs if e.same_within is not None and e.same_within <= self.margin)


def judge(
    comparisons: Comparisons,
    *,
    baseline: str | None = None,
    baseline_reg: tuple[float, float] | None = None,
    common: Mapping[frozenset[str], EqualResponses] | None = None,
) -> StudyVerdict:
    """Return the verdict from a study's comparisons, on the arms that are compared in all pairs.

    Leaders are the arms that no arm beats significantly.

    Args:
        comparisons: The comparisons.
        baseline: The baseline's name.
        baseline_reg: The REG of the baseline and the lower end of its interval, in tokens. The margin of equivalence is
            a share of this REG, if the lower end is above 0.
        common: The equal responses by pair of arms; None if they were not counted.
    """
    arms = comparisons.arms
    compared = [
        PairDifference(
            *(one, two, result.value, result.low, result.high, result.p, result.p_holm, result.significant),
            comparisons.within.get((one, two)),
            (common or {}).get(frozenset((one, two))),
        )
        for (one, two), result in comparisons.reg.items()
    ]
    pairs = tuple(pair for pair in compared if pair.one in arms and pair.two in arms)
    beaten = {pair.two for pair in compared if pair.significant}
    leaders = tuple(arm for arm in arms if arm not in beaten)
    verdict = StudyVerdict(
        arms,
        leaders,
        tuple(pair for pair in pairs if pair.one in leaders and pair.two in leaders),
        pairs,
        baseline,
        tuple(
            pair if pair.two == baseline else pair.swapped()
            for pair in compared
            if baseline in (pair.one, pair.two)
        ),
        MARGIN_SHARE * baseline_reg[0] if baseline_reg is not None and baseline_reg[1] > 0 else None,
        comparisons.count,
        comparisons.seeds,
        comparisons.questions,
        comparisons.confidence,
    )
    return replace(verdict, extension=extension_of(verdict, comparisons))


def extension_of(verdict: StudyVerdict, comparisons: Comparisons) -> Extension | None:
    """Return the sizes that settle the difference of the two best leaders, or None as `StudyVerdict.extension` is.

    The tests have the levels of Holm's next step after the study's significant differences, and of its tests of
    equivalence.

    Args:
        verdict: The verdict.
        comparisons: The comparisons it was made from.
    """
    pair = next(iter(verdict.tied), None)
    if pair is None or pair in verdict.same or not comparisons.reg[pair.one, pair.two].spreads:
        return None
    tested = [*comparisons.reg.values(), *comparisons.accuracy.values()]
    stars = sum(result.significant for result in tested) - pair.significant
    return extend(
        abs(pair.value),
        comparisons.reg[pair.one, pair.two].spreads[1],
        seeds=comparisons.seeds,
        questions=comparisons.questions,
        level=(1 - comparisons.confidence) / (comparisons.count - stars),
        same_level=EQUIVALENCE_ERROR / (comparisons.count - len(comparisons.accuracy)),
        margin=verdict.margin,
    )


def common_of(folders: Mapping[tuple[str, int | None], Path]) -> dict[frozenset[str], EqualResponses]:
    """Return for every pair of arms how many of their responses have equal texts.

    Args:
        folders: Folders of evaluations, by arm and seed.

    Returns:
        Counts by the set of the two names.
    """
    import polars as pl

    parts: dict[str, list[pl.DataFrame]] = {}
    for (arm, seed), folder in folders.items():
        # Imported results may lack texts, and a missing text equals no other.
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


def common_responses(one: pl.DataFrame, two: pl.DataFrame, on: str = "response") -> EqualResponses:
    """Count the responses of two arms to the same question, with the same seed and sample, whose texts are equal.

    Args:
        one: Rows of `samples.parquet`, with a column `seed` if there are several seeds.
        two: Rows of the other arm.
        on: The column that is compared.
    """
    keys = [key for key in KEYS if key in one.columns and key in two.columns]
    both = one.select(*keys, on).join(two.select(*keys, on), on=keys, suffix="_other")
    return EqualResponses(int((both[on] == both[f"{on}_other"]).sum()), both.height)


VERDICT = "verdict.json"
"""The name of the verdict's file in the folder of a score or a report."""


def to_json(verdict: StudyVerdict) -> dict[str, Any]:
    """Return a verdict as JSON data."""
    return asdict(verdict)


def from_json(data: Any, new_names: Mapping[str, str] | None = None) -> StudyVerdict:
    """Return a verdict from JSON data.

    Args:
        data: The content of a verdict's file.
        new_names: Current names of arms by stored name, if arms were renamed.

    Raises:
        ValueError: The data are not a verdict.
    """
    names = new_names or {}

    def arm(name: str) -> str:
        """Return the current name of an arm."""
        return names.get(name, name)

    def pairs(rows: Any) -> tuple[PairDifference, ...]:
        """Return the differences of pairs from rows of JSON data."""
        return tuple(
            PairDifference(
                **{
                    **row,
                    "one": arm(row["one"]),
                    "two": arm(row["two"]),
                    "common": None if row["common"] is None else EqualResponses(**row["common"]),
                }
            )
            for row in rows
        )

    try:
        return StudyVerdict(
            **{
                **{key: value for key, value in data.items() if key not in ("sentences", "command")},
                **{key: pairs(data[key]) for key in ("tied", "pairs", "against_baseline")},
                **{key: tuple(arm(name) for name in data[key]) for key in ("arms", "leaders")},
                "baseline": None if data["baseline"] is None else arm(data["baseline"]),
                "extension": Extension(**data["extension"]) if data.get("extension") else None,
            }
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise ValueError(f"this is not a verdict: {failure}") from None


CAUSES = {
    "before": "before an answer was right",
    "after": "after it was right",
    "given_up": "given up too early",
    "cut": "cut off at the longest length",
    "unsolved": "never solved",
}
"""The causes of wrong answers at a budget, in the order of their time in a response, with words for each."""
SAMPLE_KEYS = ("benchmark", "question", "sample")


def weigh(budgets: Sequence[int], to: int | None = None) -> dict[int, float]:
    """Return the weight of each budget in the trapezoid integral over budgets.

    Budgets above `to` are left out if the integral does not use them.

    Args:
        budgets: The evaluated budgets, in tokens.
        to: The end of integration, in tokens; None for the last budget.

    Returns:
        The weight in tokens, by budget.
    """
    points = integration_grid(to or budgets[-1], budgets)
    weights = column_weights(budgets, points)
    return {b: float(w) for b, w in zip(budgets, weights, strict=True) if b <= points[-1] or w > 0}


def split_losses(forced: pl.LazyFrame, samples: pl.LazyFrame, weights: Mapping[int, float]) -> pl.LazyFrame:
    """Return how many tokens of budget each response loses by a wrong answer, divided by cause.

    A budget with a wrong answer loses its weight in tokens. The causes are:

    - `unsolved`: no response to the question is right at any budget.
    - `before` and `after`: the budget is smaller or larger than the first at which this response is right.
    - `given_up`, or `cut` if the response reached the longest length: the response is never right, and the budget is at
      least its length. Its smaller budgets count as `before`.

    The sum over causes is the integral of 1 - correctness.

    Args:
        forced: Rows of `forced.parquet`.
        samples: Rows of `samples.parquet`.
        weights: Tokens by budget, from `weigh`.

    Returns:
        A row for each response, with a column for each of `CAUSES`, in tokens.
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
    solved = pl.when("solved")
    return rows.select(
        *SAMPLE_KEYS,
        solved.then(pl.col("whole") - pl.col("after") - pl.col("ended")).otherwise(0.0).alias("before"),
        solved.then("after").otherwise(0.0).alias("after"),
        pl.when(pl.col("solved") & ~pl.col("cut_off")).then("ended").otherwise(0.0).alias("given_up"),
        pl.when(pl.col("solved") & pl.col("cut_off")).then("ended").otherwise(0.0).alias("cut"),
        solved.then(0.0).otherwise("whole").alias("unsolved"),
    ).sort(SAMPLE_KEYS)
