"""The runner of `measure` tasks: the measures of arms with intervals over seeds and questions.

A measure is a formula of means over responses. Its interval comes from a jackknife over cells, i.e. pairs of a seed and a
question: the formula is computed once for all cells, and again without each cell.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path

import numpy as np
import polars as pl

from reodsl.diagnostics.model import group
from reodsl.graph.job import Job
from reodsl.ir.base import Node, values_of, walk
from reodsl.ir.expression import (
    Aggregate,
    Attribute,
    Constant,
    Expression,
    ForcedAnswer,
    StepStatistic,
    TextNumber,
    Variable,
    rewrite,
)
from reodsl.ir.reward import Measure
from reodsl.numbers.crossed import Spread, spread_of
from reodsl.numbers.intervals import Interval, bound_interval, interval, share_interval, subtract_intervals
from reodsl.numbers.reg import MEAN
from runners.evaluate.frontier import evaluations_of
from runners.grade import read_texts
from runners.rewards.inputs import Bools, Floats, Ints, RewardInputs
from runners.rewards.vectorise import measure_each

MAX_ARRAY_SIZE = 1 << 22
"""The largest number of elements of an array while responses are measured."""
Sums = dict[str, Floats]
"""A mean's sums and counts by benchmark, [questions, 2], with questions sorted by their ids.

For `reach` they are [questions, 2 budgets + 1]: the sums at each budget, then each budget times the count, then the count.
"""
Titled = dict[str, dict[str, "JackknifedMeasure"]]
"""The parts of a measure for each row of its table: by benchmark, those whose mean is the row's value."""


@dataclass(frozen=True, slots=True)
class EvaluationTables:
    """The responses of an evaluation and their verdicts at budgets, by benchmark.

    `samples` has a row for each response. `budgets` are in tokens. `forced` has verdicts [responses, budgets], or is
    None if no answers were forced.
    """

    samples: Mapping[str, pl.DataFrame]
    budgets: tuple[int, ...]
    forced: Mapping[str, Bools] | None


@dataclass(frozen=True, slots=True)
class JackknifedMeasure:
    """A measure's `value`, and its jackknife pseudo-values `cells` for a benchmark, [seeds, questions].

    `questions` is the number of questions with a response that the measure counts. A measure that is one `reach` of all
    responses has the sums of this `reach` as `curve`, [seeds, questions, 2 budgets + 1].
    """

    value: float
    cells: Floats
    questions: int
    curve: Floats | None = None


def measure(job: Job) -> None:
    """Write `measures.parquet`: every measure of every arm, on each benchmark and averaged over benchmarks.

    A row has the measure's `value` with its interval, and `change`, the paired difference from the baseline, with its
    interval. There is no row if a measure has no value, e.g. if it reads forced answers and none were forced. The
    evaluation of an arm without seeds, e.g. an untrained model, counts for every seed.
    """
    work = job.task.work
    measures: tuple[Measure, ...] = work["measures"]
    statistics = list(
        dict.fromkeys(node for rule in measures for node in walk(rule) if isinstance(node, StepStatistic))
    )
    folders = evaluations_of(job)
    seeds = sorted({seed for _, seed in folders if seed is not None}) or [0]
    needs = any(map(_is_forced, statistics)), any(values_of(node, TextNumber) for node in statistics)
    evaluations = ((arm, read(folder, *needs)) for (arm, _), folder in folders.items())
    by_arm = group(
        (arm, {node: sums(node, evaluated) for node in statistics}) for arm, evaluated in evaluations
    )
    for seeds_of in by_arm.values():
        seeds_of *= len(seeds) // len(seeds_of)
    base = by_arm.get(work["relative_to"] or "")
    rows = []
    for i, rule in enumerate(measures):
        cells_by_arm = {arm: cells_of(rule, seeds_of, base) for arm, seeds_of in by_arm.items()}
        baseline_cells = cells_by_arm.get(work["relative_to"] or "")
        for arm, cells in cells_by_arm.items():
            compared = None if rule.compares or arm == work["relative_to"] else baseline_cells
            rows += [
                {"arm": arm, "measure": i, "benchmark": benchmark, **row}
                for benchmark, row in summarise(rule, cells, compared, work["confidence"])
            ]
    schema = {"arm": pl.String(), "measure": pl.Int64(), "benchmark": pl.String()} | dict.fromkeys(
        ("value", "low", "high", "change", "change_low", "change_high"), pl.Float64()
    )
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(job.out / "measures.parquet")


def read(folder: Path, with_forced: bool, with_texts: bool = False) -> EvaluationTables:
    """Read the responses of an evaluation, and its verdicts on forced answers at budgets if `with_forced` is set.

    The responses have their texts if `with_texts` is set.

    The verdicts are None if `with_forced` is false, or if some curve of the evaluation is not of forced answers.
    """
    names = ("benchmark", "question", "sample")
    columns = [*names, "tokens", "correct", "finish", "answer", *["response"] * with_texts]
    table = pl.read_parquet(folder / "samples.parquet", columns=columns, glob=False).sort(names)
    samples = {str(name): rows for (name,), rows in table.group_by("benchmark", maintain_order=True)}
    curves = json.loads((folder / "curves.json").read_text("utf-8"))
    if not with_forced or any(curve.get("kind", "J") != "J" for curve in curves.values()):
        return EvaluationTables(samples, (), None)
    cells = pl.read_parquet(folder / "forced.parquet", columns=[*names, "budget", "correct"], glob=False)
    cells = cells.sort(*names, "budget")
    budgets = tuple(cells["budget"].unique().sort())
    rows_of = {str(name): rows for (name,), rows in cells.group_by("benchmark", maintain_order=True)}
    return EvaluationTables(
        samples,
        budgets,
        {name: rows["correct"].to_numpy().reshape(-1, len(budgets)) for name, rows in rows_of.items()},
    )


def sums(node: StepStatistic, evaluated: EvaluationTables) -> Sums | None:
    """Return the sums and counts from which a mean is computed, for each question.

    Args:
        node: The mean.
        evaluated: The responses of an evaluation.

    Returns:
        For each benchmark, [questions, 2]: the sum of the values that meet the mean's condition, and their count, both
        divided by the question's number of responses. None if the mean reads forced answers and the evaluation has none.
    """
    if _is_forced(node) and evaluated.forced is None:
        return None
    by_benchmark: Sums = {}
    for name, table in evaluated.samples.items():
        forced = None if evaluated.forced is None else evaluated.forced[name]
        blocks = []
        for row, count, questions in rectangles(table, len(evaluated.budgets) or 1):
            rows = table.slice(row, count * questions)
            shape = questions, count
            answers = None if forced is None else forced[row : row + count * questions]
            inputs = inputs_of(rows, shape, node, evaluated.budgets)
            value, keep = (
                np.ones(shape)
                if expression is None
                else _measure(expression, node.var, inputs, evaluated.budgets, answers)
                for expression in (node.value, node.where)
            )
            values = np.where(keep != 0, value, 0)[..., None]
            counts = (keep != 0).mean(axis=1)[:, None]
            if node.fn == "reach" and answers is not None:
                values = answers.reshape(*shape, -1) * (keep != 0)[..., None]
                counts = counts * (*evaluated.budgets, 1.0)
            blocks.append(np.concatenate([values.mean(axis=1), counts], axis=1))
        by_benchmark[name] = np.concatenate(blocks)
    return by_benchmark


def rectangles(table: pl.DataFrame, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield blocks of successive questions with equally many responses, each block a full rectangular array.

    A block has so few questions that its arrays stay below `MAX_ARRAY_SIZE`, but at least one.

    Args:
        table: The responses, question by question.
        width: The number of budgets.

    Yields:
        The index of the block's first row, the number of responses per question, and the number of questions.
    """
    counts = table.group_by("question", maintain_order=True).len()["len"].to_list()
    first_row = start = 0
    while start < len(counts):
        count = counts[start]
        max_questions = max(1, MAX_ARRAY_SIZE // (count * max(count, width)))
        end = start
        while end < len(counts) and counts[end] == count and end - start < max_questions:
            end += 1
        yield first_row, count, end - start
        first_row, start = first_row + count * (end - start), end


def inputs_of(
    table: pl.DataFrame, shape: tuple[int, int], node: StepStatistic, budgets: Sequence[int]
) -> RewardInputs:
    """Return the responses of a block of questions as the arrays that expressions read.

    Besides `ended` and `answered`, a feature `majority@k` is computed if the mean reads it: the question's probability
    that a majority vote of k responses is right.

    Args:
        table: Rows of `samples.parquet`, question by question.
        shape: The number of questions, and of responses to a question.
        node: The mean whose expressions are evaluated.
        budgets: The budgets of the forced answers, in tokens.
    """
    # Imported results may lack answers: a correct response counts as answered.
    answered = table["correct"] | (table["answer"].fill_null("") != "")
    features = {
        name: column.to_numpy().astype(float).reshape(shape)
        for name, column in (("ended", table["finish"] != "length"), ("answered", answered))
    } | read_texts(node, table.get_column, shape)
    correct = table["correct"].to_numpy().reshape(shape)
    for field in {node.key for node in walk(node) if isinstance(node, Attribute)} - features.keys():
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


def _measure(
    value: Expression, response: str, inputs: RewardInputs, budgets: Sequence[int], answers: Bools | None
) -> Floats:
    """Return the value of an expression for each response, [questions, responses].

    Args:
        value: The expression.
        response: The name of the response in the expression.
        inputs: The arrays of the responses.
        budgets: The budgets of the forced answers, in tokens.
        answers: Verdicts on forced answers, [responses, budgets], or None.
    """

    def forced(rows: Ints, cut: Ints) -> Bools:
        """Return the verdicts of responses at cuts, as `measure_each` needs them."""
        assert answers is not None
        # The largest budget that is not above the cut, since the budgets of a rehearsal may differ a little from cuts.
        picked: Bools = answers[rows, np.maximum(np.searchsorted(budgets, cut, side="right") - 1, 0)]
        return picked

    return measure_each(value, response, inputs, {}, forced)


def majority(answers: Sequence[str | None], is_right: Sequence[bool], votes: int) -> float:
    """Return the probability that the most frequent answer among `votes` sampled responses is right.

    All right answers count as one answer, however they are written. A response without an answer casts no vote. A tie is
    won by each of its answers with equal probability.

    Args:
        answers: The answers to a question, None for a response without an answer.
        is_right: Whether each answer is right.
        votes: The number of responses that are sampled without replacement; at most all responses are.
    """
    wrong = Counter(answer for answer, good in zip(answers, is_right, strict=True) if answer and not good)
    num_right = int(sum(is_right))
    num_blank = len(answers) - num_right - sum(wrong.values())
    return _win_probability(num_right, tuple(sorted(wrong.values())), num_blank, min(votes, len(answers)))


@lru_cache(1 << 16)
def _win_probability(num_right: int, wrong_counts: tuple[int, ...], blanks: int, votes: int) -> float:
    """Return the probability that right answers win a vote, by counting all subsets of `votes` responses.

    For each number of right votes, the subsets are counted in which no wrong answer has more votes. A subset in which t
    wrong answers tie with the right answers counts as 1 / (1 + t).

    Args:
        num_right: The number of responses with a right answer.
        wrong_counts: For each different wrong answer, the number of its responses.
        blanks: The number of responses without an answer.
        votes: The number of responses that are sampled without replacement.
    """
    wins = 0.0
    for right_votes in range(1, min(num_right, votes) + 1):
        # ways[n, t]: draws of n other votes, at most `right_votes` for an answer, with t answers that tie.
        ways: dict[tuple[int, int], int] = {(n, 0): comb(blanks, n) for n in range(min(blanks, votes) + 1)}
        for size in wrong_counts:
            extended: dict[tuple[int, int], int] = {}
            for (n, ties), count in ways.items():
                for drawn_votes in range(min(size, right_votes, votes - right_votes - n) + 1):
                    key = n + drawn_votes, ties + (drawn_votes == right_votes)
                    extended[key] = extended.get(key, 0) + count * comb(size, drawn_votes)
            ways = extended
        for (n, ties), count in ways.items():
            if n == votes - right_votes:
                wins += comb(num_right, right_votes) * count / (1 + ties)
    return wins / comb(num_right + sum(wrong_counts) + blanks, votes)


def _is_forced(node: Node) -> bool:
    """Return whether an expression reads forced answers."""
    return any(
        isinstance(child, ForcedAnswer)
        or (isinstance(child, Aggregate) and child.over == "splits")
        or (isinstance(child, StepStatistic) and child.fn == "reach")
        for child in walk(node)
    )


def cells_of(
    rule: Measure,
    arm: Sequence[Mapping[StepStatistic, Sums | None]],
    base: Sequence[Mapping[StepStatistic, Sums | None]] | None,
) -> Titled | None:
    """Return a measure of an arm, with its jackknife pseudo-values, on each benchmark and for their mean.

    The mean is over the measure's values on benchmarks, or if the measure has a `reach`, its value on their mean curve.

    Args:
        rule: The measure.
        arm: For each seed, the sums of the measure's means over the arm's responses.
        base: For each seed, the sums over the baseline's responses; None without a baseline.

    Returns:
        The parts of each row; None if a mean has no value for a seed, or seeds have different questions.
    """
    sums_of: dict[StepStatistic, list[Sums]] = {}
    for node in dict.fromkeys(node for node in walk(rule) if isinstance(node, StepStatistic)):
        by_seed = [seed_sums[node] for seed_sums in (arm if node.over == "arm" else base or ())]
        available = [seed_sums for seed_sums in by_seed if seed_sums is not None]
        if len(available) < len(by_seed) or not available:
            return None
        sums_of[node] = available
    stacked = {
        name: {
            node: np.stack([seed_sums[name] for seed_sums in of_seeds]) for node, of_seeds in sums_of.items()
        }
        for name in next(iter(sums_of.values()))[0]
    }
    if any(len({pairs.shape[:2] for pairs in of_name.values()}) > 1 for of_name in stacked.values()):
        return None
    alone = {name: jackknife(rule, of_name) for name, of_name in stacked.items()}
    cells = {name: {name: part} for name, part in alone.items()} | {MEAN: alone}
    if len(stacked) > 1 and any(node.fn == "reach" for node in sums_of):
        means = {
            name: {node: _divide(s.sum(axis=(0, 1))) for node, s in of.items()}
            for name, of in stacked.items()
        }
        for name, of_name in stacked.items():
            others = [of_other for other, of_other in means.items() if other != name]
            cells[MEAN] = cells[MEAN] | {name: jackknife(rule, of_name, others)}
    return cells


def _divide(sums: Floats) -> Floats:
    """Return sums and their count, the last column, divided by the count; NaN with count 0."""
    return sums / np.where(sums[..., -1:] > 1e-9, sums[..., -1:], np.nan)


def jackknife(
    rule: Measure,
    sums_of: Mapping[StepStatistic, Floats],
    others: Sequence[Mapping[StepStatistic, Floats]] = (),
) -> JackknifedMeasure:
    """Return a measure's value, and its pseudo-value for each cell of [seeds, questions].

    With n cells, the pseudo-value of a cell is n times the value minus (n - 1) times the value without this cell. A
    single cell has the value itself. With other benchmarks, the value is that of means over all benchmarks, and deviations
    of pseudo-values are scaled so that the mean over benchmarks of their means varies as the value does.

    Args:
        rule: The measure.
        sums_of: For each mean in the measure, the sums and counts, [seeds, questions, 2].
        others: For each other benchmark, the means and the count 1.

    Source: Tukey 1958, Bias and confidence in not quite large samples.
    """
    shape = next(iter(sums_of.values())).shape[:2]
    count = shape[0] * shape[1]
    totals = {node: cell_sums.sum(axis=(0, 1))[None] for node, cell_sums in sums_of.items()}

    def values(sums: Mapping[StepStatistic, Floats]) -> Floats:
        """Return the measure for each row of sums, averaged with the means of the other benchmarks if there are any."""
        if others:
            sums = {node: sum((of[node] for of in others), _divide(rows)) for node, rows in sums.items()}
        return formula(rule, sums)

    value = float(values(totals)[0])
    curve = next(iter(sums_of.values())) if _reached_level(rule) is not None else None
    questions = min(int((cell_sums[..., -1] > 0).any(axis=0).sum()) for cell_sums in sums_of.values())
    if count < 2:
        return JackknifedMeasure(value, np.full(shape, value), questions, curve)
    without = {
        node: totals[node] - cell_sums.reshape(-1, cell_sums.shape[-1]) for node, cell_sums in sums_of.items()
    }
    pseudo = count * value - (count - 1) * values(without)
    pseudo = (1 + len(others)) * pseudo - len(others) * value
    return JackknifedMeasure(value, pseudo.reshape(shape), questions, curve)


def formula(rule: Measure, sums_of: Mapping[StepStatistic, Floats]) -> Floats:
    """Return the value of a measure from the sums and counts of its means.

    A mean with count 0 has the value of its `empty` expression if given, else NaN.

    Args:
        rule: The measure.
        sums_of: For each mean in the measure, the sums and counts, [rows, 2]. Each row gives a value, e.g. the value
            without one cell.

    Returns:
        Values, [rows].
    """
    names = {node: f"mean{i}" for i, node in enumerate(sums_of)}
    numbers: dict[str, Floats] = {}

    def value(expression: Expression) -> Floats:
        """Return the value of an expression over means and `let` definitions, [rows].

        `measure_each` evaluates it: each row is an artificial response `z`, and the numbers known so far are its features.
        """

        def put(node: Node) -> Node | None:
            """Return a node that reads a mean or a named number as a feature of an artificial response `z`.

            The feature has a value for each row. For any other node the result is None, which leaves the node unchanged.
            """
            if isinstance(node, StepStatistic):
                return Attribute(of="z", field=names[node])
            return Attribute(of="z", field=node.name) if isinstance(node, Variable) else None

        ones = np.ones((len(next(iter(sums_of.values()))), 1))
        features = {name: values[:, None] for name, values in numbers.items()}
        inputs = RewardInputs(("",) * len(ones), ones, ones, ones[:, :, None], ones[:, :, None] > 0, features)
        return measure_each(rewrite(expression, put), "z", inputs, {})[:, 0]

    # The `empty` value of a mean may contain other means, which come later in the order.
    for node, pairs in reversed(list(sums_of.items())):
        # A count below 1e-9 is 0 with the rounding of a sum of shares.
        nonzero = pairs[:, -1] > 1e-9
        empty = np.nan if node.empty is None or nonzero.all() else value(node.empty)
        means = pairs[:, :-1] / np.where(nonzero, pairs[:, -1], 1)[:, None]
        number = means[:, 0]
        if node.at is not None:
            curve, budgets = np.split(means, 2, axis=1)
            number = reach(curve, budgets, value(node.at))
        numbers[names[node]] = np.where(nonzero, number, empty)
    for let in rule.lets:
        numbers[let.name] = value(let.value)
    return value(rule.value)


def reach(accuracy: Floats, budgets: Floats, level: Floats) -> Floats:
    """Return the tokens at which curves first reach an accuracy, linear between budgets; NaN if they never do.

    Args:
        accuracy: The curves, [rows, budgets], 0 to 1.
        budgets: The budgets in tokens, [rows, budgets].
        level: The accuracy that is reached, [rows].
    """
    above = accuracy >= level[:, None]
    rows, last = np.arange(len(above)), above.argmax(axis=1)
    before = np.maximum(last - 1, 0)
    rise = accuracy[rows, last] - accuracy[rows, before]
    share = np.where(last > 0, (level - accuracy[rows, before]) / np.where(rise > 0, rise, 1), 0)
    tokens = budgets[rows, before] + share * (budgets[rows, last] - budgets[rows, before])
    return np.where(above.any(axis=1), tokens, np.nan)


def summarise(
    rule: Measure,
    cells: Titled | None,
    baseline: Titled | None,
    confidence: float,
) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yield the rows of an arm's measure, for each benchmark and for the mean over benchmarks.

    No row is yielded if the arm has no value, or no finite value. A row has a difference from the baseline only if the
    baseline has the same seeds and questions.

    Args:
        rule: The measure.
        cells: The parts of each row of the arm, or None if it has no value.
        baseline: The parts of each row of the baseline, or None if the arm is not compared.
        confidence: The coverage of intervals, e.g. 0.95.

    Yields:
        The benchmark, and the value with its interval and its difference from the baseline's value.
    """
    if cells is None:
        return
    for benchmark, parts in cells.items():
        value, spread = _measure_interval(rule, parts, confidence)
        if not np.isfinite(value.value):
            continue
        row: dict[str, float | None] = {"value": value.value, "low": value.low, "high": value.high}
        of_base = {name: part for name, part in (baseline or {}).get(benchmark, {}).items() if name in parts}
        if parts.keys() == of_base.keys() and all(
            of_base[name].cells.shape == part.cells.shape for name, part in parts.items()
        ):
            base, base_spread = _measure_interval(rule, of_base, confidence)
            paired = {name: part.cells - of_base[name].cells for name, part in parts.items()}
            if _is_share(rule, spread) or _is_share(rule, base_spread):
                pair_spread = spread_of(paired)
                change = subtract_intervals(value, base, _correlation(spread, base_spread, pair_spread))
            else:
                change = _centre(interval(paired, confidence), value.value - base.value)
            row |= {"change": change.value, "change_low": change.low, "change_high": change.high}
        yield benchmark, row


def _reached_level(rule: Measure) -> float | None:
    """Return the accuracy that a measure's only statistic reaches, if it is a `reach` of all responses; else None."""
    match rule.value:
        case StepStatistic(fn="reach", at=Constant(value=level), where=None):
            return level
    return None


def _is_share(rule: Measure, spread: Spread | None) -> bool:
    """Return whether a measure has the interval of a share: it has a finite range, and one mean or no spread; or a `reach`.

    A formula of several means follows the jackknife, unless all responses agree: the jackknife then shows no error, and
    the error is at least that of a share on which as many independent questions agree.
    """
    means = {node for node in walk(rule) if isinstance(node, StepStatistic)}
    alike = len(means) == 1 or (spread is not None and spread.variance == 0)
    if _reached_level(rule) is not None:
        return True
    return bool(means) and alike and rule.low is not None and rule.high is not None and rule.low < rule.high


def _measure_interval(
    rule: Measure, cells: Mapping[str, JackknifedMeasure], confidence: float
) -> tuple[Interval, Spread | None]:
    """Return the mean of a measure over benchmarks with its interval, and the spread of its cells.

    The interval of tokens at an accuracy has all budgets at which the interval of the curve contains the accuracy. There is
    none if the curve's lower end does not reach it.

    Args:
        rule: The measure, whose range bounds the interval.
        cells: The jackknifed measure by benchmark.
        confidence: The coverage of the interval, e.g. 0.95.
    """
    pseudo = {name: cell.cells for name, cell in cells.items()}
    spread = spread_of(pseudo)
    curves = {name: cell.curve for name, cell in cells.items() if cell.curve is not None}
    if curves and (level := _reached_level(rule)) is not None:
        value = float(np.mean([cell.value for cell in cells.values()]))
        _, budgets = np.split(next(iter(curves.values()))[0, :1, :-1], 2, axis=1)
        by_budget = [
            share_interval({name: curve[..., k] for name, curve in curves.items()}, confidence)
            for k in range(budgets.shape[1])
        ]
        bands = np.array(
            [[share.high for share in by_budget], [share.low for share in by_budget]], dtype=float
        )
        low, high = reach(bands, np.repeat(budgets, 2, axis=0), np.full(2, level)).tolist()
        return (Interval(value, low, high) if math.isfinite(high) else Interval(value)), spread
    largest = max(float(np.abs(cell.cells).max()) for cell in cells.values())
    if spread is not None and spread.variance <= (1e-9 * largest) ** 2:  # equal but for rounding
        spread = Spread(0.0, spread.question_df)
    centred = _centre(interval(pseudo, confidence), float(np.mean([cell.value for cell in cells.values()])))
    low = -math.inf if rule.low is None else rule.low
    high = math.inf if rule.high is None else rule.high
    questions = len(cells) ** 2 / sum(1 / max(cell.questions, 1) for cell in cells.values())
    of_share = (spread, questions) if _is_share(rule, spread) else (None, None)
    return bound_interval(centred, low, high, confidence, *of_share), spread


def _correlation(first: Spread | None, second: Spread | None, both: Spread | None) -> float:
    """Return the correlation of two means, from the variances of both means and of their difference.

    Args:
        first: The spread of the first mean, which has the mean's variance; None if unknown.
        second: The spread of the second mean; None if unknown.
        both: The spread of the difference of the means; None if unknown.

    Returns:
        The correlation, -1 to 1; 0 if a variance is unknown or 0.
    """
    if first is None or second is None or both is None or min(first.variance, second.variance) <= 0:
        return 0.0
    shared = first.variance + second.variance - both.variance
    return max(-1.0, min(1.0, shared / (2 * math.sqrt(first.variance * second.variance))))


def _centre(bounds: Interval, value: float) -> Interval:
    """Return an interval of the same width with `value` as its centre; without finite bounds, `value` alone."""
    if bounds.low is None or bounds.high is None or not np.isfinite([bounds.low, bounds.high]).all():
        return Interval(value)
    half_width = (bounds.high - bounds.low) / 2
    return Interval(value, value - half_width, value + half_width)
