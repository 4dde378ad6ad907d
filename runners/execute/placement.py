"""Compute the bundles of cores and GPUs for a task's processes, and what the nodes lack for them.

A bundle is on a single node. A trainer has one GPU; an engine has `tensor_parallel` GPUs on the same node. Colocated, an
engine and the trainers of its bundle use the same GPUs in turn; disaggregated, bundles of engines follow those of trainers.
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
    """A machine as Ray knows it."""

    name: str
    """Name of the machine."""
    cpus: float
    """Cores in total."""
    gpus: float
    """GPUs in total."""
    gpu: str = ""
    """Kind of the GPUs; empty if Ray does not know it."""


def declared_nodes(clusters: Iterable[Cluster]) -> tuple[RayNode, ...]:
    """Return nodes to declare to Ray on this machine for a rehearsal, whose GPUs do not exist.

    They suffice for each of the clusters: the number of nodes, and the number of GPUs of a node, are the largest in any
    cluster. A node has two more cores than GPUs, for tasks without GPUs.
    """
    all_clusters = tuple(clusters)
    gpus = max((cluster.gpus_per_node for cluster in all_clusters), default=0)
    return tuple(
        RayNode(f"node-{i + 1}", gpus + 2.0, float(gpus))
        for i in range(max((cluster.nodes for cluster in all_clusters), default=0))
    )


@dataclass(frozen=True, slots=True)
class Bundle:
    """Cores and GPUs on a node for one or several processes."""

    role: str
    """`trainer`, `engine`, or `worker` for a trainer and an engine that use the same GPUs in turn."""
    cpus: float
    """Number of cores."""
    gpus: float
    """Number of GPUs."""

    def as_ray(self) -> dict[str, float]:
        """Return the bundle as a map of resources for Ray's placement groups.

        Returns:
            Cores under `CPU` and GPUs, if any, under `GPU`.
        """
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


def resources_of(kind: Kind, cluster: Cluster | None, device: str, engine: str = "embedded") -> Resources:
    """Return a task's share of a cluster: how many processes, servers and GPUs it has.

    It is a single process without a cluster, on processors, for a model behind a server (`served`), and for tasks that
    only prepare data. The embedded engine generates in the task's own process, while SGLang may have several servers.
    Tasks of the kinds `sample` and `evaluate` use all GPUs of a cluster, and a training divides them.

    Args:
        kind: Kind of the task.
        cluster: Cluster of the task's experiment, or None.
        device: `cuda` or `cpu`.
        engine: Engine that generates: `embedded`, `sglang` or `served`.
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
    """Return the bundles of cores and GPUs that a task needs; the task's own process runs in the first bundle.

    A training without SGLang has a bundle for each trainer. With SGLang on the same GPUs (colocated), a bundle is for a
    server and the `tensor_parallel` trainers beside it. With SGLang on other GPUs (disaggregated), bundles of single
    trainers come first, then a bundle for each server. Other tasks have a bundle for each engine.

    Args:
        kind: Kind of the task.
        resources: The task's share of the machines.
    """
    threads, gpu_share = float(resources.threads), 1.0 if resources.reserves_gpus else 0.0
    width = resources.tensor_parallel
    servers = resources.engine != "embedded"
    if kind != "train":
        return (Bundle("engine" if servers else "worker", threads, width * gpu_share),) * resources.engines
    if resources.disaggregated:
        trainers = (Bundle("trainer", threads, gpu_share),) * resources.trainers
        return (*trainers, *(Bundle("engine", threads, width * gpu_share),) * resources.engines)
    return (Bundle("worker" if servers else "trainer", width * threads, width * gpu_share),) * -(
        -resources.trainers // width
    )


def cores_of(order: Order) -> int:
    """Return the number of cores that a task's own process uses.

    It is the process's threads, or twice as many if it generates rollouts while it trains on a processor.
    """
    resources = order.resources
    method = order.task.payload["stage"]["method"] if order.task.kind == "train" else {}
    concurrent = bool(method.get("lag")) and not resources.reserves_gpus and resources.engine == "embedded"
    return resources.threads * (2 if concurrent else 1)


MOST_THREADS = 16
"""Threads of a process on a GPU at most; more threads do not copy faster."""


def threads_beside(resources: Resources, nodes: Sequence[tuple[float, float]]) -> Resources:
    """Return a task's resources with the number of threads for its processes on GPUs.

    It is the number of a node's cores divided by the number of its GPUs, at most `MOST_THREADS`, for the node at which
    this is least. Results do not depend on these threads, as the processor beside a GPU only copies and compares numbers.
    Ray still reserves one core for each process.

    Args:
        resources: Resources of a task; for a task on processors they stay unchanged.
        nodes: (cores, GPUs) of each node; if no node has GPUs, the resources stay unchanged.
    """
    shares = [int(cores // gpus) for cores, gpus in nodes if gpus]
    if resources.device == "cpu" or not shares:
        return resources
    return replace(resources, threads=max(1, min(MOST_THREADS, *shares)))


def lacking(needed: Sequence[Bundle], nodes: Sequence[RayNode], where: str | None) -> Diagnostic | None:
    """Return E0971, with the needed and the present cores and GPUs, if bundles do not fit the nodes; else None.

    Args:
        needed: Bundles of a task.
        nodes: Nodes of the cluster, or this machine.
        where: Name of the cluster or task for the diagnostic, or None.
    """
    if not needed or _fits_nodes(needed, nodes):
        return None
    request = ", ".join(
        f"{needed.count(bundle)} {bundle.role}{'s' if needed.count(bundle) > 1 else ''} of {_amounts(bundle)}"
        for bundle in dict.fromkeys(needed)
    )
    total = _amounts(Bundle("", sum(bundle.cpus for bundle in needed), sum(bundle.gpus for bundle in needed)))
    available = _amounts(
        Bundle("", sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)), with_zero=True
    )
    listed = [f"{n.name} has {_amounts(Bundle('', n.cpus, n.gpus), with_zero=True)}" for n in nodes]
    notes = listed[:8] + ([f"and {len(listed) - 8} more nodes"] if len(listed) > 8 else [])
    return error(
        "E0971",
        f"a task needs {request}, {total} in all, and the nodes have {available}",
        where=where,
        notes=notes,
        help="write fewer nodes, GPUs or `tensor_parallel` in `cluster`, or use a larger Ray cluster: --address HOST:PORT",
    )


def _amounts(bundle: Bundle, with_zero: bool = False) -> str:
    """Return the GPUs and cores of a bundle in words, such as `2 GPUs and 4 cores`.

    Args:
        bundle: The bundle.
        with_zero: Whether a bundle without GPUs is `0 GPUs and …`; otherwise only its cores are named.
    """
    gpus, cpus = f"{bundle.gpus:g} GPU{'s' if bundle.gpus != 1 else ''}", f"{bundle.cpus:g} core"
    cpus += "s" if bundle.cpus != 1 else ""
    return f"{gpus} and {cpus}" if bundle.gpus or with_zero else cpus


def _fits_nodes(needed: Sequence[Bundle], nodes: Sequence[RayNode]) -> bool:
    """Return whether all bundles fit the nodes together.

    Bundles are placed from the largest to the smallest, each on the node with the fewest free GPUs, then cores, that
    suffice.
    """
    free = [[node.gpus, node.cpus] for node in nodes]
    for bundle in sorted(needed, key=lambda b: (-b.gpus, -b.cpus)):
        candidates = [node for node in free if node[0] >= bundle.gpus and node[1] >= bundle.cpus]
        if not candidates:
            return False
        tightest = min(candidates)
        tightest[0] -= bundle.gpus
        tightest[1] -= bundle.cpus
    return True


_DRIVER = Path("/proc/driver/nvidia/gpus")
_SIZE = re.compile(r"\d+G(I?B)?|HBM\d\w*")
"""Words in the name of a GPU for its memory, such as 80GB and HBM3."""


def model_words(name: str) -> frozenset[str]:
    """Return the words in the name of a GPU that name its model: {`H100`} for `NVIDIA H100 80GB HBM3`.

    These are words with a digit, except sizes and kinds of memory.
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return frozenset(word for word in words if re.search(r"\d", word) and not _SIZE.fullmatch(word))


def gpu_here(driver: Path = _DRIVER) -> str:
    """Return the name of this machine's first GPU as its driver reports it; empty without a GPU.

    Args:
        driver: Folder in which the driver lists GPUs.
    """
    for file in sorted(driver.glob("*/information")):
        match = re.search(r"^Model:\s*(\S.*)$", file.read_text("utf-8", "replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return ""


def other_gpus(cluster: Cluster, nodes: Sequence[RayNode], where: str | None) -> Diagnostic | None:
    """Return W0971 if nodes have GPUs of another model than the setting `gpu` of a cluster names, else None.

    Runs are priced for the GPUs that the spec names. Nodes whose GPUs have no known name are skipped.

    Args:
        cluster: Cluster of the spec.
        nodes: Nodes of the Ray cluster, or this machine.
        where: Name of the cluster for the diagnostic, or None.
    """
    expected = model_words(cluster.gpu)
    differing = [
        node for node in nodes if node.gpus and model_words(node.gpu) and not model_words(node.gpu) & expected
    ]
    if not expected or not differing:
        return None
    kinds = ", ".join(dict.fromkeys(node.gpu for node in differing))
    return warning(
        "W0971",
        f"the spec runs on {cluster.gpu}, but the nodes have {kinds}",
        where=where,
        notes=[f"{node.name} has {node.gpus:g} {node.gpu}" for node in differing[:8]],
        help="prices and memory are computed for the spec's GPUs: write the nodes' GPUs in `cluster` (`gpu`, `memory`,"
        " `hardware`)",
    )
