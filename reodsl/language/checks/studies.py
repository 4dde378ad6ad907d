"""Studies: frontiers over arms evaluated alike, scores that reach, tokens of one vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.bounds import MOST_SEEDS
from reodsl.language.checks.cases import Case, finding_at, place
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
from reodsl.language.resolve import ancestry, arm_suite, grid_of, same_record, trained_checkpoint
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


def check_study(study: Study, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Every check of one study."""
    for frontier in study.frontiers:
        if frontier.envelope is not None:
            yield from _alike(study, frontier, frontier.envelope)
            yield from _reaches(study, frontier, frontier.envelope)
            yield from _judged(study, frontier, cases)
    yield from _vocabularies(study)
    suites = [(arm.name, suite) for arm in study.arms if (suite := arm_suite(study, arm)) is not None]
    yield from check_score(study, suites)
    yield from check_shared(study, study.arms)
    yield from _columns(study)
    yield from _budgets_drawn(study)
    for table in study.tables:
        yield from check_table_of(study, table)
        yield from check_rows(study, table, rows_of(study, table))
    if not (study.tables or study.frontiers or study.sub("report")):
        yield from check_rows(study, None, study.arms)
    yield from _scored(study)
    yield from _seeds(study)
    yield from _replicated(study)
    yield from _unreported(study)


def _scored(study: Study) -> Iterator[Diagnostic]:
    score = study.sub("score")
    against = score.sub("against") if score is not None else None
    for frontier in study.frontiers:
        if against is not None and against.name == frontier.name:
            yield from check_scored(study, study.arms, [arm for arm, _ in members(frontier)])


def _vocabularies(study: Study) -> Iterator[Diagnostic]:
    """W0606: in a frontier, and among all arms where they are scored or shown together.

    What stands beside published numbers is compared as it was in print, whatever its tokens.
    """
    warned = False
    for frontier in study.frontiers:
        what = f"the frontier `{frontier.name}`"
        for each in check_vocabularies(what, items_of(frontier.envelope, "of"), None, frontier.span):
            warned = True
            yield each
    printed = any(table.sub("published") is not None for table in study.tables)
    if not warned and (study.sub("score") or study.charts or (study.tables and not printed)):
        arms = [Value(arm, arm.span) for arm in study.arms]
        yield from check_vocabularies(f"`{study.name}`", arms, None, study.span)


def members(frontier: Frontier) -> list[tuple[Arm, Span]]:
    """The arms in a frontier, and where they are named there."""
    named = items_of(frontier.envelope, "of")
    return [(each.data, each.span) for each in named if isinstance(each.data, Arm)]


def _alike(study: Study, frontier: Frontier, envelope: Record) -> Iterator[Diagnostic]:
    """E0601: the arms of a frontier share a suite, the one it names where it names one."""
    on = envelope.sub("on")
    first: tuple[Span, Record] | None = None
    for arm, at in members(frontier):
        suite = arm_suite(study, arm)
        if suite is None:
            continue
        wanted, label = (
            (on, None) if on is not None else (first[1], first[0]) if first is not None else (None, None)
        )
        if wanted is None:
            first = (at, suite)
        elif suite is not wanted and key(suite) != key(wanted):
            where = (
                Label(label, f"on `{wanted.name}`")
                if label is not None
                else Label(on.span, f"`on: {on.name}`")
                if on
                else None
            )
            yield error(
                "E0601",
                f"the frontier `{frontier.name}` is over arms that are evaluated differently",
                at,
                f"on `{suite.name}`, which differs in {difference(suite, wanted) or 'its benchmarks'}",
                others=[where] if where is not None else [],
                help=one_suite(study, arm, wanted),
            )


def _reaches(study: Study, frontier: Frontier, envelope: Record) -> Iterator[Diagnostic]:
    """E0607: a frontier ends where its arms are evaluated."""
    to = envelope.fields.get("to")
    end = envelope.data("to")
    for arm, _ in members(frontier)[:1]:
        suite = arm_suite(study, arm)
        grid = grid_of(suite)
        if suite is not None and _gridless(suite):
            yield _without_grid(
                "E0607",
                f"the frontier `{frontier.name}` is over budgets",
                suite,
                frontier.span,
                f"to {end} tokens",
            )
        elif suite is not None and grid and end > grid[-1]:
            yield error(
                "E0607",
                "the frontier goes on past the evaluation's grid",
                place(to, frontier.span),
                f"{end} tokens",
                others=[Label(place(suite.fields.get("grid"), suite.span), f"up to {grid[-1]} tokens")],
                help=f"write `to: {grid[-1]} tokens`, or let the grid go on",
            )


def _judged(study: Study, frontier: Frontier, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """W0602: an arm trained on the measure itself, inside the frontier that scores it."""
    score = study.sub("score")
    against = score.sub("against") if score is not None else None
    if against is None or against.name != frontier.name:
        return
    trained_on_it = {
        case.name
        for case in cases
        if any(
            stage.reward is not None
            and {"forced", "weight"} <= stage.reward.uses
            and stage.reward.split is not None
            and stage.reward.split.kind not in ("steps_split", "exits_split")
            for stage in case.stages
        )
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


def check_score(owner: Record, suites: Sequence[tuple[str, Record]]) -> Iterator[Diagnostic]:
    """E0608: the score of a study or of a lone experiment ends where its frontier does, and where it is evaluated."""
    score = owner.sub("score")
    against = score.sub("against") if score is not None else None
    if score is None or against is None:
        return
    to = score.data("to")
    envelope = against.envelope if isinstance(against, Frontier) else None
    if envelope is not None:
        end, where = envelope.data("to"), envelope.fields.get("to")
    else:
        end, where = max(against.data("budgets")), against.fields.get("budgets")
    yield from check_against(owner, against)
    if to > end:
        yield error(
            "E0608",
            f"REG integrates to {to} tokens, and the frontier `{against.name}` ends at {end}",
            place(score.fields.get("to"), owner.span),
            f"{to} tokens",
            others=[Label(place(where, against.span), f"ends at {end} tokens")],
            help=f"write `to: {end} tokens`, or let the frontier go on",
        )
    for name, suite in suites:
        grid = grid_of(suite)
        if _gridless(suite):
            at = place(owner.fields.get("score"), owner.span)
            yield _without_grid("E0608", f"REG of `{name}` is over budgets", suite, at, f"to {to} tokens")
            return
        if grid and to > grid[-1]:
            labels = [
                Label(place(score.fields.get("to"), owner.span), f"{to} tokens"),
                Label(place(suite.fields.get("grid"), suite.span), f"the grid of `{suite.name}`"),
            ]
            helps = f"write `to: {grid[-1]} tokens`, or let the grid go on"
            message = f"REG integrates to {to} tokens, and `{name}` is evaluated up to {grid[-1]}"
            yield finding_at(error, "E0608", message, labels, helps)
            return


def _gridless(suite: Record) -> bool:
    """Whether a suite grades whole responses alone."""
    return suite.get("grid") is None and "grid" not in suite.broken


def _without_grid(code: str, what: str, suite: Record, at: Span, text: str) -> Diagnostic:
    """That curves are asked of a suite that has none."""
    return error(
        code,
        f"{what}, and `{suite.name}` evaluates whole responses alone",
        at,
        text,
        others=[Label(suite.span, "no `grid`")],
        help="give the suite a grid: `grid = [0 tokens] + every(1K tokens, to: 16K tokens)`, and a `forcing`",
    )


def _budgets_drawn(study: Study) -> Iterator[Diagnostic]:
    """E0609: a chart over budgets of arms that are evaluated at none."""
    for chart in study.charts:
        for arm in records_of(chart, "lines") if chart.data("x") == "budget" else ():
            suite = arm_suite(study, arm) if isinstance(arm, Arm) else None
            if suite is not None and _gridless(suite):
                at = place(chart.fields.get("x"), chart.span)
                yield _without_grid("E0609", f"`{chart.name}` is over budgets", suite, at, "`budget`")
                break


def _seeds(study: Study) -> Iterator[Diagnostic]:
    """E0216: more seeds than anybody trains. E0208: a seed repeats nothing but itself."""
    seeds = study.data("replicate") or ()
    if len(seeds) > MOST_SEEDS:
        yield error(
            "E0216",
            f"a study has at most {MOST_SEEDS} seeds, and these are {len(seeds):,}",
            place(study.fields.get("replicate"), study.span),
            "too large",
            help="take fewer: the interval over five seeds tells as much as anybody reports",
        )
        return
    times = Counter(seeds)
    twice = next((seed for seed in seeds if times[seed] > 1), None)
    if twice is not None:
        yield error(
            "E0208",
            f"the seed {twice} is there twice",
            place(study.fields.get("replicate"), study.span),
            help="list each seed once: equal seeds give equal runs",
        )


def _replicated(study: Study) -> Iterator[Diagnostic]:
    """E0617: a checkpoint for all seeds that nothing trained, or that no arm goes back to."""
    for named in items_of(study, "replicate_from"):
        checkpoint = trained_checkpoint(named.data if isinstance(named.data, Record) else None)
        if checkpoint is None:
            yield error(
                "E0617",
                f"`{study.name}` replicates from {describe(named)}, which nothing trains",
                named.span,
                "a model as it comes",
                help="a model is the same for all seeds anyway: name checkpoints of experiments, as in"
                " `replicate_from = [checkpoint(start)]`",
            )
        elif not any(_goes_back(arm, *checkpoint) for arm in study.arms):
            yield error(
                "E0617",
                f"no arm of `{study.name}` goes back to {describe(named)}",
                named.span,
                "no arm starts here",
                help="name the checkpoint that arms start from, as their `base` has it",
            )


def _goes_back(arm: Arm, experiment: Experiment, stage: int | None) -> bool:
    """Whether an arm is that checkpoint, or a later one, or starts from it."""
    for source, end in ancestry(arm):
        if same_record(source, experiment):
            return end is None or (stage is not None and end >= stage)
    return False


def _columns(study: Study) -> Iterator[Diagnostic]:
    """E0609: REG in a table or a chart of a study that scores nothing."""
    if study.sub("score") is not None:
        return
    for each in (*study.tables, *study.charts):
        for name in ("columns", "y"):
            shown = each.data(name)
            if shown == "reg" or (isinstance(shown, tuple) and "reg" in shown):
                yield error(
                    "E0609",
                    f"`{each.name}` shows REG, and the study has no score",
                    place(each.fields.get(name), each.span),
                    "`reg`",
                    help="add `score = reg(against: …, to: 16K tokens)`, or leave `reg` out",
                )


def _unreported(study: Study) -> Iterator[Diagnostic]:
    """W0604: an arm in no table, chart or frontier, and feeding no other."""
    if not study.tables and not study.charts:
        return
    seen: set[str] = set()
    for table in study.tables:
        rows = table.get("rows")
        if rows is None or isinstance(rows.data, Symbol):
            return
        seen |= {each.name for each in records_of(table, "rows")}
    for chart in study.charts:
        seen |= {each.name for each in records_of(chart, "lines")}
    for frontier in study.frontiers:
        seen |= {arm.name for arm, _ in members(frontier)}
    for arm in study.arms:
        if arm.name not in seen:
            yield warning(
                "W0604",
                f"the arm `{arm.name}` is never reported",
                arm.span,
                "in no table, chart or frontier",
                help="add it to `rows` or `lines`, or take it out",
            )
