"""Measure the wall-clock time, the processor time with all child processes, and the peak memory of work.

Unlike wall-clock time, processor time does not depend on what else the machine does at the same time.
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
"""Fields of `/proc/PID/stat` after the name: user and system time of the process, and of its ended children, in ticks."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment: seconds of the clock, and processor seconds of this process, each since an arbitrary start."""

    clock: float
    processor: float


def now() -> Moment:
    """Return the present moment, from which `time_spans` measures."""
    return Moment(time.perf_counter(), processor_seconds())


def time_spans(phase: str, *spans: tuple[Moment, Moment]) -> dict[str, float]:
    """Return the total time of spans.

    Args:
        phase: Name of the work, which is part of the keys.
        *spans: (first moment, last moment) of each span.

    Returns:
        Wall-clock seconds under `seconds_PHASE`, and processor seconds under `processor_PHASE`.
    """
    return {
        f"seconds_{phase}": sum(end.clock - begin.clock for begin, end in spans),
        f"processor_{phase}": sum(max(0.0, end.processor - begin.processor) for begin, end in spans),
    }


def processor_seconds() -> float:
    """Return the processor seconds that this process and its descendants have used.

    Children that have ended and were waited for always count. Running descendants count only on Linux.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    descendants = _time_below("self") if _has_children() else 0.0
    return time.process_time() + children.ru_utime + children.ru_stime + descendants


def _has_children() -> bool:
    """Return whether this process has children that it has not waited for.

    This is much faster than reading the files of all children.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _time_below(process: str) -> float:
    """Return the processor seconds of all running descendants of a process, which is a process id or `self`."""
    seconds = 0.0
    for children in _PROCESSES.glob(f"{process}/task/*/children"):
        with suppress(OSError, ValueError):
            for child in children.read_text().split():
                fields = (_PROCESSES / child / "stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[_TIME_FIELDS])) / os.sysconf("SC_CLK_TCK") + _time_below(child)
    return seconds


_STATUS, _CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def mark_peak() -> bool:
    """Reset the peak memory that `peak_memory` measures, and return whether the peak of the process was reset.

    Only Linux can reset the peak of a process. The peak on the GPU is reset, too, if torch uses a GPU.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        _CLEAR_PEAK.write_text("5")
    except OSError:
        return False
    return True


def peak_memory(device: str) -> int | None:
    """Return the peak memory of this process since `mark_peak`, in bytes.

    Args:
        device: `cpu` for the process's memory, else a GPU for the memory of its tensors on the GPU.

    Returns:
        Bytes, in which other processes such as a server do not count; None if the system does not tell them, or if the
        device is a GPU and torch has not used a GPU.
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
