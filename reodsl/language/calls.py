"""Calls: arguments bound to a signature; constructors, computing functions, checkpoints, rewards with arguments."""

from __future__ import annotations

from reodsl.language.context import Context
from reodsl.language.doubled import doubled
from reodsl.language.evaluate import evaluated, fitted, settled
from reodsl.language.examples import in_file, with_imports
from reodsl.language.functions import ENDS, REASONING_STEPS, SIGNATURES, computed, listed
from reodsl.language.kinds import KINDS
from reodsl.language.kinds.types import CHECKPOINT, SPLITS, TOKENS
from reodsl.language.names import full_name, import_hint, lookup
from reodsl.language.rewards import reward_call
from reodsl.language.schema import A, Choice, Either, Field, Kind, Many, Num, type_words
from reodsl.language.selections import selection_call
from reodsl.language.suggest import advice
from reodsl.language.units import Quantity
from reodsl.language.values import Arm, Definition, Items, Record, Scope, Slot, Symbol, Until, Value, describe
from reodsl.syntax import tree

CONSTRUCTORS = {name: kind for name, kind in KINDS.items() if kind.form == "call"}
REWARD_ONLY = frozenset(
    {"sigmoid", "log", "sqrt", "cos", "abs", "clip", "mean", "std", "sum", "count", "median", "min", "max"}
)
SCHEDULE = Either((SPLITS, Many(TOKENS, 2)))


def called(ctx: Context, expr: tree.Call, scope: Scope) -> Value | None:
    """The value of a call."""
    if isinstance(expr.function, tree.Attribute) and full_name(expr.function, scope) is not None:
        return _declared_call(ctx, expr, scope, expr.function.name.name)
    if not isinstance(expr.function, tree.Name):
        return ctx.fail("E0301", "only a name can be called", expr.function.span, help="write `NAME(…)`")
    name = expr.function.name
    if scope.find(name) is None and (target := lookup(ctx, scope.module, name)) is not None:
        return _declared_call(ctx, expr, scope, target[1].name.name)
    if name == "checkpoint":
        return _checkpoint(ctx, expr, scope)
    if name == "steps":
        kind = ENDS if expr.args and expr.args[0].name is None else REASONING_STEPS
        args = bind(ctx, expr, kind, scope)
        if args is None:
            return None
        if kind is ENDS:
            return Value(Until("until", {}, expr.span, steps=args["count"].value), expr.span)
        return Value(Record("steps_split", args, expr.span, called=expr), expr.span)
    if name in SIGNATURES:
        args = bind(ctx, expr, SIGNATURES[name], scope)
        return None if args is None else computed(ctx, name, args, expr)
    if name in CONSTRUCTORS:
        args = bind(ctx, expr, CONSTRUCTORS[name], scope)
        return None if args is None else Value(Record(name, args, expr.span), expr.span)
    if name in REWARD_ONLY or name in ("correct", "len", "answer"):
        return ctx.fail(
            "E0308",
            f"`{name}` works on responses, and there are none outside a reward",
            expr.function.span,
            "not in a reward",
            help="use it inside `reward NAME { … }`, and name that reward here",
        )
    if name in scope.module.imports:
        return None
    known = [*SIGNATURES, *CONSTRUCTORS, "checkpoint", "steps", *_rewards(scope)]
    return ctx.fail(
        "E0213",
        f"there is no function `{name}`",
        expr.function.span,
        "unknown",
        help=import_hint(expr.function, scope) or advice(name, known, "functions are"),
    )


def _rewards(scope: Scope) -> list[str]:
    items = scope.module.items.values()
    return [item.name.name for item in items if isinstance(item, tree.Decl) and item.kind.name == "reward"]


def _declared_call(ctx: Context, expr: tree.Call, scope: Scope, name: str) -> Value | None:
    value = evaluated(ctx, expr.function, scope)
    if value is None:
        return None
    if isinstance(value.data, Definition):
        bind_ = reward_call if value.data.kind == "reward" else selection_call
        return bind_(ctx, expr, value.data, scope)
    return ctx.fail(
        "E0301",
        f"{describe(value)} takes no arguments",
        expr.function.span,
        help=f"to change its settings write `{name} {{ … }}`",
    )


def _checkpoint(ctx: Context, expr: tree.Call, scope: Scope) -> Value | None:
    stages = A((*CHECKPOINT.kinds, "stage_of", "arm"), "a model, an experiment, or one of its stages")
    signature = Kind(
        "checkpoint",
        "The weights at the end of an experiment or of one of its stages, or a model as it comes.",
        {"of": Field(stages, "whose", required=True, example="checkpoint(vanilla.stages[4K tokens])")},
        form="call",
        positional=("of",),
    )
    args = bind(ctx, expr, signature, scope)
    if args is None:
        return None
    of = args["of"].value.data
    if isinstance(of, Arm):
        args = {"of": Slot(Value(of.experiment, args["of"].value.span), args["of"].span)}
    return Value(Record("checkpoint", args, expr.span), expr.span)


def bind(ctx: Context, expr: tree.Call, kind: Kind, scope: Scope) -> dict[str, Slot] | None:
    """The arguments of a call by name, each in its type, defaults filled in; None after reporting what is wrong."""
    found: dict[str, Slot] = {}
    places: dict[str, tree.Arg] = {}
    good, guess = True, False
    positional = list(kind.positional)
    for arg in expr.args:
        if isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            ctx.fail("E0310", f"`{kind.name}` takes no `for` or `in`", arg.span, help="give it values")
            good = False
            continue
        name = _argument_name(ctx, expr, arg, kind, positional)
        if name is None:
            good, guess = False, True
            continue
        if name in places:
            ctx.report(doubled(name, arg.span, places[name].span, "give it once"))
            good = False
            continue
        places[name] = arg
        field = kind.fields[name]
        value = fitted(ctx, arg.value, scope, field.type, name, field.example)
        if value is None:
            good = False
        else:
            found[name] = Slot(value, arg.span)
    for name, field in kind.fields.items():
        if name in places or name in found:
            continue
        if field.required:
            # An argument of an unknown name was most likely meant to be this one, and has been reported.
            good = good and guess
            if guess:
                continue
            example, imports = in_file(ctx, scope.module, field.example, field.type)
            ctx.fail(
                "E0310",
                f"`{kind.name}` needs `{name}`, {type_words(field.type)}: {field.doc}",
                expr.span,
                f"no `{name}`",
                help=f"write `{example}`{with_imports(imports)}" if example else None,
            )
        elif field.default is not None:
            found[name] = Slot(default_value(field, expr), None)
    return found if good else None


def _argument_name(
    ctx: Context, expr: tree.Call, arg: tree.Arg, kind: Kind, positional: list[str]
) -> str | None:
    if arg.name is None:
        if positional:
            return positional.pop(0)
        if len(expr.args) > len(kind.fields):
            most = f"{len(kind.fields)} argument{'s' if len(kind.fields) > 1 else ''}"
            message = f"`{kind.name}` takes {most}, and this is one more"
            return ctx.fail("E0310", message, arg.span, help=f"it takes {', '.join(kind.fields)}")
        given = {each.name.name for each in expr.args if each.name is not None}
        open_names = [name for name in kind.fields if name not in kind.positional and name not in given]
        nameless = [each for each in expr.args if each.name is None][len(kind.positional) :]
        first = (open_names[nameless.index(arg) :] or ["name"])[0]
        return ctx.fail(
            "E0310",
            f"this argument of `{kind.name}` needs a name",
            arg.span,
            help=f"name it, such as `{first}: …`",
        )
    name = arg.name.name
    if name not in kind.fields:
        return ctx.fail(
            "E0310",
            f"`{kind.name}` has no argument `{name}`",
            arg.name.span,
            "unknown",
            help=advice(name, kind.fields, "it takes"),
        )
    if name in positional:
        positional.remove(name)
    return name


def default_value(field: Field, at: tree.Call | tree.Ident) -> Value:
    """The default of a setting as a value."""
    return as_value(field.default, field, at)


def as_value(data: object, field: Field, at: tree.Call | tree.Ident) -> Value:
    """Plain data as a value in a field's type."""

    def made(each: object, type_: object) -> Value:
        if isinstance(type_, Either):
            type_ = type_.options[0]
        if isinstance(each, tuple) and isinstance(type_, Many):
            return Value(Items(tuple(made(item, type_.item) for item in each)), at.span)
        if isinstance(each, str):
            return Value(Symbol(each) if isinstance(type_, Choice) else each, at.span)
        if isinstance(each, bool):
            return Value(each, at.span)
        unit = type_.dimension if isinstance(type_, Num) else ()
        assert isinstance(each, (int, float))
        return Value(Quantity(each, unit), at.span)

    return made(data, field.type)


def splits(ctx: Context, expr: tree.Expr, scope: Scope, what: str) -> Value | None:
    """Budgets from an expression: a schedule, a list whose last is the longest response, or a name of budgets."""
    value = evaluated(ctx, expr, scope, SCHEDULE)
    return None if value is None else as_splits(ctx, value, what)


def as_splits(ctx: Context, value: Value, what: str) -> Value | None:
    """A value as budgets."""
    if isinstance(value.data, Items):
        if len(value.data.values) == 1:
            return ctx.fail(
                "E0303",
                f"`{what}` needs a budget and, last, the longest response",
                value.span,
                "one alone",
                help="write two or more, as in `[1K tokens, 32K tokens]`",
            )
        fitting = settled(ctx, value, Many(TOKENS, 2), what)
        return None if fitting is None else listed(ctx, fitting)
    return settled(ctx, value, SPLITS, what)
