"""A user's loss function: loaded and tried on small tensors, then called with the tokens of micro-batches.

The function runs in the training process, since gradients cannot cross processes. Its gradient with respect to the
scores is computed at once. Errors in its backward pass are therefore reported at its line, and it cannot reach the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from runners.train.losses import step_numbers

_TRIAL_LENGTHS = (3, 1, 4)
"""The numbers of tokens of the three responses that a loss is tried on."""
_ROUNDING = 1e-4
"""The relative and absolute tolerance between losses of separate and joint responses."""
_FLOAT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class UserLoss:
    """The user's loss function that a spec names, as the weighted sum over a micro-batch with its gradient."""

    def __init__(self, code: FunctionCode, method: Ppo) -> None:
        """Load the user's function.

        Args:
            code: The function's file, name and source.
            method: The settings of the stage.

        Raises:
            Problem: E0744, if the file fails or lacks the function.
        """
        self.code, self.method = code, method
        self.results: list[tuple[str, Tensor]] = []
        """The losses and gradients of micro-batches since the last optimizer step; reading them waits for the GPU."""
        self._request = {
            "module": code.module,
            "file": str(code.path),
            "root": str(code.root or ""),
            "function": code.function,
            "source": code.source.decode("utf-8", "replace"),
        }
        with self._explain():
            self._function: Any = load_function(self._request)

    def __call__(
        self, batch: TrainBatch, scores: Tensor, numbers: Mapping[str, float] | None = None
    ) -> Tensor:
        """Return the weighted sum of a micro-batch's losses; a micro-batch without tokens gives 0, with a zero gradient.

        The gradient with respect to the scores is computed here and attached to the result, for a later backward pass.

        Args:
            batch: The micro-batch.
            scores: What `Learner.logprobs` returns: log-probabilities, [trained tokens], or with further rows for
                entropies and divergences, [rows, trained tokens].
            numbers: The numbers of the loss at the step (`step_numbers`); None if all are constants.

        Returns:
            The loss, [].
        """
        if not len(batch.advantages):
            return scores.sum()
        losses, gradients = self._differentiate(batch, scores, numbers)
        # The second term is 0, and its gradient is the gradient that was computed already.
        return (batch.weights * losses).sum() + (gradients * (scores - scores.detach())).sum()

    def try_it(self, device: torch.device) -> None:
        """Try the loss on a few tokens of three responses, in one batch, separately, and with advantages of 0.

        Raises:
            Problem: E0744, if the loss fails, has no gradient, or depends on the other responses of a batch.
        """
        batch = _trial_batch(self.method, device)
        losses, gradients = self._try(batch)
        if not bool((gradients != 0).any()):
            raise self._unfit("no gradient reaches `tokens.logprobs`, so the policy would learn nothing")
        separate = torch.cat([self._try(batch.select([row]))[0] for row in range(len(_TRIAL_LENGTHS))])
        if not torch.allclose(separate, losses, rtol=_ROUNDING, atol=_ROUNDING):
            raise self._unfit(
                f"the losses of three responses are {_format(separate)} by themselves, and {_format(losses)} in one batch",
                "compute the loss of a token from its own response alone, without a mean over all tokens (the trainer "
                "averages over a minibatch as `loss_mean` says), without random numbers, and without state between calls",
            )
        self._try(replace(batch, advantages=torch.zeros_like(batch.advantages)))

    def _try(self, batch: TrainBatch) -> tuple[Tensor, Tensor]:
        """Return the losses of a synthetic batch, and the gradients of their weighted sum, both [tokens].

        The gradients are with respect to the log-probabilities, which are made up from the batch.
        """
        old = batch.old_logprobs
        rows = [old + 0.3 * torch.sin(5 * old)]
        if self.method.entropy:
            rows.append(-old / 2)
        if self.method.uses_reference and self.method.loss.compares_all:
            rows.append(old.square() / 9)
        losses, gradients = self._differentiate(batch, torch.stack(rows) if len(rows) > 1 else rows[0])
        self.require_finite()
        return losses, gradients[0] if gradients.ndim > 1 else gradients

    def _differentiate(
        self, batch: TrainBatch, scores: Tensor, numbers: Mapping[str, float] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Call the user's function; return the tokens' losses, and the gradient of their weighted sum by the scores.

        Args:
            batch: The micro-batch.
            scores: As for `__call__`.
            numbers: As for `__call__`; for a trial of the loss 1 takes the place of one that is no constant.

        Returns:
            Losses in float32, [trained tokens], and gradients of the shape of `scores`.

        Raises:
            Problem: E0744, if the user's code fails or returns unusable losses.
        """
        leaf = scores.detach().requires_grad_()
        tokens = _tokens(self.method, batch, leaf, numbers or step_numbers(self.method))
        with self._explain(), torch.enable_grad():
            losses, shape = self._function(tokens), ""
            if isinstance(losses, Tensor):
                losses = losses if type(losses) is Tensor else losses.as_subclass(Tensor)
                shape = _kind(losses)
        shapes = [_kind(leaf.new_zeros(len(batch.advantages), dtype=kind)) for kind in _FLOAT_DTYPES]
        if shape not in shapes:
            raise self._unfit(
                f"it gave {shape or type(losses).__name__}, and not {shapes[0]}",
                "return one loss for each token, computed from the given tensors, without a sum or a mean (the trainer "
                "averages as `loss_mean` says)",
            )
        if not losses.requires_grad:
            raise self._unfit("its losses are detached: they have no gradient")
        with self._explain():
            (gradients,) = torch.autograd.grad((batch.weights * losses).sum(), leaf, materialize_grads=True)
        self.results += [("losses", losses.detach()), ("gradients", gradients)]
        return losses.detach().float(), gradients

    def require_finite(self) -> None:
        """Check that `results` are finite, and empty them.

        Raises:
            Problem: E0744, if a value is not finite.
        """
        results, self.results = self.results, []
        for noun, values in results:
            bad = values[~torch.isfinite(values)]
            if len(bad):
                raise self._unfit(
                    f"{len(bad)} of {values.numel()} {noun} are no finite numbers, the first is {float(bad[0]):g}",
                    "bound the arguments of `exp`, as in `(tokens.logprobs - tokens.old).clamp(max=20).exp()`, and "
                    "avoid divisors that may be 0",
                )

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Turn errors of the user's code inside a `with` block into E0744 at the line that failed.

        KeyboardInterrupt passes through. A UserCodeError, such as a missing function, gives E0744 about the file.
        """
        try:
            yield
        except UserCodeError as failure:
            raise self._unfit(str(failure)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            reply = error_of(failure, self._request)
            advice = "correct the line; `reodsl explain own_code` describes the tensors"
            if (missing := reply.get("missing")) is not None:
                where = "the environment that runs reodsl; files next to the spec cannot be imported"
                advice = f"install `{missing}` in {where}"
            raise problem_at(
                self.code, reply["message"], reply.get("line"), advice, reply.get("inside") or ""
            ) from None

    def _unfit(
        self,
        message: str,
        help: str = "compute with `tokens.logprobs` by torch, without `.detach()`, and return one loss for each token",
    ) -> Problem:
        """Return the diagnostic E0744 about the loss, at the first line of its function."""
        line = getattr(getattr(getattr(self, "_function", None), "__code__", None), "co_firstlineno", None)
        return problem(
            "E0744",
            f"`{self.code.name}` returned no usable loss: {message}",
            where=str(self.code.path) if line is None else f"{self.code.path}:{line}",
            help=help,
        )


def _kind(values: Tensor) -> str:
    """Return the type, shape, layout and device of a tensor in words."""
    return f"{values.dtype} of shape {list(values.shape)}, {values.layout} on {values.device}"


def open_loss(method: Ppo, folder: Path, resources: Resources) -> UserLoss | None:
    """Load the user's loss of a method, and try it on the device of this process.

    Args:
        method: The settings.
        folder: The folder of the spec.
        resources: The device, and the settings of Python.

    Returns:
        The loss; None if the method names no user's loss.

    Raises:
        Problem: E0743, if the file cannot be used; E0746, if the user has not allowed this version of the file to run;
            E0744, if the trial fails.
    """
    if method.loss.own is None:
        return None
    loss = UserLoss(opened(method.loss.own.function, folder, resources.python), method)
    loss.try_it(torch.device(resources.device))
    return loss


def _tokens(method: Ppo, batch: TrainBatch, scores: Tensor, numbers: Mapping[str, float]) -> Tokens:
    """Return the values of a micro-batch's tokens that the user's function gets.

    The values of `batch` are copies, which the function may change in place. Those of `scores` are views of it, so that
    gradients reach the model.

    Args:
        method: The settings.
        batch: The micro-batch.
        scores: Log-probabilities [tokens], or log-probabilities, entropies and divergences as far as the method has
            them, [kinds of score, tokens].
        numbers: The numbers of the loss at the step, by field.
    """
    kinds = list(scores) if scores.ndim > 1 else [scores]
    lengths = batch.num_trained.clone()
    return Tokens(
        logprobs=kinds[0],
        old=batch.old_logprobs.clone(),
        rollout=batch.sampling_logprobs.clone(),
        advantages=batch.advantages.clone(),
        drawn=batch.sampled_mask.clone(),
        lengths=lengths,
        responses=torch.repeat_interleave(
            torch.arange(len(lengths), device=lengths.device), lengths, output_size=len(batch.advantages)
        ),
        low=numbers["clip_low"],
        high=numbers["clip_high"],
        kl=numbers["kl"],
        entropy=numbers["entropy"],
        reference=batch.reference_logprobs.clone() if len(batch.reference_logprobs) else None,
        entropies=kinds[1] if method.entropy else None,
        divergences=kinds[-1] if method.uses_reference and method.loss.compares_all else None,
    )


def _trial_batch(method: Ppo, device: torch.device) -> TrainBatch:
    """Return a synthetic batch of three short responses, with advantages of both signs."""
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
    """Return numbers with three digits, as in `[0.12, 3]`."""
    return "[" + ", ".join(f"{value:.3g}" for value in values.tolist()) + "]"
