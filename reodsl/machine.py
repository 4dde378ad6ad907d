"""This machine's own measures: cores, memory and free disk, as far as the process may use them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Measures:
    """Cores that the process may use, bytes of memory it may have, and bytes free on the disk of its results."""

    cores: int
    memory: int
    disk: int


def measure(place: Path) -> Measures:
    """Return the measures of this machine, with results at `place`, which need not exist yet."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    there = place.resolve()
    while not there.exists() and there != there.parent:
        there = there.parent
    return Measures(cores, _memory(), shutil.disk_usage(there).free)


def _memory() -> int:
    """Return the machine's memory, or what a container leaves of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            whole = min(whole, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return whole
