"""The cost of scheduling grows with the tasks, not with their square: counted in calls and in waits for the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.graph.task import Graph, Task
from reodsl.plan.registry import Execution, Machine, RunResults
from reodsl.plan.verdict import Keys
from reodsl.store.store import Store
from runners.execute import execute

Calls = Callable[[Callable[[], object]], int]


def fan(tasks: int, root: str = "root") -> Graph:
    """One task that many read, and one that reads them all."""
    first = Task(root, "frontier", {"n": -1}, {})
    many = [Task(f"t{n}", "frontier", {"n": n}, {"arm:root": root}) for n in range(tasks)]
    last = Task("last", "frontier", {}, {f"arm:{task.id}": task.id for task in many})
    return Graph((first, *many, last))


def run(graph: Graph, folder: Path) -> RunResults:
    store = Store(folder / "store").open()
    runners = {"frontier": "tests.execute.toys:quick"}
    nothing: Callable[..., None] = lambda *event: None  # noqa: E731
    return execute(
        Execution(graph, store, Keys(store, folder), runners, Machine(local=True), nothing, nothing)  # type: ignore[arg-type]
    )


def growth(calls: Calls, tmp_path: Path, root: str) -> tuple[int, int]:
    """Calls that 20 tasks more, and then 40 more, take."""
    counted = {}
    for tasks in (2, 20, 40, 80):
        folder = tmp_path / str(tasks)
        folder.mkdir()
        counted[tasks] = calls(lambda tasks=tasks, folder=folder: run(fan(tasks, root), folder))  # type: ignore[misc]
    return counted[40] - counted[20], counted[80] - counted[40]


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps processes that other tests left behind out of the counts: a task asks each of them for its time."""
    monkeypatch.setattr("runners.machine.clock._has_children", lambda: False)


@pytest.mark.slow
def test_twice_as_many_tasks_take_about_twice_the_work(calls: Calls, tmp_path: Path) -> None:
    first, second = growth(calls, tmp_path, "root")
    assert second < 2.2 * first
    assert second / 40 < 6_000


def test_twice_as_many_tasks_that_cannot_run_take_about_twice_the_work(calls: Calls, tmp_path: Path) -> None:
    first, second = growth(calls, tmp_path, "broken")
    assert second < 2.2 * first
    assert second / 40 < 200


def test_a_small_task_does_not_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waits, real = [], os.fsync

    def fsync(handle: int) -> None:
        waits.append(handle)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    found = run(fan(10), tmp_path)
    assert len(found.keys) == 12
    # The mark of a new store, and nothing for any task.
    assert len(waits) == 2


def test_a_result_that_took_long_is_on_the_disk_before_it_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("runners.execute.perform.SYNC_SECONDS", 0.0)
    kept: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        kept.append(os.readlink(f"/proc/self/fd/{handle}").rpartition("/")[2])
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    run(Graph((Task("one", "frontier", {}, {}),)), tmp_path)
    assert {"frontier.json", "material.json", "manifest.json"} <= set(kept)
