"""Execution on Ray: the same bytes as in one process, errors whole across processes, and death survived."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Event
from runners.execute import cluster
from runners.execute.cluster import RayCluster
from runners.execute.instance import report_unanswered
from tests.execute.bench import Bench
from tests.graph import studies as make

pytestmark = pytest.mark.slow


def test_results_are_equal_to_those_of_one_process(ray_bench: Bench, tmp_path: Path) -> None:
    alone = Bench(tmp_path / "alone")
    alone.folder.mkdir()
    spec = make.four(seeds=(1, 2))
    local, remote = alone.run(spec), ray_bench.run(spec)
    assert local.keys == remote.keys
    for key in local.keys.values():
        ours, theirs = alone.store.path(key), ray_bench.store.path(key)
        names = sorted(
            p.relative_to(ours) for p in ours.rglob("*") if p.is_file() and p.name != "manifest.json"
        )
        assert [(ours / name).read_bytes() for name in names] == [
            (theirs / name).read_bytes() for name in names
        ]
        assert alone.store.get(key).digest == ray_bench.store.get(key).digest  # type: ignore[union-attr]


def test_progress_and_problems_cross_the_border_whole(ray_bench: Bench) -> None:
    ray_bench.knobs(base__eval__s1={"fail": "problem"}, overthinker__train__s1={"sleep": 0.5, "steps": 4})
    results = ray_bench.run(make.spec(make.arm("base", make.base())))
    (found,) = results.failed["base.eval.s1"]
    assert (found.code, found.where, found.help) == ("E0999", "base.eval.s1", "mend it")
    told = {event.task: event.progress for event in ray_bench.events if event.kind == "progress"}
    # Also the last numbers of a task that is quick.
    assert set(told) >= {*ray_bench.of("finished")}
    assert all(progress and progress.done == progress.total for progress in told.values())
    assert {*told["overthinker.train.s1"].numbers} == {"reward"}
    assert not any((ray_bench.store.root / "live").iterdir())


def test_a_worker_that_dies_is_replaced(ray_bench: Bench) -> None:
    ray_bench.knobs(overthinker__train__s1={"pause": True})

    def kill(event: Event) -> None:
        if (
            event.kind == "progress"
            and event.task == "overthinker.train.s1"
            and not (ray_bench.folder / "go").exists()
        ):
            # While it still waits: one that goes on may have ended before it is found.
            os.kill(worker_of("overthinker.train.s1"), signal.SIGKILL)
            (ray_bench.folder / "go").touch()

    ray_bench.on_event = kill
    results = ray_bench.run(make.spec(make.arm("base", make.base())))
    assert not results.failed
    assert ray_bench.started().count("overthinker.train.s1") == 2


def test_what_is_told_of_a_task_that_died_fits_its_cause() -> None:
    """Memory is named where a worker crashed, and not where a node or a part of Ray went away."""
    import ray

    class Gone:
        @staticmethod
        def get(ref: Exception) -> None:
            raise ref

    order = SimpleNamespace(task=SimpleNamespace(id="base.eval.s1"))
    helps = {
        type(cause).__name__: cluster._get_outcome(Gone, cause, order).diagnostics[0].help  # type: ignore[arg-type]
        for cause in (
            ray.exceptions.WorkerCrashedError(),
            ray.exceptions.OutOfMemoryError("ran out"),
            ray.exceptions.LocalRayletDiedError(),
            ray.exceptions.NodeDiedError("gone"),
        )
    }
    assert [name for name, words in helps.items() if "memory" in str(words)] == [
        "WorkerCrashedError",
        "OutOfMemoryError",
    ]
    assert all("run the command again to continue" in str(words) for words in helps.values())


@pytest.mark.heavy
def test_a_task_that_always_dies_fails_with_a_reason(ray_bench: Bench, refusal: Callable[..., None]) -> None:
    ray_bench.knobs(base__eval__s1={"fail": "exit"})
    results = ray_bench.run(make.spec(make.arm("base", make.base())))
    told = Problem(*results.failed["base.eval.s1"])
    reason = told.diagnostics[0].message.partition("times: ")[2]
    assert reason
    refusal("execute/E0938-died.txt", told, (reason, "REASON"))
    assert "edge.frontier.s1" in results.blocked


def test_an_interruption_ends_the_workers_and_keeps_their_work(ray_bench: Bench) -> None:
    ray_bench.knobs(overthinker__train__s1={"pause": True})

    def stop(event: Event) -> None:
        if event.kind == "progress" and event.task == "overthinker.train.s1":
            raise KeyboardInterrupt

    ray_bench.on_event = stop
    with pytest.raises(KeyboardInterrupt):
        ray_bench.run(make.four())
    ray_bench.on_event = lambda event: None
    (state,) = (ray_bench.store.root / "work").glob("*/state.json")
    assert json.loads(state.read_text())[1] == 2
    (ray_bench.folder / "go").touch()
    assert not ray_bench.run(make.four()).failed
    assert "overthinker.train.s1" not in ray_bench.of("waiting")[1:]


def test_ray_starts_in_another_thread_and_takes_no_signal() -> None:
    """A notebook may run a cell's work there."""
    # In a process of its own: this one may have a Ray already.
    code = (
        "import signal; from concurrent.futures import ThreadPoolExecutor; from runners.execute.instance import start_ray\n"
        "before = signal.getsignal(signal.SIGTERM)\n"
        "with ThreadPoolExecutor(1) as threads: threads.submit(lambda: start_ray(None).close()).result()\n"
        "assert signal.getsignal(signal.SIGTERM) == before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, timeout=300)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:port", "no.such.host.invalid:6379", "127.0.0.1:99999"]
)
def test_an_address_without_a_cluster_is_told_at_once(address: str, refusal: Callable[..., None]) -> None:
    (found,) = report_unanswered(address)
    reason = found.message.partition(f"answers at {address}: ")[2]
    assert reason
    refusal("execute/E0962.txt", Problem(found), (reason, "REASON"), (address, "ADDRESS"))


def test_auto_is_an_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray finds any process of Ray here, also a run's own, which does not listen at this node's address."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    (found,) = report_unanswered("auto")
    assert found.message.startswith("no Ray cluster answers at auto: ")
    # Whatever asks for an address has none of the options that `run` alone has.
    assert set(re.findall(r"--[a-z]+", str(found.help))) == {"--head", "--address"}
    (found,) = report_unanswered("local")
    assert found.message == "`local` is not an address of a Ray cluster"


@pytest.mark.usefixtures("ray_session")
def test_a_node_that_does_not_see_the_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        RayCluster("this", tmp_path / "store", lambda event: None)
    (found,) = caught.value.diagnostics
    assert (found.code, found.message.endswith(f": {tmp_path / 'store'} does not exist")) == ("E0977", True)


def worker_of(task: str) -> int:
    """The process that runs a Ray task of this name."""
    for _ in range(100):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if task.encode() in path.read_bytes():
                    return int(path.parent.name)
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError(f"no process runs {task}")
