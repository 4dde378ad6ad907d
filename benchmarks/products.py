"""Measure float32 matrix products of both libraries on one core, at the shapes of models: GFLOP/s of processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runners.models.products import describe_products, pack_linear

SHAPES = {
    "hidden 128, to the MLP": (2048, 128, 1024),
    "hidden 128, out of the MLP": (2048, 512, 128),
    "SmolLM2-135M, to the MLP": (2048, 576, 3072),
    "SmolLM2-135M, out of the MLP": (2048, 1536, 576),
    "SmolLM2-135M, to the logits": (256, 576, 49152),
}
"""Rows, inputs and outputs."""
LEAST_SECONDS = 0.25


def measure_rate(work: Callable[[], Any], flops: float, rounds: int) -> float:
    """Return the best GFLOP/s of `rounds` measurements of some work, in processor time."""
    work()
    best = 0.0
    for _ in range(rounds):
        times, start = 0, time.process_time()
        while (used := time.process_time() - start) < LEAST_SECONDS:
            work()
            times += 1
        best = max(best, times * flops / used / 1e9)
    return best


def by_torch(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` by torch's default library."""
    return functional.linear(x, weight)


def by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` by oneDNN, as layers in training do."""
    return functional.linear(x.to_mkldnn(), weight).to_dense()


def measure_peak(rounds: int = 3) -> float:
    """Return the best GFLOP/s of both libraries at 1024 x 1024 x 1024: what a core can do."""
    x, weight = torch.randn(1024, 1024), torch.randn(1024, 1024)
    works = (partial(by_torch, x, weight), partial(pack_linear(weight, None, "onednn"), x))
    return max(measure_rate(work, 2 * 1024**3, rounds) for work in works)


def measure(rounds: int) -> dict[str, Any]:
    """Return the core's rate, the library that this processor takes, and rates by shape.

    Returns:
        `peak` and the rates in GFLOP/s. For each shape: `training`, a forward and a backward pass by torch and by
        oneDNN; and `generation`, a forward pass with a weight that stays as it is, by both.
    """
    torch.set_num_threads(1)
    shapes = {name: measure_shape(*shape, rounds) for name, shape in SHAPES.items()}
    return {"peak": round(measure_peak(rounds)), "chosen": describe_products(), "shapes": shapes}


def measure_shape(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, list[int]]:
    """Return the rates of both libraries for a product `[rows, inputs] -> [rows, outputs]`, as `measure` describes."""
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    slope, flops = torch.randn(rows, outputs), 2.0 * rows * inputs * outputs
    with torch.no_grad():
        packed = [pack_linear(weight, None, "torch"), pack_linear(weight, None, "onednn")]
        generation = [measure_rate(partial(product, x), flops, rounds) for product in packed]
    inputs_of = (x.requires_grad_(), weight.requires_grad_())

    def train(product: Callable[[Tensor, Tensor], Tensor]) -> None:
        torch.autograd.grad(product(x, weight), inputs_of, slope)

    training = [measure_rate(partial(train, product), 3 * flops, rounds) for product in (by_torch, by_onednn)]
    return {"training": list(map(round, training)), "generation": list(map(round, generation))}
