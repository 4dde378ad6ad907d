"""Checks of what is legal and still wrong, from evaluated experiments and studies to findings."""

from __future__ import annotations

from contextlib import suppress

from reodsl.language.bounds import Enough
from reodsl.language.checks.budgets import check_budgets, check_draws, check_grid
from reodsl.language.checks.cases import cases
from reodsl.language.checks.clusters import check_staged, check_unheeded
from reodsl.language.checks.comparable import check_pool
from reodsl.language.checks.data import check_data
from reodsl.language.checks.lag import check_lag
from reodsl.language.checks.limits import check_limits
from reodsl.language.checks.models import check_models
from reodsl.language.checks.overlap import check_overlap
from reodsl.language.checks.published import check_curves, check_published
from reodsl.language.checks.recipes import check_idle, check_recipe
from reodsl.language.checks.rewards import check_reward
from reodsl.language.checks.rollouts import check_rollouts
from reodsl.language.checks.runnable import runnable
from reodsl.language.checks.studies import check_score, check_study
from reodsl.language.checks.tables import check_tables
from reodsl.language.checks.tools import check_turns
from reodsl.language.checks.trained_amounts import check_trained_amounts
from reodsl.language.checks.unused import check_unused
from reodsl.language.checks.vocabulary import check_vocabulary
from reodsl.language.checks.wordings import check_asked, check_wording
from reodsl.language.program import Program
from reodsl.language.resolve import grid_of
from reodsl.language.reward.selection import type_selection
from reodsl.language.values import Budgets, Compound, Definition, Frontier, Study


def check_program(program: Program) -> None:
    """Run every check; findings go into the program's context. A spec that passed a bound is not looked at further."""
    if program.main is not None and not program.context.ended:
        with suppress(Enough):
            _check(program)


def _check(program: Program) -> None:
    ctx = program.context
    for reward in program.of_type(Definition, "reward").values():
        check_reward(ctx, reward)
    for selection in program.of_type(Definition, "selection").values():
        type_selection(ctx, selection, symbolic=True)
    for wording in program.of_kind("wording").values():
        for finding in check_wording(wording):
            ctx.report(finding)
    for table in program.of_type(Compound, "published").values():
        for finding in check_published(table):
            ctx.report(finding)
    for frontier in program.of_type(Frontier, "frontier").values():
        for finding in check_curves(frontier):
            ctx.report(finding)
    all_cases = cases(program)
    methods = frozenset[str]().union(*(case.methods or () for case in all_cases))
    for case in all_cases:
        if case.repeated:
            continue
        ctx.spend("arms", case.record.span)
        grid = len(grid_of(case.suite))
        for stage in case.stages:
            split = stage.reward.split if stage.reward is not None else None
            points = len(split.schedule.budgets) if isinstance(split, Budgets) else 0
            ctx.spend("stages", stage.record.span)
            ctx.spend("schedules", stage.record.span, grid + points)
            for finding in (
                *check_recipe(case, stage, methods),
                *check_lag(case, stage),
                *check_budgets(case, stage),
                *check_rollouts(ctx, case, stage),
                *check_models(case, stage),
                *check_limits(ctx, stage),
                *check_pool(stage.record, case.record),
                *check_turns(stage),
            ):
                ctx.report(finding)
        for finding in (
            *check_idle(case),
            *check_staged(case),
            *check_grid(case),
            *check_overlap(ctx, case),
            *check_vocabulary(ctx, case),
        ):
            ctx.report(finding)
        for finding in (*check_asked(case.suite), *check_draws(case.suite)):
            ctx.report(finding)
        if case.study is None and case.suite is not None:
            for finding in check_score(case.record, [(case.name, case.suite)]):
                ctx.report(finding)
    for finding in (*check_tables(all_cases), *check_data(program)):
        ctx.report(finding)
    for study in program.of_type(Study, "study").values():
        findings = list(check_study(study, [case for case in all_cases if case.study is study]))
        findings.extend(check_unheeded(ctx, study))
        findings.extend(check_trained_amounts(ctx, study))
        # An experiment may be a parent that others complete; a study is there to be run.
        if not any(finding.severity == "error" for finding in findings):
            findings.extend(runnable(ctx, study))
        for finding in findings:
            ctx.report(finding)
    for finding in check_unused(program):
        ctx.report(finding)
