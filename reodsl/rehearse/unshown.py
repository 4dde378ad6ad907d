"""Say what a rehearsal cannot show of the run that it rehearses."""

from __future__ import annotations

from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data
from reodsl.ir.model import Model
from reodsl.ir.training import Sampling, Stage
from reodsl.price.machine import label_cluster
from reodsl.rehearse.stand_ins import StandIns


def unshown(spec: Spec, small: Spec, stand_ins: StandIns) -> tuple[str, ...]:
    """Return a sentence for each thing that `small` leaves out or replaces of `spec`, the weightiest first."""
    study, less = spec.study, small.study
    said = []
    doubles: dict[str, list[str]] = {}
    for model in values_of(spec.study, Model):
        double = stand_ins.model(model)
        if double is not None:
            doubles.setdefault(double.words, []).append(f"`{model.name}`")
    said += [f"the weights of {', '.join(names)}: {words}" for words, names in doubles.items()]
    absent = [each.name for each in values_of(spec.study, Data) if stand_ins.sources(each) is not None]
    if absent:
        said.append(
            f"data that are not on this machine: made-up sums were asked in place of {', '.join(absent)}"
        )
    clusters = {each.name: each for each in values_of(spec.study, Cluster)} if less.cluster is None else {}
    for cluster in clusters.values():
        said.append(
            f"cluster {label_cluster(cluster)}: GPUs, what fits into their memory, links between them,"
            " tensor parallelism, Ray"
        )
    if study.engine != less.engine:
        said.append(f"engine {study.engine}: {less.engine} generated in its place")
    longest, shorter = (
        max(each.max_tokens for each in values_of(one.study, Sampling)) for one in (spec, small)
    )
    if shorter < longest:
        said.append(f"long responses: the longest had {shorter:,} tokens and not {longest:,}")
    steps, fewer = (sum(each.steps for each in values_of(one.study, Stage)) for one in (spec, small))
    if fewer < steps:
        said.append(f"long trainings: {fewer:,} steps in all and not {steps:,}, so nothing was learnt")
    if len(less.seeds) < len(study.seeds):
        said.append(f"other seeds: one of {len(study.seeds)} was run")
    said.append("accuracy, REG and the rest of the report: half of all answers counted as right by chance")
    return tuple(said)
