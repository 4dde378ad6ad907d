"""Models sharded on the simulated device: PyTorch's collectives and FSDP2 in; the same over the CPU's memory out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param

from tests.devices.module import NAME


def shared(run: Callable[..., Any]) -> torch.library.Library:
    """Lets processes exchange tensors of the device by gloo; `run` does an operation on the CPU's views of its memory."""
    dist.Backend.default_device_backend_map[NAME] = "gloo"
    dist.Backend.backend_capability["gloo"].append(NAME)
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        warnings.filterwarnings("ignore", ".*verriding a previously registered kernel")
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("c10d::") and torch._C._dispatch_has_kernel_for_dispatch_key(
                name, "PrivateUse1"
            ):
                op = getattr(torch.ops.c10d, name.removeprefix("c10d::")).default
                library.impl(name.removeprefix("c10d::"), partial(run, op), "PrivateUse1")
    _fsdp_init._move_states_to_device = _moved
    for name in ("alloc_storage", "free_storage"):
        setattr(_fsdp_param, name, partial(_kept, getattr(_fsdp_param, name)))
    return library


def _moved(parameters: list[torch.nn.Parameter], buffers: list[torch.Tensor], device: torch.device) -> None:
    """Puts tensors on the device in place, which PyTorch only does by itself between devices that it knows."""
    for tensor in (*parameters, *buffers):
        if tensor.device != device and not tensor.is_meta:
            made = tensor.detach().to(device)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            torch.utils.swap_tensors(tensor, made)


def _kept(resize: Callable[[torch.Tensor], None], tensor: torch.Tensor) -> None:
    """What is freed there keeps its memory, which is borrowed from the CPU."""
    if tensor.device.type != NAME:
        resize(tensor)
