"""Apply `--amend`: a change is a block, laid over what it names as if it stood last in its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from reodsl.diagnostics.model import error
from reodsl.ir.kinds import KINDS
from reodsl.language import blocks
from reodsl.language.context import Context, Failed
from reodsl.language.resolve import WITHOUT_TRAINING, find_suite
from reodsl.language.suggest import nearest
from reodsl.language.values import Change, Experiment, Owner, Record, Scope, Slot, Stage, Value
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)
STAGES = ("stages", "stage")
"""The words that begin the path to a setting of one stage."""
UNSET = frozenset({"cluster", "limit"})
"""Settings that `--amend NAME=none` takes away: no value says that a run is on this machine, or may cost anything."""


def apply_amends(ctx: Context, record: R, owner: Owner | None, scope: Scope, *, stage: bool = False) -> R:
    """Lay the changes that name a declaration over its record; those of single stages wait in `stage_changes`."""
    for change in ctx.amends.get(owner or ("", ""), ()):
        head = change.path[0]
        if stage and head not in KINDS[record.kind].fields:
            continue  # The experiment reported it, or it is in `stage_changes`.
        if not (isinstance(record, Experiment) and head in STAGES):
            record = _lay(ctx, record, change, scope)
        elif record.stages and len(change.path) > 2:
            record = replace(record, stage_changes=(*record.stage_changes, change))
        else:
            place = change.target.removesuffix("." + ".".join(change.path))
            words = f"`{record.name}` has no stages"
            setting = change.path[-1] if len(change.path) > 2 else "SETTING"
            helps = f"change a setting of its own: `--amend {place}.{setting}=…`"
            if record.stages:
                first = record.stages[0]
                name = first.name if isinstance(first, Stage) else "1"
                words = "stages are amended setting by setting"
                helps = f"name a stage, or count from 1, and then its setting: `--amend {place}.stages.{name}.steps=…`"
            ctx.met.add(change.target)
            ctx.error("E0211", words, change.value.span, help=helps)
    return record


def amend_call(ctx: Context, record: Record, owner: Owner, scope: Scope) -> Record:
    """Lay the changes that name a declaration over the value of its call. Raises `Failed`."""
    for change in ctx.amends.get(owner, ()):
        ctx.met.add(change.target)
        value = blocks.lay_over(ctx, Value(record, record.span), change.block, scope, owner[1])
        if not isinstance(value.data, Record):
            raise Failed
        record = replace(value.data, name=record.name, owner=record.owner, doc=record.doc)
    return record


def amend_stage(
    ctx: Context, stage: Experiment, parts: Sequence[Stage], number: int, changes: Sequence[Change]
) -> Experiment:
    """Lay the changes of the stage at `number`: one is named by its name, or counted from 1."""
    names = [each.name for each in parts] if changes else []
    for change in changes:
        wanted = change.path[1]
        if wanted == names[number] or (wanted not in names and wanted == str(number + 1)):
            stage = _lay(ctx, stage, replace(change, path=change.path[2:]), parts[number].scope)
        elif wanted not in names and wanted not in map(str, range(1, len(names) + 1)):
            near = nearest(wanted, names)
            known = ", ".join(f"`{name}` ({at})" for at, name in enumerate(names, start=1))
            helps = f"did you mean `{near}`?" if near else f"its stages are {known}"
            words = f"`{stage.name}` has no stage `{wanted}`"
            ctx.passed.setdefault(change.target, error("E0211", words, change.value.span, help=helps))
    return stage


def _lay(ctx: Context, record: R, change: Change, scope: Scope) -> R:
    """Return a record with a change laid over it, or the record itself where the change is for records that set it."""
    head, everywhere = change.path[0], ".".join(change.path) == change.target
    untrained = isinstance(record, Experiment) and not record.is_trained
    if untrained and everywhere and head not in WITHOUT_TRAINING:
        return record
    slot = record.fields.get(head)
    if slot is None and head == "eval" and isinstance(record, Experiment):
        suite = find_suite(record)
        slot = None if suite is None else Slot(Value(suite, suite.span), None)
    if slot is None and change.where_set:
        return record
    if change.path == (head,) and head in UNSET and change.value == tree.Name("none", change.value.span):
        if slot is None:
            words = f"`{head}` is set nowhere, so there is none to take away"
            ctx.passed.setdefault(
                change.target, error("E0211", words, change.value.span, help="leave the change out")
            )
            return record
        ctx.met.add(change.target)
        return replace(record, fields={name: each for name, each in record.fields.items() if name != head})
    attempt = ctx.trial() if change.where_set else ctx
    start = record if slot is None else replace(record, fields={**record.fields, head: slot})
    changed = blocks.lay_block(attempt, start, change.block, scope, record.doc)
    refused = False
    for each in attempt.reported if change.where_set else ():
        refused = refused or each.severity == "error"
        if each.code != "E0211":
            ctx.met.add(change.target)
            ctx.report(each)
        elif change.target not in ctx.passed or (each.help or "").startswith("did you mean"):
            ctx.passed[change.target] = each
    if refused:
        return record
    ctx.met.add(change.target)
    return changed


def report_unmet(ctx: Context, changes: Iterable[Change]) -> None:
    """Report changes that nothing took: what they name is set nowhere, or is not used."""
    for change in changes:
        if change.target in ctx.met:
            continue
        head = change.target.split(".")[0]
        if change.where_set:
            remedy = f"set it whole: `--amend {head}=…`"
        elif change.path == tuple(change.target.split(".")):
            remedy = f"leave it out: nothing that this spec trains could take `{head}`"
        else:
            remedy = f"use `{head}` in what runs, or leave it out"
        unmet = error("E0211", f"nothing that runs has `{change.target}`", change.value.span, help=remedy)
        ctx.report(ctx.passed.get(change.target, unmet))
        ctx.met.add(change.target)
