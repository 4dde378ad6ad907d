"""Settings of servers that take turns with a trainer on its devices."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from runners.engine.sglang.interpreter import interpreter, saves_memory
from runners.engine.sglang.kept import kept
from runners.engine.sglang.settings import Settings, fraction_beside

_LOG = logging.getLogger("reodsl.engine")
_KEPT = 0.5
"""Of what is free on a GPU: the share of a server that keeps it while the trainer works."""


def turns(settings: Settings, beside: float) -> Settings:
    """The settings of servers on devices that a trainer uses between rollouts.

    `beside` are bytes of a device that the trainer does not hold yet and will keep while servers generate. On a CPU no
    memory can be given back. On a GPU it can where SGLang's Python has `torch_memory_saver`. Raises E0820.
    """
    if settings.on_cpu:
        return replace(settings, in_turn=True)
    if not saves_memory(interpreter()):
        _LOG.warning(
            "SGLang's Python has no torch_memory_saver: servers keep half of what is free on a GPU while training runs;"
            " install it there, or place engines apart"
        )
        return replace(settings, in_turn=True, memory_fraction=_KEPT)
    keeping = kept()
    if keeping is not None:
        keeping.make_room()
    free, total = torch.cuda.mem_get_info()
    share = fraction_beside(free, total, beside)
    return replace(settings, in_turn=True, memory_saver=True, memory_fraction=share)
