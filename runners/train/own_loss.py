"""A loss of the user's: loaded and tried on small tensors, then called with the tokens of micro-batches.

It runs in the process that trains, since a gradient cannot leave it. Its own gradient is taken at once, so that all that may
go wrong inside it does so while its line is known, and so that it cannot reach the model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reodsl.diagnostics import Problem, problem
from reodsl.graph.job import Resources
from reodsl.ir.training import Ppo
from reodsl.own import Tokens
from reodsl.store.consent import FunctionCode
from runners.own.function import opened, problem_at
from runners.own.worker import Misuse, error_of, load_function
from runners.train.batch import TrainBatch

_TRIED = (3, 1, 4)
"""Tokens of the responses that a loss is tried on."""
_ROUNDING = 1e-4
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class OwnLoss:
    """The loss that a spec names, as the sum over a micro-batch with its gradient."""

    def __init__(self, code: FunctionCode, method: Ppo) -> None:
        self.code, self.method = code, method
        self._said = {
            "module": code.module,
            "file": str(code.path),
            "root": str(code.root or ""),
            "function": code.function,
            "source": code.source.decode("utf-8", "replace"),
        }
        try:
            self._function: Any = load_function(self._said)
        except Misuse as failure:
            raise self._unfit(str(failure)) from None
        except BaseException as failure:
            raise self._failed(failure) from None

    def __call__(self, batch: TrainBatch, scores: Tensor) -> Tensor:
        """Return the weighed and summed loss of a micro-batch; `scores` are as `Learner.logprobs` gives them."""
        if not len(batch.advantages):
            return scores.sum()
        leaves = scores.detach().requires_grad_()
        losses, slopes = self._slopes(_tokens(self.method, batch, leaves), leaves, batch.weights)
        total: Tensor = _Sloped.apply((batch.weights * losses.detach()).sum(), slopes, scores)
        return total

    def try_it(self, device: torch.device) -> None:
        """Try it on a few tokens of three responses, alone and together. Raises E0744 or E0745 where that goes wrong."""
        whole = _sample(self.method, device)
        losses, slopes = self._tried(whole)
        if not bool((slopes != 0).any()):
            raise self._unfit(
                "no gradient reaches `tokens.logprobs`, so that nothing would be learnt",
                "compute with `tokens.logprobs` itself, without `.detach()`, `.item()` or numpy",
            )
        again, _ = self._tried(whole)
        if not _alike(again, losses):
            raise self._unfit(
                "it gives other losses for the same tokens when it is called again",
                "use no chance and no memory in it: a run that goes on after an interruption would differ",
            )
        for row, part in enumerate(losses.split(list(_TRIED))):
            alone, _ = self._tried(whole.select([row]))
            if not _alike(alone, part):
                raise self._unfit(
                    f"the loss of a response is {_shown(alone)} alone, and {_shown(part)} beside others",
                    "return the loss of each token by itself and by its own response, without a mean over all: the "
                    "trainer takes that, as `loss_mean` says, over a minibatch that is run in parts",
                )
        self._tried(replace(whole, advantages=torch.zeros_like(whole.advantages)))

    def _tried(self, batch: TrainBatch) -> tuple[Tensor, Tensor]:
        """Return the losses of a batch that stands for one, and their slopes by log-probabilities."""
        old = batch.old
        rows = [old + 0.3 * torch.sin(5 * old)]
        if self.method.entropy:
            rows.append(-old / 2)
        if self.method.frozen and self.method.loss.compares_all:
            rows.append(old.square() / 9)
        leaves = (torch.stack(rows) if len(rows) > 1 else rows[0]).detach().requires_grad_()
        losses, slopes = self._slopes(_tokens(self.method, batch, leaves), leaves, batch.weights)
        return losses.detach(), slopes[0] if slopes.ndim > 1 else slopes

    def _slopes(self, tokens: Tokens, leaves: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses of tokens, and the slopes of their weighed sum by `leaves`. Raises E0744 and E0745."""
        count = len(tokens.advantages)
        try:
            with torch.enable_grad():
                losses = self._function(tokens)
                if isinstance(losses, Tensor) and type(losses) is not Tensor:
                    # A class of the user's may do anything at each step below.
                    losses = losses.as_subclass(Tensor)
        except BaseException as failure:
            raise self._failed(failure) from None
        if not isinstance(losses, Tensor):
            raise self._unfit(f"it gave {type(losses).__name__}, and not a tensor of {count} losses")
        if losses.layout != torch.strided or losses.is_nested or losses.device != leaves.device:
            raise self._unfit(
                f"it gave a tensor of layout {losses.layout} on {losses.device}, and not of the tokens'",
                "return one loss for each token, computed from the tensors that it is given",
            )
        if losses.shape != (count,):
            raise self._unfit(
                f"it gave a tensor of shape {list(losses.shape)} for {count} tokens, and not [{count}]",
                "return one loss for each token: no sum and no mean, which the trainer takes as `loss_mean` says",
            )
        if losses.dtype not in _FLOATS:
            raise self._unfit(f"it gave numbers of {losses.dtype}, and not of torch.float32")
        if not losses.requires_grad:
            raise self._unfit(
                "its losses are detached: they have no gradient",
                "compute them from `tokens.logprobs` by torch, outside `torch.no_grad()` and without `.detach()`",
            )
        self._require_finite("losses", losses)
        try:
            (slopes,) = torch.autograd.grad((weights * losses).sum(), leaves, materialize_grads=True)
        except BaseException as failure:
            raise self._failed(failure) from None
        self._require_finite("gradients", slopes)
        return losses.float(), slopes

    def _require_finite(self, what: str, values: Tensor) -> None:
        finite = torch.isfinite(values.detach())
        if not bool(finite.all()):
            bad = values.detach()[~finite]
            raise self._unfit(
                f"{len(bad)} of {values.numel()} {what} are no finite numbers, the first is {float(bad[0]):g}",
                "bound what is exponentiated, as in `(tokens.logprobs - tokens.old).clamp(max=20).exp()`, and divide by "
                "nothing that may be 0",
            )

    def _failed(self, failure: BaseException) -> Problem:
        if isinstance(failure, KeyboardInterrupt):
            raise failure
        said = error_of(failure, self._said)
        missing = said.get("missing")
        advice = "mend the line; `docs/OWN_CODE.md` says what the tensors are"
        if missing is not None:
            advice = f"install `{missing}` in the environment that runs reodsl; files beside the spec cannot be imported"
        return problem_at(self.code, said["message"], said.get("line"), advice, said.get("inside") or "")

    def _unfit(
        self, message: str, help: str = "return one loss for each token, as `docs/OWN_CODE.md` says"
    ) -> Problem:
        line = getattr(getattr(getattr(self, "_function", None), "__code__", None), "co_firstlineno", None)
        return problem(
            "E0745",
            f"`{self.code.name}` does not give what is asked of it: {message}",
            where=str(self.code.path) if line is None else f"{self.code.path}:{line}",
            help=help,
        )


class _Sloped(torch.autograd.Function):
    """A number whose slopes by some scores are known."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, slopes: Tensor, scores: Tensor) -> Tensor:
        ctx.save_for_backward(slopes)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[None, None, Tensor]:
        (slopes,) = ctx.saved_tensors
        return None, None, given[0] * slopes


def open_loss(method: Ppo, folder: Path, resources: Resources) -> OwnLoss | None:
    """Return the loss that a method of a spec in `folder` names, if it names one, tried on the device of this process.

    Raises E0743 for a file that cannot be used, E0746 for one that may not run as it is now, and what `try_it` raises.
    """
    if method.loss.own is None:
        return None
    loss = OwnLoss(opened(method.loss.own.function, folder, resources.python), method)
    loss.try_it(torch.device(resources.device))
    return loss


def _tokens(method: Ppo, batch: TrainBatch, leaves: Tensor) -> Tokens:
    """Return the tokens of a micro-batch as the user's function reads them. What it changes in place is its own."""
    rows = list(leaves) if leaves.ndim > 1 else [leaves]
    lengths = batch.trained.clone()
    return Tokens(
        logprobs=rows[0],
        old=batch.old.clone(),
        rollout=batch.behaviour.clone(),
        advantages=batch.advantages.clone(),
        drawn=batch.drawn.clone(),
        lengths=lengths,
        responses=torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths),
        low=method.clip_low,
        high=method.clip_high,
        kl=method.kl,
        entropy=method.entropy,
        reference=batch.reference.clone() if len(batch.reference) else None,
        entropies=rows[1] if method.entropy else None,
        divergences=rows[-1] if method.frozen and method.loss.compares_all else None,
    )


def _sample(method: Ppo, device: torch.device) -> TrainBatch:
    """Return a few tokens of three responses, with advantages of both signs."""
    count = sum(_TRIED)
    old = -torch.linspace(0.02, 3.0, count)
    reference = old * 0.9 - 0.05 if method.frozen and not method.loss.compares_all else torch.zeros(0)
    batch = TrainBatch.of([[0]] * len(_TRIED), [[0] * length for length in _TRIED])
    return replace(
        batch,
        weights=torch.full((count,), 1.0 / count),
        advantages=torch.tensor([1.2, -0.7, -0.4]).repeat_interleave(torch.tensor(_TRIED)),
        drawn=torch.ones(count, dtype=torch.bool),
        logprobs=old,
        behaviour=old,
        old=old,
        reference=reference,
    ).to(device)


def _alike(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)


def _shown(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values.tolist()) + "]"
