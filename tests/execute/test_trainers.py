"""Several processes that train together on Ray: actors that meet, a death that is told of, room that is not there, and a
whole stage whose second node goes away."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job, Progress, Resources
from reodsl.graph.task import Task
from reodsl.store.store import Store
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Request, TokenSampling
from runners.execute.cluster import RayCluster
from runners.execute.perform import Order, Outcome
from runners.machine.rendezvous import this_machine
from runners.train import launch
from runners.train.follower import FollowerJob, follow
from runners.train.launch import train_together
from runners.train.ranks import Ranks
from runners.train.run import train as train_stage
from tests.execute.bench import Bench
from tests.train.models import small_model

HERE = "tests.execute.test_trainers"
BEFORE = "HEARD_BEFORE"


def meet(job: Job, ranks: Ranks) -> None:
    """Every process says who it is; the first writes what it has heard."""
    pids = ranks.all_gather_objects((ranks.rank, os.getpid(), ranks.all_reduce_sum([1.0 + ranks.rank])[0]))
    if ranks.is_rank_zero:
        (job.out / "checkpoint").mkdir()
        (job.out / "checkpoint" / "model.safetensors").write_text(repr(pids))
    if not ranks.is_rank_zero and (job.folder / "die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    ranks.barrier()


def heard_at() -> set[tuple[str, int]]:
    """Where this process listens, address and port, as the system says."""
    every = psutil.Process().net_connections("tcp")
    return {tuple(one.laddr) for one in every if one.status == psutil.CONN_LISTEN}


def listen(job: Job, ranks: Ranks) -> None:
    """Every process says where it listens now and has not before it met the others."""
    before = {(host, port) for host, port in json.loads(os.environ[BEFORE])}
    told = ranks.all_gather_objects(sorted(heard_at() - before))
    if ranks.is_rank_zero:
        (job.out / "checkpoint").mkdir()
        (job.out / "checkpoint" / "model.safetensors").write_text(json.dumps(told))


class Elsewhere(launch._Actor):
    """A process that says it is on another machine than the others."""

    def ready(self) -> tuple[list[object], str]:
        return [], f"machine {os.getpid()}"

    def follow(self, part: FollowerJob, far: bool) -> Problem | None:
        assert far
        return super().follow(part, far)


def far_apart(job: Job) -> None:
    """A runner whose processes meet as those of several machines do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_Actor", Elsewhere)
        train_together(job, f"{HERE}:meet")


def listens(job: Job) -> None:
    """A runner whose processes note where Ray listens in them already."""

    class Noting:
        def ready(self) -> tuple[list[object], str]:
            return [], this_machine()

        def follow(self, part: FollowerJob, far: bool) -> Problem | None:
            assert not far
            os.environ[BEFORE] = json.dumps(sorted(heard_at()))
            return follow(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_Actor", Noting)
        patch.setenv(BEFORE, json.dumps(sorted(heard_at())))
        train_together(job, f"{HERE}:listen")
    assert not list(job.work.glob("*meeting*"))


def generate(job: Job, ranks: Ranks) -> None:
    """The second process dies while the first one generates, for as long as nobody tells it to stop."""
    ranks.barrier()
    if not ranks.is_rank_zero:
        os.kill(os.getpid(), signal.SIGKILL)
    model = small_model()
    engine = EmbeddedEngine(model.config, model.state_dict())
    until = time.monotonic() + 90
    while time.monotonic() < until:
        engine.generate([Request((2, 3), 5)], TokenSampling(8))
    (job.folder / "nobody looked").touch()


def generates(job: Job) -> None:
    """A runner whose work is `generate`."""
    train_together(job, f"{HERE}:generate")


def train(job: Job) -> None:
    """A runner whose work is `meet`."""
    train_together(job, f"{HERE}:meet")


def order(bench: Bench, name: str, trainers: int) -> Order:
    task = Task(name, "train", {"name": name, "stage": {"method": {}}}, {})
    resources = Resources(trainers=trainers)
    key = hashlib.sha256(name.encode()).hexdigest()
    return Order(task, f"{HERE}:train", key, {"payload": {}}, {}, bench.store.root, bench.folder, resources)


def outcomes(cluster: RayCluster, *orders: Order) -> dict[str, Outcome]:
    for one in orders:
        cluster.submit(one)
    found: dict[str, Outcome] = {}
    until = time.monotonic() + 240
    while len(found) < len(orders) and time.monotonic() < until:
        found.update(cluster.wait(0.2))
    return found


@pytest.fixture
def cluster(ray_bench: Bench) -> RayCluster:
    Store(ray_bench.folder / "store").open()
    return RayCluster(None, ray_bench.store.root, lambda event: None)


def ends(job: Job) -> None:
    """A runner whose second process does not live to begin."""

    class Ending:
        def ready(self) -> None:
            os._exit(3)

    # Ray gives the next task the same process, which has to find the module as it was.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_Actor", Ending)
        train_together(job, f"{HERE}:meet")


@pytest.mark.heavy
def test_a_process_that_ends_before_it_begins_is_told_of(ray_bench: Bench, cluster: RayCluster) -> None:
    told = outcomes(cluster, replace(order(ray_bench, "early", 2), runner=f"{HERE}:ends"))["early"]
    assert told.status == "died"
    assert (told.diagnostics[0].code, "process 1 of 2" in told.diagnostics[0].message) == ("E0938", True)
    assert not cluster.flying


@pytest.mark.heavy
def test_what_trains_on_one_machine_listens_on_its_loopback_alone(
    ray_bench: Bench, cluster: RayCluster
) -> None:
    one = replace(order(ray_bench, "listening", 2), runner=f"{HERE}:listens")
    told = outcomes(cluster, one)["listening"]
    assert (told.status, told.diagnostics) == ("done", ())
    text = (ray_bench.store.path(one.key) / "checkpoint" / "model.safetensors").read_text()
    for sockets in json.loads(text):
        assert {host for host, _ in sockets} == {"127.0.0.1"}


@pytest.mark.heavy
def test_one_process_meets_nobody(ray_bench: Bench, cluster: RayCluster) -> None:
    """A GPU alone trains through the same door."""
    one = order(ray_bench, "alone", 1)
    told = outcomes(cluster, one)["alone"]
    assert (told.status, told.diagnostics) == ("done", ())
    assert (ray_bench.store.path(one.key) / "checkpoint" / "model.safetensors").is_file()


@pytest.mark.heavy
def test_processes_of_several_machines_meet_in_the_store(ray_bench: Bench, cluster: RayCluster) -> None:
    one = replace(order(ray_bench, "far", 2), runner=f"{HERE}:far_apart")
    told = outcomes(cluster, one)["far"]
    assert (told.status, told.diagnostics) == ("done", ())
    text = (ray_bench.store.path(one.key) / "checkpoint" / "model.safetensors").read_text()
    assert [(rank, total) for rank, _, total in eval(text)] == [(0, 3.0), (1, 3.0)]


@pytest.mark.heavy
def test_a_death_is_noticed_while_the_first_process_generates(ray_bench: Bench, cluster: RayCluster) -> None:
    told = outcomes(cluster, replace(order(ray_bench, "generating", 2), runner=f"{HERE}:generates"))[
        "generating"
    ]
    assert told.status == "died"
    assert (told.diagnostics[0].code, "process 1 of 2" in told.diagnostics[0].message) == ("E0938", True)
    assert not (ray_bench.folder / "nobody looked").exists()


@pytest.mark.heavy
def test_two_orders_of_two_processes_each_both_end(
    ray_bench: Bench, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr("runners.execute.cluster._ROOM_SECONDS", 0.0)
    short = outcomes(cluster, order(ray_bench, "too many", 999))["too many"]
    assert short.diagnostics[0].code == "E0971"
    assert "a task needs 999 trainers of 1 core, 999 cores in all" in short.diagnostics[0].message
    assert not cluster.flying


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = {paths!r}
from tests.execute.bench import Bench
from ray.cluster_utils import Cluster as Nodes
from reodsl.graph.job import Resources
from reodsl.store.store import Store
from runners.execute.cluster import RayCluster
from tests.execute.test_trainers import order, outcomes
from tests.train import conftest
from tests.train.test_train import sft

folder = Path(sys.argv[1])
made = conftest.Bench(folder)
made.run("model", conftest.prepare_model, {{"model": conftest.dump(conftest.MODEL), "seed": 1}}, {{}}, "init")
source = conftest.TaskData(task=conftest.TASK, count=64, seed=2, traces=conftest.TRACES)
data = conftest.Data(name="traces", sources=(source,), verifier="exact")
made.run("data", conftest.prepare_data, {{"data": conftest.dump(data)}}, {{}}, "traces")
stage = sft(steps=5, algorithm="adamw", save_every=1)
whole = made.train(stage, "whole", start="init", data="traces", resources=Resources(trainers=2))

bench = Bench(folder)
Store(folder / "store").open()
small = {{"num_cpus": 1, "object_store_memory": 80_000_000}}
nodes = Nodes(initialize_head=True, head_node_args={{**small, "include_dashboard": False}})
second = [nodes.add_node(**small)]

def leave(event):
    if event.progress.done >= 2 and second:
        nodes.remove_node(second.pop(), allow_graceful=False)

cluster = RayCluster(nodes.address, bench.store.root, leave)
one = order(bench, "stage", 2)
payload = {{"stage": stage, "model": conftest.MODEL, "seed": 1, "index": 0}}
one = replace(one, task=replace(one.task, work=payload), runner="tests.execute.test_trainers:stage_here")
lost = outcomes(cluster, one)["stage"]
assert not second, lost
assert lost.status == "died", lost
assert {{found.code for found in lost.diagnostics}} == {{"E0938"}}, lost
nodes.add_node(**small)
nodes.wait_for_nodes()
done = outcomes(cluster, one)["stage"]
assert done.status == "done", done
made = bench.store.path(one.key)
for name in ("checkpoint/model.safetensors", "optimizer/state.safetensors", "metrics.parquet"):
    assert (made / name).read_bytes() == (whole / name).read_bytes(), name
cluster.stop()
"""


def stage_here(job: Job) -> None:
    """A whole stage on the inputs of the job's folder, told of at every step."""
    tell = job.progress

    def slowly(progress: Progress) -> None:
        tell(replace(progress, total=progress.done))
        time.sleep(1.0)

    inputs = {"start": job.folder / "init", "data": job.folder / "traces"}
    train_stage(replace(job, inputs=inputs, progress=slowly))


@pytest.mark.heavy
def test_a_stage_whose_node_goes_away_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Two nodes of one core: the shards are on both, and either the first process or the other is lost."""
    here = Path(__file__).resolve().parents[1]
    paths = [str(here.parent)]
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(paths=paths), tmp_path],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    assert out.returncode == 0, out.stderr[-3000:]
