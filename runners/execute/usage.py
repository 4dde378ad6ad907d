"""Measure what a task used of this machine, and give freed memory back to it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from reodsl.price.machine import processor

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def device_model(device: str) -> str:
    """Return the name of the processor, or of the GPU as its driver has it; empty if torch sees none."""
    if device == "cpu":
        return processor()
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else ""


def mark() -> bool:
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
    """Return the most bytes in use at once since the mark: of this process's memory, or what its tensors had of its GPU.

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


def give_back_freed() -> None:
    """Give freed memory back between tasks; without effect where the C library has no `malloc_trim`.

    A worker does one task after another, and glibc would keep each one's high-water mark: on the quickstart, 2 GB
    a process; torch keeps a GPU's, which the next task's servers would lack. Within a task its heap is left alone,
    since giving pages back and taking them again costs time.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
