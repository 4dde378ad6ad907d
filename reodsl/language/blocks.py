"""Apply a block of settings to a record, and list the arms and frontiers of a study with those of its sweeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import TypeVar

from reodsl.diagnostics.model import Span
from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Block, Condition, Kind, ListOf
from reodsl.language.bounds import MOST_ARMS
from reodsl.language.context import Context, NoValue, attempt, return_value, try_all
from reodsl.language.evaluate import check_length, evaluate, evaluate_as
from reodsl.language.fitting import coerce, describe_type
from reodsl.language.hints import BLOCK_NAMES, report_setting
from reodsl.language.modules import ParsedFile, describe_duplicate
from reodsl.language.reward.selection import type_question_condition
from reodsl.language.suggest import nearest, suggest
from reodsl.language.units import Quantity, format_quantity
from reodsl.language.values import (
    Child,
    Composite,
    DeclaredExperiment,
    DeclaredStage,
    Items,
    NestedBlock,
    Record,
    Scope,
    Slot,
    StageSweep,
    Symbol,
    Until,
    Value,
    article,
    describe,
    write_value,
)
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)


def apply_block(
    ctx: Context, start: R, block: tree.BraceBlock, scope: Scope, doc: str, kind: Kind | None = None
) -> R:
    """Return a record after the items of a block: its settings, stages and declarations replace the record's.

    A wrong setting is reported. It keeps its old value, and its name is in `invalid` of the result. If the
    block has stages, they replace all stages of the record.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        start: The record to change.
        block: The block in the syntax tree.
        scope: The names that the block's expressions may use.
        doc: The comment above the declaration. It names the source of settings that have no comment.
        kind: The kind whose settings the block may have; by default that of `start`.
    """
    kind = kind or KINDS[start.kind]
    seen: dict[str, Span] = {}
    result = start if start.doc == doc else replace(start, doc=doc)
    stages: list[DeclaredStage | StageSweep | None] = []
    children: dict[str, Child] = {}
    for previous, item in zip((None, *block.items), block.items, strict=False):
        match item:
            case tree.Assignment():
                if _is_first(ctx, item.name, seen):
                    result = _apply_item(ctx, result, item, scope, doc, kind)
                    if item.name.name == "until" and isinstance(result.sub("until"), Until):
                        _is_first(ctx, replace(item.name, name="steps"), seen)
            case tree.NamedBlock(name=tree.Ident("stages")) if "stage" in kind.children:
                stages.extend(read_stages_over(ctx, item, scope))
            case tree.NamedBlock(name=tree.Ident("arms")) if "arm" in kind.children:
                pass  # `list_members` spells its arms out
            case tree.NamedBlock():
                if _is_first(ctx, item.name, seen):
                    result = _apply_item(ctx, result, item, scope, doc, kind)
            case tree.Decl():
                if not _is_first(ctx, item.name, seen):
                    continue
                if item.kind.name not in kind.children:
                    _report_misplaced(ctx, item, kind)
                elif item.kind.name == "stage":
                    stages.append(attempt(partial(read_stage, ctx, item, scope)))
                else:
                    children[item.name.name] = (item, scope)
            case tree.Let() | tree.Dense() | tree.ExprStatement():
                ctx.error(
                    "E0313",
                    f"this belongs in a reward, not in {article(kind.name)} {kind.name}",
                    item.span,
                    help=_suggest_for_stray(ctx, item, previous),
                )
    if stages and isinstance(result, DeclaredExperiment):
        valid_stages = [stage for stage in stages if stage is not None]
        result = replace(result, stages=replace_stages(result.stages, valid_stages), stage_changes=())
    if children and isinstance(result, (Composite, NestedBlock)):
        result = replace(result, children={**result.children, **children})
    return result


def _apply_item(
    ctx: Context, record: R, item: tree.Assignment | tree.NamedBlock, scope: Scope, doc: str, kind: Kind
) -> R:
    """Return a record after one setting or nested block; if it is wrong, only its name is added to `invalid`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record before the item.
        item: The setting or nested block in the syntax tree.
        scope: The names that its expressions may use.
        doc: The comment that the setting gets if it has none.
        kind: The kind whose settings the record has.
    """
    try:
        if isinstance(item, tree.Assignment):
            return _assign(ctx, record, item, scope, doc, kind)
        return _apply_nested(ctx, record, item, scope, doc, kind)
    except NoValue:
        return replace(record, invalid=record.invalid | {item.name.name})


def _is_first(ctx: Context, name: tree.Ident, seen: dict[str, Span]) -> bool:
    """Return whether this is the first item with its name in the block; report E0208 for a second one.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        name: The item's name.
        seen: The spans of the names so far; the new name is added.
    """
    first_span = seen.setdefault(name.name, name.span)
    if first_span is name.span:
        return True
    ctx.report(describe_duplicate(name.name, name.span, first_span, "keep one of them"))
    return False


def find_homes(kind: str) -> str | None:
    """Return help that names the blocks in which a kind of declaration belongs; None if it belongs in no block."""
    homes = [f"`{parent.name}`" for parent in KINDS.values() if kind in parent.children]
    return f"`{kind}` belongs inside {' or '.join(homes)}" if homes else None


def _report_misplaced(ctx: Context, item: tree.Decl, kind: Kind) -> None:
    """Report E0202 for a declaration in a block whose kind cannot contain declarations of that kind."""
    if home := find_homes(item.kind.name):
        advice = home
    elif item.kind.name in KINDS and KINDS[item.kind.name].form == "declared":
        advice = f"declare the {item.kind.name} at the top of the file, and name it here"
    else:
        advice = (
            suggest(item.kind.name, kind.children, "it may hold") if kind.children else "write settings here"
        )
    ctx.lost_names.add(item.name.name)
    ctx.error(
        "E0202",
        f"{article(kind.name)} {kind.name} cannot contain `{item.kind.name}`",
        item.kind.span,
        "not here",
        help=advice,
    )


def _assign(ctx: Context, record: R, item: tree.Assignment, scope: Scope, doc: str, kind: Kind) -> R:
    """Return a record after one assignment, `name = value` or `name += value`.

    An unknown setting is reported, and the known setting with the nearest name counts as given. If the type of
    a block names a setting `alone`, a call may be assigned to the block: it replaces the block by this
    setting. Any other value for a block but a name is reported, and the block is in `invalid` of the result.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record before the assignment.
        item: The assignment in the syntax tree.
        scope: The names that the value may use.
        doc: The comment that the setting gets if it has none.
        kind: The kind that has the setting.

    Raises:
        NoValue: The value is wrong; the error was reported.
    """
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        report_setting(ctx, kind, item.name)
        # The setting that was probably meant counts as given, so that it is not also reported as missing.
        blocks = [setting.type.kind for setting in kind.fields.values() if isinstance(setting.type, Block)]
        is_in_block = any(name in KINDS[block].fields for block in blocks)
        nearest_name = None if is_in_block else nearest(name, kind.fields)
        return record if nearest_name is None else replace(record, invalid=record.invalid | {nearest_name})
    if isinstance(field.type, Block) and field.type.alone and isinstance(item.value, tree.Call):
        # A call replaces the whole block, with the settings that a recipe gave it.
        inside = KINDS[field.type.kind]
        node = replace(item, name=replace(item.name, name=field.type.alone), op="=")
        block = _assign(ctx, NestedBlock(inside.name, {}, item.name.span, name), node, scope, doc, inside)
        return record.with_field(name, Slot(Value(block, item.name.span), item.name.span, doc))
    if isinstance(field.type, Block) and not isinstance(item.value, tree.Name):
        ctx.error(
            "E0301",
            f"`{name}` is a block of settings",
            item.value.span,
            help=f"write `{name} {{ {_write_inside(ctx, record, field.type, item, scope)} }}`",
        )
        return replace(record, invalid=record.invalid | {name})
    type_ = field.type
    if item.op == "+=" and isinstance(type_, ListOf):
        type_ = replace(type_, least=0)
    value = (
        type_question_condition(ctx, item.value, scope)
        if isinstance(type_, Condition)
        else evaluate_as(ctx, item.value, scope, type_, name, field.example)
    )
    if item.op == "+=":
        prior = record.get(name)
        if not isinstance(value.data, Items) or (prior is not None and not isinstance(prior.data, Items)):
            ctx.error(
                "E0301", f"`+=` is for lists; `{name}` is no list", item.span, help=f"write `{name} = …`"
            )
            return record
        if prior is not None and isinstance(prior.data, Items):
            value = replace(value, data=Items(prior.data.values + value.data.values))
            check_length(ctx, value, item.span)
    slot = Slot(value, item.span, doc if item.doc is None else item.doc, parent=record.fields.get(name))
    if isinstance(value.data, Until):
        # `until = … or steps(400)` sets `steps` too, which a nearer `steps = …` replaces.
        record = record.with_field(
            "steps", replace(slot, value=value.data.steps, parent=record.fields.get("steps"))
        )
    return record.with_field(name, slot)


def _write_inside(ctx: Context, record: Record, block: Block, item: tree.Assignment, scope: Scope) -> str:
    """Return the settings to write inside a block, as `lr = 1e-6, steps = 100`, for an assignment to the block.

    The assigned value is written for the first setting whose type it fits. Required settings without a value
    are written as examples.

    Args:
        ctx: The state of the evaluation.
        record: The record that has the block as a setting.
        block: The type of the block.
        item: The wrong assignment of the value to the block's name.
        scope: The names that the value may use.
    """
    value = attempt(lambda: evaluate(ctx.trial(), item.value, scope))
    lines, is_placed = [], value is None
    for name, setting in KINDS[block.kind].fields.items():
        fitted = coerce(value, setting.type) if value is not None and not is_placed else None
        if isinstance(fitted, Value):
            lines.append(f"{name} = {'…' if isinstance(fitted.data, str) else write_value(fitted)}")
            is_placed = True
        elif setting.required and record.at(f"{item.name.name}.{name}") is None:
            lines.append(setting.example)
    return ", ".join(lines) or "…"


def _apply_nested(ctx: Context, record: R, item: tree.NamedBlock, scope: Scope, doc: str, kind: Kind) -> R:
    """Return a record after one nested block, whose settings change the record's block of the same name.

    If the kind has no such block, the error is reported, and the record is returned as it is.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record before the block.
        item: The nested block in the syntax tree.
        scope: The names that the block's expressions may use.
        doc: The comment of the enclosing block, for the block and for settings of a block without its own comment.
        kind: The kind of the record, which says what settings the record has.
    """
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        report_setting(ctx, kind, item.name)
        return record
    if not isinstance(field.type, Block):
        advice = f"write `{field.example or name + ' = …'}`"
        if item.span.path.startswith("--amend"):
            target, setting = record.sub(name), item.span.path.partition(f"{name}.")[2]
            advice = "write the whole setting"
            if target is not None and target.name and target.kind in KINDS:
                advice += f", or amend what it names: `--amend {target.name}.{setting}=…`"
        words = f"`{name}` is {describe_type(field.type)}, not a block"
        ctx.error("E0301", words, item.name.span, help=advice)
        return record
    if item.args:
        ctx.error("E0310", f"`{name}` takes no arguments", item.args[0].span, help=f"write `{name} {{ … }}`")
    inherited = record.sub(name)
    inner = inherited or NestedBlock(field.type.kind, {}, item.name.span, name)
    inner = apply_block(ctx, inner, item.block, scope, item.block.doc or doc)
    return record.with_field(name, Slot(Value(inner, item.name.span), item.name.span, doc))


def _suggest_for_stray(ctx: Context, item: tree.BlockItem, previous: tree.BlockItem | None) -> str:
    """Return help for an expression or a `let` or `dense` line in a block that holds only settings.

    Three mistakes are recognised: a number with a comma such as `lr = 32,768`, a list without brackets such
    as `seeds = 1, 2`, and a call that should be a block.

    Args:
        ctx: The state of the evaluation.
        item: The item.
        previous: The item before `item` in the block; None for the first item.
    """
    match previous, item:
        case (
            tree.Assignment(value=tree.Number(unit=None) as head),
            tree.ExprStatement(expr=tree.Number() as rest),
        ) if head.text.isdigit() and re.fullmatch(r"\d{3}", rest.text) and head.span.line == rest.span.line:
            unit = f" {rest.unit}" if rest.unit else ""
            return f"a number has no commas: write `{head.text}{rest.text}{unit}`, or `{head.text}_{rest.text}{unit}`"
        case (
            tree.Assignment(name=setting, value=tree.Number() as head),
            tree.ExprStatement(expr=tree.Number() as rest),
        ) if head.span.line == rest.span.line:
            return f"a list is written in brackets: `{setting.name} = [{head.text}, {rest.text}]`"
        case _, tree.ExprStatement(expr=tree.Call(function=tree.Name(name), args=args)) if (
            name in BLOCK_NAMES
        ):
            named = all(arg.name is not None for arg in args)
            settings = [re.sub(r"^(\w+)\s*:\s*", r"\1 = ", ctx.text_at(arg.span)) for arg in args if named]
            return f"write `{name} {{ {', '.join(settings) or 'NAME = VALUE'} }}`: it is a block, and no call"
    return "write settings here: `NAME = VALUE`, or a block `NAME { … }`"


def read_stages_over(ctx: Context, item: tree.NamedBlock, scope: Scope) -> list[StageSweep]:
    """Return a list of the sweep that `stages(NAME in LIST) { … }` declares.

    If the parentheses hold anything but `NAME in LIST`, E0310 is reported, and the list is empty.
    """
    binding = item.args[0].value if len(item.args) == 1 else None
    if isinstance(binding, tree.Compare) and binding.op == "in" and isinstance(binding.left, tree.Name):
        binding = tree.Binding(tree.Ident(binding.left.name, binding.left.span), binding.right, binding.span)
    if not isinstance(binding, tree.Binding):
        ctx.error(
            "E0310",
            "`stages` runs over a list",
            item.name.span,
            help="write `stages(cap in halve(from: 16K tokens, to: 512 tokens)) { … }`, or `stage NAME { … }`",
        )
        return []
    return [StageSweep(binding.var, binding.over, item.block, scope, item.name.span)]


def read_stage(ctx: Context, item: tree.Decl, scope: Scope) -> DeclaredStage:
    """Return the stage that `stage NAME { … }` declares.

    Raises:
        NoValue: The declaration has no block; E0313 was reported.
    """
    if item.block is None:
        ctx.fail(
            "E0313", "a stage is a block", item.name.span, help=f"write `stage {item.name.name} {{ … }}`"
        )
    return DeclaredStage(item.name.name, f"`{item.name.name}`", None, item.block, scope, item.name.span)


def replace_stages(
    old: Iterable[DeclaredStage | StageSweep], new: Iterable[DeclaredStage | StageSweep]
) -> tuple[DeclaredStage | StageSweep, ...]:
    """Return the new stages of a record; `replaced_span` has the span of the old stage of the same name, if any.

    Args:
        old: The stages that the record has from its parent.
        new: The stages of its own block.
    """
    old_spans = {stage.name: stage.span for stage in old if isinstance(stage, DeclaredStage)}
    return tuple(
        replace(stage, replaced_span=old_spans.get(stage.name)) if isinstance(stage, DeclaredStage) else stage
        for stage in new
    )


EXAMPLE = "arms(w in [0.1, 0.3]) { arm swept = mine { reward = cheap(cost: w) } }"


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """An arm or a frontier of a study, as it is declared or as a sweep makes it."""

    item: tree.Decl
    """The declaration, under the name in results."""
    base_name: str
    """The name in the spec, which all arms of a sweep share."""
    values: dict[str, Callable[[], Value]] = field(default_factory=dict)
    """The values of the sweep's names for this arm."""

    @property
    def name(self) -> str:
        """Return the arm's name in results, tables and files."""
        return self.item.name.name


def list_members(ctx: Context, module: ParsedFile, study: tree.Decl) -> list[ArmSpec]:
    """Return the arms and frontiers of a study in order.

    A sweep `arms(NAME in LIST, …) { arm … }` gives an arm for each combination of the lists' items.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the study.
        study: The study in the syntax tree.

    Raises:
        NoValue: A sweep is wrong; the error was reported.
    """

    def spell_out(item: tree.BlockItem) -> list[ArmSpec]:
        """Return the arms that an item of the study's block declares; none for a setting."""
        match item:
            case tree.Decl(kind=tree.Ident("arm" | "frontier")):
                return [ArmSpec(item, item.name.name)]
            case tree.NamedBlock(name=tree.Ident("arms")):
                return _expand_sweep(ctx, module, item)
        return []

    items = study.block.items if study.block is not None else ()
    return [member for members in try_all(spell_out, items) for member in members]


def _expand_sweep(ctx: Context, module: ParsedFile, sweep: tree.NamedBlock) -> list[ArmSpec]:
    """Return the arms of a sweep `arms(NAME in LIST, …) { arm … }`.

    Each declaration in the block gives an arm for each combination of the lists' items. The last NAME varies
    fastest.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the study.
        sweep: The block `arms(NAME in LIST, …) { arm … }` in the syntax tree.

    Raises:
        NoValue: The sweep is wrong or has more than `MOST_ARMS` arms; the error was reported.
    """
    if not sweep.args:
        ctx.fail("E0310", "`arms` runs over lists", sweep.name.span, help=f"write `{EXAMPLE}`")
    lists = attempt(lambda: try_all(lambda arg: _read_list(ctx, module, arg), sweep.args))
    arms: list[tree.Decl] = []
    for item in sweep.block.items:
        if not isinstance(item, tree.Decl) or item.kind.name != "arm":
            ctx.fail("E0202", "`arms` takes only arms", item.span, "not here", help=f"write `{EXAMPLE}`")
        arms.append(item)
    if lists is None:
        raise NoValue
    names = [name.name for name, _ in lists]
    for i, (name, _) in enumerate(lists):
        if name.name in names[:i]:
            ctx.refuse(describe_duplicate(name.name, name.span, None, "give it another name"))
    count = len(arms) * prod(len(values) for _, values in lists)
    if count > MOST_ARMS:
        ctx.fail(
            "E0216",
            f"a study has at most {MOST_ARMS:,} arms, and these are {count:,}",
            sweep.name.span,
            "too large",
            help="sweep over fewer values at once",
        )
    members: dict[str, ArmSpec] = {}
    for arm in arms:
        for combination in product(*(values for _, values in lists)):
            spelled = _make_member(arm, dict(zip(names, combination, strict=True)))
            if members.setdefault(spelled.name, spelled) is not spelled:
                ctx.refuse(describe_duplicate(spelled.name, sweep.name.span, None, "list each value once"))
    return list(members.values())


def _read_list(ctx: Context, module: ParsedFile, arg: tree.Arg) -> tuple[tree.Ident, tuple[Value, ...]]:
    """Return the name and the values of one argument `NAME in LIST` of a sweep.

    Raises:
        NoValue: The argument has another form, or the list is empty; the error was reported.
    """
    value = arg.value
    if isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name):
        value = tree.Binding(tree.Ident(value.left.name, value.left.span), value.right, value.span)
    if not isinstance(value, tree.Binding):
        ctx.fail("E0310", "`arms` runs over lists", arg.span, help=f"write `{EXAMPLE}`")
    list_value = evaluate(ctx, value.over, Scope(module))
    if not isinstance(list_value.data, Items) or not list_value.data.values:
        ctx.fail(
            "E0301",
            f"`arms` runs over lists, not over {describe(list_value)}",
            value.over.span,
            help=f"write `{EXAMPLE}`",
        )
    return value.var, tuple(replace(item, literal=None) for item in list_value.data.values)


def _make_member(arm: tree.Decl, values: dict[str, Value]) -> ArmSpec:
    """Return the arm for one combination of values; its name has the values, as `swept_w0_1` for w = 0.1."""
    name = arm.name.name + "".join(f"_{key}{_write_word(value)}" for key, value in values.items())
    settings = ", ".join(f"{key} = {write_value(value)}" for key, value in values.items())
    item = replace(arm, name=tree.Ident(name, arm.name.span), doc=arm.doc or settings)
    return ArmSpec(item, arm.name.name, {key: return_value(value) for key, value in values.items()})


def _write_word(value: Value) -> str:
    """Return a value in letters, digits and `_` for the name of an arm; a minus becomes `m`."""
    match value.data:
        case Quantity():
            text = format_quantity(Quantity(value.data.number))
        case Record():
            text = value.data.name
        case Symbol():
            text = value.data.name
        case _:
            text = write_value(value)
    text = f"m{text[1:]}" if text.startswith("-") else text
    word = re.sub("[^0-9A-Za-z]+", "_", text).strip("_")
    return word if word[:1].isdigit() or word.startswith("m") else f"_{word}"
