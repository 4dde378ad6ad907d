"""Type the body of a selection: its lets, its picks, and what is dropped or kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal, NoReturn

from reodsl.diagnostics.model import Label, warning
from reodsl.ir.expression import READINGS, Aggregate, Attribute, Correct, Expression, Length
from reodsl.ir.expression import walk as walk_expression
from reodsl.ir.reward import Choice, NamedValue, Pick, Selection
from reodsl.ir.reward_text import expression_text
from reodsl.language.context import Context, NoValue, attempt
from reodsl.language.reward.body import define_let, make_environment, report_unread
from reodsl.language.reward.names import FormulaScope, Names, ResponseLimits, fail, make_constant
from reodsl.language.reward.typing import type_condition, type_expression
from reodsl.language.suggest import suggest
from reodsl.language.units import PLAIN
from reodsl.language.values import Definition, Record, Scope, TypedCondition, Value
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

ROLES = ("trace", "preferred", "rejected")
PICK_SETTINGS = (*ROLES, "where", "margin")
CHOICES: tuple[Literal["argmin", "argmax", "each"], ...] = ("argmin", "argmax", "each")
EXAMPLE = "trace = argmin(len(z) for z in group if correct(z))"
QUESTIONS_EXAMPLE = "where = mean(correct(z) for z in group) < 1"


def find_questions(data: Record | None) -> Record | None:
    """Return the questions of data to train on: the data itself, or the data of the pool of a selection."""
    return data.sub("pool.data") if data is not None and data.kind == "selected" else data


def type_selection(
    ctx: Context, record: Definition, *, symbolic: bool = False, limits: ResponseLimits | None = None
) -> Selection | None:
    """Return a selection typed, or None if it is wrong, which is reported; `limits` are of the pool's responses."""

    def read() -> Selection | None:
        return attempt(lambda: _type_selection(ctx, record, symbolic, limits or ResponseLimits()))

    return read() if limits is not None else ctx.memoize("symbolic" if symbolic else "typed", record, read)


def _type_selection(ctx: Context, record: Definition, symbolic: bool, limits: ResponseLimits) -> Selection:
    """Return the body of a selection typed."""
    env, scope = make_environment(ctx, record, Names(responses={}), symbolic=symbolic)
    body = FormulaScope(ctx, scope, env, limits=limits, is_selection=True)
    lets: list[NamedValue] = []
    own_settings: list[tree.Assignment] = []
    picks: list[Pick | None] = []
    drop: float | None = None
    for item in record.body.items:
        match item:
            case tree.Let():
                define_let(body, item, lets)
            case tree.Assignment(name=tree.Ident("drop")):
                drop = _type_share(body, item)
            case tree.Assignment():
                own_settings.append(item)
            case tree.Decl() if item.kind.name == "pick" and item.block is not None and item.value is None:
                settings = [child for child in item.block.items if isinstance(child, tree.Assignment)]
                for child in item.block.items:
                    if not isinstance(child, tree.Assignment):
                        _refuse_item(ctx, child)
                picks.append(attempt(partial(_type_pick, body, item.name, settings)))
            case _:
                _refuse_item(ctx, item)
    if not picks and drop is None and [setting.name.name for setting in own_settings] == ["where"]:
        keep = _type_condition(body, own_settings[0].value)
        return Selection.model_construct(name=record.name, lets=tuple(lets), picks=(), keep=keep)
    if own_settings:
        picks.insert(0, attempt(partial(_type_pick, body, record.item.name, own_settings)))
    if not picks:
        ctx.fail(
            "E0313",
            f"the selection `{record.name}` picks nothing",
            record.item.name.span,
            help=f"write `{EXAMPLE}`, or `{QUESTIONS_EXAMPLE}` to select questions",
        )
    typed = [pick for pick in picks if pick is not None]
    if len(typed) < len(picks):
        raise NoValue
    _check_agreement(ctx, record, typed, drop is not None)
    report_unread(ctx, record)
    return Selection.model_construct(name=record.name, lets=tuple(lets), picks=tuple(typed), drop=drop or 0.0)


def _check_agreement(ctx: Context, record: Definition, picks: list[Pick], dropping: bool) -> None:
    """Check that picks are all traces or all pairs, and have margins exactly if some are dropped.

    Raises:
        NoValue: They are not, which was reported.
    """
    if len({pick.trace is None for pick in picks}) > 1:
        ctx.fail(
            "E0313",
            f"the selection `{record.name}` gives traces and pairs",
            record.item.name.span,
            help="let all of its picks be `trace`, or all `preferred` and `rejected`",
        )
    if dropping and any(pick.margin is None for pick in picks):
        ctx.fail(
            "E0304",
            f"the selection `{record.name}` drops what has the lowest margin, and a pick says none",
            record.item.name.span,
            help="add `margin = …` to each pick, such as `len(rejected) - len(preferred)`",
        )
    margins = [
        node for node in walk(record.body) if isinstance(node, tree.Assignment) and node.name.name == "margin"
    ]
    if margins and not dropping:
        ctx.error(
            "E0521",
            "`margin` says what `drop` leaves out, and nothing is dropped",
            margins[0].span,
            "has no effect",
            labels=[Label(item.span, "this one") for item in margins[1:]],
            help="take it out, or write `drop = 15%` beside the picks",
        )


def _type_share(body: FormulaScope, item: tree.Assignment) -> float:
    """Return the share of all picks that is dropped.

    Raises:
        NoValue: It is no share below 1, which was reported.
    """
    value = type_expression(body, item.value)
    if not (value.constant or value.open) or value.unit or not (0 <= value.low <= value.high < 1):
        fail(body, "E0303", "`drop` is a share from 0 to less than 1", item.value, "write `drop = 15%`")
    return value.low if value.constant else 0.0


def _refuse_item(ctx: Context, item: tree.BlockItem) -> NoReturn:
    """Report E0313: an item that a selection does not hold."""
    hint = f"write `{EXAMPLE}`, or several in `pick NAME {{ … }}` blocks"
    ctx.fail("E0313", "a selection holds picks, `let`s and `where`", item.span, help=hint)


def _type_pick(body: FormulaScope, name: tree.Ident, settings: list[tree.Assignment]) -> Pick:
    """Return a pick typed: a trace, or a preferred and a rejected response."""
    items = {item.name.name: item for item in settings}
    for item in settings:
        if item.name.name not in PICK_SETTINGS or items[item.name.name] is not item:
            hint = suggest(item.name.name, PICK_SETTINGS, "it may have")
            body.ctx.fail("E0203", f"a pick has no `{item.name.name}` here", item.name.span, help=hint)
    roles = [role for role in ROLES if role in items]
    if roles not in (["trace"], ["preferred", "rejected"]):
        body.ctx.fail(
            "E0304",
            "a pick is a `trace`, or `preferred` and `rejected`",
            name.span,
            f"has {' and '.join(roles) or 'neither'}",
            labels=[Label(item.name.span, "this one") for item in settings],
            help=f"write `{EXAMPLE}`" + (", or `where` alone to select questions" if not roles else ""),
        )
    chosen: dict[str, Choice | None] = {}
    inner = body
    for role in roles:
        chosen[role] = attempt(partial(_type_choice, inner, items[role].value, role))
        inner = replace(inner, env=inner.env.with_response(role, role))
    where = attempt(partial(_type_condition, inner, items["where"].value)) if "where" in items else None
    margin = attempt(partial(type_expression, inner, items["margin"].value)) if "margin" in items else None
    trace, preferred, rejected = map(chosen.get, ROLES)
    pick = Pick.model_construct(
        trace=trace,
        preferred=preferred,
        rejected=rejected,
        where=where,
        margin=None if margin is None else margin.data,
    )
    if any(getattr(pick, name) is None for name in items):
        raise NoValue
    if roles != ["trace"] and pick.preferred == pick.rejected:
        _refuse_pick(
            body,
            items["rejected"].value,
            "`preferred` and `rejected` are always one and the same response",
            "choose them by different keys or conditions, such as `argmin` and `argmax` of `len(z)`",
        )
    return pick


def _refuse_pick(body: FormulaScope, expr: tree.Expr, why: str, help: str) -> NoReturn:
    """Report E0316: a pick that no question can have.

    Raises:
        NoValue: Always.
    """
    fail(body, "E0316", f"this picks nothing: {why}", expr, help)


def _type_condition(body: FormulaScope, expr: tree.Expr) -> Expression:
    """Return a condition that can hold, and report W0520 for a condition that always holds.

    Raises:
        NoValue: It never holds, which was reported.
    """
    test = type_condition(body, expr)
    if test.low == 1:
        hint = "take it out, or tighten it"
        body.ctx.report(warning("W0520", "the condition always holds", expr.span, "has no effect", help=hint))
    if test.high == 0:
        _refuse_pick(body, expr, "the condition never holds", "loosen it, or turn the comparison around")
    return test.data


def _type_choice(body: FormulaScope, expr: tree.Expr, role: str) -> Choice:
    """Return the choice of a response by `argmin`, `argmax` or `each`; `role` is `trace`, `preferred` or `rejected`."""
    name = (
        expr.function.name if isinstance(expr, tree.Call) and isinstance(expr.function, tree.Name) else None
    )
    over = expr.args[0].value if isinstance(expr, tree.Call) and len(expr.args) == 1 else None
    fn = next((choice for choice in CHOICES if choice == name), None)
    example = f"write `{EXAMPLE.replace('trace', role)}`"
    if fn is None or not isinstance(over, tree.Comprehension):
        fail(body, "E0310", "a response is chosen by `argmin` or `argmax`", expr, example)
    if not isinstance(over.over, tree.Name) or over.over.name != "group":
        fail(body, "E0301", f"`{name}` runs over `group`", over, example)
    if name == "each" and (role != "trace" or over.expr != tree.Name(over.var.name, over.expr.span)):
        why = (
            "`each` takes responses as they are"
            if role == "trace"
            else "a pair takes one response on each side"
        )
        fail(
            body,
            "E0310",
            why,
            expr,
            "write `trace = each(z for z in group if correct(z))`, or choose by `argmin` and `argmax`",
        )
    inner = replace(body, env=body.env.with_response(over.var.name, "z"))
    plain = make_constant(0.0, PLAIN)
    key = plain if name == "each" else attempt(partial(type_expression, inner, over.expr))
    where = _type_condition(inner, over.condition) if over.condition is not None else None
    if key is None:
        raise NoValue
    return Choice.model_construct(fn=fn, var="z", key=key.data, where=where)


def type_question_condition(ctx: Context, expr: tree.Expr, scope: Scope) -> Value:
    """Return a condition on a question that has no answer yet, as the value of a setting.

    Raises:
        NoValue: It reads what the question does not have, which was reported.
    """
    body = FormulaScope(ctx, scope, Names())
    test = type_condition(body, expr)
    nodes = [*walk_expression(test.data)]
    of_group = any(isinstance(node, Aggregate) and node.over != "ref" for node in nodes)
    of_response = any(
        isinstance(node, (Length, Correct, Attribute))
        and node.of == "y"
        and not (isinstance(node, Attribute) and node.field not in READINGS)
        for node in nodes
    )
    if body.uses - {"ref", "given", "thinking"} or of_group or of_response:
        hint = "run over the reference model's responses, `mean(len(z) for z in ref)`, or read the question: `x.level`"
        fail(body, "E0301", "a wording is chosen before the question is answered in it", expr, hint)
    if not body.uses:
        hint = "compare a number of the question: `x.level > 3`, or `mean(len(z) for z in ref) < 1K tokens`"
        fail(body, "E0511", "this condition is the same for every question", expr, hint)
    name, reads = expression_text(test.data), frozenset(body.uses)
    condition = TypedCondition(
        "condition", {}, expr.span, name, expression=test.data, reads=reads, numbers=body.fields
    )
    return Value(condition, expr.span)
