"""Clusters in studies: a study in; an error for each experiment that the study's own cluster has no room for, out."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.language.context import Context
from reodsl.language.finish import complete_stages
from reodsl.language.resolve import arms_of, is_trained
from reodsl.language.values import Record


def check_room(ctx: Context, study: Record) -> Iterator[Diagnostic]:
    """E0615 for every experiment of the study whose cluster is no part of the study's.

    A study without a cluster is all on this machine, whatever its experiments run on by themselves.
    """
    whole = study.sub("cluster")
    if whole is None:
        return
    seen: list[Record] = []
    for arm in arms_of(study):
        for experiment in _trained(ctx, arm.made, seen):
            own = experiment.sub("cluster")
            why = _lacks(own, whole) if own is not None else ""
            if own is None or not why:
                continue
            at, slot = experiment.fields["cluster"], study.fields["cluster"]
            yield error(
                "E0615",
                f"`{experiment.name}` runs on {_words(own)}, and the study `{study.name}`, which {why}, on {_words(whole)}",
                at.value.span,
                f"{_words(own)}, set here",
                others=[Label(slot.value.span, f"{_words(whole)}, set here")],
                help=f"give the study `cluster = {own.name}`, or the experiment `cluster = {whole.name}`",
            )


def _lacks(own: Record, whole: Record) -> str:
    """Why a cluster is no part of another; nothing where it is."""
    if own.data("gpu") != whole.data("gpu"):
        return f"has no {own.data('gpu')}"
    if _gpus(own) > _gpus(whole):
        return "has fewer GPUs"
    return "has smaller nodes" if own.data("gpus_per_node") > whole.data("gpus_per_node") else ""


def _gpus(cluster: Record) -> int:
    return int(cluster.data("nodes") * cluster.data("gpus_per_node"))


def _words(cluster: Record) -> str:
    return f"{cluster.data('nodes')} x {cluster.data('gpus_per_node')} {cluster.data('gpu')}"


def _trained(ctx: Context, record: Record | None, seen: list[Record]) -> Iterator[Record]:
    """The experiments that a checkpoint stands on, each once: what it starts from, and what samples its data."""
    while record is not None and record.kind in ("checkpoint", "stage_of", "arm"):
        record = record.sub("of") if record.kind == "checkpoint" else _made(record)
    if record is None or record.kind == "model" or any(record is each for each in seen):
        return
    seen.append(record)
    if not is_trained(record):
        yield from _trained(ctx, record.sub("base"), seen)
        return
    yield record
    for _, stage in complete_stages(ctx, record):
        yield from _trained(ctx, stage.sub("base"), seen)
        data = stage.sub("data")
        pool = data.sub("pool") if data is not None and data.kind == "selected" else None
        yield from _trained(ctx, pool.sub("of") if pool is not None else None, seen)


def _made(record: Record) -> Record:
    found: Record = record.made[0] if record.kind == "stage_of" else record.made
    return found
