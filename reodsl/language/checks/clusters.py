"""Check clusters: errors for those that a study has no room for, warnings for idle ones."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.checks.cases import Case, StudyCase, View, case_check, study_check
from reodsl.language.checks.comparable import content
from reodsl.language.context import Context
from reodsl.language.resolve import source_of
from reodsl.language.stages import complete_stages
from reodsl.language.values import Experiment, Record, Study, as_written


def check_room(ctx: Context, study: Study) -> Iterator[Diagnostic]:
    """Report E0615 for every experiment of the study whose cluster is not part of the study's.

    A study without a cluster is all on this machine, whatever its experiments run on by themselves.
    """
    whole = study.sub("cluster")
    if whole is None:
        return
    seen: dict[int, Record] = {}
    for arm in study.arms:
        for experiment in _trained(ctx, arm.experiment, seen):
            part = experiment.sub("cluster")
            why = _lacks(part, whole) if part is not None else ""
            if part is None or not why:
                continue
            at, slot = experiment.fields["cluster"], study.fields["cluster"]
            yield error(
                "E0615",
                f"`{experiment.name}` runs on {_words(part)}, and the study `{study.name}`, which {why}, on {_words(whole)}",
                at.value.span,
                f"{_words(part)}, set here",
                others=[Label(slot.value.span, f"{_words(whole)}, set here")],
                help=f"give the study `cluster = {part.name}`, or the experiment `cluster = {whole.name}`",
            )


@study_check
def check_unheeded(case: StudyCase) -> Iterator[Diagnostic]:
    """Report W0615: clusters of arms that nothing runs on, as the study names none or the arm is only evaluated."""
    study, whole, seen = case.study, case.study.sub("cluster"), dict[int, Record]()
    if whole is None:
        trained = (each for arm in study.arms for each in _trained(case.ctx, arm.experiment, seen))
        named = [each for each in trained if each.sub("cluster") is not None]
        if named:
            yield _all_here(study, named)
        return
    for arm in study.arms:
        ours = arm.experiment.sub("cluster")
        if ours is None or arm.experiment.is_trained or _same(ours, whole):
            continue
        yield View(arm.experiment)["cluster"].warning(
            "W0615",
            f"`{arm.name}` is only evaluated, and a study evaluates all of its arms on its own cluster, {_words(whole)}",
            "has no effect",
            help="take it out, or set the study's `cluster`",
        )


def _all_here(study: Record, named: list[Record]) -> Diagnostic:
    first = named[0].fields["cluster"].value
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    places = [Label(each.fields["cluster"].value.span, "has no effect here") for each in named[:3]]
    return warning(
        "W0615",
        f"the study `{study.name}` names no cluster, so all of it runs on this machine, and `{named[0].name}`{more} too",
        study.span,
        "no `cluster`",
        others=places,
        help=f"give the study `cluster = {as_written(first)}`",
    )


@case_check
def check_staged(case: Case) -> Iterator[Diagnostic]:
    """Report W0615 for the cluster of a stage: all stages run on that of their experiment."""
    whole = case.record.sub("cluster")
    for stage in case.stages:
        named = stage.record.sub("cluster")
        if named is None or stage.part is None or (whole is not None and _same(named, whole)):
            continue
        yield stage["cluster"].warning(
            "W0615",
            f"all stages of `{case.name}` run on its cluster, and stage {stage.part.label} names one",
            "has no effect",
            help=f"set `cluster` in `{case.name}`, or make the stage an experiment from which the rest starts",
        )


def _same(one: Record, whole: Record) -> bool:
    return content(one) == content(whole)


def _lacks(part: Record, whole: Record) -> str:
    """Return why a cluster is not part of another; nothing where it is."""
    if part.data("gpu") != whole.data("gpu"):
        return f"has no {part.data('gpu')}"
    if _gpus(part) > _gpus(whole):
        return "has fewer GPUs"
    return "has smaller nodes" if part.data("gpus_per_node") > whole.data("gpus_per_node") else ""


def _gpus(cluster: Record) -> int:
    return int(cluster.data("nodes") * cluster.data("gpus_per_node"))


def _words(cluster: Record) -> str:
    return f"{cluster.data('nodes')} x {cluster.data('gpus_per_node')} {cluster.data('gpu')}"


def _trained(ctx: Context, record: Record | None, seen: dict[int, Record]) -> Iterator[Record]:
    """Yield the experiments behind a checkpoint, each once: those it starts from, and those that sample its data."""
    source, _ = source_of(record)
    if not isinstance(source, Experiment) or id(source) in seen:
        return
    seen[id(source)] = source
    if not source.is_trained:
        yield from _trained(ctx, source.sub("base"), seen)
        return
    yield source
    for _, stage in complete_stages(ctx, source):
        yield from _trained(ctx, stage.sub("base"), seen)
        data = stage.sub("data")
        pool = data.sub("pool") if data is not None and data.kind == "selected" else None
        yield from _trained(ctx, pool.sub("of") if pool is not None else None, seen)
