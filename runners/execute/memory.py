"""Memory of a long-lived process: asks the C library to give what is free back to the system."""

from __future__ import annotations

import ctypes


def give_back_freed() -> None:
    """Return freed memory between tasks; without effect where the C library has no `malloc_trim`.

    A worker does one task after another, and glibc would keep each one's high-water mark: on the quickstart, 2 GB
    a process. Within a task its heap is left alone, since giving pages back and taking them again costs time.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
