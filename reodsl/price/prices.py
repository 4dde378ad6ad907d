"""Prices of all tasks of a spec, by their description and by past runs, and how long a run takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from reodsl.graph.lower import lower
from reodsl.graph.payload import engine_of, is_served, model_work
from reodsl.graph.task import Graph, Task
from reodsl.ir import Spec, canonical_json
from reodsl.ir.base import anonymous, values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.model import Architecture, Model
from reodsl.price.history import COMPUTES, Facts, History, MeasuredTask, TaskFacts
from reodsl.price.machine import COMPILE_SECONDS, Devices, devices_of, label_cluster
from reodsl.price.memory import Sizes, process_bytes, sizes_of
from reodsl.price.tasks import price_served, price_task
from reodsl.price.value import Price, Prices, Term

LIGHT_SECONDS: Mapping[str, float] = {"model": 4.0, "data": 0.2, "report": 8.0}
"""Seconds of tasks that need no device, by kind; other kinds take 0.2."""
LIGHT_BYTES: Mapping[str, float] = {"data": 100e3, "report": 6e6}
"""Bytes in the store of tasks that need no device, by kind; other kinds take 10 KB."""


def price(
    graph: Graph,
    spec: Spec,
    history: History | None = None,
    sizes: Mapping[str, Sizes] | None = None,
    cores: int = 1,
) -> Prices:
    """Price every task of a spec's graph.

    The first task that may start servers on GPUs also pays for the compilation of their kernels.

    Args:
        graph: tasks of the spec.
        spec: the spec.
        history: last results of tasks, whose lengths, seconds and memory replace assumptions.
        sizes: sizes of models whose weights are stored here and whose dimensions the spec does not declare, by name.
        cores: cores of this machine for tasks.
    """
    history = history or History()
    study = spec.study
    pricer = _Pricer(graph, spec, history, sizes or {})
    devices = pricer.place(study.cluster)
    tasks = {task.id: pricer.task(task) for task in graph.tasks}
    first = next((task.id for task in graph.tasks if pricer.compiles(task, tasks[task.id])), None)
    if first is not None:
        seconds = tasks[first].seconds
        tasks[first] = replace(tasks[first], seconds={**seconds, "start": seconds["start"] + COMPILE_SECONDS})
    return Prices(
        tasks=tasks,
        unit="seconds" if study.cluster is None else "gpu_hours",
        devices=devices.name if devices is not None else "",
        limit=study.limit,
        room=cores if study.cluster is None else max(task_price.gpus for task_price in tasks.values()),
    )


def choose_sharding(spec: Spec) -> dict[Cluster, Cluster]:
    """Choose `sharding` for each cluster that leaves it open: `cluster` (over all GPUs) or `node`.

    It is `node` if this saves at least 1% of the GPU hours of all trainings on the cluster and fits in memory. Prices
    are from the spec alone, since results of past runs would make the choice depend on the time of a run.

    Returns:
        For each cluster that leaves `sharding` open and declares its network, the cluster with the choice.
    """
    left_open = [
        cluster
        for cluster in values_of(spec.study, Cluster)
        if cluster.sharding == "auto" and cluster.hardware and cluster.hardware.network is not None
    ]
    if not left_open:
        return {}
    forms = {
        word: {cluster: cluster.model_copy(update={"sharding": word}) for cluster in left_open}
        for word in ("cluster", "node")
    }
    graph, chosen = lower(spec), forms["cluster"]
    spread, node = (price(_place_on(graph, form), spec).tasks for form in forms.values())
    for cluster in left_open:
        names = [task.id for task in graph.tasks if task.kind == "train" and task.cluster == cluster]
        peaks = [(peak, node[name].capacity or 0) for name in names for peak in node[name].memory.values()]
        needed, less = (
            sum(form[name].hours_a_step * form[name].steps for name in names) for form in (spread, node)
        )
        if less < 0.99 * needed and all(peak <= most for peak, most in peaks):
            chosen = chosen | {cluster: forms["node"][cluster]}
    return chosen


def _place_on(graph: Graph, clusters: Mapping[Cluster, Cluster]) -> Graph:
    """Return the graph with clusters replaced by others.

    Args:
        graph: tasks of the spec.
        clusters: new cluster by old cluster.
    """
    return Graph(
        tuple(
            replace(task, cluster=task.cluster and clusters.get(task.cluster, task.cluster))
            for task in graph.tasks
        )
    )


def lower_placed(spec: Spec) -> Graph:
    """Return the tasks of a spec, on clusters with a chosen `sharding`."""
    return _place_on(lower(spec), choose_sharding(spec))


class _Pricer:
    """The prices of a graph's tasks, with tasks of equal settings priced once."""

    def __init__(self, graph: Graph, spec: Spec, history: History, sizes: Mapping[str, Sizes]) -> None:
        """Prepare the sizes of the spec's models by canonical JSON, and empty caches.

        Args:
            graph: tasks of the spec.
            spec: the spec.
            history: last results of tasks.
            sizes: sizes of models that the spec does not declare, by name.
        """
        self.graph, self.history = graph, history
        self.place = cache(devices_of)
        self.models = {
            canonical_json(anonymous(model_work(model, 0)["model"])): (
                model,
                sizes_of(model) or sizes.get(model.name),
            )
            for model in spec.study.models
        }
        self.task_facts = TaskFacts(graph, history)
        self.estimates: dict[tuple[object, ...], Price] = {}
        # Canonical JSON by the id of a payload, and models by task: thousands of arms share both.
        self.contents: dict[int, str] = {}
        self.roots: dict[str, tuple[Model | None, Sizes | None]] = {}

    def task(self, task: Task) -> Price:
        """Return the price of a task, corrected by its last result or rehearsal if that ran on equal devices.

        The price is without amounts, and says why, if the cluster has no `hardware` or a model's sizes are unknown.
        """
        model, sizes = self._model(task)
        devices = self.place(task.cluster)
        if task.kind not in COMPUTES:
            return self._light(task, sizes, devices)
        if is_served(task.payload):
            return price_served(task.payload, self.task_facts.facts(task))
        if devices is None:
            lacks = "the cluster does not describe its GPUs: give it `hardware`"
            return Price(devices=label_cluster(task.cluster), unpriced=lacks)
        teacher = self.graph[task.inputs["teacher"]] if "teacher" in task.inputs else None
        other, teacher_sizes = self._model(teacher) if teacher is not None else (None, None)
        if sizes is None or (teacher is not None and teacher_sizes is None):
            unknown, role = (model, "the model") if sizes is None else (other, "the teacher")
            name = unknown.name if unknown is not None else role
            lacks = f"the sizes of {name} are not known: give it `dimensions`"
            return Price(gpus=devices.gpus, devices=devices.name, unpriced=lacks)
        words = model is not None and isinstance(model.source, Architecture)
        past = self.history.results.get(task.id) or self.history.rehearsed.get(task.id)
        if past is not None and not _ran_alike(past, task, devices):
            past = None
        # Thousands of arms may differ only in settings that no price depends on, so equal ones are priced once.
        facts, content = self.task_facts.facts(task), self._content(task)
        key = task.kind, content, facts, id(sizes), id(devices), words, id(teacher_sizes), id(past)
        if key not in self.estimates:

            def ask(payload: Mapping[str, Any], facts: Facts) -> Price:
                """Return the price of this task with other settings and sizes, by the formula.

                Args:
                    payload: settings of the task.
                    facts: lengths and counts of the task.
                """
                # A task that does not train generates on all devices.
                used = devices if task.kind == "train" else replace(devices, generating=devices.gpus)
                return price_task(task.kind, payload, sizes, facts, used, words, teacher_sizes)

            estimate = replace(ask(task.payload, facts), devices=devices.name, capacity=devices.memory)
            # A result of an earlier version of reodsl may have settings that no longer exist.
            with suppress(ValueError, KeyError):
                if past is not None:
                    before = ask(past.payload, replace(past.facts, prompt=facts.prompt))
                    ran = task.id in self.history.results
                    corrected = _correct(estimate, past, before)
                    estimate = replace(corrected, basis="result" if ran else "rehearsal")
            self.estimates[key] = estimate
        return self.estimates[key]

    def compiles(self, task: Task, estimate: Price) -> bool:
        """Return whether a task may be the first to start SGLang servers, which then compile their kernels.

        It is if the task generates with SGLang on GPUs, and no result of a past run or rehearsal is known.

        Args:
            task: the task.
            estimate: its price.
        """
        devices = self.place(task.cluster)
        on_gpus = devices is not None and devices.unit == "gpu_hours"
        past = self.history.results or self.history.rehearsed
        return on_gpus and not past and "generation" in estimate.seconds and engine_of(task) == "sglang"

    def _light(self, task: Task, sizes: Sizes | None, devices: Devices | None) -> Price:
        """Return the price of a task that needs no device, such as a data set or the report.

        Args:
            task: the task.
            sizes: sizes of the task's model, if it has a model of known sizes.
            devices: devices of the task's cluster, if known.
        """
        disk = LIGHT_BYTES.get(task.kind, 10e3)
        if task.kind == "model" and sizes is not None:
            width = devices.width if devices is not None else 2
            disk = float(sizes.parameters * width)
        seconds = self.history.light.get(task.id, LIGHT_SECONDS.get(task.kind, 0.2))
        # A cluster's GPUs are not paid for during these tasks; on this machine all time counts.
        is_paid = devices is not None and devices.unit == "seconds"
        return Price(seconds={"start": seconds}, disk=disk, gpus=1 if is_paid else 0)

    def _model(self, task: Task) -> tuple[Model | None, Sizes | None]:
        """Return the model that a task's weights descend from, and the model's sizes; None for what is unknown."""
        while task.kind != "model" and "start" in task.inputs:
            task = self.graph[task.inputs["start"]]
        if task.kind != "model":
            return None, None
        if task.id not in self.roots:
            self.roots[task.id] = self.models.get(canonical_json(task.payload["model"]), (None, None))
        return self.roots[task.id]

    def _content(self, task: Task) -> str:
        """Return a task's settings as canonical JSON, without settings that no price depends on."""
        number = id(task.payload)
        if number not in self.contents:
            self.contents[number] = canonical_json(_select_priced(task))
        return self.contents[number]


def _select_priced(task: Task) -> dict[str, Any]:
    """Return a payload without settings that no price depends on, such as seeds and the learning rate."""
    payload = {
        name: value for name, value in task.payload.items() if name not in ("seed", "replicate", "index")
    }
    if task.kind == "train":
        stage = payload["stage"]
        optim = stage["optim"]
        payload["stage"] = stage | {"optim": (optim["algorithm"], optim.get("on"))}
    return payload


def _ran_alike(past: MeasuredTask, task: Task, devices: Devices) -> bool:
    """Return whether a result is of the task's kind and model, and ran on devices of the same name.

    A training also needs the same numbers of generating and training GPUs. GPUs have the same name if the words of the
    cluster's name, such as `A100`, occur in sequence in the driver's name, such as `NVIDIA A100-SXM4-80GB`.

    Args:
        past: the task's last result.
        task: the task.
        devices: devices of the task now.
    """
    if past.kind != task.kind or past.payload.get("model") != task.payload.get("model"):
        return False
    if devices.unit == "seconds":
        return past.device == "cpu" and past.model == devices.model
    if task.kind == "train" and (past.generating, past.training) != (devices.generating, devices.training):
        return False
    words, wanted_words = (re.findall(r"[a-z0-9]+", name.lower()) for name in (past.model, devices.model))
    starts = range(len(words) - len(wanted_words) + 1)
    return (
        past.device == "cuda"
        and any(words[start : start + len(wanted_words)] == wanted_words for start in starts)
        and bool(wanted_words)
    )


def _correct(estimate: Price, past: MeasuredTask, before: Price) -> Price:
    """Return a price corrected by the task's last result: seconds and peak memory.

    Each term is scaled by its measured over its estimated seconds. If the result has no seconds by term, all terms get
    one factor. On this machine the difference of measured and estimated memory is added to the trainer and the engine,
    since one process is both. On GPUs only memory above the estimate is added, to the trainer.

    Args:
        estimate: price of the task with its present settings.
        past: last result of the task.
        before: price of the task with the settings of that result.
    """
    start, work = before.seconds["start"], before.total_seconds - before.seconds["start"]
    factors: dict[Term, float] = dict.fromkeys(before.seconds, 1.0)
    if past.terms:
        # If rollouts and training overlapped, the time besides their terms is not the time to start.
        start = start if before.overlaps else max(0.0, past.seconds - sum(past.terms.values()))
        for term, took in past.terms.items():
            if min(took, before.seconds.get(term, 0.0)) > 1e-6:
                factors[term] = took / before.seconds[term]
    elif work > 0:
        factors = dict.fromkeys(before.seconds, max(past.seconds - start, past.seconds / 4) / work)
    seconds = {term: value * factors.get(term, 1.0) for term, value in estimate.seconds.items()} | {
        "start": start
    }
    peaks = dict(estimate.memory)
    if past.peak is not None and estimate.capacity is None:
        beyond = past.peak - process_bytes(before.memory)
        peaks = {role: max(peak + beyond, peak / 4) for role, peak in peaks.items()}
    elif past.peak is not None and "trainer" in peaks:
        # A lower peak is ignored, since the measured batch may have been small.
        peaks["trainer"] += max(0.0, past.peak - before.memory["trainer"])
    return replace(estimate, seconds=seconds, memory=peaks, sync=estimate.sync * factors.get("training", 1.0))


@dataclass(frozen=True, slots=True)
class ElapsedTime:
    """The least time of a run."""

    seconds: float
    """Seconds from its start to its end."""
    longest: float
    """Seconds of the longest chain of dependent tasks, which no number of devices shortens."""
    devices: int
    """Number of GPUs, or of cores of this machine."""


def bound_elapsed(graph: Graph, prices: Prices, ids: Iterable[str]) -> ElapsedTime | None:
    """Return the least time in which some tasks can run; None if any of them has no price or asks a server.

    It is the time of their work spread evenly over all devices, or the time of the longest chain of dependent tasks if
    that is longer.

    Args:
        graph: tasks of the spec.
        prices: prices of all tasks.
        ids: ids of the tasks.
    """
    todo = set(ids)
    if prices.unpriced(todo) or any(prices.tasks[name].requests for name in todo):
        return None
    longest = _longest_chain(graph, prices, todo)
    work = sum(prices.tasks[name].total_seconds * prices.tasks[name].gpus for name in todo)
    return ElapsedTime(max(longest, work / prices.room), longest, prices.room)


def _longest_chain(graph: Graph, prices: Prices, todo: set[str]) -> float:
    """Return the seconds of the longest chain of dependent tasks; 0 without tasks.

    Args:
        graph: tasks of the spec.
        prices: prices of all tasks.
        todo: ids of the tasks that count.
    """
    ends: dict[str, float] = {}
    for task in graph.tasks:
        if task.id in todo:
            before = max((ends.get(source, 0.0) for source in task.inputs.values()), default=0.0)
            ends[task.id] = before + prices.tasks[task.id].total_seconds
    return max(ends.values(), default=0.0)
