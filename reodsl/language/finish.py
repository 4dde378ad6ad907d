"""Fill in the defaults of a record, and report what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, group, join_words
from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Block, Kind, Setting
from reodsl.ir.training import TRAINING
from reodsl.language.context import Context, NoValue
from reodsl.language.fitting import describe_type, make_typed
from reodsl.language.values import DeclaredStage, NestedBlock, Record, Slot, Value

R = TypeVar("R", bound=Record)
UNKNOWN = "*"
"""The mark in `invalid` of a record whose parent has no value: nothing is known to be missing from the record."""


@dataclass(frozen=True, slots=True)
class _Omission:
    """A required setting that a record lacks."""

    blocks: tuple[str, ...]
    """The blocks around the setting, outermost first."""
    name: str
    field: Setting

    @property
    def what(self) -> str:
        """Return the words for the setting: its type and its meaning."""
        return f"{describe_type(self.field.type)}: {self.field.doc}"

    @property
    def path(self) -> str:
        """Return the dotted path of the setting, such as `optim.lr`."""
        return ".".join((*self.blocks, self.name))


def fill_defaults(ctx: Context, record: R, kind: Kind, stage: DeclaredStage | None = None) -> R:
    """Return a record with its defaults filled in, after checking that no required setting is missing.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record.
        kind: The kind whose settings the record has.
        stage: The declaration if the record is a stage of an experiment, else None.

    Raises:
        NoValue: Required settings are missing, a setting with a wrong value has no other value, or the parent
            has an error. All missing settings are reported as one E0304; the other errors were reported before.
    """
    if UNKNOWN in record.invalid:
        raise NoValue
    missing: list[_Omission] = []
    method = record.data("method")
    complete = _fill_settings(ctx, record, kind, method if isinstance(method, str) else None, missing, ())
    if missing:
        owner = f"`{record.name or kind.name}`"
        if stage is not None:
            owner = (
                f"stage {stage.label} of {owner}" if stage.value is None else f"each of the stages of {owner}"
            )
        first = ctx.find_first(record.span) if stage is None else stage.span
        error_key = first, tuple(item.path for item in missing)
        # Records made from the same declaration lack the same settings: they are reported once.
        if error_key not in ctx.missing_settings:
            ctx.report(_describe_missing(owner, missing, record.span, stage, first))
        if not ctx.is_trial:
            ctx.missing_settings.add(error_key)
    if missing or _has_unusable_setting(complete):
        raise NoValue
    return complete


def _describe_missing(
    owner: str, missing: Sequence[_Omission], span: Span, stage: DeclaredStage | None, first: Span
) -> Diagnostic:
    """Return E0304 for the required settings that a record lacks, with examples.

    Args:
        owner: The words for the record, such as `` `mine` ``.
        missing: The settings.
        span: The span of the record.
        stage: The declaration if the record is a stage of an experiment, else None. If the stage replaces a
            stage of its parent, a label says so, since the settings of the replaced stage are lost.
        first: The span of the first declaration in the chain of parents of the record.
    """
    paths = [f"`{item.path}`" for item in missing]
    single = len(missing) == 1
    replaced = stage.replaced_span if stage is not None else None
    examples = _join_examples(missing)
    return error(
        "E0304",
        f"{owner} needs {paths[0]}, {missing[0].what}" if single else f"{owner} needs {join_words(paths)}",
        stage.span if stage is not None else span,
        f"no {paths[0]}" if single else f"lacks {len(paths)} settings",
        labels=[
            *([Label(replaced, "replaced, with all its settings")] if replaced else []),
            *([Label(first, "does not set it either")] if first != span and single and stage is None else []),
        ],
        notes=() if single else [f"{path}, {item.what}" for path, item in zip(paths, missing, strict=True)],
        help=f"add `{examples}`{'' if single else ', each with your value'}" if examples else None,
    )


def _join_examples(missing: Sequence[_Omission], depth: int = 0) -> str:
    """Return examples of missing settings as a spec would write them, as `steps = 100, optim { lr = 1e-6 }`.

    Args:
        missing: The settings.
        depth: The number of outer blocks that the caller writes: the examples begin inside them.
    """
    groups = group(
        (item.blocks[depth] if len(item.blocks) > depth else f"={item.name}", item) for item in missing
    )
    examples = []
    for name, items in groups.items():
        inner = items[0].field.example if name.startswith("=") else _join_examples(items, depth + 1)
        if inner:
            examples.append(inner if name.startswith("=") else f"{name} {{ {inner} }}")
    return ", ".join(examples)


def _has_unusable_setting(record: Record) -> bool:
    """Return whether some setting with a wrong value has no other value, from a parent or a default."""
    if any(name not in record.fields for name in record.invalid):
        return True
    blocks = (slot.value.data for slot in record.fields.values())
    return any(_has_unusable_setting(block) for block in blocks if isinstance(block, NestedBlock))


def _fill_settings(
    ctx: Context, record: R, kind: Kind, method: str | None, missing: list[_Omission], blocks: tuple[str, ...]
) -> R:
    """Return a record with its defaults filled in, and collect the required settings that it lacks.

    A block that the record lacks is added if it is required, if the method needs it, or if all its settings
    have defaults. A required setting does not count as missing if a setting in its `unless` is given, or if
    its own value is wrong, which was reported. A study's `report` is returned as it is.

    Args:
        ctx: The state of the evaluation.
        record: The record.
        kind: The kind whose settings the record has.
        method: The training method; settings of other methods are skipped. None if there is none.
        missing: The required settings that are missing; appended to.
        blocks: The names of the blocks around the record, outermost first.
    """
    fields = dict(record.fields)
    for name, field in kind.fields.items():
        if field.methods and method not in field.methods:
            continue
        if isinstance(field.type, Block):
            inner_kind = KINDS[field.type.kind]
            inner = record.sub(name)
            if inner is None and (
                field.required or name in list_needed_blocks(kind, method) or _has_all_defaults(inner_kind)
            ):
                inner = NestedBlock(inner_kind.name, {}, record.span, name)
            if inner is not None and inner_kind.form == "block" and name != "report":
                filled = _fill_settings(ctx, inner, inner_kind, method, missing, (*blocks, name))
                slot = fields.get(name)
                fields[name] = Slot(
                    Value(filled, filled.span), slot.span if slot else None, slot.doc if slot else ""
                )
            continue
        if name in fields or name in record.invalid or (name == "steps" and "until" in record.invalid):
            continue
        if field.required and not any(other in fields or other in record.invalid for other in field.unless):
            missing.append(_Omission(blocks, name, field))
        elif field.default is not None:
            fields[name] = Slot(make_typed(field.default, field.type, record.span), None, field.doc)
    return replace(record, fields=fields)


def list_needed_blocks(kind: Kind, method: str | None) -> tuple[str, ...]:
    """Return the names of the blocks that training by a method requires; empty for kinds that do not train."""
    if kind.fields is not TRAINING:
        return ()
    return ("batch", "optim", "rollout", "clip") if method == "ppo" else ("batch", "optim")


def _has_all_defaults(kind: Kind) -> bool:
    """Return whether every setting of a kind has a default."""
    return bool(kind.fields) and all(
        not field.required and field.default is not None for field in kind.fields.values()
    )
