"""Type the body of a selection: its lets, the responses or questions that it picks, and the share that it drops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal, NoReturn

from reodsl.diagnostics.model import Label, warning
from reodsl.ir.base import Node, values_of
from reodsl.ir.expression import READINGS, Aggregate, Attribute, Correct, Expression, Length
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
    """Return the data set whose questions a stage trains on.

    Args:
        data: The setting `data` of the stage: a data set, or a selection from a pool of responses.

    Returns:
        The data set itself, or the data set of the selection's pool; None if `data` or the pool's data is missing.
    """
    return data.sub("pool.data") if data is not None and data.kind == "selected" else data


def type_selection(
    ctx: Context, record: Definition, *, symbolic: bool = False, limits: ResponseLimits | None = None
) -> Selection | None:
    """Type a selection, a rule that picks responses or questions of a pool; mistakes are reported.

    The result is memoized, except for a call with `limits`.

    Args:
        ctx: The evaluation.
        record: The selection with its arguments.
        symbolic: Whether a parameter without an argument may have any value in its range, and is not an error.
        limits: The limits of the pool's responses; None for any responses.

    Returns:
        The typed selection, or None if it is wrong.
    """

    def read() -> Selection | None:
        return attempt(lambda: _type_selection(ctx, record, symbolic, limits or ResponseLimits()))

    return read() if limits is not None else ctx.memoize("symbolic" if symbolic else "typed", record, read)


def _type_selection(ctx: Context, record: Definition, symbolic: bool, limits: ResponseLimits) -> Selection:
    """Type the lines of a selection's body.

    The body of a selection of questions has only `let`s and a `where`. The body of a selection of responses has
    picks: one pick by settings in the body itself, and any number in `pick` blocks. It may also have `drop`, the
    share of picks that is left out.

    Args:
        ctx: The evaluation.
        record: The selection with its arguments.
        symbolic: Whether a parameter without an argument may have any value in its range.
        limits: The limits of the pool's responses.

    Raises:
        NoValue: The selection is wrong, which was reported.
    """
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


def _check_agreement(ctx: Context, record: Definition, picks: list[Pick], has_drop: bool) -> None:
    """Check that the picks of a selection agree with each other and with `drop`.

    All picks must be traces, or all must be pairs. With `drop`, which leaves out the picks with the lowest
    margins, every pick needs a `margin`; without `drop`, a margin has no effect.

    Args:
        ctx: The evaluation.
        record: The selection.
        picks: The typed picks.
        has_drop: Whether the selection has `drop`.

    Raises:
        NoValue: The picks do not agree, which was reported.
    """
    if len({pick.trace is None for pick in picks}) > 1:
        ctx.fail(
            "E0313",
            f"the selection `{record.name}` gives both traces and pairs",
            record.item.name.span,
            help="write `trace` in all picks, or `preferred` and `rejected` in all picks",
        )
    if has_drop and any(pick.margin is None for pick in picks):
        ctx.fail(
            "E0304",
            f"the selection `{record.name}` drops the picks with the lowest margins, and a pick has no `margin`",
            record.item.name.span,
            help="add `margin = …` to each pick, such as `len(rejected) - len(preferred)`",
        )
    margins = [
        node for node in walk(record.body) if isinstance(node, tree.Assignment) and node.name.name == "margin"
    ]
    if margins and not has_drop:
        ctx.error(
            "E0521",
            "`margin` says which picks `drop` leaves out, and the selection has no `drop`",
            margins[0].span,
            "has no effect",
            labels=[Label(item.span, "this `margin` too") for item in margins[1:]],
            help="take it out, or add `drop = 15%` to the selection",
        )


def _type_share(body: FormulaScope, item: tree.Assignment) -> float:
    """Return the value of `drop = …`, the share of picks that is dropped: from 0 to less than 1.

    A parameter without an argument counts as 0.

    Raises:
        NoValue: The value is not such a share, which was reported.
    """
    value = type_expression(body, item.value)
    if not (value.is_constant or value.is_unbound) or value.unit or not (0 <= value.low <= value.high < 1):
        fail(body, "E0303", "`drop` is a share from 0 to less than 1", item.value, "write `drop = 15%`")
    return value.low if value.is_constant else 0.0


def _refuse_item(ctx: Context, item: tree.BlockItem) -> NoReturn:
    """Report E0313 for a line that a selection cannot have, and raise `NoValue`."""
    hint = f"write `{EXAMPLE}`, or several in `pick NAME {{ … }}` blocks"
    ctx.fail("E0313", "a selection has only picks, `let`s and `where`", item.span, help=hint)


def _type_pick(body: FormulaScope, name: tree.Ident, settings: list[tree.Assignment]) -> Pick:
    """Return a typed pick: a trace, or a preferred and a rejected response, with its condition and margin.

    Args:
        body: The formula, with the `let`s above the pick.
        name: The name of the `pick` block, or of the selection if its body itself is the pick.
        settings: The lines of the pick.

    Raises:
        NoValue: The pick is wrong, which was reported.
    """
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
            labels=[Label(item.name.span, "is given") for item in settings],
            help=f"write `{EXAMPLE}`" + (", or only `where` to select questions" if not roles else ""),
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
            "`preferred` and `rejected` are always the same response",
            "choose by different keys or conditions, such as `argmin` and `argmax` of `len(z)`",
        )
    return pick


def _refuse_pick(body: FormulaScope, expr: tree.Expr, reason: str, help: str) -> NoReturn:
    """Report E0316 for a pick that no question can ever have.

    Args:
        body: The formula.
        expr: The part of the pick at which to show the error.
        reason: Why no question can have this pick.
        help: What to write instead.

    Raises:
        NoValue: Always.
    """
    fail(body, "E0316", f"this picks nothing: {reason}", expr, help)


def _type_condition(body: FormulaScope, expr: tree.Expr) -> Expression:
    """Return the typed expression of a condition in a selection.

    Report W0520 for a condition that always holds, and E0316 for a condition that never holds.

    Raises:
        NoValue: The condition is wrong or never holds, which was reported.
    """
    test = type_condition(body, expr)
    if test.low == 1:
        hint = "take it out, or tighten it"
        body.ctx.report(warning("W0520", "the condition always holds", expr.span, "has no effect", help=hint))
    if test.high == 0:
        _refuse_pick(body, expr, "the condition never holds", "loosen it, or turn the comparison around")
    return test.data


def _type_choice(body: FormulaScope, expr: tree.Expr, role: str) -> Choice:
    """Return the typed choice of a response, such as `argmin(len(z) for z in group if correct(z))`.

    Args:
        body: The formula, with the names that the choice may use.
        expr: A call of `argmin`, `argmax` or `each` over the responses of a question.
        role: What the response is chosen for: `trace`, `preferred` or `rejected`.

    Raises:
        NoValue: The choice is wrong, which was reported.
    """
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
        message = "`each` takes responses unchanged" if role == "trace" else "a pair takes two responses"
        hint = "write `trace = each(z for z in group if correct(z))`, or choose by `argmin` and `argmax`"
        fail(body, "E0310", message, expr, hint)
    inner = replace(body, env=body.env.with_response(over.var.name, "z"))
    zero = make_constant(0.0, PLAIN)
    key = zero if name == "each" else attempt(partial(type_expression, inner, over.expr))
    where = _type_condition(inner, over.condition) if over.condition is not None else None
    if key is None:
        raise NoValue
    return Choice.model_construct(fn=fn, var="z", key=key.data, where=where)


def type_question_condition(ctx: Context, expr: tree.Expr, scope: Scope) -> Value:
    """Return the value of a wording's `when`, a condition on a question.

    A wording is a variant of the prompt, and is chosen before the question is answered. The condition may therefore
    read only columns of the question and responses of the reference model.

    Args:
        ctx: The evaluation.
        expr: The condition.
        scope: The names of the file.

    Raises:
        NoValue: The condition reads responses, or does not depend on the question, which was reported.
    """
    body = FormulaScope(ctx, scope, Names())
    test = type_condition(body, expr)
    nodes = values_of(test.data, Node)
    of_group = any(isinstance(node, Aggregate) and node.over != "ref" for node in nodes)
    of_response = any(
        isinstance(node, (Length, Correct, Attribute))
        and node.of == "y"
        and not (isinstance(node, Attribute) and node.field not in READINGS)
        for node in nodes
    )
    if body.uses - {"ref", "given", "thinking"} or of_group or of_response:
        hint = "run over the reference model's responses, `mean(len(z) for z in ref)`, or read the question: `x.level`"
        fail(body, "E0301", "a wording is chosen before the question is answered", expr, hint)
    if not body.uses:
        hint = "compare a number of the question: `x.level > 3`, or `mean(len(z) for z in ref) < 1K tokens`"
        fail(body, "E0511", "this condition is the same for every question", expr, hint)
    name, reads = expression_text(test.data), frozenset(body.uses)
    condition = TypedCondition(
        "condition", {}, expr.span, name, expression=test.data, reads=reads, numbers=body.fields
    )
    return Value(condition, expr.span)
