"""Take an optimizer's step on the host of a GPU: moments lie in its memory, and the GPU has weights and gradients alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from runners.train.sharding import local


class HostOptimizer(torch.optim.Optimizer):
    """An optimizer of copies on the host, for parameters on another device.

    `step` copies this process's part of each weight and gradient to the host, steps there, and copies the weights back.
    `state` is that of the inner optimizer, by the parameters of the device; its tensors are on the host, and of sharded
    parameters they are this process's rows.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        settings: dict[str, Any],
        build: Callable[..., torch.optim.Optimizer],
    ) -> None:
        """`build` is given the copies and `settings` by name. Its step must look at single numbers, as AdamW's does."""
        super().__init__(parameters, dict(settings))
        self._copies = [_copy_for(local(parameter)) for parameter in parameters]
        self._inner = build(self._copies, **settings)
        for parameter, copy in zip(parameters, self._copies, strict=True):
            # One dictionary, of which both optimizers know.
            self.state[parameter] = self._inner.state[copy]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step, as the inner optimizer takes it. The device's weights are what counts before and after."""
        assert closure is None
        (group,), (inner,) = self.param_groups, self._inner.param_groups
        inner["lr"] = group["lr"]
        for parameter, copy in zip(group["params"], self._copies, strict=True):
            copy.copy_(local(parameter))
            copy.grad = None if parameter.grad is None else local(parameter.grad).to("cpu")
        self._inner.step()
        for parameter, copy in zip(group["params"], self._copies, strict=True):
            copy.grad = None
            local(parameter).copy_(copy)


def _copy_for(weight: Tensor) -> Tensor:
    """Room on the host for a weight, which a GPU reaches without a detour."""
    return torch.empty(weight.shape, dtype=weight.dtype, device="cpu", pin_memory=weight.is_cuda)
