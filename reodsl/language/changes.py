"""Apply changes of the command line (`--set`, `--amend`) to declarations, and complete the stages of experiments.

An `--amend` is applied like a block of settings at the end of the declaration that it names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Block
from reodsl.ir.training import TRAINING
from reodsl.language.blocks import apply_block
from reodsl.language.bounds import STAGE_STEPS
from reodsl.language.context import Context, NoValue, attempt, try_all
from reodsl.language.evaluate import list_stages
from reodsl.language.finish import fill_defaults
from reodsl.language.modules import ParsedFile
from reodsl.language.resolve import WITHOUT_TRAINING
from reodsl.language.suggest import suggest
from reodsl.language.units import read_dimension, scale
from reodsl.language.values import DeclaredExperiment, DeclaredStage, Override, Owner, Record, Scope
from reodsl.syntax import parse_expression, tree
from reodsl.syntax.source import Source


def read_changes(ctx: Context, main: ParsedFile, sets: Mapping[str, str], amends: Mapping[str, str]) -> None:
    """Parse the values of `--set` and `--amend`, and store each change with the declaration that it changes.

    A change that names its declaration is applied after changes of all experiments, so it wins.

    Args:
        ctx: The state of the evaluation; `sets` and `amends` are filled, and errors (E0211) are reported.
        main: The spec's file.
        sets: Texts of values by the names of params.
        amends: Texts of values by the dotted paths of settings.
    """
    params = _list_params(ctx, main)
    for name, text in sets.items():
        where = f"--set {name}"
        if name not in params:
            ctx.error(
                "E0211",
                f"there is no param `{name}`",
                where=where,
                help=_find_elsewhere(ctx, main, name)
                or (suggest(name, params, "params are") if params else "this spec declares no param"),
            )
            continue
        value = _parse_value(ctx, where, text)
        if value is not None:
            ctx.sets[params[name]] = Override("--set", name, text, value)
    for target, text in amends.items():
        where = f"--amend {target}"
        if "[" in target:
            ctx.error(
                "E0211",
                f"`{target}` is not a setting",
                where=where,
                help=f"write dots instead of brackets: `--amend {_write_points(target)}=…`",
            )
            continue
        path = tuple(target.split("."))
        value = _parse_value(ctx, where, text)
        if value is None:
            continue
        owners = [] if "" in path else _find_owners(ctx, main, path)
        if not owners:
            names = [*(name for name in _list_declarations(main) if name != path[0]), *TRAINING]
            ctx.error(
                "E0211",
                f"`{target}` is not a setting"
                if "" in path or path[0] in _list_declarations(main)
                else f"there is nothing called `{path[0]}` to amend",
                where=where,
                help=_suggest_path(main, path, names),
            )
        for owner, rest, where_set in owners:
            ctx.amends.setdefault(owner, []).append(Override("--amend", target, text, value, rest, where_set))
    for changes in ctx.amends.values():
        # Changes that name their declaration are applied last, so that they win over general changes.
        changes.sort(key=lambda change: ".".join(change.path) != change.target)


def _suggest_path(main: ParsedFile, path: tuple[str, ...], names: list[str]) -> str:
    """Return help for an `--amend` path that matches nothing.

    Args:
        main: The spec's file.
        path: The path, split at its dots.
        names: The declarations and settings that a path may begin with.
    """
    head = path[0]
    if "" in path:
        return "write names with one dot between them, as in `--amend optim.lr=1e-6`"
    if head in ("stages", "stage"):
        return "name the experiment: `--amend EXPERIMENT.stages.NAME.SETTING=…`"
    if isinstance(main.items.get(head), tree.Param):
        return f"`{head}` is a param: `--set {head}=…`"
    if head in _list_declarations(main):
        return f"name one of its settings, as in `--amend {head}.SETTING=…`"
    blocks = {name: field.type.kind for name, field in TRAINING.items() if isinstance(field.type, Block)}
    inside = next((name for name, kind in blocks.items() if head in KINDS[kind].fields), None)
    return f"did you mean `--amend {inside}.{head}=…`?" if inside else suggest(head, names, "there is")


def _write_points(target: str) -> str:
    """Return a path with dots for brackets: `mine.stages[8K tokens].steps` gives `mine.stages.8192.steps`."""

    def point(match: re.Match[str]) -> str:
        """Return the text in a pair of brackets as a step of a path; `NUMBER` for a number that cannot be read."""
        text = match[1].strip()
        number = parse_expression(Source("", text)).expression
        if isinstance(number, tree.Number):
            value = scale(number.value, number.suffix, read_dimension(number.unit) or ())
            return ".NUMBER" if value is None else f".{value}"
        return ".NUMBER" if text[:1].isdigit() else f".{text}"

    return re.sub(r"\[([^\]]+)\]", point, target)


def _parse_value(ctx: Context, option: str, text: str) -> tree.Expr | None:
    """Return the expression of a change's value; None if it has syntax errors, which were reported.

    Args:
        ctx: The state of the evaluation.
        option: The option as typed, such as `--set lr`. Messages show it as the path.
        text: The value as typed.
    """
    ctx.modules.sources[option] = text
    result = parse_expression(Source(option, text))
    for finding in result.diagnostics:
        is_list = not parse_expression(Source(option, f"[{text}]")).diagnostics
        ctx.report(replace(finding, help=f"write a list in brackets: `[{text}]`") if is_list else finding)
    return result.expression


def _list_params(ctx: Context, main: ParsedFile) -> dict[str, Owner]:
    """Return the params that `--set` may change, by the name in the main file: its own and imported ones.

    Returns:
        For each name (the key of the declaring file, the name in that file).
    """
    params = {name: (main.key, name) for name, item in main.items.items() if isinstance(item, tree.Param)}
    for name, imported in main.imports.items():
        target = ctx.modules.loaded.get(imported.module or "")
        if target is not None and isinstance(target.items.get(imported.name), tree.Param):
            params[name] = (target.key, imported.name)
    return params


def _find_elsewhere(ctx: Context, main: ParsedFile, name: str) -> str | None:
    """Return help for a `--set` of a param that another file of the spec declares; None if no file declares it.

    Args:
        ctx: The state of the evaluation, with the loaded files.
        main: The spec's file, whose own params are left out.
        name: The name of the param.
    """
    for key, module in ctx.modules.loaded.items():
        item = module.items.get(name) if module is not None and module is not main else None
        if module is None or not isinstance(item, tree.Param):
            continue
        path = "std." + key.partition(":")[2]
        if not module.std:
            parts = Path(os.path.relpath(key, Path(main.key).parent)).with_suffix("").parts
            path = "." + "".join("." if folder == ".." else f"{folder}." for folder in parts)[:-1]
        location = f"{module.path}:{item.name.span.line}"
        return f"it is a param of {location}: change it there, or import it here, `from {path} import {name}`, and set it"
    return None


def _list_declarations(main: ParsedFile) -> list[str]:
    """Return the names that an `--amend` path may begin with: declarations, imports, and members of studies."""
    members = [member.name.name for _, members in main.studies() for member in members]
    return [*main.items, *main.imports, *members]


def _find_owners(
    ctx: Context, main: ParsedFile, path: tuple[str, ...]
) -> list[tuple[Owner, tuple[str, ...], bool]]:
    """Return the declarations that an `--amend` path changes; empty if the path matches nothing.

    The path may begin with the name of a declaration or arm. Otherwise its first name is a setting:

    - A setting of studies changes the file's studies.
    - A setting of training changes every experiment of the user's files, and arms that change settings.
    - A setting of both changes the studies, and the experiments and arms that have the setting.

    Args:
        ctx: The state of the evaluation.
        main: The spec's file.
        path: The path, split at its dots.

    Returns:
        For each declaration: its file and name, the path of the setting inside the declaration, and whether
        the change is only for a declaration that has the setting already.
    """
    head, subpath = path[0], path[1:]
    if subpath:
        item = main.items.get(head)
        if isinstance(item, tree.Decl):
            return [((main.key, head), subpath, False)]
        imported = main.imports.get(head)
        if imported is not None and imported.module is not None:
            return [((imported.module, imported.name), subpath, False)]
        arms = [owner for owner, _ in _list_arms(main, any_member=True) if owner[1].endswith(f".{head}")]
        if arms:
            return [(owner, subpath, False) for owner in arms]
    studies = [study.name.name for study, _ in main.studies()]
    is_also_of_study = bool(studies) and head in KINDS["study"].fields
    owners = [((main.key, study), path, False) for study in studies] if is_also_of_study else []
    if head in TRAINING:
        owners += [(owner, path, is_also_of_study) for owner in _list_trained(ctx, main)]
    return owners


def _list_arms(main: ParsedFile, any_member: bool = False) -> list[tuple[Owner, tree.Decl]]:
    """Return the arms of the file's studies, each as the pair ((key of the file, `STUDY.ARM`), declaration).

    With `any_member` the frontiers of the studies are returned as well.
    """
    return [
        ((main.key, f"{study.name.name}.{member.name.name}"), member)
        for study, members in main.studies()
        for member in members
        if any_member or member.kind.name == "arm"
    ]


def _list_trained(ctx: Context, main: ParsedFile) -> list[Owner]:
    """Return the file and name of each experiment in the user's files, and of each arm that changes settings."""
    user_files = [loaded for loaded in ctx.modules.loaded.values() if loaded is not None and not loaded.std]
    owners = [
        (loaded.key, name)
        for loaded in user_files
        for name, item in loaded.items.items()
        if isinstance(item, tree.Decl) and item.kind.name == "experiment"
    ]
    return [*owners, *(owner for owner, arm in _list_arms(main) if isinstance(arm.value, tree.Amend))]


R = TypeVar("R", bound=Record)
STAGES = ("stages", "stage")
"""The words that begin the path to a setting of one stage."""
REMOVABLE = frozenset({"cluster", "limit"})
"""Settings that `--amend NAME=none` removes: no value means a run on this machine or without a limit of costs."""


def apply_amends(ctx: Context, record: R, owner: Owner | None, scope: Scope, *, stage: bool = False) -> R:
    """Return a record after the `--amend` changes of its declaration.

    A change of a single stage, with a path such as `stages.warm.steps`, is stored in `stage_changes` of the
    result, and applied when the stages are complete. If the experiment has no stages, E0211 is reported.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record of the declaration.
        owner: The declaration's file and name.
        scope: The names that the values may use.
        stage: True if the record is one stage of the experiment that `owner` names. A change of a setting
            that stages do not have is then skipped, because it applies to the whole experiment.
    """
    for change in ctx.amends.get(owner or ("", ""), ()):
        head = change.path[0]
        if stage and head not in KINDS[record.kind].fields:
            continue  # The experiment reported it, or it is in `stage_changes`.
        if not (isinstance(record, DeclaredExperiment) and head in STAGES):
            record = _apply_change(ctx, record, change, scope)
        elif record.stages and len(change.path) > 2:
            record = replace(record, stage_changes=(*record.stage_changes, change))
        else:
            target = change.target.removesuffix("." + ".".join(change.path))
            words = f"`{record.name}` has no stages"
            setting = change.path[-1] if len(change.path) > 2 else "SETTING"
            advice = f"change a setting of its own: `--amend {target}.{setting}=…`"
            if record.stages:
                first = record.stages[0]
                name = first.name if isinstance(first, DeclaredStage) else "1"
                words = "stages are amended setting by setting"
                advice = f"name a stage, and then its setting: `--amend {target}.stages.{name}.steps=…`"
            ctx.applied_amends.add(change.target)
            ctx.error("E0211", words, change.value.span, help=advice)
    return record


def amend_stage(
    ctx: Context,
    stage: DeclaredExperiment,
    decls: Sequence[DeclaredStage],
    index: int,
    changes: Sequence[Override],
) -> DeclaredExperiment:
    """Return a stage after the `--amend` changes that name it; report a change whose stage does not exist.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        stage: The stage's settings.
        decls: All stages of the experiment.
        index: The index of this stage in `decls`.
        changes: The changes of single stages.
    """
    names = [decl.name for decl in decls]
    for change in changes:
        if change.path[1] == names[index]:
            stage = _apply_change(ctx, stage, replace(change, path=change.path[2:]), decls[index].scope)
        elif change.path[1] not in names and change.target not in ctx.applied_amends:
            ctx.applied_amends.add(change.target)
            words = f"`{stage.name}` has no stage `{change.path[1]}`"
            ctx.error(
                "E0211", words, change.value.span, help=suggest(change.path[1], names, "its stages are")
            )
    return stage


def _apply_change(ctx: Context, record: R, change: Override, scope: Scope) -> R:
    """Return a record after one change of the command line.

    The record is returned unchanged in three cases. The record is not trained, and the change names a setting
    of training but no declaration. The change is only for records with the setting (`where_set`), and the
    record lacks the setting. The value is `none`, and there is no setting to remove.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record before the change.
        change: The `--amend`, whose `path` is relative to the record.
        scope: The names that the new value may use.
    """
    head, has_no_owner_name = change.path[0], ".".join(change.path) == change.target
    untrained = isinstance(record, DeclaredExperiment) and not record.is_trained
    if untrained and has_no_owner_name and head not in WITHOUT_TRAINING:
        return record
    slot = record.fields.get(head)
    if slot is None and change.where_set:
        return record
    if change.path == (head,) and head in REMOVABLE and change.value == tree.Name("none", change.value.span):
        if slot is None:
            return record
        ctx.applied_amends.add(change.target)
        return replace(record, fields={name: item for name, item in record.fields.items() if name != head})
    ctx.applied_amends.add(change.target)
    return apply_block(ctx, record, change.block, scope, record.doc)


def report_unmet(ctx: Context, changes: Iterable[Override]) -> None:
    """Report E0211 once for each target of `--amend` that changed no record while the spec was evaluated."""
    for change in changes:
        if change.target in ctx.applied_amends:
            continue
        head = change.target.partition(".")[0]
        remedy = f"leave it out, use `{head}` in the study or experiment to run, or amend the whole setting that reads it"
        ctx.error("E0211", f"nothing that runs has `{change.target}`", change.value.span, help=remedy)
        ctx.applied_amends.add(change.target)


def expand_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment, each with its declaration and with all its settings.

    An experiment without stages is returned as its only stage, with None as the declaration.
    """
    if not experiment.stages:
        return [(None, experiment)]
    complete: list[tuple[DeclaredStage | None, DeclaredExperiment]] = []
    decls, base = list_stages(ctx, experiment), replace(experiment, stages=())
    for i, decl in enumerate(decls):
        stage = apply_block(ctx, base, decl.block, decl.scope, decl.block.doc or experiment.doc)
        stage = report_nested(ctx, stage)
        stage = apply_amends(ctx, stage, experiment.owner, decl.scope, stage=True)
        if experiment.stage_changes:
            stage = amend_stage(ctx, stage, decls, i, experiment.stage_changes)
        complete.append((decl, stage))
    return complete


def complete_experiment(ctx: Context, experiment: DeclaredExperiment) -> DeclaredExperiment:
    """Return an experiment after checking that every stage has its required settings.

    If the experiment names no suite (`eval`), it gets the suite of its last stage. An experiment without
    training is returned as it is.

    Raises:
        NoValue: A stage lacks a setting; the error was reported.
    """
    if not experiment.is_trained:
        return experiment
    complete = complete_stages(ctx, experiment)
    if not complete:
        raise NoValue
    last = complete[-1][1].fields.get("eval")
    return experiment if last is None or "eval" in experiment.fields else experiment.with_field("eval", last)


def complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment, each with its declaration and with all defaults filled in.

    The list is empty if a stage lacks a required setting, which is reported. The result is cached by experiment.
    """
    return ctx.memoize("stages", experiment, lambda: _complete_stages(ctx, experiment))


def _complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment with all defaults, or an empty list after an error, without the cache."""

    def complete(
        stage: tuple[DeclaredStage | None, DeclaredExperiment],
    ) -> tuple[DeclaredStage | None, DeclaredExperiment]:
        """Return a stage with its defaults filled in."""
        decl, record = stage
        ctx.charge(record.span, STAGE_STEPS)
        return decl, fill_defaults(ctx, record, KINDS["experiment"], decl)

    return attempt(lambda: try_all(complete, expand_stages(ctx, experiment))) or []


def report_nested(ctx: Context, stage: DeclaredExperiment) -> DeclaredExperiment:
    """Return a stage's settings without stages inside, after reporting E0202 for the first stage inside."""
    for nested in stage.stages[:1]:
        ctx.error(
            "E0202",
            "a stage cannot contain stages",
            nested.span,
            "not here",
            help="write them after one another in the experiment: `stage NAME { … }`",
        )
    return replace(stage, stages=()) if stage.stages else stage
