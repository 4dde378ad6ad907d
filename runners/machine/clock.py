"""Time that work took, by the clock and on processors with all processes that it started, and the most memory it had.

Processor time says what a task needs whatever else a machine does meanwhile, which time by the clock does not.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROCESSES = Path("/proc")
_SPENT = slice(11, 15)
"""The fields of a process's `stat` after its name that hold its own time in both modes, and that of its ended children."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of the clock, and those that processors spent, from points that do not matter."""

    clock: float
    processor: float


def now() -> Moment:
    """Return this moment."""
    return Moment(time.perf_counter(), processor_seconds())


def spent(part: str, *spans: tuple[Moment, Moment]) -> dict[str, float]:
    """Sum the spans from one moment to another, as `seconds_PART` and `processor_PART`."""
    return {
        f"seconds_{part}": sum(end.clock - begin.clock for begin, end in spans),
        f"processor_{part}": sum(max(0.0, end.processor - begin.processor) for begin, end in spans),
    }


def processor_seconds() -> float:
    """Seconds of processors that this process has spent, with all that it started and they did.

    Where the system does not tell of processes that still run (anything but Linux), those that ended count alone.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    below = _time_below("self") if _has_children() else 0.0
    return time.process_time() + ended.ru_utime + ended.ru_stime + below


def _has_children() -> bool:
    """Return whether this process has any, which is asked far quicker than which ones."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _time_below(process: str) -> float:
    """Return the time of all that a process started and they did, as far as it is still there."""
    seconds = 0.0
    for children in _PROCESSES.glob(f"{process}/task/*/children"):
        with suppress(OSError, ValueError):
            for child in children.read_text().split():
                fields = (_PROCESSES / child / "stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[_SPENT])) / os.sysconf("SC_CLK_TCK") + _time_below(child)
    return seconds


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def mark_peak() -> bool:
    """Begin to measure peaks anew; False where the system cannot (anything but Linux)."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_memory(device: str) -> int | None:
    """Return the most bytes in use at once since `mark_peak`: of this process's memory, or what its tensors had of its GPU.

    None if that is unknown. Other processes, such as a server that generates, are not in it.
    """
    if device != "cpu":
        torch = sys.modules.get("torch")
        here = torch is not None and torch.cuda.is_initialized()
        return int(torch.cuda.max_memory_allocated()) if torch is not None and here else None
    try:
        lines = _STATUS.read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return None
