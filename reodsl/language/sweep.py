"""Spell out the members of a study: its arms and frontiers, and an arm for each combination of a sweep's values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from reodsl.language.bounds import MOST_ARMS
from reodsl.language.context import Context
from reodsl.language.evaluate import evaluate
from reodsl.language.modules import Loaded, describe_duplicate
from reodsl.language.units import Quantity, shown
from reodsl.language.values import Items, Record, Scope, Symbol, Value, as_written, describe
from reodsl.syntax import tree

EXAMPLE = "arms(w in [0.1, 0.3]) { arm swept = mine { reward = cheap(cost: w) } }"


@dataclass(frozen=True, slots=True)
class Member:
    """An arm or a frontier with the name that it goes by, the one that the spec writes, and what the sweep's names mean."""

    item: tree.Decl
    written: str
    values: dict[str, Callable[[], Value | None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What results, tables and files call it."""
        return self.item.name.name


def members_of(ctx: Context, module: Loaded, study: tree.Decl) -> list[Member] | None:
    """The members of a study in their order; None where a sweep is wrong, with the reason reported."""
    members: list[Member] = []
    sound = True
    for each in study.block.items if study.block is not None else ():
        match each:
            case tree.Decl(kind=tree.Ident("arm" | "frontier")):
                members.append(Member(each, each.name.name))
            case tree.Nested(name=tree.Ident("arms")):
                swept = _swept(ctx, module, each)
                sound = sound and swept is not None
                members += swept or ()
    return members if sound else None


def _swept(ctx: Context, module: Loaded, sweep: tree.Nested) -> list[Member] | None:
    """An arm for each declaration of a sweep and each combination of its values, the last name's varying fastest."""
    lists = [_list(ctx, module, arg) for arg in sweep.args]
    if not lists:
        return ctx.fail("E0310", "`arms` runs over lists", sweep.name.span, help=f"write `{EXAMPLE}`")
    arms: list[tree.Decl] = []
    for each in sweep.block.items:
        if not isinstance(each, tree.Decl) or each.kind.name != "arm":
            return ctx.fail(
                "E0202", "`arms` holds arms alone", each.span, "not here", help=f"write `{EXAMPLE}`"
            )
        arms.append(each)
    whole = [each for each in lists if each is not None]
    if len(whole) < len(lists):
        return None
    names = [name.name for name, _ in whole]
    for number, (name, _) in enumerate(whole):
        if name.name in names[:number]:
            ctx.report(describe_duplicate(name.name, name.span, None, "give it another name"))
            return None
    count = len(arms) * prod(len(values) for _, values in whole)
    if count > MOST_ARMS:
        return ctx.fail(
            "E0216",
            f"a study has at most {MOST_ARMS:,} arms, and these are {count:,}",
            sweep.name.span,
            "too large",
            help="sweep over fewer values at once",
        )
    members: dict[str, Member] = {}
    for arm in arms:
        for combination in product(*(values for _, values in whole)):
            spelled = _member(arm, dict(zip(names, combination, strict=True)))
            if members.setdefault(spelled.name, spelled) is not spelled:
                ctx.report(describe_duplicate(spelled.name, sweep.name.span, None, "list each value once"))
                return None
    return list(members.values())


def _list(ctx: Context, module: Loaded, arg: tree.Arg) -> tuple[tree.Ident, tuple[Value, ...]] | None:
    """A name of a sweep and its values; None with what is wrong reported."""
    value = arg.value
    if isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name):
        value = tree.Binding(tree.Ident(value.left.name, value.left.span), value.right, value.span)
    if not isinstance(value, tree.Binding):
        return ctx.fail("E0310", "`arms` runs over lists", arg.span, help=f"write `{EXAMPLE}`")
    over = evaluate(ctx, value.over, Scope(module))
    if over is None:
        return None
    if not isinstance(over.data, Items) or not over.data.values:
        return ctx.fail(
            "E0301",
            f"`arms` runs over lists, not over {describe(over)}",
            value.over.span,
            help=f"write `{EXAMPLE}`",
        )
    return value.var, tuple(replace(each, literal=None) for each in over.data.values)


def _member(arm: tree.Decl, values: dict[str, Value]) -> Member:
    """The arm of one combination: `swept_w0_1` for w = 0.1."""
    name = arm.name.name + "".join(f"_{key}{_word(value)}" for key, value in values.items())
    said = ", ".join(f"{key} = {as_written(value)}" for key, value in values.items())
    item = replace(arm, name=tree.Ident(name, arm.name.span), doc=arm.doc or said)
    return Member(item, arm.name.name, {key: _known(value) for key, value in values.items()})


def _known(value: Value) -> Callable[[], Value | None]:
    return lambda: value


def _word(value: Value) -> str:
    """A value as a part of a name: letters, digits and `_`; `m` is a minus."""
    match value.data:
        case Quantity():
            text = shown(Quantity(value.data.number))
        case Record():
            text = value.data.name
        case Symbol():
            text = value.data.name
        case _:
            text = as_written(value)
    text = f"m{text[1:]}" if text.startswith("-") else text
    word = re.sub("[^0-9A-Za-z]+", "_", text).strip("_")
    return word if word[:1].isdigit() or word.startswith("m") else f"_{word}"
