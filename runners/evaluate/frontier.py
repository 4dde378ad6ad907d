"""The runners of `frontier`, `budgets` and `score` tasks, which combine evaluations of arms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from reodsl.diagnostics import group, problem
from reodsl.graph.job import Job
from reodsl.ir.reward import OracleBudgets, QuestionBudgets
from reodsl.ir.study import Frontier, Score
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.curve_files import read_frontier, write_frontier
from reodsl.numbers.curves import Curve, Curves, envelope
from reodsl.numbers.greedy import Changes, describe_schedule, greedy, question_min
from reodsl.numbers.intervals import STAR_FIELDS, Interval, Scores, compare_arms, score_arms
from reodsl.numbers.reg import MEAN
from reodsl.numbers.verdict import VERDICT, common_of, judge, to_json
from reodsl.store.manifest import arm_labels


def frontier(job: Job) -> None:
    """Write `frontier.json`, the best accuracy at each benchmark and budget, and `winners.parquet`.

    `winners.parquet` has a row for each benchmark, budget and arm, with the arm's accuracy and whether it is the best.
    If the settings have published curves, they are written as the frontier, and `winners.parquet` is not written.
    """
    settings: Frontier = job.task.work["frontier"]
    if settings.published:
        printed = {curve.benchmark: Curve(curve.budgets, curve.accuracy) for curve in settings.published}
        write_frontier(job.out / "frontier.json", printed)
        return
    models = {arm: read_frontier(folder / "curves.json") for arm, folder in arms_of(job).items()}
    best = envelope(models, to=settings.to)
    write_frontier(job.out / "frontier.json", best.curves)
    rows = [
        (w.benchmark, w.budget, arm, curves[w.benchmark].at(w.budget), w.accuracy, arm in w.models)
        for w in best.winners
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
    """Write `budgets.json`: the budgets at which a reward divides responses.

    For `OracleBudgets` all questions share budgets, which a greedy search chooses on the frontier. Otherwise each
    question has the smallest budget at which a rollout of the arms' training solves it.
    """
    rule = job.task.work["split"]
    if isinstance(rule, OracleBudgets):
        best = read_frontier(job.inputs["frontier"] / "frontier.json")
        schedule = greedy(best, rule.l_max, rule.n, rule.step)
        text = json.dumps(describe_schedule(schedule, best), indent=1, allow_nan=False)
    else:
        ids = pl.read_parquet(job.inputs["data"] / "questions.parquet", columns=["id"], glob=False)[
            "id"
        ].to_list()
        facts = per_question(rule, ids, arms_of(job))
        text = json.dumps(facts, indent=1, allow_nan=False)
    (job.out / "budgets.json").write_text(text + "\n", encoding="utf-8")


def per_question(rule: QuestionBudgets, ids: Sequence[str], arms: Mapping[str, Path]) -> dict[str, object]:
    """Return the smallest budget at which a rollout solves each question, from the rollouts of the arms' training.

    Args:
        rule: The settings of the budgets, with `l_max` in tokens.
        ids: The ids of the questions that need a budget.
        arms: The folder of each arm's training, by arm.

    Returns:
        The content of `budgets.json`: `l_max`; `questions`, the budgets in tokens by id, None for an unsolved question
        if `unsolved = drop`; `unsolved`, the number of questions that no rollout solves at `l_max`; `unmet`, the number
        of questions that no training drew.

    Raises:
        Problem: E0405, if no training drew any of the questions.
    """
    id_set = set(ids)
    groups = (
        group
        for folder in arms.values()
        for group in groups_of(folder / "rollouts.parquet")
        if group[0] in id_set
    )
    minimum = question_min(groups, rule.l_max, rule.unsolved)
    unsolved = [] if rule.unsolved != "drop" else minimum.unsolved
    num_unmet = len(id_set) - len(minimum.budgets) - len(unsolved)
    if num_unmet == len(id_set):
        raise problem(
            "E0405",
            f"the training of the arms drew none of the {num_unmet} questions, so no rollout shows their budgets",
            where="rollouts.parquet",
            notes=[f"arms: {', '.join(arms)}"],
            help="name arms that are trained on the same data",
        )
    questions = minimum.budgets | dict.fromkeys(unsolved)
    return {
        "l_max": rule.l_max,
        "questions": dict(sorted(questions.items())),
        "unsolved": len(minimum.unsolved),
        "unmet": num_unmet,
    }


def groups_of(path: Path) -> Iterator[tuple[str, list[Changes]]]:
    """Yield each question that a training step sampled, with the changes of its rollouts' verdicts.

    A question that several steps sampled is yielded once for each. In the table, its rows begin with rollout 0.

    Args:
        path: `rollouts.parquet` of a training.

    Yields:
        The question's id, and a list for each rollout. Its items are pairs (tokens, verdict): the answer that the first
        `tokens` tokens of the response give without forcing has this verdict until the next pair. The last pair is the
        full response.
    """
    columns = ["question", "rollout", "tokens", "correct", "bare_cuts", "bare"]
    current, group = "", list[Changes]()
    for question, rollout, tokens, correct, cuts, verdicts in pl.read_parquet(
        path, columns=columns, glob=False
    ).iter_rows():
        if rollout == 0 and group:
            yield current, group
            group = []
        current = question
        group.append([*zip(cuts, verdicts, strict=True), (max(tokens, 1), correct)])
    if group:
        yield current, group


def score(job: Job) -> None:
    """Write `reg.parquet` with REG, accuracy, length and differences of every arm, and the study's verdict.

    Raises:
        Problem: E0424, if arms were evaluated at different budgets.
    """
    rule: Score = job.task.work["score"]
    folders = evaluations_of(job)
    scored = {key: arm_scores(folder, key[0]) for key, folder in folders.items()}
    grids = {grid for _, grid in scored.values()}
    if len(grids) != 1:
        budgets_of = {arm: grid for (arm, _), (_, grid) in scored.items()}
        raise problem(
            "E0424",
            "the arms of the study were evaluated at different budgets",
            notes=[f"`{arm}`: {len(grid)} budgets to {grid[-1]}" for arm, grid in budgets_of.items()],
            help="give every arm the same suite",
        )
    grid = grids.pop()
    winners = job.inputs["frontier"] / "winners.parquet"
    labels = arm_labels("frontier", job.inputs["frontier"], folders)
    frontier_curves: Curves | list[str] = (
        [labels.get(arm, arm) for arm in dict.fromkeys(pl.read_parquet(winners, glob=False)["arm"])]
        if winners.exists()
        else read_frontier(job.inputs["frontier"] / "frontier.json")
    )
    by_arm = group((arm, scores) for (arm, _), (scores, _) in scored.items())
    seeds = sorted({seed for _, seed in scored if seed is not None}) or [0]
    base, confidence = rule.relative_to, rule.confidence
    comparisons = compare_arms(
        by_arm, grid, seeds=len(seeds), l_max=rule.to, grid=grid, against=base, confidence=confidence
    )
    rows = score_arms(
        by_arm,
        grid,
        frontier_curves,
        seeds=seeds,
        l_max=rule.to,
        grid=grid,
        relative_to=base,
        confidence=confidence,
        comparisons=comparisons,
    )
    table = [record(row) for row in rows]
    types: dict[str, pl.DataType] = {"model": pl.String(), "benchmark": pl.String(), "seed": pl.Int64()}
    types |= {f"{name}_star": pl.Boolean() for name in STAR_FIELDS}
    schema = {key: types.get(key, pl.Float64()) for key in table[0]}
    pl.DataFrame(table, schema=schema, orient="row").write_parquet(job.out / "reg.parquet")
    of_base = next(
        (row.reg for row in rows if row.model == base and row.benchmark == MEAN and row.seed is None), None
    )
    verdict = judge(
        comparisons,
        baseline=base,
        baseline_reg=None if of_base is None or of_base.low is None else (of_base.value, of_base.low),
        common=common_of({key: folder for key, folder in folders.items() if key[0] in comparisons.arms}),
    )
    text = json.dumps(to_json(verdict), indent=1, allow_nan=False)
    (job.out / VERDICT).write_text(text + "\n", encoding="utf-8")


def evaluations_of(job: Job) -> dict[tuple[str, int | None], Path]:
    """Return the evaluation folders of the inputs `arm:<arm>@<seed>` by arm and seed (None for an untrained arm)."""
    folders: dict[tuple[str, int | None], Path] = {}
    for role, folder in arms_of(job).items():
        arm, _, seed = role.partition("@")
        folders[arm, int(seed) if seed else None] = folder
    return dict(sorted(folders.items(), key=lambda item: item[0][1] or 0))


def record(row: Scores) -> dict[str, str | float | bool | None]:
    """Return the scores of an arm as a row of `reg.parquet`, by column name.

    A score has columns for its value, the low and high ends of its interval, and if it is tested, the p-value and
    whether it is significant. Columns are None if a score has no value.
    """

    def interval_columns(name: str, interval: Interval | None) -> dict[str, float | None]:
        """Return the columns of a value and of the ends of its interval; None if there is no value."""
        ends = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
        return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))

    def tested_columns(name: str, interval: Interval | None) -> dict[str, float | bool | None]:
        """Return the columns of an interval, with the p-value and whether it is significant (Holm)."""
        p, star = (None, None) if interval is None else (interval.p_holm, interval.significant)
        return interval_columns(name, interval) | {f"{name}_p": p, f"{name}_star": star}

    return {
        "model": row.model,
        "benchmark": row.benchmark,
        "seed": row.seed,
        **interval_columns("accuracy", row.accuracy),
        **interval_columns("length", row.length),
        **interval_columns("reg", row.reg),
        "reg_plain": row.reg_plain,
        **tested_columns("difference", row.difference),
        "change_pct": row.change_pct,
        **tested_columns("accuracy_change", row.accuracy_change),
        **interval_columns("length_change", row.length_change),
    }


def arms_of(job: Job) -> dict[str, Path]:
    """Return the folders of a task's inputs `arm:<arm>`, by arm."""
    return {
        role.removeprefix("arm:"): folder for role, folder in job.inputs.items() if role.startswith("arm:")
    }
