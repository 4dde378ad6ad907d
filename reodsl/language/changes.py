"""Lay changes of the command line (`--set`, `--amend`) over declarations, and complete the stages of experiments.

An `--amend` is a block, laid over what it names as if it stood last in its declaration.
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
    """Parse the changes and note, in the context, which params and declarations they belong to."""
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
        value = _parse(ctx, where, text)
        if value is not None:
            ctx.sets[params[name]] = Override("--set", name, text, value)
    for target, text in amends.items():
        where = f"--amend {target}"
        if "[" in target:
            ctx.error(
                "E0211",
                f"`{target}` is not a setting",
                where=where,
                help=f"write points in place of brackets: `--amend {_write_points(target)}=…`",
            )
            continue
        path = tuple(target.split("."))
        value = _parse(ctx, where, text)
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
                help=_suggest(main, path, names),
            )
        for owner, rest, where_set in owners:
            ctx.amends.setdefault(owner, []).append(Override("--amend", target, text, value, rest, where_set))
    for changes in ctx.amends.values():
        # A change that names its declaration wins over one for all of them, whichever was written first.
        changes.sort(key=lambda change: ".".join(change.path) != change.target)


def _suggest(main: ParsedFile, path: tuple[str, ...], names: list[str]) -> str:
    """Return what to write instead of a path that leads nowhere."""
    head = path[0]
    if "" in path:
        return "write names with one dot between them, as in `--amend optim.lr=1e-6`"
    if head in ("stages", "stage"):
        return "say whose stage it is: `--amend EXPERIMENT.stages.NAME.SETTING=…`"
    if isinstance(main.items.get(head), tree.Param):
        return f"`{head}` is a param: `--set {head}=…`"
    if head in _list_declarations(main):
        return f"name a setting of it, as in `--amend {head}.SETTING=…`"
    blocks = {name: field.type.kind for name, field in TRAINING.items() if isinstance(field.type, Block)}
    inside = next((name for name, kind in blocks.items() if head in KINDS[kind].fields), None)
    return f"did you mean `--amend {inside}.{head}=…`?" if inside else suggest(head, names, "there is")


def _write_points(target: str) -> str:
    """Return a path with brackets, `mine.stages[8K tokens].steps`, in dots: `mine.stages.8192.steps`."""

    def point(match: re.Match[str]) -> str:
        text = match[1].strip()
        number = parse_expression(Source("", text)).expression
        if isinstance(number, tree.Number):
            value = scale(number.value, number.suffix, read_dimension(number.unit) or ())
            return ".NUMBER" if value is None else f".{value}"
        # A number of hundreds of digits is none to the parser.
        return ".NUMBER" if text[:1].isdigit() else f".{text}"

    return re.sub(r"\[([^\]]+)\]", point, target)


def _parse(ctx: Context, option: str, text: str) -> tree.Expr | None:
    """Return the expression of a change, or None after its syntax errors are reported."""
    ctx.modules.sources[option] = text
    result = parse_expression(Source(option, text))
    for finding in result.diagnostics:
        listed = not parse_expression(Source(option, f"[{text}]")).diagnostics
        ctx.report(replace(finding, help=f"write a list in brackets: `[{text}]`") if listed else finding)
    return result.expression


def _list_params(ctx: Context, main: ParsedFile) -> dict[str, Owner]:
    """Return the params of the file and of its imports, with the places of their declarations."""
    params = {name: (main.key, name) for name, item in main.items.items() if isinstance(item, tree.Param)}
    for name, imported in main.imports.items():
        target = ctx.modules.loaded.get(imported.module or "")
        if target is not None and isinstance(target.items.get(imported.name), tree.Param):
            params[name] = (target.key, imported.name)
    return params


def _find_elsewhere(ctx: Context, main: ParsedFile, name: str) -> str | None:
    """Return the help for a param that an imported file declares and the spec does not import."""
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
    members = [member.name.name for _, members in main.studies() for member in members]
    return [*main.items, *main.imports, *members]


def _find_owners(
    ctx: Context, main: ParsedFile, path: tuple[str, ...]
) -> list[tuple[Owner, tuple[str, ...], bool]]:
    """Return the declarations that a path changes, the rest of the path, and whether they must have the setting.

    The first part is a declaration's or an arm's name. A path without a name changes the study if it is a
    setting of studies, and every experiment of the spec's own files if it is a setting of training. A setting
    of both changes the study, and only the experiments that set it themselves.
    """
    head, rest = path[0], path[1:]
    if rest:
        item = main.items.get(head)
        if isinstance(item, tree.Decl):
            return [((main.key, head), rest, False)]
        imported = main.imports.get(head)
        if imported is not None and imported.module is not None:
            return [((imported.module, imported.name), rest, False)]
        arms = [owner for owner, _ in _list_arms(main, any_member=True) if owner[1].endswith(f".{head}")]
        if arms:
            return [(owner, rest, False) for owner in arms]
    studies = [study.name.name for study, _ in main.studies()]
    shared = bool(studies) and head in KINDS["study"].fields
    owners = [((main.key, study), path, False) for study in studies] if shared else []
    if head in TRAINING:
        owners += [(owner, path, shared) for owner in _list_trained(ctx, main)]
    return owners


def _list_arms(main: ParsedFile, any_member: bool = False) -> list[tuple[Owner, tree.Decl]]:
    """Return the arms of the file's studies, or all of their members, with their owners."""
    return [
        ((main.key, f"{study.name.name}.{member.name.name}"), member)
        for study, members in main.studies()
        for member in members
        if any_member or member.kind.name == "arm"
    ]


def _list_trained(ctx: Context, main: ParsedFile) -> list[Owner]:
    """Return the experiments of the spec's own files, and the arms with settings of their own."""
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
"""Settings that `--amend NAME=none` takes away: no value says that a run is on this machine, or may cost anything."""


def apply_amends(ctx: Context, record: R, owner: Owner | None, scope: Scope, *, stage: bool = False) -> R:
    """Apply the changes that name a declaration to its record; changes of a stage wait in `stage_changes`."""
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
            helps = f"change a setting of its own: `--amend {target}.{setting}=…`"
            if record.stages:
                first = record.stages[0]
                name = first.name if isinstance(first, DeclaredStage) else "1"
                words = "stages are amended setting by setting"
                helps = f"name a stage, and then its setting: `--amend {target}.stages.{name}.steps=…`"
            ctx.applied_amends.add(change.target)
            ctx.error("E0211", words, change.value.span, help=helps)
    return record


def amend_stage(
    ctx: Context,
    stage: DeclaredExperiment,
    decls: Sequence[DeclaredStage],
    index: int,
    changes: Sequence[Override],
) -> DeclaredExperiment:
    """Apply to the stage at `index` the changes that name it."""
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
    """Return a record with a change applied, unless the change is for records that have the setting and this has none."""
    head, everywhere = change.path[0], ".".join(change.path) == change.target
    untrained = isinstance(record, DeclaredExperiment) and not record.is_trained
    if untrained and everywhere and head not in WITHOUT_TRAINING:
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
    """Report changes without effect, whose settings are set nowhere or are not used."""
    for change in changes:
        if change.target in ctx.applied_amends:
            continue
        head = change.target.partition(".")[0]
        remedy = f"leave it out, use `{head}` in what runs, or amend the whole setting that reads it"
        ctx.error("E0211", f"nothing that runs has `{change.target}`", change.value.span, help=remedy)
        ctx.applied_amends.add(change.target)


def expand_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return each stage of an experiment with all its settings; an experiment without stages is its only stage."""
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
    """Return an experiment with its defaults, after every stage was found complete.

    Raises:
        NoValue: A stage lacks a setting, which was reported.
    """
    if not experiment.is_trained:
        return experiment
    complete = complete_stages(ctx, experiment)
    if not complete:
        raise NoValue
    # A suite named in the stages is the experiment's as well.
    last = complete[-1][1].fields.get("eval")
    return experiment if last is None or "eval" in experiment.fields else experiment.with_field("eval", last)


def complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages of an experiment with every default filled in, or an empty list if a stage lacks a setting."""
    # Every check and the lowering ask for them.
    return ctx.memoize("stages", experiment, lambda: _complete_stages(ctx, experiment))


def _complete_stages(
    ctx: Context, experiment: DeclaredExperiment
) -> list[tuple[DeclaredStage | None, DeclaredExperiment]]:
    """Return the stages as `complete_stages` does, computed anew."""

    def complete(
        stage: tuple[DeclaredStage | None, DeclaredExperiment],
    ) -> tuple[DeclaredStage | None, DeclaredExperiment]:
        decl, record = stage
        ctx.charge(record.span, STAGE_STEPS)
        return decl, fill_defaults(ctx, record, KINDS["experiment"], decl)

    return attempt(lambda: try_all(complete, expand_stages(ctx, experiment))) or []


def report_nested(ctx: Context, stage: DeclaredExperiment) -> DeclaredExperiment:
    """Return a stage without the stages inside it, which are reported."""
    for nested in stage.stages[:1]:
        ctx.error(
            "E0202",
            "a stage holds no stages",
            nested.span,
            "not here",
            help="write them after one another in the experiment: `stage NAME { … }`",
        )
    return replace(stage, stages=()) if stage.stages else stage
