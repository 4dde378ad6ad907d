"""Make a compiled spec ready for planning: its task graph, its store, and the keys of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.plan.keys import Keys
from reodsl.plan.verdict import Plan, make_plan
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Ready:
    """A compiled spec with its graph, its store (which may not exist yet), and the keys of its tasks."""

    spec: Spec
    graph: Graph
    store: Store
    keys: Keys

    def for_run(self) -> Ready:
        """The same whose keys read sources whole, however large."""
        return replace(self, keys=self.keys.for_run())

    def plan(self) -> Plan:
        """What running it would do now. Raises E0952 for a folder that is not a store."""
        return make_plan(self.spec, self.graph, self.store, self.keys)


def made_ready(spec: Spec, path: Path, store: Path | None) -> Ready:
    """The spec that was compiled from the file at `path`; its results are in `store`, or in `.reodsl` beside the file."""
    beside = path.resolve().parent
    place = Store(store or beside / ".reodsl")
    folder = Path(spec.folder) if spec.folder else beside
    return Ready(spec, lower(spec), place, Keys(place, folder))
