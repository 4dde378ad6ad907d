"""A training process of rank 1 or higher: it reads a job and its rank from standard input, trains, and reports failures.

Run as `python -P -m runners.train.follower FD`; pickled reports go to the file descriptor FD. The process ends when its
parent ends.
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
    """The work of one process: `body` is a function as `module:function`, called with the job and the ranks.

    All processes open the file `meeting` to find each other. `local` is the index of this process on its machine.
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


def explain_end(rank: int, world: int, reason: str, notes: Sequence[str] = ()) -> ProcessDied:
    """Return the diagnostic of a training process that ended early.

    Args:
        rank: The rank of the process.
        world: The number of processes that train together.
        reason: Why the process ended.
        notes: Further lines, e.g. the end of its traceback.
    """
    return explain_death(f"process {rank} of {world} that train together", reason, notes=notes)


def ignore_progress(progress: Progress) -> None:
    """Ignore a report of progress: rank 0 alone reports progress."""


def function(body: str) -> Callable[[Job, Ranks], None]:
    """Import and return the function that `body` names as `module:function`."""
    module, _, name = body.partition(":")
    return getattr(importlib.import_module(module), name)


def follow(work: FollowerJob, host: str | None = None) -> Problem | None:
    """Run a follower's job to its end.

    Args:
        work: The job, and the rank of this process.
        host: The address of this machine for the other ranks, as for `join_ranks`.

    Returns:
        The diagnostic of a failure, or None if the job finished.
    """
    torch.set_num_threads(work.job.resources.threads)
    try:
        store = SharedFile(work.meeting, work.world, COMPUTE_TIMEOUT)
        with join_ranks(work.rank, work.world, store, work.device, host, work.job.resources.parts) as ranks:
            function(work.body)(work.job, ranks)
    except Problem as caught:
        return caught
    except Exception as caught:
        reason = "".join(traceback.format_exception_only(caught)).strip()
        return explain_end(work.rank, work.world, reason, traceback.format_exc().splitlines()[-_TRACE_LINES:])
    return None


_TRACE_LINES = 12
"""Lines of a traceback that a report contains."""


def main() -> None:
    """Read the job from standard input, run it, and report twice to the parent process.

    The first report is None, and says that the packages and the job are loaded. The second is the diagnostic of a
    failure, or None.
    """
    with os.fdopen(int(sys.argv[1]), "wb", buffering=0) as out:
        work: FollowerJob = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _send_report(out, None)
        _send_report(out, follow(work))


def _send_report(out: Any, value: object) -> None:
    """Write a pickled value to a binary file, after its length in 8 bytes, big-endian."""
    pickled = pickle.dumps(value)
    out.write(len(pickled).to_bytes(8, "big") + pickled)


def _end_with_parent() -> None:
    """End this process when standard input closes, because the parent process has ended."""
    # Not through `sys.stdin`: Python aborts at its own end when a thread waits inside it.
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    # The module's classes are pickled by its name, not as those of `__main__`.
    from runners.train.follower import main as started

    started()
