"""A cluster of Ray whose GPUs are only said to be there, and runners that compute on its processors.

Everything else is a run's own: placement, seats of trainers and servers, and a model spread over `tensor_parallel` devices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from reodsl.graph.job import Job
from reodsl.graph.task import Kind
from reodsl.plan.registry import Registry
from runners.execute.perform import load
from runners.registry import REGISTRY
from tests.execute.clusters import simulated

HERE = "tests.rehearse.declared"
COMPUTING: tuple[Kind, ...] = ("train", "sample", "evaluate")


def train(job: Job) -> None:
    """Train on processors."""
    _on_processors(job)


def sample(job: Job) -> None:
    """Sample on processors."""
    _on_processors(job)


def evaluate(job: Job) -> None:
    """Evaluate on processors."""
    _on_processors(job)


def _on_processors(job: Job) -> None:
    # A process beside GPUs has one core of its bundle, however many threads it has.
    resources = replace(job.resources, device="cpu", threads=1)
    load(REGISTRY.runners[job.task.kind])(replace(job, resources=resources))


def registry() -> Registry:
    """The project's runners, where those that compute are told of processors."""
    return replace(REGISTRY, runners={**REGISTRY.runners, **{kind: f"{HERE}:{kind}" for kind in COMPUTING}})


@contextmanager
def declared_gpus() -> Iterator[str]:
    """The address of a cluster with two GPUs that nobody has."""
    with simulated(f"from {HERE} import serve; serve()") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def serve() -> None:
    """In a process of its own: the cluster's address out, and the cluster until the input ends."""
    from ray.cluster_utils import Cluster

    given = {"num_cpus": 4, "num_gpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=given)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
