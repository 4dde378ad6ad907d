"""Check that every setting is read: one that nothing reads beside the others has no effect."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    Case,
    StageCase,
    StudyCase,
    View,
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
def check_idle(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a stage that nothing reads."""
    on_gpus = any(map(samples_on_gpus, case.homes))
    around = Surroundings(stage.record, stage.reward, on_gpus)
    yield from _tell_idle(case.ctx, case.record, around, "stage")
    if stage.pool is not None:
        yield from _tell_idle(case.ctx, case.record, Surroundings(stage.pool), "pool")
    for path in ("forcing", "cluster"):
        yield from _tell_idle_value(case.ctx, stage.record.sub(path))
    yield from _tell_idle_traces(case.ctx, stage.record.sub("data"))


@case_check
def check_idle_suite(case: Case) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a suite that nothing reads."""
    if case.suite is not None:
        yield from _tell_idle(case.ctx, case.suite, Surroundings(case.suite), "suite")
        yield from _tell_idle_value(case.ctx, case.suite.sub("forcing"))


@study_check
def check_idle_cluster(case: StudyCase) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings of a study's cluster that nothing reads."""
    yield from _tell_idle_value(case.ctx, case.study.sub("cluster"))


def check_idle_declarations(program: Program) -> Iterator[Diagnostic]:
    """Report E0521, W0520: settings that nothing reads, of declarations that stages and suites only name."""
    for kind in ("forcing", "traces", "cluster"):
        for record in program.list_kind(kind).values():
            yield from _tell_idle(program.context, record, Surroundings(record), kind)
    for record in program.list_kind("data").values():
        yield from _tell_idle_traces(program.context, record)


def _tell_idle_traces(ctx: Context, data: Record | None) -> Iterator[Diagnostic]:
    """Yield findings of the traces that sources of data name."""
    for source in list_records(data, "source"):
        yield from _tell_idle_value(ctx, source.sub("traces"))


def _tell_idle_value(ctx: Context, record: Record | None) -> Iterator[Diagnostic]:
    """Yield findings of a record that is changed where it is used, as in `forcing = dynasor { … }`."""
    if record is not None and record.owner is None:
        yield from _tell_idle(ctx, record, Surroundings(record), record.kind)


def _tell_idle(ctx: Context, owner: Record, around: Surroundings, kind: str) -> Iterator[Diagnostic]:
    for path, slot, need in list_idle(around, kind):
        own = is_own(ctx, owner, slot)
        # A required setting has to be somewhere.
        if not find_setting(path, kind).required or (own and slot.parent is not None):
            yield from _tell(ctx, owner, View(around.record), path, slot, need, own)


def _tell(
    ctx: Context, owner: Record, view: View, path: str, slot: Slot, need: Need, own: bool
) -> Iterator[Diagnostic]:
    """Yield an error at a setting of the declaration itself, or a warning at what makes an inherited one idle.

    A spare setting of the declaration itself is a warning too, since another declaration may inherit and read it.
    """
    name, deciders = path.rpartition(".")[2], [view[each] for each in need.deciders.split()]
    message, idle = f"`{name}` {need.reason}", Label(slot.value.span, "has no effect")
    if own:
        others = [label for each in deciders for label in each.setting_labels("decides that")]
        helps = f"take `{name}` out, or write `{need.remedy}`" if need.remedy else "take one of the two out"
        tell = partial(warning, "W0520") if need.is_spare else partial(error, "E0521")
        yield tell(message, idle.span, idle.text, others=others, help=helps)
        return
    chosen = [each for each in deciders if each.slot is not None and is_own(ctx, owner, each.slot)]
    if need.is_spare and any(_list_holders(ctx, each.slot) != _list_holders(ctx, slot) for each in deciders):
        return
    labels = [label for each in chosen for label in each.setting_labels(f"`{name}` has no effect beside it")]
    if labels or not idle.span.path.startswith(LIBRARY_PATH):
        helps = f"begin with a recipe that has no `{name}`"
        helps = f"write `{need.remedy}`, or {helps}" if need.remedy else helps
        lead, *others = [*labels, idle]
        yield warning("W0520", message, lead.span, lead.text, others=others, help=helps)


def _list_holders(ctx: Context, slot: Slot | None) -> list[tree.Decl]:
    """Return the declarations around a setting, none for a default."""
    return [] if slot is None or slot.span is None else list_declarations(ctx, slot.span)


def is_own(ctx: Context, record: Record, slot: Slot | None) -> bool:
    """Return whether a record's own declaration, or the command line, sets a setting, and not a parent.

    A record that is changed where it is used, as in `forcing = dynasor { … }`, has its settings in another's declaration.
    """
    if slot is None or slot.span is None:
        return False
    around = list_declarations(ctx, slot.span)
    if slot.span.path.startswith("--"):
        return True
    if record.owner is None and record.kind in NEEDS:
        return bool(around) and all(each.kind_name != record.kind for each in around)
    return any(each.name.span == record.span for each in around)


def list_declarations(ctx: Context, place: Span) -> list[tree.Decl]:
    """Return the declarations around a place, outermost first."""
    start, found = (place.line, place.column), []
    for module in ctx.modules.loaded.values():
        if module is not None and module.path == place.path:
            begins, chains = ctx.memoize("declarations", module, partial(_index, module))
            around = chains[bisect_right(begins, start) - 1] if begins and begins[0] <= start else ()
            found += [each for each in around if _holds(each.span, start)]
    return found


def _index(module: ParsedFile) -> tuple[list[tuple[int, int]], list[tuple[tree.Decl, ...]]]:
    """Return where the declarations of a module begin, in order, and each with those around it, itself the last."""
    begins: list[tuple[int, int]] = []
    chains: list[tuple[tree.Decl, ...]] = []
    for item in module.items.values():
        for each in tree.walk(item):
            if isinstance(each, tree.Decl):
                begin = each.span.line, each.span.column
                outer = chains[-1] if chains else ()
                chains.append((*(one for one in outer if _holds(one.span, begin)), each))
                begins.append(begin)
    return begins, chains


def _holds(span: Span, start: tuple[int, int]) -> bool:
    return (span.line, span.column) <= start < (span.end_line, span.end_column)
