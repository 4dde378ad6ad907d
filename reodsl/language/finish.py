"""Finishing: defaults filled in, what is required and missing reported, stages made whole."""

from __future__ import annotations

from dataclasses import replace

from reodsl.diagnostics.model import Label, error
from reodsl.language import reach
from reodsl.language.blocks import laid
from reodsl.language.calls import default_value
from reodsl.language.context import Context
from reodsl.language.kinds import KINDS, TRAINING
from reodsl.language.schema import Block, Kind, type_words
from reodsl.language.stages import StagePart, require_flat, stage_parts
from reodsl.language.values import BLOCK, Record, Slot, Value
from reodsl.syntax import tree

EVALUATION = "evaluation"
"""`made` of an experiment that trains nothing: a checkpoint with a suite."""


UNKNOWN = "*"
"""In `broken` of a record whose parent could not be evaluated: nothing is known to be missing from it."""


def stage_records(ctx: Context, experiment: Record) -> list[tuple[StagePart | None, Record]]:
    """The stages of an experiment, each with all its settings; one without a part when none is declared."""
    if not experiment.stages:
        return [(None, experiment)]
    found: list[tuple[StagePart | None, Record]] = []
    parts = stage_parts(ctx, experiment)
    for number, part in enumerate(parts):
        stage = laid(
            ctx, replace(experiment, stages=()), part.block, part.scope, part.block.doc or experiment.doc
        )
        stage = require_flat(ctx, stage)
        stage = reach.amended(ctx, stage, experiment.owner, part.scope, stage=True)
        found.append((part, reach.of_stage(ctx, stage, parts, number)))
    return found


def finished_experiment(ctx: Context, experiment: Record) -> Record | None:
    """An experiment with its defaults, every stage complete; None when something required is missing."""
    if experiment.made == EVALUATION and "method" not in experiment.fields:
        return experiment
    complete = complete_stages(ctx, experiment)
    if not complete:
        return None
    # A suite named in the stages is the experiment's as well.
    last = complete[-1][1].fields.get("eval")
    return experiment if last is None or "eval" in experiment.fields else experiment.with_field("eval", last)


def complete_stages(ctx: Context, experiment: Record) -> list[tuple[StagePart | None, Record]]:
    """The stages of an experiment with every default filled in; empty when one of them lacks something."""
    # Every check and the lowering ask for them.
    return ctx.once_of("stages", experiment, lambda: _complete_stages(ctx, experiment))


def _complete_stages(ctx: Context, experiment: Record) -> list[tuple[StagePart | None, Record]]:
    found: list[tuple[StagePart | None, Record]] = []
    whole = True
    for part, stage in stage_records(ctx, experiment):
        done = finished(ctx, stage, KINDS["experiment"], part)
        if done is None:
            whole = False
        else:
            found.append((part, done))
    return found if whole else []


def finished(ctx: Context, record: Record, kind: Kind, stage: StagePart | None = None) -> Record | None:
    """A record with its defaults filled in; None, and a diagnostic for each, when required settings are missing.

    With `stage` the record is that stage of an experiment.
    """
    if UNKNOWN in record.broken:
        return None
    missing: list[tuple[str, str, str, str]] = []
    done = _filled(record, kind, _method(record), missing, "")
    what = f"`{record.name or kind.name}`"
    if stage is not None:
        what = f"stage {stage.label} of {what}" if stage.value is None else f"each of the stages of {what}"
    replaced = stage.replaced if stage is not None else None
    for path, type_, doc, example in missing:
        ctx.report(
            error(
                "E0304",
                f"{what} needs `{path}`, {type_}: {doc}",
                stage.span if stage is not None else record.span,
                f"no `{path}`",
                others=[Label(replaced, "replaced as a whole: nothing of it is left")] if replaced else [],
                help=f"add `{example}`" if example else None,
            )
        )
    return None if missing or _lacks_broken(done) else done


def _lacks_broken(record: Record) -> bool:
    """Whether a setting was given wrongly and has no value from a parent or a default to stand in."""
    if any(name not in record.fields for name in record.broken):
        return True
    return any(
        _lacks_broken(inner)
        for name in record.fields
        if (inner := record.sub(name)) is not None and inner.made is BLOCK
    )


def _method(record: Record) -> str | None:
    method = record.data("method")
    return method if isinstance(method, str) else None


def _filled(
    record: Record, kind: Kind, method: str | None, missing: list[tuple[str, str, str, str]], prefix: str
) -> Record:
    fields = dict(record.fields)
    until = record.sub("until")
    if until is not None and until.kind == "until":
        # `until = … or steps(400)` says how many steps there are at most.
        fields["steps"] = replace(fields["until"], value=until.made[1])
    at = tree.Ident(record.name, record.span)
    for name, field in kind.fields.items():
        if field.methods and method not in field.methods:
            continue
        path = f"{prefix}{name}"
        if isinstance(field.type, Block):
            inner_kind = KINDS[field.type.kind]
            inner = record.sub(name)
            if inner is None and (
                field.required or name in needed_blocks(kind, method) or _all_default(inner_kind)
            ):
                inner = Record(inner_kind.name, {}, record.span, name, made=BLOCK)
            if inner is not None and inner_kind.form == "block" and name != "report":
                filled = _filled(inner, inner_kind, method, missing, f"{path}.")
                slot = fields.get(name)
                fields[name] = Slot(
                    Value(filled, filled.span), slot.span if slot else None, slot.doc if slot else ""
                )
            continue
        if name in fields or name in record.broken:
            continue
        if field.required:
            example = field.example
            missing.append(
                (
                    path,
                    type_words(field.type),
                    field.doc,
                    f"{prefix[:-1]} {{ {example} }}" if prefix else example,
                )
            )
        elif field.default is not None:
            fields[name] = Slot(default_value(field, at), None, field.doc)
    return replace(record, fields=fields)


def needed_blocks(kind: Kind, method: str | None) -> tuple[str, ...]:
    """The blocks that training by a method cannot do without."""
    if kind.fields is not TRAINING:
        return ()
    return ("batch", "optim", "rollout", "clip") if method == "ppo" else ("batch", "optim")


def _all_default(kind: Kind) -> bool:
    return bool(kind.fields) and all(
        not field.required and field.default is not None for field in kind.fields.values()
    )
