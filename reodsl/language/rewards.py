"""Rewards and selections as values: their declaration, and their parameters bound to arguments."""

from __future__ import annotations

from dataclasses import replace

from reodsl.language.context import Context
from reodsl.language.doubled import doubled
from reodsl.language.evaluate import evaluated, settled
from reodsl.language.kinds.types import SPLITS
from reodsl.language.modules import Loaded
from reodsl.language.params import declared_type, in_range
from reodsl.language.suggest import advice
from reodsl.language.values import Definition, Record, Scope, Value
from reodsl.syntax import tree


def reward_declaration(ctx: Context, module: Loaded, item: tree.Decl) -> Value | None:
    """A declared reward or selection: with a body of its own, or another with its arguments."""
    from reodsl.language.reach import argued, without_arguments

    kind = item.kind.name
    if item.block is None:
        assert item.value is not None
        value = evaluated(ctx, item.value, Scope(module))
        if value is None:
            return None
        if not isinstance(value.data, Record) or value.data.kind != kind:
            return ctx.fail(
                "E0311",
                f"a {kind} is made from a {kind}",
                item.value.span,
                help="write its body in braces: "
                + (
                    "`reward NAME { correct(y) }`"
                    if kind == "reward"
                    else "`selection NAME { trace = argmin(len(z) for z in group if correct(z)) }`"
                ),
            )
        bound = argued(ctx, value.data, (module.key, item.name.name), Scope(module))
        if bound is None:
            return None
        return replace(value, data=replace(bound, name=item.name.name, doc=item.doc or bound.doc))
    without_arguments(ctx, item, (module.key, item.name.name))
    definition = Definition(
        kind,
        {},
        item.name.span,
        item.name.name,
        item.doc or "",
        (module.key, item.name.name),
        item=item,
        body=item.block,
        module=module,
    )
    return Value(definition, item.name.span)


def reward_call(ctx: Context, call: tree.Call, definition: Definition, scope: Scope) -> Value | None:
    """A reward or a selection with arguments."""
    params = definition.item.params or ()
    by_name = {param.name.name: param for param in params}
    open_names = [name for name in by_name if name not in definition.args]
    args = dict(definition.args)
    good = True
    for arg in call.args:
        name = arg.name.name if arg.name is not None else (open_names[0] if open_names else "")
        param = by_name.get(name)
        if param is None or isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            place = arg.name.span if arg.name is not None else arg.span
            helps = advice(name, by_name, "it takes") if by_name else f"write `{definition.name}` alone"
            many = f"{len(by_name)} argument{'s' if len(by_name) > 1 else ''}, and this is one more"
            ctx.fail(
                "E0310",
                f"the {definition.kind} `{definition.name}` "
                + (f"has no parameter `{name}`" if name else f"takes {many if by_name else 'no arguments'}"),
                place,
                "unknown" if name else "",
                help=helps,
            )
            good = False
            continue
        if name not in open_names:
            first = args[name].span if name in args else None
            helps = f"give it once, or start from `{definition.item.name.name}`"
            ctx.report(doubled(name, arg.span, first, helps))
            good = False
            continue
        open_names.remove(name)
        bound = bound_argument(ctx, definition, param, arg.value, scope)
        if bound is None:
            good = False
        else:
            args[name] = bound
    if not good:
        return None
    return Value(replace(definition, args=args, span=call.span), call.span)


def bound_argument(
    ctx: Context, definition: Definition, param: tree.ParamDecl, expr: tree.Expr, scope: Scope
) -> Value | None:
    """The value of an argument or a default in the type and range of its parameter; None with the reason reported."""
    type_ = declared_type(ctx, param.type)
    if type_ is None:
        return None
    name = param.name.name
    if type_ == SPLITS:
        from reodsl.language.calls import splits

        return splits(ctx, expr, scope, name)
    found = evaluated(ctx, expr, scope, type_)
    value = None if found is None else settled(ctx, found, type_, name)
    if value is not None and param.range is not None:
        return in_range(ctx, value, param.range, type_, name, Scope(definition.module))
    return value
