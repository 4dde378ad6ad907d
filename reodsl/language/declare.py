"""Evaluate declarations by their kinds: params, records, rewards, budgets, studies with their arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from reodsl.ir.kinds import DECLARED, FORMULAS, KINDS
from reodsl.ir.setting import SPLITS, Flag, Kind, ListOf, Num, Text, Type
from reodsl.language.blocks import ArmSpec, apply_block, find_homes, list_members
from reodsl.language.bounds import MOST_ARMS
from reodsl.language.changes import apply_amends, complete_experiment
from reodsl.language.context import Context, NoValue, attempt, try_all
from reodsl.language.evaluate import check_range, evaluate, evaluate_as, evaluate_splits, read_type
from reodsl.language.finish import UNKNOWN, fill_defaults
from reodsl.language.fitting import list_kinds
from reodsl.language.hints import suggest_declaration, suggest_import
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.suggest import list_names, nearest, suggest
from reodsl.language.values import (
    Child,
    Composite,
    DeclaredArm,
    DeclaredExperiment,
    DeclaredFrontier,
    DeclaredStudy,
    Definition,
    Items,
    NestedBlock,
    Owner,
    Record,
    Scope,
    Slot,
    Value,
    article,
    describe,
    join_kinds,
)
from reodsl.syntax import tree

FROM_CHECKPOINT = ("checkpoint", "model")
PARTS = {
    "traces": ("style", "one way to write a step", 'style plain { template = "{value} {op} {next} ." }'),
    "frontier": ("curve", "an accuracy for each budget on one benchmark", "curve aime24 { accuracy = […] }"),
    "published": ("row", "the numbers of one arm", 'row vanilla { title = "Vanilla RL", accuracy = 46.9% }'),
}
"""The declarations inside a kind's block: a word, a description, and an example."""
CLASSES: dict[str, type[Record]] = {
    "experiment": DeclaredExperiment,
    "recipe": DeclaredExperiment,
    "traces": Composite,
    "published": Composite,
    "frontier": DeclaredFrontier,
}
"""The classes of the kinds that have more than settings."""
ARM_PARENTS = ("experiment", "recipe", "arm", "checkpoint", "model", "results")


def new_context(modules: Modules) -> Context:
    """Return the initial state of an evaluation, without findings and values."""
    return Context(modules, evaluate_declaration, amend)


def evaluate_declaration(ctx: Context, module: ParsedFile, item: tree.ModuleItem) -> Value:
    """Return the value of a param or declaration.

    If the declaration is of an unknown kind, its name goes into `ctx.lost_names`. Uses of the name are then
    not reported as further errors.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the item.
        item: The param or declaration in the syntax tree.

    Raises:
        NoValue: The declaration has an error, which was reported.
    """
    if isinstance(item, tree.Param):
        return evaluate_param(ctx, module, item)
    kind = item.kind.name
    scope = Scope(module)
    owner = (module.key, item.name.name)
    if kind not in DECLARED:
        kinds = [*DECLARED]
        nearest_name = nearest(kind, [*kinds, "param", "import", "from"])
        general_help = f"did you mean `{nearest_name}`?" if nearest_name else list_names(kinds, "kinds are")
        ctx.lost_names.add(item.name.name)
        ctx.fail(
            "E0202",
            f"there is no kind `{kind}`",
            item.kind.span,
            "unknown",
            notes=[list_names(kinds, "kinds are")],
            help=find_homes(kind) or general_help,
        )
    if item.params is not None and kind not in FORMULAS:
        ctx.lost_names |= {param.name.name for param in item.params}
        ctx.error(
            "E0313",
            "only rewards, selections and measures take parameters of their own",
            item.name.span,
            help="declare `param NAME: TYPE = VALUE` at the top of the file",
        )
    if kind in FORMULAS:
        return declare_reward(ctx, module, item)
    if kind == "budgets":
        return _evaluate_budgets(ctx, item, scope, owner)
    return evaluate_study(ctx, module, item) if kind == "study" else evaluate_record(ctx, item, scope, owner)


def _evaluate_budgets(ctx: Context, item: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value:
    """Return the value of `budgets NAME = …`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        item: The declaration in the syntax tree.
        scope: The names that the expression may use.
        owner: The file and name of the declaration.

    Raises:
        NoValue: The declaration has no value, or the value is not budgets; the error was reported.
    """
    if item.value is None:
        ctx.fail(
            "E0313",
            "budgets come from an expression",
            item.name.span,
            help="write `budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)`",
        )
    value = evaluate_splits(ctx, item.value, scope, item.name.name)
    if not isinstance(value.data, Record):
        raise NoValue
    data = value.data
    budgets = replace(data, name=data.name or item.name.name, owner=data.owner or owner)
    return replace(value, data=budgets)


def evaluate_param(ctx: Context, module: ParsedFile, param: tree.Param) -> Value:
    """Return the value of a param: the value that `--set` gives on the command line, else the default.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the param.
        param: The param in the syntax tree.

    Raises:
        NoValue: The param has no value, or the value has the wrong type or range; the error was reported.
    """
    scope = Scope(module)
    type_ = read_type(ctx, param.type)
    name = param.name.name
    override = ctx.sets.get((module.key, name))
    expr = param.default if override is None else override.value
    if expr is None:
        ctx.fail(
            "E0304",
            f"the param `{name}` has no value",
            param.name.span,
            "has no default",
            help=f"give it one: `--set {name}=…`",
        )
    value = evaluate_as(ctx, expr, scope, type_, name, _find_example(type_))
    if param.range is not None:
        check_range(ctx, value, param.range, type_, name, scope)
    ctx.params[name] = replace(value, literal=None)
    return ctx.params[name]


def _find_example(type_: Type) -> str:
    """Return an example of a value of a param's type; empty if the type takes the name of a declaration."""
    match type_:
        case Num():
            return f"8 {type_.unit}".rstrip()
        case Text():
            return '"a text"'
        case Flag():
            return "true"
        case ListOf():
            inside = _find_example(type_.item)
            return f"[{inside}]" if inside else ""
    return "[1K tokens, 4K tokens]" if type_ is SPLITS else ""


_BODIES = {
    "reward": "correct(y)",
    "selection": "trace = argmin(len(z) for z in group if correct(z))",
    "measure": "mean(correct(z) for z in arm)",
}
"""An example of each kind's body."""


def declare_reward(ctx: Context, module: ParsedFile, item: tree.Decl) -> Value:
    """Return the value of a `reward`, `selection` or `measure` declaration.

    The declaration has formulas in braces, or gives another declaration new arguments, as in
    `reward short = shrink(cost: 0.1)`.

    Raises:
        NoValue: The declaration has no body and no value, or its value is wrong or of another kind; the error
            was reported.
    """
    kind = item.kind.name
    if item.block is None:
        if item.value is None:
            raise NoValue
        value = evaluate(ctx, item.value, Scope(module))
        if not isinstance(value.data, Record) or value.data.kind != kind:
            ctx.fail(
                "E0311",
                f"a {kind} can only be made from a {kind}",
                item.value.span,
                help=f"write its body in braces: `{kind} NAME {{ {_BODIES[kind]} }}`",
            )
        parent = value.data
        return replace(value, data=replace(parent, name=item.name.name, doc=item.doc or parent.doc))
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


def split_amend(item: tree.Decl) -> tuple[tree.Expr | None, tree.BraceBlock | None]:
    """Return the parent and the block of a declaration `KIND NAME = PARENT { … }`; each is None if it is missing.

    The parser reads `PARENT { … }` as one expression, a `tree.Amend`.
    """
    if isinstance(item.value, tree.Amend):
        return item.value.base, item.value.block
    return item.value, item.block


def evaluate_record(ctx: Context, item: tree.Decl, scope: Scope, owner: Owner) -> Value:
    """Return the value of a declaration with settings, with its defaults filled in.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        item: The declaration in the syntax tree.
        scope: The names that its expressions may use.
        owner: The file and (dotted) name of the declaration.

    Raises:
        NoValue: A setting is wrong or missing; the error was reported.
    """
    kind = KINDS[item.kind.name]
    parent, block = split_amend(item)
    record = _make_record(kind, item, owner)
    if parent is not None:
        record = derive_record(ctx, parent, kind, record, scope)
    if block is not None:
        record = apply_block(ctx, record, block, scope, item.doc or record.doc)
    record = apply_amends(ctx, record, owner, scope)
    if isinstance(record, Composite):
        record = _read_parts(ctx, record, owner)
    if UNKNOWN in record.invalid:
        raise NoValue
    if not kind.partial:
        record = complete_record(ctx, record, kind)
    return Value(record, item.name.span)


def complete_record(ctx: Context, record: Record, kind: Kind) -> Record:
    """Return a record with its defaults filled in; an experiment's defaults are checked stage by stage.

    Raises:
        NoValue: The record lacks a required setting; the error was reported.
    """
    if isinstance(record, DeclaredExperiment) and kind.name == "experiment":
        return complete_experiment(ctx, record)
    return fill_defaults(ctx, record, kind)


def _make_record(kind: Kind, item: tree.Decl, owner: Owner) -> Record:
    """Return a record without settings, of the class that a kind needs.

    Args:
        kind: The kind of the record.
        item: The declaration in the syntax tree, for name, comment and span.
        owner: The file and name of the declaration.
    """
    make = CLASSES.get(kind.name, Record)
    return make(kind.name, {}, item.name.span, item.name.name, item.doc or "", owner)


def _read_parts(ctx: Context, record: Composite, owner: Owner) -> Record:
    """Return a record with the declarations inside its block evaluated, as `parts`.

    They are the styles of traces, the rows of a published table, or the curves of a frontier. After an error
    in them `invalid` of the result has `UNKNOWN`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        record: The record, whose `children` are not yet evaluated.
        owner: The file and name of the record.
    """
    child, description, example = PARTS[record.kind]
    parts = attempt(lambda: _evaluate_children(ctx, record.children, owner))
    if not record.children and UNKNOWN not in record.invalid:
        ctx.error(
            "E0304",
            f"`{record.name}` needs a {child}: {description}",
            record.span,
            f"no `{child}`",
            help=f"add `{example}`",
        )
    invalid = record.invalid if parts else record.invalid | {UNKNOWN}
    return replace(record, parts=tuple(parts or ()), invalid=invalid)


def _evaluate_children(ctx: Context, children: Mapping[str, Child], owner: Owner) -> list[Record]:
    """Return the values of the declarations inside a block.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        children: For each name the declaration in the syntax tree and its scope.
        owner: The file and name of the declaration around the block.

    Raises:
        NoValue: A declaration has an error, which was reported.
    """

    def evaluate_child(child: Child) -> Record:
        """Return the value of one declaration inside the block."""
        item, scope = child
        data = evaluate_record(ctx, item, scope, (owner[0], f"{owner[1]}.{item.name.name}")).data
        if not isinstance(data, Record):
            raise NoValue
        return data

    return try_all(evaluate_child, children.values())


def derive_record(ctx: Context, parent: tree.Expr, kind: Kind, start: Record, scope: Scope) -> Record:
    """Return a record that begins with the settings of its parent.

    An experiment that is made from a checkpoint or a model gets it as the setting `base`. If the parent has
    an error, `UNKNOWN` is in `invalid` of the result, and the block over the parent is still checked.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        parent: The expression that names the parent.
        kind: The kind of the new record.
        start: The new record without settings.
        scope: The names that the expression may use.

    Raises:
        NoValue: The parent is of a kind that `kind` cannot be made from; E0311 was reported.
    """
    value = attempt(lambda: evaluate(ctx, parent, scope))
    if value is None:
        return replace(start, invalid=frozenset({UNKNOWN}))
    base = value.data
    if not isinstance(base, Record) or base.kind not in kind.parents:
        ctx.fail(
            "E0311",
            f"{article(kind.name)} {kind.name} cannot be made from {describe(value)}",
            parent.span,
            describe(value),
            help=_suggest_parent(value, kind, start.name),
        )
    ctx.derive(start.span, base.span)
    if base.kind in FROM_CHECKPOINT and isinstance(start, DeclaredExperiment):
        return replace(start, fields={"base": Slot(value, parent.span)}, from_checkpoint=True)
    return replace(base, kind=start.kind, span=start.span, name=start.name, doc=start.doc, owner=start.owner)


def _suggest_parent(value: Value, kind: Kind, name: str) -> str:
    """Return help for a declaration whose parent is of a wrong kind.

    Args:
        value: The value that the declaration names as its parent.
        kind: The kind of the declaration.
        name: The name of the declaration.
    """
    source = kind.fields.get("source")
    if source is not None and isinstance(value.data, Record) and value.data.kind in list_kinds(source.type):
        return f"write it in a block: `{kind.name} {name} {{ source = {value.data.kind}(…), … }}`"
    if not kind.parents:
        return f"write `{kind.name} {name} {{ … }}`"
    return suggest_declaration(value, kind.parents) or f"start from {join_kinds(kind.parents)}"


def amend(ctx: Context, expr: tree.Amend, scope: Scope) -> Value:
    """Return the value of `BASE { … }`: a record with the settings of the block in place of its own.

    A checkpoint or a model as BASE becomes an experiment that starts from it. The result has no `owner`,
    because no declaration has its settings. Defaults are filled in, except for a kind such as `recipe` whose
    records may lack settings (`Kind.partial`).

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        scope: The names that the expression may use.

    Raises:
        NoValue: The base has no settings, or the result lacks a setting; the error was reported.
    """
    value = evaluate(ctx, expr.base, scope)
    record = value.data
    if isinstance(record, Record) and record.kind in FROM_CHECKPOINT:
        base = {"base": Slot(value, expr.base.span)}
        record = DeclaredExperiment("experiment", base, expr.span, from_checkpoint=True)
    kind = KINDS.get(record.kind) if isinstance(record, Record) else None
    if not isinstance(record, Record) or kind is None or kind.form == "call":
        ctx.fail(
            "E0311", f"{describe(value)} has no settings to change", expr.base.span, help="name a declaration"
        )
    result = apply_block(ctx, replace(record, owner=None), expr.block, scope, expr.block.doc or record.doc)
    return Value(result if kind.partial else complete_record(ctx, result, kind), expr.span)


def evaluate_study(ctx: Context, module: ParsedFile, item: tree.Decl) -> Value:
    """Return the value of a study with its arms, frontiers, tables and charts.

    Arms and frontiers may name each other in any order, so each is evaluated when its value is first needed.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the study.
        item: The study in the syntax tree.

    Raises:
        NoValue: An arm, a frontier or a setting is wrong; the error was reported.
    """
    if item.block is None:
        ctx.fail(
            "E0313", "a study is a block", item.name.span, help=f"write `study {item.name.name} {{ … }}`"
        )
    owner = (module.key, item.name.name)
    members = list_members(ctx, module, item)
    count = sum(member.item.kind.name == "arm" for member in members)
    if count > MOST_ARMS:
        ctx.fail(
            "E0216",
            f"a study has at most {MOST_ARMS:,} arms, and this one has {count:,}",
            item.name.span,
            "too large",
            help="make several studies of it",
        )
    thunks: dict[str, Callable[[], Value]] = {}
    for member in members:
        thunks.setdefault(member.name, _make_thunk(ctx, module, item, member, thunks))
    for name in dict.fromkeys(member.base_name for member in members if member.values):
        thunks.setdefault(name, _make_list(thunks, [spec for spec in members if spec.base_name == name]))
    scope = Scope(module).inner(thunks)
    start = DeclaredStudy("study", {}, item.name.span, item.name.name, item.doc or "", owner)
    result = apply_block(ctx, start, item.block, scope, item.doc or "")
    result = apply_amends(ctx, result, owner, scope)
    report = result.sub("report")
    children = report.children if isinstance(report, NestedBlock) else {}
    values = attempt(lambda: try_all(lambda member: thunks[member.name](), members))
    parts = attempt(lambda: _evaluate_children(ctx, children, (owner[0], f"{owner[1]}.report")))
    complete = fill_defaults(ctx, result, KINDS["study"])
    if values is None or parts is None:
        raise NoValue
    arms = tuple(value.data for value in values if isinstance(value.data, DeclaredArm))
    frontiers = tuple(value.data for value in values if isinstance(value.data, DeclaredFrontier))
    tables, charts = (tuple(item for item in parts if item.kind == kind) for kind in ("table", "chart"))
    if not (arms or charts):
        ctx.fail(
            "E0313",
            f"the study `{item.name.name}` has no arm",
            item.name.span,
            help="add `arm base = checkpoint(…)`, or a `report` with a chart of published frontiers or budgets",
        )
    return Value(
        replace(complete, arms=arms, frontiers=frontiers, tables=tables, charts=charts), item.name.span
    )


def _make_list(thunks: dict[str, Callable[[], Value]], members: Sequence[ArmSpec]) -> Callable[[], Value]:
    """Return a function that evaluates all arms of a sweep to a list.

    Args:
        thunks: For each arm's name the function that evaluates the arm.
        members: The arms of the sweep.
    """

    def compute() -> Value:
        """Return the list of the arms."""
        values = try_all(lambda member: thunks[member.name](), members)
        return Value(Items(tuple(values)), members[0].item.name.span)

    return compute


def _make_thunk(
    ctx: Context, module: ParsedFile, item: tree.Decl, spec: ArmSpec, thunks: dict[str, Callable[[], Value]]
) -> Callable[[], Value]:
    """Return a function that evaluates an arm or a frontier of a study, once, when its value is needed.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        module: The file that declares the study.
        item: The study in the syntax tree.
        spec: The arm or frontier. For an arm of a sweep, `values` has the sweep's variables and `base_name`
            is the name without their values.
        thunks: For the name of each arm and frontier the function that evaluates it. An arm or a frontier may
            name others.
    """
    member = spec.item
    owner = (module.key, f"{item.name.name}.{spec.name}")
    amended_as = (module.key, f"{item.name.name}.{spec.base_name}")

    def compute() -> Value:
        """Return the value of the arm or frontier.

        In `arm vanilla = vanilla` the second name means the declaration outside the study. If the file has
        no such declaration, E0201 is reported, unless a syntax error may have removed it.
        """
        name = spec.base_name
        outside = name in module.items or name in module.imports or module.path in ctx.broken_files()
        parent, _ = split_amend(member)
        if isinstance(parent, tree.Name) and parent.name == name and not outside:
            _refuse_unknown_parent(ctx, member.kind.name, parent, scope=Scope(module).inner(thunks, name))
        scope = Scope(module).inner(thunks, name if outside else None)
        if spec.values:
            scope = scope.inner(spec.values)
        return (
            _evaluate_arm(ctx, member, scope, owner, amended_as)
            if member.kind.name == "arm"
            else _evaluate_frontier(ctx, member, scope, owner)
        )

    return lambda: ctx.evaluate_once(owner, member.name.span, compute)


def _refuse_unknown_parent(ctx: Context, kind: str, parent: tree.Name, scope: Scope) -> NoReturn:
    """Report E0201 for an arm or a frontier that is made from an unknown name.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        kind: `arm` or `frontier`.
        parent: The unknown name.
        scope: The names that can be used, for the help.

    Raises:
        NoValue: Always.
    """
    kinds = ARM_PARENTS if kind == "arm" else ("frontier",)
    items = scope.module.items.values()
    names = [item.name.name for item in items if isinstance(item, tree.Decl) and item.kind.name in kinds]
    ctx.fail(
        "E0201",
        f"there is no `{parent.name}` to make this {kind} from",
        parent.span,
        "unknown",
        help=suggest_import(parent, scope, kinds)
        or suggest(parent.name, [*names, *scope.module.imports], "this file has"),
    )


def _evaluate_arm(
    ctx: Context, member: tree.Decl, scope: Scope, owner: tuple[str, str], amended_as: tuple[str, str]
) -> Value:
    """Return the value of an arm.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        member: The arm in the syntax tree.
        scope: The names that its expressions may use.
        owner: The arm's file and name, `STUDY.ARM`.
        amended_as: The file and name by which `--amend` changes the arm. All arms of a sweep share the name
            that the spec gives the sweep.

    Raises:
        NoValue: The arm has an error, which was reported.
    """
    parent, block = split_amend(member)
    name = member.name.name
    if parent is None:
        ctx.fail(
            "E0313",
            "an arm is made from an experiment or a checkpoint",
            member.name.span,
            help=f"write `arm {name} = …`",
        )
    start = attempt(lambda: _find_experiment(ctx, evaluate(ctx, parent, scope), name, member, owner))
    if block is not None or amended_as in ctx.amends:
        experiment = start or DeclaredExperiment("experiment", {}, member.name.span)
        experiment = replace(experiment, name=name, owner=owner, span=member.name.span)
        if block is not None:
            experiment = apply_block(ctx, experiment, block, scope, member.doc or experiment.doc)
        experiment = apply_amends(ctx, experiment, amended_as, scope)
        start = experiment if start is not None else None
    if start is None:
        raise NoValue
    complete = complete_experiment(ctx, start)
    return Value(
        DeclaredArm("arm", {}, member.name.span, name, member.doc or "", owner, experiment=complete),
        member.name.span,
    )


def _find_experiment(
    ctx: Context, value: Value, name: str, member: tree.Decl, owner: tuple[str, str]
) -> DeclaredExperiment:
    """Return the experiment of an arm; a checkpoint, a model or results become an experiment without training.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        value: The value that the arm is made from.
        name: The name of the arm.
        member: The arm in the syntax tree.
        owner: The arm's file and name, `STUDY.ARM`.

    Raises:
        NoValue: The value is of another kind; E0311 was reported.
    """
    match value.data:
        case DeclaredArm(experiment=experiment):
            return experiment
        case DeclaredExperiment(kind="experiment") as experiment:
            return experiment
        case DeclaredExperiment() as recipe:
            ctx.derive(member.name.span, recipe.span)
            return replace(recipe, kind="experiment", name=name, owner=owner, span=member.name.span)
        case Record(kind="checkpoint" | "model" | "results"):
            base = {"base": Slot(value, value.span)}
            span = member.name.span
            return DeclaredExperiment(
                "experiment", base, span, name, member.doc or "", owner, from_checkpoint=True
            )
    parent_name = value.data.name if isinstance(value.data, Record) else ""
    if (member.name.span.path, parent_name) in ctx.modules.duplicates:
        # The file declares this name twice, which was reported; the other declaration may be meant.
        raise NoValue
    advice = suggest_declaration(value, ARM_PARENTS) or f"start from {join_kinds(ARM_PARENTS[:-1])}"
    ctx.fail(
        "E0311", f"an arm cannot be made from {describe(value)}", value.span, describe(value), help=advice
    )


def _evaluate_frontier(ctx: Context, member: tree.Decl, scope: Scope, owner: tuple[str, str]) -> Value:
    """Return the value of a frontier: published curves, or the envelope of arms.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        member: The frontier in the syntax tree.
        scope: The names that its expressions may use.
        owner: The frontier's file and name, `STUDY.FRONTIER`.

    Raises:
        NoValue: The frontier has an error, which was reported.
    """
    name = member.name.name
    if member.value is None or isinstance(member.value, tree.Amend):
        return evaluate_record(ctx, member, scope, owner)
    value = evaluate(ctx, member.value, scope)
    data = value.data
    if isinstance(data, Record) and data.kind == "envelope":
        span, doc = member.name.span, member.doc or ""
        return Value(DeclaredFrontier("frontier", {}, span, name, doc, owner, envelope=data), span)
    if isinstance(data, Record) and data.kind == "frontier":
        return Value(replace(data, name=name, span=member.name.span), member.name.span)
    ctx.fail(
        "E0311",
        f"a frontier cannot be made from {describe(value)}",
        value.span,
        describe(value),
        help="write `envelope(of: [base, vanilla], to: 32K tokens)`, or name a published frontier",
    )
