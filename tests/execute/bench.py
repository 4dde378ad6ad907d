"""A folder with a store in it, and a way to execute a study there with toy runners."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reodsl.graph.job import Event
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.plan.registry import Execution, Machine, RunResults
from reodsl.plan.verdict import Keys
from reodsl.store.store import Store
from runners.execute import execute
from tests.execute import toys


@dataclass
class Bench:
    """A folder with a store in it, and what happened in the last run."""

    folder: Path
    machine: Machine = field(default_factory=lambda: Machine(local=True))
    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], None] = lambda event: None

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def knobs(self, **tasks: dict[str, Any]) -> None:
        """Set the knobs of toys; `all` stands for every task."""
        found = {"*" if name == "all" else name.replace("__", "."): value for name, value in tasks.items()}
        (self.folder / "knobs.json").write_text(json.dumps(found))

    def run(self, spec: Spec) -> RunResults:
        """Execute the spec's graph."""
        store = self.store.open()
        self.events.clear()

        def hear(event: Event) -> None:
            self.events.append(event)
            self.on_event(event)

        return execute(
            Execution(
                graph=lower(spec),
                store=store,
                keys=Keys(store, self.folder),
                runners=toys.RUNNERS,
                machine=self.machine,
                emit=hear,
                done=lambda task, key: None,
            )
        )

    def started(self) -> list[str]:
        """The tasks that started since the last call."""
        found = toys.log(self.folder)
        (self.folder / "log.txt").unlink(missing_ok=True)
        return found

    def of(self, kind: str) -> list[str]:
        """The tasks with an event of this kind in the last run."""
        return [event.task for event in self.events if event.kind == kind]
