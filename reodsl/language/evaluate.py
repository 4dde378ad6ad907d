"""Evaluate expressions: names, calls, attributes and operators, in the types of settings.

Every expression may contain every other, so all of them are evaluated here. An expression may name a declaration, which has
expressions itself: the context evaluates declarations (`Context.value_of`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from reodsl.diagnostics.dropped import refuse_dropped
from reodsl.diagnostics.model import Edit, Label, Span, join_words
from reodsl.ir.kinds import DECLARED, FORMULAS, KINDS, METRICS
from reodsl.ir.setting import (
    SPLITS,
    TOKENS,
    AnyOf,
    Flag,
    Kind,
    ListOf,
    Num,
    OfKind,
    OfReward,
    OneOf,
    Text,
    Type,
)
from reodsl.language import arithmetic
from reodsl.language.bounds import EXPRESSION_STEPS
from reodsl.language.context import Context, NoValue, attempt, return_value, try_all
from reodsl.language.fitting import coerce, describe_type, list_kinds, make_typed
from reodsl.language.functions import ENDS, REASONING_STEPS, SIGNATURES, call_function, make_budgets
from reodsl.language.hints import BUDGETS, POOL, report_name, study_of_arm, suggest_import, suggest_quotes
from reodsl.language.modules import ParsedFile, describe_duplicate, list_library
from reodsl.language.resolve import walk_ancestry
from reodsl.language.reward.names import NUMERIC, RESPONSE_NAMES, STATISTICS
from reodsl.language.suggest import list_names, nearest, suggest
from reodsl.language.units import UNITS, Quantity, format_quantity, name_unit, read_dimension, scale
from reodsl.language.values import (
    Bounds,
    DeclaredArm,
    DeclaredExperiment,
    DeclaredStage,
    Definition,
    Items,
    Record,
    Scope,
    Slot,
    StageList,
    StageRef,
    Symbol,
    Until,
    Value,
    describe,
    write_value,
)
from reodsl.syntax import tree

MOST_VALUES = 2**14
DEEPEST_EXPRESSION = 360
MOST_STAGES = 256
CONSTRUCTORS = {name: kind for name, kind in KINDS.items() if kind.form == "call"}
REWARD_ONLY = frozenset({*NUMERIC, *STATISTICS, "correct", "len", "answer"}) - SIGNATURES.keys()
"""Functions of responses, which are called in rewards alone."""
SCHEDULE = AnyOf((SPLITS, ListOf(TOKENS, 2)))
PLAIN_TYPES: dict[str, Type] = {
    "number": Num(),
    "int": Num(integer=True),
    "text": Text(),
    "bool": Flag(),
    "budgets": SPLITS,
}
TYPES_ELSEWHERE = {
    **dict.fromkeys(("float", "double", "real"), "number"),
    **dict.fromkeys(("integer", "Int", "long"), "int"),
    **dict.fromkeys(("str", "string", "String"), "text"),
    **dict.fromkeys(("boolean", "Bool"), "bool"),
    **dict.fromkeys(("list", "List", "tuple"), "[int]"),
}
"""The plain types by their names in other languages."""


def evaluate_as(
    ctx: Context, expr: tree.Expr, scope: Scope, type_: Type, name: str, example: str = ""
) -> Value:
    """Return the value of an expression, converted to the type of a setting.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        scope: The names that the expression may use.
        type_: The type of the setting.
        name: The name of the setting, for error messages.
        example: An example of the setting, for error messages.

    Raises:
        NoValue: The expression is wrong or does not fit the type; the error was reported.
    """
    return coerce_setting(ctx, evaluate(ctx, expr, scope, type_), type_, name, example)


def coerce_setting(ctx: Context, value: Value, type_: Type, name: str, example: str = "") -> Value:
    """Return a value converted to the type of a setting.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        value: The value.
        type_: The type of the setting.
        name: The name of the setting, for error messages.
        example: An example of the setting, for error messages.

    Raises:
        NoValue: The value does not fit the type; the error was reported.
    """
    if isinstance(value.data, Items):
        ctx.charge(value.span, value.data.size)
    result = coerce(value, type_)
    if isinstance(result, Value):
        return result
    ctx.fail(
        result.code,
        result.message.replace("{what}", f"`{name}`"),
        result.value.span,
        result.text,
        labels=[Label(span, text) for span, text in result.value.defined_at],
        help=result.help or (f"write `{example}`, for example" if example else result.otherwise),
    )


def evaluate(ctx: Context, expr: tree.Expr, scope: Scope, type_: Type | None = None) -> Value:
    """Return the value of an expression.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        scope: The names that the expression may use.
        type_: The expected type; None if any type is allowed. A name that is one of the type's words, such
            as `causal`, is read as this word. The value is not converted to the type.

    Raises:
        NoValue: The expression is wrong; the error was reported.
    """
    ctx.charge(expr.span, EXPRESSION_STEPS)
    ctx.depth += 1
    try:
        if ctx.depth > DEEPEST_EXPRESSION:
            ctx.fail("E0209", "this is nested too deep", expr.span, help="name the inner parts")
        value = _evaluate(ctx, expr, scope, type_)
        check_length(ctx, value, expr.span)
        return value
    finally:
        ctx.depth -= 1


def check_length(ctx: Context, value: Value, span: Span) -> None:
    """Check that a list, with the lists inside it, has at most `MOST_VALUES` values.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        value: The value; values other than lists pass.
        span: The expression that made the list.

    Raises:
        NoValue: The list is longer; E0216 was reported.
    """
    if not isinstance(value.data, Items):
        return
    if value.data.size - 1 > MOST_VALUES:
        ctx.fail(
            "E0216",
            f"a list holds at most {MOST_VALUES} values, and this would hold {value.data.size - 1}",
            span,
            "too large",
            help="keep data of this size in a data file, and name the file",
        )
    ctx.charge(span, value.data.size)


def _evaluate(ctx: Context, expr: tree.Expr, scope: Scope, type_: Type | None) -> Value:
    """Return the value of an expression by its class in the syntax tree.

    `evaluate` calls this function, and checks the depth of expressions and the length of lists.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        scope: The names that the expression may use.
        type_: The expected type; None if any type is allowed.

    Raises:
        NoValue: The expression is wrong; the error was reported.
    """
    match expr:
        case tree.Number():
            return Value(read_number(ctx, expr), expr.span, literal=expr if expr.unit is None else None)
        case tree.String():
            return Value(expr.value, expr.span)
        case tree.Bool():
            return Value(expr.value, expr.span)
        case tree.Name():
            return evaluate_name(ctx, expr, scope, type_)
        case tree.ListExpr() | tree.Range() | tree.Binary() | tree.Compare() | tree.Logic():
            operands, inner = _list_operands(expr, type_)
            values: list[Value] = []
            # `try_all` would add stack frames, and halve the nesting that an expression may have.
            for operand in operands:
                with suppress(NoValue):
                    values.append(evaluate(ctx, operand, scope, inner))
            if len(values) < len(operands):
                raise NoValue
            return _combine_operands(ctx, expr, values)
        case tree.Unary():
            return arithmetic.unary(ctx, expr, evaluate(ctx, expr.operand, scope))
        case tree.Not():
            return arithmetic.negation(ctx, expr, evaluate(ctx, expr.operand, scope))
        case tree.IfElse():
            condition = evaluate(ctx, expr.condition, scope)
            if not isinstance(condition.data, bool):
                ctx.fail(
                    "E0301",
                    f"a condition is true or false, not {describe(condition)}",
                    expr.condition.span,
                    help="compare it: `… > 0`",
                )
            return evaluate(ctx, expr.then if condition.data else expr.otherwise, scope, type_)
        case tree.Call():
            return evaluate_call(ctx, expr, scope)
        case tree.Attribute():
            return evaluate_attribute(ctx, expr, scope, type_)
        case tree.Index():
            return evaluate_index(ctx, expr, scope)
        case tree.Slice():
            ctx.fail(
                "E0308",
                "a response can be cut only inside a reward",
                expr.span,
                help="write `y[:L]` in a `reward`",
            )
        case tree.Amend():
            return ctx.amend(ctx, expr, scope)


Combined: TypeAlias = tree.ListExpr | tree.Range | tree.Binary | tree.Compare | tree.Logic


def _list_operands(expr: Combined, type_: Type | None) -> tuple[tuple[tree.Expr, ...], Type | None]:
    """Return the operands or list items of an expression, and the type expected of each; None for any type.

    Args:
        expr: The expression in the syntax tree.
        type_: The type expected of the expression; None for any type.
    """
    match expr:
        case tree.ListExpr():
            return expr.items, _find_item_type(type_)
        case tree.Range():
            return (expr.lower, expr.upper), None
        case tree.Compare():
            return (expr.left, expr.right), None
    return (expr.left, expr.right), type_


def _combine_operands(ctx: Context, expr: Combined, values: list[Value]) -> Value:
    """Return the value of an expression from the values of its operands or list items, in order."""
    match expr:
        case tree.ListExpr():
            return Value(Items(tuple(values)), expr.span)
        case tree.Range():
            return Value(Bounds(*values), expr.span)
        case tree.Binary():
            return arithmetic.binary(ctx, expr, *values)
        case tree.Compare():
            return arithmetic.compare(ctx, expr, *values)
    return arithmetic.logic(ctx, expr, *values)


def read_number(ctx: Context, expr: tree.Number) -> Quantity:
    """Return the number and unit of a literal such as `16K tokens` or `5%`, with the suffix applied.

    Raises:
        NoValue: The unit is unknown, a percentage has a unit, or the number is too large; the error was
            reported.
    """
    unit = read_dimension(expr.unit)
    if unit is None:
        ctx.fail(
            "E0305",
            f"there is no unit `{expr.unit}`",
            expr.unit_span or expr.span,
            "not a unit",
            help=_suggest_unit(expr) or suggest(expr.unit or "", UNITS, "units are"),
        )
    if expr.suffix == "%" and unit:
        ctx.fail("E0302", "a share has no unit", expr.span, "% of what?", help=f"write `{expr.text}` alone")
    value = scale(expr.value, expr.suffix, unit)
    if value is None:
        ctx.fail("E0303", "this number is too large", expr.span, "too large", help="write a smaller one")
    return Quantity(value, unit)


def _suggest_unit(expr: tree.Number) -> str | None:
    """Return help for a suffix or percentage that is written as a unit, as in `16 K`, `16 Ktokens` or `5 percent`.

    The result is None for any other unit.
    """
    unit, number = expr.unit or "", expr.text.split()[0]
    if unit in ("percent", "pct"):
        return f"write `{number}%`"
    if unit[:1] in ("K", "k", "M", "G") and not expr.suffix and unit[1:] in ("", *UNITS):
        return f"write `{number}{unit[0].upper()}{f' {unit[1:]}' if unit[1:] else ''}`"
    return None


def _find_item_type(type_: Type | None) -> Type | None:
    """Return the type of the items if a type is a list, or a choice of types with a list among them; else None."""
    if isinstance(type_, ListOf):
        return type_.item
    if isinstance(type_, AnyOf):
        return next((_find_item_type(option) for option in type_.options if isinstance(option, ListOf)), None)
    return None


def evaluate_name(ctx: Context, expr: tree.Name, scope: Scope, type_: Type | None) -> Value:
    """Return the value of a name: a word of the expected type, a local, a declaration, or an import.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The name in the syntax tree.
        scope: The names that can be used.
        type_: The expected type; None if any type is allowed. A word of the type is tried first.

    Raises:
        NoValue: The name is unknown, its declaration has an error, or a metric of training is expected,
            which is written `train.NAME`. The error was reported.
    """
    name = expr.name
    words = list_words(type_)
    if isinstance(type_, OfKind) and "metric" in type_.kinds:
        ctx.fail(
            "E0314",
            f"`{name}` is not a metric",
            expr.span,
            "unknown",
            help=f"write `train.{name}`"
            if f"train.{name}" in METRICS
            else list_names(METRICS, "metrics are"),
        )
    if name in words:
        return Value(Symbol(name), expr.span)
    local = scope.find(name)
    if local is not None:
        return move_to_use(local(), name, expr.span)
    declared = lookup(ctx, scope.module, name)
    if declared is not None:
        return move_to_use(ctx.value_of(*declared), name, expr.span)
    if name in scope.module.imports or any(item.name.name == name for item in scope.module.module.items):
        raise NoValue
    unprovided = [import_ for import_ in scope.module.imports if not _is_provided(ctx, scope.module, import_)]
    # If a similar name could not be imported, that was reported, and this error would be a consequence.
    if words or nearest(name, unprovided) is None:
        kinds = () if type_ is None else list_kinds(type_)
        quoted = suggest_quotes(expr, scope) if isinstance(type_, Text) else None
        if name not in RESPONSE_NAMES and _takes_moving(type_):
            near = nearest(name, scope.names())
            other = f", or `{near}`" if near is not None and not is_reward(ctx, scope.module, near) else ""
            quoted = f"write `reward.{name}`, if a track or metric of the stage's reward is meant{other}"
        numbers = [t for t in type_.options if isinstance(t, Num)] if isinstance(type_, AnyOf) else []
        report_name(ctx, expr, scope, words, kinds, quoted, numbers[0] if numbers else None)
    raise NoValue


def lookup(ctx: Context, module: ParsedFile, name: str) -> tuple[ParsedFile, tree.ModuleItem] | None:
    """Return the file that declares a name and the declaration; None if the name is not declared.

    A name that `module` imports is looked up in the imported file. The declaration and the import are marked
    as used, so no warning calls them unused.
    """
    item = module.items.get(name)
    if item is not None:
        ctx.used_items.add((module.key, name))
        return module, item
    imported = module.imports.get(name)
    if imported is None:
        return None
    ctx.used_imports.add((module.key, name))
    target = ctx.modules.loaded.get(imported.module) if imported.module is not None else None
    if target is None or imported.name not in target.items:
        return None
    ctx.used_items.add((target.key, imported.name))
    return target, target.items[imported.name]


def is_reward(ctx: Context, module: ParsedFile, name: str) -> bool:
    """Return whether a file declares or imports a reward with this name."""
    declared = lookup(ctx, module, name)
    return declared is not None and isinstance(declared[1], tree.Decl) and declared[1].kind.name == "reward"


def move_to_use(value: Value, name: str, span: Span) -> Value:
    """Return a value whose span is the place where its name is used, for error messages.

    The span at which the value was set becomes the first of its `defined_at`, which has at most four. For a
    record `defined_at` stays as it is.

    Args:
        value: The value of a declaration or setting.
        name: The name under which it is used, for labels.
        span: The span of the use.
    """
    if isinstance(value.data, Record):
        return replace(value, span=span, literal=None)
    text = format_quantity(value.data) if isinstance(value.data, Quantity) else ""
    via = ((value.span, f"`{name}` is {text}" if text else f"`{name}` is set here"), *value.defined_at)
    return replace(value, span=span, defined_at=via[:4], literal=None)


def split_library_name(expr: tree.Attribute, scope: Scope) -> list[str] | None:
    """Return the words after `std` in a full name: `["paper", "qwen3_4b"]` for `std.paper.qwen3_4b`.

    The result is None if the attribute does not begin with `std`, or if `std` is a name of the file.
    """
    parts = [expr.name.name]
    inner = expr.value
    while isinstance(inner, tree.Attribute):
        parts.insert(0, inner.name.name)
        inner = inner.value
    return (
        parts if isinstance(inner, tree.Name) and inner.name == "std" and "std" not in scope.names() else None
    )


def _is_provided(ctx: Context, module: ParsedFile, name: str) -> bool:
    """Return whether the file that an imported name comes from declares the name."""
    imported = module.imports[name]
    target = ctx.modules.loaded.get(imported.module) if imported.module is not None else None
    return target is not None and imported.name in target.items


def list_words(type_: Type | None) -> tuple[str, ...]:
    """Return the words that a value of this type may be, such as `causal`; empty if the type has no words.

    A list type counts if a single item may be written without brackets (`lone`).
    """
    match type_:
        case OneOf():
            return type_.words
        case ListOf():
            return list_words(type_.item) if type_.lone else ()
        case AnyOf():
            return tuple(word for option in type_.options for word in list_words(option))
    return ()


def _takes_moving(type_: Type | None) -> bool:
    """Return whether a setting of this type may be a track or metric of the stage's reward, `reward.NAME`."""
    return isinstance(type_, AnyOf) and OfReward() in type_.options


def evaluate_attribute(ctx: Context, expr: tree.Attribute, scope: Scope, type_: Type | None) -> Value:
    """Return the value of `X.NAME`.

    The value is a setting of a record, the stages of an experiment, a declaration of the standard library
    (`std.MODULE.NAME`), a metric of training (`train.NAME`), or a track or metric of the stage's reward (`reward.NAME`).

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The attribute in the syntax tree.
        scope: The names that the expression may use.
        type_: The expected type, or None. It only matters if it is the type of metrics, where X must be the word
            `train`, or takes tracks, where X may be the word `reward`.

    Raises:
        NoValue: X is wrong, or has no setting NAME; the error was reported.
    """
    if isinstance(type_, OfKind) and "metric" in type_.kinds:
        return evaluate_metric(ctx, expr)
    if (parts := split_library_name(expr, scope)) is not None:
        return _evaluate_library(ctx, expr, parts)
    if _takes_moving(type_) and isinstance(expr.value, tree.Name) and expr.value.name == "reward":
        ctx.stage_numbers.add(expr.name.name)
        return Value(Symbol(f"reward.{expr.name.name}"), expr.span)
    value = evaluate(ctx, expr.value, scope)
    if not isinstance(value.data, Record):
        ctx.fail(
            "E0301",
            f"{describe(value)} has no settings",
            expr.span,
            help="write the name of a declaration before the dot",
        )
    record, name = value.data, expr.name.name
    if isinstance(record, DeclaredArm):
        record = record.experiment
    if name == "stages" and isinstance(record, DeclaredExperiment):
        return Value(StageList("stages", {}, expr.span, record.name, of=record), expr.span)
    if isinstance(record, StageList):
        ctx.fail(
            "E0212",
            "a stage is named in brackets",
            expr.name.span,
            help=f"write `{record.name}.stages[{name}]`",
            edits=[Edit(expr.span, f"{record.name}.stages[{name}]")],
        )
    setting = record.get(name)
    if setting is None:
        has_stages = isinstance(record, DeclaredExperiment) and bool(record.stages)
        is_stage_name = isinstance(record, DeclaredExperiment) and name in [
            stage.name for stage in list_stages(ctx, record)
        ]
        ctx.fail(
            "E0203",
            f"{describe(value)} has no `{name}`",
            expr.name.span,
            "unknown",
            help=f"write `{record.name}.stages[{name}]`, if that stage is meant"
            if is_stage_name
            else f"write `reward.{name}`, if a track or metric of the stage's reward is meant"
            if _takes_moving(type_) and record.kind == "reward"
            else suggest(name, [*record.fields, *["stages"] * has_stages], "it has"),
            edits=[Edit(expr.span, f"{record.name}.stages[{name}]")] if is_stage_name else [],
        )
    return move_to_use(setting, f"{record.name}.{name}" if record.name else name, expr.span)


def _evaluate_library(ctx: Context, expr: tree.Attribute, parts: list[str]) -> Value:
    """Return the value of `std.MODULE.NAME`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The attribute in the syntax tree.
        parts: The words after `std`: the folders and the module, and last the name.

    Raises:
        NoValue: The library has no such module or name; E0204 was reported.
    """
    *folders, name = parts
    module, modules = ".".join(folders), list_library()
    loaded = ctx.modules.library(module) if module in modules else None
    if loaded is None:
        advice = suggest(module or name, modules, "it has")
        ctx.fail("E0204", f"there is no module `std.{module or name}`", expr.span, "not found", help=advice)
    if name not in loaded.items:
        advice = suggest(name, loaded.items, "it has")
        ctx.fail("E0204", f"`std.{module}` has no `{name}`", expr.name.span, "not in that file", help=advice)
    return move_to_use(ctx.value_of(loaded, loaded.items[name]), name, expr.span)


def evaluate_metric(ctx: Context, expr: tree.Attribute) -> Value:
    """Return the metric of training that `train.NAME` names; a plateau, which may end a stage, watches it.

    Raises:
        NoValue: The metric is unknown; E0314 was reported.
    """
    text = f"{expr.value.name}.{expr.name.name}" if isinstance(expr.value, tree.Name) else "?"
    if text not in METRICS:
        ctx.fail(
            "E0314",
            f"there is no metric `{text}`",
            expr.span,
            "unknown",
            help=suggest(text, METRICS, "metrics are"),
        )
    return Value(Record("metric", {}, expr.span, name=expr.name.name), expr.span)


def evaluate_index(ctx: Context, expr: tree.Index, scope: Scope) -> Value:
    """Return the stage that `X.stages[…]` names.

    The brackets have the stage's name. For a stage of `stages(NAME in LIST)` they have the item of LIST for
    which the stage was made.

    Raises:
        NoValue: The experiment has no such stage; the error was reported.
    """
    value = evaluate(ctx, expr.value, scope)
    if not isinstance(value.data, StageList):
        ctx.fail("E0301", f"{describe(value)} has no elements", expr.span, help=_suggest_for_brackets(value))
    record = value.data.of
    stages = list_stages(ctx, record)
    if not record.stages:
        ctx.fail(
            "E0212",
            f"`{record.name}` has no stages",
            expr.span,
            "no such stage",
            labels=[Label(record.span, "declared here")],
            help=f"name it alone: `{record.name}`",
        )
    shown_as = name = expr.index.name if isinstance(expr.index, tree.Name) else None
    position = next((i for i, stage in enumerate(stages) if stage.value is None and stage.name == name), -1)
    if position < 0 and (name is None or _may_be_number(scope, name)):
        index = evaluate(ctx, expr.index, scope)
        position = next((i for i, stage in enumerate(stages) if _are_equal(stage.value, index)), -1)
        shown_as = format_quantity(index.data) if isinstance(index.data, Quantity) else write_value(index)
    if position < 0:
        names = [stage.label.strip("`") for stage in stages]
        ctx.fail(
            "E0212",
            f"`{record.name}` has no stage `{shown_as}`",
            expr.index.span,
            "no such stage",
            labels=[Label(record.span, "declared here")],
            help=suggest(name, names, "its stages are") if name else list_names(names, "its stages are"),
        )
    return Value(
        StageRef(
            "stage_of", {}, expr.span, f"{record.name}.{stages[position].name}", of=record, position=position
        ),
        expr.span,
    )


def _suggest_for_brackets(value: Value) -> str:
    """Return help for `VALUE[…]` if the value has no stages to choose from."""
    data = value.data
    if isinstance(data, Items):
        return "a list has no elements to choose: write the value here, or declare it as a `param`"
    if isinstance(data, DeclaredExperiment) and data.stages:
        return f"name its stages: `{data.name}.stages[…]`"
    return "only stages are chosen by brackets: `EXPERIMENT.stages[4K tokens]`"


def _may_be_number(scope: Scope, name: str) -> bool:
    """Return whether a name in brackets may be a number: a param, an import or a local variable."""
    item = scope.module.items.get(name)
    if item is not None:
        return isinstance(item, tree.Param)
    return name in scope.names() and study_of_arm(scope, name) is None


def _are_equal(stage: Value | None, other: Value) -> bool:
    """Return whether the value in brackets is the list item for which a stage was made.

    Args:
        stage: The item of LIST in `stages(NAME in LIST)`; None for a stage that is declared by name.
        other: The value in brackets. A literal number without a unit gets the unit of `stage`.
    """
    if stage is None or not isinstance(stage.data, Quantity) or not isinstance(other.data, Quantity):
        return False
    if other.literal is not None and not other.data.unit:
        return scale(other.literal.value, other.literal.suffix, stage.data.unit) == stage.data.number
    return stage.data == other.data


def list_stages(ctx: Context, record: DeclaredExperiment) -> list[DeclaredStage]:
    """Return the stages of an experiment; a sweep `stages(NAME in LIST)` gives a stage for each item of its list.

    Errors are reported to `ctx`; a sweep with an error gives no stages.
    """
    stages: list[DeclaredStage] = []
    for stage in record.stages:
        if isinstance(stage, DeclaredStage):
            stages.append(stage)
            continue
        values = attempt(partial(evaluate, ctx, stage.over, stage.scope))
        if values is None:
            continue
        if not isinstance(values.data, Items) or not values.data.values:
            ctx.error(
                "E0301",
                f"`stages` runs over a list, not over {describe(values)}",
                stage.over.span,
                help="write `stages(cap in [64 tokens, 32 tokens]) { … }`",
            )
            continue
        if len(values.data.values) > MOST_STAGES:
            ctx.error(
                "E0216",
                f"an experiment has at most {MOST_STAGES} stages, and these are {len(values.data.values)}",
                stage.over.span,
                "too many",
                labels=[Label(span, text) for span, text in values.defined_at],
                help="take a larger step, or give one stage more steps",
            )
            continue
        for item in values.data.values:
            value = replace(item, literal=None)
            name = str(value.data.number) if isinstance(value.data, Quantity) else str(len(stages))
            label = format_quantity(value.data) if isinstance(value.data, Quantity) else name
            scope = stage.scope.inner({stage.var.name: return_value(value)})
            stages.append(DeclaredStage(name, label, value, stage.block, scope, stage.span))
    return _drop_duplicates(ctx, stages)


def _drop_duplicates(ctx: Context, stages: list[DeclaredStage]) -> list[DeclaredStage]:
    """Return the first stage of each name, in order; report E0208 for every later stage with the same name."""
    by_name: dict[str, DeclaredStage] = {}
    for stage in stages:
        first = by_name.setdefault(stage.name, stage)
        if first is stage:
            continue
        spans = [item.value.span if item.value is not None else item.span for item in (first, stage)]
        ctx.error(
            "E0208",
            f"two stages are called {stage.label}",
            spans[1],
            "again here",
            labels=[Label(spans[0], "first here")],
            help="use each value once, or write stages with different names: `stage NAME { … }`",
        )
    return list(by_name.values())


def evaluate_call(ctx: Context, expr: tree.Call, scope: Scope) -> Value:
    """Return the value of a call of a function, a constructor of records, or a reward, selection or measure.

    `steps(400)`, with an unnamed argument, is the end of a stage. `steps(separator: …, keywords: …)` divides
    responses at their reasoning steps.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The call in the syntax tree.
        scope: The names that the call may use.

    Raises:
        NoValue: The function is unknown, or an argument is wrong; the error was reported.
    """
    if isinstance(expr.function, tree.Attribute) and split_library_name(expr.function, scope) is not None:
        return _call_declared(ctx, expr, scope, expr.function.name.name)
    if not isinstance(expr.function, tree.Name):
        ctx.fail("E0301", "only a name can be called", expr.function.span, help="write `NAME(…)`")
    name = expr.function.name
    if scope.find(name) is None and (target := lookup(ctx, scope.module, name)) is not None:
        return _call_declared(ctx, expr, scope, target[1].name.name)
    if name == "checkpoint":
        return _make_checkpoint(ctx, expr, scope)
    if name == "steps":
        kind = ENDS if expr.args and expr.args[0].name is None else REASONING_STEPS
        args = bind(ctx, expr, kind, scope)
        if kind is ENDS:
            return Value(Until("until", {}, expr.span, steps=args["count"].value), expr.span)
        return Value(Record("steps_split", args, expr.span, computed_by=expr), expr.span)
    if name in SIGNATURES:
        return call_function(ctx, name, bind(ctx, expr, SIGNATURES[name], scope), expr)
    if name in CONSTRUCTORS:
        return Value(Record(name, bind(ctx, expr, CONSTRUCTORS[name], scope), expr.span), expr.span)
    if name in REWARD_ONLY:
        ctx.fail(
            "E0308",
            f"`{name}` works on responses, and no response exists outside a reward",
            expr.function.span,
            "not in a reward",
            help="use it inside `reward NAME { … }`, and name the reward here",
        )
    if name in scope.module.imports:
        raise NoValue
    if dropped := refuse_dropped(f"{name}()", expr.function.span):
        ctx.refuse(dropped)
    names = [*SIGNATURES, *CONSTRUCTORS, "steps", *_list_formulas(ctx, scope)]
    ctx.fail(
        "E0201",
        f"there is no function `{name}`",
        expr.function.span,
        "unknown",
        help=suggest_import(expr.function, scope, FORMULAS) or suggest(name, names, "functions are"),
    )


def _list_formulas(ctx: Context, scope: Scope) -> list[str]:
    """Return the names of the rewards, selections and measures that a file declares or imports."""
    items = ((name, lookup(ctx, scope.module, name)) for name in (*scope.module.items, *scope.module.imports))
    return [
        name
        for name, item in items
        if item and isinstance(item[1], tree.Decl) and item[1].kind.name in FORMULAS
    ]


def _call_declared(ctx: Context, expr: tree.Call, scope: Scope, name: str) -> Value:
    """Return a reward, selection or measure with the arguments of a call.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The call in the syntax tree.
        scope: The names that the call may use.
        name: The name of the declaration, for messages.

    Raises:
        NoValue: The declaration takes no arguments, or an argument is wrong; the error was reported.
    """
    value = evaluate(ctx, expr.function, scope)
    if isinstance(value.data, Definition):
        bind_ = call_selection if value.data.kind == "selection" else call_reward
        return bind_(ctx, expr, value.data, scope)
    ctx.fail(
        "E0301",
        f"{describe(value)} takes no arguments",
        expr.function.span,
        help=f"to change its settings write `{name} {{ … }}`",
    )


def _make_checkpoint(ctx: Context, expr: tree.Call, scope: Scope) -> Value:
    """Return the value of `checkpoint(of)`; if `of` is an arm, it is the checkpoint of the arm's experiment.

    Raises:
        NoValue: An argument is wrong, or the arm is made from imported results and so has no weights; the error
            was reported.
    """
    args = bind(ctx, expr, SIGNATURES["checkpoint"], scope)
    owner = args["of"].value.data
    if isinstance(owner, DeclaredArm):
        if any(source.kind == "results" for source, _ in walk_ancestry(owner)):
            ctx.fail(
                "E0311",
                f"`{owner.name}` is made from imported results, which have no weights",
                args["of"].value.span,
                help="name the model itself, such as `checkpoint(qwen3_4b)`",
            )
        args = {"of": Slot(Value(owner.experiment, args["of"].value.span), args["of"].span)}
    return Value(Record("checkpoint", args, expr.span), expr.span)


def bind(ctx: Context, expr: tree.Call, kind: Kind, scope: Scope) -> dict[str, Slot]:
    """Return the arguments of a call by parameter name, each converted to its type, with defaults filled in.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The call in the syntax tree.
        kind: The function's parameters, as the settings of a kind.
        scope: The names that the arguments may use.

    Raises:
        NoValue: An argument is missing, unknown or wrong; the error was reported.
    """
    slots: dict[str, Slot] = {}
    places: dict[str, tree.Arg] = {}
    positional = list(kind.positional)

    def take(arg: tree.Arg) -> None:
        """Bind one argument to its parameter."""
        value = _read_argument(ctx, arg, f"`{kind.name}`")
        name = _name_argument(ctx, expr, arg, kind, positional)
        if name in places:
            ctx.refuse(describe_duplicate(name, arg.span, places[name].span, "give it once"))
        places[name] = arg
        field = kind.fields[name]
        slots[name] = Slot(evaluate_as(ctx, value, scope, field.type, name, field.example), arg.span)

    # `try_all` raises after a wrong argument, so that a missing argument is not reported in addition.
    try_all(take, expr.args)
    absent = {name: field for name, field in kind.fields.items() if name not in slots}
    missing = [(f"`{name}`", field) for name, field in absent.items() if field.required]
    if missing:
        needs = [f"{name}, {describe_type(field.type)}: {field.doc}" for name, field in missing]
        examples = ", ".join(field.example for _, field in missing if field.example)
        ctx.fail(
            "E0310",
            f"`{kind.name}` needs "
            + (needs[0] if len(missing) == 1 else join_words(name for name, _ in missing)),
            expr.span,
            f"no {missing[0][0]}" if len(missing) == 1 else f"lacks {len(missing)} arguments",
            notes=needs if len(missing) > 1 else (),
            help=f"write `{examples}`" if examples else None,
        )
    defaults = {name: field for name, field in absent.items() if field.default is not None}
    return slots | {
        name: Slot(make_typed(it.default, it.type, expr.span), None) for name, it in defaults.items()
    }


def _read_argument(ctx: Context, arg: tree.Arg, owner: str) -> tree.Expr:
    """Return the expression of an argument.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        arg: The argument in the syntax tree.
        owner: The words for the called function in error messages.

    Raises:
        NoValue: The argument has a `for` or an `in`; E0310 was reported.
    """
    if isinstance(arg.value, (tree.Binding, tree.Comprehension)):
        ctx.fail("E0310", f"{owner} takes no `for` or `in`", arg.span, help="give it values")
    return arg.value


def _name_argument(ctx: Context, expr: tree.Call, arg: tree.Arg, kind: Kind, positional: list[str]) -> str:
    """Return the name of the parameter that an argument belongs to, by its name or its position.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The call.
        arg: The argument.
        kind: The function's parameters, as the settings of a kind.
        positional: The positional parameters that have no argument yet; the chosen name is removed.

    Raises:
        NoValue: No parameter has that name or position; E0310 was reported.
    """
    if arg.name is None:
        if positional:
            return positional.pop(0)
        if len(expr.args) > len(kind.fields):
            count = f"{len(kind.fields)} argument{'s' if len(kind.fields) > 1 else ''}"
            message = f"`{kind.name}` takes {count}, and this is one more"
            ctx.fail("E0310", message, arg.span, help=f"it takes {', '.join(kind.fields)}")
        names = {argument.name.name for argument in expr.args if argument.name is not None}
        open_names = [name for name in kind.fields if name not in kind.positional and name not in names]
        nameless = [argument for argument in expr.args if argument.name is None][len(kind.positional) :]
        first = (open_names[nameless.index(arg) :] or ["name"])[0]
        ctx.fail(
            "E0310",
            f"this argument of `{kind.name}` needs a name",
            arg.span,
            help=f"name it, such as `{first}: …`",
        )
    name = arg.name.name
    if name not in kind.fields:
        if dropped := refuse_dropped(f"{kind.name}({name}: …)", arg.name.span):
            ctx.refuse(dropped)
        ctx.fail(
            "E0310",
            f"`{kind.name}` has no argument `{name}`",
            arg.name.span,
            "unknown",
            help=suggest(name, kind.fields, "it takes"),
        )
    if name in positional:
        positional.remove(name)
    return name


def call_reward(ctx: Context, call: tree.Call, definition: Definition, scope: Scope) -> Value:
    """Return a reward, selection or measure with the arguments of a call added.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        call: The call in the syntax tree.
        definition: The reward, selection or measure.
        scope: The names that the arguments may use.

    Raises:
        NoValue: An argument is unknown, given twice or wrong; the error was reported.
    """
    params = definition.item.params or ()
    by_name = {param.name.name: param for param in params}
    open_names = [name for name in by_name if name not in definition.args]
    args = dict(definition.args)

    def take(arg: tree.Arg) -> None:
        """Bind one argument to its parameter."""
        name = arg.name.name if arg.name is not None else (open_names[0] if open_names else "")
        param = by_name.get(name)
        value = _read_argument(ctx, arg, f"the {definition.kind} `{definition.name}`")
        if param is None:
            span = arg.name.span if arg.name is not None else arg.span
            advice = suggest(name, by_name, "it takes") if by_name else f"write `{definition.name}` alone"
            many = f"{len(by_name)} argument{'s' if len(by_name) > 1 else ''}, and this is one more"
            ctx.fail(
                "E0310",
                f"the {definition.kind} `{definition.name}` "
                + (f"has no parameter `{name}`" if name else f"takes {many if by_name else 'no arguments'}"),
                span,
                "unknown" if name else "",
                help=advice,
            )
        if name not in open_names:
            first = args[name].span if name in args else None
            advice = f"give it once, or start from `{definition.item.name.name}`"
            ctx.refuse(describe_duplicate(name, arg.span, first, advice))
        open_names.remove(name)
        args[name] = bind_argument(ctx, definition, param, value, scope)

    try_all(take, call.args)
    return Value(replace(definition, args=args, span=call.span), call.span)


def bind_argument(
    ctx: Context, definition: Definition, param: tree.ParamDecl, expr: tree.Expr, scope: Scope
) -> Value:
    """Return the value of an argument, converted to the type of its parameter and checked against its range.

    If a parameter for a number gets budgets, or a parameter for budgets gets a number, the error names the
    type to declare. `ctx.refused_types` records this type by the span of the parameter.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        definition: The reward, selection or measure that has the parameter.
        param: The parameter in the syntax tree.
        expr: The argument, or the parameter's default.
        scope: The names that the expression may use.

    Raises:
        NoValue: The value does not fit; the error was reported.
    """
    type_ = read_type(ctx, param.type)
    name = param.name.name
    argument = evaluate(ctx, expr, scope, SCHEDULE if type_ == SPLITS else type_)
    is_budgets = (isinstance(argument.data, Items) and len(argument.data.values) > 1) or (
        isinstance(argument.data, Record) and argument.data.kind in list_kinds(SPLITS)
    )
    number = name_unit(argument.data.unit) or "number" if isinstance(argument.data, Quantity) else ""
    noun = "budgets" if isinstance(type_, Num) and is_budgets else number if type_ == SPLITS else ""
    if noun:
        ctx.refused_types[param.span] = noun
        message = f"`{name}` is {describe_type(type_)}, not {describe(argument)}"
        words = describe_type(type_) if is_budgets else f"a schedule, such as {BUDGETS}, or a list of budgets"
        advice = f"write {words}, or declare it as `{name}: {noun}`"
        ctx.fail("E0301", message, argument.span, describe(argument), help=advice)
    if type_ == SPLITS:
        return evaluate_splits(ctx, expr, scope, name)
    value = attempt(partial(coerce_setting, ctx, argument, type_, name))
    if value is None:
        if number:
            ctx.refused_types[param.span] = number
        raise NoValue
    if param.range is not None:
        check_range(ctx, value, param.range, type_, name, Scope(definition.module))
    return value


def call_selection(ctx: Context, call: tree.Call, rule: Definition, scope: Scope) -> Value:
    """Return a selection with arguments, or the data that it selects from a pool.

    An unnamed first argument is the pool: the responses to select from. With a pool the result is data to
    train on.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        call: The call in the syntax tree.
        rule: The selection.
        scope: The names that the arguments may use.

    Raises:
        NoValue: An argument is wrong, or the unnamed first argument is not a pool; the error was reported.
    """
    pools = call.args[:1] if call.args and call.args[0].name is None else ()
    rule_call = replace(call, args=call.args[len(pools) :])
    if not pools:
        return call_reward(ctx, rule_call, rule, scope)
    selection = attempt(lambda: call_reward(ctx, rule_call, rule, scope))
    expr = pools[0].value
    if isinstance(expr, (tree.Binding, tree.Comprehension)):
        ctx.fail("E0310", "a selection picks from a pool", expr.span, help="write `pool(…)`")
    pool = evaluate(ctx, expr, scope)
    if selection is None:
        raise NoValue
    if not isinstance(pool.data, Record) or pool.data.kind != "pool":
        ctx.fail(
            "E0301",
            f"`{rule.name}` picks from a pool, not from {describe(pool)}",
            expr.span,
            describe(pool),
            help=f"sample responses: `{rule.name}({POOL})`",
        )
    fields = {"selection": Slot(selection, call.span), "pool": Slot(pool, pools[0].span)}
    return Value(Record("selected", fields, call.span, rule.name), call.span)


def read_type(ctx: Context, expr: tree.TypeExpr) -> Type:
    """Return the type that a parameter's declaration names.

    Raises:
        NoValue: The type is unknown; E0314 was reported.
    """
    if isinstance(expr, tree.ListType):
        return ListOf(read_type(ctx, expr.item))
    name = expr.name
    if name in PLAIN_TYPES:
        return PLAIN_TYPES[name]
    if name in UNITS:
        return Num(UNITS[name])
    if name in DECLARED:
        return OfKind((name,))
    names = [*PLAIN_TYPES, *sorted(set(UNITS.values())), *DECLARED]
    ctx.fail(
        "E0314",
        f"there is no type `{name}`",
        expr.span,
        "unknown",
        help=f"write `{TYPES_ELSEWHERE[name]}`"
        if name in TYPES_ELSEWHERE
        else suggest(name, names, "types are"),
    )


def check_range(ctx: Context, value: Value, range_: tree.Range, type_: Type, name: str, scope: Scope) -> None:
    """Check that a number, or every number of a list, is inside the range that a parameter declares.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        value: The number or list.
        range_: The range in the syntax tree.
        type_: The type of the parameter.
        name: The name of the parameter, for error messages.
        scope: The names that the bounds may use.

    Raises:
        NoValue: A number is outside, or the range is wrong; the error was reported.
    """
    item = type_.item if isinstance(type_, ListOf) else type_
    unbounded = Num(item.unit) if isinstance(item, Num) else item

    def bound(end: tree.Expr) -> Value:
        return coerce_setting(ctx, evaluate(ctx, end, scope), unbounded, f"the range of {name}")

    low, high = try_all(bound, (range_.lower, range_.upper))
    if not isinstance(low.data, Quantity) or not isinstance(high.data, Quantity):
        raise NoValue
    if low.data.number > high.data.number:
        ctx.fail(
            "E0303",
            f"the range of `{name}` ends before it begins",
            range_.span,
            help=f"write `{format_quantity(high.data)}..{format_quantity(low.data)}`",
        )
    values = value.data.values if isinstance(value.data, Items) else (value,)
    for entry in values:
        if isinstance(entry.data, Quantity) and not low.data.number <= entry.data.number <= high.data.number:
            ctx.fail(
                "E0303",
                f"`{name}` must be from {format_quantity(low.data)} to {format_quantity(high.data)}",
                entry.span,
                format_quantity(entry.data),
                labels=[Label(range_.span, "its range")],
                help="choose a value inside the range, or widen it where it is declared",
            )


def evaluate_splits(ctx: Context, expr: tree.Expr, scope: Scope, name: str) -> Value:
    """Return the positions, in tokens, at which responses are divided into sections.

    The expression is a schedule such as `exp(…)`, a name for a schedule, or a list of budgets that ends with
    the longest response.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        scope: The names that the expression may use.
        name: The name of the setting or parameter, for error messages.

    Raises:
        NoValue: The value is neither a schedule nor a list of budgets; the error was reported.
    """
    value = evaluate(ctx, expr, scope, SCHEDULE)
    if isinstance(value.data, Items):
        if len(value.data.values) == 1:
            ctx.fail(
                "E0303",
                f"`{name}` needs a budget and, last, the longest response",
                value.span,
                "one alone",
                help="write two or more, as in `[1K tokens, 32K tokens]`",
            )
        fitting = coerce_setting(ctx, value, ListOf(TOKENS, 2), name)
        if not isinstance(fitting.data, Items):
            raise NoValue
        return make_budgets(ctx, fitting, fitting.data.values)
    return coerce_setting(ctx, value, SPLITS, name)
