"""Budgets against responses and grids: none past the longest response, each one evaluated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.checks.cases import Case, StageCase, amount, place, set_here
from reodsl.language.units import TOKENS, Quantity, shown, written
from reodsl.language.values import Items, Record
from reodsl.numbers.budgets import Schedule


def check_budgets(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """E0402: a split past the longest response. W0402: responses that go on past the last split. E0405: budgets
    of questions from rollouts that do not exist."""
    split = stage.reward.split if stage.reward is not None else None
    if split is None:
        return
    if split.kind == "question_budgets":
        yield from _rollouts(split)
    slot = stage.record.at("rollout.max_tokens")
    longest = amount(slot.value) if slot is not None else None
    last = split.made.l_max if isinstance(split.made, Schedule) else split.data("to")
    if longest is None or last is None:
        return
    to = split.fields.get("to")
    where = place(to, split.span)
    via = [Label(span, text) for span, text in to.value.via] if to is not None else []
    if last > longest:
        short = written(Quantity(int(longest), TOKENS))
        yield error(
            "E0402",
            "a budget lies past the longest response",
            where,
            shown(Quantity(last, TOKENS)),
            others=[*via, *set_here(slot, stage.record)],
            help=f"write `to: {short}`, or raise `max_tokens`",
        )
    elif last < longest:
        yield warning(
            "W0402",
            "responses go on past the last budget, and earn nothing there",
            where,
            shown(Quantity(last, TOKENS)),
            others=[*via, *set_here(slot, stage.record)],
            help=f"write `to: {written(Quantity(int(longest), TOKENS))}`, or lower `max_tokens`",
        )


def _rollouts(split: Record) -> Iterator[Diagnostic]:
    """Question budgets are estimated from training rollouts, which a checkpoint alone has not."""
    arms = split.get("rollouts")
    for each in arms.data.values if arms is not None and isinstance(arms.data, Items) else ():
        record = each.data
        assert isinstance(record, Record)
        trained = record.made if record.kind == "arm" else record
        if isinstance(trained, Record) and "method" not in trained.fields:
            yield error(
                "E0405",
                f"`{record.name}` has no rollouts to estimate budgets from: nothing is trained in it",
                each.span,
                "a checkpoint",
                help="name arms that are trained with PPO",
            )


def check_grid(case: Case) -> Iterator[Diagnostic]:
    """E0403, E0404, E0406, E0407: the grid of the suite against itself, `reg_to`, and the budgets trained on."""
    suite = case.suite
    grid_slot = suite.fields.get("grid") if suite is not None else None
    if suite is None or grid_slot is None:
        return
    grid = suite.data("grid")
    span = place(grid_slot, suite.span)
    reg_slot, longest_slot = suite.fields.get("reg_to"), suite.fields.get("max_tokens")
    reg_to, longest = suite.data("reg_to"), suite.data("max_tokens")
    for before, after in itertools.pairwise(grid):
        if before >= after:
            yield error(
                "E0406",
                f"the grid does not increase: {after} tokens follow {before}",
                span,
                help="list each budget once, from the smallest to the largest",
            )
            return
    if longest is not None and grid[-1] > longest:
        yield error(
            "E0407",
            "the grid goes on past the longest response",
            span,
            f"up to {grid[-1]} tokens",
            others=set_here(longest_slot, suite),
            help=f"end it at {longest} tokens, or raise `max_tokens`",
        )
    if reg_to is not None and longest is not None and reg_to > longest:
        yield error(
            "E0407",
            "REG integrates past the longest response",
            place(reg_slot, suite.span),
            f"{reg_to} tokens",
            others=set_here(longest_slot, suite),
            help=f"write `reg_to = {written(Quantity(longest, TOKENS))}`, or raise `max_tokens`",
        )
    if grid[0] > 0:
        yield error(
            "E0404",
            "the grid starts after 0, where REG's integral begins",
            span,
            f"from {grid[0]} tokens",
            help="begin it with `0 tokens`",
        )
    if reg_to is not None and grid[-1] < reg_to:
        yield error(
            "E0404",
            "the grid stops before REG's integral does",
            span,
            f"up to {grid[-1]} tokens",
            others=set_here(reg_slot, suite),
            help=f"let it go on to {reg_to} tokens, or lower `reg_to`",
        )
    for stage in case.stages:
        yield from _missed(suite, stage, set(grid), reg_to)


def _missed(suite: Record, stage: StageCase, grid: set[int], reg_to: int | None) -> Iterator[Diagnostic]:
    split = stage.reward.split if stage.reward is not None else None
    if split is None or not isinstance(split.made, Schedule) or reg_to is None:
        return
    missed = [budget for budget in split.made.splits if budget <= reg_to and budget not in grid]
    if missed:
        listed = ", ".join(str(budget) for budget in missed)
        yield warning(
            "W0403",
            f"the evaluation never looks at {'a budget' if len(missed) == 1 else 'budgets'} that training rewards: {listed}",
            place(suite.fields.get("grid"), suite.span),
            "the grid",
            others=[Label(split.span, f"budgets {', '.join(str(b) for b in split.made.budgets)}")],
            help=f"add to the grid: `grid += [{', '.join(f'{budget} tokens' for budget in missed)}]`, in order",
        )


__all__ = ["check_budgets", "check_grid"]
