"""One optimizer step on a batch, with gradients summed over micro-batches and processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from reodsl.diagnostics import problem
from reodsl.ir.training import Loss as Form
from reodsl.price.memory import ALL_WEIGHTS, BUCKET_BYTES, Recipe, Sizes, from_config
from runners.machine.memory import Explanation, explain_oom, explain_training
from runners.train.adapters import is_adapted, merge_state, without_adapters
from runners.train.attention import activate_flash, apply_liger, pack, packs
from runners.train.batch import (
    MicroBatch,
    TrainBatch,
    assign_packed,
    assign_padded,
    make_packed,
    make_padded,
    token_bound,
    unshuffle,
)
from runners.train.logprobs import Distributions, TopkDistributions, find_topk
from runners.train.metrics import ThroughputCounter
from runners.train.optimizers import moments_to_come
from runners.train.ranks import ALONE, Ranks
from runners.train.sharding import Scorer, full_state, full_tensor, iter_local_weights, join_copies, to_local

Loss = Callable[[TrainBatch, Tensor], Tensor]
"""From a micro-batch and `Learner.logprobs` of its trained tokens to a sum that adds up over micro-batches."""


@dataclass(frozen=True, slots=True)
class Learner:
    """A model in training: its pass, its optimizers, and how its batches are run."""

    model: Any
    """The `transformers` model."""
    scorer: Scorer
    """The pass of the model."""
    optimizers: Sequence[torch.optim.Optimizer]
    """None of them for a model that is not trained."""
    grad_norm: float
    """The norm that gradients are clipped to; 0 for no clipping."""
    ranks: Ranks = ALONE
    """The processes that hold the model together; it is sharded over their mesh."""
    microbatch: int | None = None
    """The most tokens that are run at once, None for the device's default."""
    throughput: ThroughputCounter = field(default_factory=ThroughputCounter)
    """Counts what has been run."""
    packed: bool = False
    """True if sequences are run without padding, and assigned by FLOPs."""
    adapted: bool = False
    """True if the model has adapters beside its weights."""
    base: bool = False
    """True if passes leave the adapters out."""
    recipe: Recipe = ALL_WEIGHTS
    """The part of the training state that is on a device."""
    shares_device: bool = True
    """True if the device is an engine's too, which gets back what the allocator caches."""
    cost: float = 1.0
    """The cost of a pass, in passes of the model that `throughput` counts."""

    @staticmethod
    def of(
        model: Any,
        optimizers: Sequence[torch.optim.Optimizer],
        grad_norm: float,
        ranks: Ranks = ALONE,
        scorer: Scorer | None = None,
        microbatch: int | None = None,
        packed: bool | None = None,
    ) -> Learner:
        """Return a learner of a model.

        Args:
            model: The `transformers` model.
            optimizers: Its optimizers.
            grad_norm: The norm that gradients are clipped to; 0 for no clipping.
            ranks: The processes that hold it together.
            scorer: Its pass, if it is sharded or rounds.
            microbatch: The most tokens that are run at once.
            packed: Whether sequences are packed; None as `packs` says.
        """
        device = next(model.parameters()).device
        if packed is None:
            packed = packs(model, device)
        if packed:
            pack(model)
            activate_flash(device)
            apply_liger(model, device)
        return Learner(
            model,
            scorer or Scorer(model),
            optimizers,
            grad_norm,
            ranks,
            microbatch,
            packed=packed,
            adapted=is_adapted(model),
        )

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return next(self.model.parameters()).device

    @property
    def sharded(self) -> bool:
        """Return whether the parameters are shards, over one process or several."""
        return self.ranks.mesh is not None

    @property
    def bound(self) -> int:
        """The most tokens that are run at once, padding included; a single sequence may be longer."""
        return self.microbatch or token_bound(self.device)

    @property
    def sizes(self) -> Sizes | None:
        """The model's sizes, for FLOPs and bytes; None where its config does not tell them."""
        return from_config(self.model.config.to_dict())

    @property
    def passes(self) -> int:
        """Return the cost of a training step in forward passes: weights under adapters need no gradient."""
        return 2 if self.adapted else 3

    def assign_rows(self, batch: TrainBatch, rows: Sequence[int] | None = None) -> list[list[Tensor]]:
        """Assign the rows of a batch to processes and micro-batches; rows without trained tokens are skipped.

        Args:
            batch: The batch.
            rows: The rows to assign; None for all.

        Returns:
            Indices of rows by process and micro-batch.
        """
        every = torch.arange(len(batch)) if rows is None else torch.tensor(rows, dtype=torch.int64)
        run = every[batch.num_trained[every] > 0]
        lengths = batch.lengths[run].tolist()
        if self.packed:
            groups_of = assign_packed(lengths, self._costs(lengths), self.bound, self.ranks.world)
        else:
            groups_of = assign_padded(lengths, self.bound, self.ranks.world)
        return [[run[torch.tensor(group, dtype=torch.int64)] for group in groups] for groups in groups_of]

    def microbatches(
        self, batch: TrainBatch, passes: int, assignment: Sequence[Sequence[Tensor]]
    ) -> list[MicroBatch]:
        """Return this process's micro-batches, on its device, and count them.

        Args:
            batch: The batch.
            passes: How many forward passes each costs: 3 with a backward pass, else 1.
            assignment: What `assign_rows` returned.
        """
        for rows in chain.from_iterable(assignment):
            self.throughput.add(batch.lengths[rows].tolist(), passes * self.cost)
        part_of = make_packed if self.packed else make_padded
        return [part_of(batch.select(rows), self.device) for rows in assignment[self.ranks.rank]]

    def _costs(self, lengths: Sequence[int]) -> list[float]:
        """Return the FLOPs of a forward pass over each sequence; its tokens, where the model's sizes are not known."""
        sizes = self.sizes
        if sizes is None:
            return [float(length) for length in lengths]
        # Attention is causal: a token attends to half of its sequence on average.
        return [sizes.forward_flops(length, length**2 / 2) for length in lengths]

    def logprobs(
        self,
        micro: MicroBatch,
        temperature: float,
        entropies: bool = False,
        other: Distributions | TopkDistributions | None = None,
    ) -> Tensor:
        """Return the log-probabilities of the trained tokens, with a gradient.

        Args:
            micro: The rows.
            temperature: Of the distribution.
            entropies: Whether entropies are asked for.
            other: The distributions to compare with, None for no divergence.

        Returns:
            Nats: [trained tokens], or [2 or 3, trained tokens] with entropies, then divergences, in rows below.
        """
        with self.explain_oom(micro), self._weights_of_pass():
            targets, sequences = micro.targets, micro.sequences
            measured: Tensor = self.scorer(
                micro.ids, micro.positions, targets, temperature, entropies, sequences, other
            )
            return measured

    @torch.no_grad()
    def hidden(self, micro: MicroBatch) -> Tensor:
        """Return the hidden states that predict the trained tokens, without a gradient.

        Returns:
            [trained tokens, hidden].
        """
        with self.explain_oom(micro), self._weights_of_pass():
            states: Tensor = self.scorer(micro.ids, micro.positions, None, sequences=micro.sequences)
            return states

    def head(self) -> Tensor:
        """Return the output matrix as passes see it; a collective.

        Returns:
            [vocabulary, hidden].
        """
        weight = self.model.get_output_embeddings().weight.detach()
        return full_tensor(weight).to(self.scorer.precision)

    def topk_logprobs(
        self, batch: TrainBatch, count: int, rows: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return the k most likely tokens at a batch's trained tokens, and their log-probabilities, on every process.

        Args:
            batch: The batch.
            count: k.
            rows: The first tokens of the vocabulary that count.
            temperature: Of the distribution.

        Returns:
            Ids, [trained tokens, k], and log-probabilities with that of the rest, [trained tokens, k + 1].
        """
        head, assignment = self.head()[:rows], self.assign_rows(batch)
        parts = self.microbatches(batch, 1, assignment)
        pairs = [find_topk(self.hidden(micro), head, count, temperature) for micro in parts]
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(assignment)])
        width = min(count, rows - 1)
        columns = []
        for i, wide, kind in ((0, width, torch.int32), (1, width + 1, torch.float32)):
            flat = [torch.zeros(0, dtype=kind, device=self.device), *(pair[i].flatten() for pair in pairs)]
            # Processes join numbers, not rows of them.
            whole_column = self.ranks.all_gather(torch.cat(flat)).view(-1, wide)
            columns.append(unshuffle(whole_column, order, batch.num_trained))
        return columns[0], columns[1]

    def _weights_of_pass(self) -> AbstractContextManager[None]:
        return without_adapters(self.model) if self.base else nullcontext()

    def score(self, batch: TrainBatch, temperature: float) -> Tensor:
        """Return the log-probabilities of a batch's trained tokens, on every process and without a gradient.

        Returns:
            Nats, [trained tokens].
        """
        return self.measure(batch, temperature)[0]

    def measure(self, batch: TrainBatch, temperature: float, entropies: bool = False) -> Tensor:
        """Return log-probabilities as `score`, and the entropies of the distributions that tokens are sampled from.

        Args:
            batch: The batch.
            temperature: Of the distribution.
            entropies: Whether entropies are asked for.

        Returns:
            Nats, [1 or 2, trained tokens].
        """
        count, assignment = 1 + entropies, self.assign_rows(batch)
        scored = [torch.zeros(count, 0, device=self.device)]
        with torch.no_grad():
            for micro in self.microbatches(batch, 1, assignment):
                scored.append(self.logprobs(micro, temperature, entropies).float().view(count, -1))
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(assignment)])
        # A GPU works on while nobody asks it for a number. Processes join numbers, not rows of them.
        joined = (self.ranks.all_gather(row.contiguous()) for row in torch.cat(scored, 1))
        return torch.stack([unshuffle(row, order, batch.num_trained) for row in joined])

    def weights(self, device: torch.device | None = None) -> dict[str, Tensor]:
        """Return all tensors by their `transformers` names, as the passes see them; a collective.

        Only rank 0 gets tensors, on `device` or its own. Gradients are gone then, and no process holds more of its
        device than it has to keep: an engine may be on it too.

        Returns:
            Full tensors on rank 0, nothing on other ranks.
        """
        self.release_memory()
        if not self.sharded:
            return merge_state(self.model) if self.adapted else self.model.state_dict()
        state = full_state(self.model, self.ranks, device or self.device, self.scorer.precision)
        self.release_memory()
        self.ranks.barrier()
        return state

    @torch.no_grad()
    def update_ema(self, policy: Learner, decay: float) -> None:
        """Move these weights to `decay` times themselves plus 1 - `decay` times a policy's, on every process.

        They are float32 as the policy's are, whatever passes round: in bfloat16 most of these small steps would be
        none.

        Args:
            policy: The learner whose weights are followed.
            decay: The share that stays, 0 to 1.
        """
        for name, rows in iter_local_weights(policy.model):
            to_local(self.model.get_parameter(name)).lerp_(rows, 1.0 - decay)

    def explain_oom(self, micro: MicroBatch | None = None) -> AbstractContextManager[None]:
        """Say what to change if a micro-batch, or without one the optimizer, runs out of memory."""

        def explain() -> Explanation:
            sizes, device, recipe = self.sizes, self.device, self.recipe
            if micro is None:
                return explain_training(sizes, device, "in the optimizer's step", recipe)
            rows, tokens = len(micro.columns), micro.ids.numel()
            doing = f"on a micro-batch of {rows} rows, {tokens} tokens"
            return explain_training(sizes, device, doing, recipe, max(rows, 1), tokens, self.bound)

        return explain_oom(self.device, explain)

    def release_memory(self) -> None:
        """Drop gradients, and the allocator's cache if an engine shares the device."""
        for parameter in self.model.parameters():
            parameter.grad = None
        if self.shares_device and self.device.type != "cpu":
            torch.get_device_module(self.device).empty_cache()

    @property
    def bytes_still_needed(self) -> float:
        """Bytes of this device that are not held yet and will be between updates: moments, and weights that are handed over.

        Returns:
            Bytes.
        """
        numbers = sum(p.numel() for p in self.model.parameters()) if self.sharded else 0
        return moments_to_come(self.optimizers) + min(numbers * self.scorer.precision.itemsize, BUCKET_BYTES)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A frozen model that distributions are compared with, as `form` says.

    `head` is its output matrix, [vocabulary, hidden]. Both `head` and `learner` are None if batches have its most
    likely tokens.
    """

    form: Form
    learner: Learner | None = None
    head: Tensor | None = None

    def microbatches(self, batch: TrainBatch, assignment: Sequence[Sequence[Tensor]]) -> Sequence[MicroBatch]:
        """Return the teacher's micro-batches of an assigned batch; nothing if the batch has its most likely tokens.

        Args:
            batch: The batch.
            assignment: What `assign_rows` returned for it.
        """
        return () if self.learner is None else self.learner.microbatches(batch.teacher_rows(), 1, assignment)

    def distributions(
        self, micro: MicroBatch, teacher_micro: MicroBatch | None
    ) -> Distributions | TopkDistributions:
        """Return the teacher's distributions at the trained tokens of a micro-batch."""
        if self.learner is None or self.head is None or teacher_micro is None:
            return TopkDistributions(micro.columns.topk_ids, micro.columns.topk_logprobs, self.form)
        return Distributions(self.learner.hidden(teacher_micro), self.head, self.form)


@dataclass(frozen=True, slots=True)
class OptimizerStepResult:
    """The loss of an optimizer step, and the gradient's norm before clipping."""

    loss: float
    grad_norm: float


def optimizer_step(
    learner: Learner,
    batch: TrainBatch,
    loss: Loss,
    temperature: float,
    where: str,
    check: Callable[[], None] = lambda: None,
    entropies: bool = False,
    rows: Sequence[int] | None = None,
    teacher: Teacher | None = None,
) -> OptimizerStepResult:
    """Take a step of the optimizers on the summed loss of a batch. Without trained tokens the gradient is zero.

    Args:
        learner: The model.
        batch: The batch of all processes, the same on each.
        loss: The loss of a micro-batch.
        temperature: Of the distribution.
        where: Where training is, for messages.
        check: Called after the gradient, before anything changes.
        entropies: Whether the loss reads entropies.
        rows: The rows to train on; None for all.
        teacher: The teacher whose divergences the loss reads.

    Returns:
        The loss and the gradient's norm.

    Raises:
        Problem: E0926, the loss or the gradient is not finite; nothing has changed then.
    """
    parameters = [parameter for parameter in learner.model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        # Zeros, not None: momentum and decay go on for a minibatch without a signal.
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.zero_()
    losses: list[Tensor] = []
    assignment = learner.assign_rows(batch, rows)
    parts = learner.microbatches(batch, learner.passes, assignment)
    theirs = teacher.microbatches(batch, assignment) if teacher is not None else ()
    for number, (micro, teacher_micro) in enumerate(zip_longest(parts, theirs), 1):
        other = teacher.distributions(micro, teacher_micro) if teacher is not None else None
        # Between nodes the sum travels once.
        join_copies(learner.scorer, number == len(parts))
        value = loss(micro.columns, learner.logprobs(micro, temperature, entropies, other))
        with learner.explain_oom(micro):
            value.backward()
        losses.append(value.detach())
    norm = full_tensor(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    # Read once, since a GPU works on while nobody asks it for a number.
    (total,) = learner.ranks.all_reduce_sum([sum(torch.stack(losses).tolist()) if losses else 0.0])
    _require_finite(total, float(norm), where)
    check()
    if learner.grad_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, learner.grad_norm, norm)
    with learner.explain_oom():
        for optimizer in learner.optimizers:
            optimizer.step()
    return OptimizerStepResult(total, float(norm))


def _require_finite(loss: float, norm: float, where: str) -> None:
    """Raise E0926 if the loss or the gradient's norm is not finite."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    raise problem(
        "E0926",
        f"training diverged: the loss is {loss:g} and the gradient's norm {norm:g}",
        where=where,
        notes=["the last saved step is kept, and nothing of this one"],
        help="lower `optim.lr`, lengthen `optim.warmup`, or set `optim.grad_norm` to 1 or below",
    )
