"""Check studies: arms that can be compared, frontiers and scores that reach, rows, seeds and clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, listed, warning
from reodsl.ir.base import Node
from reodsl.ir.expression import Attribute, Constant, ForcedAnswer, FunctionCall, StepStatistic
from reodsl.ir.training import sum_rate_factors, warmup_steps
from reodsl.language.bounds import MOST_SEEDS
from reodsl.language.changes import complete_stages
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    CheckedExperiment,
    CheckedStudy,
    Settings,
    SettingView,
    case_check,
    finding_at,
    means_same,
    strip_names,
    study_check,
)
from reodsl.language.checks.data import check_vocabularies
from reodsl.language.checks.idle import is_own, list_declarations
from reodsl.language.checks.published import check_against, check_table_of, list_rows
from reodsl.language.context import Context
from reodsl.language.modules import STD
from reodsl.language.resolve import (
    WITHOUT_TRAINING,
    find_arm_suite,
    find_source,
    find_suite,
    find_trained,
    sort_grid,
)
from reodsl.language.reward.body import type_measure
from reodsl.language.suggest import MOST_SHOWN
from reodsl.language.units import PLAIN, Quantity
from reodsl.language.values import (
    DeclaredArm,
    DeclaredExperiment,
    DeclaredFrontier,
    DeclaredStudy,
    Definition,
    Record,
    Symbol,
    Value,
    WrittenBudgets,
    describe,
    list_items,
    list_records,
    plain,
    write_value,
)

WORDING_SETTINGS = ("wording", "wordings", "reference", "reference_samples")
"""The settings of suites that say how questions are asked."""
EXPERIMENT_SETTINGS = WITHOUT_TRAINING - {"expected_length"}
"""The settings of an experiment as a whole, which its stages share."""
AMOUNT_TOLERANCE = 0.05
"""The relative difference up to which two amounts count as equal."""


def list_members(frontier: DeclaredFrontier) -> list[tuple[DeclaredArm, Span]]:
    """Return the arms of a frontier, with the spans that name them."""
    named = list_items(frontier.envelope, "of")
    return [(item.data, item.span) for item in named if isinstance(item.data, DeclaredArm)]


@study_check
def check_frontiers(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0607, W0602: every frontier over the study's arms."""
    for frontier in case.study.frontiers:
        if frontier.envelope is not None:
            yield from _check_reach(case.study, frontier, frontier.envelope)
            yield from _check_self_scored(case, frontier)


def _check_suites(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0601: the arms of a frontier, and arms scored against it, are evaluated on different suites.

    The suite is the frontier's `on`, else the suite of most arms. Wordings of scored arms may differ.
    Different arms are one error, however many frontiers name them.
    """
    reported: set[str] = set()
    arm_suites = [(arm, find_arm_suite(case.study, arm)) for arm in case.study.arms]
    suites = {arm.name: (suite, make_key(suite)) for arm, suite in arm_suites if suite is not None}
    common = Counter(key for _, key in suites.values())
    for frontier in case.study.frontiers:
        members, named = list_members(frontier), (frontier.envelope or frontier).sub("on")
        inside = {arm.name for arm, _ in members}
        scored = "score.against" in case and case.frontier.name == frontier.name
        extra = [(arm, arm.span) for arm in case.study.arms if scored and arm.name not in inside]
        rows = [(arm.name, span, *suites[arm.name]) for arm, span in [*members, *extra] if arm.name in suites]
        norms = {key: suite for name, _, suite, key in rows if name in inside}
        norms = norms if named is None else {make_key(named): named}
        wrong = {
            norm: {
                name: Label(span, f"on `{suite.name}`, which differs in {names}")
                for name, span, suite, key in rows
                for skip in [() if name in inside else WORDING_SETTINGS]
                if key != norm
                and (
                    names := describe_difference(suite, target, skip=skip)
                    or ("" if skip else "its benchmarks")
                )
            }
            for norm, target in norms.items()
        }
        norm = min(wrong, key=lambda norm: (len(wrong[norm].keys() - reported), -common[norm]), default=None)
        least = wrong.get(norm, {})
        if least.keys() <= reported:
            continue
        reported |= least.keys()
        target = norms[norm]
        first, (lead, *more) = next(iter(least)), least.values()
        span = next((span for name, span, *_ in rows if name not in least), target.span)
        where = (
            Label(span, f"on `{target.name}`") if named is None else Label(named.span, f"`on: {named.name}`")
        )
        message = (
            f"the frontier `{frontier.name}` is over arms that are evaluated differently"
            if first in inside
            else f"`{first}` is scored against a frontier of arms that are evaluated differently"
        )
        helps = suggest_suite(case, list(least), target)
        yield error("E0601", message, lead.span, lead.text, labels=[where, *more[:MOST_SHOWN]], help=helps)


def _check_reach(study: DeclaredStudy, frontier: DeclaredFrontier, envelope: Record) -> Iterator[Diagnostic]:
    """Report E0607: a frontier ends after the budgets at which its arms are evaluated."""
    end = envelope.data("to")
    for suite in [find_arm_suite(study, arm) for arm, _ in list_members(frontier)[:1]]:
        last = _find_end(suite) if suite is not None else None
        if suite is not None and _is_gridless(suite):
            subject = f"the frontier `{frontier.name}` is over budgets"
            yield _report_gridless("E0607", subject, suite, frontier.span, f"to {end} tokens")
        elif suite is not None and last is not None and end > last:
            yield SettingView("to", envelope.fields.get("to"), frontier.span).error(
                "E0607",
                "the frontier goes on past the evaluation's grid",
                f"{end} tokens",
                Settings(suite)["grid"].label(f"up to {last} tokens"),
                help=f"write `to: {last} tokens`, or let the grid go on",
            )


def _check_self_scored(case: CheckedStudy, frontier: DeclaredFrontier) -> Iterator[Diagnostic]:
    """Report W0602: an arm trained on the measure itself, inside the frontier that scores it."""
    if "score.against" not in case or case.frontier.name != frontier.name:
        return
    rewards = [(arm.name, stage.reward) for arm in case.cases for stage in arm.stages]
    trained_on_it = {
        name
        for name, reward in rewards
        if reward is not None
        and {"forced", "weight"} <= reward.uses
        and reward.split is not None
        and reward.split.kind not in ("steps_split", "exits_split")
    }
    for arm, span in list_members(frontier):
        if arm.name in trained_on_it:
            yield warning(
                "W0602",
                f"`{arm.name}` is inside the frontier that scores it",
                span,
                "rewarded at budgets, as REG measures",
                notes=["the paper's frontiers are over existing methods, never REO-RL"],
                help="take it out of `of:`, so that its gap can be seen",
            )


@study_check
def check_study_vocabularies(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0606: different vocabularies in a frontier, or among arms that are scored or shown together.

    Arms beside published numbers are compared as the paper did, whatever their tokens.
    """
    study, warned = case.study, False
    for frontier in study.frontiers:
        subject = f"the frontier `{frontier.name}`"
        for finding in check_vocabularies(subject, list_items(frontier.envelope, "of"), None, frontier.span):
            warned = True
            yield finding
    printed = any(table.sub("published") is not None for table in study.tables)
    if not warned and (study.sub("score") or study.charts or (study.tables and not printed)):
        arms = [Value(arm, arm.span) for arm in study.arms]
        yield from check_vocabularies(f"`{study.name}`", arms, None, study.span)


@study_check
def check_study_score(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0607, E0616: the study's score."""
    suites = [
        (arm.name, suite) for arm in case.study.arms if (suite := find_arm_suite(case.study, arm)) is not None
    ]
    yield from check_score(case.study, suites)
    yield from check_shared(case.study, case.study.arms)


def check_score(owner: Record, suites: Sequence[tuple[str, Record]]) -> Iterator[Diagnostic]:
    """Report E0607: a score's integral goes on past its frontier or past a suite's grid.

    `suites` are the suites of the arms, with the arms' names.
    """
    against = owner.sub("score.against")
    if against is None:
        return
    to, ends = Settings(owner)["score.to"], Settings(against)["budgets"]
    if isinstance(against, DeclaredFrontier) and against.envelope is not None:
        ends = SettingView("to", against.envelope.fields.get("to"), against.span)
        end = ends.number
    else:
        end = max(against.data("budgets"))
    yield from check_against(owner, against)
    limits = [
        (end, f"the frontier `{against.name}` ends at", ends.label(f"ends at {end} tokens"), "frontier")
    ]
    for name, suite in suites:
        last = _find_end(suite)
        if _is_gridless(suite):
            subject, span = f"REG of `{name}` is over budgets", Settings(owner)["score"].span
            yield _report_gridless("E0607", subject, suite, span, f"to {to.number} tokens")
            return
        if last is not None:
            where = Settings(suite)["grid"].label(f"the grid of `{suite.name}`")
            limits.append((last, f"`{name}` is evaluated up to", where, "grid"))
    low, why, where, _ = min(limits, key=lambda limit: limit[0])
    if to.number > low:
        short = " and the ".join(dict.fromkeys(limit[-1] for limit in limits if limit[0] < to.number))
        message = f"REG integrates to {to.number} tokens, and {why} {low}"
        helps = f"write `to: {low} tokens`, or let the {short} go on"
        yield finding_at(error, "E0607", message, [to.label(f"{to.number} tokens"), where], help=helps)


def _find_end(suite: Record) -> int | None:
    """Return the last budget of a suite's grid, in tokens; None for a grid that is reported to end before `reg_to`."""
    grid = sort_grid(suite)
    return grid[-1] if grid and grid[-1] >= (suite.data("reg_to") or 0) else None


def _is_gridless(suite: Record) -> bool:
    """Return whether a suite grades complete responses only."""
    return suite.get("grid") is None and "grid" not in suite.invalid


def _report_gridless(code: str, subject: str, suite: Record, span: Span, text: str) -> Diagnostic:
    return error(
        code,
        f"{subject}, and `{suite.name}` evaluates whole responses alone",
        span,
        text,
        labels=[Label(suite.span, "no `grid`")],
        help="give the suite a grid: `grid = [0 tokens] + every(1K tokens, to: 16K tokens)`, and a `forcing`",
    )


@study_check
def check_columns(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609: REG in a table or a chart of a study without a score."""
    parts = (*case.study.tables, *case.study.charts)
    for display, name in [(display, name) for display in parts for name in ("columns", "y")]:
        columns = display.data(name)
        if "score" not in case and (columns == "reg" or (isinstance(columns, tuple) and "reg" in columns)):
            message = f"`{display.name}` shows REG, and the study has no score"
            helps = "add `score = reg(against: …, to: 16K tokens)`, or leave `reg` out"
            yield Settings(display)[name].error("E0609", message, "`reg`", help=helps)


_COLUMNS = ("arm", "benchmark", "seeds", "accuracy", "length", "reg", "reg_plain", "difference")


@study_check
def check_measures(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609: a measure that reads what the study does not have."""
    suites = [suite for arm in case.study.arms if (suite := find_arm_suite(case.study, arm)) is not None]
    for display in (*case.study.tables, *case.study.charts):
        for value in filter(None, (*list_items(display, "columns"), display.get("y"))):
            rule = value.data
            if (
                not isinstance(rule, Definition)
                or (typed := type_measure(case.ctx, rule, span=value.span)) is None
            ):
                continue
            if rule.name in _COLUMNS:
                message = f"`{rule.name}` is a column of every table"
                yield error("E0609", message, value.span, help=f"call the measure `my_{rule.name}`")
            if display.data("subset") == "balanced":
                helps = "show accuracy and length of the balanced subset, and measures in another table"
                yield error("E0609", "a measure is of all questions", value.span, help=helps)
            nodes = [*typed.nodes]
            if any(isinstance(node, StepStatistic) and node.over == "base" for node in nodes) and (
                case.study.data("score.relative_to") is None
            ):
                message = f"`{rule.name}` compares with a baseline, and the study names none"
                helps = "add one: `score = reg(against: …, to: 16K tokens, relative_to: base)`"
                yield error("E0609", message, value.span, "no `base`", help=helps)
            for suite in suites:
                if (finding := _check_measured(rule.name, nodes, suite, value.span)) is not None:
                    yield finding
                    break


def _check_measured(name: str, nodes: Sequence[Node], suite: Record, span: Span) -> Diagnostic | None:
    """Return why a suite's responses cannot be measured, or None."""
    cuts = [node.cut for node in nodes if isinstance(node, ForcedAnswer)]
    if cuts and _is_gridless(suite):
        return _report_gridless("E0609", f"`{name}` is over budgets", suite, span, "forced answers")
    grid, samples = sort_grid(suite), suite.data("samples")
    missing = [cut.value for cut in cuts if isinstance(cut, Constant) and cut.value not in grid]
    if missing and grid:
        message = f"`{name}` cuts at {missing[0]:g} tokens, and `{suite.name}` forces no answers there"
        closest = min(grid, key=lambda budget: abs(budget - missing[0]))
        return error("E0609", message, span, help=f"cut at one of its budgets, such as {closest} tokens")
    draws = [
        float(node.field.partition("@")[2])
        for node in nodes
        if isinstance(node, Attribute) and "@" in node.field
    ]
    draws += [
        node.args[1].value
        for node in nodes
        if isinstance(node, FunctionCall) and node.fn == "choose" and isinstance(node.args[1], Constant)
    ]
    if samples is not None and max(draws, default=0) > samples:
        message = (
            f"`{name}` draws {max(draws):g} responses of a question, and `{suite.name}` samples {samples}"
        )
        return error(
            "E0609", message, span, help=f"draw at most {samples}, or sample more: `samples = {max(draws):g}`"
        )
    return None


@study_check
def check_budget_charts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609: a chart over budgets of arms that are not evaluated at budgets."""
    for chart in case.study.charts:
        for arm in list_records(chart, "lines") if chart.data("x") == "budget" else ():
            suite = find_arm_suite(case.study, arm) if isinstance(arm, DeclaredArm) else None
            if suite is not None and _is_gridless(suite):
                subject, span = f"`{chart.name}` is over budgets", Settings(chart)["x"].span
                yield _report_gridless("E0609", subject, suite, span, "`budget`")
                break


@study_check
def check_rule_charts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609: lines of a chart that do not fit its axes, rules of budgets or arms, or errors without a score."""
    for chart in case.study.charts:
        view, lines = Settings(chart), list_items(chart, "lines")
        for line in lines:
            if isinstance(line.data, WrittenBudgets):
                # A line has the schedules of one budget, of two, and so on.
                most = len(line.data.schedule.budgets)
                case.ctx.charge(line.span, most * (most + 1) // 2)
        by_count = chart.data("x") == "count"
        if by_count != (chart.data("y") in ("budget", "error")):
            message = f"the chart `{chart.name}` has one axis of budgets' rules, and one of arms"
            yield view["x"].error("E0609", message, help="write `x = count` with `y = budget` or `y = error`")
            continue
        if wrong := next((line for line in lines if isinstance(line.data, WrittenBudgets) != by_count), None):
            axis = "counts budgets" if by_count else f"is over {chart.data('x')}"
            helps = (
                "give it budgets alone" if by_count else "give it arms and frontiers, or write `x = count`"
            )
            message = f"the chart `{chart.name}` {axis}, and {describe(wrong)} is a line of another kind"
            yield error("E0609", message, wrong.span, help=helps)
        elif nameless := next(
            (line for line in lines if by_count and not getattr(line.data, "name", "")), None
        ):
            message = f"a line of the chart `{chart.name}` has no name"
            helps = "declare it: `budgets ten = exp(from: 1K tokens, to: 32K tokens, n: 10)`"
            yield error("E0609", message, nameless.span, help=helps)
        elif chart.data("y") == "error" and "score" not in case:
            message = f"the chart `{chart.name}` shows errors on a frontier, and the study has no score"
            helps = "add `score = reg(against: …, to: 16K tokens)`"
            yield view["y"].error("E0609", message, "`error`", help=helps)
        elif chart.data("y") == "error":
            yield from _check_rules_reach(case.frontier, lines)


def _check_rules_reach(against: Record, rules: Sequence[Value]) -> Iterator[Diagnostic]:
    """Report E0609: budgets beyond the frontier on which their errors are measured."""
    envelope = against.envelope if isinstance(against, DeclaredFrontier) else None
    budgets = [0, envelope.data("to")] if envelope is not None else against.data("budgets")
    first, last = min(budgets), max(budgets)
    for value in rules:
        rule = value.data
        if isinstance(rule, WrittenBudgets) and (first > 0 or rule.schedule.l_max > last):
            yield error(
                "E0609",
                f"errors of `{rule.name}` are on 0 to {rule.schedule.l_max:,} tokens, and the frontier `{against.name}` "
                f"covers {first:,} to {last:,}",
                value.span,
                help=f"take budgets `to: {last} tokens`"
                if first == 0
                else "take a frontier that begins at 0 tokens",
            )


@study_check
def check_tables_and_rows(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0601, E0609, W0605: arms that are evaluated differently in a table, or in the frontier of the score."""
    study = case.study
    differing = list(_check_suites(case))
    yield from differing
    for table in study.tables:
        yield from check_table_of(table)
        rows = check_rows(case, table, list_rows(study, table))
        yield from (finding for finding in rows if not (differing and finding.severity == "error"))
    if not (study.tables or study.frontiers or study.sub("report")):
        yield from check_rows(case, None, study.arms)


@study_check
def check_seeds(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0216 for too many seeds, and E0208 for a seed that is listed twice."""
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
def check_unreported(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0604: an arm in no table, chart or frontier."""
    study, rows = case.study, [table.get("rows") for table in case.study.tables]
    if not (rows or study.charts) or any(row is None or isinstance(row.data, Symbol) for row in rows):
        return
    reported = {arm.name for table in study.tables for arm in list_records(table, "rows")}
    reported |= {line.name for chart in study.charts for line in list_records(chart, "lines")}
    reported |= {arm.name for frontier in study.frontiers for arm, _ in list_members(frontier)}
    for arm in study.arms:
        if arm.name not in reported:
            yield warning(
                "W0604",
                f"the arm `{arm.name}` is never reported",
                arm.span,
                "in no table, chart or frontier",
                help="add it to `rows` or `lines`, or take it out",
            )


def make_key(suite: Record) -> object:
    """Return a key that is equal for suites with the same settings, except settings that only the price reads."""
    fields = {name: slot for name, slot in suite.fields.items() if name != "expected_length"}
    return repr(strip_names(replace(suite, fields=fields)))


def describe_difference(a: Record, b: Record, *, skip: Sequence[str] = ()) -> str:
    """Return the settings in which two suites differ, in words; empty if they differ in `skip` alone."""
    names = [name for name in a.fields if repr(_strip_field(a, name)) != repr(_strip_field(b, name))]
    return ", ".join(f"`{name}`" for name in names if name not in (*skip, "expected_length"))


def _strip_field(record: Record, name: str) -> object:
    value = record.get(name)
    data = plain(value) if value is not None else None
    if isinstance(data, tuple):
        return tuple(strip_names(item) if isinstance(item, Record) else item for item in data)
    return strip_names(data) if isinstance(data, Record) else data


def suggest_suite(case: CheckedStudy, arms: Sequence[str], suite: Record) -> str:
    """Return the help for arms that should be evaluated on the suite of the rest."""
    if suite.owner is None:
        return f"declare that suite, `suite NAME = {suite.name} {{ … }}`, and write `eval = NAME` in each arm"
    file = case.ctx.modules.loaded.get((case.study.owner or ("", ""))[0])
    library, _, library_module = suite.owner[0].partition(":")
    is_imported = library != STD or file is None or suite.name in file.imports
    origin = "" if is_imported else f", from `{STD}.{library_module}`"
    names = listed([f"`{arm}`" for arm in arms], MOST_SHOWN)
    return f"give {names} the same suite: `eval = {suite.name}`{origin}"


def check_rows(case: CheckedStudy, table: Record | None, arms: Sequence[DeclaredArm]) -> Iterator[Diagnostic]:
    """Report W0605: arms of a table that are evaluated differently; E0601 if the table compares question by question.

    Wordings may differ, since some studies compare them. Without a table it is the table that every report
    has.
    """
    suites = [(arm, suite) for arm in arms if (suite := find_arm_suite(case.study, arm)) is not None]
    rows = list_items(table, "rows")
    spans = {row.data.name: row.span for row in rows if isinstance(row.data, Record)}
    for arm, suite in suites[1:]:
        first, target = suites[0]
        names = "" if suite is target else describe_difference(suite, target, skip=WORDING_SETTINGS)
        if not names:
            continue
        balanced = table is not None and table.data("subset") == "balanced"
        tables = "two" if table is not None else "different"
        yield (error if balanced else warning)(
            "E0601" if balanced else "W0605",
            f"the {f'table `{table.name}`' if table is not None else 'report'} compares arms that are evaluated differently",
            spans.get(arm.name, arm.span),
            f"on `{suite.name}`, which differs in {names}",
            labels=[Label(spans.get(first.name, first.span), f"on `{target.name}`")],
            help=f"{suggest_suite(case, [arm.name], target)}; or show them in {tables} tables",
        )
        return


def check_shared(study: DeclaredStudy, arms: Sequence[DeclaredArm]) -> Iterator[Diagnostic]:
    """Report W0520: a suite of the study on which no arm is evaluated, since each arm has a suite."""
    setting, shared = Settings(study)["eval"], study.sub("eval")
    if not setting.is_given or shared is None or not arms:
        return
    suites = [find_arm_suite(study, arm) for arm in arms]
    if any(suite is shared for suite in suites):
        return
    key = make_key(shared)
    if not any(suite is not None and make_key(suite) == key for suite in suites):
        yield setting.warning(
            "W0520",
            f"no arm is evaluated on `{shared.name}`: each has a suite of its own, which goes before the study's",
            "changes nothing",
            help=f"take it out, or give it to the arms: `arm {arms[0].name} = … {{ eval = {shared.name} }}`",
        )


def check_clusters(ctx: Context, study: DeclaredStudy) -> Iterator[Diagnostic]:
    """Report E0615: an experiment of the study needs a larger cluster than the study has.

    A study without a cluster runs on this machine, whatever its experiments run on by themselves.
    """
    study_cluster = study.sub("cluster")
    if study_cluster is None:
        return
    seen: dict[int, Record] = {}
    for arm in study.arms:
        for experiment in _list_trained(ctx, arm.experiment, seen):
            cluster = experiment.sub("cluster")
            why = _explain_misfit(cluster, study_cluster) if cluster is not None else ""
            if cluster is None or not why:
                continue
            yield Settings(experiment)["cluster"].error(
                "E0615",
                f"`{experiment.name}` runs on {_describe(cluster)}, "
                f"and the study `{study.name}`, which {why}, on {_describe(study_cluster)}",
                f"{_describe(cluster)}, set here",
                Settings(study)["cluster"].label(f"{_describe(study_cluster)}, set here"),
                help=f"give the study `cluster = {cluster.name}`, or the experiment `cluster = {study_cluster.name}`",
            )


@study_check
def check_unused_clusters(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0520: clusters of arms that nothing runs on, as the study names none or the arm is only evaluated."""
    study, cluster, seen = case.study, case.study.sub("cluster"), dict[int, Record]()
    if cluster is None:
        trained = (item for arm in study.arms for item in _list_trained(case.ctx, arm.experiment, seen))
        named = [item for item in trained if item.sub("cluster") is not None]
        if named:
            yield _report_local(study, named)
        return
    for arm in study.arms:
        ours = arm.experiment.sub("cluster")
        if ours is None or arm.experiment.is_trained or means_same(ours, cluster):
            continue
        yield Settings(arm.experiment)["cluster"].warning(
            "W0520",
            f"`{arm.name}` is only evaluated, and a study evaluates all of its arms on its own cluster, "
            f"{_describe(cluster)}",
            "has no effect",
            help="take it out, or set the study's `cluster`",
        )


def _report_local(study: Record, named: list[Record]) -> Diagnostic:
    """Report W0520: experiments name a cluster and their study does not."""
    first = named[0].fields["cluster"].value
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    places = [Settings(experiment)["cluster"].label("has no effect here") for experiment in named[:3]]
    return warning(
        "W0520",
        f"the study `{study.name}` names no cluster, so all of it runs on this machine, and `{named[0].name}`{more} too",
        study.span,
        "no `cluster`",
        labels=places,
        help=f"give the study `cluster = {write_value(first)}`",
    )


@case_check
def check_stage_settings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521: a stage sets what all stages of an experiment share."""
    for stage in case.stages:
        for name in sorted(EXPERIMENT_SETTINGS):
            setting, shared = stage[name], Settings(case.record)[name]
            if stage.origin is None or not setting.is_given or (shared.is_given and _agree(setting, shared)):
                continue
            yield setting.error(
                "E0521",
                f"all stages of `{case.name}` have one `{name}`, and stage {stage.origin.label} names its own",
                "has no effect",
                help=f"write `{name} = {write_value(setting.value)}` in `{case.name}`, "
                "or make the stage an experiment from which the rest starts",
            )


@study_check
def check_study_settings(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0521, W0520: an experiment's engine, limit or score, which its study decides.

    A recipe sets these for experiments that run by themselves.
    """
    for arm in case.study.arms:
        for name in ("engine", "limit", "score"):
            setting, decided = Settings(arm.experiment)[name], case[name]
            ours = setting.is_given and is_own(case.ctx, arm, setting.slot)
            if (
                not setting.is_given
                or (not ours and not _is_of_experiment(case.ctx, setting))
                or (decided.is_given and (not ours or plain(decided.value) == plain(setting.value)))
            ):
                continue
            yield (setting.error if ours else setting.warning)(
                "E0521" if ours else "W0520",
                f"the study `{case.study.name}` decides `{name}` for all of its arms",
                "has no effect in it",
                *decided.setting_labels("decided here"),
                help=f"write `{name} = {write_value(setting.value)}` in the study",
            )


def _is_of_experiment(ctx: Context, setting: SettingView) -> bool:
    owners = list_declarations(ctx, setting.span)
    return bool(owners) and owners[0].kind.name == "experiment" and not setting.file.startswith(LIBRARY_PATH)


@study_check
def check_experiment_seeds(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0521, W0520: the seed of an experiment which is no seed of the study."""
    seeds, replicated = case.study.data("replicate") or (), case["replicate"]
    named: dict[int, tuple[SettingView, bool]] = {}
    for arm in case.study.arms:
        for experiment in (arm.experiment, *_list_trained(case.ctx, arm.experiment, {})):
            setting = Settings(experiment)["seed"]
            if setting.is_given and setting.number not in seeds and not setting.file.startswith(LIBRARY_PATH):
                named[id(setting.slot)] = setting, is_own(case.ctx, arm, setting.slot)
    seed_list = ", ".join(map(str, sorted({setting.number for setting, _ in named.values()})))
    for setting, ours in named.values():
        refused = ours or not replicated.is_given
        yield (setting.error if refused else setting.warning)(
            "E0521" if refused else "W0520",
            f"`{case.study.name}` trains every arm with each seed of its `replicate`, and {setting.number} is none of these",
            "has no effect",
            *replicated.setting_labels("its seeds"),
            help=f"write `replicate = [{seed_list}]` in the study, and take `seed` out",
        )


@case_check
def check_seed_of_start(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0520: the seed of an experiment from which another starts, whose seed the run has."""
    run_seed = Settings(case.record)["seed"]
    for experiment in () if case.study or case.file_studies else _list_trained(case.ctx, case.record, {}):
        setting = Settings(experiment)["seed"]
        seed = 1 if run_seed.slot is None else run_seed.number
        if (
            experiment is not case.record
            and setting.is_given
            and setting.number != seed
            and not setting.file.startswith(LIBRARY_PATH)
        ):
            yield setting.warning(
                "W0520",
                f"`{case.name}` is run with one seed, {seed}, and `{experiment.name}` is trained with it too",
                "has no effect then",
                *run_seed.setting_labels("the seed of the run"),
                help=f"write `seed = {setting.number}` in `{case.name}`",
            )


def _agree(first: SettingView, second: SettingView) -> bool:
    return means_same(plain(first.value), plain(second.value))


def _explain_misfit(cluster: Record, study_cluster: Record) -> str:
    """Return why a cluster does not fit into another; empty if it does."""
    if cluster.data("gpu") != study_cluster.data("gpu"):
        return f"has no {cluster.data('gpu')}"
    if _count_gpus(cluster) > _count_gpus(study_cluster):
        return "has fewer GPUs"
    return "has smaller nodes" if cluster.data("gpus_per_node") > study_cluster.data("gpus_per_node") else ""


def _count_gpus(cluster: Record) -> int:
    return int(cluster.data("nodes") * cluster.data("gpus_per_node"))


def _describe(cluster: Record) -> str:
    return f"{cluster.data('nodes')} x {cluster.data('gpus_per_node')} {cluster.data('gpu')}"


def _list_trained(ctx: Context, record: Record | None, seen: dict[int, Record]) -> Iterator[Record]:
    """Yield the experiments behind a checkpoint: its starting points, and experiments that sample its data."""
    source, _ = find_source(record)
    if not isinstance(source, DeclaredExperiment) or id(source) in seen:
        return
    seen[id(source)] = source
    if not source.is_trained:
        yield from _list_trained(ctx, source.sub("base"), seen)
        return
    yield source
    for _, stage in complete_stages(ctx, source):
        yield from _list_trained(ctx, stage.sub("base"), seen)
        yield from _list_trained(ctx, stage.sub("data.pool.of"), seen)


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts of an arm's reinforcement learning, summed over its stages."""

    steps: int
    """Training steps."""
    summed_rate: float
    """The sum of the learning rate over steps."""
    questions: int
    """Questions, counted anew in each step."""
    responses: int
    """Rollouts."""

    def shares(self, of: Amounts) -> dict[str, tuple[float, float]]:
        """Return the amounts that differ from `of` by more than `AMOUNT_TOLERANCE`.

        Args:
            of: The amounts of another arm.

        Returns:
            By the name of what is counted: this arm's amount and the other's.
        """
        pairs = {
            "steps": (self.steps, of.steps),
            "summed learning rate": (self.summed_rate, of.summed_rate),
            "questions": (self.questions, of.questions),
            "responses": (self.responses, of.responses),
        }
        return {
            name: (amount, other_amount)
            for name, (amount, other_amount) in pairs.items()
            if abs(amount - other_amount) > AMOUNT_TOLERANCE * max(amount, other_amount)
        }


@study_check
def check_trained_amounts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0608: arms that begin at the same checkpoint and learn from rewards for unequal amounts.

    A stage that ends at a plateau is not known before the run; SFT, preferences and other starts are not
    compared.
    """
    study = case.study
    if study.data("unequal") is not None:
        return
    groups: dict[object, list[tuple[DeclaredArm, Amounts]]] = {}
    for arm in study.arms:
        trained = _count_amounts(case.ctx, arm)
        if trained is not None:
            groups.setdefault(trained[0], []).append((arm, trained[1]))
    baseline = case["score.relative_to"]
    compared = baseline.slot.value.data if baseline.slot is not None else None
    for members in groups.values():
        usual = Counter(amounts for _, amounts in members).most_common(1)[0][0]
        first, target = next(
            (item for item in members if isinstance(compared, Record) and item[0].name == compared.name),
            next(item for item in members if item[1] == usual),
        )
        unequal = [(arm, shares) for arm, amounts in members if (shares := amounts.shares(target))]
        if unequal:
            arm, shares = unequal[0]
            names = [f"`{item.name}`" for item, _ in unequal[1:]]
            yield warning(
                "W0608",
                f"`{arm.name}` and `{first.name}` are compared, and train for unequal amounts",
                arm.span,
                "; ".join(
                    f"{name}: {value:.4g} against {other:.4g}" for name, (value, other) in shares.items()
                ),
                labels=[Label(first.span, "what it is compared with")],
                notes=[f"so are {listed(names, MOST_SHOWN)}"] if names else [],
                help='train both for as long, or say in the study why they differ: `unequal = "…"`',
            )


def _count_amounts(ctx: Context, arm: DeclaredArm) -> tuple[object, Amounts] | None:
    """Return where an arm's training begins and its amounts; None if it is not RL alone, or not known."""
    checkpoint = find_trained(arm)
    if checkpoint is None:
        return None
    experiment, last = checkpoint
    stages = [stage for _, stage in complete_stages(ctx, experiment)][: None if last is None else last + 1]
    rows = [amounts for stage in stages if (amounts := _count_stage(stage)) is not None]
    if not stages or len(rows) < len(stages):
        return None
    start, stage_index = find_source(experiment.sub("base"))
    if start is None:
        return None
    steps, rates, questions, responses = (sum(column) for column in zip(*rows, strict=True))
    origin = (start.owner, start.name, stage_index)
    return origin, Amounts(int(steps), float(rates), int(questions), int(responses))


def _count_stage(stage: Record) -> tuple[int, float, int, int] | None:
    """Return a stage's steps, summed learning rate, questions and responses; None if the spec does not fix them."""
    optim, batch = stage.sub("optim"), stage.sub("batch")
    steps = stage.data("steps")
    if stage.data("method") != "ppo" or stage.only_valid() is not stage or stage.sub("until") is not None:
        return None
    if optim is None or batch is None or not isinstance(steps, int):
        return None
    warmup = optim.get("warmup")
    amount = warmup.data if warmup is not None and isinstance(warmup.data, Quantity) else None
    rising = 0.0 if amount is None else float(amount.number)
    if amount is not None and amount.unit == PLAIN:
        rising = warmup_steps(rising, steps)
    decay_from = optim.data("decay_from") if optim.data("decay") == "linear" else None
    questions = steps * batch.data("prompts")
    return (
        steps,
        optim.data("lr") * sum_rate_factors(steps, rising, decay_from),
        questions,
        questions * batch.data("rollouts"),
    )


def check_runnable(ctx: Context, record: Record) -> tuple[Diagnostic, ...]:
    """Return errors for a study or an experiment without a suite, and for clusters larger than the study's."""
    if not isinstance(record, DeclaredStudy):
        return () if find_suite(record) is not None else (_report_no_suite(record, ()),)
    arms = [arm for arm in record.arms if find_arm_suite(record, arm) is None]
    bare = (_report_no_suite(record, arms),) if arms else ()
    return (*bare, *check_clusters(ctx, record))


def _report_no_suite(record: Record, arms: Sequence[Record]) -> Diagnostic:
    meaning = "how its arms are evaluated" if arms else "how the checkpoint is evaluated"
    return error(
        "E0304",
        f"`{record.name}` needs `eval`, a suite: {meaning}",
        record.span,
        "no `eval`",
        labels=[Label(arm.span, "no suite of its own") for arm in arms],
        help=f"add `eval = math_reg`{' to the study' if arms else ''}, a suite of your own or one from `std.suites`",
    )
