"""Overlap: what an experiment is trained on and what it is judged by in, an error where both have one source out."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.language.checks.cases import Case, place
from reodsl.language.checks.comparable import content
from reodsl.language.context import Context
from reodsl.language.selections import questions_of
from reodsl.language.values import Items, Record


def check_overlap(ctx: Context, case: Case) -> Iterator[Diagnostic]:
    """E0603: an experiment evaluated on what it was trained on."""
    suite = case.suite
    judged = ctx.once_of("judged", suite, lambda: _asked(ctx, suite)) if suite is not None else {}
    if not judged:
        return
    for stage in case.stages:
        slot = stage.record.fields.get("data")
        for source in _sources(questions_of(stage.record.sub("data"))):
            benchmark = judged.get(_origin(ctx, source))
            if benchmark is not None:
                yield error(
                    "E0603",
                    f"`{case.name}` is evaluated on questions that it is trained on",
                    place(slot, stage.record.span),
                    "trained on",
                    others=[Label(benchmark.span, f"`{benchmark.name}` has the same source")],
                    help="train on other questions, or take the benchmark out; `split: held_out` keeps generated ones apart",
                )


def _asked(ctx: Context, suite: Record) -> dict[str, Record]:
    """The benchmarks of a suite by where their questions come from, the first of each."""
    found: dict[str, Record] = {}
    benchmarks = suite.get("benchmarks")
    if benchmarks is None or not isinstance(benchmarks.data, Items):
        return found
    for each in benchmarks.data.values:
        assert isinstance(each.data, Record)
        for source in _sources(each.data.sub("data")):
            found.setdefault(_origin(ctx, source), each.data)
    return found


def _sources(data: Record | None) -> list[Record]:
    value = data.get("source") if data is not None else None
    items = value.data.values if value is not None and isinstance(value.data, Items) else ()
    return [each.data for each in items if isinstance(each.data, Record)]


def _origin(ctx: Context, source: Record) -> str:
    """Where questions come from. Generated ones of a task are the same pool whatever their count and seed."""
    return ctx.once_of("origin", source, lambda: _origin_of(source))


def _origin_of(source: Record) -> str:
    ignored = ("count", "seed", "columns", "traces") if source.kind == "generated" else ("columns",)
    kept = {name: slot for name, slot in source.fields.items() if name not in ignored}
    return repr((source.kind, content(Record(source.kind, kept, source.span))))
