"""Update a model by PPO on a step's batch: minibatches, clipped optimizer steps, and their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from reodsl.ir.training import Ppo
from runners.data.draws import derive_seed, permutation
from runners.train.agreement import Gaps, old_logprobs, require_agreement
from runners.train.batch import TrainBatch
from runners.train.losses import divergence, policy_loss, token_weights
from runners.train.update import Learner, Loss, Teacher, optimizer_step


def update(
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    seed: int,
    number: int,
    engine_is_exact: bool = True,
    reference: Learner | None = None,
    own: Loss | None = None,
) -> dict[str, float]:
    """Run all epochs and minibatches of step `number`, and return its row for `metrics.parquet`.

    Where the method crops, a response is only run as far as its last token with an advantage, and not at all without one:
    the rest has no gradient. It still counts in the mean. `reference` is the frozen model of `method.kl`. An `own` loss
    stands for `PpoObjective`'s terms. `engine_is_exact` says that the engine's log-probabilities are computed as the
    trainer's. Raises a Disagreement before anything changes where they differ too much.
    """
    temperature = method.rollout.temperature or 1.0
    orders = [
        permutation(derive_seed(seed, "minibatches", number, epoch), len(batch))
        for epoch in range(method.epochs)
    ]
    lengths, drawn = batch.trained.tolist(), bool(batch.drawn.all())
    if method.crops:
        batch = batch.crop(batch.last_advantages())
    shown = bool(batch.trained[np.array_split(orders[0], method.minibatches)[0]].any())
    batch, gap, numbers = old_logprobs(
        learner, batch, method, temperature, engine_is_exact, drawn=drawn, shown=shown
    )
    measured = require_agreement(gap, method.mismatch_limit, number)
    batch, teacher = compare_with(reference, learner, batch, method, temperature)
    objective = PpoObjective(learner, method, own)

    def check() -> None:
        """Compare trainer and engine by the passes of the first minibatch, before the optimizer's first step."""
        if objective.log_ratios is None:
            log_ratios = objective.end_first_minibatch()
            if gap is None:
                measured.update(require_agreement(log_ratios, method.mismatch_limit, number))

    steps = []
    for epoch, order in enumerate(orders):
        minibatches = [rows.tolist() for rows in np.array_split(order, method.minibatches)]
        weighted = weigh_tokens(batch, minibatches, lengths, method)
        for index, rows in enumerate(minibatches, 1):
            where = f"step {number + 1}, epoch {epoch + 1}, minibatch {index}"
            bonus = method.entropy > 0
            steps.append(
                optimizer_step(learner, weighted, objective, temperature, where, check, bonus, rows, teacher)
            )
    return {
        "loss": sum(step.loss for step in steps) / len(steps),
        "grad_norm": sum(step.grad_norm for step in steps) / len(steps),
        **objective.metrics(),
        **measured,
        **numbers,
        "trained_tokens": objective.trained_tokens / method.epochs,
    }


def compare_with(
    reference: Learner | None, learner: Learner, batch: TrainBatch, method: Ppo, temperature: float
) -> tuple[TrainBatch, Teacher | None]:
    """Return the batch with the reference's log-probabilities, or a teacher that reads each minibatch whole.

    A divergence that is part of the advantages is taken from them here.
    """
    form = method.loss
    if not method.kl:
        return batch, None
    if form.compares_all:
        if reference is None or form.top_k is None:
            return batch, Teacher(form, reference, None if reference is None else reference.head())
        vocabulary = min(one.model.get_output_embeddings().weight.shape[0] for one in (learner, reference))
        ids, logprobs = reference.likeliest(batch.asked_rows(), form.top_k, vocabulary, temperature)
        return replace(batch, likeliest=ids, likelihoods=logprobs), Teacher(form)
    if reference is not None:
        batch = replace(batch, reference=reference.score(batch.asked_rows(), temperature))
    if form.estimator == "advantage":
        batch = replace(batch, advantages=batch.advantages - method.kl * (batch.old - batch.reference))
    return batch, None


def weigh_tokens(
    batch: TrainBatch, minibatches: Sequence[Sequence[int]], lengths: Sequence[int], method: Ppo
) -> TrainBatch:
    """Return a batch with each token's share of the mean of its minibatch; `lengths` are trained tokens of whole rows."""
    shares = torch.zeros(len(batch))
    for rows in minibatches:
        weights = token_weights([lengths[row] for row in rows], method.loss_mean, method.rollout.max_tokens)
        shares[rows] = torch.tensor(weights)
    return replace(batch, weights=torch.from_numpy(np.repeat(shares.numpy(), batch.trained.numpy())))


class PpoObjective:
    """PPO's loss of a micro-batch, called by each pass, and the sums from which a step's metrics are made.

    The loss is the clipped policy term, or the user's `own` loss, plus `kl` times the divergence and less `entropy` times
    the entropy. Sums stay on the device, so that it is asked for them once.
    """

    def __init__(self, learner: Learner, method: Ppo, own: Loss | None = None) -> None:
        self.learner, self.method, self.own = learner, method, own
        self.log_ratios: Gaps | None = None
        self.trained_tokens = 0.0
        self._first_log_ratios: list[Tensor] = []
        self._sums: list[Tensor] = []

    def __call__(self, batch: TrainBatch, scores: Tensor) -> Tensor:
        """Return the loss of a micro-batch, a sum that adds up over micro-batches; see `Learner.logprobs` for `scores`."""
        logprobs = scores[0] if scores.ndim > 1 else scores
        if self.log_ratios is None:
            moved = logprobs.detach() - batch.old
            # A mode's first token was not drawn from the policy.
            self._first_log_ratios.append(
                moved[batch.drawn] if self.method.loss.mode_tokens == "shares" else moved
            )
        kl = self._diverge(batch, scores, logprobs)
        loss, clipped = self._lose(batch, scores, logprobs, kl)
        tokens = logprobs.new_full((), len(logprobs))
        sums = (clipped, (batch.advantages != 0).sum(), kl.sum(dtype=torch.float64), tokens)
        self._sums.append(torch.stack([each.detach().double() for each in sums]))
        return loss

    def end_first_minibatch(self) -> Gaps:
        """Return each token's log-probability less the one that ratios divide by, before anything changed."""
        moved = torch.cat([torch.zeros(0, device=self.learner.device), *self._first_log_ratios])
        self.log_ratios = self.learner.ranks.join(moved.float()).numpy()
        return self.log_ratios

    def metrics(self) -> dict[str, float]:
        """Return how many tokens were clipped, how far ratios began from 1, and the divergence in nats a token."""
        mine = [sum(column) for column in torch.stack(self._sums, 1).tolist()] if self._sums else [0.0] * 4
        clipped, self.trained_tokens, diverged, run = self.learner.ranks.total(mine)
        errors = np.zeros(0, np.float32) if self.log_ratios is None else np.abs(self.log_ratios)
        return {
            "clip_fraction": clipped / max(self.trained_tokens, 1.0),
            "ratio_error": float(errors.max()) if len(errors) else 0.0,
            "ratio_error_median": float(torch.from_numpy(errors).median()) if len(errors) else 0.0,
            **({"kl": diverged / max(run, 1.0)} if self.method.kl else {}),
        }

    def _lose(self, batch: TrainBatch, scores: Tensor, logprobs: Tensor, kl: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the number of tokens that were clipped. Importance weighs the policy's own term alone."""
        method = self.method
        weights = batch.weights * batch.importance if len(batch.importance) else batch.weights
        if self.own:
            return self.own(replace(batch, weights=weights), scores), logprobs.new_zeros(())
        policy = policy_loss(
            logprobs,
            batch.old,
            batch.advantages,
            weights,
            method.clip_low,
            method.clip_high,
            batch.trained,
            method.loss,
        )
        loss = policy.loss
        # In the advantages it has been counted.
        if method.kl and method.loss.estimator != "advantage":
            loss = loss + method.kl * (batch.weights * kl).sum()
        if method.entropy:
            loss = loss - method.entropy * (batch.weights * scores[1]).sum()
        return loss, policy.clipped

    def _diverge(self, batch: TrainBatch, scores: Tensor, logprobs: Tensor) -> Tensor:
        """Return the divergence from the reference at each token, in nats; one 0 where the method has none."""
        form = self.method.loss
        if not self.method.kl:
            return logprobs.new_zeros(1)
        return scores[-1] if form.compares_all else divergence(logprobs, batch.reference, form.estimator)
