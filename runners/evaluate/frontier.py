"""Runners of the kinds `frontier`, `budgets` and `score`: evaluations in; frontiers, selected budgets and REG out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.reward import OracleBudgets, QuestionBudgets
from reodsl.ir.study import Frontier, Score
from reodsl.numbers.bootstrap import Interval, Scores, bootstrap
from reodsl.numbers.curve_files import read_frontier, write_frontier
from reodsl.numbers.curves import Curve, Curves
from reodsl.numbers.describe import describe_schedule
from reodsl.numbers.frontier import envelope
from reodsl.numbers.greedy import greedy
from reodsl.numbers.question_min import question_min
from reodsl.store.labels import labels
from runners.evaluate.scores import arm_scores


def frontier(job: Job) -> None:
    """The best of the arms at each benchmark and budget, with who reaches it; or the published curves as they are."""
    rule = Frontier.model_validate(job.task.payload["frontier"])
    if rule.published:
        printed = {curve.benchmark: Curve(curve.budgets, curve.accuracy) for curve in rule.published}
        write_frontier(job.out / "frontier.json", printed)
        return
    models = {arm: read_frontier(folder / "curves.json") for arm, folder in arms_of(job).items()}
    found = envelope(models, to=rule.to)
    write_frontier(job.out / "frontier.json", found.curves)
    rows = [
        (w.benchmark, w.budget, arm, curves[w.benchmark].at(w.budget), w.accuracy, arm in w.models)
        for w in found.winners
        for arm, curves in models.items()
    ]
    schema = {
        "benchmark": pl.String,
        "budget": pl.Int64,
        "arm": pl.String,
        "accuracy": pl.Float64,
        "frontier": pl.Float64,
        "winner": pl.Boolean,
    }
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(job.out / "winners.parquet")


def budgets(job: Job) -> None:
    """Greedy budgets on the frontier of the role `frontier`, or a budget a question from the samples of the arms."""
    split = job.task.payload["split"]
    if split["kind"] == "oracle":
        rule = OracleBudgets.model_validate(split)
        edge = read_frontier(job.inputs["frontier"] / "frontier.json")
        schedule = greedy(edge, rule.l_max, rule.n, rule.step)
        text = json.dumps(describe_schedule(schedule, edge), indent=1, allow_nan=False)
    else:
        facts = per_question(QuestionBudgets.model_validate(split), list(arms_of(job).values()))
        text = json.dumps(facts, indent=1, allow_nan=False)
    (job.out / "budgets.json").write_text(text + "\n", encoding="utf-8")


def per_question(rule: QuestionBudgets, folders: list[Path]) -> dict[str, object]:
    """`{"l_max", "questions"}`: the smallest L at which some checkpoint's bare prefixes do as well as the best at `l_max`.

    The mean correctness over rollouts only changes where a prefix's own answer does, so each question is decided
    on exactly those budgets: the result is the minimum over every L from 1 to `l_max`.
    """
    changes: list[dict[str, list[tuple[int, int, bool]]]] = []
    counts: list[dict[str, int]] = []
    for folder in folders:
        samples = pl.read_parquet(folder / "samples.parquet", columns=["question", "sample"])
        counts.append(dict(samples.group_by("question").len().iter_rows()))
        steps: dict[str, list[tuple[int, int, bool]]] = {}
        for question, sample, budget, correct in (
            pl.read_parquet(folder / "bare.parquet")
            .select("question", "sample", "budget", "correct")
            .iter_rows()
        ):
            steps.setdefault(question, []).append((sample, budget, correct))
        changes.append(steps)
    found: dict[str, int | None] = {}
    for question in sorted(set().union(*counts)):
        if any(question not in count for count in counts):
            raise problem(
                "E0429",
                f"question `{question}` was not sampled from every checkpoint",
                help="sample all of them on one data set",
            )
        points = {b for steps in changes for _, b, _ in steps.get(question, ()) if 1 <= b <= rule.l_max}
        grid = tuple(sorted(points | {1, rule.l_max}))
        means = np.array(
            [
                mean_correct(steps.get(question, []), count[question], grid)
                for steps, count in zip(changes, counts, strict=True)
            ]
        )
        minimum = question_min({question: means}, grid, rule.l_max, rule.unsolved)
        found[question] = minimum.budgets.get(question)
    return {"l_max": rule.l_max, "questions": found}


def mean_correct(steps: list[tuple[int, int, bool]], samples: int, grid: tuple[int, ...]) -> list[float]:
    """The share of a checkpoint's rollouts that are right at each budget: a rollout holds its last answer up to there."""
    right = np.zeros(len(grid))
    for sample in {sample for sample, _, _ in steps}:
        own = sorted((budget, correct) for number, budget, correct in steps if number == sample)
        at = np.searchsorted([budget for budget, _ in own], grid, side="right") - 1
        right += np.where(at >= 0, np.array([correct for _, correct in own])[np.maximum(at, 0)], False)
    return list(right / samples)


def score(job: Job) -> None:
    """REG, accuracy and length of every arm with paired bootstrap intervals, the frontier made anew in each draw."""
    rule = Score.model_validate(job.task.payload["score"])
    read = {arm: arm_scores(folder, arm) for arm, folder in arms_of(job).items()}
    grids = {grid for _, grid in read.values()}
    if len(grids) != 1:
        raise problem(
            "E0426",
            "the arms of the study were evaluated at different budgets",
            notes=[f"`{arm}`: {len(grid)} budgets to {grid[-1]}" for arm, (_, grid) in read.items()],
            help="give every arm the same suite",
        )
    grid = grids.pop()
    winners = job.inputs["frontier"] / "winners.parquet"
    called = labels("frontier", job.inputs["frontier"], arms_of(job))
    edge: Curves | list[str] = (
        [called.get(arm, arm) for arm in pl.read_parquet(winners)["arm"].unique(maintain_order=True)]
        if winners.exists()
        else read_frontier(job.inputs["frontier"] / "frontier.json")
    )
    rows = bootstrap(
        {arm: scores for arm, (scores, _) in read.items()},
        grid,
        edge,
        l_max=rule.to,
        grid=grid,
        relative_to=rule.relative_to,
        resamples=rule.resamples,
        confidence=rule.confidence,
    )
    accuracy = {(row.model, row.benchmark): row.accuracy.value for row in rows}
    base = rule.relative_to
    table = [
        record(row)
        | {"accuracy_change": None if base is None else row.accuracy.value - accuracy[base, row.benchmark]}
        for row in rows
    ]
    names = ("model", "benchmark")
    schema = {key: pl.String() if key in names else pl.Float64() for key in table[0]}
    pl.DataFrame(table, schema=schema, orient="row").write_parquet(job.out / "reg.parquet")


def record(row: Scores) -> dict[str, str | float | None]:
    """A row of `reg.parquet`."""

    def three(name: str, interval: Interval | None, value_name: str | None = None) -> dict[str, float | None]:
        value, low, high = (
            (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
        )
        return {value_name or name: value, f"{name}_low": low, f"{name}_high": high}

    return {
        "model": row.model,
        "benchmark": row.benchmark,
        **three("accuracy", row.accuracy),
        **three("length", row.length),
        **three("reg", row.reg),
        **three("difference", row.difference),
        **three("change", row.change_pct, "change_pct"),
    }


def arms_of(job: Job) -> dict[str, Path]:
    """The folders of the roles `arm:<arm>`, by arm."""
    return {
        role.removeprefix("arm:"): folder for role, folder in job.inputs.items() if role.startswith("arm:")
    }
