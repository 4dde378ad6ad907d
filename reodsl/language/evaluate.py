"""Evaluation: from expressions and declarations to values, lazily, each declaration once."""

from __future__ import annotations

from dataclasses import replace

from reodsl.diagnostics.model import Label, Span, error
from reodsl.language import arithmetic
from reodsl.language.context import DEEPEST, Context, Scope
from reodsl.language.kinds import DECLARED, KINDS, METRICS
from reodsl.language.modules import Loaded
from reodsl.language.schema import A, Choice, Either, Many, Type, fit
from reodsl.language.suggest import advice, there_is
from reodsl.language.units import UNITS, Quantity, dimension, scaled, shown
from reodsl.language.values import Bounds, Items, Record, Symbol, Value, describe
from reodsl.syntax import tree

RESPONSE_NAMES = frozenset(
    {"y", "x", "group", "ref", "len", "correct", "answer", "trapezoid", "uniform", "half_first"}
)


def fitted(
    ctx: Context, expr: tree.Expr, scope: Scope, want: Type, what: str, example: str = ""
) -> Value | None:
    """The value of an expression in the type of the setting `what`, or None with the reason reported."""
    value = evaluated(ctx, expr, scope, want)
    return None if value is None else settled(ctx, value, want, what, example)


def settled(ctx: Context, value: Value, want: Type, what: str, example: str = "") -> Value | None:
    """A value in a type, or None with a diagnostic that names the setting and where its value comes from."""
    result = fit(value, want)
    if isinstance(result, Value):
        return result
    ctx.report(
        error(
            result.code,
            result.message.replace("{what}", f"`{what}`"),
            result.value.span,
            result.text,
            others=[Label(place, text) for place, text in result.value.via],
            help=result.help or (f"write `{example}`, for example" if example else None),
        )
    )
    return None


def evaluated(ctx: Context, expr: tree.Expr, scope: Scope, want: Type | None = None) -> Value | None:
    """The value of an expression; `want` tells words from names and gives lists their items' type."""
    ctx.depth += 1
    try:
        if ctx.depth > DEEPEST * 6:
            ctx.report(error("E0209", "this is nested too deep", expr.span, help="give parts of it names"))
            return None
        return _evaluated(ctx, expr, scope, want)
    finally:
        ctx.depth -= 1


def _evaluated(ctx: Context, expr: tree.Expr, scope: Scope, want: Type | None) -> Value | None:
    match expr:
        case tree.Number():
            return number(ctx, expr)
        case tree.String():
            return Value(expr.value, expr.span)
        case tree.Bool():
            return Value(expr.value, expr.span)
        case tree.Name():
            return named(ctx, expr, scope, want)
        case tree.ListExpr():
            item = _item(want)
            values = [evaluated(ctx, each, scope, item) for each in expr.items]
            whole = tuple(value for value in values if value is not None)
            return Value(Items(whole), expr.span) if len(whole) == len(values) else None
        case tree.Range():
            low, high = evaluated(ctx, expr.lower, scope), evaluated(ctx, expr.upper, scope)
            return Value(Bounds(low, high), expr.span) if low is not None and high is not None else None
        case tree.Unary():
            operand = evaluated(ctx, expr.operand, scope)
            return None if operand is None else arithmetic.unary(ctx, expr, operand)
        case tree.Binary():
            left, right = evaluated(ctx, expr.left, scope, want), evaluated(ctx, expr.right, scope, want)
            return None if left is None or right is None else arithmetic.binary(ctx, expr, left, right)
        case tree.Compare():
            left, right = evaluated(ctx, expr.left, scope), evaluated(ctx, expr.right, scope)
            return None if left is None or right is None else arithmetic.compare(ctx, expr, left, right)
        case tree.Logic():
            left, right = evaluated(ctx, expr.left, scope, want), evaluated(ctx, expr.right, scope, want)
            return None if left is None or right is None else arithmetic.logic(ctx, expr, left, right)
        case tree.Not():
            operand = evaluated(ctx, expr.operand, scope)
            return None if operand is None else arithmetic.negation(ctx, expr, operand)
        case tree.IfElse():
            return _if_else(ctx, expr, scope, want)
        case tree.Call():
            from reodsl.language.calls import called

            return called(ctx, expr, scope)
        case tree.Attribute():
            return attribute(ctx, expr, scope, want)
        case tree.Index():
            return index(ctx, expr, scope)
        case tree.Slice():
            ctx.report(
                error(
                    "E0308",
                    "a response is cut inside a reward only",
                    expr.span,
                    help="write `y[:L]` in a `reward`",
                )
            )
            return None
        case tree.Amend():
            from reodsl.language.blocks import amended

            return amended(ctx, expr, scope)


def number(ctx: Context, expr: tree.Number) -> Value | None:
    """The quantity that a number is; without a unit it stays open to the one of its setting."""
    unit = dimension(expr.unit)
    if unit is None:
        ctx.report(
            error(
                "E0305",
                f"there is no unit `{expr.unit}`",
                expr.unit_span or expr.span,
                "not a unit",
                help=advice(expr.unit or "", UNITS, "units are"),
            )
        )
        return None
    if expr.suffix == "%" and unit:
        ctx.report(
            error("E0302", "a share has no unit", expr.span, "% of what?", help=f"write `{expr.text}` alone")
        )
        return None
    value = scaled(expr.value, expr.suffix, unit)
    if value is None:
        ctx.report(
            error(
                "E0303", "this number is past all sense", expr.span, "too large", help="write a smaller one"
            )
        )
        return None
    return Value(Quantity(value, unit), expr.span, literal=expr if expr.unit is None else None)


def named(ctx: Context, expr: tree.Name, scope: Scope, want: Type | None) -> Value | None:
    """The value of a name: a word of the setting's own, a local, a declaration, an import."""
    name = expr.name
    words = _words(want)
    if name in words:
        return Value(Symbol(name), expr.span)
    local = scope.find(name)
    if local is not None:
        value = local()
        return None if value is None else used_at(value, name, expr.span)
    found = lookup(ctx, scope.module, name)
    if found is not None:
        module, item = found
        value = declared(ctx, module, item)
        return None if value is None else used_at(value, name, expr.span)
    if name in scope.module.imports or _declared_badly(scope.module, name):
        return None
    unknown(ctx, expr, scope, words)
    return None


def unknown(ctx: Context, expr: tree.Name, scope: Scope, words: tuple[str, ...]) -> None:
    """The diagnostic of a name that nothing has."""
    name = expr.name
    if name in RESPONSE_NAMES:
        ctx.report(
            error(
                "E0308",
                f"`{name}` belongs to a response, and there is none outside a reward",
                expr.span,
                "not in a reward",
                help="use it inside `reward NAME { … }`, and name that reward here",
            )
        )
        return
    if words:
        ctx.report(
            error(
                "E0314",
                f"`{name}` is not one of the words that stand here",
                expr.span,
                "unknown",
                notes=[there_is(words, "the words are")],
                help=advice(name, words, "write one of"),
            )
        )
        return
    ctx.report(
        error(
            "E0201",
            f"there is no `{name}` here",
            expr.span,
            "unknown",
            help=advice(name, scope.names(), "this file has") + _import_hint(name),
        )
    )


def _import_hint(name: str) -> str:
    from reodsl.language.library import provider

    module = provider(name)
    return f"; `from {module} import {name}` provides one" if module else ""


def used_at(value: Value, name: str, span: Span) -> Value:
    """A value as it is used by name: the use is its place, the setting is remembered."""
    if isinstance(value.data, Record):
        return replace(value, span=span, literal=None)
    text = shown(value.data) if isinstance(value.data, Quantity) else ""
    via = ((value.span, f"`{name}` is {text}" if text else f"`{name}` is set here"), *value.via)
    return replace(value, span=span, via=via[:4], literal=None)


def lookup(ctx: Context, module: Loaded, name: str) -> tuple[Loaded, tree.ModuleItem] | None:
    """The declaration behind a name of a file, through imports."""
    item = module.items.get(name)
    if item is not None:
        ctx.used.add((module.key, name))
        return module, item
    imported = module.imports.get(name)
    if imported is None:
        return None
    ctx.used_imports.add((module.key, name))
    target = ctx.modules.loaded.get(imported.module) if imported.module is not None else None
    if target is None or imported.name not in target.items:
        return None
    ctx.used.add((target.key, imported.name))
    return target, target.items[imported.name]


def _declared_badly(module: Loaded, name: str) -> bool:
    return any(item.name.name == name for item in module.module.items)


def declared(ctx: Context, module: Loaded, item: tree.ModuleItem) -> Value | None:
    """The value of a declaration or a param, computed once."""
    owner = (module.key, item.name.name)
    if isinstance(item, tree.Param):
        from reodsl.language.params import param_value

        return ctx.once(owner, item.name.span, lambda: param_value(ctx, module, item))
    return ctx.once(owner, item.name.span, lambda: declaration(ctx, module, item))


def declaration(ctx: Context, module: Loaded, item: tree.Decl) -> Value | None:
    """The value of a declaration by its kind."""
    kind = item.kind.name
    scope = Scope(module)
    owner = (module.key, item.name.name)
    if kind not in DECLARED:
        known = [*DECLARED]
        inside = KINDS.get(kind)
        helps = advice(kind, known, "kinds are")
        if inside is not None and inside.form == "declared":
            homes = [each.name for each in KINDS.values() if kind in each.children]
            helps = f"`{kind}` stands inside " + " or ".join(f"`{home}`" for home in homes)
        ctx.report(
            error(
                "E0202",
                f"there is no kind `{kind}`",
                item.kind.span,
                "unknown",
                notes=[there_is(known, "kinds are")],
                help=helps,
            )
        )
        return None
    if item.params is not None and kind != "reward":
        ctx.report(
            error(
                "E0313",
                "only rewards take parameters of their own",
                item.name.span,
                help="declare `param NAME: TYPE = VALUE` at the top of the file",
            )
        )
    if kind == "reward":
        from reodsl.language.rewards import reward_declaration

        return reward_declaration(ctx, module, item)
    if kind == "budgets":
        return _budgets(ctx, item, scope, owner)
    if kind == "study":
        from reodsl.language.studies import study

        return study(ctx, module, item)
    from reodsl.language.blocks import record

    return record(ctx, item, scope, owner)


def _budgets(ctx: Context, item: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value | None:
    from reodsl.language.calls import splits

    if item.value is None:
        ctx.report(
            error(
                "E0313",
                "budgets come from an expression",
                item.name.span,
                help="write `budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)`",
            )
        )
        return None
    value = splits(ctx, item.value, scope, item.name.name)
    if value is None or not isinstance(value.data, Record):
        return None
    named_record = replace(
        value.data, name=value.data.name or item.name.name, owner=value.data.owner or owner
    )
    return replace(value, data=named_record)


def attribute(ctx: Context, expr: tree.Attribute, scope: Scope, want: Type | None) -> Value | None:
    """`x.stages`, a setting of a record, or a metric where one is wanted."""
    if isinstance(want, A) and "metric" in want.kinds:
        return metric(ctx, expr)
    if (parts := _library_path(expr, scope)) is not None:
        return _from_library(ctx, expr, parts)
    value = evaluated(ctx, expr.value, scope)
    if value is None:
        return None
    if not isinstance(value.data, Record):
        ctx.report(
            error(
                "E0301",
                f"{describe(value)} has no settings",
                expr.span,
                help="name a declaration before the point",
            )
        )
        return None
    record, name = value.data, expr.name.name
    if record.kind == "arm":
        record = record.made
    if name == "stages" and record.kind in ("experiment", "recipe"):
        return Value(Record("stages", {}, expr.span, name=record.name, made=record), expr.span)
    found = record.get(name)
    if found is None:
        known = list(record.fields) + (["stages"] if record.stages else [])
        ctx.report(
            error(
                "E0203",
                f"{describe(value)} has no `{name}`",
                expr.name.span,
                "unknown",
                help=advice(name, known, "it has"),
            )
        )
        return None
    return used_at(found, f"{record.name}.{name}" if record.name else name, expr.span)


def _library_path(expr: tree.Attribute, scope: Scope) -> list[str] | None:
    """The parts of `std.paper.qwen3_4b` behind `std`, where an attribute is a full name of the library."""
    parts = [expr.name.name]
    inner = expr.value
    while isinstance(inner, tree.Attribute):
        parts.insert(0, inner.name.name)
        inner = inner.value
    return (
        parts if isinstance(inner, tree.Name) and inner.name == "std" and "std" not in scope.names() else None
    )


def _from_library(ctx: Context, expr: tree.Attribute, parts: list[str]) -> Value | None:
    from reodsl.language.modules import library_names

    *folders, name = parts
    module, known = ".".join(folders), library_names()
    loaded = ctx.modules.library(module) if module in known else None
    if loaded is None:
        helps = advice(module or name, known, "it has")
        ctx.report(
            error("E0204", f"there is no module `std.{module or name}`", expr.span, "not found", help=helps)
        )
        return None
    if name not in loaded.items:
        helps = advice(name, loaded.items, "it has")
        ctx.report(
            error("E0205", f"`std.{module}` has no `{name}`", expr.name.span, "not in that file", help=helps)
        )
        return None
    found = declared(ctx, loaded, loaded.items[name])
    return None if found is None else used_at(found, name, expr.span)


def metric(ctx: Context, expr: tree.Attribute) -> Value | None:
    """What a plateau watches."""
    text = f"{expr.value.name}.{expr.name.name}" if isinstance(expr.value, tree.Name) else "?"
    if text not in METRICS:
        ctx.report(
            error(
                "E0314",
                f"there is no metric `{text}`",
                expr.span,
                "unknown",
                help=advice(text, METRICS, "metrics are"),
            )
        )
        return None
    return Value(Record("metric", {}, expr.span, name=expr.name.name), expr.span)


def index(ctx: Context, expr: tree.Index, scope: Scope) -> Value | None:
    """`x.stages[4K tokens]`: a stage by its name or by the value that it was made for."""
    from reodsl.language.blocks import stage_parts

    value = evaluated(ctx, expr.value, scope)
    if value is None:
        return None
    if not isinstance(value.data, Record) or value.data.kind != "stages":
        ctx.report(
            error(
                "E0301",
                f"{describe(value)} has no elements",
                expr.span,
                help="index stages: `x.stages[4K tokens]`",
            )
        )
        return None
    record = value.data.made
    parts = stage_parts(ctx, record)
    names = [part.label for part in parts]
    if isinstance(expr.index, tree.Name) and expr.index.name in [part.name for part in parts]:
        position = [part.name for part in parts].index(expr.index.name)
    else:
        wanted = evaluated(ctx, expr.index, scope)
        if wanted is None:
            return None
        position = next((i for i, part in enumerate(parts) if _same(part.value, wanted)), -1)
        if position < 0:
            ctx.report(
                error(
                    "E0212",
                    f"`{record.name}` has no stage {describe(wanted)}",
                    expr.index.span,
                    "no such stage",
                    others=[Label(record.span, "declared here")],
                    help=there_is(names, "its stages are"),
                )
            )
            return None
    return Value(
        Record(
            "stage_of", {}, expr.span, name=f"{record.name}.{parts[position].name}", made=(record, position)
        ),
        expr.span,
    )


def _same(stage: Value | None, wanted: Value) -> bool:
    if stage is None or not isinstance(stage.data, Quantity) or not isinstance(wanted.data, Quantity):
        return False
    if wanted.literal is not None and not wanted.data.unit:
        return scaled(wanted.literal.value, wanted.literal.suffix, stage.data.unit) == stage.data.number
    return stage.data == wanted.data


def _if_else(ctx: Context, expr: tree.IfElse, scope: Scope, want: Type | None) -> Value | None:
    condition = evaluated(ctx, expr.condition, scope)
    if condition is None:
        return None
    if not isinstance(condition.data, bool):
        ctx.report(
            error("E0301", f"a condition is true or false, not {describe(condition)}", expr.condition.span)
        )
        return None
    return evaluated(ctx, expr.then if condition.data else expr.otherwise, scope, want)


def _item(want: Type | None) -> Type | None:
    if isinstance(want, Many):
        return want.item
    if isinstance(want, Either):
        return next((_item(option) for option in want.options if isinstance(option, Many)), None)
    return None


def _words(want: Type | None) -> tuple[str, ...]:
    match want:
        case Choice():
            return want.words
        case Many():
            return _words(want.item) if want.lone else ()
        case Either():
            return tuple(word for option in want.options for word in _words(option))
    return ()
