"""Check that every setting is read: one that nothing reads beside the others has no effect."""

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
from reodsl.language.idle import NEEDS, Need, Surroundings, find_setting, list_idle
from reodsl.language.modules import ParsedFile
from reodsl.language.program import Program
from reodsl.language.resolve import samples_on_gpus
from reodsl.language.values import Record, Slot, list_records
from reodsl.syntax import tree


@stage_check
def check_idle(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a stage that nothing reads."""
    on_gpus = any(map(samples_on_gpus, case.owners))
    settings = Surroundings(stage.record, stage.reward, on_gpus)
    yield from _find_idle(case.ctx, case.record, settings, "stage")
    if stage.pool is not None:
        yield from _find_idle(case.ctx, case.record, Surroundings(stage.pool), "pool")
    for path in ("forcing", "cluster"):
        yield from _find_idle_value(case.ctx, stage.record.sub(path))
    yield from _find_idle_traces(case.ctx, stage.record.sub("data"))


@case_check
def check_idle_suite(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a suite that nothing reads."""
    if case.suite is not None:
        yield from _find_idle(case.ctx, case.suite, Surroundings(case.suite), "suite")
        yield from _find_idle_value(case.ctx, case.suite.sub("forcing"))


@study_check
def check_idle_cluster(case: CheckedStudy) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a study's cluster that nothing reads."""
    yield from _find_idle_value(case.ctx, case.study.sub("cluster"))


def check_idle_declarations(program: Program) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings that nothing reads, of declarations that stages and suites only name."""
    for kind in ("forcing", "traces", "cluster"):
        for record in program.list_kind(kind).values():
            yield from _find_idle(program.context, record, Surroundings(record), kind)
    for record in program.list_kind("data").values():
        yield from _find_idle_traces(program.context, record)


def _find_idle_traces(ctx: Context, data: Record | None) -> Iterator[Diagnostic]:
    """Yield findings of the traces that sources of data name."""
    for source in list_records(data, "source"):
        yield from _find_idle_value(ctx, source.sub("traces"))


def _find_idle_value(ctx: Context, record: Record | None) -> Iterator[Diagnostic]:
    """Yield findings of a record that is changed where it is used, as in `forcing = dynasor { … }`."""
    if record is not None and record.owner is None:
        yield from _find_idle(ctx, record, Surroundings(record), record.kind)


def _find_idle(ctx: Context, owner: Record, settings: Surroundings, kind: str) -> Iterator[Diagnostic]:
    """Yield findings of a record's settings that nothing reads."""
    for path, slot, need in list_idle(settings, kind):
        own = is_own(ctx, owner, slot)
        # A required setting has to be somewhere.
        if not find_setting(path, kind).required or (own and slot.parent is not None):
            yield from _report_idle(ctx, owner, Settings(settings.record), path, slot, need, own)


def _report_idle(
    ctx: Context, owner: Record, view: Settings, path: str, slot: Slot, need: Need, is_own_setting: bool
) -> Iterator[Diagnostic]:
    """Yield an error at an idle setting of the declaration itself, or a warning at the setting that makes it idle.

    A spare setting of the declaration is a warning too, since another declaration may inherit and read it.
    """
    name, deciders = path.rpartition(".")[2], [view[decider] for decider in need.deciders.split()]
    message, idle = f"`{name}` {need.reason}", Label(slot.value.span, "has no effect")
    if is_own_setting:
        rest = [label for decider in deciders for label in decider.setting_labels("decides that")]
        helps = f"take `{name}` out, or write `{need.remedy}`" if need.remedy else "take one of the two out"
        tell = partial(warning, "W0520") if need.is_spare else partial(error, "E0521")
        yield tell(message, idle.span, idle.text, labels=rest, help=helps)
        return
    chosen = [item for item in deciders if item.slot is not None and is_own(ctx, owner, item.slot)]
    if need.is_spare and any(_list_holders(ctx, item.slot) != _list_holders(ctx, slot) for item in deciders):
        return
    labels = [label for item in chosen for label in item.setting_labels(f"`{name}` has no effect beside it")]
    if labels or not idle.span.path.startswith(LIBRARY_PATH):
        helps = f"begin with a recipe that has no `{name}`"
        helps = f"write `{need.remedy}`, or {helps}" if need.remedy else helps
        lead, *rest = [*labels, idle]
        yield warning("W0520", message, lead.span, lead.text, labels=rest, help=helps)


def _list_holders(ctx: Context, slot: Slot | None) -> list[tree.Decl]:
    """Return the declarations around a setting, none for a default."""
    return [] if slot is None or slot.span is None else list_declarations(ctx, slot.span)


def is_own(ctx: Context, record: Record, slot: Slot | None) -> bool:
    """Return whether the declaration of a record, or the command line, sets a setting, rather than a parent.

    A record that is changed at its use, as in `forcing = dynasor { … }`, has its settings in another
    declaration.
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
    """Return the declarations around a span, outermost first."""
    start, holders = (span.line, span.column), []
    for module in ctx.modules.loaded.values():
        if module is not None and module.path == span.path:
            begins, chains = ctx.memoize("declarations", module, partial(_index, module))
            chain = chains[bisect_right(begins, start) - 1] if begins and begins[0] <= start else ()
            holders += [decl for decl in chain if _holds(decl.span, start)]
    return holders


def _index(module: ParsedFile) -> tuple[list[tuple[int, int]], list[tuple[tree.Decl, ...]]]:
    """Return the positions at which declarations begin, in order, and the chain of declarations that contains each."""
    begins: list[tuple[int, int]] = []
    chains: list[tuple[tree.Decl, ...]] = []
    for item in module.items.values():
        for node in tree.walk(item):
            if isinstance(node, tree.Decl):
                begin = node.span.line, node.span.column
                outer = chains[-1] if chains else ()
                chains.append((*(holder for holder in outer if _holds(holder.span, begin)), node))
                begins.append(begin)
    return begins, chains


def _holds(span: Span, start: tuple[int, int]) -> bool:
    return (span.line, span.column) <= start < (span.end_line, span.end_column)
