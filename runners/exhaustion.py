"""Recognise faults that mean out of memory, and say in words what memory there is."""

from __future__ import annotations

import os

import torch

from reodsl.diagnostics import first_line
from reodsl.price.show import memory

SAID = (
    "DefaultCPUAllocator",
    "could not create a memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)
"""What torch and the libraries below it say of it."""


def exhausted(fault: BaseException) -> bool:
    """Whether memory ran out: torch's own error, Python's, or what the libraries below them say of it."""
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or any(said in str(fault) for said in SAID)


def said(fault: BaseException) -> str:
    """The first line of the fault's own words."""
    return first_line(fault, "no more memory")


def there_is(device: torch.device) -> str:
    """What memory the device has, or the machine where it is a processor."""
    if device.type != "cpu":
        free, total = torch.get_device_module(device).mem_get_info(device)
        return f"the device has {memory(total)}, of which {memory(free)} are free"
    return f"the machine has {memory(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"
