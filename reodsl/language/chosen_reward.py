"""Read the arguments of commands: a reward of a spec to try, the text of a budget schedule, a published frontier."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Problem, error, problem
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage
from reodsl.language.bounds import LimitReached
from reodsl.language.build import Lowering, build, reward
from reodsl.language.changes import complete_stages
from reodsl.language.context import Context, NoValue, attempt
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate, evaluate_splits
from reodsl.language.functions import read_reference
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.program import Program, load
from reodsl.language.suggest import nearest, suggest
from reodsl.language.values import (
    DeclaredExperiment,
    DeclaredFrontier,
    Definition,
    Record,
    Scope,
    StageRef,
    Value,
    WrittenBudgets,
    describe,
)
from reodsl.numbers.budgets import Schedule
from reodsl.numbers.curve_files import read_frontier
from reodsl.numbers.curves import ReferenceFrontier
from reodsl.syntax import parse, parse_expression, tree
from reodsl.syntax.source import Source

TARGET_PATH = "<REWARD>"
UNKNOWN_LENGTH = 2**31
"""The longest response, in tokens, for a reward without an experiment that limits it."""


@dataclass(frozen=True, slots=True)
class ChosenReward:
    """A reward, the settings of its advantages, and the experiment that trains on it."""

    reward: Reward | None
    """None if a diagnostic is an error."""
    advantage: Advantage
    experiment: str | None
    """The name of the experiment; None for a reward without an experiment."""
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]
    """The texts that diagnostics quote, by path."""


def choose_reward(
    path: str, target: str | None, sets: Mapping[str, str] = {}, amends: Mapping[str, str] = {}
) -> ChosenReward:
    """Return the reward that `target` names in a spec, with the advantage settings of its experiment.

    A reward that is named without an experiment gets the default advantage settings. If the spec or the target
    is wrong, the result has no reward, and its diagnostics say why.

    Args:
        path: The spec.
        target: A reward, a call of a reward, an experiment, or a stage of an experiment. For an experiment the
            reward is its last stage's. None for the only reward that the file declares, or in a file without
            rewards for the reward of its only experiment.
        sets: Texts of values by the names of params.
        amends: Texts of values by the dotted paths of settings.
    """
    program = load(path, sets, amends)
    record: Record | None = None
    if program.main is not None and program.is_sound:
        with suppress(LimitReached, NoValue):
            record = _find_target(program, program.main, target)
    settings: tuple[Advantage, str | None] = Advantage(), None
    reward_record: Record | None = record
    max_tokens = UNKNOWN_LENGTH
    ctx = program.context
    if isinstance(record, DeclaredExperiment | StageRef):
        experiment = record if isinstance(record, DeclaredExperiment) else record.of
        stages = complete_stages(ctx, experiment)
        stage = stages[record.position if isinstance(record, StageRef) else -1][1] if stages else None
        reward_record = stage.sub("reward") if stage is not None else None
        if stage is not None and reward_record is None:
            ctx.report(_no_reward_error(f"`{experiment.name}` is trained without a reward", program))
        if stage is not None and reward_record is not None:
            settings = (
                build(Advantage, stage.part("advantage"), credit=stage.data("credit")),
                experiment.name,
            )
            max_tokens = stage.part("rollout").data("max_tokens")
    built: Reward | None = None
    if isinstance(reward_record, Definition) and program.is_sound:
        with suppress(LookupError, LimitReached):
            built = reward(Lowering(ctx), reward_record, max_tokens)
    return ChosenReward(built, *settings, ctx.findings, ctx.modules.sources)


def _find_target(program: Program, main: ParsedFile, target: str | None) -> Record:
    """Return the record of the reward, experiment or stage that a target names.

    Args:
        program: The evaluated spec.
        main: The spec's file.
        target: The text of an expression; None for the only reward or experiment of the file.

    Raises:
        NoValue: The target is wrong or names something else, or there are several to choose from; the error
            was reported, in general E0123.
    """
    ctx = program.context
    if target is None:
        declared = {
            item.name.name: item.kind.name for item in main.items.values() if isinstance(item, tree.Decl)
        }
        for kind in ("reward", "experiment"):
            names = [
                name
                for name, declared_kind in declared.items()
                if declared_kind == kind and name in program.values
            ]
            if len(names) == 1 and isinstance(data := program.values[names[0]].data, Record):
                return data
            if names:
                break
        message = (
            f"this file has {len(names)} {kind}s" if names else "this file has no reward and no experiment"
        )
        ctx.refuse(_no_reward_error(message, program, names))
    ctx.modules.sources[TARGET_PATH] = target
    parsed = parse_expression(Source(TARGET_PATH, target))
    for finding in parsed.diagnostics:
        ctx.report(finding)
    if parsed.expression is None:
        raise NoValue
    value = evaluate(ctx, parsed.expression, Scope(main))
    if isinstance(value.data, DeclaredExperiment | StageRef) or (
        isinstance(value.data, Definition) and value.data.kind == "reward"
    ):
        return value.data
    ctx.fail(
        "E0123",
        f"{describe(value)} is neither a reward nor an experiment",
        parsed.expression.span,
        help="name a reward, call one, such as `reo(at: [1K tokens, 4K tokens])`, or name an experiment",
    )


def _no_reward_error(message: str, program: Program, names: list[str] | None = None) -> Diagnostic:
    """Return E0123, the error that no reward was found, or several rewards.

    Args:
        message: The message.
        program: The evaluated spec.
        names: The rewards or experiments to choose from, for the help; None or empty if there are none.
    """
    advice = (
        f"name one: {', '.join(names)}" if names else "name a reward of the library: `std.rewards.outcome`"
    )
    where = program.main.path if program.main is not None else None
    return error("E0123", message, where=where, help=advice)


BUDGETS_PATH = "<budgets>"
PAPER = "paper"


def read_schedule(text: str) -> tuple[Schedule | None, tuple[Diagnostic, ...], dict[str, str]]:
    """Return the budget schedule that a text describes, such as `exp(from: 1K tokens, to: 32K tokens, n: 5)`.

    Returns:
        The schedule, or None after an error; the findings; the texts that the findings quote, by path.
    """
    modules = Modules(Path())
    modules.sources[BUDGETS_PATH] = text
    parsed = parse_expression(Source(BUDGETS_PATH, text))
    if parsed.expression is None:
        return None, parsed.diagnostics, modules.sources
    ctx = new_context(modules)
    empty = ParsedFile(BUDGETS_PATH, BUDGETS_PATH, parse(Source(BUDGETS_PATH, "")).module, False, {}, {})
    expression, files = _read_files(ctx, parsed.expression)
    scope = Scope(empty).inner({name: (lambda value=value: value) for name, value in files.items()})  # type: ignore[misc]
    schedule: Schedule | None = None
    if not ctx.findings:
        schedule = attempt(
            lambda: _take_schedule(ctx, evaluate_splits(ctx, expression, scope, "the budgets"))
        )
    return schedule, ctx.findings, modules.sources


def _take_schedule(ctx: Context, budgets: Value) -> Schedule:
    """Return the schedule of budgets that are known before a run.

    Raises:
        NoValue: The budgets are only found while a study runs; E0415 was reported.
    """
    if isinstance(budgets.data, WrittenBudgets):
        return budgets.data.schedule
    ctx.fail(
        "E0415",
        "these budgets are not known before a study runs",
        budgets.span,
        help="give `exp`, `linear`, a list, or `greedy` on a published frontier",
    )


def _read_files(ctx: Context, expr: tree.Expr) -> tuple[tree.Expr, dict[str, Value]]:
    """Read the frontier files that `greedy("edge.json", …)` names.

    The names that replace the paths have a space, such as `file 0`, so no spec can use them. An expression
    other than a call of `greedy` is returned as it is. Errors in files are reported.

    Returns:
        The expression with a name in place of each path, and the frontiers by these names.
    """
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
            for finding in caught.diagnostics:
                ctx.report(finding)
            continue
        name = f"file {i}"
        record = DeclaredFrontier("frontier", {}, arg.span, arg.value.value, curves=dict(curves))
        files[name] = Value(record, arg.span)
        args[i] = replace(arg, value=tree.Name(name, arg.value.span))
    return replace(expr, args=tuple(args)), files


def read_frontier_by_name(name: str) -> ReferenceFrontier:
    """Return a published frontier of the library by its name, `std.paper.qwen3_4b` or `qwen3_4b`.

    Raises:
        Problem: E0201, if the library has no frontier of that name.
    """
    modules = Modules(Path())
    paper = modules.library(PAPER)
    items = paper.items if paper is not None else {}
    names = [f"std.{PAPER}.{item}" for item in items]
    item = items.get(name.removeprefix(f"std.{PAPER}."))
    value = None
    if paper is not None and item is not None:
        value = attempt(lambda: new_context(modules).value_of(paper, item))
    if value is None or not isinstance(value.data, DeclaredFrontier):
        raise problem(
            "E0201",
            f"there is no frontier `{name}`",
            help=f"{suggest(name, names, 'there is')}; a file's name ends in .json, .csv or .parquet"
            if nearest(name, names) is None
            else suggest(name, names),
        )
    return read_reference(value.data)
