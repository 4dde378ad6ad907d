"""Out of memory while generating: what the engine was doing in, a diagnostic with numbers and what to change out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from reodsl.diagnostics import problem
from reodsl.price.show import memory
from runners.engine.embedded.settings import EmbeddedSettings


@contextmanager
def room(doing: str, settings: EmbeddedSettings) -> Iterator[None]:
    """Runs a piece of generation, `doing` in words. Raises E0816 when memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not (
            isinstance(fault, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(fault)
        ):
            raise
        words = (str(fault).strip().splitlines() or ["no more memory"])[0][:200]
        notes = [words, f"caches of keys and values may have {memory(settings.cache_bytes)}"]
        if settings.device != "cpu":
            free, total = torch.get_device_module(settings.device).mem_get_info(settings.device)
            notes.append(f"the device has {memory(total)}, of which {memory(free)} are free")
        raise problem(
            "E0816",
            f"memory ran out while {doing}",
            where=settings.device,
            notes=notes,
            help="shorten the longest response, see what else uses the device, or write `engine = sglang`",
        ) from fault
