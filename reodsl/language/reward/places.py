"""Find the splits of a reward: those of its `dense` line, or those that its statistics run over."""

from __future__ import annotations

from reodsl.diagnostics.model import Label
from reodsl.ir.expression import Aggregate, Constant, Infix, Previous, Variable
from reodsl.language.bounds import EXPRESSION_STEPS
from reodsl.language.context import NoValue
from reodsl.language.evaluate import evaluate_splits, lookup
from reodsl.language.functions import SIGNATURES
from reodsl.language.reward.names import Body, Typed, fail
from reodsl.language.units import TOKENS, describe_unit
from reodsl.language.values import Record, WrittenBudgets
from reodsl.syntax import tree
from reodsl.syntax.tree import walk

NAMED = (
    "`for M in at`, with `at: budgets` among the reward's parameters, or `for M in [1K tokens, 4K tokens]`"
)


def find_splits(body: Body, block: tree.BraceBlock) -> None:
    """Take what the reward's `dense` line runs over as its splits, else what its first statistic over splits does."""
    line = next((each for each in block.items if isinstance(each, tree.Dense)), None)
    if line is not None:
        body.splits.variable = line.var.name
        _name_splits(body, line.over, "the splits of `dense`")
        return
    # A reward is read anew for each of its uses, and its text is looked through once.
    statistics = body.ctx.memoize(
        "statistics", block, lambda: [node for node in walk(block) if isinstance(node, tree.Comprehension)]
    )
    named = next((each.over for each in statistics if are_splits(body, each.over)), None)
    if named is not None:
        _name_splits(body, named, "the splits of a statistic")


def _name_splits(body: Body, over: tree.Expr, what: str) -> None:
    """Take splits as those of the reward; wrong ones are reported, and `broken`."""
    body.splits.over = over
    try:
        _read_splits(body, over, what)
    except NoValue:
        body.splits.invalid = True


def _read_splits(body: Body, over: tree.Expr, what: str) -> None:
    splits = body.splits
    name = over.name if isinstance(over, tree.Name) else ""
    if name in body.env.values:
        helps = f"declare it as `{name}: budgets`"
        body.ctx.fail("E0301", f"`{name}` is a number, and {what} are budgets", over.span, help=helps)
    if _is_open(body, over):
        return
    value = evaluate_splits(body.ctx, over, body.scope, what)
    if not isinstance(value.data, Record):
        raise NoValue
    splits.record = value.data
    if isinstance(value.data, WrittenBudgets):
        splits.high = float(value.data.schedule.l_max)


def _is_open(body: Body, over: tree.Expr) -> bool:
    """Return whether splits depend on a parameter without an argument."""
    match over:
        case tree.Name(name):
            return name in body.env.others and body.env.others[name] is None
        case tree.Call(function=tree.Name("reached"), args=(tree.Arg(value=inner),)):
            return not isinstance(inner, (tree.Binding, tree.Comprehension)) and _is_open(body, inner)
    return False


def are_splits(body: Body, over: tree.Expr) -> bool:
    """Return whether a statistic runs over splits, by their names: a parameter, budgets of the file, a list, or a call."""
    match over:
        case tree.Name(name) if name in body.env.values or name in body.env.responses:
            return False
        case tree.Name(name) if name in body.env.others:
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


def check_splits(body: Body, over: tree.Expr) -> None:
    """Check that a statistic runs over the splits of its reward. Raises `NoValue`."""
    splits, first = body.splits, body.splits.over
    if splits.invalid:
        raise NoValue
    if first is None:
        fail(body, "E0301", "this reward has no splits", over, f"name them: {NAMED}")
    if over is first or (isinstance(over, tree.Name) and over.name == "splits"):
        return None
    if isinstance(first, tree.Name) and isinstance(over, tree.Name) and first.name == over.name:
        return None
    if not _is_open(body, over):
        value = evaluate_splits(body.ctx, over, body.scope, "the splits of a statistic")
        if not isinstance(value.data, Record):
            raise NoValue
        if splits.record is not None and _are_alike(splits.record, value.data):
            return None
    body.ctx.fail(
        "E0301",
        "a reward looks at its responses at one set of splits",
        over.span,
        "others",
        others=[Label(first.span, "these are the reward's")],
        help="run over `splits`, the places of the first, and choose among them: `for M in splits if M < 1K tokens`",
    )
    return False


def _are_alike(one: Record, two: Record) -> bool:
    if isinstance(one, WrittenBudgets) and isinstance(two, WrittenBudgets):
        return one.schedule == two.schedule and one.data("reached") == two.data("reached")
    return one is two or (one.kind == two.kind and one.span == two.span)


def make_place(body: Body, name: str) -> Typed:
    """Return a variable over the splits: a number of tokens."""
    return Typed(Variable(name=name), TOKENS, 0.0 if body.measures else 1.0, body.splits.high)


def make_name(body: Body) -> str:
    """Return a new name for a variable over the splits."""
    return f"M{body.env.places or ''}"


def is_place(value: Typed) -> bool:
    """Return whether a value is the variable over splits of a statistic."""
    return isinstance(value.data, Variable) and value.data.name[0] == "M"


def is_at_hand(value: Typed) -> bool:
    """Return whether a value is the split at hand of a `dense` line."""
    return isinstance(value.data, Variable) and value.data.name == "L"


def find_before(body: Body, value: Typed, at: tree.Expr) -> Typed:
    """Return the last split before a number of tokens, or 0 before the first. Raises `NoValue`."""
    if value.unit != TOKENS:
        helps = "write `before(L)`, `before(M)` or `before(len(y))`"
        body.ctx.fail(
            "E0302", "`before` is of a number of tokens", at.span, describe_unit(value.unit), help=helps
        )
    if is_at_hand(value):
        return Typed(Previous(), TOKENS, 0.0, body.splits.high)
    body.ctx.charge(at.span, EXPRESSION_STEPS)
    variable = make_name(body)
    data = Aggregate(
        fn="max",
        var=variable,
        over="splits",
        value=Variable(name=variable),
        where=Infix(fn="<", left=Variable(name=variable), right=value.data),
        empty=Constant(value=0.0, unit=1),
    )
    return Typed(data, TOKENS, 0.0, min(body.splits.high, max(0.0, value.high)))
