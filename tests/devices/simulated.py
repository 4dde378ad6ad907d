"""A second device without hardware: the CPU's memory and kernels under a device of their own, `sim`, in; what a GPU would
refuse is refused.

A tensor there is a real one of PyTorch's open device key, over memory that a CPU tensor shares with it through DLPack.
Each operation that is not made of others runs on the CPU's views of that memory, so that results are the CPU's to
the bit. Tensors of both devices in one operation are refused where CUDA refuses them, and so are NumPy views and the
other device's random generators. What a GPU would be waited for is counted.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.devices.module import NAME, DeviceModule
from tests.devices.sharing import shared

aten = torch.ops.aten
_HOST, _THERE = 1, 12
"""DLPack's numbers of the CPU and of an extension's device."""
_READS = frozenset(("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim"))
"""Operations whose result, or its size, the program waits for."""
_PLACES = frozenset(("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index"))
"""Operations that take indices from the CPU, too."""
_FILLS = frozenset(("index_put_", "index_put", "_index_put_impl_", "masked_fill_", "masked_fill", "fill_"))
"""Operations that take a value of no dimension from the CPU, too."""
_LOOKS = (
    "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex",
    "set_.source_Tensor", "set_.source_Storage_storage_offset",
)  # fmt: skip
"""What only looks at a tensor's memory in another way: the CPU's definitions hold for any device."""

waits: Counter[str] = Counter()
"""How often the program has waited for the device, by what it asked for."""

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_libraries: list[torch.library.Library] = []


def _over(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """The same memory as a tensor of the other device; each keeps it alive."""
    capsule = torch._C._to_dlpack(tensor)
    # The struct begins with the data's address, then the device's kind.
    ctypes.c_int32.from_address(
        _pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
    ).value = device
    return torch._C._from_dlpack(capsule)


def _there(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _refuse_others(op: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises as CUDA does where what comes in beside the device's tensors is the CPU's."""
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != NAME:
        raise RuntimeError(f"Expected a '{NAME}' generator, found one of '{generator.device.type}'")
    pointwise = torch.Tag.pointwise in op.tags and not name.startswith("_foreach")
    for number, argument in enumerate(op._schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        for tensor in tree_iter(value):
            if not isinstance(tensor, torch.Tensor) or _there(tensor):
                continue
            scalar = tensor.ndim == 0 and argument.alias_info is None
            if scalar and (pointwise or (name in _FILLS and argument.name in ("value", "values"))):
                continue
            if name in _PLACES and argument.name == "indices":
                continue
            raise RuntimeError(
                f"Expected all tensors to be on the same device: {op} got `{argument.name}` on {tensor.device}"
            )


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """One operation, by the CPU's definition."""
    name = op._schema.name.partition("::")[2]
    _refuse_others(op, name, args, kwargs)
    masked = name in _PLACES and any(one is not None and one.dtype == torch.bool for one in args[1])
    unsized = name == "repeat_interleave" and kwargs.get("output_size") is None
    waits[name] += name in _READS or masked or unsized
    pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def here(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == NAME else value
        if not _there(value):
            return value
        if id(value) not in pairs:
            # What is empty may be about to grow, which borrowed memory cannot.
            host = _over(value, _HOST) if value.numel() else torch.empty_like(value, device="cpu")
            pairs[id(value)] = (value, host)
        return pairs[id(value)][1]

    with torch._C._AutoDispatchBelowAutograd():
        found = op(*tree_map(here, args), **tree_map(here, kwargs))
        for own, host in pairs.values():
            if own.shape != host.shape:
                own.set_(_over(host, _THERE))
    given = {id(host): own for own, host in pairs.values()}

    def back(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return given[id(value)] if id(value) in given else _over(value, _THERE)

    return tree_map(back, found)


def _copied(source: torch.Tensor, goal: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """The numbers of one tensor written into the other, either of which may be on either device."""
    waits["copy to the CPU"] += not _there(goal)
    waits["copy from the CPU"] += not (_there(source) or non_blocking)
    with torch._C._AutoDispatchBelowAutograd():
        held = _over(goal, _HOST) if _there(goal) else goal
        held.copy_(_over(source, _HOST) if _there(source) else source)
    return goal


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention by the kernel that the CPU would choose, differentiable: of itself the device has the plain one alone."""
    parts = [_over(part.detach(), _HOST) for part in (query, key, value)]
    mask = None if attn_mask is None else _over(attn_mask.detach(), _HOST)
    rest: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    chosen = torch._fused_sdp_choice(*parts, attn_mask=mask, enable_gqa=enable_gqa, **rest)
    if chosen == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value:
        return aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _by_others_elsewhere(name: str) -> bool:
    """Whether the CPU has a kernel of its own for what is made of other operations on other devices."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CPU") and any(
        has(name, f"Composite{kind}Autograd") for kind in ("Implicit", "Explicit")
    )


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def install() -> None:
    """Makes the device known to PyTorch, once in a process and before its first backward pass."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME, DeviceModule())
    every, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_run, "PrivateUse1")
    host = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    for name in _LOOKS:
        own.impl(name, partial(_operation(name).redispatch, host), "PrivateUse1")
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        if name != full and _by_others_elsewhere(full):
            own.impl(name, partial(_run, _operation(name)), "PrivateUse1")
    own.impl("_copy_from", _copied, "PrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        own.impl("scaled_dot_product_attention", _attention, key)
    _libraries.extend((every, own, shared(_run)))


@contextmanager
def simulated() -> Iterator[Counter[str]]:
    """While the device is used; how often it has been waited for since. Skips the test where CUDA is used instead."""
    if not _libraries:
        pytest.skip("CUDA itself is here")
    before = torch.__future__.get_swap_module_params_on_conversion()
    # As between the CPU and CUDA, a parameter that is moved stays the same object, and ties between parameters hold.
    torch.__future__.set_swap_module_params_on_conversion(True)
    waits.clear()
    try:
        yield waits
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
