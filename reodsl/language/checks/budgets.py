"""Check budgets: against responses, the grid, and the rollouts that they are estimated from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from reodsl.diagnostics.model import Diagnostic, Label, error, listed, warning
from reodsl.language.changes import complete_stages
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    CheckedExperiment,
    CheckedStage,
    Settings,
    SettingView,
    case_check,
    finding_at,
    means_same,
    ppo_check,
)
from reodsl.language.checks.data import check_vocabularies
from reodsl.language.context import Context
from reodsl.language.resolve import sort_grid, walk_ancestry
from reodsl.language.reward.selection import find_questions
from reodsl.language.suggest import MOST_SHOWN
from reodsl.language.units import TOKENS, Quantity, format_quantity, write_quantity
from reodsl.language.values import (
    DeclaredExperiment,
    DeclaredFrontier,
    Record,
    Value,
    WrittenBudgets,
    list_items,
    list_records,
)

GREEDY_SETTINGS = ("temperature", 0), ("top_k", 1)
"""Settings of sampling that leave one token to draw."""


def _write_tokens(count: float) -> str:
    return write_quantity(Quantity(int(count), TOKENS))


@ppo_check
def check_cuts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0402: a reward cuts responses past the longest response, so that its condition never holds."""
    longest = stage["rollout.max_tokens"]
    for cut, span in stage.formula.cuts:
        if cut.low <= longest.number:
            continue
        labels = [Label(span, format_quantity(Quantity(int(cut.low), TOKENS))), *longest.labels]
        if span.path.startswith(LIBRARY_PATH):
            labels.insert(0, stage["reward"].label("this reward"))
        helps = f"cut at {_write_tokens(longest.number)} or before, or raise `max_tokens`"
        yield finding_at(error, "E0402", "the reward cuts responses past the longest one", labels, helps)


@ppo_check
def check_shared_budgets(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0606: budgets estimated from arms with tokens of another vocabulary."""
    split = stage.formula.split
    if split is not None and split.kind == "question_budgets":
        arms, span = list_items(split, "rollouts"), stage["reward"].span
        yield from check_vocabularies(f"the budgets of `{case.name}`", arms, case.record, span)


@ppo_check
def check_last_budget(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0402 for a split past the longest response, and W0402 for responses that go on past the last split."""
    split, longest = stage.formula.split, stage["rollout.max_tokens"]
    if split is None:
        return
    last = split.schedule.l_max if isinstance(split, WrittenBudgets) else split.data("to")
    if split.kind == "oracle_budgets":
        yield from _check_end(split, int(last if last is not None else longest.number))
    dense = stage.formula.dense is not None
    if last is None or not (last > longest.number or (last < longest.number and dense)):
        return
    to, short = Settings(split)["to"], _write_tokens(longest.number)
    via = [Label(span, text) for span, text in to.value.defined_at] if to.slot is not None else []
    labels = [to.label(format_quantity(Quantity(last, TOKENS))), *via, *longest.labels]
    end = f"write `to: {short}`" if split.computed_by is not None else f"end the list at `{short}`"
    if last > longest.number:
        helps, message = f"{end}, or raise `max_tokens`", "a budget lies past the longest response"
        yield finding_at(error, "E0402", message, labels, helps)
    else:
        helps = f"{end}, or lower `max_tokens`"
        message = "responses go on past the last budget, and earn nothing there"
        yield finding_at(warning, "W0402", message, labels, helps)


def _check_end(split: Record, longest: int) -> Iterator[Diagnostic]:
    """Report E0408: a frontier of greedy budgets ends before the longest response, `longest` tokens."""
    frontier = split.sub("frontier")
    envelope = frontier.envelope if isinstance(frontier, DeclaredFrontier) else None
    end = envelope.data("to") if envelope is not None else longest
    if envelope is not None and end < longest:
        ends = Settings(envelope)["to"].label(f"ends at {end} tokens")
        labels = [Label(split.span, f"budgets up to {longest} tokens"), ends]
        helps = f"write `to: {_write_tokens(longest)}` in the frontier, or `to: …` in `greedy`"
        message = "the frontier of these budgets ends before the longest response"
        yield finding_at(error, "E0408", message, labels, helps)


@ppo_check
def check_rollouts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0405, E0408, W0404: arms of budgets without RL, with shorter responses, or trained on other questions."""
    split = stage.formula.split
    if split is None or split.kind != "question_budgets":
        return
    values, sampled = list_items(split, "rollouts"), list[Record]()
    for arm, value in zip(list_records(split, "rollouts"), values, strict=True):
        stages = _list_stages(case.ctx, arm)
        if stages is None:
            return  # what it lacks is reported at its declaration
        rl = [recipe for recipe in stages if recipe.data("method") == "ppo"]
        if not rl:
            yield error(
                "E0405",
                f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
                value.span,
                "a checkpoint" if not stages else str(stages[-1].data("method")).upper(),
                help="name arms that are trained with PPO",
            )
            return
        sampled += rl
    if sampled:
        yield from _check_arm_lengths(split, stage, sampled)
        yield from _check_sampled_questions(case, stage, values, sampled)


def _list_stages(ctx: Context, record: Record) -> list[Record] | None:
    """Return the stages of an arm's training up to its checkpoint, or None if a stage lacks a setting."""
    for source, last in walk_ancestry(record):
        if isinstance(source, DeclaredExperiment) and source.is_trained:
            stages: list[Record] = [stage for _, stage in complete_stages(ctx, source)]
            return stages[: None if last is None else last + 1] or None
    return []


def _check_arm_lengths(split: Record, stage: CheckedStage, sampled: Sequence[Record]) -> Iterator[Diagnostic]:
    """Report E0408: all arms end before the longest response."""
    to = split.fields.get("to") or stage.record.at("rollout.max_tokens")
    longest = SettingView("to", to, split.span).number
    ends = [end for sampler in sampled if (end := Settings(sampler)["rollout.max_tokens"]).slot is not None]
    most = max(ends, key=lambda end: end.number, default=None)
    if most is not None and most.number < longest:
        yield error(
            "E0408",
            "the rollouts of these arms end before the longest response",
            split.span,
            f"budgets up to {int(longest)} tokens",
            labels=most.labels,
            help=f"name an arm with `max_tokens = {_write_tokens(longest)}`, or end both "
            f"the budgets and the responses with them, at {_write_tokens(most.number)}",
        )


def _check_sampled_questions(
    case: CheckedExperiment, stage: CheckedStage, values: Sequence[Value], sampled: Sequence[Record]
) -> Iterator[Diagnostic]:
    """Report W0404: no arm is trained on the stage's questions."""
    asked = stage.record.sub("data")
    # Those that a selection keeps are questions of its pool: who was asked all of these was asked them too.
    pool_data = find_questions(asked)
    if asked is None or pool_data is None:
        return
    if any(means_same(item.sub("data"), data) for item in sampled for data in (asked, pool_data)):
        return
    theirs = next((data for item in sampled if (data := item.sub("data")) is not None), None)
    yield warning(
        "W0404",
        f"`{case.name}` may be asked questions that none of these arms met",
        values[0].span,
        "trained on other data" if theirs is None else f"trained on `{theirs.name}`",
        labels=stage["data"].setting_labels(f"asks `{asked.name}`"),
        notes=["of a question that no rollout tells of, the whole response alone counts"],
        help=f"name arms that are trained on `{pool_data.name}`, or train on their data",
    )


@case_check
def check_grid(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0304, E0404: a grid without a forcing, or that does not fit `reg_to` and the longest response."""
    grid = sort_grid(case.suite)
    suite, name = case.evaluation, case.evaluation.record.name
    if not grid:
        return
    cut, reg_to, longest = suite["grid"], suite["reg_to"], suite["max_tokens"]
    findings: list[tuple[str, str, list[Label], str]] = []
    if "forcing" not in suite and "forcing" not in suite.record.invalid:
        helps = "add `forcing = dynasor`, from `std.forcing`, or take the grid out: whole responses alone are then graded"
        message = f"`{name}` needs `forcing`, how a cut response answers"
        findings.append(("E0304", message, [cut.label("cuts responses")], helps))
    if longest.slot is not None and grid[-1] > longest.number:
        labels = [cut.label(f"up to {grid[-1]} tokens"), *longest.labels]
        helps = f"end it at {_write_tokens(longest.number)}, or raise `max_tokens`"
        findings.append(("E0404", "the grid goes on past the longest response", labels, helps))
    elif reg_to.slot is not None and longest.slot is not None and reg_to.number > longest.number:
        labels = [reg_to.label(f"{reg_to.number} tokens"), *longest.labels]
        helps = f"write `reg_to = {_write_tokens(longest.number)}`, or raise `max_tokens`"
        findings.append(("E0404", "REG integrates past the longest response", labels, helps))
    if grid[0] > 0:
        labels, helps = [cut.label(f"from {grid[0]} tokens")], "let the grid start at 0 tokens"
        findings.append(("E0404", "the grid starts after 0, where REG's integral begins", labels, helps))
    if reg_to.slot is not None and grid[-1] < reg_to.number:
        labels = [cut.label(f"up to {grid[-1]} tokens"), *reg_to.labels]
        helps = f"let it go on to {_write_tokens(reg_to.number)}, or lower `reg_to`"
        findings.append(("E0404", "the grid stops before REG's integral does", labels, helps))
    for code, message, labels, helps in findings:
        yield finding_at(error, code, message, labels, helps)


@case_check
def check_grid_resolves(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0403: budgets that training rewards and the suite's grid does not resolve."""
    grid = sort_grid(case.suite)
    for stage in case.stages if grid else ():
        split = stage.reward.split if stage.reward is not None else None
        reg_to, longest = case.evaluation["reg_to"], stage["rollout.max_tokens"]
        if not isinstance(split, WrittenBudgets) or split.schedule.l_max > longest.number:
            continue
        missed = find_unresolved(split.schedule.splits, grid, reg_to.number)
        if missed:
            budgets = listed([str(budget) for budget in split.schedule.budgets], MOST_SHOWN)
            labels = [Label(split.span, f"budgets {budgets}"), case.evaluation["grid"].label("the grid")]
            noun = f"{'a budget' if len(missed) == 1 else 'budgets'} that training rewards"
            message = f"the evaluation is too coarse for {noun}: {listed([*map(str, missed)], MOST_SHOWN)}"
            helps = f"add to the suite: `grid += [{', '.join(f'{budget} tokens' for budget in missed)}]`, or to its list"
            yield finding_at(warning, "W0403", message, labels, helps)


def find_unresolved(splits: Sequence[int], grid: Sequence[int], reg_to: int) -> list[int]:
    """Return the budgets up to `reg_to` that a grid from 0 up does not resolve.

    Accuracy is interpolated between two points of the grid. That suffices for a single budget between them,
    and cannot tell two budgets apart; before the first point past 0 it says nothing of how a response begins.

    Args:
        splits: The budgets, in tokens.
        grid: The budgets of the suite, in tokens, increasing from 0.
        reg_to: The upper limit of REG's integral, in tokens.
    """
    between: list[int] = []
    for low, high in pairwise(grid):
        inside = [budget for budget in splits if low < budget < high and budget <= reg_to]
        between += inside if len(inside) > 1 or low == 0 else []
    return between


@case_check
def check_benchmarks(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0208: two benchmarks of a suite have the same name, by which curves are stored."""
    seen: dict[str, Label] = {}
    named = zip(list_records(case.suite, "benchmarks"), list_items(case.suite, "benchmarks"), strict=True)
    for benchmark, value in named:
        first = seen.setdefault(benchmark.name, Label(value.span, "first here"))
        if first.span is not value.span:
            helps = "name one of them otherwise"
            message = f"the benchmark `{benchmark.name}` is there twice"
            yield error("E0208", message, value.span, "again here", labels=[first], help=helps)


@case_check
def check_draws(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0534: the samples of a question are all equal; forced answers that are drawn may still differ."""
    suite = case.evaluation.record
    if (suite.data("samples") or 1) < 2:
        return
    name = next((name for name, value in GREEDY_SETTINGS if suite.data(name) == value), None)
    forcing = suite.sub("forcing") if sort_grid(suite) else None
    if name is None or (forcing is not None and forcing.data("temperature") != 0):
        return
    samples = case.evaluation["samples"].label(f"{suite.data('samples')} samples a question")
    labels = [samples, case.evaluation[name].label("one token is left to draw")]
    message = f"the samples of a question in `{suite.name}` are all equal"
    yield finding_at(warning, "W0534", message, labels, "write `samples = 1`")
