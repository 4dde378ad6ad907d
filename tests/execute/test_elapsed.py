"""The least time that a plan gives for a run, and the scheduling loop itself, on a clock that the prices turn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import runners.execute
from reodsl.graph.task import Graph, Task
from reodsl.plan.registry import Execution, Machine
from reodsl.plan.verdict import Keys
from reodsl.price.prices import bound_elapsed
from reodsl.price.value import Price, Prices
from reodsl.store.store import Store
from runners.execute.perform import Order, Outcome, perform_order


class Clock:
    """A backend in which every task takes as long as it is priced, and `slots` run at once."""

    def __init__(self, prices: Prices) -> None:
        self.prices, self.slots = prices, prices.room
        self.now = 0.0
        self.flying: list[tuple[float, str, Order]] = []

    def submit(self, order: Order) -> None:
        self.flying.append((self.now + self.prices.tasks[order.task.id].total_seconds, order.task.id, order))

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        self.now, name, order = first = min(self.flying, key=lambda each: each[:2])
        self.flying.remove(first)
        return [(name, perform_order(order, lambda progress: None))]

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(("seed", "cores"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_a_run_takes_no_less_and_at_most_twice_as_long(
    seed: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    tasks = []
    for number in range(14):
        before = draw.sample(range(number), min(number, draw.randrange(3)))
        tasks.append(
            Task(f"t{number:02}", "frontier", {"n": number}, {f"arm:{one}": f"t{one:02}" for one in before})
        )
    graph = Graph(tuple(tasks))
    # No two tasks end at once: then it would be chance which of them is heard of first.
    seconds = {task.id: draw.uniform(1, 9) for task in tasks}
    told = {name: Price(seconds={"start": each}, gpus=1) for name, each in seconds.items()}
    prices = Prices(told, "seconds", "", None, cores)
    clock = Clock(prices)
    monkeypatch.setattr(runners.execute, "Local", lambda emit: clock)
    store = Store(tmp_path / "store").open()
    found = runners.execute.execute(
        Execution(
            graph=graph,
            store=store,
            keys=Keys(store, tmp_path),
            runners={"frontier": "tests.execute.toys:quick"},
            machine=Machine(local=True),
            emit=lambda event: None,
            done=lambda task, key: None,
            seconds=prices.expected,
        )
    )
    assert len(found.keys) == len(tasks)
    planned = bound_elapsed(graph, prices, seconds)
    assert planned is not None
    assert planned.seconds - 1e-9 <= clock.now <= 2 * planned.seconds
