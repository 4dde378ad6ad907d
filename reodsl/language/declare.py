"""Declarations: each evaluated once, by its kind."""

from __future__ import annotations

from dataclasses import replace

from reodsl.language.context import Context
from reodsl.language.kinds import DECLARED, KINDS
from reodsl.language.modules import Loaded
from reodsl.language.suggest import nearest, there_is
from reodsl.language.values import Record, Scope, Value
from reodsl.syntax import tree


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
        near = nearest(kind, [*known, "param", "import", "from"])
        helps = f"did you mean `{near}`?" if near else there_is(known, "kinds are")
        if inside is not None and inside.form == "declared":
            homes = [each.name for each in KINDS.values() if kind in each.children]
            helps = f"`{kind}` stands inside " + " or ".join(f"`{home}`" for home in homes)
        return ctx.fail(
            "E0202",
            f"there is no kind `{kind}`",
            item.kind.span,
            "unknown",
            notes=[there_is(known, "kinds are")],
            help=helps,
        )
    if item.params is not None and kind not in ("reward", "selection"):
        ctx.fail(
            "E0313",
            "only rewards and selections take parameters of their own",
            item.name.span,
            help="declare `param NAME: TYPE = VALUE` at the top of the file",
        )
    if kind in ("reward", "selection"):
        from reodsl.language.rewards import reward_declaration

        return reward_declaration(ctx, module, item)
    if kind == "budgets":
        return _budgets(ctx, item, scope, owner)
    if kind == "study":
        from reodsl.language.studies import study

        return study(ctx, module, item)
    from reodsl.language.records import record

    return record(ctx, item, scope, owner)


def _budgets(ctx: Context, item: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value | None:
    from reodsl.language.calls import splits
    from reodsl.language.reach import argued

    if item.value is None:
        return ctx.fail(
            "E0313",
            "budgets come from an expression",
            item.name.span,
            help="write `budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)`",
        )
    value = splits(ctx, item.value, scope, item.name.name)
    if value is None or not isinstance(value.data, Record):
        return None
    made = argued(ctx, value.data, owner, scope)
    if made is None:
        return None
    value = replace(value, data=made)
    named_record = replace(made, name=made.name or item.name.name, owner=made.owner or owner)
    return replace(value, data=named_record)
