"""Optimizers on a device or its host, their learning-rate curve, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from reodsl.ir.training import Optimizer
from runners.train.sharding import full_tensor, to_local, wrap_rows


class HostOptimizer(torch.optim.Optimizer):
    """An optimizer of copies on the host, for parameters on another device.

    `step` copies this process's rows of each weight and gradient to the host, steps, and copies the weights back, by
    buffers that stay: memory that a GPU reaches is dear to make. `state` is that of the inner optimizer, by the
    parameters of the device; its tensors are on the host, and have this process's rows of sharded parameters.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        settings: dict[str, Any],
        build: Callable[..., torch.optim.Optimizer],
    ) -> None:
        """`build` is given the copies and `settings` by name. Its step must read single numbers, as AdamW's does."""
        super().__init__(parameters, dict(settings))
        self._copies = [_copy_for(to_local(parameter)) for parameter in parameters]
        self._slopes = [_copy_for(to_local(parameter)) for parameter in parameters]
        self._inner = build(self._copies, **settings)
        for parameter, copy in zip(parameters, self._copies, strict=True):
            # One dictionary, of which both optimizers know.
            self.state[parameter] = self._inner.state[copy]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step the inner optimizer. The device has the authoritative weights before and after."""
        assert closure is None
        (group,), (inner,) = self.param_groups, self._inner.param_groups
        inner["lr"] = group["lr"]
        devices = {to_local(parameter).device for parameter in group["params"]}
        for parameter, copy, slope in zip(group["params"], self._copies, self._slopes, strict=True):
            copy.copy_(to_local(parameter), non_blocking=True)
            if parameter.grad is not None:
                copy.grad = slope.copy_(to_local(parameter.grad), non_blocking=True)
        for device in devices:
            # All are on their way together, and waited for once.
            torch.get_device_module(device).synchronize()
        self._inner.step()
        for parameter, copy in zip(group["params"], self._copies, strict=True):
            copy.grad = None
            # The device's next step comes after this copy, and the host's next one after that.
            to_local(parameter).copy_(copy, non_blocking=True)


class ProcessorMuon(torch.optim.Muon):
    """Muon for a processor: its iteration multiplies in float32.

    torch's multiplies in bfloat16, which most processors emulate: twenty times slower, with last bits that differ from
    one processor to the next.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step with Nesterov's momentum.

        Source: Jordan et al. 2024, Muon.
        """
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if (gradient := parameter.grad) is None:
                    continue
                if not (state := self.state[parameter]):
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                average = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
                update = _orthogonalize(gradient.lerp(average, group["momentum"]), group)
                rows, columns = parameter.shape
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def _orthogonalize(matrix: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Return a matrix with the same singular vectors, whose singular values are all near 1 (Newton-Schulz iteration)."""
    a, b, c = group["ns_coefficients"]
    tall = matrix.size(0) > matrix.size(1)
    result = matrix.T if tall else matrix
    result = result / result.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = result @ result.T
        result = torch.addmm(result, torch.addmm(gram, gram, gram, beta=b, alpha=c), result, beta=a)
    return result.T if tall else result


def _copy_for(weight: Tensor) -> Tensor:
    """Return an empty tensor on the host for a weight, in memory that a GPU reaches directly."""
    return torch.empty(weight.shape, dtype=weight.dtype, device="cpu", pin_memory=weight.is_cuda)


def build_optimizers(model: Any, settings: Optimizer) -> list[torch.optim.Optimizer]:
    """Return an optimizer over all parameters; with `muon` Muon over the matrices of layers, and AdamW over the rest.

    Muon's momentum is `betas[0]`; embeddings, the output matrix, norms and biases go to `rest` (or, without it, to
    AdamW with the same settings). Each group keeps its full rate as `full_lr`. Adam and AdamW step `on` the host if the
    settings say so.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if settings.algorithm != "muon":
        kind = torch.optim.Adam if settings.algorithm == "adam" else torch.optim.AdamW
        parameters = [p for _, p in named]
        numbers: dict[str, Any] = {
            "lr": settings.lr,
            "betas": settings.betas,
            "eps": settings.eps,
            "weight_decay": settings.weight_decay,
            "fused": True,
        }
        # A processor's own memory is the host's.
        away = settings.on == "host" and any(p.device.type != "cpu" for p in parameters)
        optimizers: list[torch.optim.Optimizer] = [
            HostOptimizer(parameters, numbers, kind) if away else kind(parameters, **numbers)
        ]
    else:
        ends = {
            id(m.weight)
            for m in (model.get_input_embeddings(), model.get_output_embeddings())
            if m is not None
        }
        matrices = [p for _, p in named if p.ndim == 2 and id(p) not in ends]
        params = [p for _, p in named if p.ndim != 2 or id(p) in ends]
        rest = settings.rest or settings
        muon = torch.optim.Muon if all(p.is_cuda for p in matrices) else ProcessorMuon
        optimizers = [
            muon(matrices, lr=settings.lr, momentum=settings.betas[0], weight_decay=settings.weight_decay),
            torch.optim.AdamW(
                params, lr=rest.lr, betas=rest.betas, eps=rest.eps, weight_decay=rest.weight_decay, fused=True
            ),
        ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return optimizers


def set_learning_rate(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    """Set every group's rate to its full rate times `factor`.

    Args:
        optimizers: The optimizers.
        factor: The factor of the learning-rate curve, 0 to 1.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor


def optimizer_state(model: Any, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the optimizers' tensors, this process's rows of sharded tensors.

    Returns:
        Tensors by `<optimizer>/<field>/<parameter>`.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{number}/{key}/{names[id(p)]}": value.detach()
        for number, optimizer in enumerate(optimizers)
        for p, fields in optimizer.state.items()
        for key, value in fields.items()
        if isinstance(value, Tensor)
    }


def full_optimizer_state(
    model: Any, optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the full tensors of `optimizer_state`; a collective, so every process has to iterate.

    Returns:
        Pairs of a name and a tensor with the shape of its parameter, or [] for a count.
    """
    for name, value in optimizer_state(model, optimizers).items():
        parameter = model.get_parameter(name.split("/", 2)[2])
        # On the host they are this process's rows, as plain tensors.
        yield name, full_tensor(value if isinstance(value, DTensor) else wrap_rows(value, parameter))


def moments_to_come(optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """Return the bytes of this process's moments that do not exist yet.

    A parameter has one moment with Muon, two with other optimizers, and none if its moments are on the host.
    """
    return sum(
        to_local(p).numel() * p.element_size() * (1 if isinstance(optimizer, torch.optim.Muon) else 2)
        for optimizer in optimizers
        if not isinstance(optimizer, HostOptimizer)
        for group in optimizer.param_groups
        for p in group["params"]
        if not optimizer.state.get(p)
    )


def load_optimizer_state(
    model: Any, optimizers: Sequence[torch.optim.Optimizer], state: Mapping[str, Tensor]
) -> None:
    """Load the tensors of `optimizer_state`, for the same model and kinds of optimizers.

    Args:
        model: The model.
        optimizers: The optimizers.
        state: Tensors by the names of `optimizer_state`, with this process's rows.
    """
    for key, value in state.items():
        number, field, name = key.split("/", 2)
        parameter = model.get_parameter(name)
        optimizer = optimizers[int(number)]
        moments = optimizer.state[parameter]
        if isinstance(optimizer, HostOptimizer):
            moments[field] = to_local(value).to("cpu", copy=True)
        else:
            # The count of steps too: the fused kernels read it where the parameter is.
            moments[field] = value.to(parameter.device, copy=True)
