"""Run a single task in this process: from an order to an outcome, and to a result in the store."""

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
from pathlib import Path
from typing import Any, Literal, cast

import reodsl
from reodsl.diagnostics import Diagnostic, Problem, error, first_line
from reodsl.graph.job import Job, Progress, Resources, Runner
from reodsl.graph.task import Task
from reodsl.interrupts import import_whole
from reodsl.price.machine import processor
from reodsl.store.external import hub_commits, package_version
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
    """The outcome of an order."""

    status: Status
    """`done`; `busy`: another process computes the result; `damaged`: inputs are damaged; `failed`; or `died`: a process
    of the task ended unexpectedly."""
    seconds: float | None = None
    """Duration; None if the result existed already, or the task is not done."""
    damaged: tuple[str, ...] = ()
    """Keys of damaged inputs."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Reasons of a failure."""
    progress: Progress | None = None
    """Last reported progress of a task that is done."""


# A process has one thread: threads of several processes would slow each other down, and the order of a sum, and so the
# last bits of a result, would depend on the number of threads. A process on a GPU has more (`threads_beside`).
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    # Otherwise transformers would download kernels for some architectures, and run them.
    "USE_HUB_KERNELS": "NO",
    # The run shows progress itself.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
# A result that took less time is not waited for until it is on the disk: computing it again costs less than waiting.
SYNC_SECONDS = 1.0
_GRADES = ("train", "sample", "evaluate")
_PACKAGES = ("torch", "transformers", "numpy", "polars", "math-verify", "ray")


def perform_order(order: Order, progress: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Run a task and store its result, if no result exists and no other process works on it.

    The result appears in the store completely or not at all. An exception of the task's function is returned as
    diagnostics. An interruption is raised again after cleaning up, and the work folder stays for the next attempt.

    Args:
        order: The task with its function, inputs, store and resources.
        progress: Function that receives each report of progress.

    Returns:
        An outcome with the status `busy` if another process works on the result, `done` if the result exists now,
        `damaged` with the keys of damaged inputs, or `failed` or `died` with the reason.
    """
    store = Store(order.store)
    try:
        with store.lock(order.key) as locked:
            if not locked:
                return Outcome("busy")
            if store.get(order.key) is not None:
                return Outcome("done")
            damaged = tuple(key for key in dict.fromkeys(order.inputs.values()) if store.damage(key))
            return Outcome("damaged", damaged=damaged) if damaged else _perform_locked(order, store, progress)
    except Problem as caught:
        return Outcome("failed", diagnostics=caught.diagnostics)


def load(reference: str) -> Runner:
    """Import and return the function that `module:function` names."""
    module, _, name = reference.partition(":")
    return cast(Runner, getattr(import_whole(module), name))


def _perform_locked(order: Order, store: Store, progress: Callable[[Progress], None]) -> Outcome:
    """Run the function of a task and store its result; the caller holds the lock of the result's key.

    Args:
        order: The task with its function, inputs and resources.
        store: The store.
        progress: Function that receives each report of progress.

    Returns:
        Outcome `done`, or `failed` or `died` with the reason.
    """
    work, out = store.work(order.key), store.begin(order.key)
    start, is_peak_known = now(), mark_peak()
    status = Teller(store.root, order.key, order.task.id)

    def tell(step: Progress) -> None:
        status.tell(step)
        progress(step)

    try:
        runner = load(order.runner)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(order.resources.threads)
        inputs = {role: store.path(key) for role, key in order.inputs.items()}
        runner(Job(order.task, inputs, out, work, order.folder, tell, order.resources))
        spans = time_spans("task", (start, now()))
        seconds = spans["seconds_task"]
        processor = (
            spans["processor_task"]
            if order.resources.trainers == 1 and order.resources.engine == "embedded"
            else None
        )
        provenance = _describe_origin(
            order, work, seconds, processor, peak_memory(order.resources.device) if is_peak_known else None
        ) | {"hub": _list_commits(order, store)}
        store.commit(order.key, out, order.material, provenance, seconds >= SYNC_SECONDS)
        return Outcome("done", seconds, progress=status.latest)
    except Problem as caught:
        # The folder of the unfinished result is removed below, so diagnostics name the task instead.
        located = tuple(
            replace(diagnostic, where=order.task.id)
            if (diagnostic.where or "").startswith(str(out))
            else diagnostic
            for diagnostic in caught.diagnostics
        )
        return Outcome("died" if isinstance(caught, ProcessDied) else "failed", diagnostics=located)
    except BaseException as caught:
        if type(caught).__module__ == "pyo3_runtime":
            # A panic of the tokenizers library is a BaseException, but no Exception.
            message = f"the model's tokenizer cannot be used: {first_line(caught)}"
            return Outcome(
                "failed", diagnostics=(error("E0803", message, where=order.task.id, help=RELOAD_REMEDY),)
            )
        if not isinstance(caught, Exception):
            raise
        refusal = storage_problem(caught, store.root)
        diagnostics = refusal.diagnostics if refusal else (_explain_unexpected(order, store, caught),)
        return Outcome("failed", diagnostics=diagnostics)
    finally:
        give_back_freed()
        store.abandon(out)
        live_place(store.root, order.key).unlink(missing_ok=True)
        if work.is_dir() and not any(work.iterdir()):
            store.forget_work(order.key)


def _explain_unexpected(order: Order, store: Store, caught: Exception) -> Diagnostic:
    """Return E0990 for an unexpected exception of a task, and write its traceback into the store's folder `errors`.

    Args:
        order: Order of the task.
        store: The store.
        caught: The exception.
    """
    path = store.root / "errors" / f"{order.key}.txt"
    try:
        write_atomic(path, "".join(traceback.format_exception(caught)).encode())
        notes: tuple[str, ...] = (f"the traceback is in {path}",)
    except OSError:
        notes = ()
    message = first_line(caught, "")
    return error(
        "E0990",
        f"the task ended in {type(caught).__name__}" + (f": {message}" if message else ""),
        where=order.task.id,
        notes=notes,
        help="this looks like a defect of reodsl or of a runner; run the command again to continue",
    )


def _describe_origin(
    order: Order, work: Path, seconds: float, processor_seconds: float | None, peak_bytes: int | None
) -> dict[str, Any]:
    """Return facts on how a result was computed, such as its time, memory, device and versions, for reports and prices.

    These facts are not part of the result's key.

    Args:
        order: The task.
        work: The task's work folder, in which engines record their versions.
        seconds: Duration of the task.
        processor_seconds: Processor time of the task; None if several processes or servers worked.
        peak_bytes: Peak memory of the task; None if it is not known.
    """
    engines = {package: " and ".join(versions) for package, versions in read_record(work / PLACE).items()}
    multiplied = sys.modules.get("runners.models.products")
    return {
        "task": order.task.id,
        "inputs": order.inputs,
        "contents": order.contents,
        "seconds": round(seconds, 3),
        "unconfined": lacking() if order.task.kind in _GRADES else None,
        "processor_seconds": None if processor_seconds is None else round(processor_seconds, 3),
        "peak_memory": peak_bytes,
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
        "versions": {**_list_versions(), **engines},
    }


def _list_commits(order: Order, store: Store) -> dict[str, str]:
    """Return the commits of all hub repositories that a result depends on, by the name of the repository.

    They are the repositories in the task's own payload, and those that the inputs' manifests record.
    """
    commits = hub_commits(order.material["payload"])
    for key in order.inputs.values():
        manifest = store.get(key)
        earlier = manifest.provenance.get("hub") if manifest is not None else None
        commits |= earlier if isinstance(earlier, dict) else {}
    return dict(sorted(commits.items()))


@cache
def _list_versions() -> Mapping[str, str]:
    """Return the versions of reodsl, Python and the packages that compute, by name."""
    installed = {
        package: version for package in _PACKAGES if (version := package_version(package)) is not None
    }
    return {"reodsl": reodsl.__version__, "python": platform.python_version(), **installed}


def device_model(device: str) -> str:
    """Return the name of the processor for the device `cpu`, else of the GPU; empty if torch is not loaded or has no GPU."""
    if device == "cpu":
        return processor()
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else ""


def give_back_freed() -> None:
    """Give memory that a finished task has freed back to the system, and to the GPU.

    A process runs several tasks, and glibc would keep the memory of the largest: 2 GB for each process on the quickstart.
    Torch would keep GPU memory that the servers of the next task need. If the C library has no `malloc_trim`, only the
    GPU's memory is given back.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # A sharded model has references to itself, so that only the garbage collector frees it.
        gc.collect()
        torch.cuda.empty_cache()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
