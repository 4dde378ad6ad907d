"""The runner of `measure` tasks: an arm's measures with intervals over seeds and questions.

A measure is a formula of means over responses. Each mean is found for every seed and question, and the formula once more
without each of these cells (a jackknife): for a mean itself that gives the cells back, and for a ratio what moves it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path

import numpy as np
import polars as pl

from reodsl.graph.job import Job
from reodsl.ir.base import Node, walk
from reodsl.ir.expression import (
    Aggregate,
    Attribute,
    Expression,
    ForcedAnswer,
    StepStatistic,
    Variable,
    rewrite,
)
from reodsl.ir.reward import Measure
from reodsl.numbers.crossed import Spread, spread_of
from reodsl.numbers.intervals import Interval, bound_interval, interval, subtract_intervals
from reodsl.numbers.reg import MEAN
from runners.evaluate.frontier import evaluations_of
from runners.rewards.inputs import Bools, Floats, Ints, RewardInputs
from runners.rewards.vectorise import measure_each

LOT = 1 << 22
"""Numbers in the largest array while responses are measured."""
Sums = dict[str, Floats]
"""The sums and counts of a mean by benchmark, [questions, 2], questions sorted by their ids."""


@dataclass(frozen=True, slots=True)
class EvaluationTables:
    """An arm's responses and forced verdicts, by benchmark.

    `samples` has a row for each response; `budgets` are in tokens; `forced` has verdicts [responses, budgets], or is None.
    """

    samples: Mapping[str, pl.DataFrame]
    budgets: tuple[int, ...]
    forced: Mapping[str, Bools] | None


@dataclass(frozen=True, slots=True)
class JackknifedMeasure:
    """A measure's `value` on a benchmark, and its pseudo-values `cells` [seeds, questions].

    `questions` is the number of questions with a response that the measure counts.
    """

    value: float
    cells: Floats
    questions: int


def measure(job: Job) -> None:
    """Write `measures.parquet`: every measure of every arm, on each benchmark and averaged over benchmarks.

    `value` has the ends of its interval, and `change` is its difference from the baseline's, paired. There is no row where
    a measure has no value, such as one of forced answers for responses of which none were forced.
    """
    work = job.task.work
    measures: tuple[Measure, ...] = work["measures"]
    statistics = list(
        dict.fromkeys(node for rule in measures for node in walk(rule) if isinstance(node, StepStatistic))
    )
    folders = evaluations_of(job)
    seeds = sorted({seed for _, seed in folders if seed is not None}) or [0]
    by_arm: dict[str, list[dict[StepStatistic, Sums | None]]] = {}
    for (arm, _), folder in folders.items():
        evaluated = read(folder, any(map(_is_forced, statistics)))
        by_arm.setdefault(arm, []).append({node: sums(node, evaluated) for node in statistics})
    for of_seeds in by_arm.values():
        of_seeds *= len(seeds) // len(of_seeds)
    base = by_arm.get(work["relative_to"] or "")
    rows = []
    for i, rule in enumerate(measures):
        cells_by_arm = {arm: cells_of(rule, seeds_of, base) for arm, seeds_of in by_arm.items()}
        start = cells_by_arm.get(work["relative_to"] or "")
        for arm, cells in cells_by_arm.items():
            compared = None if rule.compares or arm == work["relative_to"] else start
            rows += [
                {"arm": arm, "measure": i, "benchmark": benchmark, **row}
                for benchmark, row in summarise(rule, cells, compared, work["confidence"])
            ]
    schema = {"arm": pl.String(), "measure": pl.Int64(), "benchmark": pl.String()} | dict.fromkeys(
        ("value", "low", "high", "change", "change_low", "change_high"), pl.Float64()
    )
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(job.out / "measures.parquet")


def read(folder: Path, forced: bool) -> EvaluationTables:
    """Read the responses of an evaluation and, if `forced`, its verdicts at budgets.

    An evaluation whose curves are not of forced answers has no such verdicts.
    """
    names = ("benchmark", "question", "sample")
    columns = [*names, "tokens", "correct", "finish", "answer"]
    table = pl.read_parquet(folder / "samples.parquet", columns=columns, glob=False).sort(names)
    samples = {str(name): rows for (name,), rows in table.group_by("benchmark", maintain_order=True)}
    curves = json.loads((folder / "curves.json").read_text("utf-8"))
    if not forced or any(curve.get("kind", "J") != "J" for curve in curves.values()):
        return EvaluationTables(samples, (), None)
    cells = pl.read_parquet(folder / "forced.parquet", columns=[*names, "budget", "correct"], glob=False)
    cells = cells.sort(*names, "budget")
    budgets = tuple(cells["budget"].unique().sort())
    parts = {str(name): rows for (name,), rows in cells.group_by("benchmark", maintain_order=True)}
    return EvaluationTables(
        samples,
        budgets,
        {name: rows["correct"].to_numpy().reshape(-1, len(budgets)) for name, rows in parts.items()},
    )


def sums(node: StepStatistic, evaluated: EvaluationTables) -> Sums | None:
    """Return a mean's sums and counts.

    Returns:
        Arrays [questions, 2] by benchmark, each divided by a question's number of responses; None if the mean reads
        forced answers and the evaluation has no forced answers.
    """
    if _is_forced(node) and evaluated.forced is None:
        return None
    by_benchmark: Sums = {}
    for name, table in evaluated.samples.items():
        forced = None if evaluated.forced is None else evaluated.forced[name]
        blocks = []
        for first, count, questions in rectangles(table, len(evaluated.budgets) or 1):
            rows = table.slice(first, count * questions)
            shape = questions, count
            answers = None if forced is None else forced[first : first + count * questions]
            inputs = inputs_of(rows, shape, node, evaluated.budgets)
            value, keep = (
                np.ones(shape) if part is None else _each(part, node.var, inputs, evaluated.budgets, answers)
                for part in (node.value, node.where)
            )
            keep = keep != 0
            blocks.append(np.stack([np.where(keep, value, 0).mean(axis=1), keep.mean(axis=1)], axis=1))
        by_benchmark[name] = np.concatenate(blocks)
    return by_benchmark


def rectangles(table: pl.DataFrame, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of questions with equally many responses, as the first row, responses a question, and questions."""
    counts = table.group_by("question", maintain_order=True).len()["len"].to_list()
    row = start = 0
    while start < len(counts):
        count = counts[start]
        most = max(1, LOT // (count * max(count, width)))
        end = start
        while end < len(counts) and counts[end] == count and end - start < most:
            end += 1
        yield row, count, end - start
        row, start = row + count * (end - start), end


def inputs_of(
    table: pl.DataFrame, shape: tuple[int, int], node: StepStatistic, budgets: Sequence[int]
) -> RewardInputs:
    """Return responses as arrays, with the numbers that an expression reads of an evaluation.

    Args:
        table: rows of `samples.parquet`, questions in order.
        shape: [questions, responses of a question].
        node: the mean whose numbers are read.
        budgets: budgets of the forced answers, in tokens.
    """
    # Of results from elsewhere it may only be known which responses are right.
    answered = table["correct"] | (table["answer"].fill_null("") != "")
    features = {
        name: column.to_numpy().astype(float).reshape(shape)
        for name, column in (("ended", table["finish"] != "length"), ("answered", answered))
    }
    correct = table["correct"].to_numpy().reshape(shape)
    for field in {part.field for part in walk(node) if isinstance(part, Attribute)} - features.keys():
        answers = table["answer"].to_list()
        votes = int(field.partition("@")[2])
        answer_rows = [answers[i : i + shape[1]] for i in range(0, len(answers), shape[1])]
        shares = [
            majority(row, right.tolist(), votes) for row, right in zip(answer_rows, correct, strict=True)
        ]
        features[field] = np.repeat(np.array(shares)[:, None], shape[1], axis=1)
    split_tokens = np.array(budgets or (0,), dtype=float)[None, None]
    length = table["tokens"].to_numpy().astype(float).reshape(shape)
    valid = np.ones(split_tokens.shape, dtype=np.bool_)
    return RewardInputs(("",) * shape[0], length, correct.astype(float), split_tokens, valid, features)


def _each(
    value: Expression, name: str, inputs: RewardInputs, budgets: Sequence[int], answers: Bools | None
) -> Floats:
    def forced(rows: Ints, cut: Ints) -> Bools:
        assert answers is not None
        # The last budget that is not above: a rehearsal's budgets are not to the token those that are cut at.
        picked: Bools = answers[rows, np.maximum(np.searchsorted(budgets, cut, side="right") - 1, 0)]
        return picked

    return measure_each(value, name, inputs, {}, forced)


def majority(answers: Sequence[str | None], right: Sequence[bool], votes: int) -> float:
    """Return the probability that the most frequent answer among `votes` drawn responses is right.

    All right answers count as the same answer, however they are written. A response without an answer casts no vote, and
    ties are broken by chance.

    Args:
        answers: the answers of a question's responses, None if there is no answer.
        right: whether each answer is right.
        votes: number of responses that are drawn without replacement.
    """
    wrong: dict[str, int] = {}
    for answer, good in zip(answers, right, strict=True):
        if answer and not good:
            wrong[answer] = wrong.get(answer, 0) + 1
    hits = int(sum(right))
    blank = len(answers) - hits - sum(wrong.values())
    return _vote(hits, tuple(sorted(wrong.values())), blank, min(votes, len(answers)))


@lru_cache(1 << 16)
def _vote(hits: int, wrong: tuple[int, ...], blank: int, votes: int) -> float:
    """Count draws by the number of right answers (`most`), and by how many wrong answers are equally frequent."""
    won = 0.0
    for most in range(1, min(hits, votes) + 1):
        # ways[n][t]: draws of n others, none of them more frequent, of which t are equally so.
        ways: dict[tuple[int, int], int] = {(n, 0): comb(blank, n) for n in range(min(blank, votes) + 1)}
        for size in wrong:
            grown: dict[tuple[int, int], int] = {}
            for (n, ties), count in ways.items():
                for more in range(min(size, most, votes - most - n) + 1):
                    key = n + more, ties + (more == most)
                    grown[key] = grown.get(key, 0) + count * comb(size, more)
            ways = grown
        for (n, ties), count in ways.items():
            if n == votes - most:
                won += comb(hits, most) * count / (1 + ties)
    return won / comb(hits + sum(wrong) + blank, votes)


def _is_forced(node: Node) -> bool:
    return any(
        isinstance(child, ForcedAnswer) or (isinstance(child, Aggregate) and child.over == "splits")
        for child in walk(node)
    )


def cells_of(
    rule: Measure,
    arm: Sequence[Mapping[StepStatistic, Sums | None]],
    base: Sequence[Mapping[StepStatistic, Sums | None]] | None,
) -> dict[str, JackknifedMeasure] | None:
    """Return a measure by benchmark; None if a mean has no value."""
    sums_of: dict[StepStatistic, list[Sums]] = {}
    for node in dict.fromkeys(part for part in walk(rule) if isinstance(part, StepStatistic)):
        by_seed = [seed_sums[node] for seed_sums in (arm if node.over == "arm" else base or ())]
        available = [seed_sums for seed_sums in by_seed if seed_sums is not None]
        if len(available) < len(by_seed) or not available:
            return None
        sums_of[node] = available
    cells: dict[str, JackknifedMeasure] = {}
    for name in next(iter(sums_of.values()))[0]:
        stacked = {
            node: np.stack([seed_sums[name] for seed_sums in of_seeds]) for node, of_seeds in sums_of.items()
        }
        if len({pairs.shape for pairs in stacked.values()}) > 1:
            return None
        cells[name] = jackknife(rule, stacked)
    return cells


def jackknife(rule: Measure, sums_of: Mapping[StepStatistic, Floats]) -> JackknifedMeasure:
    """Return a measure's value, and its pseudo-values without each cell of [seeds, questions].

    Args:
        rule: the measure.
        sums_of: sums and counts [seeds, questions, 2] of each of its means.

    Source: Tukey 1958, Bias and confidence in not quite large samples.
    """
    shape = next(iter(sums_of.values())).shape[:2]
    count = shape[0] * shape[1]
    totals = {node: cell_sums.sum(axis=(0, 1))[None] for node, cell_sums in sums_of.items()}
    value = float(formula(rule, totals)[0])
    questions = min(int((cell_sums[..., 1] > 0).any(axis=0).sum()) for cell_sums in sums_of.values())
    if count < 2:
        return JackknifedMeasure(value, np.full(shape, value), questions)
    without = {node: totals[node] - cell_sums.reshape(-1, 2) for node, cell_sums in sums_of.items()}
    pseudo = count * value - (count - 1) * formula(rule, without)
    return JackknifedMeasure(value, pseudo.reshape(shape), questions)


def formula(rule: Measure, sums_of: Mapping[StepStatistic, Floats]) -> Floats:
    """Return a measure computed from the sums and counts of its means.

    Args:
        rule: the measure.
        sums_of: sums and counts [rows, 2] of each of its means.

    Returns:
        An array [rows].
    """
    names = {node: f"mean{i}" for i, node in enumerate(sums_of)}
    numbers: dict[str, Floats] = {}

    def value(expression: Expression) -> Floats:
        def put(node: Node) -> Node | None:
            if isinstance(node, StepStatistic):
                return Attribute(of="z", field=names[node])
            return Attribute(of="z", field=node.name) if isinstance(node, Variable) else None

        ones = np.ones((len(next(iter(sums_of.values()))), 1))
        features = {name: values[:, None] for name, values in numbers.items()}
        inputs = RewardInputs(("",) * len(ones), ones, ones, ones[:, :, None], ones[:, :, None] > 0, features)
        return measure_each(rewrite(expression, put), "z", inputs, {})[:, 0]

    # What a mean is of nothing may hold other means, which come after it.
    for node, pairs in reversed(list(sums_of.items())):
        # A count that is nothing but rounding is none: what is left of sums of shares.
        nonzero = pairs[:, 1] > 1e-9
        empty = np.nan if node.empty is None or nonzero.all() else value(node.empty)
        numbers[names[node]] = np.where(nonzero, pairs[:, 0] / np.where(nonzero, pairs[:, 1], 1), empty)
    for let in rule.lets:
        numbers[let.name] = value(let.value)
    return value(rule.value)


def summarise(
    rule: Measure,
    cells: Mapping[str, JackknifedMeasure] | None,
    start: Mapping[str, JackknifedMeasure] | None,
    confidence: float,
) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yield the row of each benchmark and of their mean, with the value and its difference from the baseline.

    Args:
        rule: the measure.
        cells: the arm's jackknifed values by benchmark, or None.
        start: the baseline's, or None if the arm is not compared.
        confidence: the coverage of intervals, as 0.95.
    """
    if cells is None:
        return
    for benchmark, names in {**{name: (name,) for name in cells}, MEAN: tuple(cells)}.items():
        parts = {name: cells[name] for name in names}
        own, spread = _measure_interval(rule, parts, confidence)
        if not np.isfinite(own.value):
            continue
        row: dict[str, float | None] = {"value": own.value, "low": own.low, "high": own.high}
        if start is not None and all(
            name in start and start[name].cells.shape == cells[name].cells.shape for name in names
        ):
            other, of_other = _measure_interval(rule, {name: start[name] for name in names}, confidence)
            paired = {name: cells[name].cells - start[name].cells for name in names}
            if _is_share(rule):
                of_both = spread_of(paired)
                change = subtract_intervals(own, other, _correlation(spread, of_other, of_both))
            else:
                change = _centre(interval(paired, confidence), own.value - other.value)
            row |= {"change": change.value, "change_low": change.low, "change_high": change.high}
        yield benchmark, row


def _is_share(rule: Measure) -> bool:
    """Return whether a measure is a single mean of responses with a finite range."""
    means = {node for node in walk(rule) if isinstance(node, StepStatistic)}
    return len(means) == 1 and rule.low is not None and rule.high is not None and rule.low < rule.high


def _measure_interval(
    rule: Measure, cells: Mapping[str, JackknifedMeasure], confidence: float
) -> tuple[Interval, Spread | None]:
    """Return a measure's mean over benchmarks with an interval within its range, and the spread of its cells."""
    pseudo = {name: cell.cells for name, cell in cells.items()}
    spread = spread_of(pseudo)
    centred = _centre(interval(pseudo, confidence), float(np.mean([cell.value for cell in cells.values()])))
    low = -math.inf if rule.low is None else rule.low
    high = math.inf if rule.high is None else rule.high
    questions = len(cells) ** 2 / sum(1 / max(cell.questions, 1) for cell in cells.values())
    of_share = (spread, questions) if _is_share(rule) else (None, None)
    return bound_interval(centred, low, high, confidence, *of_share), spread


def _correlation(first: Spread | None, second: Spread | None, both: Spread | None) -> float:
    """Return the correlation of two means from their variances and that of their difference; 0 if either has no variance."""
    if first is None or second is None or both is None or min(first.variance, second.variance) <= 0:
        return 0.0
    shared = first.variance + second.variance - both.variance
    return max(-1.0, min(1.0, shared / (2 * math.sqrt(first.variance * second.variance))))


def _centre(bounds: Interval, value: float) -> Interval:
    """Return an interval of pseudo-values about the value itself."""
    if bounds.low is None or bounds.high is None or not np.isfinite([bounds.low, bounds.high]).all():
        return Interval(value)
    reach = (bounds.high - bounds.low) / 2
    return Interval(value, value - reach, value + reach)
