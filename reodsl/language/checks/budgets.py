"""Budgets against responses and grids: none past the longest response, each one evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.checks.cases import LIBRARY_PATH, Case, StageCase, amount, finding_at, place, set_here
from reodsl.language.checks.comparable import check_vocabularies
from reodsl.language.resolve import grid_of
from reodsl.language.units import TOKENS, Quantity, shown, written
from reodsl.language.values import Budgets, Frontier, Record, items_of, records_of

GREEDY = ("temperature", 0), ("top_k", 1)
"""Settings of sampling that leave one token to draw."""


def check_budgets(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """E0402: a split or a cut past the longest response. W0402: responses that go on past the last split."""
    yield from _cuts(stage)
    split = stage.reward.split if stage.reward is not None else None
    if split is None:
        return
    if split.kind == "question_budgets":
        arms = items_of(split, "rollouts")
        at = place(stage.record.fields.get("reward"), stage.record.span)
        yield from check_vocabularies(f"the budgets of `{case.name}`", arms, case.record, at)
    slot = stage.record.at("rollout.max_tokens")
    longest = amount(slot.value) if slot is not None else None
    last = split.schedule.l_max if isinstance(split, Budgets) else split.data("to")
    if split.kind == "oracle_budgets" and longest is not None:
        yield from _ends_early(split, int(last if last is not None else longest))
    if longest is None or last is None:
        return
    to = split.fields.get("to")
    where = place(to, split.span)
    via = [Label(span, text) for span, text in to.value.via] if to is not None else []
    short = written(Quantity(int(longest), TOKENS))
    if last > longest:
        labels = [Label(where, shown(Quantity(last, TOKENS))), *via, *set_here(slot, stage.record)]
        end = f"write `to: {short}`" if split.called is not None else f"end the list at `{short}`"
        helps = f"{end}, or raise `max_tokens`"
        yield finding_at(error, "E0402", "a budget lies past the longest response", labels, helps)
    elif last < longest and stage.reward is not None and stage.reward.dense is not None:
        labels = [Label(where, shown(Quantity(last, TOKENS))), *via, *set_here(slot, stage.record)]
        end = f"write `to: {short}`" if split.called is not None else f"end the list at `{short}`"
        helps = f"{end}, or lower `max_tokens`"
        message = "responses go on past the last budget, and earn nothing there"
        yield finding_at(warning, "W0402", message, labels, helps)


def _cuts(stage: StageCase) -> Iterator[Diagnostic]:
    """E0402: a reward that cuts responses where none gets to, so that what it asks of them there is never so."""
    slot = stage.record.at("rollout.max_tokens")
    longest = amount(slot.value) if slot is not None else None
    if stage.reward is None or longest is None:
        return
    for least, span in stage.reward.cuts:
        if least <= longest:
            continue
        labels = [Label(span, shown(Quantity(int(least), TOKENS))), *set_here(slot, stage.record)]
        if span.path.startswith(LIBRARY_PATH):
            labels.insert(
                0, Label(place(stage.record.fields.get("reward"), stage.record.span), "this reward")
            )
        helps = f"cut at {written(Quantity(int(longest), TOKENS))} or before, or raise `max_tokens`"
        message = "the reward cuts responses past the longest one"
        yield finding_at(error, "E0402", message, labels, helps)


def _ends_early(split: Record, longest: int) -> Iterator[Diagnostic]:
    """E0408: greedy budgets integrate a frontier up to the longest response, so it has to reach that far."""
    frontier = split.sub("frontier")
    envelope = frontier.envelope if isinstance(frontier, Frontier) else None
    if envelope is None:
        return
    end = envelope.data("to")
    if end < longest:
        labels = [
            Label(split.span, f"budgets up to {longest} tokens"),
            Label(place(envelope.fields.get("to"), envelope.span), f"ends at {end} tokens"),
        ]
        helps = f"write `to: {written(Quantity(longest, TOKENS))}` in the frontier, or `to: …` in `greedy`"
        yield finding_at(
            error, "E0408", "the frontier of these budgets ends before the longest response", labels, helps
        )


def check_grid(case: Case) -> Iterator[Diagnostic]:
    """E0404, E0407, W0403: the grid of the suite against its longest response, `reg_to`, and the budgets trained on."""
    suite = case.suite
    grid = grid_of(suite)
    if suite is None:
        return
    if not grid:
        yield from _twice(suite)
        return
    if suite.get("forcing") is None and "forcing" not in suite.broken:
        labels = [Label(place(suite.fields.get("grid"), suite.span), "cuts responses")]
        helps = "add `forcing = dynasor`, from `std.forcing`, or take the grid out: whole responses alone are then graded"
        yield finding_at(
            error, "E0304", f"`{suite.name}` needs `forcing`, how a cut response answers", labels, helps
        )
    at = place(suite.fields.get("grid"), suite.span)
    reg_slot, longest_slot = suite.fields.get("reg_to"), suite.fields.get("max_tokens")
    reg_to, longest = suite.data("reg_to"), suite.data("max_tokens")
    if longest is not None and grid[-1] > longest:
        labels = [Label(at, f"up to {grid[-1]} tokens"), *set_here(longest_slot, suite)]
        helps = f"end it at {written(Quantity(longest, TOKENS))}, or raise `max_tokens`"
        yield finding_at(error, "E0407", "the grid goes on past the longest response", labels, helps)
    elif reg_to is not None and longest is not None and reg_to > longest:
        labels = [Label(place(reg_slot, suite.span), f"{reg_to} tokens"), *set_here(longest_slot, suite)]
        helps = f"write `reg_to = {written(Quantity(longest, TOKENS))}`, or raise `max_tokens`"
        yield finding_at(error, "E0407", "REG integrates past the longest response", labels, helps)
    yield from _twice(suite)
    if grid[0] > 0:
        labels = [Label(at, f"from {grid[0]} tokens")]
        helps = "add it: `grid += [0 tokens]`"
        yield finding_at(
            error, "E0404", "the grid starts after 0, where REG's integral begins", labels, helps
        )
    if reg_to is not None and grid[-1] < reg_to:
        labels = [Label(at, f"up to {grid[-1]} tokens"), *set_here(reg_slot, suite)]
        helps = f"let it go on to {written(Quantity(reg_to, TOKENS))}, or lower `reg_to`"
        yield finding_at(error, "E0404", "the grid stops before REG's integral does", labels, helps)
    for stage in case.stages:
        yield from _missed(suite, stage, grid, reg_to)


def check_draws(suite: Record | None) -> Iterator[Diagnostic]:
    """W0534: several samples of a question that are all equal. Forced answers that are drawn may still differ."""
    if suite is None or (suite.data("samples") or 1) < 2:
        return
    name = next((name for name, value in GREEDY if suite.data(name) == value), None)
    forcing = suite.sub("forcing") if grid_of(suite) else None
    if name is None or (forcing is not None and forcing.data("temperature") != 0):
        return
    labels = [
        Label(place(suite.fields.get("samples"), suite.span), f"{suite.data('samples')} samples a question"),
        Label(place(suite.fields.get(name), suite.span), "one token is left to draw"),
    ]
    yield finding_at(
        warning,
        "W0534",
        f"the samples of a question in `{suite.name}` are all equal",
        labels,
        "write `samples = 1`",
    )


def _twice(suite: Record) -> Iterator[Diagnostic]:
    """E0208: curves are kept by a benchmark's name."""
    seen: dict[str, Label] = {}
    for benchmark, each in zip(records_of(suite, "benchmarks"), items_of(suite, "benchmarks"), strict=True):
        first = seen.setdefault(benchmark.name, Label(each.span, "first here"))
        if first.span is not each.span:
            helps = "name one of them otherwise"
            message = f"the benchmark `{benchmark.name}` is there twice"
            yield error("E0208", message, each.span, "again here", others=[first], help=helps)


def _missed(
    suite: Record, stage: StageCase, grid: tuple[int, ...], reg_to: int | None
) -> Iterator[Diagnostic]:
    split = stage.reward.split if stage.reward is not None else None
    longest = stage.record.at("rollout.max_tokens")
    if not isinstance(split, Budgets) or reg_to is None or longest is None:
        return
    if split.schedule.l_max > (amount(longest.value) or 0):
        return
    missed = unresolved(split.schedule.splits, grid, reg_to)
    if missed:
        budgets = ", ".join(str(budget) for budget in split.schedule.budgets)
        labels = [
            Label(split.span, f"budgets {budgets}"),
            Label(place(suite.fields.get("grid"), suite.span), "the grid"),
        ]
        count = "a budget" if len(missed) == 1 else "budgets"
        message = (
            f"the evaluation is too coarse for {count} that training rewards: {', '.join(map(str, missed))}"
        )
        helps = f"add to the suite: `grid += [{', '.join(f'{budget} tokens' for budget in missed)}]`"
        yield finding_at(warning, "W0403", message, labels, helps)


def unresolved(splits: Sequence[int], grid: Sequence[int], reg_to: int) -> list[int]:
    """Budgets up to `reg_to` that a grid from 0 up does not resolve.

    Between two of its points accuracy is interpolated. That says enough of one budget there, and cannot tell two apart;
    and before the first point past 0 it says nothing of how a response begins.
    """
    between: list[int] = []
    for low, high in pairwise(grid):
        inside = [budget for budget in splits if low < budget < high and budget <= reg_to]
        between += inside if len(inside) > 1 or low == 0 else []
    return between
