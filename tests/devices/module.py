"""What PyTorch asks of a device beside its tensors, for the simulated one: streams, memory, random states, and collectives
between processes, which go through the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

NAME = "sim"
MEMORY = 8 << 30
"""Bytes that the device says it has."""


class Event:
    """A mark in a stream; everything before it is done."""

    def record(self, stream: Any = None) -> Event:
        return self

    def wait(self, stream: Any = None) -> None:
        return None

    def synchronize(self) -> None:
        return None


class Stream:
    """A queue of work, each piece of which is done at once."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.priority = priority

    def wait_event(self, event: Event) -> None:
        return None

    def wait_stream(self, stream: Stream) -> None:
        return None

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def synchronize(self) -> None:
        return None


class DeviceModule:
    """As `torch.cuda`, of one device."""

    Event, Stream = Event, Stream

    def __init__(self) -> None:
        self.synchronized = 0
        self.chosen: list[int] = []

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def set_device(self, device: Any) -> None:
        # As CUDA's, which wants a number here and nowhere else.
        index = device if isinstance(device, int) else torch.device(device).index
        if index is None:
            raise ValueError(
                f"Expected a torch.device with a specified index or an integer, but got:{device}"
            )
        self.chosen.append(index)

    def manual_seed_all(self, seed: int) -> None:
        return None

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def current_stream(self, device: Any = None) -> Stream:
        return Stream()

    @contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        yield

    def synchronize(self, device: Any = None) -> None:
        self.synchronized += 1

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return MEMORY // 2, MEMORY

    def max_memory_allocated(self, device: Any = None) -> int:
        return 0

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_name(self, device: Any = None) -> str:
        return "simulated"
