"""Several processes that train together on Ray: actors that meet, a death that is told of, and room that is not there."""

from __future__ import annotations

import hashlib
import os
import signal
import time

import pytest
from bench import Bench

from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from reodsl.store.store import Store
from runners.execute.cluster import Cluster
from runners.execute.order import Order, Outcome
from runners.train.crew import together
from runners.train.ranks import Ranks

HERE = "tests.execute.test_trainers"


def meet(job: Job, ranks: Ranks) -> None:
    """Every process says who it is; the first writes what it has heard."""
    pids = ranks.gather((ranks.rank, os.getpid(), ranks.total([1.0 + ranks.rank])[0]))
    if ranks.first:
        (job.out / "checkpoint").mkdir()
        (job.out / "checkpoint" / "model.safetensors").write_text(repr(pids))
    if not ranks.first and (job.folder / "die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    ranks.wait()


def train(job: Job) -> None:
    """A runner whose work is `meet`."""
    together(job, f"{HERE}:meet")


def order(bench: Bench, name: str, trainers: int) -> Order:
    task = Task(name, "train", {"name": name}, {})
    resources = Resources(trainers=trainers)
    key = hashlib.sha256(name.encode()).hexdigest()
    return Order(task, f"{HERE}:train", key, {}, {}, bench.store.root, bench.folder, resources)


def outcomes(cluster: Cluster, *orders: Order) -> dict[str, Outcome]:
    for one in orders:
        cluster.submit(one)
    found: dict[str, Outcome] = {}
    until = time.monotonic() + 240
    while len(found) < len(orders) and time.monotonic() < until:
        found.update(cluster.wait(0.2))
    return found


@pytest.fixture
def cluster(ray_bench: Bench) -> Cluster:
    Store(ray_bench.folder / "store").open()
    return Cluster(None, ray_bench.store.root, lambda event: None)


def test_two_orders_of_two_processes_each_both_end(ray_bench: Bench, cluster: Cluster) -> None:
    """On two cores they come one after the other, since each takes its room at once; and one is killed and told of."""
    first, second = order(ray_bench, "first", 2), order(ray_bench, "second", 2)
    found = outcomes(cluster, first, second)
    assert {name: (each.status, each.diagnostics) for name, each in found.items()} == {
        "first": ("done", ()),
        "second": ("done", ()),
    }
    for one in (first, second):
        text = (ray_bench.store.path(one.key) / "checkpoint" / "model.safetensors").read_text()
        (zero, pid, total), (rank, other, same) = eval(text)
        assert (zero, rank, total, same) == (0, 1, 3.0, 3.0)
        assert pid != other
    (ray_bench.folder / "die").touch()
    told = outcomes(cluster, order(ray_bench, "killed", 2))["killed"]
    assert told.status == "died"
    assert (told.diagnostics[0].code, "process 1 of 2" in told.diagnostics[0].message) == ("E0938", True)
    short = outcomes(cluster, order(ray_bench, "too many", 999))["too many"]
    assert short.diagnostics[0].code == "E0971"
    assert "a task takes 999 trainers of 1 core, 999 cores in all" in short.diagnostics[0].message
    assert not cluster.groups
