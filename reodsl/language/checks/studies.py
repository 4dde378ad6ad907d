"""Studies: frontiers over arms evaluated alike, scores that reach, tokens of one vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.bounds import MOST_SEEDS
from reodsl.language.checks.cases import Case, found, place
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
from reodsl.language.resolve import arm_suite, arms_of, grid_of
from reodsl.language.studies import Parts
from reodsl.language.values import Items, Record, Symbol, Value


def check_study(study: Record, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Every check of one study."""
    parts: Parts = study.made
    for frontier in parts.frontiers:
        if isinstance(frontier.made, Record):
            yield from _alike(study, frontier)
            yield from _reaches(study, frontier)
            yield from _judged(study, frontier, cases)
    yield from _vocabularies(study, parts)
    suites = [(arm.name, suite) for arm in parts.arms if (suite := arm_suite(study, arm)) is not None]
    yield from check_score(study, suites)
    yield from check_shared(study, parts.arms)
    yield from _columns(study, parts)
    for table in parts.tables:
        yield from check_table_of(study, table)
        yield from check_rows(study, table, rows_of(study, table))
    if not (parts.tables or parts.frontiers or study.sub("report")):
        yield from check_rows(study, None, parts.arms)
    yield from _scored(study, parts)
    yield from _seeds(study)
    yield from _unreported(study, parts)


def _scored(study: Record, parts: Parts) -> Iterator[Diagnostic]:
    score = study.sub("score")
    against = score.sub("against") if score is not None else None
    for frontier in parts.frontiers:
        if against is not None and against.name == frontier.name:
            arms = [each.data for each in members(frontier) if isinstance(each.data, Record)]
            yield from check_scored(study, parts.arms, arms)


def _vocabularies(study: Record, parts: Parts) -> Iterator[Diagnostic]:
    """W0606: in a frontier, and among all arms where they are scored or shown together.

    What stands beside published numbers is compared as it was in print, whatever its tokens.
    """
    told = False
    for frontier in parts.frontiers:
        what = f"the frontier `{frontier.name}`"
        for each in check_vocabularies(what, members(frontier), None, frontier.span):
            told = True
            yield each
    printed = any(table.sub("published") is not None for table in parts.tables)
    if not told and (study.sub("score") or parts.charts or (parts.tables and not printed)):
        arms = [Value(arm, arm.span) for arm in parts.arms]
        yield from check_vocabularies(f"`{study.name}`", arms, None, study.span)


def members(frontier: Record) -> list[Value]:
    """The arms in a frontier, as they are named there."""
    of = frontier.made.get("of") if isinstance(frontier.made, Record) else None
    return list(of.data.values) if of is not None and isinstance(of.data, Items) else []


def _alike(study: Record, frontier: Record) -> Iterator[Diagnostic]:
    """E0601: the arms of a frontier share a suite, the one it names where it names one."""
    arms = members(frontier)
    on = frontier.made.sub("on")
    first: tuple[Value, Record] | None = None
    for each in arms:
        arm = each.data
        assert isinstance(arm, Record)
        suite = arm_suite(study, arm)
        if suite is None:
            continue
        wanted, label = (
            (on, None) if on is not None else (first[1], first[0]) if first is not None else (None, None)
        )
        if wanted is None:
            first = (each, suite)
        elif suite is not wanted and key(suite) != key(wanted):
            where = (
                Label(label.span, f"on `{wanted.name}`")
                if label is not None
                else Label(on.span, f"`on: {on.name}`")
                if on
                else None
            )
            yield error(
                "E0601",
                f"the frontier `{frontier.name}` is over arms that are evaluated differently",
                each.span,
                f"on `{suite.name}`, which differs in {difference(suite, wanted) or 'its benchmarks'}",
                others=[where] if where is not None else [],
                help=one_suite(study, arm, wanted),
            )


def _reaches(study: Record, frontier: Record) -> Iterator[Diagnostic]:
    """E0607: a frontier ends where its arms are evaluated."""
    to = frontier.made.fields.get("to")
    end = frontier.made.data("to")
    for each in members(frontier)[:1]:
        assert isinstance(each.data, Record)
        suite = arm_suite(study, each.data)
        grid = grid_of(suite)
        if suite is not None and grid and end > grid[-1]:
            yield error(
                "E0607",
                "the frontier goes on past the evaluation's grid",
                place(to, frontier.span),
                f"{end} tokens",
                others=[Label(place(suite.fields.get("grid"), suite.span), f"up to {grid[-1]} tokens")],
                help=f"write `to: {grid[-1]} tokens`, or let the grid go on",
            )


def _judged(study: Record, frontier: Record, cases: Sequence[Case]) -> Iterator[Diagnostic]:
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
            and stage.reward.split.kind != "steps_split"
            for stage in case.stages
        )
    }
    for each in members(frontier):
        assert isinstance(each.data, Record)
        if each.data.name in trained_on_it:
            yield warning(
                "W0602",
                f"`{each.data.name}` is inside the frontier that scores it",
                each.span,
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
    if isinstance(against.made, Record):
        end, where = against.made.data("to"), against.made.fields.get("to")
    else:
        end, where = max(against.data("budgets")), against.fields.get("budgets")
        yield from check_against(score, against, suites)
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
        if grid and to > grid[-1]:
            labels = [
                Label(place(score.fields.get("to"), owner.span), f"{to} tokens"),
                Label(place(suite.fields.get("grid"), suite.span), f"the grid of `{suite.name}`"),
            ]
            helps = f"write `to: {grid[-1]} tokens`, or let the grid go on"
            message = f"REG integrates to {to} tokens, and `{name}` is evaluated up to {grid[-1]}"
            yield found(error, "E0608", message, labels, helps)
            return


def _seeds(study: Record) -> Iterator[Diagnostic]:
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


def _columns(study: Record, parts: Parts) -> Iterator[Diagnostic]:
    """E0609: REG in a table or a chart of a study that scores nothing."""
    if study.sub("score") is not None:
        return
    for each in (*parts.tables, *parts.charts):
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


def _unreported(study: Record, parts: Parts) -> Iterator[Diagnostic]:
    """W0604: an arm in no table, chart or frontier, and feeding no other."""
    if not parts.tables and not parts.charts:
        return
    seen: set[str] = set()
    for table in parts.tables:
        rows = table.get("rows")
        if rows is None or isinstance(rows.data, Symbol):
            return
        seen |= (
            {each.data.name for each in rows.data.values if isinstance(each.data, Record)}
            if isinstance(rows.data, Items)
            else set()
        )
    for chart in parts.charts:
        lines = chart.get("lines")
        seen |= (
            {each.data.name for each in lines.data.values if isinstance(each.data, Record)}
            if lines is not None and isinstance(lines.data, Items)
            else set()
        )
    for frontier in parts.frontiers:
        seen |= {each.data.name for each in members(frontier) if isinstance(each.data, Record)}
    for arm in arms_of(study):
        if arm.name not in seen:
            yield warning(
                "W0604",
                f"the arm `{arm.name}` is never reported",
                arm.span,
                "in no table, chart or frontier",
                help="add it to `rows` or `lines`, or take it out",
            )
