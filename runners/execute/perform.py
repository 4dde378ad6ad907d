"""Do one task in this process: from an order to an outcome, and a result in the store."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, cast

import reodsl
from reodsl.diagnostics import Diagnostic, Problem, error, first_line
from reodsl.graph.job import Job, Progress, Resources, Runner
from reodsl.graph.task import Task
from reodsl.interrupts import import_whole
from reodsl.price.machine import processor
from reodsl.store.external import hub_commits
from reodsl.store.files import storage_problem, write_atomic
from reodsl.store.live import Teller, live_place
from reodsl.store.manifest import PLACE, read_record
from reodsl.store.store import Store
from runners.machine.clock import mark_peak, now, peak_memory, time_spans
from runners.machine.process import ProcessDied
from runners.models.bounds import RELOAD_REMEDY
from runners.sandbox import lacking

Status = Literal["done", "busy", "damaged", "failed", "died"]


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that a process needs to do a task."""

    task: Task  # the task to do
    runner: str  # `module:function`
    key: str  # digest of `material`
    material: dict[str, Any]  # everything that identifies the result
    inputs: dict[str, str]  # keys in the store, by role
    store: Path  # the store's folder
    folder: Path  # where the spec's relative paths start
    resources: Resources = field(default_factory=Resources)  # the task's share of the machines
    contents: dict[str, str] = field(default_factory=dict)  # digests of what the task reads of its inputs


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an order.

    `busy`: another process is at it. `damaged`: the inputs with the keys in `damaged` are not what was stored.
    `died`: this process, or another that the task needs, went away. `seconds` is None when the result was already there.
    """

    status: Status
    seconds: float | None = None
    damaged: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


# One thread a process: two processes whose threads spin cost each other far more than they gain, and the order of
# a sum, so the last bits of a result, would depend on the number of threads. Beside a GPU there are more
# (`threads_beside`).
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    # transformers would fetch kernels for some architectures, and run them.
    "USE_HUB_KERNELS": "NO",
    # Progress is shown in one place, ours.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
# What took less than this to make is not waited for until it is on the disk: making it anew costs less than that wait.
SYNC_SECONDS = 1.0
_GRADES = ("train", "sample", "evaluate")
_PACKAGES = ("torch", "transformers", "numpy", "polars", "math-verify", "ray")


def perform_order(order: Order, progress: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Do the task unless its result exists or another process works at the task.

    The result becomes visible as a whole or not at all. Any exception of the runner comes back as diagnostics; an
    interruption is passed on after cleaning up, and the work folder stays for the next attempt.

    Args:
        order: the task with its runner, inputs, store and resources.
        progress: called with each report of progress.
    """
    store = Store(order.store)
    try:
        with store.lock(order.key) as locked:
            if not locked:
                return Outcome("busy")
            if store.get(order.key) is not None:
                return Outcome("done")
            damaged = tuple(key for key in dict.fromkeys(order.inputs.values()) if store.damage(key))
            if damaged:
                return Outcome("damaged", damaged=damaged)
            return _run(order, store, progress)
    except Problem as caught:
        return Outcome("failed", diagnostics=caught.diagnostics)


def load(reference: str) -> Runner:
    """Load the function named `module:function`."""
    module, _, name = reference.partition(":")
    return cast(Runner, getattr(import_whole(module), name))


def _run(order: Order, store: Store, progress: Callable[[Progress], None]) -> Outcome:
    """Run the task's runner and commit its result; return an outcome for every failure."""
    work, out = store.work(order.key), store.begin(order.key)
    began, marked = now(), mark_peak()
    live = Teller(store.root, order.key, order.task.id)

    def tell(step: Progress) -> None:
        live.tell(step)
        progress(step)

    try:
        runner = load(order.runner)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(order.resources.threads)
        inputs = {role: store.path(key) for role, key in order.inputs.items()}
        runner(Job(order.task, inputs, out, work, order.folder, tell, order.resources))
        took = time_spans("task", (began, now()))
        seconds = took["seconds_task"]
        processor = (
            took["processor_task"]
            if order.resources.trainers == 1 and order.resources.engine == "embedded"
            else None
        )
        provenance = _describe(
            order, work, seconds, processor, peak_memory(order.resources.device) if marked else None
        ) | {"hub": _commits(order, store)}
        store.commit(order.key, out, order.material, provenance, seconds >= SYNC_SECONDS)
        return Outcome("done", seconds)
    except Problem as caught:
        # The folder of a result that is not made is taken away: nobody would find it.
        named = tuple(
            replace(diagnostic, where=order.task.id)
            if (diagnostic.where or "").startswith(str(out))
            else diagnostic
            for diagnostic in caught.diagnostics
        )
        return Outcome("died" if isinstance(caught, ProcessDied) else "failed", diagnostics=named)
    except BaseException as caught:
        if type(caught).__module__ == "pyo3_runtime":
            # The tokenizers library panics, on a text that nobody tried, with what is no Exception.
            message = f"the model's tokenizer cannot be used: {first_line(caught)}"
            return Outcome(
                "failed", diagnostics=(error("E0803", message, where=order.task.id, help=RELOAD_REMEDY),)
            )
        if not isinstance(caught, Exception):
            raise
        refusal = storage_problem(caught, store.root)
        diagnostics = refusal.diagnostics if refusal else (_unexpected(order, store, caught),)
        return Outcome("failed", diagnostics=diagnostics)
    finally:
        give_back_freed()
        store.abandon(out)
        live_place(store.root, order.key).unlink(missing_ok=True)
        if work.is_dir() and not any(work.iterdir()):
            store.forget_work(order.key)


def _unexpected(order: Order, store: Store, caught: Exception) -> Diagnostic:
    """Return the diagnostic for an exception that no runner foresaw, its traceback kept beside the results."""
    path = store.root / "errors" / f"{order.key}.txt"
    try:
        write_atomic(path, "".join(traceback.format_exception(caught)).encode())
        notes: tuple[str, ...] = (f"the traceback is in {path}",)
    except OSError:
        notes = ()
    words = first_line(caught, "")
    return error(
        "E0990",
        f"the task ended in {type(caught).__name__}" + (f": {words}" if words else ""),
        where=order.task.id,
        notes=notes,
        help="this looks like a defect of reodsl or of a runner; running again goes on where the task stopped",
    )


def _describe(
    order: Order, work: Path, seconds: float, processor: float | None, peak: int | None
) -> dict[str, Any]:
    """Return the circumstances of a result for reports, prices and people; they are in no identity."""
    served = {package: " and ".join(versions) for package, versions in read_record(work / PLACE).items()}
    multiplied = sys.modules.get("runners.models.products")
    return {
        "task": order.task.id,
        "inputs": order.inputs,
        "contents": order.contents,
        "seconds": round(seconds, 3),
        "unconfined": lacking() if order.task.kind in _GRADES else None,
        "processor_seconds": None if processor is None else round(processor, 3),
        "peak_memory": peak,
        "device": order.resources.device,
        "device_model": device_model(order.resources.device),
        "products": multiplied.describe_products()
        if multiplied and order.resources.device == "cpu"
        else None,
        "threads": order.resources.threads,
        "engine": order.resources.engine,
        "trainers": order.resources.trainers,
        "parts": order.resources.parts,
        "engines": order.resources.engines,
        "tensor_parallel": order.resources.tensor_parallel,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "versions": {**_versions(), **served},
    }


def _commits(order: Order, store: Store) -> dict[str, str]:
    """Return the commits of the hub repositories that a result depends on, by repository."""
    commits = hub_commits(order.material["payload"])
    for key in order.inputs.values():
        read = store.get(key)
        before = read.provenance.get("hub") if read is not None else None
        commits |= before if isinstance(before, dict) else {}
    return dict(sorted(commits.items()))


@cache
def _versions() -> Mapping[str, str]:
    """Return the versions of what computes, by package; looked up once a process."""
    versions = {"reodsl": reodsl.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def device_model(device: str) -> str:
    """Return the name of the processor, or of the GPU as its driver has it; empty if torch sees none."""
    if device == "cpu":
        return processor()
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else ""


def give_back_freed() -> None:
    """Give freed memory back between tasks; without effect where the C library has no `malloc_trim`.

    A worker does one task after another, and glibc would keep each one's high-water mark: on the quickstart, 2 GB
    a process; torch keeps a GPU's, which the next task's servers would lack. Within a task its heap is left alone,
    since giving pages back and taking them again costs time.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # A sharded model refers to itself, and would stay there until Python happens to look for such rings.
        gc.collect()
        torch.cuda.empty_cache()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
