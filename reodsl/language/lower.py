"""Lower an evaluated program to the `Spec`, with its origins and its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.base import PLAIN, locate, names_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.study import (
    Arm,
    BudgetRule,
    Change,
    Chart,
    Frontier,
    PublishedCurve,
    PublishedRow,
    PublishedTable,
    Score,
    Spec,
    Study,
    Table,
)
from reodsl.language import values
from reodsl.language.build import (
    Lowering,
    build,
    checkpoint,
    engine,
    locate_in,
    origin_of,
    shown_value,
    start,
    suite,
)
from reodsl.language.changes import complete_stages
from reodsl.language.checks.published import find_mismatches
from reodsl.language.functions import list_smaller
from reodsl.language.modules import ParsedFile
from reodsl.language.program import Program
from reodsl.language.resolve import find_arm_suite, find_suite, samples_on_gpus, walk_starts
from reodsl.language.values import (
    Composite,
    DeclaredExperiment,
    DeclaredStudy,
    Items,
    Record,
    list_items,
    list_records,
    write_value,
)
from reodsl.numbers.curves import Curve, select_benchmarks


def lower(
    program: Program, main: ParsedFile, record: values.DeclaredStudy | values.DeclaredExperiment
) -> Spec:
    """Return the spec of a study or of a single experiment.

    An experiment becomes a study of its own. If it is trained, the study also evaluates the model that it starts
    from. A study or experiment without a comment takes the file's docstring.

    Args:
        program: The evaluated spec, without errors.
        main: The spec's file.
        record: The study or experiment to run.
    """
    low = Lowering(program.context)
    record = record if record.doc else replace(record, doc=main.module.doc or "")
    study = (
        _lower_study(low, record)
        if isinstance(record, values.DeclaredStudy)
        else _lower_experiment(low, record)
    )
    declared = (*record.arms, *record.frontiers) if isinstance(record, values.DeclaredStudy) else (record,)
    return Spec(
        study=study,
        path=main.path,
        folder=str(Path(main.path).parent),
        params={name: write_value(value) for name, value in program.context.params.items()},
        changes=_list_changes(program),
        origins={declaration.name: origin_of(declaration.span) for declaration in declared},
        sources={
            path: source
            for path, source in program.context.modules.sources.items()
            if not path.startswith("--")
        },
    )


def _list_changes(program: Program) -> tuple[Change, ...]:
    """Return the `--set` and `--amend` changes of the command line, each once.

    The context stores an `--amend` of several declarations once for each of them.
    """
    ctx = program.context
    by_target = {(c.option, c.target): c for c in ctx.sets.values()}
    for changes in ctx.amends.values():
        by_target.update({(c.option, c.target): c for c in changes})
    return tuple(Change(option=c.option, target=c.target, value=c.text) for c in by_target.values())


def _lower_study(low: Lowering, record: values.DeclaredStudy) -> Study:
    """Build a study with its arms, frontiers, score, tables and charts.

    Published frontiers that only the score or a chart names become frontiers of the study. A study without
    tables and charts gets the default ones.

    Args:
        low: The state of lowering; its cluster and names of arms are set.
        record: The declared study.
    """
    cluster = record.sub("cluster")
    low.cluster = build(Cluster, cluster) if cluster is not None else None
    low.on_gpus = samples_on_gpus(record)
    for arm in record.arms:
        low.arms[id(arm.experiment)] = arm.name
        if arm.experiment.owner is not None:
            low.owners.setdefault(arm.experiment.owner, arm.name)
    arms = []
    for arm in record.arms:
        arm_suite = find_arm_suite(record, arm)
        if arm_suite is None:
            raise LookupError(f"arm `{arm.name}` has no suite")
        arms.append(Arm(name=arm.name, checkpoint=checkpoint(low, arm), suite=suite(low, arm_suite)))
    names = tuple(arm.name for arm in arms)
    frontiers = tuple(_lower_frontier(frontier) for frontier in record.frontiers)
    score = record.sub("score")
    scored, extra = (
        _lower_score(record, score, {f.name for f in frontiers}, None) if score is not None else (None, ())
    )
    labels = {frontier.name for frontier in frontiers + extra}
    chart_lines = (line for chart in record.charts for line in list_records(chart, "lines"))
    published = {line.name: line for line in chart_lines if isinstance(line, values.DeclaredFrontier)}
    extra += tuple(build_frontier(item, name) for name, item in published.items() if name not in labels)
    lines = (*names, *(frontier.name for frontier in frontiers + extra))
    study = Study(
        name=record.name,
        doc=record.doc,
        seeds=record.data("replicate"),
        arms=tuple(arms),
        frontiers=_fit_frontiers(arms, frontiers + extra, scored),
        score=scored,
        tables=tuple(_lower_table(low, table, names) for table in record.tables)
        if record.tables or record.charts
        else _default_tables(names, scored),
        charts=tuple(_lower_chart(low, chart) for chart in record.charts)
        if record.tables or record.charts
        else _default_charts(lines, arms),
        cluster=low.cluster,
        engine=engine(record),
        limit=record.data("limit"),
        unequal=record.data("unequal"),
    )
    return locate_in(study, record)


def _lower_experiment(low: Lowering, record: values.DeclaredExperiment) -> Study:
    """Build a study for a single experiment.

    The experiment is an arm. If it is trained, the model that it starts from is another arm, called `base`, or
    `start` if the experiment is called `base`.

    Args:
        low: The state of lowering; its cluster is set.
        record: The declared experiment.
    """
    first_stage = complete_stages(low.ctx, record)[0][1] if record.is_trained else record
    cluster = record.sub("cluster")
    low.cluster = build(Cluster, cluster) if cluster is not None else None
    low.on_gpus = samples_on_gpus(record)
    arm_suite = suite(low, find_suite(record) or first_stage.part("eval"))
    arms = []
    if record.is_trained:
        base = record.sub("base") or first_stage.part("base")
        base_name = "base" if record.name != "base" else "start"
        arms.append(Arm(name=base_name, checkpoint=start(low, base), suite=arm_suite))
    arms.append(Arm(name=record.name, checkpoint=start(low, record), suite=arm_suite))
    names = tuple(arm.name for arm in arms)
    score = record.sub("score")
    scored, frontiers = (
        _lower_score(record, score, set(), names[0] if len(names) > 1 else None)
        if score is not None
        else (None, ())
    )
    seed = first_stage.data("seed")
    study = Study(
        name=record.name,
        doc=record.doc,
        seeds=(seed if seed is not None else 1,),
        arms=tuple(arms),
        frontiers=_fit_frontiers(arms, frontiers, scored),
        score=scored,
        tables=_default_tables(names, scored),
        charts=_default_charts((*names, *(frontier.name for frontier in frontiers)), arms),
        cluster=low.cluster,
        engine=engine(record),
        limit=record.data("limit"),
    )
    return locate_in(study, record)


def _lower_frontier(record: values.DeclaredFrontier) -> Frontier:
    """Build a declared frontier: the best of some arms at each budget, or published curves."""
    envelope = record.envelope
    if envelope is None:
        return build_frontier(record, record.name)
    names = tuple(arm.name for arm in list_records(envelope, "of"))
    frontier = Frontier(name=record.name, of=names, to=envelope.data("to"))
    return locate(
        frontier, {name: origin_of(slot.span or record.span) for name, slot in envelope.fields.items()}
    )


def build_frontier(record: Record, name: str) -> Frontier:
    """Build a published frontier from the curves of a record, under `name`."""
    parts = record.parts if isinstance(record, Composite) else ()
    budgets = record.data("budgets")
    curves = (build(PublishedCurve, part, benchmark=part.name, budgets=budgets) for part in parts)
    return Frontier(name=name, to=budgets[-1], published=tuple(curves))


def _lower_score(
    owner: Record, record: Record, declared_names: set[str], base: str | None
) -> tuple[Score, tuple[Frontier, ...]]:
    """Build a score, and the published frontier that the score compares arms with.

    Args:
        owner: The study or experiment.
        record: The score.
        declared_names: The names of the study's frontiers.
        base: The name of the baseline arm if the score names none; None for a score without a baseline.

    Returns:
        The score, and a tuple with the frontier. The tuple is empty if the study declares the frontier.
    """
    frontier, baseline = record.part("against"), record.sub("relative_to")
    new_frontiers = () if frontier.name in declared_names else (build_frontier(frontier, frontier.name),)
    name = baseline.name if baseline is not None and baseline.kind == "arm" else base
    reasons = tuple(fault.message for fault, _ in find_mismatches(owner, frontier))
    return build(Score, record, frontier=frontier.name, relative_to=name, misfits=reasons), new_frontiers


def _fit_frontiers(
    arms: Sequence[Arm], frontiers: Sequence[Frontier], score: Score | None
) -> tuple[Frontier, ...]:
    """Return the frontiers, with the curves of the score's published frontier matched to the arms' benchmarks.

    This is for a score whose frontier was published for other benchmarks or settings than the suites have
    (`misfits`). Other frontiers are returned as they are.

    Args:
        arms: The study's arms with their suites.
        frontiers: All frontiers of the study.
        score: The study's score; None without one.
    """
    if score is None or not score.misfits:
        return tuple(frontiers)
    benchmarks = [[benchmark.name for benchmark in arm.suite.benchmarks] for arm in arms]
    return tuple(
        frontier.model_copy(update={"published": _select_curves(frontier.published, benchmarks)})
        if frontier.published and frontier.name == score.frontier
        else frontier
        for frontier in frontiers
    )


def _select_curves(
    published: Sequence[PublishedCurve], benchmarks: Sequence[Sequence[str]]
) -> tuple[PublishedCurve, ...]:
    """Return the published curves of the arms' benchmarks, by which the arms are scored.

    The mean curve is returned instead if the arms have different benchmarks, or if a benchmark has no curve.

    Args:
        published: The curves.
        benchmarks: The names of each arm's benchmarks.
    """
    curves = select_benchmarks(
        {curve.benchmark: Curve(curve.budgets, curve.accuracy) for curve in published}, benchmarks
    )
    return tuple(
        PublishedCurve(benchmark=name, budgets=curve.budgets, accuracy=curve.accuracy)
        for name, curve in curves.items()
    )


def _lower_chart(low: Lowering, record: Record) -> Chart:
    """Build a chart with the arms, frontiers and budget schedules that it shows.

    Budget schedules are also lines of the chart; the representation has them as `rules`. The `y` of the chart
    is a measure or a built-in column.

    Args:
        low: The state of lowering the study.
        record: The declared chart.
    """
    lines = list_records(record, "lines")
    rules = [rule for rule in lines if isinstance(rule, values.WrittenBudgets)]
    return build(
        Chart,
        record,
        lines=tuple(line.name for line in lines),
        rules=tuple(
            BudgetRule(name=rule.name, l_max=rule.schedule.l_max, schedules=list_smaller(rule))
            for rule in rules
        ),
        **{name: shown_value(low, value) for name in "y" if (value := record.get(name))},
    )


def _lower_table(low: Lowering, record: Record, names: tuple[str, ...]) -> Table:
    """Build a table of a study, with the published numbers that it names.

    Args:
        low: The state of lowering the study.
        record: The declared table. A table without `rows` shows all arms.
        names: The names of the study's arms.
    """
    rows, published = record.get("rows"), record.sub("published")
    has_all_rows = rows is None or not isinstance(rows.data, Items)
    row_names = names if has_all_rows else tuple(row.name for row in list_records(record, "rows"))
    return build(
        Table,
        record,
        rows=row_names,
        columns=tuple(shown_value(low, column) for column in list_items(record, "columns")),
        published=_build_table(published) if isinstance(published, Composite) else None,
    )


def _build_table(record: Composite) -> PublishedTable:
    """Build a table of published numbers."""
    rows = tuple(build(PublishedRow, row) for row in record.parts)
    return build(PublishedTable, record, doc=record.doc, rows=rows)


def _default_tables(names: tuple[str, ...], score: Score | None) -> tuple[Table, ...]:
    """Return the tables of a study that declares none: one main table of all arms."""
    columns: tuple[Any, ...] = ("accuracy", "length", "reg") if score is not None else ("accuracy", "length")
    return (Table(name="main", rows=names, columns=columns),)


def _default_charts(lines: tuple[str, ...], arms: Sequence[Arm]) -> tuple[Chart, ...]:
    """Return the charts of a study that declares none: accuracy over budgets, if a suite has a forcing text."""
    if all(arm.suite.forcing is None for arm in arms):
        return ()
    return (Chart(name="curves", x="budget", y="accuracy", lines=lines),)


MOST_TASKS = 20_000
MOST_VALUES = 3_000_000
DEEPEST = 200
"""The deepest nesting of a spec; its serialiser fails at 255 nested values."""


def lower_bounded(
    program: Program, main: ParsedFile, record: DeclaredStudy | DeclaredExperiment
) -> tuple[Spec | None, tuple[Diagnostic, ...]]:
    """Return the spec of a study or experiment, or the error E0216 if the spec would be too large to run.

    Args:
        program: The evaluated spec, without errors.
        main: The spec's file.
        record: The study or experiment to run.
    """
    # A longer chain of starting models would exceed Python's stack.
    if sum(1 for _ in zip(walk_starts(record), range(DEEPEST + 1), strict=False)) > DEEPEST:
        return None, (_too_large(record, "experiments start from each other too many times", _CHAIN),)
    try:
        spec = lower(program, main, record)
    except RecursionError:
        return None, (_too_large(record, "experiments start from each other too many times", _CHAIN),)
    size = measure_extent(spec)
    if size.depth > DEEPEST:
        return None, (_too_large(record, "experiments start from each other too many times", _CHAIN),)
    if size.tasks > MOST_TASKS:
        words = f"this is {size.tasks:,} tasks, and a spec has at most {MOST_TASKS:,}"
        return None, (_too_large(record, words, "take fewer arms, seeds or stages"),)
    if size.values > MOST_VALUES:
        words = f"written out, this is {size.values:,} values, and a spec has at most {MOST_VALUES:,}"
        return None, (
            _too_large(record, words, "let fewer experiments share a start, and shorten long texts"),
        )
    return spec, ()


_CHAIN = "start from fewer experiments, one after the other"


def _too_large(record: Record, words: str, advice: str) -> Diagnostic:
    """Return the error for a spec that is too large (E0216).

    Args:
        record: The study or experiment.
        words: What is too large.
        advice: What to write instead.
    """
    return error("E0216", words, record.span, "too large", help=advice)


CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a spec. An experiment that two experiments start from counts twice."""

    values: int
    """The values that its canonical JSON writes out."""
    depth: int
    """The depth of their nesting."""
    tasks: int
    """The largest possible number of tasks."""


def measure_extent(spec: Spec) -> Extent:
    """Return the size of a spec; the time this takes is linear in the number of distinct objects."""
    study = spec.study
    values, depth = _measure_nesting(study)
    stages = sum(len(experiment.stages) for arm in study.arms for experiment in arm.checkpoint.experiments)
    return Extent(values, depth, len(study.seeds) * (stages + len(study.arms)))


def _measure_nesting(top: object) -> tuple[int, int]:
    """Return the number of values in an object and the depth of their nesting.

    An object that occurs several times is measured once, and counts at each occurrence. A text counts one more
    value for every `CHARACTERS_PER_VALUE` characters. The function keeps its own stack, because a deep spec
    would exceed Python's.
    """
    extents: dict[int, tuple[int, int]] = {}
    # Pairs (object, its components); the unmeasured components of an object are above it in the list.
    unfinished = [(top, _components(top))]
    while unfinished:
        value, parts = unfinished[-1]
        unmeasured = [
            (item, _components(item)) for item in parts if type(item) not in PLAIN and id(item) not in extents
        ]
        if unmeasured:
            unfinished += unmeasured
            continue
        unfinished.pop()
        values, deepest = 1, 0
        for item in parts:
            if type(item) in PLAIN:
                count, depth = 1 + (len(item) // CHARACTERS_PER_VALUE if type(item) is str else 0), 1
            else:
                count, depth = extents[id(item)]
            values += count
            deepest = max(deepest, depth)
        extents[id(value)] = values, deepest + 1
    return extents[id(top)]


def _components(value: object) -> list[object]:
    """Return the components of an object (fields, values of a dict, items of a sequence); empty for plain values."""
    names = names_of(type(value))
    if names is not None:
        return [getattr(value, name) for name in names]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else []
