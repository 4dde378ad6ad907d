"""Check that every setting is read: a setting may have no effect if another setting has a certain value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    CheckedExperiment,
    CheckedStage,
    CheckedStudy,
    Settings,
    case_check,
    stage_check,
    study_check,
)
from reodsl.language.context import Context
from reodsl.language.idle import NEEDS, Surroundings, find_setting, list_idle
from reodsl.language.modules import ParsedFile
from reodsl.language.program import Program
from reodsl.language.resolve import samples_on_gpus
from reodsl.language.values import Items, Record, Slot, list_records, plain
from reodsl.syntax import tree


@stage_check
def check_idle(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521 or W0520 for each setting of a stage that nothing reads, since another setting decides so.

    The settings of its pool, forcing, cluster and data, and of the `traces` of its data, are checked too.
    """
    on_gpus = any(map(samples_on_gpus, case.owners))
    settings = Surroundings(stage.record, stage.reward, on_gpus)
    yield from _find_idle(case.ctx, case.record, settings, "stage")
    if stage.pool is not None:
        yield from _find_idle(case.ctx, case.record, Surroundings(stage.pool), "pool")
    for path in ("forcing", "cluster", "data"):
        yield from _find_idle_value(case.ctx, stage.record.sub(path))
    yield from _find_idle_traces(case.ctx, stage.record.sub("data"))


@case_check
def check_idle_suite(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521 or W0520 for each setting of a suite and its forcing that nothing reads."""
    if case.suite is not None:
        yield from _find_idle(case.ctx, case.suite, Surroundings(case.suite), "suite")
        yield from _find_idle_value(case.ctx, case.suite.sub("forcing"))


@study_check
def check_idle_cluster(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0521 or W0520 for each setting of a study's cluster that nothing reads."""
    yield from _find_idle_value(case.ctx, case.study.sub("cluster"))


def check_idle_declarations(program: Program) -> Iterator[Diagnostic]:
    """Report E0521 or W0520 for settings that nothing reads in declared forcings, traces, clusters and data."""
    for kind in ("forcing", "traces", "cluster", "data"):
        for record in program.list_kind(kind).values():
            yield from _find_idle(program.context, record, Surroundings(record), kind)
    for record in program.list_kind("data").values():
        yield from _find_idle_traces(program.context, record)


def _find_idle_traces(ctx: Context, data: Record | None) -> Iterator[Diagnostic]:
    """Yield findings about idle settings of the `traces` (worked solutions) of a data set's sources."""
    for source in list_records(data, "source"):
        yield from _find_idle_value(ctx, source.sub("traces"))


def _find_idle_value(ctx: Context, record: Record | None) -> Iterator[Diagnostic]:
    """Yield findings about idle settings of a record that is changed where it is used.

    An example is `forcing = dynasor { … }`. Such a record has no name of its own, so its `owner` is None. A record
    with an owner is a declaration, which `check_idle_declarations` checks; then there are no findings here.
    """
    if record is not None and record.owner is None and record.kind in NEEDS:
        yield from _find_idle(ctx, record, Surroundings(record), record.kind)


def _find_idle(ctx: Context, owner: Record, settings: Surroundings, kind: str) -> Iterator[Diagnostic]:
    """Yield findings about the settings that nothing reads.

    There are two cases. If `owner` sets the idle setting, the finding is at this setting. It is a warning if heirs
    of `owner` may read the setting (`need.is_spare`), and an error otherwise. If `owner` inherits the idle setting,
    the finding is a warning, at the setting of `owner` that makes the inherited setting idle. If `owner` has no
    such setting, the warning is at the inherited setting. It is left out for a setting of the library, and for a
    spare setting that was declared elsewhere than the settings that decide.

    A required setting must be given, so it is only reported if `owner` replaces a parent's value of the setting.

    Args:
        ctx: The evaluation, which has the declarations of all files.
        owner: The experiment or declaration that the settings belong to.
        settings: The settings to look at, with what decides whether they are read.
        kind: The kind of these settings' record, such as `stage` or `forcing`.
    """
    view = Settings(settings.record)
    for path, slot, need, default in list_idle(settings, kind):
        is_own_setting = is_own(ctx, owner, slot)
        if find_setting(path, kind).required and not (is_own_setting and slot.parent is not None):
            continue
        name, deciders = path.rpartition(".")[2], [view[decider] for decider in need.deciders.split()]
        message, noun, remedy, value = f"`{name}` {need.reason}", f"`{name}`", need.remedy, slot.value
        if need.item is not None and default is not None and isinstance(value.data, Items):
            noun, remedy = f"number {need.item + 1} of `{name}`", f"{name} = {list(plain(default.value))}"
            value = value.data.values[need.item]
        idle = Label(value.span, "has no effect")
        if is_own_setting:
            labels = [label for decider in deciders for label in decider.setting_labels("decides that")]
            hint = f"take `{name}` out, or write `{remedy}`" if remedy else "take one of the two out"
            report = partial(warning, "W0520") if need.is_spare else partial(error, "E0521")
            yield report(message, idle.span, idle.text, labels=labels, help=hint)
            continue
        own_deciders = [item for item in deciders if item.slot is not None and is_own(ctx, owner, item.slot)]
        if need.is_spare and any(
            _list_holders(ctx, item.slot) != _list_holders(ctx, slot) for item in deciders
        ):
            continue
        text = f"with this, {noun} has no effect"
        labels = [label for item in own_deciders for label in item.setting_labels(text)]
        if labels or not idle.span.path.startswith(LIBRARY_PATH):
            hint = f"begin with a recipe that has no `{name}`"
            hint = f"write `{remedy}`, or {hint}" if remedy else hint
            lead, *others = [*labels, idle]
            yield warning("W0520", message, lead.span, lead.text, labels=others, help=hint)


def _list_holders(ctx: Context, slot: Slot | None) -> list[tree.Decl]:
    """Return the declarations that contain the text of a setting; empty for a default."""
    return [] if slot is None or slot.span is None else list_declarations(ctx, slot.span)


def is_own(ctx: Context, record: Record, slot: Slot | None) -> bool:
    """Return whether a record itself sets a setting, in its declaration or on the command line.

    The result is False for a default and for a setting that the record inherits from a parent. Which settings a
    record sets depends on whether it is a declaration:

    - A declaration, such as `forcing mine { … }`, sets what is written inside this declaration.
    - A record that is changed where it is used, as in `forcing = dynasor { … }`, has no declaration, and its
      `owner` is None. It sets what these braces contain. They are inside a declaration of another kind, such as
      an experiment, while the inherited settings are inside a declaration of the same kind, here a forcing.

    Args:
        ctx: The evaluation, which has the declarations of all files.
        record: The record.
        slot: The setting and its value; None, for a missing setting, gives False.
    """
    if slot is None or slot.span is None:
        return False
    declarations = list_declarations(ctx, slot.span)
    if slot.span.path.startswith("--"):
        return True
    if record.owner is None and record.kind in NEEDS:
        return bool(declarations) and all(decl.kind_name != record.kind for decl in declarations)
    return any(decl.name.span == record.span for decl in declarations)


def list_declarations(ctx: Context, span: Span) -> list[tree.Decl]:
    """Return the declarations that contain the start of a span, outermost first."""
    start, holders = (span.line, span.column), []
    for module in ctx.modules.loaded.values():
        if module is not None and module.path == span.path:
            starts, chains = ctx.memoize("declarations", module, partial(_index_declarations, module))
            chain = chains[bisect_right(starts, start) - 1] if starts and starts[0] <= start else ()
            holders += [decl for decl in chain if _contains(decl.span, start)]
    return holders


def _index_declarations(module: ParsedFile) -> tuple[list[tuple[int, int]], list[tuple[tree.Decl, ...]]]:
    """Index the declarations of a file by position, for a binary search.

    Returns:
        The (line, column) at which each declaration starts, in increasing order; and for each declaration, the
        declarations that contain it and itself, outermost first.
    """
    starts: list[tuple[int, int]] = []
    chains: list[tuple[tree.Decl, ...]] = []
    for item in module.items.values():
        for node in tree.walk(item):
            if isinstance(node, tree.Decl):
                start = node.span.line, node.span.column
                outer = chains[-1] if chains else ()
                chains.append((*(holder for holder in outer if _contains(holder.span, start)), node))
                starts.append(start)
    return starts, chains


def _contains(span: Span, start: tuple[int, int]) -> bool:
    return (span.line, span.column) <= start < (span.end_line, span.end_column)
