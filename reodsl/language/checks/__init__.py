"""Check what is legal and still wrong in evaluated experiments and studies, and what nothing uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from reodsl.diagnostics.model import Diagnostic, group, warning
from reodsl.language.bounds import STAGE_STEPS, LimitReached
from reodsl.language.checks import budgets, loss, training  # noqa: F401
from reodsl.language.checks.cases import (
    CASE_CHECKS,
    STAGE_CHECKS,
    STUDY_CHECKS,
    CheckedExperiment,
    CheckedStudy,
    list_cases,
    run_checks,
)
from reodsl.language.checks.data import check_data
from reodsl.language.checks.idle import check_idle_declarations
from reodsl.language.checks.published import check_curves, check_published
from reodsl.language.checks.rewards import check_wording
from reodsl.language.checks.studies import check_runnable, check_score
from reodsl.language.context import Context
from reodsl.language.program import Program
from reodsl.language.resolve import sort_grid
from reodsl.language.reward.body import type_measure, type_reward
from reodsl.language.reward.selection import type_selection
from reodsl.language.values import Composite, DeclaredFrontier, DeclaredStudy, Definition, WrittenBudgets
from reodsl.syntax import tree


def check_program(program: Program) -> None:
    """Run every check of a spec and report the findings in the program's context.

    Checking ends early if it takes more work than `language/bounds.py` allows, which is itself a finding.
    """
    if program.main is not None and not program.context.is_stopped:
        with suppress(LimitReached):
            _type_bodies(program.context, type_reward, program.list_type(Definition, "reward"))
            _type_bodies(program.context, type_measure, program.list_type(Definition, "measure"))
            _type_bodies(program.context, type_selection, program.list_type(Definition, "selection"))
            for finding in _run_all_checks(program):
                program.context.report(finding)


def _type_bodies(ctx: Context, type_: Callable[..., object], items: Mapping[str, Definition]) -> None:
    """Check the types in the bodies of definitions, for any arguments of a call.

    A call may have been refused because an argument has another type than its parameter (`ctx.refused_types`). If
    the body is sound with the type of the argument, this mismatch is the only mistake. It was reported at the call,
    and nothing is reported in the body.

    Args:
        ctx: The context to which mistakes are reported.
        type_: The function that types the body of a definition, such as `type_reward`.
        items: The definitions of a kind by their names.
    """
    for definition in items.values():
        params = [
            replace(param, type=tree.TypeName(ctx.refused_types[param.span], param.type.span))
            if param.span in ctx.refused_types
            else param
            for param in definition.item.params or ()
        ]
        retyped = replace(definition, item=replace(definition.item, params=tuple(params)))
        if params == [*(definition.item.params or ())] or type_(ctx.trial(), retyped, symbolic=True) is None:
            type_(ctx, definition, symbolic=True)


def _run_all_checks(program: Program) -> Iterator[Diagnostic]:
    """Yield the findings about declarations, then experiments and arms, data, studies, and unused names."""
    ctx, listed = program.context, list_cases(program)
    for wording in program.list_kind("wording").values():
        yield from check_wording(wording)
    yield from check_idle_declarations(program)
    for table in program.list_type(Composite, "published").values():
        yield from check_published(table)
    for frontier in program.list_type(DeclaredFrontier, "frontier").values():
        yield from check_curves(frontier)
    for case in listed:
        if not case.is_repeated:
            yield from _check_case(case)
    yield from check_data(program)
    arms = group((id(case.study), case) for case in listed)
    for study in program.list_type(DeclaredStudy, "study").values():
        findings = [*run_checks(STUDY_CHECKS, CheckedStudy(study, ctx, study, arms.get(id(study), [])))]
        # An experiment may be a parent that others complete; a study is there to be run.
        if not any(finding.severity == "error" for finding in findings):
            findings.extend(check_runnable(ctx, study))
        yield from findings
    yield from check_unused(program)


def _check_case(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Yield the findings about the stages of an experiment or an arm, then about the whole experiment.

    The work of each stage, which grows with the budgets of its reward and its suite, is counted against the
    limit of the spec.
    """
    for stage in case.stages:
        split = stage.reward.split if stage.reward is not None else None
        num_budgets = len(split.schedule.budgets) if isinstance(split, WrittenBudgets) else 0
        case.ctx.charge(stage.record.span, STAGE_STEPS)
        case.ctx.charge(stage.record.span, len(sort_grid(case.suite)) + num_budgets)
        yield from run_checks(STAGE_CHECKS, case, stage)
    yield from run_checks(CASE_CHECKS, case)
    if case.study is None and case.suite is not None:
        yield from check_score(case.record, [(case.name, case.suite)])


def check_unused(program: Program) -> Iterator[Diagnostic]:
    """Report W0201 for each import, declaration and param of the main file, and each track, that nothing uses.

    The studies of a file count as used, since they are run. If there is no study, its experiments count as used. A
    file with neither is a library: only its imports are checked. Two kinds of import are never reported, since the
    command line may use them: params, and declarations of the type of a param of this file.
    """
    main, ctx = program.main, program.context
    if main is None or not program.is_sound:
        return
    kinds = {name: item.kind.name for name, item in main.items.items() if isinstance(item, tree.Decl)}
    types = {getattr(item.type, "name", "") for item in main.items.values() if isinstance(item, tree.Param)}
    for name, imported in main.imports.items():
        source = ctx.modules.loaded.get(imported.module or "")
        item = source.items.get(imported.name) if source is not None else None
        # The command line can set an imported param, and can set a param of this file to an imported declaration.
        settable = isinstance(item, tree.Param) or (isinstance(item, tree.Decl) and item.kind.name in types)
        if (main.key, name) not in ctx.used_imports and not settable:
            yield warning(
                "W0201",
                f"`{name}` is imported and never used",
                imported.node.span,
                "unused",
                help="take it out of the import",
            )
    runnable = [name for name, kind in kinds.items() if kind == "study"] or [
        name for name, kind in kinds.items() if kind == "experiment"
    ]
    if not runnable or main.std:
        return
    yield from (found for name, found in ctx.unread_tracks if name not in ctx.stage_numbers)
    for name, item in main.items.items():
        if name not in runnable and (main.key, name) not in ctx.used_items:
            yield warning(
                "W0201",
                f"the {kinds.get(name, 'param')} `{name}` is never used",
                item.name.span,
                "unused",
                help="use it, or take it out",
            )
