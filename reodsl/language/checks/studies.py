"""Check studies: comparable arms, the budgets of frontiers and scores, tables, charts, seeds and clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, group, listed, warning
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
"""The settings that all stages of an experiment share."""
AMOUNT_TOLERANCE = 0.05
"""The relative difference up to which two amounts count as equal."""


def list_members(frontier: DeclaredFrontier) -> list[tuple[DeclaredArm, Span]]:
    """Return the arms that a frontier is over, each with the span of its name in the frontier."""
    named = list_items(frontier.envelope, "of")
    return [(item.data, item.span) for item in named if isinstance(item.data, DeclaredArm)]


@study_check
def check_frontiers(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Check each frontier over the study's arms.

    Report E0607 if a frontier ends after the grid of its arms. Report W0602 for an arm in the frontier of the
    study's score, if the reward of the arm resembles this score.
    """
    for frontier in case.study.frontiers:
        if frontier.envelope is not None:
            yield from _check_end(case.study, frontier, frontier.envelope)
            yield from _check_self_scored(case, frontier)


def _check_suites(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0601 if the arms of a frontier, or arms scored against it, are evaluated on different suites.

    All arms of a frontier are compared with one target suite. This is the frontier's `on`, or else the suite from
    which the fewest unreported arms differ; a tie goes to the suite of most arms. `misfits_of` has, for each candidate
    suite, the labels of the arms that differ from it. Arms that are scored against the frontier, but are not in it (not
    in `member_names`), may differ in their wordings. Each arm is reported once, however many frontiers name it.
    """
    reported: set[str] = set()
    arm_suites = [(arm, find_arm_suite(case.study, arm)) for arm in case.study.arms]
    suites = {arm.name: (suite, make_key(suite)) for arm, suite in arm_suites if suite is not None}
    common = Counter(key for _, key in suites.values())
    for frontier in case.study.frontiers:
        members, on_suite = list_members(frontier), (frontier.envelope or frontier).sub("on")
        member_names = {arm.name for arm, _ in members}
        is_score = "score.against" in case and case.frontier.name == frontier.name
        others = [(arm, arm.span) for arm in case.study.arms if is_score and arm.name not in member_names]
        pairs = [*members, *others]
        rows = [(arm.name, span, *suites[arm.name]) for arm, span in pairs if arm.name in suites]
        targets = {key: suite for name, _, suite, key in rows if name in member_names}
        targets = targets if on_suite is None else {make_key(on_suite): on_suite}
        misfits_of = {
            target_key: {
                name: Label(span, f"on `{suite.name}`, which differs in {settings}")
                for name, span, suite, key in rows
                for skip in [() if name in member_names else WORDING_SETTINGS]
                if key != target_key
                and (
                    settings := describe_difference(suite, target, skip=skip)
                    or ("" if skip else "its benchmarks")
                )
            }
            for target_key, target in targets.items()
        }
        ranks = {key: (len(labels.keys() - reported), -common[key]) for key, labels in misfits_of.items()}
        best = min(ranks, key=lambda key: ranks[key], default="")
        misfits = misfits_of.get(best, {})
        if misfits.keys() <= reported:
            continue
        reported |= misfits.keys()
        target = targets[best]
        first, (lead, *labels) = next(iter(misfits)), misfits.values()
        span = next((span for name, span, *_ in rows if name not in misfits), target.span)
        text = f"on `{target.name}`" if on_suite is None else f"`on: {on_suite.name}`"
        labels = [Label(span if on_suite is None else on_suite.span, text), *labels[:MOST_SHOWN]]
        message = (
            f"the frontier `{frontier.name}` is over arms that are evaluated differently"
            if first in member_names
            else f"`{first}` is scored against a frontier of arms that are evaluated differently"
        )
        hint = suggest_suite(case, list(misfits), target)
        yield error("E0601", message, lead.span, lead.text, labels=labels, help=hint)


def _check_end(study: DeclaredStudy, frontier: DeclaredFrontier, envelope: Record) -> Iterator[Diagnostic]:
    """Report E0607 if a frontier ends after the last budget of its first arm's grid, or this arm has no grid.

    Args:
        study: The study, whose suite an arm may use.
        frontier: The frontier over the study's arms.
        envelope: The settings of the frontier; `to` is its last budget.
    """
    end = envelope.data("to")
    for suite in [find_arm_suite(study, arm) for arm, _ in list_members(frontier)[:1]]:
        last = _find_grid_end(suite) if suite is not None else None
        if suite is not None and _is_gridless(suite):
            subject = f"the frontier `{frontier.name}` is over budgets"
            yield _report_gridless("E0607", subject, suite, frontier.span, f"to {end} tokens")
        elif suite is not None and last is not None and end > last:
            yield SettingView("to", envelope.fields.get("to"), frontier.span).error(
                "E0607",
                "the frontier goes on past the evaluation's grid",
                f"{end} tokens",
                Settings(suite)["grid"].label(f"up to {last} tokens"),
                help=f"write `to: {last} tokens`, or extend the grid",
            )


def _check_self_scored(case: CheckedStudy, frontier: DeclaredFrontier) -> Iterator[Diagnostic]:
    """Report W0602 for each arm in the frontier of the study's score whose reward resembles REG.

    Such a reward grades forced answers at token budgets, with a weight for each budget, as REG does. The arm then
    raises the frontier that it is compared with, and its own gap looks smaller. Rewards whose responses are
    divided at steps or exits of the thinking (`steps_split`, `exits_split`) do not count.
    """
    if "score.against" not in case or case.frontier.name != frontier.name:
        return
    rewards = [(arm.name, stage.reward) for arm in case.cases for stage in arm.stages]
    rewarded_by_reg = {
        name
        for name, reward in rewards
        if reward is not None
        and {"forced", "weight"} <= reward.uses
        and reward.split is not None
        and reward.split.kind not in ("steps_split", "exits_split")
    }
    for arm, span in list_members(frontier):
        if arm.name in rewarded_by_reg:
            yield warning(
                "W0602",
                f"`{arm.name}` is inside the frontier that scores it",
                span,
                "rewarded at budgets, as REG measures",
                notes=["the paper's frontiers are over existing methods, never REO-RL"],
                help="take it out of `of:`, so that its gap to the frontier can be seen",
            )


@study_check
def check_study_vocabularies(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0606 for arms with different vocabularies, of a frontier or of the whole study.

    The arms of each frontier are compared. If no frontier has a finding, all arms of the study are compared if it
    has a score or a chart, or if it has tables of which none shows published numbers. A paper with published numbers
    compared these arms already.
    """
    study, is_reported = case.study, False
    for frontier in study.frontiers:
        subject = f"the frontier `{frontier.name}`"
        for finding in check_vocabularies(subject, list_items(frontier.envelope, "of"), None, frontier.span):
            is_reported = True
            yield finding
    is_published = any(table.sub("published") is not None for table in study.tables)
    if not is_reported and (study.sub("score") or study.charts or (study.tables and not is_published)):
        arms = [Value(arm, arm.span) for arm in study.arms]
        yield from check_vocabularies(f"`{study.name}`", arms, None, study.span)


@study_check
def check_study_score(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Check a study's score, and report W0520 if no arm uses the suite of the study."""
    suites = [
        (arm.name, suite) for arm in case.study.arms if (suite := find_arm_suite(case.study, arm)) is not None
    ]
    yield from check_score(case.study, suites)
    yield from check_shared_suite(case.study, case.study.arms)


def check_score(owner: Record, suites: Sequence[tuple[str, Record]]) -> Iterator[Diagnostic]:
    """Report E0607 if a score integrates REG past its frontier or past the grid of an arm's suite.

    E0607 is also reported for a suite without a grid. A frontier that does not fit the arms is reported as E0616
    or W0616. Each item of `limits` is a tuple of the last budget in tokens, the start of a message, a label, and
    the noun of what must be extended, "frontier" or "grid".

    Args:
        owner: The study, or the experiment, that has the score.
        suites: For each arm, its name and the suite that evaluates it.
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
        last = _find_grid_end(suite)
        if _is_gridless(suite):
            subject, span = f"REG of `{name}` is over budgets", Settings(owner)["score"].span
            yield _report_gridless("E0607", subject, suite, span, f"to {to.number} tokens")
            return
        if last is not None:
            label = Settings(suite)["grid"].label(f"the grid of `{suite.name}`")
            limits.append((last, f"`{name}` is evaluated up to", label, "grid"))
    lowest, reason, label, _ = min(limits, key=lambda limit: limit[0])
    if to.number > lowest:
        nouns = " and the ".join(dict.fromkeys(limit[-1] for limit in limits if limit[0] < to.number))
        message = f"REG integrates to {to.number} tokens, and {reason} {lowest}"
        hint = f"write `to: {lowest} tokens`, or extend the {nouns}"
        yield finding_at(error, "E0607", message, [to.label(f"{to.number} tokens"), label], help=hint)


def _find_grid_end(suite: Record) -> int | None:
    """Return the last budget of a suite's grid, in tokens.

    The result is None for a suite without a grid, and for a grid that ends before `reg_to`, which has its own
    finding.
    """
    grid = sort_grid(suite)
    return grid[-1] if grid and grid[-1] >= (suite.data("reg_to") or 0) else None


def _is_gridless(suite: Record) -> bool:
    """Return whether a suite has no grid, so that it grades complete responses only."""
    return suite.get("grid") is None and "grid" not in suite.invalid


def _report_gridless(code: str, subject: str, suite: Record, span: Span, text: str) -> Diagnostic:
    """Return the error for something over budgets, such as REG, on a suite that has no grid.

    Args:
        code: The code of the diagnostic.
        subject: The start of the message, such as "the chart `lengths` is over budgets".
        suite: The suite without a grid.
        span: The span of what needs budgets.
        text: The text at this span.
    """
    return error(
        code,
        f"{subject}, and `{suite.name}` evaluates only complete responses",
        span,
        text,
        labels=[Label(suite.span, "no `grid`")],
        help="give the suite a grid: `grid = [0 tokens] + every(1K tokens, to: 16K tokens)`, and a `forcing`",
    )


@study_check
def check_columns(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609 for each table or chart with REG in a study that has no score."""
    displays = (*case.study.tables, *case.study.charts)
    for display, name in [(display, name) for display in displays for name in ("columns", "y")]:
        columns = display.data(name)
        if "score" not in case and (columns == "reg" or (isinstance(columns, tuple) and "reg" in columns)):
            message = f"`{display.name}` shows REG, and the study has no score"
            hint = "add `score = reg(against: …, to: 16K tokens)`, or leave `reg` out"
            yield Settings(display)[name].error("E0609", message, "`reg`", help=hint)


_COLUMNS = ("arm", "benchmark", "seeds", "accuracy", "length", "reg", "reg_plain", "difference")
"""The columns of report tables, whose names no measure may have."""


@study_check
def check_measures(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609 for each use of a measure, in a table or chart, that the study cannot compute.

    The reasons are a name of a built-in column, the balanced subset, a missing baseline, or responses that a
    suite does not sample or cut.
    """
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
                message = f"`{rule.name}` is the name of a built-in column"
                yield error("E0609", message, value.span, help=f"call the measure `my_{rule.name}`")
            if display.data("subset") == "balanced":
                hint = "show accuracy and length of the balanced subset, and measures in another table"
                yield error("E0609", "a measure needs all questions", value.span, help=hint)
            nodes = [*typed.nodes]
            if any(isinstance(node, StepStatistic) and node.over == "base" for node in nodes) and (
                case.study.data("score.relative_to") is None
            ):
                message = f"`{rule.name}` compares with a baseline, and the study names no baseline"
                hint = "name it in the score: `score = reg(against: …, to: 16K tokens, relative_to: base)`"
                yield error("E0609", message, value.span, "no `base`", help=hint)
            for suite in suites:
                if (finding := _check_measured(rule.name, nodes, suite, value.span)) is not None:
                    yield finding
                    break


def _check_measured(name: str, nodes: Sequence[Node], suite: Record, span: Span) -> Diagnostic | None:
    """Return the E0609 for a measure that a suite's responses do not allow, or None.

    A measure may need forced answers at budgets of the grid, and a number of responses per question: an attribute
    `NAME@8` votes among 8 responses, and `choose(n, 8)` counts sets of 8 responses.

    Args:
        name: The name of the measure.
        nodes: The nodes of the measure's formula.
        suite: The suite that evaluates an arm.
        span: The span that names the measure in a table or chart.
    """
    cuts = [node.cut for node in nodes if isinstance(node, ForcedAnswer)]
    over_grid = any(isinstance(node, StepStatistic) and node.fn == "reach" for node in nodes)
    if (cuts or over_grid) and _is_gridless(suite):
        return _report_gridless("E0609", f"`{name}` is over budgets", suite, span, "forced answers")
    grid, samples = sort_grid(suite), suite.data("samples")
    missing = [cut.value for cut in cuts if isinstance(cut, Constant) and cut.value not in grid]
    if missing and grid:
        message = f"`{name}` cuts at {missing[0]:g} tokens, and the grid of `{suite.name}` has no such budget"
        closest = min(grid, key=lambda budget: abs(budget - missing[0]))
        return error("E0609", message, span, help=f"cut at a budget of the grid, such as {closest} tokens")
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
            f"`{name}` needs {max(draws):g} responses to a question, and `{suite.name}` samples {samples}"
        )
        return error(
            "E0609", message, span, help=f"use at most {samples}, or sample more: `samples = {max(draws):g}`"
        )
    return None


@study_check
def check_budget_charts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609 for each chart over budgets with an arm whose suite has no grid."""
    for chart in case.study.charts:
        for arm in list_records(chart, "lines") if chart.data("x") == "budget" else ():
            suite = find_arm_suite(case.study, arm) if isinstance(arm, DeclaredArm) else None
            if suite is not None and _is_gridless(suite):
                subject, span = f"`{chart.name}` is over budgets", Settings(chart)["x"].span
                yield _report_gridless("E0609", subject, suite, span, "`budget`")
                break


@study_check
def check_rule_charts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0609 for each chart whose lines do not fit its axes.

    A chart with `x = count` shows budget schedules such as `exp(…)` as lines. Its `y` is `budget` or `error`, the
    error of REG if it is integrated at these budgets only. The lines of all other charts are arms and frontiers.
    A schedule needs a name, and `y = error` needs the study's score.
    """
    for chart in case.study.charts:
        view, lines = Settings(chart), list_items(chart, "lines")
        for line in lines:
            if isinstance(line.data, WrittenBudgets):
                # The chart draws the schedules of 1, 2, … budgets up to this length.
                length = len(line.data.schedule.budgets)
                case.ctx.charge(line.span, length * (length + 1) // 2)
        by_count = chart.data("x") == "count"
        if by_count != (chart.data("y") in ("budget", "error")):
            message = f"the chart `{chart.name}` has an axis of budget schedules and an axis of arms"
            yield view["x"].error("E0609", message, help="write `x = count` with `y = budget` or `y = error`")
            continue
        if wrong := next((line for line in lines if isinstance(line.data, WrittenBudgets) != by_count), None):
            axis = "counts budgets" if by_count else f"is over {chart.data('x')}"
            hint = (
                "list budget schedules only" if by_count else "list arms and frontiers, or write `x = count`"
            )
            message = f"the chart `{chart.name}` {axis}, and {describe(wrong)} is a line of another kind"
            yield error("E0609", message, wrong.span, help=hint)
        elif nameless := next(
            (line for line in lines if by_count and not getattr(line.data, "name", "")), None
        ):
            message = f"a line of the chart `{chart.name}` has no name"
            hint = "declare it: `budgets ten = exp(from: 1K tokens, to: 32K tokens, n: 10)`"
            yield error("E0609", message, nameless.span, help=hint)
        elif chart.data("y") == "error" and "score" not in case:
            message = f"the chart `{chart.name}` shows errors on a frontier, and the study has no score"
            hint = "add `score = reg(against: …, to: 16K tokens)`"
            yield view["y"].error("E0609", message, "`error`", help=hint)
        elif chart.data("y") == "error":
            yield from _check_schedule_ranges(case.frontier, lines)


def _check_schedule_ranges(against: Record, rules: Sequence[Value]) -> Iterator[Diagnostic]:
    """Report E0609 for each budget schedule that goes beyond the frontier on which its error is measured.

    Args:
        against: The frontier of the study's score.
        rules: The lines of the chart; only budget schedules are checked.
    """
    envelope = against.envelope if isinstance(against, DeclaredFrontier) else None
    budgets = [0, envelope.data("to")] if envelope is not None else against.data("budgets")
    first, last = min(budgets), max(budgets)
    for value in rules:
        rule = value.data
        if isinstance(rule, WrittenBudgets) and (first > 0 or rule.schedule.l_max > last):
            yield error(
                "E0609",
                f"the error of `{rule.name}` is from 0 to {rule.schedule.l_max:,} tokens, and the frontier "
                f"`{against.name}` is from {first:,} to {last:,}",
                value.span,
                help=f"use budgets `to: {last} tokens`"
                if first == 0
                else "use a frontier that begins at 0 tokens",
            )


@study_check
def check_tables_and_rows(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Check that a study compares arms which are evaluated equally, in its frontiers and in each table.

    Report E0601 or W0605 for different suites, and E0609 for REG on a subset of the questions. If a frontier has an
    E0601, the errors of tables are left out. A study without tables, frontiers and report is checked as if it had one
    table of all arms.
    """
    study, suite_findings = case.study, list(_check_suites(case))
    yield from suite_findings
    for table in study.tables:
        yield from check_table_of(table)
        findings = check_rows(case, table, list_rows(study, table))
        yield from (finding for finding in findings if not (suite_findings and finding.severity == "error"))
    if not (study.tables or study.frontiers or study.sub("report")):
        yield from check_rows(case, None, study.arms)


@study_check
def check_seeds(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0216 if a study has more than `MOST_SEEDS` seeds, and E0208 for the first seed that is listed twice."""
    seeds = case.study.data("replicate") or ()
    if len(seeds) > MOST_SEEDS:
        yield case["replicate"].error(
            "E0216",
            f"a study has at most {MOST_SEEDS} seeds, and these are {len(seeds):,}",
            "too large",
            help="list fewer seeds: published studies have about five",
        )
        return
    counts = Counter(seeds)
    repeated = next((seed for seed in seeds if counts[seed] > 1), None)
    if repeated is not None:
        hint = "list each seed once: equal seeds give equal runs"
        yield case["replicate"].error("E0208", f"the seed {repeated} is listed twice", help=hint)


@study_check
def check_unreported(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0604 for each arm that no table, chart or frontier names.

    Nothing is reported if a table has no `rows`, since it shows all arms. The same holds for `rows` that are a
    word instead of a list, and for a study without tables and charts, whose report shows all arms.
    """
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
    """Return the names of the settings in which two suites differ, as text for a message.

    Settings in `skip`, and settings that only the price reads, are not compared. The text is empty if the
    other settings are equal.

    Args:
        a: The first suite.
        b: The second suite.
        skip: The names of the settings that may differ.
    """
    names = [name for name in a.fields if repr(_strip_field(a, name)) != repr(_strip_field(b, name))]
    return ", ".join(f"`{name}`" for name in names if name not in (*skip, "expected_length"))


def _strip_field(record: Record, name: str) -> object:
    """Return the value of a setting without names and spans, to compare two records' settings."""
    value = record.get(name)
    data = plain(value) if value is not None else None
    if isinstance(data, tuple):
        return tuple(strip_names(item) if isinstance(item, Record) else item for item in data)
    return strip_names(data) if isinstance(data, Record) else data


def suggest_suite(case: CheckedStudy, arms: Sequence[str], suite: Record) -> str:
    """Return the help that says how to evaluate arms on a suite.

    A suite whose `owner` is None has no declaration of its own. The help is then to declare it.

    Args:
        case: The study.
        arms: The names of the arms that have another suite.
        suite: The suite of the other arms.
    """
    if suite.owner is None:
        return f"declare that suite, `suite NAME = {suite.name} {{ … }}`, and write `eval = NAME` in each arm"
    file = case.ctx.modules.loaded.get((case.study.owner or ("", ""))[0])
    library, _, library_module = suite.owner[0].partition(":")
    is_imported = library != STD or file is None or suite.name in file.imports
    origin = "" if is_imported else f", from `{STD}.{library_module}`"
    names = listed([f"`{arm}`" for arm in arms], MOST_SHOWN)
    return f"give {names} the same suite: `eval = {suite.name}`{origin}"


def check_rows(case: CheckedStudy, table: Record | None, arms: Sequence[DeclaredArm]) -> Iterator[Diagnostic]:
    """Report W0605 if a table shows arms that are evaluated on different suites.

    All arms are compared with the first arm of the table, and the first different arm is reported. On the balanced
    subset, which matches arms question by question, this is the error E0601. Wordings may differ, since some studies
    compare wordings.

    Args:
        case: The study.
        table: The table; None for the table that a report has by default.
        arms: The arms that the table shows.
    """
    suites = [(arm, suite) for arm in arms if (suite := find_arm_suite(case.study, arm)) is not None]
    rows = list_items(table, "rows")
    spans = {row.data.name: row.span for row in rows if isinstance(row.data, Record)}
    for arm, suite in suites[1:]:
        first, target = suites[0]
        names = "" if suite is target else describe_difference(suite, target, skip=WORDING_SETTINGS)
        if not names:
            continue
        is_balanced = table is not None and table.data("subset") == "balanced"
        tables = "two" if table is not None else "different"
        yield (error if is_balanced else warning)(
            "E0601" if is_balanced else "W0605",
            f"the {f'table `{table.name}`' if table is not None else 'report'} compares arms that are evaluated differently",
            spans.get(arm.name, arm.span),
            f"on `{suite.name}`, which differs in {names}",
            labels=[Label(spans.get(first.name, first.span), f"on `{target.name}`")],
            help=f"{suggest_suite(case, [arm.name], target)}; or show the arms in {tables} tables",
        )
        return


def check_shared_suite(study: DeclaredStudy, arms: Sequence[DeclaredArm]) -> Iterator[Diagnostic]:
    """Report W0520 if no arm is evaluated on the suite of the study, since all arms have their own suites.

    An arm whose own suite has the same settings as the study's counts as evaluated on the suite of the study.
    """
    setting, study_suite = Settings(study)["eval"], study.sub("eval")
    if not setting.is_given or study_suite is None or not arms:
        return
    suites = [find_arm_suite(study, arm) for arm in arms]
    if any(suite is study_suite for suite in suites):
        return
    key = make_key(study_suite)
    if not any(suite is not None and make_key(suite) == key for suite in suites):
        yield setting.warning(
            "W0520",
            f"no arm is evaluated on `{study_suite.name}`: each arm has its own suite, which replaces the study's",
            "changes nothing",
            help=f"take `eval` out, or move it to an arm: `arm {arms[0].name} = … {{ eval = {study_suite.name} }}`",
        )


def check_clusters(ctx: Context, study: DeclaredStudy) -> Iterator[Diagnostic]:
    """Report E0615 for each experiment of a study whose `cluster` does not fit into the study's cluster.

    The experiments are all trainings that the arms need. A study without a cluster is not checked: it runs on this
    machine, with all its experiments.
    """
    study_cluster = study.sub("cluster")
    if study_cluster is None:
        return
    seen: dict[int, Record] = {}
    for arm in study.arms:
        for experiment in _list_trained(ctx, arm.experiment, seen):
            cluster = experiment.sub("cluster")
            reason = _explain_misfit(cluster, study_cluster) if cluster is not None else ""
            if cluster is None or not reason:
                continue
            yield Settings(experiment)["cluster"].error(
                "E0615",
                f"`{experiment.name}` runs on {_describe_cluster(cluster)}, "
                f"and the study `{study.name}`, which {reason}, on {_describe_cluster(study_cluster)}",
                f"{_describe_cluster(cluster)}, set here",
                Settings(study)["cluster"].label(f"{_describe_cluster(study_cluster)}, set here"),
                help=f"give the study `cluster = {cluster.name}`, or the experiment `cluster = {study_cluster.name}`",
            )


@study_check
def check_unused_clusters(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0520 for clusters of arms and experiments that have no effect in the study.

    A study without a cluster runs on this machine, so the clusters of all its experiments have no effect; this is
    one warning. A study with a cluster evaluates its arms there, so the cluster of an arm that is not trained has
    no effect; this is a warning for each such arm.
    """
    study, cluster, seen = case.study, case.study.sub("cluster"), dict[int, Record]()
    if cluster is None:
        trained = (item for arm in study.arms for item in _list_trained(case.ctx, arm.experiment, seen))
        with_cluster = [item for item in trained if item.sub("cluster") is not None]
        if with_cluster:
            yield _report_local(study, with_cluster)
        return
    for arm in study.arms:
        arm_cluster = arm.experiment.sub("cluster")
        if arm_cluster is None or arm.experiment.is_trained or means_same(arm_cluster, cluster):
            continue
        yield Settings(arm.experiment)["cluster"].warning(
            "W0520",
            f"`{arm.name}` is only evaluated, and a study evaluates all arms on the cluster of the study, "
            f"{_describe_cluster(cluster)}",
            "has no effect",
            help="take it out, or set the study's `cluster`",
        )


def _report_local(study: Record, experiments: list[Record]) -> Diagnostic:
    """Return warning W0520 about a study that names no cluster although `experiments` name clusters."""
    first = experiments[0].fields["cluster"].value
    more = f" and {len(experiments) - 1} more" if len(experiments) > 1 else ""
    labels = [Settings(experiment)["cluster"].label("has no effect here") for experiment in experiments[:3]]
    return warning(
        "W0520",
        f"the study `{study.name}` names no cluster, so it runs on this machine, as does `{experiments[0].name}`{more}",
        study.span,
        "no `cluster`",
        labels=labels,
        help=f"give the study `cluster = {write_value(first)}`",
    )


@case_check
def check_stage_settings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521 for a stage that sets another value of a setting which all stages of its experiment share.

    `EXPERIMENT_SETTINGS` are these settings. A stage may repeat the value of the experiment. An experiment without
    stage blocks, whose only stage has no `origin`, is not checked.
    """
    for stage in case.stages:
        for name in sorted(EXPERIMENT_SETTINGS):
            setting, shared = stage[name], Settings(case.record)[name]
            if (
                stage.origin is None
                or not setting.is_given
                or (shared.is_given and means_same(plain(setting.value), plain(shared.value)))
            ):
                continue
            yield setting.error(
                "E0521",
                f"all stages of `{case.name}` share one `{name}`, and stage {stage.origin.label} sets another",
                "has no effect",
                help=f"write `{name} = {write_value(setting.value)}` in `{case.name}`, "
                "or make the stage an experiment from which the other stages start",
            )


@study_check
def check_study_settings(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report the `engine`, `limit` or `score` of an arm or its experiment, which only the study may set.

    A setting of an arm is E0521, if the study has no setting of this name or another value of it. A setting of an
    experiment is W0520, if the study has no setting of this name. A setting of a recipe is not reported, since it may
    be meant for experiments that run without a study.
    """
    for arm in case.study.arms:
        for name in ("engine", "limit", "score"):
            setting, shared = Settings(arm.experiment)[name], case[name]
            is_arms = setting.is_given and is_own(case.ctx, arm, setting.slot)
            if (
                not setting.is_given
                or (not is_arms and not _is_of_experiment(case.ctx, setting))
                or (shared.is_given and (not is_arms or plain(shared.value) == plain(setting.value)))
            ):
                continue
            yield (setting.error if is_arms else setting.warning)(
                "E0521" if is_arms else "W0520",
                f"the study `{case.study.name}` sets `{name}` for all its arms",
                "has no effect in the study",
                *shared.setting_labels("set here"),
                help=f"write `{name} = {write_value(setting.value)}` in the study",
            )


def _is_of_experiment(ctx: Context, setting: SettingView) -> bool:
    """Return whether an experiment of the user, rather than a recipe or the library, has a setting."""
    owners = list_declarations(ctx, setting.span)
    return bool(owners) and owners[0].kind.name == "experiment" and not setting.file.startswith(LIBRARY_PATH)


@study_check
def check_experiment_seeds(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report the `seed` of an experiment that is not among the seeds of its study (`replicate`).

    The study's seeds replace the experiment's `seed`. This is E0521 if the arm itself sets the seed or if the study
    has no `replicate`, and W0520 otherwise. Each setting is reported once, and settings of the library are not.
    """
    seeds, replicate = case.study.data("replicate") or (), case["replicate"]
    found: dict[int, tuple[SettingView, bool]] = {}
    for arm in case.study.arms:
        for experiment in (arm.experiment, *_list_trained(case.ctx, arm.experiment, {})):
            setting = Settings(experiment)["seed"]
            if setting.is_given and setting.number not in seeds and not setting.file.startswith(LIBRARY_PATH):
                found[id(setting.slot)] = setting, is_own(case.ctx, arm, setting.slot)
    seed_list = ", ".join(map(str, sorted({setting.number for setting, _ in found.values()})))
    for setting, is_arms in found.values():
        is_error = is_arms or not replicate.is_given
        yield (setting.error if is_error else setting.warning)(
            "E0521" if is_error else "W0520",
            f"`{case.study.name}` trains every arm with the seeds in its `replicate`, which {setting.number} is not in",
            "has no effect",
            *replicate.setting_labels("the seeds"),
            help=f"write `replicate = [{seed_list}]` in the study, and take `seed` out",
        )


@case_check
def check_seed_of_start(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0520 if an experiment starts from another experiment that sets another `seed`.

    A run without a study trains both with one seed: that of the experiment that is run, 1 by default. A file with
    studies is not checked, since its studies set the seeds.
    """
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
                f"`{case.name}` runs with the seed {seed}, with which `{experiment.name}` is then trained too",
                "has no effect then",
                *run_seed.setting_labels("the seed of the run"),
                help=f"write `seed = {setting.number}` in `{case.name}`",
            )


def _explain_misfit(cluster: Record, study_cluster: Record) -> str:
    """Return why the study's cluster cannot run work for `cluster`, as "has …"; empty if it can."""
    if cluster.data("gpu") != study_cluster.data("gpu"):
        return f"has no {cluster.data('gpu')}"
    if _count_gpus(cluster) > _count_gpus(study_cluster):
        return "has fewer GPUs"
    return "has smaller nodes" if cluster.data("gpus_per_node") > study_cluster.data("gpus_per_node") else ""


def _count_gpus(cluster: Record) -> int:
    return int(cluster.data("nodes") * cluster.data("gpus_per_node"))


def _describe_cluster(cluster: Record) -> str:
    """Return the nodes, GPUs per node and GPU of a cluster, as `2 x 8 H100`."""
    return f"{cluster.data('nodes')} x {cluster.data('gpus_per_node')} {cluster.data('gpu')}"


def _list_trained(ctx: Context, record: Record | None, seen: dict[int, Record]) -> Iterator[Record]:
    """Yield all experiments that must be trained for a checkpoint.

    These are the experiment of the checkpoint, the experiments that it starts from, and the experiments whose
    checkpoints sample its training data.

    Args:
        ctx: The evaluation, which completes stages.
        record: The checkpoint, arm or experiment; None yields nothing.
        seen: The experiments that were yielded before, by `id`. They are not yielded again, and each experiment
            that is yielded is added.
    """
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

    def find_unequal(self, other: Amounts) -> dict[str, tuple[float, float]]:
        """Return the amounts in which two arms differ by more than a relative `AMOUNT_TOLERANCE`.

        Args:
            other: The amounts of the other arm.

        Returns:
            By the name of the amount: (this arm's amount, the other arm's amount).
        """
        pairs = {
            "steps": (self.steps, other.steps),
            "summed learning rate": (self.summed_rate, other.summed_rate),
            "questions": (self.questions, other.questions),
            "responses": (self.responses, other.responses),
        }
        return {
            name: (amount, other_amount)
            for name, (amount, other_amount) in pairs.items()
            if abs(amount - other_amount) > AMOUNT_TOLERANCE * max(amount, other_amount)
        }


@study_check
def check_trained_amounts(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report W0608 if arms that start from the same checkpoint are trained by RL for unequal amounts.

    Amounts are the numbers of steps, questions and responses, and the learning rate summed over steps. Within a
    group of arms from one checkpoint, every arm is compared with one target: the baseline of the score, or else an
    arm with the most common amounts. Arms with SFT, preferences or a stage that ends at a plateau are not compared.
    Nothing is reported if the study allows unequal amounts by `unequal = "…"`.
    """
    study = case.study
    if study.data("unequal") is not None:
        return
    groups = group(
        (trained[0], (arm, trained[1]))
        for arm in study.arms
        if (trained := _count_amounts(case.ctx, arm)) is not None
    )
    relative_to = case["score.relative_to"]
    baseline = relative_to.slot.value.data if relative_to.slot is not None else None
    for members in groups.values():
        most_common = Counter(amounts for _, amounts in members).most_common(1)[0][0]
        target_arm, target = next(
            (item for item in members if isinstance(baseline, Record) and item[0].name == baseline.name),
            next(item for item in members if item[1] == most_common),
        )
        unequal = [(arm, pairs) for arm, amounts in members if (pairs := amounts.find_unequal(target))]
        if unequal:
            arm, pairs = unequal[0]
            names = [f"`{item.name}`" for item, _ in unequal[1:]]
            yield warning(
                "W0608",
                f"`{arm.name}` and `{target_arm.name}` are compared, and train for unequal amounts",
                arm.span,
                "; ".join(
                    f"{name}: {value:.4g} against {other:.4g}" for name, (value, other) in pairs.items()
                ),
                labels=[Label(target_arm.span, "the arm to compare with")],
                notes=[f"{listed(names, MOST_SHOWN)} differ too"] if names else [],
                help='train both for equal amounts, or say in the study why they differ: `unequal = "…"`',
            )


def _count_amounts(ctx: Context, arm: DeclaredArm) -> tuple[object, Amounts] | None:
    """Return the starting point and the amounts of an arm's training by RL.

    Returns:
        (a key of the checkpoint that training starts from, the amounts summed over stages). None in these cases:
        the arm is not trained, a stage is not RL, or the spec does not fix the amounts of a stage.
    """
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
    """Return the amounts of a PPO stage.

    Returns:
        (steps, learning rate summed over steps, questions, responses). None for another method, for a stage with
        a wrong setting, and for a stage that ends by a condition (`until`), whose number of steps is not known.
    """
    optim, batch = stage.sub("optim"), stage.sub("batch")
    steps = stage.data("steps")
    is_fixed = stage.data("method") == "ppo" and stage.only_valid() is stage and stage.sub("until") is None
    if not is_fixed or optim is None or batch is None or not isinstance(steps, int):
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
    """Return the errors of a study or an experiment that matter only if it is run.

    These are a missing suite (E0304), and experiments that do not fit on the study's cluster (E0615). They are
    not errors of the file: an experiment without a suite, for example, may serve as the parent of others.
    """
    if not isinstance(record, DeclaredStudy):
        return () if find_suite(record) is not None else (_report_no_suite(record, ()),)
    arms = [arm for arm in record.arms if find_arm_suite(record, arm) is None]
    missing = (_report_no_suite(record, arms),) if arms else ()
    return (*missing, *check_clusters(ctx, record))


def _report_no_suite(record: Record, arms: Sequence[Record]) -> Diagnostic:
    """Return error E0304 about an experiment without a suite, or about a study with `arms` that have no suite."""
    meaning = "how its arms are evaluated" if arms else "how the checkpoint is evaluated"
    return error(
        "E0304",
        f"`{record.name}` needs `eval`, a suite: {meaning}",
        record.span,
        "no `eval`",
        labels=[Label(arm.span, "no `eval` either") for arm in arms],
        help=f"add `eval = math_reg`{' to the study' if arms else ''}, a declared suite or one from `std.suites`",
    )
