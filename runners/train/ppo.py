"""Update a model by PPO on a step's batch: minibatches, clipped optimizer steps, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from reodsl.diagnostics import Problem
from reodsl.ir.training import Ppo
from runners.data.draws import derive_seed, permutation
from runners.train.agreement import Gaps, old_logprobs, require_agreement
from runners.train.batch import TrainBatch
from runners.train.losses import divergence, policy_loss, step_numbers, token_weights
from runners.train.own_loss import UserLoss
from runners.train.update import Learner, Teacher, optimizer_step


def update(
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    seed: int,
    step: int,
    engine_is_exact: bool = True,
    reference: Learner | None = None,
    user_loss: UserLoss | None = None,
    numbers: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Run all epochs and minibatches of a step, and return its metrics.

    If `method.crops` is set, a response is cut after its last token with a nonzero advantage, because later tokens have
    no gradient. The means of the loss still divide by the uncut number of tokens.

    Args:
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        seed: The seed of the order of rows.
        step: The step, counted from 0.
        engine_is_exact: Whether engine and trainer compute equal log-probabilities, up to float32 rounding.
        reference: The reference model or teacher of `method.kl`; None if the method has none.
        user_loss: The user's loss, which replaces the terms of `PpoObjective`; None for PPO's loss.
        numbers: The numbers of the loss at the step (`step_numbers`); None if all are constants.

    Returns:
        Metrics by the column names of `metrics.parquet`.

    Raises:
        Disagreement: Engine and trainer differ too much; the step has changed no weights.
    """
    temperature, numbers = method.rollout.temperature or 1.0, numbers or step_numbers(method)
    permutations = [
        permutation(derive_seed(seed, "minibatches", step, epoch), len(batch))
        for epoch in range(method.epochs)
    ]
    lengths, all_sampled = batch.num_trained.tolist(), bool(batch.sampled_mask.all())
    if method.crops:
        batch = batch.crop(batch.last_advantages())
    trains = bool(batch.num_trained[np.array_split(permutations[0], method.minibatches)[0]].any())
    batch, gap, metrics = old_logprobs(
        learner,
        batch,
        method,
        temperature,
        engine_is_exact,
        all_sampled=all_sampled,
        first_minibatch_trains=trains,
    )
    measured = require_agreement(gap, method.mismatch_limit, step)
    batch, teacher = compare_with(reference, learner, batch, method, temperature, numbers["kl"])
    objective = PpoObjective(learner, method, numbers, user_loss)

    def check() -> None:
        """Before the step's first optimizer step, collect log-ratios, and require that trainer and engine agree.

        The agreement is checked here only if it was not measured before (`gap` is None). The results of a user's loss,
        which are finite if this is called, are dropped.
        """
        if user_loss is not None:
            user_loss.results.clear()
        if objective.log_ratios is None:
            log_ratios = objective.end_first_minibatch()
            if gap is None:
                measured.update(require_agreement(log_ratios, method.mismatch_limit, step))

    results = []
    for epoch, order in enumerate(permutations):
        minibatches = [rows.tolist() for rows in np.array_split(order, method.minibatches)]
        weighted = weigh_tokens(batch, minibatches, lengths, method)
        for index, rows in enumerate(minibatches, 1):
            where = f"step {step + 1}, epoch {epoch + 1}, minibatch {index}"
            entropies = bool(method.entropy)
            try:
                result = optimizer_step(
                    learner, weighted, objective, temperature, where, check, entropies, rows, teacher
                )
            except Problem:
                # A number of the user's loss that is not finite makes training diverge: its line is the cause.
                if user_loss is not None:
                    user_loss.require_finite()
                raise
            results.append(result)
    return {
        "loss": sum(result.loss for result in results) / len(results),
        "grad_norm": sum(result.grad_norm for result in results) / len(results),
        **objective.metrics(),
        **measured,
        **metrics,
        "trained_tokens": objective.trained_tokens / method.epochs,
    }


def compare_with(
    reference: Learner | None,
    learner: Learner,
    batch: TrainBatch,
    method: Ppo,
    temperature: float,
    weight: float,
) -> tuple[TrainBatch, Teacher | None]:
    """Prepare the divergence from the reference model or teacher, as columns of the batch or as a teacher.

    Without `method.kl` nothing is prepared. If the divergence compares full distributions, the result has a teacher,
    which scores each minibatch; with `top_k` it reads the k likely tokens that are added to the batch here. Otherwise the
    reference model's log-probabilities of the sampled tokens are added. With the estimator `advantage`, the divergence
    is subtracted from the advantages.

    Args:
        reference: The reference model or teacher; None if the batch already has what the divergence needs.
        learner: The policy.
        batch: The step's batch.
        method: The settings.
        temperature: The temperature of the policy's and the reference model's distributions.
        weight: The weight of the divergence at the step.

    Returns:
        The batch; and the teacher, or None if there is no divergence or it is estimated from sampled tokens.
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
        batch = replace(batch, advantages=batch.advantages - weight * kl)
    return batch, None


def weigh_tokens(
    batch: TrainBatch, minibatches: Sequence[Sequence[int]], lengths: Sequence[int], method: Ppo
) -> TrainBatch:
    """Return a batch with new weights: each token's factor in the mean of its minibatch, as `method.loss_mean` says.

    Args:
        batch: The step's batch, perhaps cropped.
        minibatches: The rows of each minibatch.
        lengths: The number of trained tokens of each row before cropping.
        method: The settings, with the kind of the mean.
    """
    row_weights = torch.zeros(len(batch))
    for rows in minibatches:
        weights = token_weights([lengths[row] for row in rows], method.loss_mean, method.rollout.max_tokens)
        row_weights[rows] = torch.tensor(weights)
    return replace(batch, weights=torch.from_numpy(np.repeat(row_weights.numpy(), batch.num_trained.numpy())))


class PpoObjective:
    """PPO's loss of a micro-batch, and the sums over passes that become a step's metrics.

    The loss is the clipped policy term, or the user's loss, plus `kl` times the divergence, minus `entropy` times the
    entropy. Sums stay on the device until `metrics` reads them.
    """

    def __init__(
        self, learner: Learner, method: Ppo, numbers: Mapping[str, float], user_loss: UserLoss | None = None
    ) -> None:
        """Start without sums.

        Args:
            learner: The policy.
            method: The settings.
            numbers: The numbers of the loss at the step, by field.
            user_loss: The user's loss, if the method names a loss.
        """
        self.learner, self.method, self.numbers, self.user_loss = learner, method, numbers, user_loss
        self.log_ratios: Gaps | None = None
        self.trained_tokens = 0.0
        self._first_log_ratios: list[Tensor] = []
        self._first_sampled: list[Tensor] = []
        self._sums: list[Tensor] = []

    def __call__(self, batch: TrainBatch, scores: Tensor) -> Tensor:
        """Return the loss of a micro-batch; the losses of micro-batches add up to the loss of a minibatch.

        Args:
            batch: The micro-batch.
            scores: What `Learner.logprobs` returns: log-probabilities, [trained tokens], or with further rows for
                entropies and divergences, [rows, trained tokens].

        Returns:
            The loss, [].
        """
        logprobs = scores[0] if scores.ndim > 1 else scores
        if self.log_ratios is None:
            self._first_log_ratios.append(logprobs.detach() - batch.old_logprobs)
            self._first_sampled.append(batch.sampled_mask)
        kl = self._token_divergence(batch, scores, logprobs)
        loss, clipped = self._compute_loss(batch, scores, logprobs, kl)
        num_tokens = logprobs.new_full((), len(logprobs))
        sums = (clipped, (batch.advantages != 0).sum(), kl.sum(dtype=torch.float64), num_tokens)
        self._sums.append(torch.stack([value.detach().double() for value in sums]))
        return loss

    def end_first_minibatch(self) -> Gaps:
        """Gather, store and return the log-ratios of the first minibatch, before an update, [tokens of all ranks].

        All ranks must call this. From then on no more log-ratios are collected.
        """
        log_ratios = torch.cat([torch.zeros(0, device=self.learner.device), *self._first_log_ratios])
        if self.method.loss.mode_tokens == "shares" and self._first_sampled:
            # The first token of a mode was given, not sampled from the policy.
            log_ratios = log_ratios[torch.cat(self._first_sampled)]
        self.log_ratios = self.learner.ranks.all_gather(log_ratios.float()).numpy()
        return self.log_ratios

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the objective over all passes so far, summed over all ranks.

        Returns:
            `clip_fraction`, the number of clipped tokens per token with a nonzero advantage; `ratio_error` and
            `ratio_error_median`, the largest and median |log-ratio| before the first update; and `kl`, the divergence
            in nats per token, if the method has a divergence. `trained_tokens` is set, too.
        """
        local_sums = (
            [sum(column) for column in torch.stack(self._sums, 1).tolist()] if self._sums else [0.0] * 4
        )
        clipped, self.trained_tokens, kl_sum, num_tokens = self.learner.ranks.all_reduce_sum(local_sums)
        errors = np.zeros(0, np.float32) if self.log_ratios is None else np.abs(self.log_ratios)
        return {
            "clip_fraction": clipped / max(self.trained_tokens, 1.0),
            "ratio_error": float(errors.max()) if len(errors) else 0.0,
            "ratio_error_median": float(torch.from_numpy(errors).median()) if len(errors) else 0.0,
            **({"kl": kl_sum / max(num_tokens, 1.0)} if self.method.kl else {}),
        }

    def _compute_loss(
        self, batch: TrainBatch, scores: Tensor, logprobs: Tensor, kl: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the number of clipped tokens, both [].

        Importance weights, if the batch has them, multiply the policy's term only: the divergence and the entropy have
        the batch's plain weights. If there is a user's loss, they multiply it, and no token counts as clipped.

        Args:
            batch: The micro-batch.
            scores: As for `__call__`.
            logprobs: Log-probabilities of the policy, [trained tokens].
            kl: The divergence at each token, [trained tokens].
        """
        method, numbers = self.method, self.numbers
        weights = batch.weights * batch.importance if len(batch.importance) else batch.weights
        if self.user_loss:
            return self.user_loss(replace(batch, weights=weights), scores, numbers), logprobs.new_zeros(())
        policy = policy_loss(
            logprobs,
            batch.old_logprobs,
            batch.advantages,
            weights,
            numbers["clip_low"],
            numbers["clip_high"],
            batch.num_trained,
            method.loss,
        )
        loss = policy.loss
        # With `advantage` the divergence was already subtracted from the advantages.
        if method.kl and method.loss.estimator != "advantage":
            loss = loss + numbers["kl"] * (batch.weights * kl).sum()
        if method.entropy:
            loss = loss - numbers["entropy"] * (batch.weights * scores[1]).sum()
        return loss, policy.num_clipped

    def _token_divergence(self, batch: TrainBatch, scores: Tensor, logprobs: Tensor) -> Tensor:
        """Return the divergence from the reference model at each token in nats, or a single 0 without a divergence.

        Args:
            batch: The micro-batch, with the reference model's log-probabilities if these are compared.
            scores: What `Learner.logprobs` returned; the last row has divergences if full distributions are compared.
            logprobs: Log-probabilities of the policy, [trained tokens].
        """
        form = self.method.loss
        if not self.method.kl:
            return logprobs.new_zeros(1)
        if form.compares_all:
            return scores[-1]
        return divergence(logprobs, batch.reference_logprobs, form.estimator)
