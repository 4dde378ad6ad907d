"""Start, watch and end the processes that train a stage with this one.

On Ray they are actors, which may be on other machines; elsewhere plain processes of this one.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job
from runners.engine.watch import looking
from runners.seats import shared_devices
from runners.train.actors import Actors, on_ray
from runners.train.follower import Fault, Part, function, gone, silent
from runners.train.processes import Processes
from runners.train.ranks import joined

_FAREWELL, _WORDS, _LOOK = 20.0, 5.0, 1.0
"""Seconds that others have to end after this process has, to say why they ended early, and between two looks at them."""


class Others(Protocol):
    """The other processes, ranks 1 and up.

    `devices` has the devices that Ray gave each rank, this process's among them; none where Ray has nothing to do with it.
    `store` is where all meet; `host` the address at which they reach this process, None where all are on one machine.
    """

    devices: dict[int, list[object]]
    store: Store
    host: str | None

    def dead(self) -> dict[int, str]:
        """Why each rank that has ended without a result did so, in words, by rank."""
        ...

    def faults(self) -> dict[int, Fault]:
        """What ranks that failed have reported, by rank."""
        ...

    def stop(self, patience: float) -> None:
        """Ends those that still run after so many seconds."""
        ...


class LostError(RuntimeError):
    """Another process has ended while this one worked on; why is asked of it."""


class ElsewhereError(RuntimeError):
    """Another process met an error that it did not foresee; its traceback is a note."""


def together(job: Job, body: str) -> None:
    """Calls `body` (`module:function`, of a job and ranks) in `job.resources.trainers` processes, this one the first.

    Raises what the body raises here, or why another process failed: its Problem, E0938 where it went away without a
    word, or an ElsewhereError.
    """
    world = job.resources.trainers
    with tempfile.TemporaryDirectory(prefix="reodsl-meeting-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "file"
        parts = [
            Part(replace(job, progress=silent), body, rank, world, file, 0 if on_ray() else rank)
            for rank in range(world)
        ]
        others: Others = Actors(parts) if on_ray() else Processes(parts)
        shared = shared_devices(job.resources, others.devices)
        job = replace(job, resources=replace(job.resources, devices=shared))
        patience = 0.0
        try:
            with watched(others), joined(0, world, others.store, parts[0].device, others.host) as ranks:
                function(body)(job, ranks)
            patience = _FAREWELL
        except Problem:
            raise
        except Exception as caught:
            blame = _blame(others, world)
            if blame is None:
                raise
            raise blame from caught
        finally:
            others.stop(patience)


@contextmanager
def watched(others: Others) -> Iterator[None]:
    """Lets this process's engine stop when another process ends, and its collectives on GPUs; between processors they do so
    themselves.
    """
    over, lost = threading.Event(), threading.Event()

    def notice() -> None:
        if lost.is_set():
            raise LostError("another process that trains has ended")

    def watch() -> None:
        while not over.wait(_LOOK):
            if others.dead() or others.faults():
                lost.set()
                # What the others said is read first; a collective that gloo ends needs no help.
                if not over.wait(_WORDS) and dist.is_initialized() and "nccl" in dist.get_backend_config():
                    dist.distributed_c10d._abort_process_group()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        with looking(notice):
            yield
    finally:
        over.set()
        thread.join()


def _blame(others: Others, world: int) -> Exception | None:
    """Why the others failed, when it is theirs; None when none of them ended."""
    until = time.monotonic() + _WORDS
    while time.monotonic() < until and not (others.faults() or others.dead()):
        time.sleep(0.05)
    # Where one is killed, the rest report that it no longer answers, and may do so first.
    time.sleep(0.5)
    for rank, words in others.dead().items():
        return gone(rank, world, words)
    faults = others.faults()
    for fault in faults.values():
        if fault.diagnostics:
            return Problem(*fault.diagnostics)
    for rank, fault in faults.items():
        blamed = ElsewhereError(f"process {rank} of {world}: {fault.words}")
        blamed.add_note(fault.trace)
        return blamed
    return None
