"""Say whether a spec can run here, or what it lacks, as diagnostics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.graph.task import Graph, Task
from reodsl.machine import Measures
from reodsl.plan.keys import Keys
from reodsl.plan.registry import Machine, Registry
from reodsl.price.value import Prices, add_prices
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Fit:
    """A spec and what it lacks here, or finds other than it says; without an error among it, it fits."""

    path: str
    lacks: tuple[Diagnostic, ...]

    @property
    def well(self) -> bool:
        """Return whether it can run here."""
        return all(each.severity != "error" for each in self.lacks)


def fit(
    path: Path,
    registry: Registry | None,
    measures: Measures,
    machine: Machine,
    store_dir: Path | None = None,
) -> Fit:
    """Return what a spec lacks on `machine`, and start nothing.

    It may lack a correct text, packages, devices, weights, data, memory, disk, or a store.

    Without a `registry` the runners' part of it is not known. Of what the spec's store already has (in `store_dir`, or
    beside the spec) only questions count: their sources are not looked at again.
    """
    from reodsl.graph.lower import lower
    from reodsl.language import compile_file
    from reodsl.price import price, sizes_at_hand
    from reodsl.price.show import refusals

    compiled = compile_file(path)
    wrong = tuple(each for each in compiled.diagnostics if each.severity == "error")
    if compiled.spec is None or wrong:
        return Fit(str(path), wrong)
    spec = compiled.spec
    folder = Path(spec.folder) if spec.folder else path.resolve().parent
    graph = lower(spec)
    prices = price(graph, spec, None, sizes_at_hand(spec, folder))
    store = Store(store_dir or path.resolve().parent / ".reodsl")
    try:
        store.recognise()
        tasks = _without_questions(graph, store, folder)
    except Problem as caught:
        return Fit(str(path), caught.diagnostics)
    missing = registry.check(tasks, spec, folder, machine) if registry is not None else ()
    return Fit(
        str(path),
        (*missing, *refusals(prices, (task.id for task in graph.tasks), spec), *_room(prices, measures)),
    )


def _without_questions(graph: Graph, store: Store, folder: Path) -> tuple[Task, ...]:
    """Return the tasks but for those whose questions are in the store, made from what their sources hold now."""
    if not store.root.is_dir():
        return graph.tasks
    keys = Keys(store, folder)
    return tuple(
        task for task in graph.tasks if task.kind != "data" or store.get(keys.key(task, {})[0]) is None
    )


def _room(prices: Prices, measures: Measures) -> tuple[Diagnostic, ...]:
    """E0973 where the largest task needs more memory than there is, E0974 where the results need more disk."""
    from reodsl.price.memory import process_bytes
    from reodsl.price.show import memory, size

    lacks = []
    if prices.unit == "seconds":
        task, peak = max(
            ((name, process_bytes(each.memory)) for name, each in prices.tasks.items()),
            key=lambda item: item[1],
            default=("", 0.0),
        )
        if peak > measures.memory:
            lacks.append(
                error(
                    "E0973",
                    f"{task} needs about {memory(peak)} of memory, and this machine has {memory(measures.memory)}",
                    help="give it fewer or shorter responses (`batch`, `max_tokens`), a smaller model, or a `cluster`",
                )
            )
    disk = add_prices(prices.tasks.values()).disk
    if disk > measures.disk:
        lacks.append(
            error(
                "E0974",
                f"the results take about {size(disk)}, and {size(measures.disk)} are free",
                help="keep results on a larger disk with --store DIR, or make room: reodsl gc",
            )
        )
    return tuple(lacks)
