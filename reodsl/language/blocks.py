"""Blocks: settings laid over a parent's, stages, and what is required or left to its default."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Label, Span, error
from reodsl.language.calls import default_value
from reodsl.language.context import Change, Context, Owner, Scope
from reodsl.language.evaluate import evaluated, fitted
from reodsl.language.kinds import KINDS, TRAINING
from reodsl.language.schema import Block, Kind, Many, type_words
from reodsl.language.suggest import advice, nearest
from reodsl.language.units import Quantity, shown
from reodsl.language.values import BLOCK, Items, Record, Slot, Value, article, describe
from reodsl.syntax import tree

EVALUATION = "evaluation"
"""`made` of an experiment that trains nothing: a checkpoint with a suite."""
UNKNOWN = "*"
"""In `broken` of a record whose parent could not be evaluated: nothing is known to be missing from it."""
FROM_CHECKPOINT = ("checkpoint", "model")


@dataclass(frozen=True, slots=True)
class StagePart:
    """One stage as declared: its name and label, the value that it was made for, its block, and where names are found."""

    name: str
    label: str
    value: Value | None
    block: tree.Block
    scope: Scope
    span: Span


@dataclass(frozen=True, slots=True)
class StagesOver:
    """`stages(var in list) { … }`: a stage for each value, made when it is asked for."""

    var: tree.Ident
    over: tree.Expr
    block: tree.Block
    scope: Scope
    span: Span


def split_amend(item: tree.Decl) -> tuple[tree.Expr | None, tree.Block | None]:
    """What a declaration is made from, and the block laid over it."""
    if isinstance(item.value, tree.Amend):
        return item.value.base, item.value.block
    return item.value, item.block


def record(ctx: Context, item: tree.Decl, scope: Scope, owner: Owner) -> Value | None:
    """The value of a declaration whose settings the table of kinds describes."""
    kind = KINDS[item.kind.name]
    parent, block = split_amend(item)
    start = Record(kind.name, {}, item.name.span, item.name.name, item.doc or "", owner)
    if parent is not None:
        inherited = derived(ctx, parent, kind, start, scope)
        if inherited is None:
            return None
        start = inherited
    if block is not None:
        start = laid(ctx, start, block, scope, item.doc or start.doc)
    for change in ctx.amends.get(owner, ()):
        start = changed(ctx, start, change, Scope(scope.module))
    if "style" in kind.children:
        start = _styled(ctx, start, owner)
    if UNKNOWN in start.broken:
        return None
    if not kind.partial:
        complete = (
            finished_experiment(ctx, start) if kind.name == "experiment" else finished(ctx, start, kind)
        )
        if complete is None:
            return None
        start = complete
    return Value(start, item.name.span)


def _styled(ctx: Context, start: Record, owner: Owner) -> Record:
    """Traces with their styles evaluated, in the order in which they are declared."""
    found = []
    for item, scope in start.children.values():
        value = record(ctx, item, scope, (owner[0], f"{owner[1]}.{item.name.name}"))
        if value is not None and isinstance(value.data, Record):
            found.append(value.data)
    if not start.children:
        ctx.report(
            error(
                "E0304",
                f"`{start.name}` needs a style: one way to write a step",
                start.span,
                "no `style`",
                help='add `style plain { template = "{value} {op} {next} ." }`',
            )
        )
    whole = bool(found) and len(found) == len(start.children)
    return replace(start, made=tuple(found), broken=start.broken if whole else start.broken | {UNKNOWN})


def derived(ctx: Context, parent: tree.Expr, kind: Kind, start: Record, scope: Scope) -> Record | None:
    """A record of `kind` that begins as its parent is; None for a parent of the wrong kind.

    An unknown parent gives a record that is broken as a whole, so that the block over it is still looked at.
    """
    value = evaluated(ctx, parent, scope)
    if value is None:
        return replace(start, broken=frozenset({UNKNOWN}))
    above = value.data
    if not isinstance(above, Record) or above.kind not in kind.parents:
        ctx.report(
            error(
                "E0311",
                f"{article(kind.name)} {kind.name} cannot be made from {describe(value)}",
                parent.span,
                describe(value),
                help="start from " + " or ".join(f"{article(each)} {each}" for each in kind.parents)
                if kind.parents
                else f"write `{kind.name} {start.name} {{ … }}`",
            )
        )
        return None
    if above.kind in FROM_CHECKPOINT and kind.name != above.kind:
        return replace(start, fields={"base": Slot(value, parent.span)}, made=EVALUATION)
    return replace(
        start,
        fields=above.fields,
        made=above.made,
        stages=above.stages,
        children=above.children,
        broken=above.broken,
    )


def amended(ctx: Context, expr: tree.Amend, scope: Scope) -> Value | None:
    """`base { overrides }` as an expression: the base with its settings changed."""
    value = evaluated(ctx, expr.base, scope)
    if value is None:
        return None
    above = value.data
    if isinstance(above, Record) and above.kind in FROM_CHECKPOINT:
        above = Record("experiment", {"base": Slot(value, expr.base.span)}, expr.span, made=EVALUATION)
    kind = KINDS.get(above.kind) if isinstance(above, Record) else None
    if not isinstance(above, Record) or kind is None or kind.form == "call":
        ctx.report(
            error(
                "E0311",
                f"{describe(value)} has no settings to change",
                expr.base.span,
                help="name a declaration",
            )
        )
        return None
    result = laid(ctx, replace(above, owner=None), expr.block, scope, expr.block.doc or above.doc)
    if kind.partial:
        return Value(result, expr.span)
    complete = finished_experiment(ctx, result) if kind.name == "experiment" else finished(ctx, result, kind)
    return None if complete is None else Value(complete, expr.span)


def laid(ctx: Context, start: Record, block: tree.Block, scope: Scope, doc: str) -> Record:
    """`start` with a block's settings laid over its own. What is wrong in the block is reported and left out."""
    kind = KINDS[start.kind]
    seen: dict[str, Span] = {}
    result = replace(start, doc=doc)
    stages: list[object] = []
    children: dict[str, object] = {}
    for item in block.items:
        match item:
            case tree.Setting():
                if _first(ctx, item.name, seen):
                    result = _setting(ctx, result, item, scope, doc)
            case tree.Nested(name=tree.Ident("stages")) if "stage" in kind.children:
                stages.extend(_stages_over(ctx, item, scope))
            case tree.Nested():
                if _first(ctx, item.name, seen):
                    result = _nested(ctx, result, item, scope, doc)
            case tree.Decl():
                if not _first(ctx, item.name, seen):
                    continue
                if item.kind.name not in kind.children:
                    _misplaced(ctx, item, kind)
                elif item.kind.name == "stage":
                    stages.append(_stage(ctx, item, scope))
                else:
                    children[item.name.name] = (item, scope)
            case tree.Let() | tree.Dense() | tree.ExprStatement():
                ctx.report(
                    error(
                        "E0313",
                        f"this stands in a reward, not in {article(kind.name)} {kind.name}",
                        item.span,
                        help="write settings here: `NAME = VALUE`, or a block `NAME { … }`",
                    )
                )
    if stages:
        result = replace(result, stages=tuple(stage for stage in stages if stage is not None))
    if children:
        result = replace(result, children={**result.children, **children})
    return result


def _first(ctx: Context, name: tree.Ident, seen: dict[str, Span]) -> bool:
    before = seen.setdefault(name.name, name.span)
    if before is name.span:
        return True
    ctx.report(
        error(
            "E0208",
            f"`{name.name}` is there twice",
            name.span,
            "again here",
            others=[Label(before, "first here")],
            help="keep one of them",
        )
    )
    return False


def _misplaced(ctx: Context, item: tree.Decl, kind: Kind) -> None:
    homes = [each.name for each in KINDS.values() if item.kind.name in each.children]
    if homes:
        helps = f"`{item.kind.name}` stands inside " + " or ".join(f"`{home}`" for home in homes)
    elif item.kind.name in KINDS and KINDS[item.kind.name].form == "declared":
        helps = f"declare the {item.kind.name} at the top of the file, and name it here"
    else:
        helps = (
            advice(item.kind.name, kind.children, "it may hold") if kind.children else "write settings here"
        )
    ctx.report(
        error(
            "E0202",
            f"{article(kind.name)} {kind.name} holds no `{item.kind.name}`",
            item.kind.span,
            "not here",
            help=helps,
        )
    )


def _setting(ctx: Context, record: Record, item: tree.Setting, scope: Scope, doc: str) -> Record:
    kind = KINDS[record.kind]
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        unknown_setting(ctx, kind, item.name)
        # What was most likely meant is not reported as missing, too.
        meant = nearest(name, kind.fields)
        return record if meant is None else replace(record, broken=record.broken | {meant})
    if isinstance(field.type, Block) and not isinstance(item.value, tree.Name):
        ctx.report(
            error(
                "E0301", f"`{name}` is a block of settings", item.value.span, help=f"write `{name} {{ … }}`"
            )
        )
        return record
    type_ = field.type
    if item.op == "+=" and isinstance(type_, Many):
        type_ = replace(type_, least=0)
    value = fitted(ctx, item.value, scope, type_, name, field.example)
    if value is None:
        return replace(record, broken=record.broken | {name})
    if item.op == "+=":
        before = record.get(name)
        if not isinstance(value.data, Items) or (before is not None and not isinstance(before.data, Items)):
            ctx.report(
                error(
                    "E0301",
                    f"`+=` adds to a list, and `{name}` is none",
                    item.span,
                    help=f"write `{name} = …`",
                )
            )
            return record
        if before is not None and isinstance(before.data, Items):
            value = replace(value, data=Items(before.data.values + value.data.values))
    return record.with_field(name, Slot(value, item.span, item.doc or doc, before=record.fields.get(name)))


def _nested(ctx: Context, record: Record, item: tree.Nested, scope: Scope, doc: str) -> Record:
    kind = KINDS[record.kind]
    name = item.name.name
    field = kind.fields.get(name)
    if field is None:
        unknown_setting(ctx, kind, item.name)
        return record
    if not isinstance(field.type, Block):
        ctx.report(
            error(
                "E0301",
                f"`{name}` is {type_words(field.type)}, not a block",
                item.name.span,
                help=f"write `{field.example or name + ' = …'}`",
            )
        )
        return record
    if item.args:
        ctx.report(
            error("E0310", f"`{name}` takes no arguments", item.args[0].span, help=f"write `{name} {{ … }}`")
        )
    before = record.sub(name)
    inner = before or Record(field.type.kind, {}, item.name.span, name, made=BLOCK)
    inner = laid(ctx, inner, item.block, scope, item.block.doc or doc)
    return record.with_field(name, Slot(Value(inner, item.name.span), item.name.span, doc))


def unknown_setting(ctx: Context, kind: Kind, name: tree.Ident) -> None:
    """The diagnostic of a setting that a kind does not have: one level off, misspelt, or unknown."""
    word = name.name
    inside = [
        each
        for each, field in kind.fields.items()
        if isinstance(field.type, Block) and word in KINDS[field.type.kind].fields
    ]
    around = [
        each
        for each in KINDS.values()
        if any(f.type == Block(kind.name) for f in each.fields.values()) and word in each.fields
    ]
    if inside:
        helps = f"`{word}` is a setting of `{inside[0]}`: write `{inside[0]} {{ {word} = … }}`"
    elif around:
        helps = f"`{word}` is a setting of the {around[0].name} around this block"
    else:
        helps = advice(word, [*kind.fields, *kind.children], "its settings are")
        if kind.name in ("experiment", "recipe", "arm", "stage") and nearest(word, kind.fields) is None:
            deeper = {
                sub: each
                for each, field in kind.fields.items()
                if isinstance(field.type, Block)
                for sub in KINDS[field.type.kind].fields
            }
            near = nearest(word, deeper)
            if near is not None:
                helps = f"did you mean `{deeper[near]} {{ {near} = … }}`?"
    ctx.report(
        error(
            "E0203",
            f"{article(kind.name)} {kind.name} has no setting `{word}`",
            name.span,
            "unknown",
            help=helps,
        )
    )


def changed(ctx: Context, record: Record, change: Change, scope: Scope) -> Record:
    """A record with one setting replaced from the command line."""
    kind = KINDS[record.kind]
    head, rest = change.path[0], change.path[1:]
    field = kind.fields.get(head)
    if field is None:
        unknown_setting(ctx, kind, tree.Ident(head, change.value.span))
        return record
    if isinstance(field.type, Block):
        if not rest:
            ctx.report(
                error(
                    "E0211",
                    f"`{change.target}` is a block of settings",
                    change.value.span,
                    help="name one of them",
                )
            )
            return record
        inner = record.sub(head) or Record(field.type.kind, {}, change.value.span, head, made=BLOCK)
        inner = changed(ctx, inner, replace(change, path=rest), scope)
        return record.with_field(head, Slot(Value(inner, change.value.span), change.value.span))
    if rest:
        ctx.report(
            error(
                "E0211",
                f"`{head}` has no settings of its own to amend",
                change.value.span,
                help=f"write `{head}=…`",
            )
        )
        return record
    value = fitted(ctx, change.value, scope, field.type, head, field.example)
    if value is None:
        return replace(record, broken=record.broken | {head})
    return record.with_field(head, Slot(value, change.value.span, "", True, record.fields.get(head)))


def _stages_over(ctx: Context, item: tree.Nested, scope: Scope) -> list[object]:
    binding = item.args[0].value if len(item.args) == 1 else None
    if isinstance(binding, tree.Compare) and binding.op == "in" and isinstance(binding.left, tree.Name):
        binding = tree.Binding(tree.Ident(binding.left.name, binding.left.span), binding.right, binding.span)
    if not isinstance(binding, tree.Binding):
        ctx.report(
            error(
                "E0310",
                "`stages` runs over a list",
                item.name.span,
                help="write `stages(cap in halve(from: 16K tokens, to: 512 tokens)) { … }`, or `stage NAME { … }`",
            )
        )
        return []
    return [StagesOver(binding.var, binding.over, item.block, scope, item.name.span)]


def _stage(ctx: Context, item: tree.Decl, scope: Scope) -> StagePart | None:
    if item.block is None:
        ctx.report(
            error(
                "E0313", "a stage is a block", item.name.span, help=f"write `stage {item.name.name} {{ … }}`"
            )
        )
        return None
    return StagePart(item.name.name, f"`{item.name.name}`", None, item.block, scope, item.name.span)


def stage_parts(ctx: Context, record: Record) -> list[StagePart]:
    """The stages that a record declares, those made from a list spelled out."""
    parts: list[StagePart] = []
    for stage in record.stages:
        if isinstance(stage, StagePart):
            parts.append(stage)
            continue
        over = evaluated(ctx, stage.over, stage.scope)
        if over is None:
            continue
        if not isinstance(over.data, Items) or not over.data.values:
            ctx.report(
                error("E0301", f"`stages` runs over a list, not over {describe(over)}", stage.over.span)
            )
            continue
        for each in over.data.values:
            value = replace(each, literal=None)
            name = str(value.data.number) if isinstance(value.data, Quantity) else str(len(parts))
            label = shown(value.data) if isinstance(value.data, Quantity) else name
            parts.append(StagePart(name, label, value, stage.block, _with(stage, value), stage.span))
    return parts


def _with(stage: StagesOver, value: Value) -> Scope:
    return stage.scope.inner({stage.var.name: lambda: value})


def stage_records(ctx: Context, experiment: Record) -> list[tuple[StagePart | None, Record]]:
    """The stages of an experiment, each with all its settings; one without a part when none is declared."""
    if not experiment.stages:
        return [(None, experiment)]
    found: list[tuple[StagePart | None, Record]] = []
    for part in stage_parts(ctx, experiment):
        stage = laid(
            ctx, replace(experiment, stages=()), part.block, part.scope, part.block.doc or experiment.doc
        )
        for change in ctx.amends.get(experiment.owner or ("", ""), ()):
            stage = changed(ctx, stage, change, Scope(part.scope.module))
        found.append((part, stage))
    return found


def finished_experiment(ctx: Context, experiment: Record) -> Record | None:
    """An experiment with its defaults, every stage complete; None when something required is missing."""
    if experiment.made == EVALUATION and "method" not in experiment.fields:
        return experiment
    complete = complete_stages(ctx, experiment)
    return experiment if complete else None


def complete_stages(ctx: Context, experiment: Record) -> list[tuple[StagePart | None, Record]]:
    """The stages of an experiment with every default filled in; empty when one of them lacks something."""
    found: list[tuple[StagePart | None, Record]] = []
    whole = True
    for part, stage in stage_records(ctx, experiment):
        done = finished(ctx, stage, KINDS["experiment"])
        if done is None:
            whole = False
        else:
            found.append((part, done))
    return found if whole else []


def finished(ctx: Context, record: Record, kind: Kind) -> Record | None:
    """A record with its defaults filled in; None, and a diagnostic for each, when required settings are missing."""
    if UNKNOWN in record.broken:
        return None
    missing: list[tuple[str, str, str, str]] = []
    done = _filled(record, kind, _method(record), missing, "")
    for path, type_, doc, example in missing:
        ctx.report(
            error(
                "E0304",
                f"`{record.name or kind.name}` needs `{path}`, {type_}: {doc}",
                record.span,
                f"no `{path}`",
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
