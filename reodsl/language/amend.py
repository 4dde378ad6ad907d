"""Apply `--amend` to evaluated records.

A change that finds nothing to change gives the record back as it was. One of what is set (`Change.where_set`) is then told
of only if it reaches nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.setting import Block, Field, Kind
from reodsl.ir.settings import KINDS
from reodsl.language.context import Context
from reodsl.language.evaluate import bind_argument, evaluate_as
from reodsl.language.finish import fill_defaults
from reodsl.language.functions import REASONING_STEPS, SIGNATURES, call_function
from reodsl.language.resolve import WITHOUT_TRAINING, own_suite
from reodsl.language.suggest import advice, nearest, there_is
from reodsl.language.unknown_settings import unknown_setting
from reodsl.language.values import (
    Change,
    Definition,
    Experiment,
    Owner,
    Record,
    Scope,
    Section,
    Slot,
    Stage,
    StagesOver,
    Value,
    describe,
)
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)
ELSEWHERE = ("experiment", "recipe", "arm", "study", "frontier", "published", "task", "traces")
"""Kinds whose settings are changed at their own declaration: a copy of one would be another thing to train or draw."""
STAGES = ("stages", "stage")
"""What begins the path to a setting of one stage."""
UNSET = frozenset({"cluster", "limit"})
"""What `--amend NAME=none` takes away: no value says that a run is on this machine, or may cost anything."""


def apply_amends(ctx: Context, record: R, owner: Owner | None, scope: Scope, *, stage: bool = False) -> R:
    """A record with the changes that the command line makes to its owner, of which it may be a `stage`.

    Changes of single stages wait in these until they are made (see `of_stage`).
    """
    for change in ctx.amends.get(owner or ("", ""), ()):
        if _idle(record, change):
            continue
        if change.path[0] in STAGES and "stage" in KINDS[record.kind].children:
            if isinstance(record, Experiment) and not stage:
                record = replace(record, stages=_staged(ctx, record, change))
            continue
        record = apply_change(ctx, record, change, scope)
    return record


def of_stage(ctx: Context, stage: Experiment, parts: Sequence[Stage], number: int) -> Experiment:
    """A stage, the one at `number` of `parts`, with the changes to it alone: named by its name, or counted from 1."""
    part = parts[number]
    # An experiment may have thousands of stages, and few are changed.
    names = [each.name for each in parts] if part.changes else []
    for change in part.changes:
        wanted = change.path[1]
        if wanted == part.name or (wanted not in names and wanted == str(number + 1)):
            stage = apply_change(ctx, stage, replace(change, path=change.path[2:]), part.scope)
        elif wanted not in names and wanted not in map(str, range(1, len(names) + 1)):
            # What is derived from the experiment comes later, and has the change from it.
            ctx.passed.setdefault(change.target, no_stage(change, stage.name, wanted, names))
    return stage


def _staged(ctx: Context, record: Experiment, change: Change) -> tuple[Stage | StagesOver, ...]:
    """The stages of a record, which know of a change to one of them."""
    place = change.target.removesuffix("." + ".".join(change.path))
    if not record.stages:
        setting = change.path[-1] if len(change.path) > 2 else "SETTING"
        words = f"`{record.name}` has no stages"
        refuse(ctx, change, words, f"change a setting of its own: `--amend {place}.{setting}=…`")
    elif len(change.path) < 3:
        first = record.stages[0]
        name = first.name if isinstance(first, Stage) else "1"
        helps = (
            f"name a stage, or count from 1, and then its setting: `--amend {place}.stages.{name}.steps=…`"
        )
        refuse(ctx, change, "stages are amended setting by setting", helps)
    else:
        return tuple(replace(each, changes=(*each.changes, change)) for each in record.stages)
    return record.stages


def _idle(record: Record, change: Change) -> bool:
    """Whether a change of all training meets a checkpoint that is evaluated as it is."""
    everywhere = ".".join(change.path) == change.target
    trained = not isinstance(record, Experiment) or record.is_trained
    return everywhere and not trained and change.path[0] not in WITHOUT_TRAINING


def apply_change(ctx: Context, record: R, change: Change, scope: Scope) -> R:
    """A record with one setting, or something in its value, replaced from the command line; itself where there is none."""
    kind = KINDS[record.kind]
    head, rest = change.path[0], change.path[1:]
    field = kind.fields.get(head)
    if field is None:
        if change.target in ctx.met:
            return record  # Told of already, of the experiment whose stage this is.
        ctx.met.add(change.target)
        stages = record.stages if isinstance(record, Experiment) else ()
        if rest and head in [stage.name for stage in stages if isinstance(stage, Stage)]:
            place = change.target.removesuffix(".".join(change.path))
            words = f"`{head}` is a stage of `{record.name}`"
            refuse(ctx, change, words, f"write `--amend {place}stages.{'.'.join(change.path)}=…`")
            return record
        unknown_setting(ctx, kind, tree.Ident(head, change.value.span))
        return record
    before = record.fields.get(head)
    if before is None and head == "eval":
        before = _evaluated_on(record)
    if isinstance(field.type, Block):
        inner_kind = KINDS[field.type.kind]
        if not rest:
            names = list(inner_kind.fields)
            helps = f"name one of them; {there_is(names, 'its settings are')}"
            if not names:
                helps = "name what it holds, and a setting of it: " + how_to_change(record, head, change)
            refuse(ctx, change, f"`{change.target}` is a block of settings", helps)
            return record
        if not inner_kind.fields:
            inner = record.sub(head)
            known = list(inner.children) if isinstance(inner, Section) else []
            if rest[0] in known:
                words = f"`{change.target}` has settings of its own"
                refuse(
                    ctx, change, words, f"change one of them: {how_to_change(record, head, change, rest[0])}"
                )
            else:
                words = f"the {head} of `{record.name}` holds no `{rest[0]}`"
                refuse(
                    ctx, change, words, advice(rest[0], known, "it holds") if known else "it holds nothing"
                )
            return record
        section = record.sub(head) or Section(inner_kind.name, {}, change.value.span, head)
        inner = apply_change(ctx, section, replace(change, path=rest), scope)
        if inner is section and change.where_set:
            return record
        return record.with_field(head, Slot(Value(inner, change.value.span), change.value.span))
    if before is None and change.where_set:
        return record
    if not rest and head in UNSET and isinstance(change.value, tree.Name) and change.value.name == "none":
        return _without(ctx, record, head, change)
    if not rest:
        ctx.met.add(change.target)
        value = evaluate_as(ctx, change.value, scope, field.type, head, field.example)
    elif before is None:
        unset(ctx, change, head, field)
        value = None
    else:
        value = _within(ctx, before.value, replace(change, path=rest), scope, head)
    if value is None:
        return record if change.where_set else replace(record, broken=record.broken | {head})
    return record.with_field(head, Slot(value, change.value.span, before=before))


def _without(ctx: Context, record: R, name: str, change: Change) -> R:
    """A record without a setting; told of only if no record had it."""
    if name not in record.fields:
        message = f"`{name}` is set nowhere, so there is none to take away"
        ctx.passed.setdefault(
            change.target, error("E0211", message, change.value.span, help="leave the change out")
        )
        return record
    ctx.met.add(change.target)
    return replace(record, fields={key: slot for key, slot in record.fields.items() if key != name})


def _evaluated_on(record: Record) -> Slot | None:
    """The suite behind a checkpoint, on which it is evaluated where it names none."""
    suite = own_suite(record) if isinstance(record, Experiment) else None
    return None if suite is None else Slot(Value(suite, suite.span), None)


def amend_call(ctx: Context, record: Record, owner: Owner, scope: Scope) -> Record | None:
    """What a call made, with the changes that the command line makes to the declaration that names it."""
    for change in ctx.amends.get(owner, ()):
        value = _within(ctx, Value(record, record.span), change, scope, owner[1])
        if value is None:
            return None
        if isinstance(value.data, Record):
            record = replace(value.data, name=record.name, owner=record.owner, doc=record.doc)
    return record


def without_arguments(ctx: Context, item: tree.Decl, owner: Owner) -> None:
    """Refuses changes to what is declared with a body: its parameters get their arguments where it is used."""
    for change in ctx.amends.get(owner, ()):
        setting = "reward" if item.kind.name == "reward" else "data"
        refuse(
            ctx,
            change,
            f"the {item.kind.name} `{item.name.name}` gets its arguments where it is used",
            f"amend them there: `--amend {setting}.{'.'.join(change.path)}=…`",
        )


def _within(ctx: Context, value: Value, change: Change, scope: Scope, what: str) -> Value | None:
    """A value with an argument of its call, or a setting of what it names, replaced; None where it has none such."""
    data = value.data
    place = change.target.removesuffix("." + ".".join(change.path))
    if isinstance(data, Record):
        kind = KINDS.get(data.kind)
        if isinstance(data, Definition):
            bound = _parameter(ctx, data, change, scope, place)
            return None if bound is None else Value(bound, change.value.span)
        if data.kind == "selected":
            return _selected(ctx, data, change, scope, place)
        if data.called is not None:
            return _recomputed(ctx, data, data.called, change, scope)
        if kind is not None and kind.form == "call":
            argument = _argument(ctx, data, kind, change, scope)
            return None if argument is None else replace(value, data=argument)
        if kind is not None and kind.form == "declared" and kind.name not in ELSEWHERE:
            return _copied(ctx, value, data, kind, change, scope)
        if data.owner is not None and data.owner[0] == scope.module.key:
            better = f"{data.owner[1].rpartition('.')[2]}.{'.'.join(change.path)}"
            words = f"`{what}` is {describe(value)}, which has settings of its own"
            return refuse(ctx, change, words, f"change them there: `--amend {better}=…`")
    words = f"`{what}` is {describe(value)}, and has no `{change.path[0]}`"
    return refuse(ctx, change, words, f"write it whole: `--amend {place}=…`")


def _argument(ctx: Context, record: Record, kind: Kind, change: Change, scope: Scope) -> Record | None:
    """A call's record with one argument, or something in it, replaced."""
    head = change.path[0]
    if head not in kind.fields:
        return lacks(ctx, change, f"`{kind.name}(…)`", list(kind.fields))
    field = kind.fields[head]
    before = record.fields.get(head)
    if len(change.path) == 1:
        ctx.met.add(change.target)
        value = evaluate_as(ctx, change.value, scope, field.type, head, field.example)
    elif before is None:
        return unset(ctx, change, head, field)
    else:
        value = _within(ctx, before.value, replace(change, path=change.path[1:]), scope, head)
    if value is None:
        return None
    return record.with_field(head, Slot(value, change.value.span, before=before))


def _recomputed(ctx: Context, record: Record, call: tree.Call, change: Change, scope: Scope) -> Value | None:
    """Budgets computed again with another argument."""
    name = call.function.name if isinstance(call.function, tree.Name) else ""
    replaced = _argument(ctx, record, SIGNATURES.get(name, REASONING_STEPS), change, scope)
    if replaced is None:
        return None
    if name not in SIGNATURES:
        return Value(replaced, call.span)
    return call_function(ctx, name, dict(replaced.fields), call)


def _parameter(
    ctx: Context, definition: Definition, change: Change, scope: Scope, place: str
) -> Definition | None:
    """A reward or a selection with another argument."""
    params = {param.name.name: param for param in definition.item.params or ()}
    name, rest = change.path[0], change.path[1:]
    if name not in params:
        whose = f"the {definition.kind} `{definition.item.name.name}`"
        return lacks(ctx, change, whose, list(params), f"it takes none; name another: `--amend {place}=…`")
    if rest:
        given = definition.args.get(name)
        if given is None:
            return refuse(
                ctx, change, f"`{name}` is not given there", f"write it whole: `--amend {place}.{name}=…`"
            )
        bound = _within(ctx, given, replace(change, path=rest), scope, name)
    else:
        ctx.met.add(change.target)
        bound = bind_argument(ctx, definition, params[name], change.value, scope)
    if bound is None:
        return None
    return replace(definition, args={**definition.args, name: bound})


def _selected(ctx: Context, record: Record, change: Change, scope: Scope, place: str) -> Value | None:
    """Data that a selection picks, from another pool or with another argument."""
    if change.path[0] == "pool" and len(change.path) > 1:
        pool = _within(ctx, record.fields["pool"].value, replace(change, path=change.path[1:]), scope, "pool")
        return None if pool is None else Value(_with(record, "pool", pool, change), change.value.span)
    selection = record.sub("selection")
    if not isinstance(selection, Definition):
        return None
    bound = _parameter(ctx, selection, change, scope, place)
    if bound is None:
        return None
    value = Value(bound, change.value.span)
    return Value(_with(record, "selection", value, change), change.value.span)


def _with(record: Record, name: str, value: Value, change: Change) -> Record:
    return record.with_field(name, Slot(value, change.value.span, before=record.fields.get(name)))


def _copied(
    ctx: Context, value: Value, record: Record, kind: Kind, change: Change, scope: Scope
) -> Value | None:
    """What a setting names with a setting of its own changed, as `NAME { … }` would have it."""
    before = replace(record, owner=None)
    changed = apply_change(ctx, before, change, scope)
    if changed.broken or (changed is before and change.where_set):
        return None
    complete = changed if kind.partial else fill_defaults(ctx, changed, kind)
    return None if complete is None else replace(value, data=complete)


def report_unmet(ctx: Context, changes: Iterable[Change]) -> None:
    """Reports changes that nothing took: what they name is set nowhere, or is not used."""
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
        message = f"nothing that runs has `{change.target}`"
        unmet = error("E0211", message, change.value.span, help=remedy)
        ctx.report(ctx.passed.get(change.target, unmet))
        ctx.met.add(change.target)


def unset(ctx: Context, change: Change, head: str, field: Field) -> None:
    """Refuses a change inside a setting that has no value."""
    place = change.target.removesuffix("." + ".".join(change.path[1:]))
    example = f", as in `{field.example}`" if field.example else ""
    refuse(ctx, change, f"`{head}` is not set there", f"set it whole: `--amend {place}=…`{example}")


def lacks(ctx: Context, change: Change, whose: str, known: list[str], none: str = "it takes none") -> None:
    """Refuses a change of an argument that there is none of; `none` is the remedy where there are none at all."""
    name = change.path[0]
    helps = advice(name, known, "it takes") if known else none
    refuse(ctx, change, f"{whose} has no argument `{name}`", helps)


def refuse(ctx: Context, change: Change, message: str, remedy: str) -> None:
    """Report that a change may not be made; of what is set, that is told only if nothing else takes the change."""
    finding = error("E0211", message, change.value.span, help=remedy)
    if change.where_set:
        if change.target not in ctx.passed or remedy.startswith("did you mean"):
            ctx.passed[change.target] = finding
        return
    ctx.met.add(change.target)
    ctx.report(finding)


def how_to_change(record: Record, block: str, change: Change, name: str | None = None) -> str:
    """How to write a change of what stands in a block that has no settings itself: the first of these, or `name`."""
    inner = record.sub(block)
    parts = dict(inner.children) if isinstance(inner, Section) else {}
    name = next(iter(parts), None) if name is None else name
    setting = next(iter(KINDS[parts[name][0].kind.name].fields)) if name in parts else "SETTING"
    place = change.target.split(f"{block}.")[0].removesuffix(block)
    return f"`--amend {place}{block}.{name or 'NAME'}.{setting}=…`"


def no_stage(change: Change, experiment: str, wanted: str, names: Sequence[str]) -> Diagnostic:
    """What is said of a change to a stage that there is not; the others by name, with their numbers."""
    near = nearest(wanted, names)
    known = ", ".join(f"`{name}` ({number})" for number, name in enumerate(names, start=1))
    return error(
        "E0211",
        f"`{experiment}` has no stage `{wanted}`",
        change.value.span,
        help=f"did you mean `{near}`?" if near else f"its stages are {known}",
    )
