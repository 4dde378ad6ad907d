"""Measure the time that work took, by the clock and on processors with all child processes, and its peak memory.

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
_TIME_FIELDS = slice(11, 15)
"""The fields of a process's `stat` after its name that hold its own time in both modes, and that of its ended children."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of the clock, and processor seconds, from arbitrary starting points."""

    clock: float
    processor: float


def now() -> Moment:
    """Return this moment."""
    return Moment(time.perf_counter(), processor_seconds())


def time_spans(phase: str, *spans: tuple[Moment, Moment]) -> dict[str, float]:
    """Sum the spans from one moment to another.

    Args:
        phase: The name of the phase.
        *spans: The first and last moment of each span.

    Returns:
        `seconds_PHASE` and `processor_PHASE`.
    """
    return {
        f"seconds_{phase}": sum(end.clock - begin.clock for begin, end in spans),
        f"processor_{phase}": sum(max(0.0, end.processor - begin.processor) for begin, end in spans),
    }


def processor_seconds() -> float:
    """Return the processor seconds of this process and all its descendants.

    On other systems than Linux, descendants that still run do not count.

    Returns:
        Seconds.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    below = _time_below("self") if _has_children() else 0.0
    return time.process_time() + children.ru_utime + children.ru_stime + below


def _has_children() -> bool:
    """Return whether this process has children, which is much faster than listing them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _time_below(process: str) -> float:
    """Return the processor seconds of a process's running descendants."""
    seconds = 0.0
    for children in _PROCESSES.glob(f"{process}/task/*/children"):
        with suppress(OSError, ValueError):
            for child in children.read_text().split():
                fields = (_PROCESSES / child / "stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[_TIME_FIELDS])) / os.sysconf("SC_CLK_TCK") + _time_below(child)
    return seconds


_STATUS, _CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def mark_peak() -> bool:
    """Begin to measure peaks anew; False if the system cannot (anything but Linux)."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        _CLEAR_PEAK.write_text("5")
    except OSError:
        return False
    return True


def peak_memory(device: str) -> int | None:
    """Return the most bytes in use at once since `mark_peak`: of this process's memory, or what its tensors had of its GPU.

    None if that is unknown. Other processes, such as a server that generates, are not in it.
    """
    if device != "cpu":
        torch = sys.modules.get("torch")
        uses_gpu = torch is not None and torch.cuda.is_initialized()
        return int(torch.cuda.max_memory_allocated()) if torch is not None and uses_gpu else None
    try:
        lines = _STATUS.read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return None
