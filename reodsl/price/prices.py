"""Prices of all tasks of a spec, by their description and by past runs, and how long a run takes."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from reodsl.graph.lower import lower
from reodsl.graph.payload import engine_of, is_served, model_work
from reodsl.graph.task import Graph, Kind, Task
from reodsl.ir import Spec, canonical_json
from reodsl.ir.base import anonymous, values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.model import Architecture, Model
from reodsl.price.history import COMPUTES, Known, Past, PastResults
from reodsl.price.machine import COMPILES, Devices, devices_of, label_cluster
from reodsl.price.memory import Sizes, process_bytes, sizes_of
from reodsl.price.tasks import price_served, price_task
from reodsl.price.value import Calibration, Price, Prices, Term

LIGHT_SECONDS: Mapping[str, float] = {"model": 4.0, "data": 0.2, "report": 8.0}
"""The seconds of tasks that need no device; the rest take a moment."""
LIGHT_BYTES: Mapping[str, float] = {"data": 100e3, "report": 6e6}


def price(
    graph: Graph,
    spec: Spec,
    history: PastResults | None = None,
    sizes: Mapping[str, Sizes] | None = None,
    cores: int = 1,
) -> Prices:
    """Price every task of a spec's graph.

    `history` replaces assumed lengths by measured ones, and assumed utilisation by what like devices reached.
    `sizes` gives those of models, by name, whose weights are at hand but whose dimensions the spec does not
    declare. `cores` are those that this machine has for tasks.
    """
    history = history or PastResults()
    study = spec.study
    pricer = _Pricer(graph, spec, history, sizes or {})
    devices, measured = pricer.place(study.cluster)
    tasks = {task.id: pricer.task(task) for task in graph.tasks}
    first = next((task.id for task in graph.tasks if pricer.compiles(task, tasks[task.id])), None)
    if first is not None:
        seconds = tasks[first].seconds
        tasks[first] = replace(tasks[first], seconds={**seconds, "start": seconds["start"] + COMPILES})
    return Prices(
        tasks=tasks,
        unit="seconds" if study.cluster is None else "gpu_hours",
        devices=devices.name if devices is not None else "",
        limit=study.limit,
        measured=measured,
        room=cores if study.cluster is None else max(each.gpus for each in tasks.values()),
    )


def choose_sharding(spec: Spec) -> dict[Cluster, Cluster]:
    """Return clusters that leave their `sharding` open, each with the word that takes fewer hours and has room.

    All trainings there count, by the spec alone: what past runs took would make a run's word depend on when it began. Where
    the network or a model's sizes are not known, and for less than a hundredth, weights stay spread over all GPUs.
    """
    chosen: dict[Cluster, Cluster] = {}
    for cluster in values_of(spec.study, Cluster):
        network = cluster.hardware and cluster.hardware.network
        if cluster.sharding == "auto" and network is not None:
            chosen[cluster] = cluster
    if not chosen:
        return chosen
    graph = lower(spec)
    prices = price(graph, spec).tasks
    for cluster in chosen:
        here = [prices[task.id] for task in graph.tasks if task.kind == "train" and task.cluster == cluster]
        other = [each.otherwise for each in here if each.otherwise is not None]
        room = all(peak <= (each.capacity or 0) for each in other for peak in each.memory.values())
        needed, less = (sum(each.hours_a_step * each.steps for each in form) for form in (here, other))
        word = "node" if room and less < 0.99 * needed and len(other) == len(here) else "cluster"
        chosen[cluster] = cluster.model_copy(update={"sharding": word})
    return chosen


def lower_placed(spec: Spec) -> Graph:
    """Lower a spec to its tasks, on clusters that leave nothing open."""
    graph, chosen = lower(spec), choose_sharding(spec)
    if not chosen:
        return graph
    return Graph(
        tuple(
            replace(task, cluster=task.cluster and chosen.get(task.cluster, task.cluster))
            for task in graph.tasks
        )
    )


def calibrate(history: PastResults, devices: Devices) -> Calibration | None:
    """Return how much longer than priced each term took on such devices, the median of past results; None without any.

    Each is priced on as many devices as it was made on. Results with the time of processors are preferred to those
    with the clock's alone. Rehearsals count as long as nothing has run.
    """
    ratios: dict[str, list[float]] = {}
    beyond: list[float] = []
    reached: list[float] = []
    there = [past for past in history.results if _ran_on(past, devices)]
    rehearsed = not there
    there = there or [past for past in history.rehearsed if _ran_on(past, devices)]
    comparable = [past for past in there if past.processor] or there
    # Where rollouts and training ran at the same time, what is left of the clock is not what was around them.
    in_turn = [
        past
        for past in comparable
        if past.terms and not past.payload.get("stage", {}).get("method", {}).get("lag")
    ]
    around = [past.seconds - sum(past.terms.values()) for past in in_turn]
    start = max(0.0, median(around)) if around else None
    for past in comparable:
        ran = _match_devices(past, _choose_devices(past.kind, devices))
        known = price_task(past.kind, past.payload, past.sizes, past.facts, ran, past.words, past.teacher)
        if past.peak is not None and devices.unit == "seconds":
            beyond.append(past.peak - process_bytes(known.memory))
        elif rehearsed and past.peak is not None and "trainer" in known.memory:
            # The batch may have been a small one, so less than was priced tells nothing.
            beyond.append(max(0.0, past.peak - known.memory["trainer"]))
        for term, seconds, priced in _beside(past, known, start):
            ratios.setdefault(term, []).append(seconds / priced)
            if term == "training":
                peak = replace(
                    ran,
                    narrow=0.0,
                    hardware=devices.hardware.model_copy(update={"mfu_train": 1.0, "mfu_attention": None}),
                )
                least = price_task(past.kind, past.payload, past.sizes, past.facts, peak, past.words)
                reached.append((least.seconds["training"] - least.sync) / max(seconds - least.sync, 1e-9))
    if not ratios:
        return None
    factors = {name: median(each) for name, each in ratios.items()}
    mfu = median(reached) if reached else None
    apart = [past.mismatch for past in comparable if past.mismatch is not None]
    return Calibration(
        len(comparable),
        factors,
        start,
        mfu,
        median(beyond) if beyond else None,
        rehearsed,
        max(apart, default=None),
    )


def _beside(past: Past, known: Price, start: float | None) -> list[tuple[str, float, float]]:
    """Return each term of a past result that lasts long enough, with its measured and its priced seconds."""
    if past.kind == "train":
        both = [(term, seconds, known.seconds.get(term, 0.0)) for term, seconds in past.terms.items()]
        return [each for each in both if min(each[1:]) > 1e-3]
    before = known.seconds["start"] if start is None else start
    work = known.total_seconds - known.seconds["start"]
    return [("responses", max(past.seconds - before, past.seconds / 4), work)] if work > 0 else []


class _Pricer:
    def __init__(
        self,
        graph: Graph,
        spec: Spec,
        history: PastResults,
        sizes: Mapping[str, Sizes],
    ) -> None:
        self.graph, self.history = graph, history
        self.places: dict[Cluster | None, tuple[Devices | None, Calibration | None]] = {}
        self.models = {
            canonical_json(anonymous(model_work(model, 0)["model"])): (
                model,
                sizes_of(model) or sizes.get(model.name),
            )
            for model in spec.study.models
        }
        self.known = Known(graph, history)
        self.estimates: dict[tuple[object, ...], Price] = {}
        # What tasks share is written once: of arms by the thousand, their evaluation and the model where they start.
        self.contents: dict[int, str] = {}
        self.roots: dict[str, tuple[Model | None, Sizes | None]] = {}

    def place(self, cluster: Cluster | None) -> tuple[Devices | None, Calibration | None]:
        """Return the devices of a cluster, and the calibration by past results on like ones."""
        if cluster not in self.places:
            devices = devices_of(cluster)
            measured = calibrate(self.history, devices) if devices is not None else None
            self.places[cluster] = devices, measured
        return self.places[cluster]

    def task(self, task: Task) -> Price:
        model, sizes = self._model(task)
        devices, measured = self.place(task.cluster)
        if task.kind not in COMPUTES:
            return self._light(task, sizes, devices)
        if is_served(task.payload):
            return price_served(task.payload, self.known.facts(task))
        if devices is None:
            lacks = "the cluster does not describe its GPUs: give it `hardware`"
            return Price(devices=label_cluster(task.cluster), unpriced=lacks)
        if sizes is None:
            name = model.name if model is not None else "the model"
            lacks = f"the sizes of {name} are not known: give it `dimensions`"
            return Price(gpus=devices.gpus, devices=devices.name, unpriced=lacks)
        taught = None
        if "teacher" in task.inputs:
            other, taught = self._model(self.graph[task.inputs["teacher"]])
            if taught is None:
                name = other.name if other is not None else "the teacher"
                lacks = f"the sizes of {name} are not known: give it `dimensions`"
                return Price(gpus=devices.gpus, devices=devices.name, unpriced=lacks)
        words = model is not None and isinstance(model.source, Architecture)
        # Arms by the thousand differ in a number that no price depends on.
        facts, content = self.known.facts(task), self._content(task)
        key = task.kind, content, facts, id(sizes), id(devices), words, id(taught)
        if key not in self.estimates:
            ran = _choose_devices(task.kind, devices)
            estimate = price_task(task.kind, task.payload, sizes, facts, ran, words, taught)
            otherwise = estimate.otherwise and self._placed(task, estimate.otherwise, devices, measured)
            self.estimates[key] = replace(
                self._placed(task, estimate, devices, measured), otherwise=otherwise
            )
        return self.estimates[key]

    def compiles(self, task: Task, found: Price) -> bool:
        """Return whether a task starts servers on GPUs, with which nothing has run yet."""
        devices, measured = self.place(task.cluster)
        here = devices is not None and devices.unit == "gpu_hours" and measured is None
        return here and "generation" in found.seconds and engine_of(task) == "sglang"

    def _light(self, task: Task, sizes: Sizes | None, devices: Devices | None) -> Price:
        disk = LIGHT_BYTES.get(task.kind, 10e3)
        if task.kind == "model" and sizes is not None:
            width = devices.width if devices is not None else 2
            disk = float(sizes.parameters * width)
        seconds = self.history.light.get(task.kind, LIGHT_SECONDS.get(task.kind, 0.2))
        # A cluster's GPUs are not paid for meanwhile; on this machine all time counts.
        here = devices is not None and devices.unit == "seconds"
        return Price(seconds={"start": seconds}, disk=disk, gpus=1 if here else 0)

    def _placed(self, task: Task, estimate: Price, devices: Devices, measured: Calibration | None) -> Price:
        estimate = replace(estimate, devices=devices.name, capacity=devices.memory)
        return estimate if measured is None else self._calibrated(task, estimate, measured)

    def _calibrated(self, task: Task, estimate: Price, measured: Calibration) -> Price:
        seconds: dict[Term, float] = {}
        for term, value in estimate.seconds.items():
            if term == "start":
                seconds[term] = value if measured.start is None else measured.start
            else:
                name = term if task.kind == "train" else "responses"
                seconds[term] = value * measured.factors.get(name, 1.0)
        beyond = measured.memory or 0.0
        # On this machine one process has all roles.
        roles = set(estimate.memory) if estimate.capacity is None else {"trainer"}
        peaks = {
            role: max(peak + beyond, peak / 4) if role in roles else peak
            for role, peak in estimate.memory.items()
        }
        sync = estimate.sync * measured.factors.get("training", 1.0)
        return replace(estimate, seconds=seconds, memory=peaks, sync=sync)

    def _model(self, task: Task) -> tuple[Model | None, Sizes | None]:
        while task.kind != "model" and "start" in task.inputs:
            task = self.graph[task.inputs["start"]]
        if task.kind != "model":
            return None, None
        if task.id not in self.roots:
            self.roots[task.id] = self.models.get(canonical_json(task.payload["model"]), (None, None))
        return self.roots[task.id]

    def _content(self, task: Task) -> str:
        """Return the text of the part of a payload that the price depends on."""
        number = id(task.payload)
        if number not in self.contents:
            self.contents[number] = canonical_json(_select_priced(task))
        return self.contents[number]


def _select_priced(task: Task) -> dict[str, Any]:
    """Return the payload without numbers that no price depends on: seeds, and of an optimizer all but its algorithm."""
    payload = {
        name: each for name, each in task.payload.items() if name not in ("seed", "replicate", "index")
    }
    if task.kind == "train":
        stage = payload["stage"]
        optim = stage["optim"]
        payload["stage"] = stage | {"optim": (optim["algorithm"], optim.get("on"))}
    return payload


def _ran_on(past: Past, devices: Devices) -> bool:
    """Return whether a result was made on devices of this model: this very processor, or a GPU of this name.

    A driver says `NVIDIA A100-SXM4-80GB` where a cluster says `A100`. A result without a name matches nothing.
    """
    if is_served(past.payload) or "base" in past.payload:
        return False
    if devices.unit == "seconds":
        return past.device == "cpu" and past.model == devices.model
    there, asked = (re.findall(r"[a-z0-9]+", name.lower()) for name in (past.model, devices.model))
    starts = range(len(there) - len(asked) + 1)
    return (
        past.device == "cuda" and bool(asked) and any(there[at : at + len(asked)] == asked for at in starts)
    )


def _choose_devices(kind: Kind, devices: Devices) -> Devices:
    """Return the devices for a kind of task: one that trains nothing generates on all of them."""
    return devices if kind == "train" else replace(devices, generating=devices.gpus)


def _match_devices(past: Past, devices: Devices) -> Devices:
    """Return as many devices as a result was made on, or `devices` if it is not recorded or on this machine."""
    if devices.unit == "seconds" or not past.generating or not past.training:
        return devices
    return replace(
        devices,
        generating=past.generating,
        training=past.training,
        tensor_parallel=past.tensor_parallel,
        parts=past.parts,
    )


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Time of a run: `seconds` from its start to its end on `devices` at once, GPUs or cores of this machine.

    `longest` are those of its longest chain of tasks, each of which reads the one before: no number of devices is
    faster.
    """

    seconds: float
    longest: float
    devices: int


def simulate_elapsed(graph: Graph, prices: Prices, ids: Iterable[str]) -> Elapsed | None:
    """Simulate the run of the tasks `ids` in the order of a scheduler; None if one of them has no price.

    A task starts once all that it reads is done and as many devices are free as it takes. The first of
    `Graph.turns` starts first, and one that still finds too few lets smaller ones pass, as with Ray. On a cluster,
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
    """Return the seconds of the longest chain of tasks."""
    ends: dict[str, float] = {}
    for task in graph.tasks:
        if task.id in todo:
            before = max((ends.get(source, 0.0) for source in task.inputs.values()), default=0.0)
            ends[task.id] = before + prices.tasks[task.id].total_seconds
    return max(ends.values(), default=0.0)
