"""One optimizer step: examples and their loss in, changed parameters out, with gradients summed over micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reodsl.diagnostics import problem
from runners.train.batches import Example, Microbatch, microbatches, token_bound
from runners.train.forward import Forward, make_forward
from runners.train.logprobs import token_logprobs

Loss = Callable[[Microbatch, Tensor], Tensor]
"""From a micro-batch and the log-probabilities of its trained tokens to a sum that adds up over micro-batches."""


@dataclass(frozen=True, slots=True)
class Learner:
    """A model being trained: its forward pass, its optimizers, and the gradient norm that is clipped at (0: never)."""

    model: Any
    forward: Forward
    optimizers: Sequence[torch.optim.Optimizer]
    grad_norm: float

    @staticmethod
    def of(model: Any, optimizers: Sequence[torch.optim.Optimizer], grad_norm: float) -> Learner:
        """A learner with the cheapest forward pass of this model."""
        return Learner(model, make_forward(model), optimizers, grad_norm)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    def logprobs(
        self, batch: Microbatch, temperature: float, derived: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Log-probabilities of the trained tokens, with gradient; `derived` is made anew where it is not given."""
        made = self.forward.derive() if derived is None else derived
        hidden = self.forward.hidden(batch.ids, batch.at, made)
        return token_logprobs(hidden, self.model.get_output_embeddings().weight, batch.targets, temperature)


@dataclass(frozen=True, slots=True)
class Stepped:
    """The loss of one optimizer step, and the gradient's norm before clipping."""

    loss: float
    grad_norm: float


def take_step(
    learner: Learner, examples: Sequence[Example], loss: Loss, temperature: float, at: str
) -> Stepped:
    """One step of the optimizers on the summed loss of all examples; none of them means a gradient of zero.

    `at` says where training is, for the message of E0926, which is raised before anything changes when the loss or
    the gradient is not finite.
    """
    parameters = list(learner.model.parameters())
    for parameter in parameters:
        # Zeros, not None: momentum and decay go on for a minibatch without a signal.
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.zero_()
    total = 0.0
    # Gradients of what is derived from the parameters add up over micro-batches, and go back to them once.
    derived = learner.forward.derive()
    leaves = [tensor.detach().requires_grad_() for tensor in derived]
    for batch in microbatches(examples, token_bound(learner.device), learner.device):
        value = loss(batch, learner.logprobs(batch, temperature, leaves))
        value.backward()
        total += float(value.detach())
    if examples and derived:
        torch.autograd.backward(derived, [leaf.grad for leaf in leaves])
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    _require_finite(total, float(norm), at)
    if learner.grad_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, learner.grad_norm, norm)
    for optimizer in learner.optimizers:
        optimizer.step()
    return Stepped(total, float(norm))


def _require_finite(loss: float, norm: float, at: str) -> None:
    if math.isfinite(loss) and math.isfinite(norm):
        return
    raise problem(
        "E0926",
        f"training diverged: the loss is {loss:g} and the gradient's norm {norm:g}",
        where=at,
        notes=["the last saved step is kept, and nothing of this one"],
        help="lower `optim.lr`, lengthen `optim.warmup`, or set `optim.grad_norm` to 1 or below",
    )
