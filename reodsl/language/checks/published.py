"""Check published numbers: tables that fit their benchmarks, arms to compare, settings that papers print."""

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


def check_curves(frontier: DeclaredFrontier) -> Iterator[Diagnostic]:
    """Report numbers of a published frontier that are no curves, at the setting."""
    for item in frontier.parts:
        try:
            check_benchmarks([curve.name for curve in frontier.parts])
            check_curve(frontier.data("budgets"), item.data("accuracy"))
        except Problem as refused:
            fault = refused.diagnostics[0]
            wrong = (
                frontier.fields["budgets"] if fault.message.startswith("budgets") else item.fields["accuracy"]
            )
            yield SettingView("", wrong, item.span).error(fault.code, fault.message, help=fault.help or "")
            return


def check_against(owner: Record, against: Record) -> Iterator[Diagnostic]:
    """Report E0616: a published frontier of another model, of other benchmarks than the arms, or with too few budgets.

    It is W0616 if `approximate` allows it.
    """
    score = owner.part("score")
    if isinstance(against, DeclaredFrontier):
        yield from check_curves(against)
    allowed = score.data("approximate")
    for fault, label in find_mismatches(owner, against):
        message = f"REG is approximate: {fault.message}" if allowed else fault.message
        otherwise = "" if allowed else "; or write `approximate: true` in `reg(…)`, and the report says so"
        make = warning if allowed else error
        yield make(
            "W0616" if allowed else "E0616",
            message,
            score.fields["against"].span,
            f"`{against.name}`",
            labels=[label],
            notes=list(fault.notes),
            help=f"{fault.help}{otherwise}",
        )


def find_mismatches(owner: Record, against: Record) -> Iterator[tuple[Diagnostic, Label]]:
    """Yield why a frontier does not fit the arms of a study or an experiment, each code once, with a label.

    A frontier over arms has the arms' models; other checks compare its benchmarks and budgets.
    """
    if not isinstance(against, DeclaredFrontier) or any(check_curves(against)):
        return
    reasons: dict[str, tuple[Diagnostic, Label]] = {}
    over = list_records(against.envelope, "of")
    base = [_find_model(arm) for arm in over] if over else list_records(against, "base")
    names = tuple(dict.fromkeys(name_model(m) for m in base if m is not None))
    for arm in owner.arms if isinstance(owner, DeclaredStudy) else (owner,):
        *_, (model, _) = walk_ancestry(arm)
        if not names or (model.kind != "model" and (model.kind != "results" or against.envelope is not None)):
            continue
        other = (
            check_base(ReferenceFrontier({}, names), [name_model(model)], f"`{arm.name}` goes back")
            if model.kind == "model"
            else error(
                "E0433",
                f"nothing says of which model the responses of `{arm.name}` are, and the frontier is of"
                f" {listed(names, MOST_SHOWN)}",
                help=f"if they are of that model, add `base: {next((m.name for m in base if m), '…')}`",
            )
        )
        faults = [(other, model.span, "its model")]
        suite = (
            find_arm_suite(owner, arm)
            if isinstance(owner, DeclaredStudy) and isinstance(arm, DeclaredArm)
            else find_suite(arm)
        )
        if suite is not None and against.envelope is None:
            faults += _compare_measures(against, suite, arm.name, owner.part("score").data("to"))
        for fault, span, text in faults:
            if fault is not None:
                reasons.setdefault(fault.code, (fault, Label(span, text)))
    yield from reasons.values()


def _find_model(arm: Record) -> Record | None:
    """Return the model that an arm goes back to."""
    *_, (model, _) = walk_ancestry(arm)
    return model if model.kind == "model" else None


def _compare_measures(
    against: DeclaredFrontier, suite: Record, name: str, to: int
) -> Iterator[tuple[Diagnostic | None, Span, str]]:
    """Yield how an arm's benchmarks and budgets differ from a published frontier's, each with its span and a text."""
    budgets = [budget for budget in against.data("budgets") if budget <= to]
    grid = [budget for budget in sort_grid(suite) if budget <= to] or budgets
    points = sorted({*grid, *budgets})
    mismatch = of_other_benchmarks(read_curves(against), _list_benchmarks(suite), f"`{name}`")
    view = Settings(suite)
    yield mismatch, view["benchmarks"].span, "its questions"
    sparse = too_sparse(grid, points, f"the grid of `{name}`")
    yield sparse, view["grid"].span, "its grid"
    yield too_sparse(budgets, points, f"the frontier `{against.name}`"), against.span, "its budgets"


def check_published(table: Composite) -> Iterator[Diagnostic]:
    """Report E0612: a row with another count of numbers than benchmarks, or changes relative to a missing row."""
    benchmarks, base = table.data("benchmarks"), table.data("relative_to")
    names = [row.name for row in table.parts]
    if base is not None and base not in names:
        helps = list_names(names, "its rows are")
        yield _report_misfit(table, "relative_to", f"it has no row `{base}`", helps)
    for row in table.parts:
        measures = {name: row.data(name) for name in MEASURES if row.get(name) is not None}
        for name, numbers in measures.items():
            if len(numbers) != len(benchmarks):
                words = f"{len(numbers)} numbers for {len(benchmarks)} benchmarks"
                helps = f"give one for each of {listed(benchmarks, MOST_SHOWN)}"
                yield _report_misfit(row, name, words, helps)
        if "reg_change" in measures and base is None:
            helps = f'add `relative_to = "{names[0]}"` to `{table.name}`'
            yield _report_misfit(row, "reg_change", "nothing says what the change is relative to", helps)


def _report_misfit(record: Record, name: str, message: str, helps: str) -> Diagnostic:
    noun = "row" if record.kind == "row" else "published table"
    return Settings(record)[name].error(
        "E0612", f"the {noun} `{record.name}` does not fit: {message}", help=helps
    )


def list_rows(study: DeclaredStudy, table: Record) -> list[DeclaredArm]:
    """Return the arms that a table shows."""
    rows = table.get("rows")
    if rows is None or not isinstance(rows.data, Items):
        return list(study.arms)
    return [value.data for value in rows.data.values if isinstance(value.data, DeclaredArm)]


def check_table_of(table: Record) -> Iterator[Diagnostic]:
    """Report E0609: a table shows REG on a subset of the questions."""
    view = Settings(table)
    if table.data("subset") == "balanced" and "reg" in table.data("columns"):
        yield view["columns"].error(
            "E0609",
            f"`{table.name}` shows REG on the balanced subset, and REG is of all questions",
            "`reg`",
            view["subset"].label("the balanced subset"),
            help="write `columns = [length, accuracy]`",
        )


def _list_benchmarks(suite: Record) -> list[str]:
    return [benchmark.name for benchmark in list_records(suite, "benchmarks")]
