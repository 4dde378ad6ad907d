"""Find questions that an experiment can both be trained and judged on."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.checks.cases import Case, place
from reodsl.language.checks.comparable import content
from reodsl.language.checks.data import SIGNED
from reodsl.language.context import Context
from reodsl.language.reward.selection import questions_of
from reodsl.language.values import Record, records_of


def check_overlap(ctx: Context, case: Case) -> Iterator[Diagnostic]:
    """E0603: an experiment evaluated on what it was trained on. W0603: on what may hold questions that it was trained on."""
    suite = case.suite
    judged = ctx.once_of("judged", suite, lambda: _asked(ctx, suite)) if suite is not None else {}
    if suite is None or not judged:
        return
    judged_sources = [
        (benchmark, source)
        for benchmark in records_of(suite, "benchmarks")
        for source in records_of(benchmark.sub("data"), "source")
    ]
    for stage in case.stages:
        slot = stage.record.fields.get("data")
        for source in records_of(questions_of(stage.record.sub("data")), "source"):
            benchmark = judged.get(_origin(ctx, source))
            if benchmark is None:
                yield from _may_share(ctx, case, source, judged_sources, place(slot, stage.record.span))
            else:
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
    benchmarks: dict[str, Record] = {}
    for each in records_of(suite, "benchmarks"):
        for source in records_of(each.sub("data"), "source"):
            benchmarks.setdefault(_origin(ctx, source), each)
    return benchmarks


def _may_share(
    ctx: Context, case: Case, source: Record, judged: list[tuple[Record, Record]], span: Span
) -> Iterator[Diagnostic]:
    """W0603, once a source that is trained on: a benchmark is drawn from questions that this one is drawn from as well."""
    for benchmark, asked in judged:
        if _shared(ctx, source, asked):
            yield warning(
                "W0603",
                f"`{case.name}` may be evaluated on questions that it is trained on",
                span,
                "trained on",
                others=[Label(benchmark.span, f"`{benchmark.name}` is drawn from the same questions")],
                help="another seed keeps none apart: write `split: held_out` for the benchmark and `split: train` here",
            )
            return


def _shared(ctx: Context, source: Record, asked: Record) -> bool:
    """Whether some question may be drawn from either source. Arms share their sources, so a pair is compared once."""
    with_source = ctx.once_of("shared", source, dict[int, tuple[Record, bool]])
    if id(asked) not in with_source:
        with_source[id(asked)] = asked, _one_pool(source, asked) and not _apart(source, asked)
    return with_source[id(asked)][1]


def _one_pool(one: Record, other: Record) -> bool:
    """Whether some question may be drawn from either source."""
    if one.kind != other.kind:
        return False
    if one.kind == "package":
        # Packages have one name with dashes and one with underscores.
        names = [(str(each.data("package")).replace("-", "_"), each.data("task")) for each in (one, other)]
        return names[0] == names[1]
    if one.kind != "generated":
        return False
    tasks = [each.sub("task") for each in (one, other)]
    first, second = tasks
    if first is None or second is None or first.kind != second.kind:
        return False
    if first.kind == "python":
        return bool(first.data("function") == second.data("function"))
    if first.kind == "programs":
        return True
    (short, long), (least, most) = first.data("length"), second.data("length")
    amounts = [{SIGNED.findall(word)[-1] for word in each.data("operations")} for each in (first, second)]
    same = first.data("modulus") == second.data("modulus")
    return same and short <= most and least <= long and bool(amounts[0] & amounts[1])


def _apart(one: Record, other: Record) -> bool:
    """Whether the sources are of two sides of the split."""
    return {one.data("split"), other.data("split")} == {"train", "held_out"}


def _origin(ctx: Context, source: Record) -> str:
    """Where questions come from. Generated ones of a task are the same pool whatever their count and seed."""
    return ctx.once_of("origin", source, lambda: _origin_of(source))


def _origin_of(source: Record) -> str:
    ignored = ("count", "seed", "columns", "traces") if source.kind == "generated" else ("columns",)
    kept = {name: slot for name, slot in source.fields.items() if name not in ignored}
    return repr((source.kind, content(Record(source.kind, kept, source.span))))
