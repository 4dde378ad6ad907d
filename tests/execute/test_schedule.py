"""Tasks whose processes die: tried again as long as each attempt keeps more, and waiting for nodes that went away."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reodsl.diagnostics import error
from reodsl.graph.job import Event, Resources
from reodsl.graph.task import Task
from reodsl.plan.registry import Execution, RunResults
from reodsl.store.live import live_place, mark_kept, read_kept
from runners import execute as module
from runners.execute import Local, cluster
from runners.execute.cluster import RayCluster
from runners.execute.perform import Order, Outcome
from runners.execute.placement import RayNode
from runners.execute.rehearsal import perform_and_note
from runners.execute.schedule import schedule
from tests.execute.bench import Bench
from tests.graph import studies as make

TASK = "overthinker.train.s1"


class Dying(Local):
    """A backend whose training dies so many times, each time after it has kept what `keeps` says."""

    def __init__(self, emit: Callable[[Event], None], keeps: list[int]) -> None:
        super().__init__(emit)
        self.keeps, self.deaths = keeps, 0

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        if self.order is None or self.order.task.id != TASK or self.deaths == len(self.keeps):
            return super().wait(timeout)
        order, self.order = self.order, None
        work = order.store / "work" / order.key
        work.mkdir(parents=True, exist_ok=True)
        if self.keeps[self.deaths]:
            mark_kept(work, self.keeps[self.deaths])
        self.deaths += 1
        return [(TASK, Outcome("died", diagnostics=(error("E0938", "gone", where=TASK),)))]


@pytest.mark.parametrize(
    ("keeps", "deaths", "fails"),
    [
        # A training on nodes that come and go, each of which gets it further.
        ([1, 2, 3, 3, 4, 4, 5], 7, False),
        ([0, 0, 0, 0], 3, True),
        # Nothing more is kept: it began again, and died where it died before.
        ([2, 1, 2, 2], 3, True),
    ],
)
def test_a_task_that_dies_is_tried_again_while_it_gets_further(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, keeps: list[int], deaths: int, fails: bool
) -> None:
    dying: list[Dying] = []

    def run(execution: Execution, start: Any, resources: Any) -> RunResults:
        def begin() -> Dying:
            dying.append(Dying(execution.emit, keeps))
            return dying[0]

        return schedule(execution, begin, resources)

    monkeypatch.setattr(module, "schedule", run)
    results = bench.run(make.spec(make.arm("base", make.base())))
    assert dying[0].deaths == deaths
    assert (TASK in results.failed) == fails
    if fails:
        assert results.failed[TASK][0].message == "a process of the task died 3 times: gone"


def test_what_was_kept_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    assert read_kept(tmp_path) == 0
    mark_kept(tmp_path, 12)
    assert read_kept(tmp_path) == 12
    (tmp_path / "kept").write_text("")
    assert read_kept(tmp_path) == 0


def test_a_rehearsal_notes_where_tasks_with_a_gpu_are_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of tasks with a GPU is another one of Ray's."""
    ray = SimpleNamespace(remote=lambda **given: lambda perform: (perform, given["max_calls"]))
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    assert cluster.make_remotes(perform_and_note) == [(perform_and_note, 0), (perform_and_note, 1)]


def test_an_order_that_nodes_left_no_room_for_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there, cancelled = [RayNode("left", 1, 0), RayNode("right", 1, 0)], list[object]()
    ray = SimpleNamespace(
        wait=lambda refs, **_: ([], refs), cancel=lambda ref, force: cancelled.append((ref, force))
    )
    order = Order(
        Task("a.train.s1", "train", {"stage": {"method": {}}}, {}),
        "toys:toy", "0", {}, {}, Path("."), Path("."), Resources(trainers=2),
    )  # fmt: skip
    place = RayCluster.__new__(RayCluster)
    place.store, place.head, place.looked, place.asked = tmp_path, None, 0.0, 0.0
    place.flying = {"ref": cluster.Flight(order, None, time.monotonic())}
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    monkeypatch.setattr(cluster, "nodes", lambda: there)
    monkeypatch.setattr(cluster, "_PULSE_SECONDS", 0.0)
    there.pop()
    assert place.wait(0.0) == []
    monkeypatch.setattr(cluster, "_ROOM_SECONDS", -1.0)
    there.append(RayNode("another", 1, 0))
    assert place.wait(0.0) == []
    there.pop()
    # What has begun is told of by its processes.
    live = live_place(tmp_path, "0")
    live.parent.mkdir()
    live.touch()
    assert place.wait(0.0) == []
    live.unlink()
    ((name, outcome),) = place.wait(0.0)
    assert (name, outcome.status, outcome.diagnostics[0].code) == ("a.train.s1", "failed", "E0971")
    assert (cancelled, place.flying) == ([("ref", True)], {})
