"""Checks of studies: frontiers over arms evaluated alike, scores that reach, tokens of one vocabulary, rows and seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.bounds import MOST_SEEDS
from reodsl.language.checks.cases import Setting, StudyCase, View, finding_at, study_check
from reodsl.language.checks.clusters import check_room
from reodsl.language.checks.comparable import (
    check_rows,
    check_scored,
    check_shared,
    check_vocabularies,
    difference,
    key,
    one_suite,
)
from reodsl.language.checks.published import check_against, check_table_of, rows_of
from reodsl.language.context import Context
from reodsl.language.resolve import ancestry, arm_suite, grid_of, own_suite, same_record, trained_checkpoint
from reodsl.language.values import (
    Arm,
    Experiment,
    Frontier,
    Record,
    Study,
    Symbol,
    Value,
    describe,
    items_of,
    records_of,
)


def members(frontier: Frontier) -> list[tuple[Arm, Span]]:
    """Return the arms in a frontier, and the places where it names them."""
    named = items_of(frontier.envelope, "of")
    return [(each.data, each.span) for each in named if isinstance(each.data, Arm)]


@study_check
def check_frontiers(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0601, E0607, W0602: every frontier over the study's arms."""
    for frontier in case.study.frontiers:
        if frontier.envelope is not None:
            yield from _alike(case.study, frontier, frontier.envelope)
            yield from _reaches(case.study, frontier, frontier.envelope)
            yield from _judged(case, frontier)


def _alike(study: Study, frontier: Frontier, envelope: Record) -> Iterator[Diagnostic]:
    """Report E0601: the arms of a frontier share a suite, the one it names where it names one."""
    wanted, where = envelope.sub("on"), None
    if wanted is not None:
        where = Label(wanted.span, f"`on: {wanted.name}`")
    for arm, at in members(frontier):
        suite = arm_suite(study, arm)
        if suite is None:
            continue
        if wanted is None or where is None:
            wanted, where = suite, Label(at, f"on `{suite.name}`")
        elif suite is not wanted and key(suite) != key(wanted):
            yield error(
                "E0601",
                f"the frontier `{frontier.name}` is over arms that are evaluated differently",
                at,
                f"on `{suite.name}`, which differs in {difference(suite, wanted) or 'its benchmarks'}",
                others=[where],
                help=one_suite(study, arm, wanted),
            )


def _reaches(study: Study, frontier: Frontier, envelope: Record) -> Iterator[Diagnostic]:
    """Report E0607: a frontier ends where its arms are evaluated."""
    end = envelope.data("to")
    for suite in [arm_suite(study, arm) for arm, _ in members(frontier)[:1]]:
        grid = grid_of(suite)
        if suite is not None and _gridless(suite):
            what = f"the frontier `{frontier.name}` is over budgets"
            yield _without_grid("E0607", what, suite, frontier.span, f"to {end} tokens")
        elif suite is not None and grid and end > grid[-1]:
            yield Setting("to", envelope.fields.get("to"), frontier.span).error(
                "E0607",
                "the frontier goes on past the evaluation's grid",
                f"{end} tokens",
                View(suite)["grid"].label(f"up to {grid[-1]} tokens"),
                help=f"write `to: {grid[-1]} tokens`, or let the grid go on",
            )


def _judged(case: StudyCase, frontier: Frontier) -> Iterator[Diagnostic]:
    """Report W0602: an arm trained on the measure itself, inside the frontier that scores it."""
    if "score.against" not in case or case.against.name != frontier.name:
        return
    rewards = [(each.name, stage.reward) for each in case.cases for stage in each.stages]
    trained_on_it = {
        name
        for name, reward in rewards
        if reward is not None
        and {"forced", "weight"} <= reward.uses
        and reward.split is not None
        and reward.split.kind not in ("steps_split", "exits_split")
    }
    for arm, at in members(frontier):
        if arm.name in trained_on_it:
            yield warning(
                "W0602",
                f"`{arm.name}` is inside the frontier that scores it",
                at,
                "rewarded at budgets, as REG measures",
                notes=["the paper's frontiers are over existing methods, never REO-RL"],
                help="take it out of `of:`, so that its gap can be seen",
            )


@study_check
def check_study_vocabularies(case: StudyCase) -> Iterator[Diagnostic]:
    """Report W0606: in a frontier, and among all arms where they are scored or shown together.

    What stands beside published numbers is compared as it was in print, whatever its tokens.
    """
    study, warned = case.study, False
    for frontier in study.frontiers:
        what = f"the frontier `{frontier.name}`"
        for each in check_vocabularies(what, items_of(frontier.envelope, "of"), None, frontier.span):
            warned = True
            yield each
    printed = any(table.sub("published") is not None for table in study.tables)
    if not warned and (study.sub("score") or study.charts or (study.tables and not printed)):
        arms = [Value(arm, arm.span) for arm in study.arms]
        yield from check_vocabularies(f"`{study.name}`", arms, None, study.span)


@study_check
def check_study_score(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0608, E0616: the study's score."""
    suites = [
        (arm.name, suite) for arm in case.study.arms if (suite := arm_suite(case.study, arm)) is not None
    ]
    yield from check_score(case.study, suites)
    yield from check_shared(case.study, case.study.arms)


def check_score(owner: Record, suites: Sequence[tuple[str, Record]]) -> Iterator[Diagnostic]:
    """Report E0608: the score of a study or of a lone experiment ends where its frontier does, and where it is evaluated."""
    score = owner.sub("score")
    against = score.sub("against") if score is not None else None
    if score is None or against is None:
        return
    to, ends = Setting("to", score.fields.get("to"), owner.span), View(against)["budgets"]
    if isinstance(against, Frontier) and against.envelope is not None:
        ends = Setting("to", against.envelope.fields.get("to"), against.span)
        end = ends.number
    else:
        end = max(against.data("budgets"))
    yield from check_against(owner, against)
    if to.number > end:
        yield to.error(
            "E0608",
            f"REG integrates to {to.number} tokens, and the frontier `{against.name}` ends at {end}",
            f"{to.number} tokens",
            ends.label(f"ends at {end} tokens"),
            help=f"write `to: {end} tokens`, or let the frontier go on",
        )
    for name, suite in suites:
        grid = grid_of(suite)
        if _gridless(suite):
            what, at = f"REG of `{name}` is over budgets", View(owner)["score"].place
            yield _without_grid("E0608", what, suite, at, f"to {to.number} tokens")
            return
        if grid and to.number > grid[-1]:
            labels = [
                to.label(f"{to.number} tokens"),
                View(suite)["grid"].label(f"the grid of `{suite.name}`"),
            ]
            helps = f"write `to: {grid[-1]} tokens`, or let the grid go on"
            message = f"REG integrates to {to.number} tokens, and `{name}` is evaluated up to {grid[-1]}"
            yield finding_at(error, "E0608", message, labels, helps)
            return


def _gridless(suite: Record) -> bool:
    """Return whether a suite grades whole responses alone."""
    return suite.get("grid") is None and "grid" not in suite.broken


def _without_grid(code: str, what: str, suite: Record, at: Span, text: str) -> Diagnostic:
    return error(
        code,
        f"{what}, and `{suite.name}` evaluates whole responses alone",
        at,
        text,
        others=[Label(suite.span, "no `grid`")],
        help="give the suite a grid: `grid = [0 tokens] + every(1K tokens, to: 16K tokens)`, and a `forcing`",
    )


@study_check
def check_columns(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0609: REG in a table or a chart of a study that scores nothing."""
    parts = (*case.study.tables, *case.study.charts)
    for each, name in [(each, name) for each in parts for name in ("columns", "y")]:
        columns = each.data(name)
        if "score" not in case and (columns == "reg" or (isinstance(columns, tuple) and "reg" in columns)):
            message = f"`{each.name}` shows REG, and the study has no score"
            helps = "add `score = reg(against: …, to: 16K tokens)`, or leave `reg` out"
            yield View(each)[name].error("E0609", message, "`reg`", help=helps)


@study_check
def check_budget_charts(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0609: a chart over budgets of arms that are evaluated at none."""
    for chart in case.study.charts:
        for arm in records_of(chart, "lines") if chart.data("x") == "budget" else ():
            suite = arm_suite(case.study, arm) if isinstance(arm, Arm) else None
            if suite is not None and _gridless(suite):
                what, at = f"`{chart.name}` is over budgets", View(chart)["x"].place
                yield _without_grid("E0609", what, suite, at, "`budget`")
                break


@study_check
def check_tables_and_rows(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0601, E0613, E0614, W0605: the arms of each table, and those of the frontier of the score."""
    study = case.study
    for table in study.tables:
        yield from check_table_of(study, table)
        yield from check_rows(study, table, rows_of(study, table))
    if not (study.tables or study.frontiers or study.sub("report")):
        yield from check_rows(study, None, study.arms)
    for frontier in study.frontiers if "score.against" in case else ():
        if case.against.name == frontier.name:
            yield from check_scored(study, study.arms, [arm for arm, _ in members(frontier)])


@study_check
def check_seeds(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0216: more seeds than anybody trains. E0208: a seed repeats nothing but itself."""
    seeds = case.study.data("replicate") or ()
    if len(seeds) > MOST_SEEDS:
        yield case["replicate"].error(
            "E0216",
            f"a study has at most {MOST_SEEDS} seeds, and these are {len(seeds):,}",
            "too large",
            help="take fewer: the interval over five seeds tells as much as anybody reports",
        )
        return
    times = Counter(seeds)
    twice = next((seed for seed in seeds if times[seed] > 1), None)
    if twice is not None:
        helps = "list each seed once: equal seeds give equal runs"
        yield case["replicate"].error("E0208", f"the seed {twice} is there twice", help=helps)


@study_check
def check_replicated(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0617: a checkpoint for all seeds that nothing trained, or that no arm goes back to."""
    for named in items_of(case.study, "replicate_from"):
        checkpoint = trained_checkpoint(named.data if isinstance(named.data, Record) else None)
        if checkpoint is None:
            yield error(
                "E0617",
                f"`{case.study.name}` replicates from {describe(named)}, which nothing trains",
                named.span,
                "a model as it comes",
                help="a model is the same for all seeds anyway: name checkpoints of experiments, as in"
                " `replicate_from = [checkpoint(start)]`",
            )
        elif not any(_goes_back(arm, *checkpoint) for arm in case.study.arms):
            yield error(
                "E0617",
                f"no arm of `{case.study.name}` goes back to {describe(named)}",
                named.span,
                "no arm starts here",
                help="name the checkpoint that arms start from, as their `base` has it",
            )


def _goes_back(arm: Arm, experiment: Experiment, stage: int | None) -> bool:
    """Return whether an arm is that checkpoint, or a later one, or starts from it."""
    for source, end in ancestry(arm):
        if same_record(source, experiment):
            return end is None or (stage is not None and end >= stage)
    return False


@study_check
def check_unreported(case: StudyCase) -> Iterator[Diagnostic]:
    """Report W0604: an arm in no table, chart or frontier, and feeding no other."""
    study, rows = case.study, [table.get("rows") for table in case.study.tables]
    if not (rows or study.charts) or any(each is None or isinstance(each.data, Symbol) for each in rows):
        return
    reported = {each.name for table in study.tables for each in records_of(table, "rows")}
    reported |= {each.name for chart in study.charts for each in records_of(chart, "lines")}
    reported |= {arm.name for frontier in study.frontiers for arm, _ in members(frontier)}
    for arm in study.arms:
        if arm.name not in reported:
            yield warning(
                "W0604",
                f"the arm `{arm.name}` is never reported",
                arm.span,
                "in no table, chart or frontier",
                help="add it to `rows` or `lines`, or take it out",
            )


def runnable(ctx: Context, record: Record) -> tuple[Diagnostic, ...]:
    """Return an error for a study or an experiment without a suite, and for experiments whose cluster is not the study's."""
    if not isinstance(record, Study):
        return () if own_suite(record) is not None else (_no_suite(record, ()),)
    arms = [arm for arm in record.arms if arm_suite(record, arm) is None]
    bare = (_no_suite(record, arms),) if arms else ()
    return (*bare, *check_room(ctx, record))


def _no_suite(record: Record, arms: Sequence[Record]) -> Diagnostic:
    what = "how its arms are evaluated" if arms else "how the checkpoint is evaluated"
    return error(
        "E0304",
        f"`{record.name}` needs `eval`, a suite: {what}",
        record.span,
        "no `eval`",
        others=[Label(arm.span, "no suite of its own") for arm in arms],
        help=f"add `eval = math_reg`{' to the study' if arms else ''}, a suite of your own or one from `std.suites`",
    )
