"""PPO from what is learnt of a step: minibatches and clipped steps; what happened, as numbers, comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reodsl.ir.training import Ppo
from runners.seeds import purpose
from runners.train.agreement import Learnt, Old, agreement, old_logprobs, recomputed, require_agreement
from runners.train.batches import Example, Microbatch
from runners.train.draws import permutation
from runners.train.ppo_loss import clipped_loss, divergence, token_weights
from runners.train.update import Learner, Loss, Stepped, take_step

Logprobs = NDArray[np.float32]


def update(
    learner: Learner,
    learnt: Learnt,
    method: Ppo,
    seed: int,
    number: int,
    same_numbers: bool = True,
    reference: Learner | None = None,
) -> dict[str, float]:
    """All epochs and minibatches of one step; its numbers for `metrics.parquet`.

    A response is only run as far as its last token with an advantage, and not at all without one: what
    is left out has no gradient. It still counts in the mean. `same_numbers` says that the engine's log-probabilities
    are computed as the trainer's. With `reference` the divergence from it is part of the loss, over all tokens of `learnt`,
    which has to be `whole`. Raises a Disagreement before anything changes where they differ too much.
    """
    temperature = method.rollout.temperature or 1.0
    orders = [
        permutation(purpose(seed, "minibatches", number, epoch), len(learnt.tokens))
        for epoch in range(method.epochs)
    ]
    cuts = learnt.cuts
    shown = any(cuts[i] for i in np.array_split(orders[0], method.minibatches)[0])
    old = old_logprobs(learner, learnt, method, temperature, same_numbers, shown)
    apart = old.apart
    if apart is not None:
        require_agreement(apart, method.mismatch_limit, number)
    frozen = None if reference is None else recomputed(reference, learnt, cuts, temperature)
    seen = _Seen()

    def check() -> None:
        """What ratios divide by is the engine's: the first pass, before any change, shows how far the trainer is."""
        nonlocal apart
        if apart is None:
            apart = seen.differences(learner)
            require_agreement(apart, method.mismatch_limit, number)

    stepped: list[Stepped] = []
    for epoch, order in enumerate(orders):
        for part, members in enumerate(np.array_split(order, method.minibatches)):
            examples = _examples(learnt, old, frozen, members.tolist(), method)
            loss = _loss(method, seen, first=not stepped, diverges=frozen is not None)
            at = f"step {number + 1}, epoch {epoch + 1}, minibatch {part + 1}"
            stepped.append(take_step(learner, examples, loss, temperature, at, check))
    clipped, trained, diverged = seen.totals(learner)
    errors = np.abs(seen.differences(learner))
    return {
        "loss": sum(one.loss for one in stepped) / len(stepped),
        "grad_norm": sum(one.grad_norm for one in stepped) / len(stepped),
        "clip_fraction": clipped / max(trained, 1.0),
        "ratio_error": float(errors.max()) if len(errors) else 0.0,
        "ratio_error_median": float(torch.from_numpy(errors).median()) if len(errors) else 0.0,
        **({} if frozen is None else {"kl": diverged / len(stepped)}),
        **agreement(apart),
        **old.numbers,
        "trained_tokens": trained / method.epochs,
    }


def _examples(
    learnt: Learnt,
    old: Old,
    frozen: Sequence[Logprobs] | None,
    members: Sequence[int],
    method: Ppo,
) -> list[Example]:
    """The responses of a minibatch as far as they are run, each token with its share of the minibatch's mean."""
    cuts = [len(own) for own in old.logprobs]
    lengths = [len(learnt.advantages[i]) for i in members]
    shares = token_weights(lengths, method.loss_mean, method.rollout.max_tokens)
    return [
        Example(
            learnt.prompts[i],
            learnt.tokens[i][: cuts[i]],
            np.full(cuts[i], share, dtype=np.float32) * old.weights[i],
            learnt.advantages[i][: cuts[i]],
            old.logprobs[i],
            None if frozen is None else frozen[i],
        )
        for i, share in zip(members, shares, strict=True)
        if cuts[i]
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the passes of an update show, left on the device so that it is asked once.

    `counted` has of each the tokens that were clipped, those with an advantage, and the divergence; `moved` has of those
    of the first minibatch, before anything changed, each token's log-probability less the one that ratios divide by.
    """

    counted: list[Tensor] = field(default_factory=list)
    moved: list[Tensor] = field(default_factory=list)

    def totals(self, learner: Learner) -> list[float]:
        """The three sums over all passes of all processes."""
        own = [sum(column) for column in torch.stack(self.counted, 1).tolist()] if self.counted else [0.0] * 3
        return learner.ranks.total(own)

    def differences(self, learner: Learner) -> Logprobs:
        """`moved` of all processes as one array."""
        own = torch.cat(self.moved).float().cpu().numpy() if self.moved else np.zeros(0, dtype=np.float32)
        return np.concatenate(learner.ranks.gather(own))


def _loss(method: Ppo, seen: _Seen, first: bool, diverges: bool) -> Loss:
    """The clipped loss, and the weighed divergence where there is one; `first` before anything has changed."""

    def loss(batch: Microbatch, logprobs: Tensor) -> Tensor:
        if first and batch.members:
            seen.moved.append(logprobs.detach() - batch.old)
        found = clipped_loss(
            logprobs, batch.old, batch.advantages, batch.weights, method.clip_low, method.clip_high
        )
        trained = (batch.advantages != 0).sum()
        if not diverges:
            seen.counted.append(_numbers(found.clipped, trained, torch.zeros_like(found.loss)))
            return found.loss
        apart = divergence(logprobs, batch.reference, batch.weights)
        seen.counted.append(_numbers(found.clipped, trained, apart))
        return found.loss + method.kl * apart

    return loss


def _numbers(*values: Tensor) -> Tensor:
    """Scalars side by side, in double precision."""
    return torch.stack([value.detach().double() for value in values])
