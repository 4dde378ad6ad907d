"""Place a task's processes: bundles of cores and GPUs, and what the nodes lack for them.

A bundle lies on one node. Trainers have a GPU each; an engine has `tensor_parallel` of them, which lie together. Colocated,
an engine uses the GPUs of the trainers of its bundle in turn with them; alone, it has a bundle of its own behind theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reodsl.diagnostics import Diagnostic, error, warning
from reodsl.graph.job import Resources
from reodsl.graph.task import Kind
from reodsl.ir.cluster import Cluster
from reodsl.price.machine import generating_and_training, parts_of
from runners.execute.perform import Order

COMPUTES: frozenset[Kind] = frozenset({"train", "sample", "evaluate"})


@dataclass(frozen=True, slots=True)
class RayNode:
    """A machine as Ray knows it: name, cores and GPUs in total, and the GPUs' kind if Ray knows the kind."""

    name: str
    cpus: float
    gpus: float
    gpu: str = ""


def declared_nodes(clusters: Iterable[Cluster]) -> tuple[RayNode, ...]:
    """Return nodes to declare on this machine: as many as the largest cluster has, with cores for tasks without GPUs."""
    all_clusters = tuple(clusters)
    gpus = max((cluster.gpus_per_node for cluster in all_clusters), default=0)
    return tuple(
        RayNode(f"node-{i + 1}", gpus + 2.0, float(gpus))
        for i in range(max((cluster.nodes for cluster in all_clusters), default=0))
    )


@dataclass(frozen=True, slots=True)
class Bundle:
    """Cores and GPUs on a node for a `role`: `trainer`, `engine`, or both in turn (`worker`)."""

    role: str
    cpus: float
    gpus: float

    def as_ray(self) -> dict[str, float]:
        """Return the bundle as a map of resources for Ray's placement groups.

        Returns:
            Cores under `CPU` and GPUs, if any, under `GPU`.
        """
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


def resources_of(kind: Kind, cluster: Cluster | None, device: str, engine: str = "embedded") -> Resources:
    """Return a task's share of a cluster; a single process without GPUs if there is no cluster.

    The embedded engine generates in the task's process; only servers are several. sample and evaluate use all GPUs.

    Args:
        kind: the task's kind.
        cluster: the cluster of the task's experiment, or None.
        device: `cuda` or `cpu`.
        engine: the engine that generates rollouts.
    """
    if kind not in COMPUTES:
        return Resources()
    if engine == "served":
        return Resources(engine=engine)
    if cluster is None or device == "cpu":
        chosen = cluster.determinism if cluster is not None else "exact"
        return Resources(device=device, engine=engine, determinism=chosen)
    generating, training = generating_and_training(cluster)
    servers = engine != "embedded"
    gpus = cluster.nodes * cluster.gpus_per_node if kind != "train" else generating
    return Resources(
        device=device,
        engine=engine,
        determinism=cluster.determinism,
        trainers=training if kind == "train" else 1,
        parts=parts_of(cluster) if kind == "train" else None,
        engines=max(1, gpus // cluster.tensor_parallel) if servers else 1,
        tensor_parallel=cluster.tensor_parallel if servers else 1,
        disaggregated=servers
        and kind == "train"
        and generating + training == cluster.nodes * cluster.gpus_per_node,
    )


def bundles(kind: Kind, resources: Resources) -> tuple[Bundle, ...]:
    """Return the bundles of a task; the task's own process runs in the first."""
    threads, gpu_share = float(resources.threads), 1.0 if resources.reserves_gpus else 0.0
    wide = resources.tensor_parallel
    servers = resources.engine != "embedded"
    if kind != "train":
        return (Bundle("engine" if servers else "worker", threads, wide * gpu_share),) * resources.engines
    if resources.disaggregated:
        trainers = (Bundle("trainer", threads, gpu_share),) * resources.trainers
        return (*trainers, *(Bundle("engine", threads, wide * gpu_share),) * resources.engines)
    return (Bundle("worker" if servers else "trainer", wide * threads, wide * gpu_share),) * -(
        -resources.trainers // wide
    )


def cores_of(order: Order) -> int:
    """Return the cores that the task's own process keeps busy: twice its threads if it generates while it trains."""
    resources = order.resources
    method = order.task.payload["stage"]["method"] if order.task.kind == "train" else {}
    concurrent = bool(method.get("lag")) and not resources.reserves_gpus and resources.engine == "embedded"
    return resources.threads * (2 if concurrent else 1)


MOST_THREADS = 16
"""Threads of a process on a GPU: more do not copy faster."""


def threads_beside(resources: Resources, nodes: Sequence[tuple[float, float]]) -> Resources:
    """Return resources whose GPU processes have an equal share of a node's cores as threads, at the fewest over nodes.

    Processors beside GPUs only copy and compare numbers, so no result depends on their threads. Ray reserves one core
    for each process, as for others.

    Args:
        resources: the resources of a task.
        nodes: cores and GPUs of each node.
    """
    shares = [int(cores // gpus) for cores, gpus in nodes if gpus]
    if resources.device == "cpu" or not shares:
        return resources
    return replace(resources, threads=max(1, min(MOST_THREADS, *shares)))


def lacking(needed: Sequence[Bundle], nodes: Sequence[RayNode], where: str | None) -> Diagnostic | None:
    """Return E0971 with the needed and the available bundles if the bundles do not fit the nodes, else None."""
    if not needed or _fit(needed, nodes):
        return None
    request = ", ".join(
        f"{needed.count(bundle)} {bundle.role}{'s' if needed.count(bundle) > 1 else ''} of {_amounts(bundle)}"
        for bundle in dict.fromkeys(needed)
    )
    total = _amounts(Bundle("", sum(bundle.cpus for bundle in needed), sum(bundle.gpus for bundle in needed)))
    available = _amounts(
        Bundle("", sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)), every=True
    )
    listed = [f"{node.name} has {_amounts(Bundle('', node.cpus, node.gpus), every=True)}" for node in nodes]
    notes = listed[:8] + ([f"and {len(listed) - 8} more nodes"] if len(listed) > 8 else [])
    return error(
        "E0971",
        f"a task takes {request}, {total} in all, and there {'is' if available[:2] == '1 ' else 'are'} {available}",
        where=where,
        notes=notes,
        help="take fewer nodes, GPUs or `tensor_parallel` in `cluster`, or a Ray cluster that has them: --address HOST:PORT",
    )


def _amounts(bundle: Bundle, every: bool = False) -> str:
    """Return cores and GPUs in words; with `every`, none of a kind too."""
    gpus, cpus = f"{bundle.gpus:g} GPU{'s' if bundle.gpus != 1 else ''}", f"{bundle.cpus:g} core"
    cpus += "s" if bundle.cpus != 1 else ""
    return f"{gpus} and {cpus}" if bundle.gpus or every else cpus


def _fit(needed: Sequence[Bundle], nodes: Sequence[RayNode]) -> bool:
    """Return whether the bundles fit; the largest is placed first, on the node with the fewest free GPUs and cores."""
    free = [[node.gpus, node.cpus] for node in nodes]
    for bundle in sorted(needed, key=lambda b: (-b.gpus, -b.cpus)):
        room = [node for node in free if node[0] >= bundle.gpus and node[1] >= bundle.cpus]
        if not room:
            return False
        best = min(room)
        best[0] -= bundle.gpus
        best[1] -= bundle.cpus
    return True


_DRIVER = Path("/proc/driver/nvidia/gpus")
_SIZE = re.compile(r"\d+G(I?B)?|HBM\d\w*")
"""Words that tell of memory, as 80GB and HBM3."""


def model_words(name: str) -> frozenset[str]:
    """Return the words of a name that have a digit and are no memory size: H100 of `NVIDIA H100 80GB HBM3`."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return frozenset(word for word in words if re.search(r"\d", word) and not _SIZE.fullmatch(word))


def gpu_here(driver: Path = _DRIVER) -> str:
    """Return the driver's name of this machine's first GPU; nothing if it reports none."""
    for file in sorted(driver.glob("*/information")):
        match = re.search(r"^Model:\s*(\S.*)$", file.read_text("utf-8", "replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return ""


def other_gpus(cluster: Cluster, nodes: Sequence[RayNode], where: str | None) -> Diagnostic | None:
    """Return W0971 if nodes have GPUs of another kind than the cluster says, by which it is priced."""
    words = model_words(cluster.gpu)
    unlike = [
        node for node in nodes if node.gpus and model_words(node.gpu) and not model_words(node.gpu) & words
    ]
    if not words or not unlike:
        return None
    kinds = ", ".join(dict.fromkeys(node.gpu for node in unlike))
    return warning(
        "W0971",
        f"the spec runs on {cluster.gpu}, and the GPUs there are {kinds}",
        where=where,
        notes=[f"{node.name} has {node.gpus:g} {node.gpu}" for node in unlike[:8]],
        help="prices and what fits in memory are those of the spec: say in `cluster` what there is (`gpu`, `memory`,"
        " `hardware`)",
    )
