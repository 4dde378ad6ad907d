"""How long a run takes from its start to its report."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from reodsl.graph.task import Graph
from reodsl.price.value import Prices


@dataclass(frozen=True, slots=True)
class Elapsed:
    """`seconds` from the start of a run to its end on `devices` at once: GPUs of its cluster, or cores of this machine.

    `longest` are those of its longest chain of tasks, each of which reads the one before: no number of devices is faster.
    """

    seconds: float
    longest: float
    devices: int


def elapsed(graph: Graph, prices: Prices, ids: Iterable[str]) -> Elapsed | None:
    """What the tasks `ids` take, done in the order that a run does them in; None where one of them has no price.

    A task starts once all that it reads is done and as many devices are free as it takes. Of those that could, the first is
    the first of `Graph.turns`, and one that still finds too few lets smaller ones pass, as with Ray. On a cluster,
    tasks that take no GPU wait for nothing but what they read.
    """
    todo = set(ids)
    if prices.unpriced(todo):
        return None
    readers, turns = graph.readers(), graph.turns(prices.expected)
    missing = {
        task.id: len(todo.intersection(task.inputs.values())) for task in graph.tasks if task.id in todo
    }
    ready: dict[int, list[tuple[int, str]]] = {}

    def offer(name: str) -> None:
        wide = min(prices.tasks[name].gpus, prices.room)
        heapq.heappush(ready.setdefault(wide, []), (turns[name], name))

    for name, count in missing.items():
        if not count:
            offer(name)
    now, free = 0.0, prices.room
    # When each running task ends, which one it is, and how many devices it gives back.
    running: list[tuple[float, int, str, int]] = []
    while True:
        while next_task := min(
            ((queue[0], wide) for wide, queue in ready.items() if queue and wide <= free), default=None
        ):
            wide = next_task[1]
            turn, name = heapq.heappop(ready[wide])
            free -= wide
            heapq.heappush(running, (now + prices.tasks[name].total_seconds, turn, name, wide))
        if not running:
            break
        now, _, name, wide = heapq.heappop(running)
        free += wide
        for reader in readers[name]:
            if reader in missing:
                missing[reader] -= 1
                if not missing[reader]:
                    offer(reader)
    return Elapsed(now, _longest(graph, prices, todo), prices.room)


def _longest(graph: Graph, prices: Prices, todo: set[str]) -> float:
    """Seconds of the longest chain of tasks."""
    ends: dict[str, float] = {}
    for task in graph.tasks:
        if task.id in todo:
            before = max((ends.get(source, 0.0) for source in task.inputs.values()), default=0.0)
            ends[task.id] = before + prices.tasks[task.id].total_seconds
    return max(ends.values(), default=0.0)
