"""Update a model by PPO on a step's batch: minibatches, clipped steps, and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from reodsl.ir.training import Loss as Form
from reodsl.ir.training import Ppo
from runners.draws import permutation, purpose
from runners.train.agreement import Gaps, old_logprobs, require_agreement
from runners.train.batch import TrainBatch
from runners.train.losses import Clipped, divergence, policy_loss, token_weights
from runners.train.update import Learner, Loss, Stepped, Teacher, take_step


def update(
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    seed: int,
    number: int,
    same_numbers: bool = True,
    reference: Learner | None = None,
    own: Loss | None = None,
) -> dict[str, float]:
    """Run all epochs and minibatches of one step; return its numbers for `metrics.parquet`.

    Where the method crops, a response is only run as far as its last token with an advantage, and not at all without one:
    the rest has no gradient. It still counts in the mean. With `method.kl` the divergence from a frozen model, over all
    tokens, is part of the loss, or of the advantages: that of `reference`. So is the mean entropy, where `method.entropy`
    weighs it. An `own` loss stands for all of it. `same_numbers` says that the engine's log-probabilities are computed as
    the trainer's. Raises a Disagreement before anything changes where they differ too much.
    """
    temperature, diverges = method.rollout.temperature or 1.0, method.kl > 0
    orders = [
        permutation(purpose(seed, "minibatches", number, epoch), len(batch)) for epoch in range(method.epochs)
    ]
    lengths, drawn = batch.trained.tolist(), bool(batch.drawn.all())
    if method.crops:
        batch = batch.crop(batch.last_advantages())
    shown = bool(batch.trained[np.array_split(orders[0], method.minibatches)[0]].any())
    batch, apart, numbers = old_logprobs(
        learner, batch, method, temperature, same_numbers, drawn=drawn, shown=shown
    )
    measured = require_agreement(apart, method.mismatch_limit, number)
    teacher = None
    if diverges and method.loss.compares_all:
        teacher = Teacher(method.loss)
        if reference is not None and method.loss.top_k is not None:
            rows = min(each.model.get_output_embeddings().weight.shape[0] for each in (learner, reference))
            likely = reference.likeliest(batch.asked_rows(), method.loss.top_k, rows, temperature)
            batch = replace(batch, likeliest=likely[0], likelihoods=likely[1])
        elif reference is not None:
            teacher = Teacher(method.loss, reference, reference.head())
    elif diverges:
        if reference is not None:
            batch = replace(batch, reference=reference.score(batch.asked_rows(), temperature))
        if method.loss.estimator == "advantage":
            batch = replace(batch, advantages=batch.advantages - method.kl * (batch.old - batch.reference))
    seen, moved = _Seen(), np.zeros(0, dtype=np.float32)

    def check() -> None:
        """Check how far the trainer is from the engine, which the first pass, before any change, shows."""
        nonlocal moved, measured
        if stepped:
            return
        moved = seen.differences(learner)
        if apart is None:
            measured = require_agreement(moved, method.mismatch_limit, number)

    stepped: list[Stepped] = []
    for epoch, order in enumerate(orders):
        minibatches = [members.tolist() for members in np.array_split(order, method.minibatches)]
        weighed = _weigh(batch, minibatches, lengths, method)
        for place, members in enumerate(minibatches, 1):
            loss = _loss(method, seen, first=not stepped, diverges=diverges, own=own)
            at = f"step {number + 1}, epoch {epoch + 1}, minibatch {place}"
            bonus = method.entropy > 0
            stepped.append(take_step(learner, weighed, loss, temperature, at, check, bonus, members, teacher))
    clipped, trained, diverged, run = seen.totals(learner)
    errors = np.abs(moved)
    return {
        "loss": sum(one.loss for one in stepped) / len(stepped),
        "grad_norm": sum(one.grad_norm for one in stepped) / len(stepped),
        "clip_fraction": clipped / max(trained, 1.0),
        "ratio_error": float(errors.max()) if len(errors) else 0.0,
        "ratio_error_median": float(torch.from_numpy(errors).median()) if len(errors) else 0.0,
        **({"kl": diverged / max(run, 1.0)} if diverges else {}),
        **measured,
        **numbers,
        "trained_tokens": trained / method.epochs,
    }


def _weigh(
    batch: TrainBatch, minibatches: Sequence[Sequence[int]], lengths: Sequence[int], method: Ppo
) -> TrainBatch:
    """Return a batch with each token's share of the mean of its minibatch; `lengths` are trained tokens of whole rows."""
    shares = torch.zeros(len(batch))
    for members in minibatches:
        weights = token_weights([lengths[i] for i in members], method.loss_mean, method.rollout.max_tokens)
        shares[members] = torch.tensor(weights)
    return replace(batch, weights=torch.from_numpy(np.repeat(shares.numpy(), batch.trained.numpy())))


@dataclass(frozen=True, slots=True)
class _Seen:
    """Numbers of an update's passes, left on the device so that it is asked once.

    `counted` has of each the tokens that were clipped, those with an advantage, the divergence summed over all, and their
    number; `moved` has of those of the first minibatch, before anything changed, each token's log-probability less the one
    that ratios divide by.
    """

    counted: list[Tensor] = field(default_factory=list)
    moved: list[Tensor] = field(default_factory=list)

    def totals(self, learner: Learner) -> list[float]:
        """Return the four sums over all passes of all processes."""
        sums = (
            [sum(column) for column in torch.stack(self.counted, 1).tolist()] if self.counted else [0.0] * 4
        )
        return learner.ranks.total(sums)

    def differences(self, learner: Learner) -> Gaps:
        """Return `moved` of all processes as one array."""
        moved = torch.cat([torch.zeros(0, device=learner.device), *self.moved])
        return learner.ranks.join(moved.float()).numpy()


def _loss(method: Ppo, seen: _Seen, first: bool, diverges: bool, own: Loss | None = None) -> Loss:
    """Return the policy's loss with the weighed divergence and entropy; `first` before anything has changed."""

    def whole(batch: TrainBatch, scores: Tensor, logprobs: Tensor, apart: Tensor) -> Clipped:
        """Return the loss that the settings say."""
        clipped = policy_loss(
            logprobs,
            batch.old,
            batch.advantages,
            _policy_weights(batch),
            method.clip_low,
            method.clip_high,
            batch.trained,
            method.loss,
        )
        total = clipped.loss
        # In the advantages it has been counted.
        if diverges and method.loss.estimator != "advantage":
            total = total + method.kl * (batch.weights * apart).sum()
        if method.entropy:
            total = total - method.entropy * (batch.weights * scores[1]).sum()
        return Clipped(total, clipped.clipped)

    def loss(batch: TrainBatch, scores: Tensor) -> Tensor:
        logprobs = scores[0] if scores.ndim > 1 else scores
        if first:
            moved = logprobs.detach() - batch.old
            # A mode's first token was not drawn from the policy.
            seen.moved.append(moved[batch.drawn] if method.loss.mode_tokens == "shares" else moved)
        apart = _diverge(method.loss, batch, scores, logprobs) if diverges else logprobs.new_zeros(1)
        uncut, run = logprobs.new_zeros(()), logprobs.new_full((), len(logprobs))
        if own:
            made = Clipped(own(replace(batch, weights=_policy_weights(batch)), scores), uncut)
        else:
            made = whole(batch, scores, logprobs, apart)
        seen.counted.append(_numbers(made.clipped, (batch.advantages != 0).sum(), apart.double().sum(), run))
        return made.loss

    return loss


def _policy_weights(batch: TrainBatch) -> Tensor:
    """Return what multiplies the policy's own term at each token: its share of the mean, and its importance."""
    return batch.weights * batch.importance if len(batch.importance) else batch.weights


def _diverge(form: Form, batch: TrainBatch, scores: Tensor, logprobs: Tensor) -> Tensor:
    """Return the divergence from the frozen model at each token, by whole distributions or by sampled tokens, in nats."""
    return scores[-1] if form.compares_all else divergence(logprobs, batch.reference, form.estimator)


def _numbers(*values: Tensor) -> Tensor:
    """Return scalars side by side, in double precision."""
    return torch.stack([value.detach().double() for value in values])
