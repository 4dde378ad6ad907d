"""Check published numbers: tables against their benchmarks, and frontiers against the arms that they score."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, Problem, Span, error, listed, warning
from reodsl.language.checks.cases import Settings, SettingView
from reodsl.language.functions import read_curves
from reodsl.language.resolve import find_arm_suite, find_suite, name_model, sort_grid, walk_ancestry
from reodsl.language.suggest import MOST_SHOWN, list_names
from reodsl.language.values import (
    Composite,
    DeclaredArm,
    DeclaredFrontier,
    DeclaredStudy,
    Items,
    Record,
    list_records,
)
from reodsl.numbers.curves import (
    ReferenceFrontier,
    check_base,
    check_benchmarks,
    check_curve,
    of_other_benchmarks,
    too_sparse,
)

MEASURES = ("accuracy", "length", "reg", "reg_change")
"""The settings of a published row that have a number for each benchmark."""


def check_curves(frontier: DeclaredFrontier) -> Iterator[Diagnostic]:
    """Report the first wrong curve of a published frontier.

    A curve may have wrong budgets, wrong accuracies, or an unknown name of a benchmark.

    The finding is at the setting `budgets` or `accuracy` that is wrong.
    """
    for item in frontier.parts:
        try:
            check_benchmarks([curve.name for curve in frontier.parts])
            check_curve(frontier.data("budgets"), item.data("accuracy"))
        except Problem as problem:
            fault = problem.diagnostics[0]
            slot = (
                frontier.fields["budgets"] if fault.message.startswith("budgets") else item.fields["accuracy"]
            )
            yield SettingView("", slot, item.span).error(fault.code, fault.message, help=fault.help or "")
            return


def check_against(owner: Record, against: Record) -> Iterator[Diagnostic]:
    """Report E0616 if a frontier does not fit the arms that are scored against it.

    The frontier may be of another model or of other benchmarks, or may have too few budgets. With
    `approximate: true` in the score, the finding is the warning W0616. Wrong curves of a published frontier are
    reported too.

    Args:
        owner: The study, or the experiment, whose REG is computed.
        against: The frontier that its `score` names.
    """
    score = owner.part("score")
    if isinstance(against, DeclaredFrontier):
        yield from check_curves(against)
    is_allowed = score.data("approximate")
    for fault, label in find_mismatches(owner, against):
        message = f"REG is approximate: {fault.message}" if is_allowed else fault.message
        option = "" if is_allowed else "; or write `approximate: true` in `reg(…)`, and the report says so"
        make = warning if is_allowed else error
        yield make(
            "W0616" if is_allowed else "E0616",
            message,
            score.fields["against"].span,
            f"`{against.name}`",
            labels=[label],
            notes=list(fault.notes),
            help=f"{fault.help}{option}",
        )


def find_mismatches(owner: Record, against: Record) -> Iterator[tuple[Diagnostic, Label]]:
    """Yield the reasons why a frontier cannot score the arms of a study, or an experiment.

    The models, benchmarks and budgets of a published frontier are compared with those of the arms. A frontier over
    arms is only compared by its models, since other checks compare its benchmarks and budgets. Nothing is yielded
    for a frontier whose own curves are wrong.

    Args:
        owner: The study, or the experiment, whose REG is computed.
        against: The frontier that its `score` names.

    Yields:
        The first finding of each code, and the label of the setting that contradicts the frontier.
    """
    if not isinstance(against, DeclaredFrontier) or any(check_curves(against)):
        return
    reasons: dict[str, tuple[Diagnostic, Label]] = {}
    frontier_arms = list_records(against.envelope, "of")
    base = [_find_model(arm) for arm in frontier_arms] if frontier_arms else list_records(against, "base")
    names = tuple(dict.fromkeys(name_model(model) for model in base if model is not None))
    for arm in owner.arms if isinstance(owner, DeclaredStudy) else (owner,):
        *_, (model, _) = walk_ancestry(arm)
        if not names or (model.kind != "model" and (model.kind != "results" or against.envelope is not None)):
            continue
        model_fault = (
            check_base(ReferenceFrontier({}, names), [name_model(model)], f"`{arm.name}` goes back")
            if model.kind == "model"
            else error(
                "E0433",
                f"the spec does not say which model wrote the responses of `{arm.name}`, and the frontier is of"
                f" {listed(names, MOST_SHOWN)}",
                help=f"if that model wrote the responses, add `base: {next((m.name for m in base if m), '…')}`",
            )
        )
        faults = [(model_fault, model.span, "its model")]
        suite = (
            find_arm_suite(owner, arm)
            if isinstance(owner, DeclaredStudy) and isinstance(arm, DeclaredArm)
            else find_suite(arm)
        )
        if suite is not None and against.envelope is None:
            faults += _compare_evaluation(against, suite, arm.name, owner.part("score").data("to"))
        for fault, span, text in faults:
            if fault is not None:
                reasons.setdefault(fault.code, (fault, Label(span, text)))
    yield from reasons.values()


def _find_model(arm: Record) -> Record | None:
    """Return the model from which an arm's training begins, or None if the arm is a file of results."""
    *_, (model, _) = walk_ancestry(arm)
    return model if model.kind == "model" else None


def _compare_evaluation(
    against: DeclaredFrontier, suite: Record, name: str, to: int
) -> Iterator[tuple[Diagnostic | None, Span, str]]:
    """Compare the benchmarks and budgets of an arm's evaluation with those of a published frontier.

    Args:
        against: The published frontier.
        suite: The suite that evaluates the arm.
        name: The name of the arm.
        to: The budget up to which REG is computed, in tokens.

    Yields:
        For benchmarks, the suite's grid and the frontier's budgets: (finding, or None if they fit; the span to
        show; the text of the span).
    """
    budgets = [budget for budget in against.data("budgets") if budget <= to]
    grid = [budget for budget in sort_grid(suite) if budget <= to] or budgets
    points = sorted({*grid, *budgets})
    names = [benchmark.name for benchmark in list_records(suite, "benchmarks")]
    mismatch = of_other_benchmarks(read_curves(against), names, f"`{name}`")
    view = Settings(suite)
    yield mismatch, view["benchmarks"].span, "its questions"
    sparse = too_sparse(grid, points, f"the grid of `{name}`")
    yield sparse, view["grid"].span, "its grid"
    yield too_sparse(budgets, points, f"the frontier `{against.name}`"), against.span, "its budgets"


def check_published(table: Composite) -> Iterator[Diagnostic]:
    """Check the rows of a published table.

    Report E0612 for a measure that has more or fewer numbers than the table has benchmarks, and for changes of
    REG in a table whose `relative_to` is missing or names a missing row.
    """
    benchmarks, base = table.data("benchmarks"), table.data("relative_to")
    names = [row.name for row in table.parts]
    if base is not None and base not in names:
        hint = list_names(names, "its rows are")
        yield _report_misfit(table, "relative_to", f"it has no row `{base}`", hint)
    for row in table.parts:
        measures = {name: row.data(name) for name in MEASURES if row.get(name) is not None}
        for name, numbers in measures.items():
            if len(numbers) != len(benchmarks):
                reason = f"{len(numbers)} numbers for {len(benchmarks)} benchmarks"
                hint = f"give one number for each of {listed(benchmarks, MOST_SHOWN)}"
                yield _report_misfit(row, name, reason, hint)
        if "reg_change" in measures and base is None:
            hint = f'add `relative_to = "{names[0]}"` to `{table.name}`'
            yield _report_misfit(row, "reg_change", "the table has no `relative_to` for its changes", hint)


def _report_misfit(record: Record, name: str, message: str, hint: str) -> Diagnostic:
    """Return error E0612 about a setting of a published table or of a row.

    Args:
        record: The table or the row.
        name: The name of the setting.
        message: What is wrong with the setting.
        hint: What to write instead.
    """
    noun = "row" if record.kind == "row" else "published table"
    return Settings(record)[name].error(
        "E0612", f"the {noun} `{record.name}` does not fit: {message}", help=hint
    )


def list_rows(study: DeclaredStudy, table: Record) -> list[DeclaredArm]:
    """Return the arms that a table of a report shows as rows: all arms of the study if `rows` is left out."""
    rows = table.get("rows")
    if rows is None or not isinstance(rows.data, Items):
        return list(study.arms)
    return [value.data for value in rows.data.values if isinstance(value.data, DeclaredArm)]


def check_table_of(table: Record) -> Iterator[Diagnostic]:
    """Report E0609 for a table on the balanced subset of the questions with REG, which needs all questions."""
    view = Settings(table)
    if table.data("subset") == "balanced" and "reg" in table.data("columns"):
        yield view["columns"].error(
            "E0609",
            f"`{table.name}` shows REG on the balanced subset, and REG is of all questions",
            "`reg`",
            view["subset"].label("the balanced subset"),
            help="write `columns = [length, accuracy]`",
        )
