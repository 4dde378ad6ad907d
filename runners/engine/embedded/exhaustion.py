"""Diagnose running out of memory while generating, with numbers and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from reodsl.diagnostics import problem
from reodsl.price.show import memory
from runners.engine.embedded.settings import EmbeddedSettings
from runners.exhaustion import exhausted, said, there_is


@contextmanager
def room(doing: str, settings: EmbeddedSettings) -> Iterator[None]:
    """Runs a piece of generation, `doing` in words. Raises E0816 when memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not exhausted(fault):
            raise
        notes = [said(fault), f"caches of keys and values may have {memory(settings.cache_bytes)}"]
        notes.append(there_is(torch.device(settings.device)))
        raise problem(
            "E0816",
            f"memory ran out while {doing}",
            where=settings.device,
            notes=notes,
            help="shorten the longest response, see what else uses the device, or write `engine = sglang`",
        ) from fault
