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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job, Progress
from runners.machine.process import ProcessDied, explain_death
from runners.machine.rendezvous import SharedFile
from runners.train.ranks import COMPUTE_TIMEOUT, Ranks, join_ranks


@dataclass(frozen=True, slots=True)
class FollowerJob:
    """The work of one process: `body` is `module:function`, called with the job and the ranks.

    The ranks meet at the file `rendezvous`; `local` is the index of this process on its machine.
    """

    job: Job
    body: str
    rank: int
    world: int
    meeting: Path
    local: int

    @property
    def device(self) -> torch.device:
        """The device of this process: the machine's device number `local`, or the CPU."""
        kind = self.job.resources.device
        return torch.device(kind) if kind == "cpu" else torch.device(kind, self.local)


def explain_end(rank: int, world: int, why: str, notes: Sequence[str] = ()) -> ProcessDied:
    """Return the diagnostic of a process that ended early while several trained together."""
    return explain_death(f"process {rank} of {world} that train together", why, notes=notes)


def ignore_progress(progress: Progress) -> None:
    """Report nothing: the first process alone reports progress."""


def function(body: str) -> Callable[[Job, Ranks], None]:
    """Return the function that `module:function` names."""
    module, _, name = body.partition(":")
    return getattr(importlib.import_module(module), name)


def follow(work: FollowerJob, host: str | None = None) -> Problem | None:
    """Run a follower's job to its end, and return why it ended early; `host` as for `join_ranks`."""
    torch.set_num_threads(work.job.resources.threads)
    try:
        store = SharedFile(work.meeting, work.world, COMPUTE_TIMEOUT)
        with join_ranks(work.rank, work.world, store, work.device, host, work.job.resources.parts) as ranks:
            function(work.body)(work.job, ranks)
    except Problem as caught:
        return caught
    except Exception as caught:
        words = "".join(traceback.format_exception_only(caught)).strip()
        return explain_end(work.rank, work.world, words, traceback.format_exc().splitlines()[-_TRACE_LINES:])
    return None


_TRACE_LINES = 12
"""Lines of a traceback that a report contains."""


def main() -> None:
    """Read the job, report that nothing is wrong yet, run the job, and report how it ended."""
    with os.fdopen(int(sys.argv[1]), "wb", buffering=0) as out:
        work: FollowerJob = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _tell(out, None)
        _tell(out, follow(work))


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
