"""Type the body of a selection: its lets, its picks, and what is dropped or kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from reodsl.diagnostics.model import Label
from reodsl.ir.expression import Expression
from reodsl.language.context import Context
from reodsl.language.reward.body import define_let, environment
from reodsl.language.reward.names import Body, Environment, Limits, constant, fail
from reodsl.language.reward.typing import condition, type_expression
from reodsl.language.suggest import advice
from reodsl.language.units import PLAIN
from reodsl.language.values import Definition, Record
from reodsl.syntax import tree

ROLES = ("trace", "preferred", "rejected")
PICK = (*ROLES, "where", "margin")
CHOICES: tuple[Literal["argmin", "argmax", "each"], ...] = ("argmin", "argmax", "each")
EXAMPLE = "trace = argmin(len(z) for z in group if correct(z))"
KEEPS = "where = mean(correct(z) for z in group) < 1"


@dataclass(frozen=True, slots=True)
class TypedChoice:
    """The response with the least or greatest `key` among those that meet `where`, or each of them."""

    fn: Literal["argmin", "argmax", "each"]
    var: str
    key: Expression
    where: Expression | None


@dataclass(frozen=True, slots=True)
class TypedPick:
    """A trace, or a preferred and a rejected response; `margin` says by how much."""

    trace: TypedChoice | None = None
    preferred: TypedChoice | None = None
    rejected: TypedChoice | None = None
    where: Expression | None = None
    margin: Expression | None = None


@dataclass(frozen=True, slots=True)
class TypedSelection:
    """A selection that was found sound."""

    lets: tuple[tuple[str, Expression], ...]
    picks: tuple[TypedPick, ...]
    drop: float = 0.0
    keep: Expression | None = None

    def most(self, responses: int) -> int:
        """The most that a question with so many responses gives."""
        each = [pick.trace is not None and pick.trace.fn == "each" for pick in self.picks]
        return sum(responses if every else 1 for every in each)

    @property
    def gives(self) -> str:
        """What it selects: `questions`, `traces` or `pairs`."""
        if self.keep is not None:
            return "questions"
        return "pairs" if self.picks[0].trace is None else "traces"


def questions_of(data: Record | None) -> Record | None:
    """The questions behind data to train on: its own, or those of the pool that it is selected from."""
    if data is None or data.kind != "selected":
        return data
    pool = data.sub("pool")
    return pool.sub("data") if pool is not None else None


def type_selection(
    ctx: Context, record: Definition, *, symbolic: bool = False, limits: Limits | None = None
) -> TypedSelection | None:
    """The body of a selection in types, or None with what is wrong reported; `limits` are those of the pool."""
    if limits is not None:
        return _selection(ctx, record, symbolic, limits)
    what = "symbolic" if symbolic else "typed"
    return ctx.once_of(what, record, lambda: _selection(ctx, record, symbolic, Limits()))


def _selection(ctx: Context, record: Definition, symbolic: bool, limits: Limits) -> TypedSelection | None:
    env_and_scope = environment(ctx, record, Environment(responses={}), symbolic=symbolic)
    if env_and_scope is None:
        return None
    env, scope = env_and_scope
    body = Body(ctx, scope, env, limits=limits, selects=True)
    lets: list[tuple[str, Expression]] = []
    own_settings: list[tree.Setting] = []
    picks: list[TypedPick | None] = []
    drop: float | None = None
    for item in record.body.items:
        match item:
            case tree.Let():
                if not define_let(body, item, lets):
                    return None
            case tree.Setting(name=tree.Ident("drop")):
                drop = _share(body, item)
                if drop is None:
                    return None
            case tree.Setting():
                own_settings.append(item)
            case tree.Decl() if item.kind.name == "pick" and item.block is not None and item.value is None:
                settings = [each for each in item.block.items if isinstance(each, tree.Setting)]
                for each in item.block.items:
                    if not isinstance(each, tree.Setting):
                        _stray(ctx, each)
                        return None
                picks.append(_pick(body, item.name, settings))
            case _:
                _stray(ctx, item)
                return None
    if not picks and drop is None and [each.name.name for each in own_settings] == ["where"]:
        keep = _holds(body, own_settings[0].value)
        return TypedSelection(tuple(lets), (), keep=keep) if keep is not None else None
    if own_settings:
        picks.insert(0, _pick(body, record.item.name, own_settings))
    sound = [pick for pick in picks if pick is not None]
    if not picks:
        ctx.fail(
            "E0313",
            f"the selection `{record.name}` picks nothing",
            record.item.name.span,
            help=f"write `{EXAMPLE}`, or `{KEEPS}` to select questions",
        )
    if not picks or len(sound) < len(picks):
        return None
    if not _agree(ctx, record, sound, drop is not None):
        return None
    return TypedSelection(tuple(lets), tuple(sound), drop or 0.0)


def _agree(ctx: Context, record: Definition, picks: list[TypedPick], dropping: bool) -> bool:
    """Whether picks are all traces or all pairs, and have the margins that some are dropped by; reported when not."""
    if len({pick.trace is None for pick in picks}) > 1:
        ctx.fail(
            "E0313",
            f"the selection `{record.name}` gives traces and pairs",
            record.item.name.span,
            help="let all of its picks be `trace`, or all `preferred` and `rejected`",
        )
        return False
    if dropping and any(pick.margin is None for pick in picks):
        ctx.fail(
            "E0304",
            f"the selection `{record.name}` drops what has the lowest margin, and a pick says none",
            record.item.name.span,
            help="add `margin = …` to each pick, such as `len(rejected) - len(preferred)`",
        )
        return False
    return True


def _share(body: Body, item: tree.Setting) -> float | None:
    """The share of all picks that is left out."""
    value = type_expression(body, item.value)
    if value is None:
        return None
    if not (value.constant or value.open) or value.unit or not (0 <= value.low <= value.high < 1):
        fail(body, "E0303", "`drop` is a share from 0 to less than 1", item.value, "write `drop = 15%`")
        return None
    return value.low if value.constant else 0.0


def _stray(ctx: Context, item: tree.BlockItem) -> None:
    helps = f"write `{EXAMPLE}`, or several in `pick NAME {{ … }}` blocks"
    ctx.fail("E0313", "a selection holds picks, `let`s and `where`", item.span, help=helps)


def _pick(body: Body, name: tree.Ident, settings: list[tree.Setting]) -> TypedPick | None:
    given = {item.name.name: item for item in settings}
    for item in settings:
        if item.name.name not in PICK or given[item.name.name] is not item:
            helps = advice(item.name.name, PICK, "it may have")
            return body.ctx.fail(
                "E0203", f"a pick has no `{item.name.name}` here", item.name.span, help=helps
            )
    roles = [role for role in ROLES if role in given]
    if roles not in (["trace"], ["preferred", "rejected"]):
        return body.ctx.fail(
            "E0304",
            "a pick is a `trace`, or `preferred` and `rejected`",
            name.span,
            f"has {' and '.join(roles) or 'neither'}",
            others=[Label(item.name.span, "this one") for item in settings],
            help=f"write `{EXAMPLE}`" + (", or `where` alone to select questions" if not roles else ""),
        )
    chosen: dict[str, TypedChoice | None] = {}
    inner = body
    for role in roles:
        chosen[role] = _choice(inner, given[role].value, role)
        inner = replace(inner, env=inner.env.with_response(role, role))
    where = _holds(inner, given["where"].value) if "where" in given else None
    margin = type_expression(inner, given["margin"].value) if "margin" in given else None
    pick = TypedPick(**chosen, where=where, margin=margin.data if margin is not None else None)
    if any(getattr(pick, name) is None for name in given):
        return None
    if roles != ["trace"] and pick.preferred == pick.rejected:
        _never(
            body,
            given["rejected"].value,
            "`preferred` and `rejected` are always one and the same response",
            "choose them by different keys or conditions, such as `argmin` and `argmax` of `len(z)`",
        )
        return None
    return pick


def _never(body: Body, expr: tree.Expr, why: str, help: str) -> None:
    """E0316: a pick that no question can have."""
    body.ctx.fail(
        "E0316",
        f"this picks nothing: {why}",
        expr.span,
        help=help,
    )


def _holds(body: Body, expr: tree.Expr) -> Expression | None:
    """A condition that can hold."""
    test = condition(body, expr)
    if test is not None and test.high == 0:
        _never(body, expr, "the condition never holds", "loosen it, or turn the comparison around")
        return None
    return test.data if test is not None else None


def _choice(body: Body, expr: tree.Expr, role: str) -> TypedChoice | None:
    name = (
        expr.function.name if isinstance(expr, tree.Call) and isinstance(expr.function, tree.Name) else None
    )
    over = expr.args[0].value if isinstance(expr, tree.Call) and len(expr.args) == 1 else None
    fn = next((each for each in CHOICES if each == name), None)
    if fn is None or not isinstance(over, tree.Comprehension):
        fail(body, "E0310", "a response is chosen by `argmin` or `argmax`", expr, f"write `{EXAMPLE}`")
        return None
    if not isinstance(over.over, tree.Name) or over.over.name != "group":
        fail(body, "E0301", f"`{name}` runs over `group`", over, f"write `{EXAMPLE}`")
        return None
    if name == "each" and (role != "trace" or not _is_variable(over)):
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
        return None
    inner = replace(body, env=body.env.with_response(over.var.name, "z"))
    key = constant(0.0, PLAIN) if name == "each" else type_expression(inner, over.expr)
    where = _holds(inner, over.condition) if over.condition is not None else None
    if key is None or (over.condition is not None and where is None):
        return None
    return TypedChoice(fn, "z", key.data, where)


def _is_variable(over: tree.Comprehension) -> bool:
    return isinstance(over.expr, tree.Name) and over.expr.name == over.var.name
