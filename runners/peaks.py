"""Measure the most memory that a task had at once: a process does one after another, and keeps its own peak of all."""

from __future__ import annotations

import sys
from pathlib import Path

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
