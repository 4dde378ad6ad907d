"""Differentiable pieces of a decoder layer for CPU in float32: tensors in, tensors out, gradients written by hand.

PyTorch's default float32 product takes about twice the time of oneDNN's on the processors measured, in the
forward and in both backward products; the elementwise pieces are fused so that each makes few passes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` without a gradient, by oneDNN where it can; both may be strided."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return torch.nn.functional.linear(x, weight)


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Return `grad.T @ x`, the smaller of the two as the weight of the product: it is the one that is repacked."""
    if grad.shape[1] > x.shape[1]:
        return product(x.t(), grad.t()).t()
    return product(grad.t(), x.t())


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        return product(grad, weight.t()), _weight_gradient(grad, x)


class _LinearAdd(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, onto: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise.binary(x, onto, weight, None, "add")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        return product(grad, weight.t()), _weight_gradient(grad, x), grad


class _UnitRms(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        inverse = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)
        y = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        y, inverse = ctx.saved_tensors
        grad = grads[0]
        mean = torch.linalg.vecdot(grad, y).div_(y.shape[-1]).unsqueeze(-1)
        return torch.addcmul(grad, y, mean, value=-1).mul_(inverse), None


class _SwiGlu(Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, -1)
        active = torch.nn.functional.silu(gate)
        ctx.save_for_backward(both, active)
        return active * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        both, active = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        out = torch.empty_like(both)
        d_gate, d_up = out.chunk(2, -1)
        torch.mul(grads[0], active, out=d_up)
        torch.ops.aten.silu_backward.grad_input(grads[0] * up, gate, grad_input=d_gate)
        return out


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, turn: Tensor) -> Tensor:
        ctx.save_for_backward(turn)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (turn,) = ctx.saved_tensors
        pairs = torch.view_as_complex(grads[0].contiguous().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn.conj()).flatten(-2), None


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` for x [rows, in] and weight [out, in]."""
    return _Linear.apply(x, weight)


def linear_add(x: Tensor, weight: Tensor, onto: Tensor) -> Tensor:
    """Return `onto + x @ weight.T` in one pass, for `onto` [rows, out]."""
    return _LinearAdd.apply(x, weight, onto)


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """Return `x` over its root mean square along the last axis, as RMSNorm does before its weight."""
    return _UnitRms.apply(x, eps)


def swiglu(both: Tensor) -> Tensor:
    """Return `silu(gate) * up` for `both` [rows, 2 width], gate first; [rows, width]."""
    return _SwiGlu.apply(both)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate x [..., heads, dim], whose pairs are adjacent, by positions; `turn` is complex, broadcast to [..., dim / 2]."""
    return _Rotate.apply(x, turn)
