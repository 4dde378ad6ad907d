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
    user_loss: Loss | None = None,
) -> dict[str, float]:
    """Run all epochs and minibatches of a step, and return its row for `metrics.parquet`.

    If the method crops, a response is only run up to its last token with an advantage, and not at all without one: the
    rest has no gradient. It still counts in the mean.

    Args:
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        seed: The seed of the order of rows.
        number: The step, counted from 0.
        engine_is_exact: Whether the engine computes log-probabilities as the trainer does.
        reference: The reference model of `method.kl`.
        user_loss: The user's loss, which replaces the terms of `PpoObjective`.

    Returns:
        Numbers by the names of columns.

    Raises:
        Disagreement: Engine and trainer differ too much; nothing has changed then.
    """
    temperature = method.rollout.temperature or 1.0
    orders = [
        permutation(derive_seed(seed, "minibatches", number, epoch), len(batch))
        for epoch in range(method.epochs)
    ]
    lengths, sampled = batch.num_trained.tolist(), bool(batch.sampled_mask.all())
    if method.crops:
        batch = batch.crop(batch.last_advantages())
    trains = bool(batch.num_trained[np.array_split(orders[0], method.minibatches)[0]].any())
    batch, gap, numbers = old_logprobs(
        learner,
        batch,
        method,
        temperature,
        engine_is_exact,
        all_sampled=sampled,
        first_minibatch_trains=trains,
    )
    measured = require_agreement(gap, method.mismatch_limit, number)
    batch, teacher = compare_with(reference, learner, batch, method, temperature)
    objective = PpoObjective(learner, method, user_loss)

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
    """Return the batch with the reference model's log-probabilities, or a teacher that scores each minibatch.

    A divergence that is part of the advantages is subtracted from them here.

    Args:
        reference: The reference model or teacher, None if the method has none.
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        temperature: Of both distributions.

    Returns:
        The batch, and the teacher if divergences are over the vocabulary or its most likely tokens.
    """
    form = method.loss
    if not method.kl:
        return batch, None
    if form.compares_all:
        if reference is None or form.top_k is None:
            return batch, Teacher(form, reference, None if reference is None else reference.head())
        vocabulary = min(m.model.get_output_embeddings().weight.shape[0] for m in (learner, reference))
        ids, logprobs = reference.topk_logprobs(batch.teacher_rows(), form.top_k, vocabulary, temperature)
        return replace(batch, topk_ids=ids, topk_logprobs=logprobs), Teacher(form)
    if reference is not None:
        batch = replace(batch, reference_logprobs=reference.score(batch.teacher_rows(), temperature))
    if form.estimator == "advantage":
        kl = batch.old_logprobs - batch.reference_logprobs
        batch = replace(batch, advantages=batch.advantages - method.kl * kl)
    return batch, None


def weigh_tokens(
    batch: TrainBatch, minibatches: Sequence[Sequence[int]], lengths: Sequence[int], method: Ppo
) -> TrainBatch:
    """Return a batch with each token's weight in the mean of its minibatch; `lengths` are trained tokens before cropping."""
    shares = torch.zeros(len(batch))
    for rows in minibatches:
        weights = token_weights([lengths[row] for row in rows], method.loss_mean, method.rollout.max_tokens)
        shares[rows] = torch.tensor(weights)
    return replace(batch, weights=torch.from_numpy(np.repeat(shares.numpy(), batch.num_trained.numpy())))


class PpoObjective:
    """PPO's loss of a micro-batch, called by each pass, and the sums that become a step's metrics.

    The loss is the clipped policy term, or the user's loss, plus `kl` times the divergence and less `entropy` times the
    entropy. Sums stay on the device until `metrics` reads them.
    """

    def __init__(self, learner: Learner, method: Ppo, user_loss: Loss | None = None) -> None:
        self.learner, self.method, self.user_loss = learner, method, user_loss
        self.log_ratios: Gaps | None = None
        self.trained_tokens = 0.0
        self._first_log_ratios: list[Tensor] = []
        self._sums: list[Tensor] = []

    def __call__(self, batch: TrainBatch, scores: Tensor) -> Tensor:
        """Return the loss of a micro-batch, a sum that adds up over micro-batches.

        Args:
            batch: The micro-batch.
            scores: As `Learner.logprobs` returns them, [trained tokens] or [rows, trained tokens].

        Returns:
            The loss, [].
        """
        logprobs = scores[0] if scores.ndim > 1 else scores
        if self.log_ratios is None:
            log_ratio = logprobs.detach() - batch.old_logprobs
            # A mode's first token was not drawn from the policy.
            self._first_log_ratios.append(
                log_ratio[batch.sampled_mask] if self.method.loss.mode_tokens == "shares" else log_ratio
            )
        kl = self._diverge(batch, scores, logprobs)
        loss, clipped = self._lose(batch, scores, logprobs, kl)
        tokens = logprobs.new_full((), len(logprobs))
        sums = (clipped, (batch.advantages != 0).sum(), kl.sum(dtype=torch.float64), tokens)
        self._sums.append(torch.stack([value.detach().double() for value in sums]))
        return loss

    def end_first_minibatch(self) -> Gaps:
        """Return each token's log-ratio before the first update, and keep it for the metrics."""
        log_ratios = torch.cat([torch.zeros(0, device=self.learner.device), *self._first_log_ratios])
        self.log_ratios = self.learner.ranks.all_gather(log_ratios.float()).numpy()
        return self.log_ratios

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the objective over all passes so far.

        Returns:
            `clip_fraction`, the share of tokens that were clipped; `ratio_error` and `ratio_error_median`, how far
                log-ratios began
            from 0; and `kl`, the divergence in nats a token, if the method has it.
        """
        mine = [sum(column) for column in torch.stack(self._sums, 1).tolist()] if self._sums else [0.0] * 4
        clipped, self.trained_tokens, diverged, run = self.learner.ranks.all_reduce_sum(mine)
        errors = np.zeros(0, np.float32) if self.log_ratios is None else np.abs(self.log_ratios)
        return {
            "clip_fraction": clipped / max(self.trained_tokens, 1.0),
            "ratio_error": float(errors.max()) if len(errors) else 0.0,
            "ratio_error_median": float(torch.from_numpy(errors).median()) if len(errors) else 0.0,
            **({"kl": diverged / max(run, 1.0)} if self.method.kl else {}),
        }

    def _lose(self, batch: TrainBatch, scores: Tensor, logprobs: Tensor, kl: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the number of clipped tokens. Importance weights apply to the policy's own term alone."""
        method = self.method
        weights = batch.weights * batch.importance if len(batch.importance) else batch.weights
        if self.user_loss:
            return self.user_loss(replace(batch, weights=weights), scores), logprobs.new_zeros(())
        policy = policy_loss(
            logprobs,
            batch.old_logprobs,
            batch.advantages,
            weights,
            method.clip_low,
            method.clip_high,
            batch.num_trained,
            method.loss,
        )
        loss = policy.loss
        # In the advantages it has been counted.
        if method.kl and method.loss.estimator != "advantage":
            loss = loss + method.kl * (batch.weights * kl).sum()
        if method.entropy:
            loss = loss - method.entropy * (batch.weights * scores[1]).sum()
        return loss, policy.num_clipped

    def _diverge(self, batch: TrainBatch, scores: Tensor, logprobs: Tensor) -> Tensor:
        """Return the divergence from the reference model at each token, in nats; a single 0 if the method has none."""
        form = self.method.loss
        if not self.method.kl:
            return logprobs.new_zeros(1)
        if form.compares_all:
            return scores[-1]
        return divergence(logprobs, batch.reference_logprobs, form.estimator)
