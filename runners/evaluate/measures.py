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
from reodsl.ir.expression import Aggregate, Expression, ForcedAnswer, Given, History, Variable, rewrite
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
class Evaluated:
    """An arm's responses by benchmark, and the forced answers of each [questions, samples, budgets] where there are any."""

    samples: Mapping[str, pl.DataFrame]
    budgets: tuple[int, ...]
    forced: Mapping[str, Bools] | None


@dataclass(frozen=True, slots=True)
class Jackknifed:
    """A measure's `value` on a benchmark, and its pseudo-values, `cells` [seeds, questions].

    `questions` is the number of those that have a response in it.
    """

    value: float
    cells: Floats
    questions: int


def measure(job: Job) -> None:
    """Write `measures.parquet`: every measure of every arm, on each benchmark and their mean.

    `value` has the ends of its interval, and `change` is its difference from the baseline's, paired. There is no row where
    a measure has no value, such as one of forced answers for responses of which none were forced.
    """
    work = job.task.work
    measures: tuple[Measure, ...] = work["measures"]
    histories = list(
        dict.fromkeys(node for each in measures for node in walk(each) if isinstance(node, History))
    )
    folders = evaluations_of(job)
    seeds = sorted({seed for _, seed in folders if seed is not None}) or [0]
    by_arm: dict[str, list[dict[History, Sums | None]]] = {}
    for (arm, _), folder in folders.items():
        evaluated = read(folder, any(_is_forced(each) for each in histories))
        by_arm.setdefault(arm, []).append({each: sums(each, evaluated) for each in histories})
    for of_seeds in by_arm.values():
        of_seeds *= len(seeds) // len(of_seeds)
    base = by_arm.get(work["relative_to"] or "")
    rows = []
    for number, rule in enumerate(measures):
        known = {arm: cells_of(rule, each, base) for arm, each in by_arm.items()}
        start = known.get(work["relative_to"] or "")
        for arm, cells in known.items():
            compared = None if rule.compares or arm == work["relative_to"] else start
            rows += [
                {"arm": arm, "measure": number, "benchmark": place, **each}
                for place, each in summarise(rule, cells, compared, work["confidence"])
            ]
    schema = {"arm": pl.String(), "measure": pl.Int64(), "benchmark": pl.String()} | dict.fromkeys(
        ("value", "low", "high", "change", "change_low", "change_high"), pl.Float64()
    )
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(job.out / "measures.parquet")


def read(folder: Path, forced: bool) -> Evaluated:
    """Read an evaluation, and with `forced` its answers at budgets; `ended` ones have none."""
    names = ("benchmark", "question", "sample")
    columns = [*names, "tokens", "correct", "finish", "answer"]
    table = pl.read_parquet(folder / "samples.parquet", columns=columns, glob=False).sort(names)
    samples = {str(name): part for (name,), part in table.group_by("benchmark", maintain_order=True)}
    drawn = json.loads((folder / "curves.json").read_text("utf-8"))
    if not forced or any(curve.get("kind", "J") != "J" for curve in drawn.values()):
        return Evaluated(samples, (), None)
    cells = pl.read_parquet(folder / "forced.parquet", columns=[*names, "budget", "correct"], glob=False)
    cells = cells.sort(*names, "budget")
    budgets = tuple(cells["budget"].unique().sort())
    parts = {str(name): part for (name,), part in cells.group_by("benchmark", maintain_order=True)}
    return Evaluated(
        samples,
        budgets,
        {name: part["correct"].to_numpy().reshape(-1, len(budgets)) for name, part in parts.items()},
    )


def sums(node: History, evaluated: Evaluated) -> Sums | None:
    """Return a mean's sums and counts by question; None where it is of forced answers and there are none."""
    if _is_forced(node) and evaluated.forced is None:
        return None
    found: Sums = {}
    for name, table in evaluated.samples.items():
        forced = None if evaluated.forced is None else evaluated.forced[name]
        out = []
        for first, count, questions in rectangles(table, len(evaluated.budgets) or 1):
            part = table.slice(first, count * questions)
            shape = questions, count
            answers = None if forced is None else forced[first : first + count * questions]
            inputs = inputs_of(part, shape, node, evaluated.budgets)
            value, keep = (
                np.ones(shape) if each is None else _each(each, node.var, inputs, evaluated.budgets, answers)
                for each in (node.value, node.where)
            )
            keep = keep != 0
            out.append(np.stack([np.where(keep, value, 0).mean(axis=1), keep.mean(axis=1)], axis=1))
        found[name] = np.concatenate(out)
    return found


def rectangles(table: pl.DataFrame, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of questions with equally many responses: the first row, responses of a question, questions."""
    counts = table.group_by("question", maintain_order=True).len()["len"].to_list()
    first = at = 0
    while at < len(counts):
        count = counts[at]
        most = max(1, LOT // (count * max(count, width)))
        end = at
        while end < len(counts) and counts[end] == count and end - at < most:
            end += 1
        yield first, count, end - at
        first, at = first + count * (end - at), end


def inputs_of(
    part: pl.DataFrame, shape: tuple[int, int], node: History, budgets: Sequence[int]
) -> RewardInputs:
    """Return responses as arrays, with the numbers that an expression asks of an evaluation."""
    # Of results from elsewhere it may only be known which responses are right.
    answered = part["correct"] | (part["answer"].fill_null("") != "")
    given = {
        name: each.to_numpy().astype(float).reshape(shape)
        for name, each in (("ended", part["finish"] != "length"), ("answered", answered))
    }
    correct = part["correct"].to_numpy().reshape(shape)
    for field in {each.field for each in walk(node) if isinstance(each, Given)} - given.keys():
        answers = part["answer"].to_list()
        votes = int(field.partition("@")[2])
        rows = [answers[at : at + shape[1]] for at in range(0, len(answers), shape[1])]
        shares = [majority(row, right.tolist(), votes) for row, right in zip(rows, correct, strict=True)]
        given[field] = np.repeat(np.array(shares)[:, None], shape[1], axis=1)
    places = np.array(budgets or (0,), dtype=float)[None, None]
    length = part["tokens"].to_numpy().astype(float).reshape(shape)
    there = np.ones(places.shape, dtype=np.bool_)
    return RewardInputs(("",) * shape[0], length, correct.astype(float), places, there, given)


def _each(
    value: Expression, name: str, inputs: RewardInputs, budgets: Sequence[int], answers: Bools | None
) -> Floats:
    def forced(at: Ints, cut: Ints) -> Bools:
        assert answers is not None
        # The last budget that is not above: a rehearsal's budgets are not to the token those that are cut at.
        picked: Bools = answers[at, np.maximum(np.searchsorted(budgets, cut, side="right") - 1, 0)]
        return picked

    return measure_each(value, name, inputs, {}, forced)


def majority(answers: Sequence[str | None], right: Sequence[bool], votes: int) -> float:
    """Return how often the most frequent answer of `votes` responses is right, over all draws of that many.

    Right answers are one, however they are written; no answer is no vote, and equals decide by chance.
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
    """Count draws by how many are right (`most`), how many others are of each size, and how many of these tie with it."""
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
        isinstance(each, ForcedAnswer) or (isinstance(each, Aggregate) and each.over == "splits")
        for each in walk(node)
    )


def cells_of(
    rule: Measure,
    arm: Sequence[Mapping[History, Sums | None]],
    base: Sequence[Mapping[History, Sums | None]] | None,
) -> dict[str, Jackknifed] | None:
    """Return a measure by benchmark; None where anything has no value."""
    found: dict[History, list[Sums]] = {}
    for node in dict.fromkeys(each for each in walk(rule) if isinstance(each, History)):
        whose = [each[node] for each in (arm if node.over == "arm" else base or ())]
        known = [each for each in whose if each is not None]
        if len(known) < len(whose) or not known:
            return None
        found[node] = known
    cells: dict[str, Jackknifed] = {}
    for name in next(iter(found.values()))[0]:
        stacked = {node: np.stack([each[name] for each in of_seeds]) for node, of_seeds in found.items()}
        if len({each.shape for each in stacked.values()}) > 1:
            return None
        cells[name] = jackknife(rule, stacked)
    return cells


def jackknife(rule: Measure, parts: Mapping[History, Floats]) -> Jackknifed:
    """Return a measure's value, and its pseudo-values (Tukey 1958) without each cell of [seeds, questions].

    `parts` are sums and counts of its means, [seeds, questions, 2].
    """
    shape = next(iter(parts.values())).shape[:2]
    count = shape[0] * shape[1]
    whole = {node: each.sum(axis=(0, 1))[None] for node, each in parts.items()}
    value = float(formula(rule, whole)[0])
    questions = min(int((each[..., 1] > 0).any(axis=0).sum()) for each in parts.values())
    if count < 2:
        return Jackknifed(value, np.full(shape, value), questions)
    without = {node: whole[node] - each.reshape(-1, 2) for node, each in parts.items()}
    pseudo = count * value - (count - 1) * formula(rule, without)
    return Jackknifed(value, pseudo.reshape(shape), questions)


def formula(rule: Measure, parts: Mapping[History, Floats]) -> Floats:
    """Return a measure for each row of the sums and counts of its means, [rows, 2]."""
    names = {node: f"mean{place}" for place, node in enumerate(parts)}
    numbers: dict[str, Floats] = {}

    def value(expression: Expression) -> Floats:
        def put(node: Node) -> Node | None:
            named = (
                names[node]
                if isinstance(node, History)
                else node.name
                if isinstance(node, Variable)
                else None
            )
            return None if named is None else Given(of="z", field=named)

        one = np.ones((len(next(iter(parts.values()))), 1))
        given = {name: each[:, None] for name, each in numbers.items()}
        inputs = RewardInputs(("",) * len(one), one, one, one[:, :, None], one[:, :, None] > 0, given)
        return measure_each(rewrite(expression, put), "z", inputs, {})[:, 0]

    # What a mean is of nothing may hold other means, which come after it.
    for node, each in reversed(list(parts.items())):
        # A count that is nothing but rounding is none: what is left of sums of shares.
        there = each[:, 1] > 1e-9
        empty = np.nan if node.empty is None or there.all() else value(node.empty)
        numbers[names[node]] = np.where(there, each[:, 0] / np.where(there, each[:, 1], 1), empty)
    for let in rule.lets:
        numbers[let.name] = value(let.value)
    return value(rule.value)


def summarise(
    rule: Measure,
    cells: Mapping[str, Jackknifed] | None,
    start: Mapping[str, Jackknifed] | None,
    confidence: float,
) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yield each benchmark and their mean, with the value and its difference from the baseline's."""
    if cells is None:
        return
    for place, names in {**{name: (name,) for name in cells}, MEAN: tuple(cells)}.items():
        of_place = {name: cells[name] for name in names}
        own, spread = _around(rule, of_place, confidence)
        if not np.isfinite(own.value):
            continue
        row: dict[str, float | None] = {"value": own.value, "low": own.low, "high": own.high}
        if start is not None and all(
            name in start and start[name].cells.shape == cells[name].cells.shape for name in names
        ):
            other, of_other = _around(rule, {name: start[name] for name in names}, confidence)
            paired = {name: cells[name].cells - start[name].cells for name in names}
            if _is_share(rule):
                of_both = spread_of(paired)
                change = subtract_intervals(own, other, _correlation(spread, of_other, of_both))
            else:
                change = _centre(interval(paired, confidence), own.value - other.value)
            row |= {"change": change.value, "change_low": change.low, "change_high": change.high}
        yield place, row


def _is_share(rule: Measure) -> bool:
    """Return whether a measure is one mean, whose responses are all within its range."""
    means = {node for node in walk(rule) if isinstance(node, History)}
    return len(means) == 1 and rule.low is not None and rule.high is not None and rule.low < rule.high


def _around(
    rule: Measure, cells: Mapping[str, Jackknifed], confidence: float
) -> tuple[Interval, Spread | None]:
    """Return a measure on some benchmarks with its interval within its range, and the spread of its cells."""
    pseudo = {name: each.cells for name, each in cells.items()}
    spread = spread_of(pseudo)
    around = _centre(interval(pseudo, confidence), float(np.mean([each.value for each in cells.values()])))
    low = -math.inf if rule.low is None else rule.low
    high = math.inf if rule.high is None else rule.high
    questions = len(cells) ** 2 / sum(1 / max(each.questions, 1) for each in cells.values())
    of_share = (spread, questions) if _is_share(rule) else (None, None)
    return bound_interval(around, low, high, confidence, *of_share), spread


def _correlation(one: Spread | None, two: Spread | None, both: Spread | None) -> float:
    """Return how two means go together, by the variances of each and of their difference; 0 if either has none."""
    if one is None or two is None or both is None or min(one.variance, two.variance) <= 0:
        return 0.0
    shared = one.variance + two.variance - both.variance
    return max(-1.0, min(1.0, shared / (2 * math.sqrt(one.variance * two.variance))))


def _centre(around: Interval, value: float) -> Interval:
    """Return an interval of pseudo-values about the value itself."""
    if around.low is None or around.high is None or not np.isfinite([around.low, around.high]).all():
        return Interval(value)
    reach = (around.high - around.low) / 2
    return Interval(value, value - reach, value + reach)
