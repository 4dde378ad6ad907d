"""Kills of each kind of process of runs on Ray, with an SGLang server apart from the trainer, in phases of a step of PPO."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import psutil
import pytest

from runners.engine.sglang.settings import find_interpreter
from tests.execute.clusters import simulated
from tests.resume.harness import HERE, SHORT, SPEC, Place, Running, assert_gone, marked, seam
from tests.resume.harness import _state as state_of
from tests.resume.moments_of_runs import WORKING

pytestmark = pytest.mark.heavy

STUDIES = """
study before {
  arm base = checkpoint(start)
}

experiment apart = small { reward = outcome }

study served {
  engine = sglang
  arm apart = apart
}
"""
STEPS, ROLLOUTS = 3, 12
PHASES = ("rollouts_of_a_step", "standing", "checkpoint")
"""A step is learnt and not yet written, the state is saved, and the result is written, when the server has ended."""
ANSWERING = "answering"
"""The server has new weights and is asked: only the one that takes its messages can be stopped there."""
MOMENTS = [replace(each, times=1, stop=True) for each in WORKING if each.name in PHASES]
DOUBLE = """#!{python} -P
import os, signal, sys
from pathlib import Path
sys.path.append("{root}")
from tests.engine.sglang.served_double import ServedDouble, main
given = sys.argv[3:]
told = {{name: given[given.index(name) + 1] for name in ("--model-path", "--host", "--port")}} | {{"--tp-size": "1"}}
sys.argv[1:] = [word for pair in told.items() for word in pair]
answer = ServedDouble._generate
def stop_once(served, message):
    fired = Path("{fired}")
    if served.version and not fired.exists():
        fired.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return answer(served, message)
ServedDouble._generate = stop_once
main()
"""


def name_of(pid: int) -> list[str]:
    """The words of a process's command line; nothing where it is gone."""
    with suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def servers(mark: str) -> list[int]:
    """The processes of a run that serve a model; those of a server's own have no such words or are below it."""
    there = [pid for pid in marked(mark) if "--model-path" in name_of(pid)]
    return [pid for pid in there if psutil.Process(pid).ppid() not in there]


def holders(mark: str) -> list[int]:
    """The processes that started the servers."""
    return [psutil.Process(pid).ppid() for pid in servers(mark)]


def tasks(mark: str) -> list[int]:
    """The workers that train."""
    return [pid for pid in marked(mark) if " ".join(name_of(pid)).startswith("ray::apart.train")]


def of_ray(name: str) -> Callable[[str], list[int]]:
    def found(mark: str) -> list[int]:
        return [pid for pid in marked(mark) if name_of(pid) and Path(name_of(pid)[0]).name == name]

    return found


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def came(place: Place) -> set[str]:
    """The moments that a process has stopped at so far."""
    return {path.name.partition(".")[0] for path in place.fired.iterdir()}


def stops(place: Place, running: Running) -> Iterator[str]:
    """The moments at which a task's process stops, as they come; it goes on after each, where it still is."""
    seen = came(place)
    while running.process is not None and running.process.poll() is None:
        for name in came(place):
            if name not in seen and (halted := [pid for pid in marked(running.mark) if state_of(pid) == "T"]):
                seen.add(name)
                yield name
                for pid in halted:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)


@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.sglang)])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A folder whose SFT is done, for runs on a Ray of their own, with a real server or one that takes its messages."""
    if request.param == "double":
        python = tmp_path / "sglang" / "bin" / "python"
        (tmp_path / "sglang" / "lib" / "python3.11" / "site-packages" / "sglang").mkdir(parents=True)
        python.parent.mkdir()
        fired = tmp_path / "place" / "fired" / f"{ANSWERING}."
        python.write_text(DOUBLE.format(python=sys.executable, fired=fired, root=HERE.parents[1]))
        python.chmod(0o755)
        monkeypatch.setenv("REODSL_SGLANG_PYTHON", str(python))
    elif find_interpreter() is None:
        pytest.skip("SGLang is not installed here: run `make sglang`")
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / SPEC).write_text((HERE / SPEC).read_text() + STUDIES)
    Place(folder, options=("--local", "--target", "before")).run()
    place = Place(folder, options=("--target", "served"))
    yield place
    for running in place.runs:
        seam.kill_marked(running.mark)


def assert_learnt(place: Place) -> None:
    """All steps are there, with all of their rollouts, and nothing else is left."""
    place.assert_tidy()
    assert set(place.fatal()) - {ANSWERING} == set(PHASES)
    (key,) = (key for key in place.store if place.task_of(key) == "apart.train.s1")
    steps = pl.read_parquet(place.store.path(key) / "rollouts.parquet")["step"]
    assert steps.value_counts().sort("step").rows() == [(step + 1, ROLLOUTS) for step in range(STEPS)]


@pytest.mark.parametrize("kind", [servers, holders, tasks])
def test_a_run_ends_whose_server_or_worker_is_killed(served: Place, kind: Callable[[str], list[int]]) -> None:
    running = served.start(MOMENTS)
    for phase in stops(served, running):
        if phase != "checkpoint" or kind is tasks:
            kill(kind(running.mark))
    assert running.wait() == 0, running.text
    assert_gone(running.mark, 180)
    assert_learnt(served)


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_run_whose_ray_is_killed_says_so_and_goes_on_next_time(served: Place, name: str) -> None:
    while not came(served).issuperset(PHASES):
        running = served.start(MOMENTS)
        for _ in stops(served, running):
            kill(of_ray(name)(running.mark))
            running.wait()
        # An agent of Ray that lost its cluster asks for it for a minute before it ends.
        running.refused("E0962", within=180)
        assert f"{name} is gone" in running.text
        served.assert_whole()
    served.run()
    assert_learnt(served)


def test_a_run_that_is_killed_alone_takes_its_server_with_it(served: Place) -> None:
    while not came(served).issuperset(PHASES):
        running = served.start(MOMENTS)
        for _ in stops(served, running):
            running.kill(alone=True)
        assert_gone(running.mark, 180)
        served.assert_whole()
    served.run()
    assert_learnt(served)


CLUSTER = """
import os, sys
from ray.cluster_utils import Cluster
memory = {"object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**memory, "num_cpus": 2, "include_dashboard": False})
print(cluster.address, cluster.head_node.all_processes["gcs_server"][0].process.pid, flush=True)
sys.stdin.read()
"""


def test_a_run_on_a_cluster_whose_head_is_gone_says_so_before_ray_ends_it(tmp_path: Path) -> None:
    with simulated(CLUSTER) as cluster:
        assert cluster.stdout is not None
        address, head = cluster.stdout.readline().split()
        place = Place(tmp_path, options=(*SHORT[1:], "--address", address))
        running = place.start()
        running.until("start    start.train.one")
        os.kill(int(head), signal.SIGKILL)
        running.refused("E0962", within=180)
    assert f"the cluster at {address} is gone" in running.text
    place.assert_whole()
