"""Optimizers on a GPU or on the host's CPU, their learning rate, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from reodsl.diagnostics import group
from reodsl.ir.training import Optimizer
from runners.train.sharding import full_tensor, to_local, wrap_rows


class HostOptimizer(torch.optim.Optimizer):
    """An optimizer that runs on the host, for parameters on a GPU.

    `step` copies this process's rows of each weight and gradient to the host, runs the inner optimizer there, and
    copies the weights back. The host buffers are kept, because allocating page-locked memory is slow. `state` maps the
    GPU's parameters to the inner optimizer's state, whose tensors are on the host and have this process's rows of
    sharded parameters.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        settings: dict[str, Any],
        build: Callable[..., torch.optim.Optimizer],
    ) -> None:
        """Allocate the host buffers, and build the inner optimizer over them.

        Args:
            parameters: The parameters on the GPU.
            settings: Keyword arguments for the inner optimizer, such as `lr`.
            build: The class of the inner optimizer, called with the host's copies of the weights and `settings`.
        """
        super().__init__(parameters, dict(settings))
        self._copies = [_copy_for(to_local(parameter)) for parameter in parameters]
        self._gradients = [_copy_for(to_local(parameter)) for parameter in parameters]
        self._inner = build(self._copies, **settings)
        for parameter, copy in zip(parameters, self._copies, strict=True):
            # Both optimizers share one dictionary of state per parameter.
            self.state[parameter] = self._inner.state[copy]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run a step of the inner optimizer on copies of the GPU's weights and gradients, and copy the weights back.

        Args:
            closure: Always None; torch's signature requires it.
        """
        assert closure is None
        (group,), (inner_group,) = self.param_groups, self._inner.param_groups
        inner_group["lr"] = group["lr"]
        devices = {to_local(parameter).device for parameter in group["params"]}
        for parameter, copy, gradient in zip(group["params"], self._copies, self._gradients, strict=True):
            copy.copy_(to_local(parameter), non_blocking=True)
            if parameter.grad is not None:
                copy.grad = gradient.copy_(to_local(parameter.grad), non_blocking=True)
        for device in devices:
            # Wait once for all copies, which run at the same time.
            torch.get_device_module(device).synchronize()
        self._inner.step()
        for parameter, copy in zip(group["params"], self._copies, strict=True):
            copy.grad = None
            # No wait: the device orders its next pass after this copy, and the next `step` waits for that pass.
            to_local(parameter).copy_(copy, non_blocking=True)


MUON_ELEMENTS = 1 << 24
"""Elements of the matrices that Muon orthogonalizes at once on a GPU: a larger matrix fills the GPU alone."""


class Muon(torch.optim.Muon):
    """torch's Muon, which on a GPU orthogonalizes matrices of one shape together, and on a CPU iterates in float32.

    torch's Muon takes each matrix alone, with some twenty launches. It iterates in bfloat16, which most CPUs emulate: this
    is about twenty times slower, and its last bits differ between CPUs.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run a step with Nesterov momentum.

        Source: Jordan et al. 2024, Muon.
        """
        assert closure is None
        for settings in self.param_groups:
            trained = [parameter for parameter in settings["params"] if parameter.grad is not None]
            for alike in group((parameter.shape, parameter) for parameter in trained).values():
                count = 1 if alike[0].device.type == "cpu" else max(1, MUON_ELEMENTS // alike[0].numel())
                for start in range(0, len(alike), count):
                    self._step_together(alike[start : start + count], settings)

    def _step_together(self, parameters: Sequence[Tensor], settings: Mapping[str, Any]) -> None:
        """Run a step for matrices of one shape.

        Args:
            parameters: The matrices, [rows, columns], with gradients.
            settings: Their parameter group.
        """
        updates = []
        for parameter in parameters:
            gradient = parameter.grad
            assert gradient is not None
            if not (state := self.state[parameter]):
                state["momentum_buffer"] = torch.zeros_like(gradient)
            momentum = state["momentum_buffer"].lerp_(gradient, 1 - settings["momentum"])
            updates.append(gradient.lerp(momentum, settings["momentum"]))
        # A single matrix has no third dimension, so that its products are the same to the bit in every batch.
        together = torch.stack(updates) if len(updates) > 1 else updates[0]
        together = _orthogonalize(together.bfloat16() if together.is_cuda else together, settings)
        rows, columns = parameters[0].shape
        for parameter, update in zip(parameters, together if len(updates) > 1 else [together], strict=True):
            parameter.mul_(1 - settings["lr"] * settings["weight_decay"])
            parameter.add_(update, alpha=-settings["lr"] * max(1.0, rows / columns) ** 0.5)


def _orthogonalize(matrix: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` and singular values near 1, by Newton-Schulz iteration.

    Args:
        matrix: The update, [rows, columns], or several of them, [matrices, rows, columns].
        settings: The parameter group of Muon, with the polynomial's coefficients `ns_coefficients`, `ns_steps` and `eps`.
    """
    a, b, c = settings["ns_coefficients"]
    multiply_add = torch.addmm if matrix.ndim == 2 else torch.baddbmm
    is_tall = matrix.size(-2) > matrix.size(-1)
    result = matrix.mT if is_tall else matrix
    result = result / torch.linalg.matrix_norm(result, keepdim=True).clamp(min=settings["eps"])
    for _ in range(settings["ns_steps"]):
        gram = result @ result.mT
        result = multiply_add(result, multiply_add(gram, gram, gram, beta=b, alpha=c), result, beta=a)
    return result.mT if is_tall else result


def _copy_for(weight: Tensor) -> Tensor:
    """Return an uninitialised host tensor with a weight's shape and type, page-locked if the weight is on a GPU."""
    return torch.empty(weight.shape, dtype=weight.dtype, device="cpu", pin_memory=weight.is_cuda)


def build_optimizers(model: Any, settings: Optimizer) -> list[torch.optim.Optimizer]:
    """Build the optimizers of a model's trainable parameters.

    With `muon`, Muon optimizes the matrices of layers, with momentum `betas[0]`. AdamW optimizes embeddings, the output
    matrix, norms and biases, with the settings `rest` if given. With `adam` or `adamw`, one optimizer has all parameters.
    If `settings.on` is `host` and a parameter is on a GPU, this optimizer runs on the host.

    Args:
        model: The model.
        settings: The settings of the optimizer.

    Returns:
        The optimizers. Each parameter group has its learning rate before any curve as `full_lr`.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if settings.algorithm != "muon":
        adam = torch.optim.Adam if settings.algorithm == "adam" else torch.optim.AdamW
        parameters = [p for _, p in named]
        options: dict[str, Any] = {
            "lr": settings.lr,
            "betas": settings.betas,
            "eps": settings.eps,
            "weight_decay": settings.weight_decay,
            "fused": True,
        }
        # Parameters on the CPU are in the host's memory already.
        on_host = settings.on == "host" and any(p.device.type != "cpu" for p in parameters)
        optimizers: list[torch.optim.Optimizer] = [
            HostOptimizer(parameters, options, adam) if on_host else adam(parameters, **options)
        ]
    else:
        embedding_ids = {
            id(m.weight)
            for m in (model.get_input_embeddings(), model.get_output_embeddings())
            if m is not None
        }
        matrices = [p for _, p in named if p.ndim == 2 and id(p) not in embedding_ids]
        params = [p for _, p in named if p.ndim != 2 or id(p) in embedding_ids]
        rest = settings.rest or settings
        optimizers = [
            Muon(matrices, lr=settings.lr, momentum=settings.betas[0], weight_decay=settings.weight_decay),
            torch.optim.AdamW(
                params, lr=rest.lr, betas=rest.betas, eps=rest.eps, weight_decay=rest.weight_decay, fused=True
            ),
        ]
    for optimizer in optimizers:
        for parameter_group in optimizer.param_groups:
            parameter_group["full_lr"] = parameter_group["lr"]
    return optimizers


def set_learning_rate(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    """Set the learning rate of every parameter group to its rate before any curve (`full_lr`) times `factor`.

    Args:
        optimizers: The optimizers.
        factor: The factor of the learning-rate curve, 0 to 1.
    """
    for optimizer in optimizers:
        for parameter_group in optimizer.param_groups:
            parameter_group["lr"] = parameter_group["full_lr"] * factor


def optimizer_state(model: Any, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the tensors of the optimizers' state by `<index of the optimizer>/<field>/<parameter>`.

    A sharded tensor is this process's rows.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{index}/{key}/{names[id(p)]}": value.detach()
        for index, optimizer in enumerate(optimizers)
        for p, fields in optimizer.state.items()
        for key, value in fields.items()
        if isinstance(value, Tensor)
    }


def full_optimizer_state(
    model: Any, optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `optimizer_state`, gathered from all processes; every process must iterate to the end.

    Yields:
        Pairs of a name and a tensor with the shape of its parameter, or [] for a count of steps.
    """
    for name, value in optimizer_state(model, optimizers).items():
        parameter = model.get_parameter(name.split("/", 2)[2])
        # A `HostOptimizer` has this process's rows as plain tensors.
        yield name, full_tensor(value if isinstance(value, DTensor) else wrap_rows(value, parameter))


def moments_to_come(optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """Return the bytes of this process's optimizer moments that are not allocated on the device yet.

    Moments are allocated at the first step: one per parameter with Muon, and two with Adam or AdamW. An optimizer on the
    host allocates none on the device.
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
    """Load the tensors of `optimizer_state` into the optimizers, for the same model and kinds of optimizers.

    Args:
        model: The model.
        optimizers: The optimizers.
        state: Tensors by the names of `optimizer_state`, with this process's rows.
    """
    for key, value in state.items():
        index, field, name = key.split("/", 2)
        parameter = model.get_parameter(name)
        optimizer = optimizers[int(index)]
        moments = optimizer.state[parameter]
        if isinstance(optimizer, HostOptimizer):
            moments[field] = to_local(value).to("cpu", copy=True)
        else:
            # The count of steps moves too: the fused kernels read it on the parameter's device.
            moments[field] = value.to(parameter.device, copy=True)
