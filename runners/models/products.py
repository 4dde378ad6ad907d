"""Multiply matrices on a processor, by torch's own library (MKL, OpenBLAS) or by oneDNN."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from reodsl.diagnostics import problem

Library = Literal["torch", "onednn"]
Linear = Callable[[Tensor], Tensor]
"""A product `rows [n, in] -> rows [n, out]`."""
VARIABLE = "REODSL_PRODUCTS"
"""The environment variable that names the library of all products."""

_HALF = torch.bfloat16


class Products(NamedTuple):
    """The libraries that multiply float32 matrices on a processor."""

    training: Library
    """The library of layers that train or score; oneDNN converts both matrices for each product."""
    generation: Library
    """The library of the embedded engine; oneDNN converts a weight once."""


# By the processor's maker, and the instructions that torch uses. `make bench` measures both libraries at the shapes of
# models. It is a table and no timing at the start, because a resumed run has to repeat the last bits of its products.
_PRODUCTS = {
    # MKL has no AVX-512 code for this maker, and oneDNN has.
    ("AuthenticAMD", "AVX512"): Products("onednn", "onednn"),
    # Without AVX-512 the conversions of oneDNN cost more than they gain.
    ("AuthenticAMD", "AVX2"): Products("torch", "torch"),
}
_OTHERS = Products("torch", "onednn")


def choose_products(maker: str, instructions: str, named: str = "", onednn: bool = True) -> Products:
    """Return the libraries for a processor.

    Args:
        maker: The processor's maker, as in /proc/cpuinfo.
        instructions: The instructions that torch uses, as `torch.backends.cpu.get_cpu_capability()`.
        named: The library that `REODSL_PRODUCTS` names, or an empty text.
        onednn: Whether torch was built with oneDNN. If not, torch's own library is used for all products.

    Raises:
        Problem: E0975, `named` is not a library, or torch lacks it.
    """
    if named not in ("", *get_args(Library)):
        raise problem(
            "E0975",
            f"`{named}` is not a library that multiplies matrices",
            where=VARIABLE,
            help=f"write {VARIABLE}=onednn or {VARIABLE}=torch, or unset it",
        )
    if named == "onednn" and not onednn:
        raise problem(
            "E0975",
            "this torch was built without oneDNN",
            where=VARIABLE,
            help=f"unset {VARIABLE}, or write {VARIABLE}=torch",
        )
    if not onednn:
        return Products("torch", "torch")
    if named:
        library = cast(Library, named)
        return Products(library, library)
    return _PRODUCTS.get((maker, instructions), _OTHERS)


@cache
def products() -> Products:
    """Return the libraries that multiply matrices in this process.

    Raises:
        Problem: E0975, if `REODSL_PRODUCTS` names no library.
    """
    return choose_products(
        read_maker(),
        torch.backends.cpu.get_cpu_capability(),
        os.environ.get(VARIABLE, ""),
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    )


def read_maker(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the maker of this machine's processor, such as `AuthenticAMD`; an empty text if the file has none."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError):
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def describe_products() -> str:
    """Return which library multiplies on this processor, as a clause for `doctor` and results.

    Raises:
        Problem: E0975, if `REODSL_PRODUCTS` names no library.
    """
    training, generation = products()
    clause = f"{_NAMES[training]} multiplies"
    if training != generation:
        clause += f" in training, and {_NAMES[generation]} in the embedded engine"
    return f"{clause} ({read_maker() or 'unknown maker'}, {torch.backends.cpu.get_cpu_capability()})"


_NAMES: dict[Library, str] = {"torch": "torch's default library", "onednn": "oneDNN"}


def _by_onednn(x: Tensor) -> bool:
    """Return whether oneDNN multiplies a tensor's float32 rows in training."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and products().training == "onednn"


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T`, without a gradient.

    Args:
        x: [rows, in].
        weight: [out, in].

    Returns:
        [rows, out].
    """
    if not _by_onednn(x):
        return functional.linear(x, weight)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return product


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T + bias` with its gradient, by the library of training.

    Args:
        x: [..., in].
        weight: [out, in].
        bias: [out], or None.

    Returns:
        [..., out].
    """
    if not _by_onednn(x) or torch.is_autocast_enabled("cpu"):
        return functional.linear(x, weight, bias)
    return functional.linear(x.to_mkldnn(), weight, bias).to_dense()


class ProductLinear(nn.Linear):
    """A linear layer that multiplies by the library of training, in its backward pass too."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product of activations.

        Args:
            input: Activations, [..., in].

        Returns:
            Activations, [..., out].
        """
        return apply_linear(input, self.weight, self.bias)


def replace_linear(model: Any) -> None:
    """Let the linear layers of a model multiply by oneDNN, in place, if oneDNN is the library of training.

    Only modules of the exact class `nn.Linear` change.
    """
    if products().training == "torch":
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = ProductLinear


def pack_linear(weight: Tensor, bias: Tensor | None, library: Library | None = None) -> Linear:
    """Return a function that multiplies rows [n, in] by a constant weight, to rows [n, out].

    If oneDNN multiplies, the function has only a copy of the weight in oneDNN's layout. If oneDNN is chosen but cannot
    multiply on this device in this precision, torch multiplies.

    Args:
        weight: [out, in].
        bias: [out], or None.
        library: The library; None for oneDNN in bfloat16, and otherwise the library of generation.
    """
    chosen = library or ("onednn" if weight.dtype == _HALF else products().generation)
    if chosen == "onednn" and can_pack(weight.device, weight.dtype):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

        def multiply_packed(rows: Tensor) -> Tensor:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
            return product

        return multiply_packed

    return lambda rows: functional.linear(rows, weight, bias)


def pack_rounded(weight: Tensor, library: Library | None = None) -> Linear:
    """Return a function that rounds rows [n, in] and a weight to bfloat16, and multiplies them to float32 rows [n, out].

    A CPU multiplies and adds the rounded numbers in float32. A GPU multiplies in bfloat16, and the results are rounded to
    bfloat16 before they become float32.

    Args:
        weight: [out, in].
        library: As `pack_linear`.
    """
    if weight.device.type != "cpu":
        half = pack_linear(weight.to(_HALF), None, library)
        return lambda rows: half(rows.to(_HALF)).float()
    product = pack_linear(weight.to(_HALF).float(), None, library)
    return lambda rows: product(rows.to(_HALF).float())


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether oneDNN can multiply by packed weights.

    It can on a CPU in float32, and in bfloat16 if `computes_bfloat16`, if torch was built with the needed functions.
    """
    return (
        device.type == "cpu"
        and (dtype == torch.float32 or (dtype == _HALF and computes_bfloat16()))
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def computes_bfloat16() -> bool:
    """Return whether oneDNN multiplies in bfloat16 on this machine.

    The processor must support it, and the environment variable `ONEDNN_MAX_CPU_ISA` may forbid it.
    """
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_BITS = 4
"""The bits of a number of rows that may differ after the leading one: 16 numbers for each doubling."""


def round_up(rows: int) -> int:
    """Return the smallest number of at least `rows` that has at most five significant bits, e.g. 34 for 33."""
    step = 1 << max(rows.bit_length() - 1 - _BITS, 0)
    return -(-rows // step) * step


def pad_rows(x: Tensor) -> Tensor:
    """Pad a tensor on the CPU with rows of zeros to `round_up(rows)` rows; return tensors on other devices unchanged.

    Few different numbers of rows remain. This saves time because oneDNN prepares a product for each new shape. For a
    small model the preparation takes longer than the product. It took half of the products' time when the number of rows
    changed at each step.

    Args:
        x: [rows, ...].

    Returns:
        [round_up(rows), ...] on the CPU, else [rows, ...].
    """
    extra = round_up(len(x)) - len(x) if x.device.type == "cpu" else 0
    return functional.pad(x, (0, 0) * (x.dim() - 1) + (0, extra)) if extra else x
