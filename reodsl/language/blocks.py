"""Lay a block over a record: settings, nested blocks, stages, and declarations inside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from reodsl.diagnostics.model import Span
from reodsl.ir.setting import Block, Kind, Many, Num, Text
from reodsl.ir.settings import KINDS
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluate_as, too_long
from reodsl.language.modules import describe_duplicate
from reodsl.language.schema import type_words
from reodsl.language.suggest import advice, nearest
from reodsl.language.unknown_settings import BLOCK_NAMES, unknown_setting
from reodsl.language.values import (
    Child,
    Compound,
    Experiment,
    Items,
    Record,
    Scope,
    Section,
    Slot,
    Stage,
    StagesOver,
    Value,
    article,
)
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)


def lay_block(ctx: Context, start: R, block: tree.Block, scope: Scope, doc: str) -> R:
    """`start` with a block's settings laid over its own. What is wrong in the block is reported and left out."""
    kind = KINDS[start.kind]
    seen: dict[str, Span] = {}
    result = start if start.doc == doc else replace(start, doc=doc)
    stages: list[Stage | StagesOver | None] = []
    children: dict[str, Child] = {}
    for before, item in zip((None, *block.items), block.items, strict=False):
        match item:
            case tree.Setting():
                if _first(ctx, item.name, seen):
                    result = _setting(ctx, result, item, scope, doc)
            case tree.Nested(name=tree.Ident("stages")) if "stage" in kind.children:
                stages.extend(read_stages_over(ctx, item, scope))
            case tree.Nested(name=tree.Ident("arms")) if "arm" in kind.children:
                pass  # `language/sweep.py` spells its arms out
            case tree.Nested():
                if _first(ctx, item.name, seen):
                    result = _nested(ctx, result, item, scope, doc)
            case tree.Decl():
                if not _first(ctx, item.name, seen):
                    continue
                if item.kind.name not in kind.children:
                    _misplaced(ctx, item, kind)
                elif item.kind.name == "stage":
                    stages.append(stage_block(ctx, item, scope))
                else:
                    children[item.name.name] = (item, scope)
            case tree.Let() | tree.Dense() | tree.ExprStatement():
                ctx.fail(
                    "E0313",
                    f"this stands in a reward, not in {article(kind.name)} {kind.name}",
                    item.span,
                    help=_strays(item, before),
                )
    if stages and isinstance(result, Experiment):
        whole = [stage for stage in stages if stage is not None]
        result = replace(result, stages=replace_stages(result.stages, whole))
    if children and isinstance(result, (Compound, Section)):
        result = replace(result, children={**result.children, **children})
    return result


def _first(ctx: Context, name: tree.Ident, seen: dict[str, Span]) -> bool:
    before = seen.setdefault(name.name, name.span)
    if before is name.span:
        return True
    ctx.report(describe_duplicate(name.name, name.span, before, "keep one of them"))
    return False


def stands_inside(kind: str) -> str | None:
    """The help that names the kinds which hold declarations of this one; None where none does."""
    homes = [f"`{each.name}`" for each in KINDS.values() if kind in each.children]
    return f"`{kind}` stands inside {' or '.join(homes)}" if homes else None


def _misplaced(ctx: Context, item: tree.Decl, kind: Kind) -> None:
    if home := stands_inside(item.kind.name):
        helps = home
    elif item.kind.name in KINDS and KINDS[item.kind.name].form == "declared":
        helps = f"declare the {item.kind.name} at the top of the file, and name it here"
    else:
        helps = (
            advice(item.kind.name, kind.children, "it may hold") if kind.children else "write settings here"
        )
    ctx.fail(
        "E0202",
        f"{article(kind.name)} {kind.name} holds no `{item.kind.name}`",
        item.kind.span,
        "not here",
        help=helps,
    )


def _setting(ctx: Context, record: R, item: tree.Setting, scope: Scope, doc: str) -> R:
    kind = KINDS[record.kind]
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        unknown_setting(ctx, kind, item.name)
        # What was most likely meant is not reported as missing, too; a setting of a block here is not misspelt.
        blocks = [each.type.kind for each in kind.fields.values() if isinstance(each.type, Block)]
        deeper = any(name in KINDS[block].fields for block in blocks)
        meant = None if deeper else nearest(name, kind.fields)
        return record if meant is None else replace(record, broken=record.broken | {meant})
    if isinstance(field.type, Block) and not isinstance(item.value, tree.Name):
        ctx.fail(
            "E0301",
            f"`{name}` is a block of settings",
            item.value.span,
            help=f"write `{name} {{ {_inside(field.type, item.value)} }}`",
        )
        return record
    type_ = field.type
    if item.op == "+=" and isinstance(type_, Many):
        type_ = replace(type_, least=0)
    value = evaluate_as(ctx, item.value, scope, type_, name, field.example)
    if value is None:
        return replace(record, broken=record.broken | {name})
    if item.op == "+=":
        before = record.get(name)
        if not isinstance(value.data, Items) or (before is not None and not isinstance(before.data, Items)):
            ctx.fail(
                "E0301",
                f"`+=` adds to a list, and `{name}` is none",
                item.span,
                help=f"write `{name} = …`",
            )
            return record
        if before is not None and isinstance(before.data, Items):
            value = replace(value, data=Items(before.data.values + value.data.values))
            if too_long(ctx, value, item.span):
                return record
    return record.with_field(name, Slot(value, item.span, item.doc or doc, before=record.fields.get(name)))


def _inside(block: Block, value: tree.Expr) -> str:
    """A value as the first setting of a block that is of its type."""
    written = {tree.Number: Num, tree.String: Text}.get(type(value))
    for name, field in KINDS[block.kind].fields.items():
        if written is not None and isinstance(field.type, written):
            return f"{name} = {value.text}" if isinstance(value, tree.Number) else f"{name} = …"
    return "…"


def _nested(ctx: Context, record: R, item: tree.Nested, scope: Scope, doc: str) -> R:
    kind = KINDS[record.kind]
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        unknown_setting(ctx, kind, item.name)
        return record
    if not isinstance(field.type, Block):
        ctx.fail(
            "E0301",
            f"`{name}` is {type_words(field.type)}, not a block",
            item.name.span,
            help=f"write `{field.example or name + ' = …'}`",
        )
        return record
    if item.args:
        ctx.fail("E0310", f"`{name}` takes no arguments", item.args[0].span, help=f"write `{name} {{ … }}`")
    before = record.sub(name)
    inner = before or Section(field.type.kind, {}, item.name.span, name)
    inner = lay_block(ctx, inner, item.block, scope, item.block.doc or doc)
    return record.with_field(name, Slot(Value(inner, item.name.span), item.name.span, doc))


def _strays(item: tree.BlockItem, before: tree.BlockItem | None) -> str:
    """The help for a value among settings: the rest of a number that was written with a comma, as `32,768`."""
    match before, item:
        case (
            tree.Setting(value=tree.Number(unit=None) as head),
            tree.ExprStatement(expr=tree.Number() as rest),
        ) if head.text.isdigit() and re.fullmatch(r"\d{3}", rest.text) and head.span.line == rest.span.line:
            unit = f" {rest.unit}" if rest.unit else ""
            return f"a number has no commas: write `{head.text}{rest.text}{unit}`, or `{head.text}_{rest.text}{unit}`"
        case (
            tree.Setting(name=setting, value=tree.Number() as head),
            tree.ExprStatement(expr=tree.Number() as rest),
        ) if head.span.line == rest.span.line:
            return f"a list is written in brackets: `{setting.name} = [{head.text}, {rest.text}]`"
        case _, tree.ExprStatement(expr=tree.Call(function=tree.Name(name))) if name in BLOCK_NAMES:
            return f"write `{name} {{ NAME = VALUE }}`: it is a block, and no call"
    return "write settings here: `NAME = VALUE`, or a block `NAME { … }`"


def read_stages_over(ctx: Context, item: tree.Nested, scope: Scope) -> list[StagesOver]:
    """The stages of `stages(NAME in LIST) { … }`, one for each element; none with the reason reported."""
    binding = item.args[0].value if len(item.args) == 1 else None
    if isinstance(binding, tree.Compare) and binding.op == "in" and isinstance(binding.left, tree.Name):
        binding = tree.Binding(tree.Ident(binding.left.name, binding.left.span), binding.right, binding.span)
    if not isinstance(binding, tree.Binding):
        ctx.fail(
            "E0310",
            "`stages` runs over a list",
            item.name.span,
            help="write `stages(cap in halve(from: 16K tokens, to: 512 tokens)) { … }`, or `stage NAME { … }`",
        )
        return []
    return [StagesOver(binding.var, binding.over, item.block, scope, item.name.span)]


def stage_block(ctx: Context, item: tree.Decl, scope: Scope) -> Stage | None:
    """The stage of `stage NAME { … }`; None with the reason reported."""
    if item.block is None:
        return ctx.fail(
            "E0313", "a stage is a block", item.name.span, help=f"write `stage {item.name.name} {{ … }}`"
        )
    return Stage(item.name.name, f"`{item.name.name}`", None, item.block, scope, item.name.span)


def replace_stages(
    old: Iterable[Stage | StagesOver], new: Iterable[Stage | StagesOver]
) -> tuple[Stage | StagesOver, ...]:
    """New stages, which know the ones of the same names that they stand in for."""
    before = {each.name: each.span for each in old if isinstance(each, Stage)}
    return tuple(
        replace(each, replaced=before.get(each.name)) if isinstance(each, Stage) else each for each in new
    )
