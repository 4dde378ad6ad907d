"""A loss of the user's: loaded and tried on small tensors, then called with the tokens of micro-batches.

It runs in the process that trains, since a gradient cannot leave it. Its gradient is taken at once, so that all errors
in it happen while its line is known, and so that it cannot reach the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from runners.own.worker import UserCodeError, error_of, load_function
from runners.train.batch import TrainBatch

_TRIAL_LENGTHS = (3, 1, 4)
"""Tokens of the responses that a loss is tried on."""
_ROUNDING = 1e-4
_FLOAT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class UserLoss:
    """The user's loss that a spec names, as the sum over a micro-batch with its gradient."""

    def __init__(self, code: FunctionCode, method: Ppo) -> None:
        self.code, self.method = code, method
        self._said = {
            "module": code.module,
            "file": str(code.path),
            "root": str(code.root or ""),
            "function": code.function,
            "source": code.source.decode("utf-8", "replace"),
        }
        with self._explain():
            self._function: Any = load_function(self._said)

    def __call__(self, batch: TrainBatch, scores: Tensor) -> Tensor:
        """Return the weighted sum of a micro-batch's losses.

        Args:
            batch: The micro-batch.
            scores: As `Learner.logprobs` returns them, [trained tokens] or [rows, trained tokens].

        Returns:
            The loss, [].
        """
        if not len(batch.advantages):
            return scores.sum()
        losses, slopes = self._slopes(batch, scores)
        # The loss, and what is 0 with the slopes that are known.
        return (batch.weights * losses).sum() + (slopes * (scores - scores.detach())).sum()

    def try_it(self, device: torch.device) -> None:
        """Try the loss on a few tokens of three responses, alone and together. Raises E0744 if it fails."""
        batch = _trial_batch(self.method, device)
        losses, slopes = self._try(batch)
        if not bool((slopes != 0).any()):
            raise self._unfit("no gradient reaches `tokens.logprobs`, so that nothing would be learnt")
        alone = torch.cat([self._try(batch.select([row]))[0] for row in range(len(_TRIAL_LENGTHS))])
        if not torch.allclose(alone, losses, rtol=_ROUNDING, atol=_ROUNDING):
            raise self._unfit(
                f"the losses of three responses are {_format(alone)} by themselves, and {_format(losses)} beside each other",
                "return the loss of each token by itself and by its own response, with no mean over all, which the trainer "
                "takes, as `loss_mean` says, over a minibatch that is run in parts; and with no chance and no memory",
            )
        self._try(replace(batch, advantages=torch.zeros_like(batch.advantages)))

    def _try(self, batch: TrainBatch) -> tuple[Tensor, Tensor]:
        """Return the losses of a made-up batch, and their slopes by log-probabilities."""
        old = batch.old_logprobs
        rows = [old + 0.3 * torch.sin(5 * old)]
        if self.method.entropy:
            rows.append(-old / 2)
        if self.method.uses_reference and self.method.loss.compares_all:
            rows.append(old.square() / 9)
        losses, slopes = self._slopes(batch, torch.stack(rows) if len(rows) > 1 else rows[0])
        return losses, slopes[0] if slopes.ndim > 1 else slopes

    def _slopes(self, batch: TrainBatch, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses of tokens, and the slopes of their weighted sum by the scores. Raises E0744."""
        leaves = scores.detach().requires_grad_()
        tokens = _tokens(self.method, batch, leaves)
        with self._explain(), torch.enable_grad():
            losses, shape = self._function(tokens), ""
            if isinstance(losses, Tensor):
                # A class of the user's may do anything at each step below.
                losses = losses if type(losses) is Tensor else losses.as_subclass(Tensor)
                shape = _kind(losses)
        shapes = [_kind(leaves.new_zeros(len(batch.advantages), dtype=kind)) for kind in _FLOAT_DTYPES]
        if shape not in shapes:
            raise self._unfit(
                f"it gave {shape or type(losses).__name__}, and not {shapes[0]}",
                "return one loss for each token, computed from the tensors that it is given: no sum and no mean, which the "
                "trainer takes as `loss_mean` says",
            )
        if not losses.requires_grad:
            raise self._unfit("its losses are detached: they have no gradient")
        self._require_finite("losses", losses.detach())
        with self._explain():
            (slopes,) = torch.autograd.grad((batch.weights * losses).sum(), leaves, materialize_grads=True)
        self._require_finite("gradients", slopes)
        return losses.detach().float(), slopes

    def _require_finite(self, noun: str, values: Tensor) -> None:
        """Raise E0744 for losses or gradients that are not finite."""
        bad = values[~torch.isfinite(values)]
        if len(bad):
            raise self._unfit(
                f"{len(bad)} of {values.numel()} {noun} are no finite numbers, the first is {float(bad[0]):g}",
                "bound what is exponentiated, as in `(tokens.logprobs - tokens.old).clamp(max=20).exp()`, and divide by "
                "nothing that may be 0",
            )

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Run the user's code. Raises E0744 at the line that fails, or for a function that does not exist."""
        try:
            yield
        except UserCodeError as failure:
            raise self._unfit(str(failure)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            reply = error_of(failure, self._said)
            advice = "mend the line; `reodsl explain own_code` says what the tensors are"
            if (missing := reply.get("missing")) is not None:
                where = "the environment that runs reodsl; files beside the spec cannot be imported"
                advice = f"install `{missing}` in {where}"
            raise problem_at(
                self.code, reply["message"], reply.get("line"), advice, reply.get("inside") or ""
            ) from None

    def _unfit(
        self,
        message: str,
        help: str = "compute with `tokens.logprobs` by torch, without `.detach()`, and return one loss for each token",
    ) -> Problem:
        """Return the diagnostic E0744 about the loss, at the line of its function."""
        line = getattr(getattr(getattr(self, "_function", None), "__code__", None), "co_firstlineno", None)
        return problem(
            "E0744",
            f"`{self.code.name}` does not give what is asked of it: {message}",
            where=str(self.code.path) if line is None else f"{self.code.path}:{line}",
            help=help,
        )


def _kind(values: Tensor) -> str:
    return f"{values.dtype} of shape {list(values.shape)}, {values.layout} on {values.device}"


def open_loss(method: Ppo, folder: Path, resources: Resources) -> UserLoss | None:
    """Return the user's loss of a method, tried on the device of this process; None if the method names none.

    Raises E0743 for a file that cannot be used, E0746 for a file that may not run as it is now, and what `try_it`
    raises.
    """
    if method.loss.own is None:
        return None
    loss = UserLoss(opened(method.loss.own.function, folder, resources.python), method)
    loss.try_it(torch.device(resources.device))
    return loss


def _tokens(method: Ppo, batch: TrainBatch, leaves: Tensor) -> Tokens:
    """Return the tokens of a micro-batch as the user's function reads them. They are copies that it may change in place."""
    rows = list(leaves) if leaves.ndim > 1 else [leaves]
    lengths = batch.num_trained.clone()
    return Tokens(
        logprobs=rows[0],
        old=batch.old_logprobs.clone(),
        rollout=batch.sampling_logprobs.clone(),
        advantages=batch.advantages.clone(),
        drawn=batch.sampled_mask.clone(),
        lengths=lengths,
        responses=torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths),
        low=method.clip_low,
        high=method.clip_high,
        kl=method.kl,
        entropy=method.entropy,
        reference=batch.reference_logprobs.clone() if len(batch.reference_logprobs) else None,
        entropies=rows[1] if method.entropy else None,
        divergences=rows[-1] if method.uses_reference and method.loss.compares_all else None,
    )


def _trial_batch(method: Ppo, device: torch.device) -> TrainBatch:
    """Return a few tokens of three responses, with advantages of both signs."""
    count = sum(_TRIAL_LENGTHS)
    old = -torch.linspace(0.02, 3.0, count)
    reference = old * 0.9 - 0.05 if method.uses_reference and not method.loss.compares_all else torch.zeros(0)
    batch = TrainBatch.of([[0]] * len(_TRIAL_LENGTHS), [[0] * length for length in _TRIAL_LENGTHS])
    return replace(
        batch,
        weights=torch.full((count,), 1.0 / count),
        advantages=torch.tensor([1.2, -0.7, -0.4]).repeat_interleave(torch.tensor(_TRIAL_LENGTHS)),
        sampled_mask=torch.ones(count, dtype=torch.bool),
        engine_logprobs=old,
        sampling_logprobs=old,
        old_logprobs=old,
        reference_logprobs=reference,
    ).to(device)


def _format(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values.tolist()) + "]"
