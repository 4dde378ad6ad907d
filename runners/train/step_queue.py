"""Make the data of later steps while this one trains, and keep on the disk what waits for its turn."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import polars as pl
import torch
from safetensors import safe_open
from torch import Tensor

from reodsl.diagnostics import first_line, problem
from runners.engine.protocol import cancellable, check_cancelled
from runners.train.batch import TrainBatch
from runners.train.checkpoint import save_tensors
from runners.train.gather import StepData

Step = TypeVar("Step")
POLL_SECONDS = 1.0
"""Seconds between two checks whether the step has still to be waited for."""


class QueueClosed(Exception):
    """The queue was closed while a step was being made."""


class StepQueue(Generic[Step]):
    """Steps by number, each made once, in the order in which they are requested.

    An engine has one set of weights at a time: new ones may come when nothing is being made (`drain`).
    """

    def __init__(self, make: Callable[[int], Step], waiting: Mapping[int, Step], overlap: bool) -> None:
        """`make` gets a step's number; `waiting` are steps made by an earlier attempt.

        Without `overlap` steps are made before `request` returns.
        """
        self._make = make
        self._steps: dict[int, Future[Step]] = {}
        self._threads = ThreadPoolExecutor(1, "rollouts") if overlap else None
        self._over = threading.Event()
        for number, step in waiting.items():
            self._steps[number] = Future()
            self._steps[number].set_result(step)

    def request(self, numbers: Iterable[int]) -> None:
        """Make the steps of these numbers that are neither made nor being made."""
        for number in numbers:
            if number in self._steps:
                continue
            if self._threads is not None:
                self._steps[number] = self._threads.submit(copy_context().run, self._watched, number)
                continue
            self._steps[number] = Future()
            self._steps[number].set_result(self._make(number))

    def get(self, number: int) -> Step:
        """Return a step, which stays until `forget`. Raises what making it raised."""
        future = self._steps[number]
        while not wait([future], POLL_SECONDS).done:
            check_cancelled()
        return future.result()

    def drain(self) -> None:
        """Wait until nothing is being made."""
        for number in list(self._steps):
            self.get(number)

    def forget(self, before: int) -> None:
        """Drop the steps whose numbers are below `before`."""
        for number in [number for number in self._steps if number < before]:
            del self._steps[number]

    def close(self) -> None:
        """Cancel the step that is being made, at the engine's next check."""
        self._over.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _watched(self, number: int) -> Step:
        """Make a step in the thread, which `close` cancels."""
        with cancellable(self._look):
            return self._make(number)

    def _look(self) -> None:
        if self._over.is_set():
            raise QueueClosed


def save_waiting(folder: Path, done: int, waiting: Mapping[int, StepData]) -> None:
    """Write the data of the steps that are made but not yet trained on, after the first `done` steps.

    The file of the previous call stays until the next call: the saved training state that belongs to it may be the
    last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for number, step in waiting.items():
        tensors |= {f"{number}/{f.name}": getattr(step.batch, f.name) for f in fields(TrainBatch)}
        tensors[f"{number}/table"] = _table_bytes(step.table)
        facts[str(number)] = {"metrics": dict(step.metrics), "seconds": dict(step.seconds)}
    path = _path(folder, done)
    save_tensors(path, tensors, facts)
    every = sorted(folder.glob("*.safetensors"))
    before = every[: every.index(path)]
    for old in every:
        # Files of later steps are of an attempt that ended before those counted.
        if old not in (path, *before[-1:]):
            old.unlink(missing_ok=True)


def load_waiting(folder: Path, step: int) -> dict[int, StepData]:
    """Return what `save_waiting` wrote after `step` steps; nothing before the first step. Raises E0939 if unreadable."""
    if not step:
        return {}
    try:
        with safe_open(_path(folder, step), framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            return {int(name): _read_waiting(file, name, facts[name]) for name in sorted(facts, key=int)}
    except Exception as fault:
        raise problem(
            "E0939",
            "the rollouts that an interrupted stage has left cannot be read",
            where=str(_path(folder, step)),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove the stage's work folder, and it begins again",
        ) from fault


def _read_waiting(file: Any, name: str, facts: Mapping[str, Any]) -> StepData:
    batch = {column.name: file.get_tensor(f"{name}/{column.name}") for column in fields(TrainBatch)}
    table = io.BytesIO(file.get_tensor(f"{name}/table").numpy().tobytes())
    return StepData(
        TrainBatch(**batch), facts["metrics"], pl.read_parquet(table, glob=False), facts["seconds"]
    )


def _table_bytes(frame: pl.DataFrame) -> Tensor:
    """Return a table as the bytes of a Parquet file."""
    parquet = io.BytesIO()
    frame.write_parquet(parquet)
    return torch.frombuffer(bytearray(parquet.getvalue()), dtype=torch.uint8)


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step:08d}.safetensors"
