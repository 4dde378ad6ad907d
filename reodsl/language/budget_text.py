"""Read budgets and frontiers outside of a spec, from a schedule's text or a published frontier's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Problem, problem
from reodsl.language.context import Context, attempt
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate_splits
from reodsl.language.functions import read_reference
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.suggest import nearest, suggest
from reodsl.language.values import DeclaredFrontier, Scope, Value, WrittenBudgets
from reodsl.numbers.budgets import Schedule
from reodsl.numbers.curve_files import read_frontier
from reodsl.numbers.reference import Reference
from reodsl.syntax import parse, parse_expression, tree
from reodsl.syntax.source import Source

SHOWN = "<budgets>"
PAPER = "paper"


def read_schedule(text: str) -> tuple[Schedule | None, tuple[Diagnostic, ...], dict[str, str]]:
    """Return the schedule that a text describes, or None; the findings; the texts that they quote."""
    modules = Modules(Path())
    modules.sources[SHOWN] = text
    parsed = parse_expression(Source(SHOWN, text))
    if parsed.expression is None:
        return None, parsed.diagnostics, modules.sources
    ctx = new_context(modules)
    empty = ParsedFile(SHOWN, SHOWN, parse(Source(SHOWN, "")).module, False, {}, {})
    expression, files = _read_files(ctx, parsed.expression)
    scope = Scope(empty).inner({name: (lambda value=value: value) for name, value in files.items()})  # type: ignore[misc]
    schedule: Schedule | None = None
    if not ctx.findings:
        schedule = attempt(
            lambda: _take_schedule(ctx, evaluate_splits(ctx, expression, scope, "the budgets"))
        )
    return schedule, ctx.findings, modules.sources


def _take_schedule(ctx: Context, budgets: Value) -> Schedule:
    if isinstance(budgets.data, WrittenBudgets):
        return budgets.data.schedule
    ctx.fail(
        "E0415",
        "these budgets are not known before a study runs",
        budgets.span,
        help="give `exp`, `linear`, a list, or `greedy` on a published frontier",
    )


def _read_files(ctx: Context, expr: tree.Expr) -> tuple[tree.Expr, dict[str, Value]]:
    """Read the files that `greedy("edge.json", …)` names, and write names in their places."""
    if not (isinstance(expr, tree.Call) and expr.function == tree.Name("greedy", expr.function.span)):
        return expr, {}
    args = list(expr.args)
    files: dict[str, Value] = {}
    for i, arg in enumerate(args):
        if not isinstance(arg.value, tree.String) or (arg.name is not None and arg.name.name != "frontier"):
            continue
        try:
            curves = read_frontier(arg.value.value)
        except Problem as caught:
            for each in caught.diagnostics:
                ctx.report(each)
            continue
        name = f"file {i}"
        record = DeclaredFrontier("frontier", {}, arg.span, arg.value.value, curves=dict(curves))
        files[name] = Value(record, arg.span)
        args[i] = replace(arg, value=tree.Name(name, arg.value.span))
    return replace(expr, args=tuple(args)), files


def read_frontier_by_name(name: str) -> Reference:
    """Return a published frontier by its name, `std.paper.qwen3_4b` or `qwen3_4b`. Raises `Problem` for any other name."""
    modules = Modules(Path())
    paper = modules.library(PAPER)
    items = paper.items if paper is not None else {}
    known = [f"std.{PAPER}.{item}" for item in items]
    item = items.get(name.removeprefix(f"std.{PAPER}."))
    value = None
    if paper is not None and item is not None:
        value = attempt(lambda: new_context(modules).declared(paper, item))
    if value is None or not isinstance(value.data, DeclaredFrontier):
        raise problem(
            "E0201",
            f"there is no frontier `{name}`",
            help=f"{suggest(name, known, 'there is')}; a file's name ends in .json, .csv or .parquet"
            if nearest(name, known) is None
            else suggest(name, known),
        )
    return read_reference(value.data)
