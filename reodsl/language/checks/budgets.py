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
"""Settings of sampling, with the values at which only the most likely token can be drawn."""


def _write_tokens(count: float) -> str:
    return write_quantity(Quantity(int(count), TOKENS))


@ppo_check
def check_cuts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0402 if a reward cuts responses at a budget above the longest response, `rollout.max_tokens`.

    A cut that depends on the response has a range, of which the lower end (`cut.low`) is compared.
    """
    longest = stage["rollout.max_tokens"]
    for cut, span in stage.formula.cuts:
        if cut.low <= longest.number:
            continue
        labels = [Label(span, format_quantity(Quantity(int(cut.low), TOKENS))), *longest.labels]
        if span.path.startswith(LIBRARY_PATH):
            labels.insert(0, stage["reward"].label("this reward"))
        hint = f"cut at {_write_tokens(longest.number)} or before, or raise `max_tokens`"
        yield finding_at(error, "E0402", "the reward cuts responses past the longest one", labels, hint)


@ppo_check
def check_shared_budgets(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0606 if a reward's budgets are estimated from an arm with another vocabulary than the trained model.

    Only the first arm with another vocabulary is reported.
    """
    split = stage.formula.split
    if split is not None and split.kind == "question_budgets":
        arms, span = list_items(split, "rollouts"), stage["reward"].span
        yield from check_vocabularies(f"the budgets of `{case.name}`", arms, case.record, span)


@ppo_check
def check_last_budget(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Compare a reward's last budget with the longest response, `rollout.max_tokens`.

    Report E0402 if the budget is larger. Report W0402 if the budget is smaller and the reward is dense: tokens
    after the last budget then earn nothing. Budgets without an end `to` go up to the longest response, and are not
    reported. Also report E0408 if the budgets are found on a frontier that ends before them. In the code, `split`
    is the record of the reward's budgets: the positions, in tokens, at which a response is divided.
    """
    split, longest = stage.formula.split, stage["rollout.max_tokens"]
    if split is None:
        return
    last = split.schedule.l_max if isinstance(split, WrittenBudgets) else split.data("to")
    if split.kind == "oracle_budgets":
        yield from _check_frontier_end(split, int(last if last is not None else longest.number))
    dense = stage.formula.dense is not None
    if last is None or not (last > longest.number or (last < longest.number and dense)):
        return
    to, short = Settings(split)["to"], _write_tokens(longest.number)
    origins = [Label(span, text) for span, text in to.value.defined_at] if to.slot is not None else []
    labels = [to.label(format_quantity(Quantity(last, TOKENS))), *origins, *longest.labels]
    remedy = f"write `to: {short}`" if split.computed_by is not None else f"end the list at `{short}`"
    if last > longest.number:
        hint, message = f"{remedy}, or raise `max_tokens`", "a budget lies past the longest response"
        yield finding_at(error, "E0402", message, labels, hint)
    else:
        hint = f"{remedy}, or lower `max_tokens`"
        message = "responses may go on past the last budget, and earn nothing after it"
        yield finding_at(warning, "W0402", message, labels, hint)


def _check_frontier_end(split: Record, longest: int) -> Iterator[Diagnostic]:
    """Report E0408 if the frontier from which budgets are chosen ends before the last budget.

    A published frontier is not checked, since only a frontier over arms has an end `to`.

    Args:
        split: The budgets of a reward as a call of `greedy(…)`, whose `frontier` is compared.
        longest: The last budget in tokens: `to` of the call, or else the longest response.
    """
    frontier = split.sub("frontier")
    envelope = frontier.envelope if isinstance(frontier, DeclaredFrontier) else None
    end = envelope.data("to") if envelope is not None else longest
    if envelope is not None and end < longest:
        ends = Settings(envelope)["to"].label(f"ends at {end} tokens")
        labels = [Label(split.span, f"budgets up to {longest} tokens"), ends]
        hint = f"write `to: {_write_tokens(longest)}` in the frontier, or `to: …` in `greedy`"
        message = "the frontier of these budgets ends before the longest response"
        yield finding_at(error, "E0408", message, labels, hint)


@ppo_check
def check_rollouts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check the arms whose rollouts a reward's budgets are estimated from.

    Report E0405 for the first arm without PPO, whose training has no rollouts. Report E0408 if the responses of all
    arms are shorter than the last budget, and W0404 if no arm is trained on the questions of the stage.
    """
    split = stage.formula.split
    if split is None or split.kind != "question_budgets":
        return
    values, sampled = list_items(split, "rollouts"), list[Record]()
    for arm, value in zip(list_records(split, "rollouts"), values, strict=True):
        stages = _list_stages(case.ctx, arm)
        if stages is None:
            return  # The missing setting is reported at the arm's declaration.
        ppo_stages = [recipe for recipe in stages if recipe.data("method") == "ppo"]
        if not ppo_stages:
            yield error(
                "E0405",
                f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
                value.span,
                "a checkpoint" if not stages else str(stages[-1].data("method")).upper(),
                help="name arms that are trained with PPO",
            )
            return
        sampled += ppo_stages
    if sampled:
        yield from _check_arm_lengths(split, stage, sampled)
        yield from _check_sampled_questions(case, stage, values, sampled)


def _list_stages(ctx: Context, record: Record) -> list[Record] | None:
    """Return the stages of the experiment that trains an arm's checkpoint, up to this checkpoint.

    Returns:
        The stages with all their settings. The list is empty if no experiment trains the checkpoint. The result is
        None if a stage lacks a required setting, which is reported elsewhere.
    """
    for source, last_stage in walk_ancestry(record):
        if isinstance(source, DeclaredExperiment) and source.is_trained:
            stages: list[Record] = [stage for _, stage in complete_stages(ctx, source)]
            return stages[: None if last_stage is None else last_stage + 1] or None
    return []


def _check_arm_lengths(split: Record, stage: CheckedStage, sampled: Sequence[Record]) -> Iterator[Diagnostic]:
    """Report E0408 if the responses of all arms are shorter than the largest budget that is estimated from them.

    Args:
        split: The budgets of the reward, a call of `estimate(…)`.
        stage: The stage whose reward has these budgets.
        sampled: The PPO stages of the arms, whose rollouts are read.
    """
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
            f"the budgets and the responses at {_write_tokens(most.number)}",
        )


def _check_sampled_questions(
    case: CheckedExperiment, stage: CheckedStage, values: Sequence[Value], sampled: Sequence[Record]
) -> Iterator[Diagnostic]:
    """Report W0404 if no arm is trained on the questions of a stage whose budgets are estimated from rollouts.

    Some questions of the stage then have no rollouts to estimate budgets from.

    Args:
        case: The experiment or arm that is trained.
        stage: The stage whose reward estimates budgets from rollouts.
        values: The arms that the budgets name, with their spans.
        sampled: The PPO stages of these arms, whose rollouts are read.
    """
    questions = stage.record.sub("data")
    # A selection keeps some questions of its pool: an arm that is trained on the whole pool has rollouts of them.
    pool_data = find_questions(questions)
    if (
        questions is None
        or pool_data is None
        or any(means_same(item.sub("data"), data) for item in sampled for data in (questions, pool_data))
    ):
        return
    arm_data = next((data for item in sampled if (data := item.sub("data")) is not None), None)
    yield warning(
        "W0404",
        f"`{case.name}` is trained on questions that none of these arms was trained on",
        values[0].span,
        "trained on other data" if arm_data is None else f"trained on `{arm_data.name}`",
        labels=stage["data"].setting_labels(f"asks `{questions.name}`"),
        notes=["for a question without rollouts, only the complete response is rewarded"],
        help=f"name arms that are trained on `{pool_data.name}`, or train on their data",
    )


@case_check
def check_grid(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Check the grid of a suite, the budgets at which it cuts responses.

    Report E0304 if the suite has a grid and no `forcing`, and E0404 if grid, `reg_to` (where REG's integral
    ends) and the longest response do not fit each other.
    """
    grid = sort_grid(case.suite)
    suite, name = case.evaluation, case.evaluation.record.name
    if not grid:
        return
    cut, reg_to, longest = suite["grid"], suite["reg_to"], suite["max_tokens"]
    findings: list[tuple[str, str, list[Label], str]] = []
    if "forcing" not in suite and "forcing" not in suite.record.invalid:
        hint = "add `forcing = dynasor`, from `std.forcing`, or take the grid out to grade complete responses only"
        message = f"`{name}` needs `forcing`, the text that makes a cut response answer"
        findings.append(("E0304", message, [cut.label("cuts responses")], hint))
    if longest.slot is not None and grid[-1] > longest.number:
        labels = [cut.label(f"up to {grid[-1]} tokens"), *longest.labels]
        hint = f"end it at {_write_tokens(longest.number)}, or raise `max_tokens`"
        findings.append(("E0404", "the grid goes on past the longest response", labels, hint))
    elif reg_to.slot is not None and longest.slot is not None and reg_to.number > longest.number:
        labels = [reg_to.label(f"{reg_to.number} tokens"), *longest.labels]
        hint = f"write `reg_to = {_write_tokens(longest.number)}`, or raise `max_tokens`"
        findings.append(("E0404", "REG integrates past the longest response", labels, hint))
    if grid[0] > 0:
        labels, hint = [cut.label(f"from {grid[0]} tokens")], "let the grid start at 0 tokens"
        findings.append(("E0404", "the grid starts after 0, where REG's integral begins", labels, hint))
    if reg_to.slot is not None and grid[-1] < reg_to.number:
        labels = [cut.label(f"up to {grid[-1]} tokens"), *reg_to.labels]
        hint = f"let it go on to {_write_tokens(reg_to.number)}, or lower `reg_to`"
        findings.append(("E0404", "the grid stops before REG's integral does", labels, hint))
    for code, message, labels, hint in findings:
        yield finding_at(error, code, message, labels, hint)


@case_check
def check_grid_resolves(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0403 for budgets at which a reward cuts responses and which the suite's grid is too coarse to resolve.

    `find_unresolved` defines which budgets these are. Only budgets that the spec lists are checked, since other
    budgets are found during the run.
    """
    grid = sort_grid(case.suite)
    for stage in case.stages if grid else ():
        split = stage.reward.split if stage.reward is not None and stage.formula.cuts else None
        reg_to, longest = case.evaluation["reg_to"], stage["rollout.max_tokens"]
        if not isinstance(split, WrittenBudgets) or split.schedule.l_max > longest.number:
            continue
        if stage.reward is not None and not stage.reward.uses & {"forced", "bare"}:
            continue  # It grades no answer there.
        missed = find_unresolved(split.schedule.splits, grid, reg_to.number)
        if missed:
            budgets = listed([str(budget) for budget in split.schedule.budgets], MOST_SHOWN)
            labels = [Label(split.span, f"budgets {budgets}"), case.evaluation["grid"].label("the grid")]
            noun = f"{'a budget' if len(missed) == 1 else 'budgets'} that training rewards"
            message = f"the evaluation is too coarse for {noun}: {listed([*map(str, missed)], MOST_SHOWN)}"
            hint = f"add to the suite: `grid += [{', '.join(f'{budget} tokens' for budget in missed)}]`, or to its list"
            yield finding_at(warning, "W0403", message, labels, hint)


def find_unresolved(splits: Sequence[int], grid: Sequence[int], reg_to: int) -> list[int]:
    """Return the budgets of a reward that an evaluation's grid does not resolve.

    Accuracy is interpolated between two neighbouring points of the grid. An interpolation suffices for one
    budget between the points, but not for two budgets, which it cannot distinguish. Between 0 and the first
    larger point it suffices for no budget, since it does not show how a response begins.

    Args:
        splits: The budgets that training rewards, in tokens.
        grid: The budgets of the suite, in tokens, increasing from 0.
        reg_to: The upper limit of REG's integral, in tokens; larger budgets are left out.
    """
    unresolved: list[int] = []
    for low, high in pairwise(grid):
        inside = [budget for budget in splits if low < budget < high and budget <= reg_to]
        unresolved += inside if len(inside) > 1 or low == 0 else []
    return unresolved


@case_check
def check_benchmarks(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0208 if two benchmarks of a suite have the same name, since curves are stored by this name."""
    seen: dict[str, Label] = {}
    named = zip(list_records(case.suite, "benchmarks"), list_items(case.suite, "benchmarks"), strict=True)
    for benchmark, value in named:
        first = seen.setdefault(benchmark.name, Label(value.span, "first here"))
        if first.span is not value.span:
            hint = "give one of them another name"
            message = f"the benchmark `{benchmark.name}` is listed twice"
            yield error("E0208", message, value.span, "again here", labels=[first], help=hint)


@case_check
def check_draws(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report W0534 if a suite takes several samples of a question with settings that make all samples equal.

    There is no finding if the suite has a grid and its forcing samples answers with a temperature above 0: forced
    answers then differ even if the responses are equal.
    """
    suite = case.evaluation.record
    if (suite.data("samples") or 1) < 2:
        return
    name = next((name for name, value in GREEDY_SETTINGS if suite.data(name) == value), None)
    forcing = suite.sub("forcing") if sort_grid(suite) else None
    if name is None or (forcing is not None and forcing.data("temperature") != 0):
        return
    samples = case.evaluation["samples"].label(f"{suite.data('samples')} samples a question")
    labels = [samples, case.evaluation[name].label("draws the most likely token")]
    message = f"the samples of a question in `{suite.name}` are all equal"
    yield finding_at(warning, "W0534", message, labels, "write `samples = 1`")
