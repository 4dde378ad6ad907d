"""A process that trains with the first one: reads a job and its rank, and reports what went wrong.

Run as `python -P -m runners.train.follower FD`; reports go to the file descriptor FD, pickled. It ends with its parent.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reodsl.diagnostics import Diagnostic, Problem, problem
from reodsl.graph.job import Job, Progress
from runners.meeting import SharedFile
from runners.train.ranks import COMPUTE, Ranks, joined


@dataclass(frozen=True, slots=True)
class FollowerJob:
    """One process's part: `body` is `module:function`, called with the job and the ranks.

    The ranks meet at `meeting`; `local` counts on its machine.
    """

    job: Job
    body: str
    rank: int
    world: int
    meeting: Path
    local: int

    @property
    def device(self) -> torch.device:
        """The device of this process: its own of the machine's, or the only one that it sees."""
        kind = self.job.resources.device
        return torch.device(kind) if kind == "cpu" else torch.device(kind, self.local)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a process ended early: diagnostics where it knew, else its last words and the traceback."""

    diagnostics: tuple[Diagnostic, ...]
    words: str
    trace: str = ""


def explain_end(rank: int, world: int, words: str) -> Problem:
    """Return the problem of a process that ended without a word of its own."""
    return problem(
        "E0938",
        f"process {rank} of {world} that train together ended: {words}",
        notes=["the last saved step is kept"],
        help="run again to go on from there; a process that the system kills has usually used up the memory: see how much"
        " is free, and lower `microbatch`",
    )


def ignore_progress(progress: Progress) -> None:
    """Report nothing: the first process alone reports progress."""


def function(body: str) -> Callable[[Job, Ranks], None]:
    """Return the function that `module:function` names."""
    module, _, name = body.partition(":")
    return getattr(importlib.import_module(module), name)


def follow(part: FollowerJob, host: str | None = None) -> Fault | None:
    """Do a part to its end; `host` as for `joined`."""
    torch.set_num_threads(part.job.resources.threads)
    try:
        store = SharedFile(part.meeting, part.world, COMPUTE)
        with joined(part.rank, part.world, store, part.device, host, part.job.resources.parts) as ranks:
            function(part.body)(part.job, ranks)
    except Problem as caught:
        return Fault(caught.diagnostics, str(caught))
    except Exception as caught:
        words = "".join(traceback.format_exception_only(caught)).strip()
        return Fault((), words, "".join(traceback.format_exception(caught)))
    return None


def main() -> None:
    """Read the part, report that this process is ready, do the part, and report how it ended."""
    with os.fdopen(int(sys.argv[1]), "wb", buffering=0) as out:
        part: FollowerJob = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _tell(out, "ready")
        _tell(out, follow(part))


def _tell(out: Any, value: object) -> None:
    pickled = pickle.dumps(value)
    out.write(len(pickled).to_bytes(8, "big") + pickled)


def _end_with_parent() -> None:
    """End this process when standard input closes: the parent is gone, and nobody is left to train for."""
    # Not through `sys.stdin`: Python aborts at its own end when a thread waits inside it.
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    # The module's classes are pickled by its name, not as those of `__main__`.
    from runners.train.follower import main as started

    started()
