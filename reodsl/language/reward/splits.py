"""Find the splits of a reward: the token budgets of its `dense` line, or of its statistics over splits."""

from __future__ import annotations

from reodsl.diagnostics.model import Label
from reodsl.ir.expression import Aggregate, Constant, Infix, PriorSplit, Variable
from reodsl.language.bounds import EXPRESSION_STEPS
from reodsl.language.context import NoValue
from reodsl.language.evaluate import evaluate_splits, lookup
from reodsl.language.functions import SIGNATURES
from reodsl.language.reward.names import FormulaScope, TypedExpr, fail
from reodsl.language.units import TOKENS, describe_unit
from reodsl.language.values import Record, WrittenBudgets
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

SPLITS_EXAMPLE = (
    "`for M in at`, with `at: budgets` among the reward's parameters, or `for M in [1K tokens, 4K tokens]`"
)


def find_splits(body: FormulaScope, block: tree.BraceBlock) -> None:
    """Set the splits of a reward in `body`: those of its `dense` line, or else of its first statistic over splits.

    Splits are the positions, in tokens, at which a reward divides responses and grades their beginnings. A reward
    without a `dense` line and without such a statistic has no splits, and `body` is unchanged.
    """
    line = next((item for item in block.items if isinstance(item, tree.Dense)), None)
    if line is not None:
        body.splits.variable = line.var.name
        _set_splits(body, line.over, "the splits of `dense`")
        return
    # A reward is typed for each use, and its text is searched for statistics once.
    statistics = body.ctx.memoize(
        "statistics", block, lambda: [node for node in walk(block) if isinstance(node, tree.Comprehension)]
    )
    over = next((statistic.over for statistic in statistics if are_splits(body, statistic.over)), None)
    if over is not None:
        _set_splits(body, over, "the splits of a statistic")


def _set_splits(body: FormulaScope, over: tree.Expr, noun: str) -> None:
    """Set the splits of a reward to the value of an expression; wrong splits are reported and marked as invalid.

    Splits are the positions, in tokens, at which a response is divided.

    Args:
        body: The formula, whose `splits` are set.
        over: The expression, such as a parameter or a call of `exp(…)`.
        noun: What has the splits, for a message.
    """
    body.splits.over = over
    try:
        _evaluate_splits(body, over, noun)
    except NoValue:
        body.splits.invalid = True


def _evaluate_splits(body: FormulaScope, over: tree.Expr, noun: str) -> None:
    """Evaluate the splits of a reward: the positions, in tokens, at which a response is divided.

    `body.splits.record` stays None if the splits depend on a parameter without an argument. The largest split is
    set only for budgets that the spec lists, since other splits are known only during the run.

    Args:
        body: The formula, whose `splits` are set.
        over: The expression that names the splits.
        noun: What has the splits, for a message.

    Raises:
        NoValue: The expression is not a list of budgets, which was reported.
    """
    splits = body.splits
    name = over.name if isinstance(over, tree.Name) else ""
    if name in body.env.values:
        hint = f"declare it as `{name}: budgets`"
        body.ctx.fail("E0301", f"`{name}` is a number, and {noun} are budgets", over.span, help=hint)
    if _is_unbound(body, over):
        return
    value = evaluate_splits(body.ctx, over, body.scope, noun)
    if not isinstance(value.data, Record):
        raise NoValue
    splits.record = value.data
    if isinstance(value.data, WrittenBudgets):
        splits.high = float(value.data.schedule.l_max)


def _is_unbound(body: FormulaScope, over: tree.Expr) -> bool:
    """Return whether splits are a parameter without an argument, or `reached(…)` of such a parameter."""
    match over:
        case tree.Name(name):
            return name in body.env.other_params and body.env.other_params[name] is None
        case tree.Call(function=tree.Name("reached"), args=(tree.Arg(value=inner),)):
            return not isinstance(inner, (tree.Binding, tree.Comprehension)) and _is_unbound(body, inner)
    return False


def are_splits(body: FormulaScope, over: tree.Expr) -> bool:
    """Return whether a statistic that runs over an expression runs over splits, rather than over responses.

    Splits are the positions, in tokens, at which a response is divided. The expression names splits if it is a
    parameter that is not a number, budgets that the file declares, a list, or a call of a function of budgets. A
    call of `steps` with a named argument is such a function; `steps(20 steps)` is earlier steps of training.
    """
    match over:
        case tree.Name(name) if name in body.env.values or name in body.env.responses:
            return False
        case tree.Name(name) if name in body.env.other_params:
            return True
        case tree.Name(name):
            declared = lookup(body.ctx, body.scope.module, name)
            return (
                declared is not None
                and isinstance(declared[1], tree.Decl)
                and (declared[1].kind.name == "budgets")
            )
        case tree.ListExpr():
            return True
        case tree.Call(function=tree.Name("steps"), args=args):
            return bool(args) and args[0].name is not None
        case tree.Call(function=tree.Name(name)):
            return name in SIGNATURES
    return False


def check_splits(body: FormulaScope, over: tree.Expr) -> None:
    """Check that a statistic runs over the splits of its reward, since a reward has only one set of splits.

    Splits are the positions, in tokens, at which a response is divided. The statistic may name them by `splits`, by
    the same name as the reward, or by an expression with an equal value.

    Args:
        body: The formula with its splits.
        over: The expression that the statistic runs over.

    Raises:
        NoValue: The reward has no splits, or the statistic runs over other splits, which was reported.
    """
    splits, first = body.splits, body.splits.over
    if splits.invalid:
        raise NoValue
    if first is None:
        fail(body, "E0301", "this reward has no splits", over, f"name them: {SPLITS_EXAMPLE}")
    names = ("splits", first.name if isinstance(first, tree.Name) else "splits")
    if over is first or (isinstance(over, tree.Name) and over.name in names):
        return
    if not _is_unbound(body, over):
        value = evaluate_splits(body.ctx, over, body.scope, "the splits of a statistic")
        if not isinstance(value.data, Record):
            raise NoValue
        if splits.record is not None and _are_equal(splits.record, value.data):
            return
    body.ctx.fail(
        "E0301",
        "a reward has one set of splits",
        over.span,
        "other splits",
        labels=[Label(first.span, "the reward's splits")],
        help="run over `splits`, which are the reward's, and choose among them: `for M in splits if M < 1K tokens`",
    )


def _are_equal(a: Record, b: Record) -> bool:
    """Return whether two records have the same splits: equal schedules of budgets, or the same call."""
    if isinstance(a, WrittenBudgets) and isinstance(b, WrittenBudgets):
        return a.schedule == b.schedule and a.data("reached") == b.data("reached")
    return a is b or (a.kind == b.kind and a.span == b.span)


def make_split_variable(body: FormulaScope, name: str) -> TypedExpr:
    """Return a typed variable over the splits, from 1 token (0 in a measure) to the largest split."""
    return TypedExpr(Variable(name=name), TOKENS, 0.0 if body.is_measure else 1.0, body.splits.high)


def name_split_variable(body: FormulaScope) -> str:
    """Return the canonical name of the next variable over splits: `M`, `M1`, `M2` and so on."""
    return f"M{body.env.split_count or ''}"


def is_split_variable(value: TypedExpr) -> bool:
    """Return whether a value is a statistic's variable over splits, by its name: `M`, `M1`, `M2` and so on."""
    return isinstance(value.data, Variable) and value.data.name[0] == "M"


def is_current_split(value: TypedExpr) -> bool:
    """Return whether a value is the current split of a `dense` line, whose canonical name is `L`."""
    return isinstance(value.data, Variable) and value.data.name == "L"


def find_previous(body: FormulaScope, value: TypedExpr, expr: tree.Expr) -> TypedExpr:
    """Return the typed expression `before(value)`: the last split below a number of tokens, or 0 if there is none.

    Splits are the positions, in tokens, at which a response is divided. For the current split of a `dense` line,
    the expression is a `PriorSplit`; for any other number, it is a maximum over the splits below the number.

    Args:
        body: The formula with its splits.
        value: The typed argument.
        expr: The argument in the syntax tree.

    Raises:
        NoValue: The value is not a number of tokens, which was reported.
    """
    if value.unit != TOKENS:
        hint = "write `before(L)`, `before(M)` or `before(len(y))`"
        body.ctx.fail(
            "E0302", "`before` is of a number of tokens", expr.span, describe_unit(value.unit), help=hint
        )
    if is_current_split(value):
        return TypedExpr(PriorSplit(), TOKENS, 0.0, body.splits.high)
    body.ctx.charge(expr.span, EXPRESSION_STEPS)
    variable = name_split_variable(body)
    data = Aggregate(
        fn="max",
        var=variable,
        over="splits",
        value=Variable(name=variable),
        where=Infix(fn="<", left=Variable(name=variable), right=value.data),
        empty=Constant(value=0.0, unit=1),
    )
    return TypedExpr(data, TOKENS, 0.0, min(body.splits.high, max(0.0, value.high)))
