"""Give a long-lived process's free memory back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back_freed() -> None:
    """Return freed memory between tasks; without effect where the C library has no `malloc_trim`.

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
