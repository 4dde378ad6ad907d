"""Price every task of a spec, by its description and by past runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from reodsl.graph.payload import model_payload
from reodsl.graph.task import Graph, Kind, Task
from reodsl.ir import Spec, canonical_json
from reodsl.ir.cluster import Cluster
from reodsl.ir.model import Architecture, Model
from reodsl.ir.training import FromModel, Start
from reodsl.price.history import COMPUTES, History
from reodsl.price.known import Known
from reodsl.price.machine import Devices, at_width, called, devices_of
from reodsl.price.memory import process_bytes
from reodsl.price.past import Past
from reodsl.price.sizes import Sizes, sizes_of
from reodsl.price.tasks import price_task
from reodsl.price.value import Measured, Price, Prices, Term

LIGHT_SECONDS: Mapping[str, float] = {"model": 4.0, "data": 0.2, "report": 8.0}
"""Of tasks that need no device; the rest take a moment."""
LIGHT_BYTES: Mapping[str, float] = {"data": 100e3, "report": 6e6}


def price(
    graph: Graph,
    spec: Spec,
    history: History | None = None,
    sizes: Mapping[str, Sizes] | None = None,
    cores: int = 1,
) -> Prices:
    """The price of every task of a spec's graph.

    `history` replaces assumed lengths by measured ones, and assumed utilisation by what like devices reached.
    `sizes` gives those of models, by name, whose weights are at hand but whose dimensions the spec does not state. `cores`
    are those that this machine has for tasks.
    """
    history = history or History()
    study = spec.study
    pricer = _Pricer(graph, spec, history, sizes or {})
    devices, measured = pricer.place(study.cluster)
    tasks = {task.id: pricer.task(task) for task in graph.tasks}
    return Prices(
        tasks=tasks,
        unit="seconds" if study.cluster is None else "gpu_hours",
        devices=devices.name if devices is not None else "",
        limit=study.limit,
        measured=measured,
        room=cores if study.cluster is None else max(each.gpus for each in tasks.values()),
    )


def calibrate(history: History, devices: Devices) -> Measured | None:
    """How much longer than priced each term took on such devices, the median over past results; None without any.

    Each is priced on as many of them as it was made on. Results that tell the time of processors are heeded before those
    that tell the clock's alone. What was rehearsed counts as long as nothing has run.
    """
    ratios: dict[str, list[float]] = {}
    beyond: list[float] = []
    reached: list[float] = []
    there = [past for past in history.results if _ran_on(past, devices)]
    rehearsed = not there
    there = there or [past for past in history.rehearsed if _ran_on(past, devices)]
    comparable = [past for past in there if past.processor] or there
    # Where rollouts and training ran at the same time, what is left of the clock is not what was around them.
    in_turn = [past for past in comparable if past.terms and not _lags(past)]
    around = [past.seconds - sum(past.terms.values()) for past in in_turn]
    start = max(0.0, median(around)) if around else None
    for past in comparable:
        ran = _as_many(past, _of_kind(past.kind, devices))
        known = price_task(past.kind, past.payload, past.sizes, past.facts, ran, past.words)
        if past.peak is not None and devices.unit == "seconds":
            beyond.append(past.peak - process_bytes(known.memory))
        elif rehearsed and past.peak is not None and "trainer" in known.memory:
            # The batch may have been a small one, so less than was priced tells nothing.
            beyond.append(max(0.0, past.peak - known.memory["trainer"]))
        for term, seconds, priced in _beside(past, known, start):
            ratios.setdefault(term, []).append(seconds / priced)
            if term == "training":
                assumed = at_width(devices, past.sizes.hidden).hardware.mfu_train
                reached.append(assumed * priced / seconds)
    if not ratios:
        return None
    factors = {name: median(each) for name, each in ratios.items()}
    mfu = median(reached) if reached else None
    apart = [past.mismatch for past in comparable if past.mismatch is not None]
    return Measured(
        len(comparable),
        factors,
        start,
        mfu,
        median(beyond) if beyond else None,
        rehearsed,
        max(apart, default=None),
    )


def _lags(past: Past) -> bool:
    """Whether a training's rollouts were made beside it."""
    return bool(past.payload.get("stage", {}).get("method", {}).get("lag"))


def _beside(past: Past, known: Price, start: float | None) -> list[tuple[str, float, float]]:
    """Each term of a past result that tells something: its seconds as they were, and as they are priced."""
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
        history: History,
        sizes: Mapping[str, Sizes],
    ) -> None:
        self.graph, self.history = graph, history
        self.places: dict[Cluster | None, tuple[Devices | None, Measured | None]] = {}
        models = {id(model): model for model in _models(spec)}.values()
        self.models = {_key(model): (model, sizes_of(model) or sizes.get(model.name)) for model in models}
        self.known = Known(graph, history)
        self.estimates: dict[tuple[object, ...], Price] = {}
        # What tasks share is written once: of arms by the thousand, their evaluation and the model where they start.
        self.contents: dict[int, str] = {}
        self.roots: dict[str, tuple[Model | None, Sizes | None]] = {}

    def place(self, cluster: Cluster | None) -> tuple[Devices | None, Measured | None]:
        """The devices of a cluster, and what past results on like ones told."""
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
        if devices is None:
            lacks = "the cluster does not describe its GPUs: give it `hardware`"
            return Price(devices=called(task.cluster), unpriced=lacks)
        if sizes is None:
            name = model.name if model is not None else "the model"
            lacks = f"the sizes of {name} are not known: give it `dimensions`"
            return Price(gpus=devices.gpus, devices=devices.name, unpriced=lacks)
        words = model is not None and isinstance(model.source, Architecture)
        # Arms by the thousand differ in a number that no price depends on.
        facts, content = self.known.facts(task), self._content(task)
        key = task.kind, content, facts, id(sizes), id(devices), words
        if key not in self.estimates:
            ran = _of_kind(task.kind, devices)
            estimate = price_task(task.kind, task.payload, sizes, facts, ran, words)
            estimate = replace(estimate, devices=devices.name, capacity=devices.memory)
            if measured is not None:
                estimate = self._calibrated(task, estimate, measured)
            self.estimates[key] = estimate
        return self.estimates[key]

    def _light(self, task: Task, sizes: Sizes | None, devices: Devices | None) -> Price:
        disk = LIGHT_BYTES.get(task.kind, 10e3)
        if task.kind == "model" and sizes is not None:
            width = devices.width if devices is not None else 2
            disk = float(sizes.parameters * width)
        seconds = self.history.light.get(task.kind, LIGHT_SECONDS.get(task.kind, 0.2))
        # A cluster's GPUs are not paid for meanwhile; on this machine all time counts.
        here = devices is not None and devices.unit == "seconds"
        return Price(seconds={"start": seconds}, disk=disk, gpus=1 if here else 0)

    def _calibrated(self, task: Task, estimate: Price, measured: Measured) -> Price:
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
            self.roots[task.id] = self.models.get(_text(task.payload["model"]), (None, None))
        return self.roots[task.id]

    def _content(self, task: Task) -> str:
        """The text of what the price depends on in a payload."""
        number = id(task.payload)
        if number not in self.contents:
            self.contents[number] = _text(_priced(task))
        return self.contents[number]


def _priced(task: Task) -> dict[str, Any]:
    """The payload without numbers that no price depends on: seeds, and of an optimizer all but what it keeps."""
    payload = {
        name: each for name, each in task.payload.items() if name not in ("seed", "replicate", "index")
    }
    if task.kind == "train":
        stage = payload["stage"]
        optim = stage["optim"]
        payload["stage"] = stage | {"optim": (optim["algorithm"], optim.get("on"))}
    return payload


def _ran_on(past: Past, devices: Devices) -> bool:
    """Whether a result was made on devices of this model: this very processor, or a GPU whose full name has the cluster's.

    A driver says `NVIDIA A100-SXM4-80GB` where a cluster says `A100`. One that does not say tells nothing.
    """
    if devices.unit == "seconds":
        return past.device == "cpu" and past.model == devices.model
    there, asked = (re.findall(r"[a-z0-9]+", name.lower()) for name in (past.model, devices.model))
    starts = range(len(there) - len(asked) + 1)
    return (
        past.device == "cuda" and bool(asked) and any(there[at : at + len(asked)] == asked for at in starts)
    )


def _of_kind(kind: Kind, devices: Devices) -> Devices:
    """The devices as a kind of task uses them: what trains nothing generates on all of them, also where roles are apart."""
    return devices if kind == "train" else replace(devices, generating=devices.gpus)


def _as_many(past: Past, devices: Devices) -> Devices:
    """The devices, as many as a result was made on; as they are, where it does not say, or on this machine."""
    if devices.unit == "seconds" or not past.generating or not past.training:
        return devices
    return replace(
        devices, generating=past.generating, training=past.training, tensor_parallel=past.tensor_parallel
    )


def _models(spec: Spec) -> Iterator[Model]:
    def root(start: Start) -> Model:
        return start.model if isinstance(start, FromModel) else start.experiment.model

    for arm in spec.study.arms:
        yield root(arm.checkpoint)


def _key(model: Model) -> str:
    return _text(model_payload(model, 0)["model"])


def _text(payload: Any) -> str:
    return canonical_json(payload)
