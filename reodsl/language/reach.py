"""What a change from the command line reaches: a setting, an argument of a call, or a setting of what is named there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from reodsl.diagnostics.model import error
from reodsl.language.blocks import unknown_setting
from reodsl.language.context import Change, Context, Owner, Scope
from reodsl.language.evaluate import fitted
from reodsl.language.kinds import KINDS
from reodsl.language.schema import Block, Field, Kind
from reodsl.language.suggest import advice, there_is
from reodsl.language.values import BLOCK, Record, Slot, Value, describe
from reodsl.syntax import tree

ELSEWHERE = ("experiment", "recipe", "arm", "study", "frontier", "published", "task", "traces")
"""Kinds whose settings are changed at their own declaration: a copy of one would be another thing to train or draw."""


class _PassedBy(Exception):
    """A change of what is set has nothing to change here; there may be others that it reaches."""


def amended(ctx: Context, record: Record, owner: Owner | None, scope: Scope) -> Record:
    """A record with the changes that the command line makes to its owner."""
    for change in ctx.amends.get(owner or ("", ""), ()):
        if _idle(record, change):
            continue
        with suppress(_PassedBy):
            record = changed(ctx, record, change, scope)
    return record


def _idle(record: Record, change: Change) -> bool:
    """Whether a change of all training meets a checkpoint that is evaluated as it is."""
    from reodsl.language.resolve import WITHOUT_TRAINING, is_trained

    everywhere = ".".join(change.path) == change.target
    trained = record.kind != "experiment" or is_trained(record)
    return everywhere and not trained and change.path[0] not in WITHOUT_TRAINING


def changed(ctx: Context, record: Record, change: Change, scope: Scope) -> Record:
    """A record with one setting, or something in its value, replaced from the command line.

    Raises _PassedBy where a change of what is set finds nothing of the kind.
    """
    kind = KINDS[record.kind]
    head, rest = change.path[0], change.path[1:]
    field = kind.fields.get(head)
    if head in ("stage", "stages") and "stage" in kind.children:
        place = change.target.partition(f".{head}")[0]
        helps = f"amend a setting in all of them, as in `--amend {place}.steps=…`, or write the change in the spec"
        _refuse(ctx, change, "a stage cannot be amended alone", helps)
        return record
    if field is None:
        ctx.met.add(change.target)
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
                helps = "what it holds is declared in the spec: change it there"
            _refuse(ctx, change, f"`{change.target}` is a block of settings", helps)
            return record
        inner = record.sub(head) or Record(inner_kind.name, {}, change.value.span, head, made=BLOCK)
        inner = changed(ctx, inner, replace(change, path=rest), scope)
        return record.with_field(head, Slot(Value(inner, change.value.span), change.value.span))
    if before is None and change.where_set:
        raise _PassedBy
    if not rest:
        ctx.met.add(change.target)
        value = fitted(ctx, change.value, scope, field.type, head, field.example)
    elif before is None:
        _unset(ctx, change, head, field)
        value = None
    else:
        value = _within(ctx, before.value, replace(change, path=rest), scope, head)
    if value is None:
        return replace(record, broken=record.broken | {head})
    return record.with_field(head, Slot(value, change.value.span, "", True, before))


def _evaluated_on(record: Record) -> Slot | None:
    """The suite behind a checkpoint, on which it is evaluated where it names none."""
    from reodsl.language.resolve import own_suite

    suite = own_suite(record) if record.kind == "experiment" else None
    return None if suite is None else Slot(Value(suite, suite.span), None)


def argued(ctx: Context, record: Record, owner: Owner, scope: Scope) -> Record | None:
    """What a call made, with the changes that the command line makes to the declaration that names it."""
    for change in ctx.amends.get(owner, ()):
        value = _within(ctx, Value(record, record.span), change, scope, owner[1])
        if value is None:
            return None
        assert isinstance(value.data, Record)
        record = replace(value.data, name=record.name, owner=record.owner, doc=record.doc)
    return record


def without_arguments(ctx: Context, item: tree.Decl, owner: Owner) -> None:
    """Refuses changes to what is declared with a body: its parameters get their arguments where it is used."""
    for change in ctx.amends.get(owner, ()):
        setting = "reward" if item.kind.name == "reward" else "data"
        _refuse(
            ctx,
            change,
            f"the {item.kind.name} `{item.name.name}` gets its arguments where it is used",
            f"amend them there: `--amend {setting}.{'.'.join(change.path)}=…`",
        )


def unmet(ctx: Context, changes: Iterable[Change]) -> None:
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
        found = error("E0211", message, change.value.span, help=remedy)
        ctx.report(ctx.passed.get(change.target, found))
        ctx.met.add(change.target)


def _within(ctx: Context, value: Value, change: Change, scope: Scope, what: str) -> Value | None:
    """A value with an argument of its call, or a setting of what it names, replaced; None where it has none such."""
    from reodsl.language.rewards import Definition

    data = value.data
    place = change.target.removesuffix("." + ".".join(change.path))
    if isinstance(data, Record):
        kind = KINDS.get(data.kind)
        if isinstance(data.made, Definition):
            return _parameter(ctx, data, change, scope, place)
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
            _refuse(ctx, change, words, f"change them there: `--amend {better}=…`")
            return None
    words = f"`{what}` is {describe(value)}, and has no `{change.path[0]}`"
    _refuse(ctx, change, words, f"write it whole: `--amend {place}=…`")
    return None


def _argument(ctx: Context, record: Record, kind: Kind, change: Change, scope: Scope) -> Record | None:
    """A call's record with one argument, or something in it, replaced."""
    head = change.path[0]
    if head not in kind.fields:
        _lacks(ctx, change, f"`{kind.name}(…)`", list(kind.fields))
        return None
    if head not in record.fields and len(change.path) > 1:
        _unset(ctx, change, head, kind.fields[head])
        return None
    field = kind.fields[head]
    before = record.fields.get(head)
    if len(change.path) == 1:
        ctx.met.add(change.target)
        value = fitted(ctx, change.value, scope, field.type, head, field.example)
    else:
        assert before is not None
        value = _within(ctx, before.value, replace(change, path=change.path[1:]), scope, head)
    if value is None:
        return None
    return record.with_field(head, Slot(value, change.value.span, "", True, before))


def _recomputed(ctx: Context, record: Record, call: tree.Call, change: Change, scope: Scope) -> Value | None:
    """Budgets computed again with another argument."""
    from reodsl.language.functions import REASONING_STEPS, SIGNATURES, computed

    assert isinstance(call.function, tree.Name)
    name = call.function.name
    replaced = _argument(ctx, record, SIGNATURES.get(name, REASONING_STEPS), change, scope)
    if replaced is None:
        return None
    if name not in SIGNATURES:
        return Value(replaced, call.span)
    return computed(ctx, name, dict(replaced.fields), call)


def _parameter(ctx: Context, record: Record, change: Change, scope: Scope, place: str) -> Value | None:
    """A reward or a selection with another argument."""
    from reodsl.language.rewards import Definition, bound_argument

    definition: Definition = record.made
    params = {param.name.name: param for param in definition.item.params or ()}
    name, rest = change.path[0], change.path[1:]
    if name not in params:
        whose = f"the {record.kind} `{definition.item.name.name}`"
        _lacks(ctx, change, whose, list(params), f"it takes none; name another: `--amend {place}=…`")
        return None
    if rest:
        given = definition.args.get(name)
        if given is None:
            _refuse(
                ctx, change, f"`{name}` is not given there", f"write it whole: `--amend {place}.{name}=…`"
            )
            return None
        bound = _within(ctx, given, replace(change, path=rest), scope, name)
    else:
        ctx.met.add(change.target)
        bound = bound_argument(ctx, definition, params[name], change.value, scope)
    if bound is None:
        return None
    made = replace(definition, args={**definition.args, name: bound})
    return Value(replace(record, made=made), change.value.span)


def _selected(ctx: Context, record: Record, change: Change, scope: Scope, place: str) -> Value | None:
    """Data that a selection picks, from another pool or with another argument."""
    from reodsl.language.selections import typed_selection

    if change.path[0] == "pool" and len(change.path) > 1:
        pool = _within(ctx, record.fields["pool"].value, replace(change, path=change.path[1:]), scope, "pool")
        return None if pool is None else Value(_with(record, "pool", pool, change), change.value.span)
    selection = record.sub("selection")
    assert selection is not None
    bound = _parameter(ctx, selection, change, scope, place)
    if bound is None or not isinstance(bound.data, Record):
        return None
    picks = typed_selection(ctx, bound.data)
    if picks is None:
        return None
    return Value(replace(_with(record, "selection", bound, change), made=picks), change.value.span)


def _with(record: Record, name: str, value: Value, change: Change) -> Record:
    return record.with_field(name, Slot(value, change.value.span, "", True, record.fields.get(name)))


def _copied(
    ctx: Context, value: Value, record: Record, kind: Kind, change: Change, scope: Scope
) -> Value | None:
    """What a setting names with a setting of its own changed, as `NAME { … }` would have it."""
    from reodsl.language.finish import finished

    made = changed(ctx, replace(record, owner=None), change, scope)
    if made.broken:
        return None
    complete = made if kind.partial else finished(ctx, made, kind)
    return None if complete is None else replace(value, data=complete)


def _unset(ctx: Context, change: Change, head: str, field: Field) -> None:
    place = change.target.removesuffix("." + ".".join(change.path[1:]))
    example = f", as in `{field.example}`" if field.example else ""
    _refuse(ctx, change, f"`{head}` is not set there", f"set it whole: `--amend {place}=…`{example}")


def _lacks(ctx: Context, change: Change, whose: str, known: list[str], none: str = "it takes none") -> None:
    name = change.path[0]
    helps = advice(name, known, "it takes") if known else none
    _refuse(ctx, change, f"{whose} has no argument `{name}`", helps)


def _refuse(ctx: Context, change: Change, message: str, remedy: str) -> None:
    finding = error("E0211", message, change.value.span, help=remedy)
    if change.where_set:
        if change.target not in ctx.passed or remedy.startswith("did you mean"):
            ctx.passed[change.target] = finding
        raise _PassedBy
    ctx.met.add(change.target)
    ctx.report(finding)
