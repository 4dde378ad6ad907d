"""Make the data of later steps while the current step trains, and save the data that is not trained on yet."""

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
"""Seconds between two checks for cancellation while waiting for a step."""


class QueueClosed(Exception):
    """The queue was closed while a step was being made."""


class StepQueue(Generic[Step]):
    """Data of steps by step number, made in the order of requests, each step once.

    An engine has only one version of the weights. Call `drain` before the weights change, so that all requested steps
    are made with the version at their request.
    """

    def __init__(self, make: Callable[[int], Step], waiting: Mapping[int, Step], overlap: bool) -> None:
        """Start with the steps that an earlier attempt has made.

        Args:
            make: Makes the data of a step from its number.
            waiting: Data that was made by an earlier attempt, by step number.
            overlap: Whether to make steps in a thread; if False, `request` returns when the steps are made.
        """
        self._make = make
        self._steps: dict[int, Future[Step]] = {}
        self._threads = ThreadPoolExecutor(1, "rollouts") if overlap else None
        self._closed = threading.Event()
        for step_number, step in waiting.items():
            self._steps[step_number] = Future()
            self._steps[step_number].set_result(step)

    def request(self, steps: Iterable[int]) -> None:
        """Make the steps of these numbers, except steps that were requested already.

        With `overlap` the steps are made later in a thread; otherwise they are made when this returns.
        """
        for step in steps:
            if step in self._steps:
                continue
            if self._threads is not None:
                self._steps[step] = self._threads.submit(copy_context().run, self._make_cancellable, step)
                continue
            self._steps[step] = Future()
            self._steps[step].set_result(self._make(step))

    def get(self, step: int) -> Step:
        """Wait for a requested step, and return its data; the data stay in the queue until `forget`.

        Raises:
            Exception: The exception that making the step raised, or that of a cancellation.
        """
        future = self._steps[step]
        while not wait([future], POLL_SECONDS).done:
            check_cancelled()
        return future.result()

    def drain(self) -> None:
        """Wait until all requested steps are made."""
        for step in list(self._steps):
            self.get(step)

    def forget(self, before: int) -> None:
        """Drop the steps whose numbers are below `before`."""
        for step in [step for step in self._steps if step < before]:
            del self._steps[step]

    def close(self) -> None:
        """Cancel all steps that are not made yet, and wait for the thread.

        The step that is being made ends at the engine's next check for cancellation.
        """
        self._closed.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _make_cancellable(self, step: int) -> Step:
        """Make a step in the queue's thread; `close` makes the engine's next check raise `QueueClosed`."""
        with cancellable(self._raise_if_closed):
            return self._make(step)

    def _raise_if_closed(self) -> None:
        """Raise `QueueClosed` after `close`."""
        if self._closed.is_set():
            raise QueueClosed


def save_waiting(folder: Path, steps_done: int, waiting: Mapping[int, StepData]) -> None:
    """Write the data of steps that are made but not yet trained on.

    The file of the previous call is kept, because an interruption may leave the training state of the previous save.
    Older files, and files of later steps, are removed.

    Args:
        folder: The folder of these files.
        steps_done: The number of finished steps.
        waiting: The data by step number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for number, step in waiting.items():
        tensors |= {f"{number}/{f.name}": getattr(step.batch, f.name) for f in fields(TrainBatch)}
        tensors[f"{number}/table"] = _table_bytes(step.table)
        facts[str(number)] = {"metrics": dict(step.metrics), "seconds": dict(step.seconds)}
    path = _path(folder, steps_done)
    save_tensors(path, tensors, facts)
    files = sorted(folder.glob("*.safetensors"))
    earlier = files[: files.index(path)]
    for file in files:
        # A file of a later step is from an attempt that ended before it saved that step's state.
        if file not in (path, *earlier[-1:]):
            file.unlink(missing_ok=True)


def load_waiting(folder: Path, steps_done: int) -> dict[int, StepData]:
    """Return the data that `save_waiting` wrote after `steps_done` steps, by step number; no data for 0 steps.

    Raises:
        Problem: E0939, if the file cannot be read.
    """
    if not steps_done:
        return {}
    try:
        with safe_open(_path(folder, steps_done), framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            return {int(name): _read_waiting(file, name, facts[name]) for name in sorted(facts, key=int)}
    except Exception as fault:
        raise problem(
            "E0939",
            "the saved rollouts of an interrupted stage cannot be read",
            where=str(_path(folder, steps_done)),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove the stage's work folder to start the stage again",
        ) from fault


def _read_waiting(file: Any, name: str, facts: Mapping[str, Any]) -> StepData:
    """Return the data of a step from an open file of `save_waiting`.

    Args:
        file: The open file.
        name: The step number, which is the prefix of the names of tensors.
        facts: The step's metrics and seconds, from the header of the file.
    """
    batch = {column.name: file.get_tensor(f"{name}/{column.name}") for column in fields(TrainBatch)}
    table = io.BytesIO(file.get_tensor(f"{name}/table").numpy().tobytes())
    return StepData(
        TrainBatch(**batch), facts["metrics"], pl.read_parquet(table, glob=False), facts["seconds"]
    )


def _table_bytes(frame: pl.DataFrame) -> Tensor:
    """Return a table as the bytes of a Parquet file, [bytes]."""
    parquet = io.BytesIO()
    frame.write_parquet(parquet)
    return torch.frombuffer(bytearray(parquet.getvalue()), dtype=torch.uint8)


def _path(folder: Path, step: int) -> Path:
    """Return the file of the data that waits after `step` finished steps."""
    return folder / f"{step:08d}.safetensors"
