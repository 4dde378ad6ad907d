"""Spell out the members of a study: its arms and frontiers, and an arm for each combination of a sweep's values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from reodsl.language.bounds import MOST_ARMS
from reodsl.language.context import Context, Failed, attempt, try_all
from reodsl.language.evaluate import evaluate
from reodsl.language.modules import ParsedFile, describe_duplicate
from reodsl.language.units import Quantity, format_quantity
from reodsl.language.values import Items, Record, Scope, Symbol, Value, describe, write_value
from reodsl.syntax import tree

EXAMPLE = "arms(w in [0.1, 0.3]) { arm swept = mine { reward = cheap(cost: w) } }"


@dataclass(frozen=True, slots=True)
class Member:
    """An arm or a frontier with its own name, the name in the spec, and the values of the sweep's names."""

    item: tree.Decl
    written: str
    values: dict[str, Callable[[], Value]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name in results, tables and files."""
        return self.item.name.name


def list_members(ctx: Context, module: ParsedFile, study: tree.Decl) -> list[Member]:
    """Return the members of a study in their order. Raises `Failed` if a sweep is wrong."""

    def spell_out(item: tree.BlockItem) -> list[Member]:
        match item:
            case tree.Decl(kind=tree.Ident("arm" | "frontier")):
                return [Member(item, item.name.name)]
            case tree.Nested(name=tree.Ident("arms")):
                return _sweep(ctx, module, item)
        return []

    items = study.block.items if study.block is not None else ()
    return [member for members in try_all(spell_out, items) for member in members]


def _sweep(ctx: Context, module: ParsedFile, sweep: tree.Nested) -> list[Member]:
    """Return an arm for each declaration of a sweep and each combination of its values, the last name's varying fastest."""
    if not sweep.args:
        ctx.fail("E0310", "`arms` runs over lists", sweep.name.span, help=f"write `{EXAMPLE}`")
    lists = attempt(lambda: try_all(lambda arg: _read_list(ctx, module, arg), sweep.args))
    arms: list[tree.Decl] = []
    for each in sweep.block.items:
        if not isinstance(each, tree.Decl) or each.kind.name != "arm":
            ctx.fail("E0202", "`arms` holds arms alone", each.span, "not here", help=f"write `{EXAMPLE}`")
        arms.append(each)
    if lists is None:
        raise Failed
    names = [name.name for name, _ in lists]
    for number, (name, _) in enumerate(lists):
        if name.name in names[:number]:
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
    members: dict[str, Member] = {}
    for arm in arms:
        for combination in product(*(values for _, values in lists)):
            spelled = _make_member(arm, dict(zip(names, combination, strict=True)))
            if members.setdefault(spelled.name, spelled) is not spelled:
                ctx.refuse(describe_duplicate(spelled.name, sweep.name.span, None, "list each value once"))
    return list(members.values())


def _read_list(ctx: Context, module: ParsedFile, arg: tree.Arg) -> tuple[tree.Ident, tuple[Value, ...]]:
    """Return a name of a sweep and its values. Raises `Failed`."""
    value = arg.value
    if isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name):
        value = tree.Binding(tree.Ident(value.left.name, value.left.span), value.right, value.span)
    if not isinstance(value, tree.Binding):
        ctx.fail("E0310", "`arms` runs over lists", arg.span, help=f"write `{EXAMPLE}`")
    over = evaluate(ctx, value.over, Scope(module))
    if not isinstance(over.data, Items) or not over.data.values:
        ctx.fail(
            "E0301",
            f"`arms` runs over lists, not over {describe(over)}",
            value.over.span,
            help=f"write `{EXAMPLE}`",
        )
    return value.var, tuple(replace(each, literal=None) for each in over.data.values)


def _make_member(arm: tree.Decl, values: dict[str, Value]) -> Member:
    """Return the arm of one combination: `swept_w0_1` for w = 0.1."""
    name = arm.name.name + "".join(f"_{key}{_write_word(value)}" for key, value in values.items())
    said = ", ".join(f"{key} = {write_value(value)}" for key, value in values.items())
    item = replace(arm, name=tree.Ident(name, arm.name.span), doc=arm.doc or said)
    return Member(item, arm.name.name, {key: _return_value(value) for key, value in values.items()})


def _return_value(value: Value) -> Callable[[], Value]:
    return lambda: value


def _write_word(value: Value) -> str:
    """Return a value as a part of a name: letters, digits and `_`; `m` is a minus."""
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
