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
"""A function from a micro-batch and the scores of its trained tokens (`Learner.logprobs`) to its loss, []. The losses of
micro-batches add up to the loss of the batch."""


@dataclass(frozen=True, slots=True)
class Learner:
    """A model in training, or a frozen model that scores: its forward pass, optimizers, and layout of batches."""

    model: Any
    """The `transformers` model."""
    scorer: Scorer
    """The module that runs the model's forward pass."""
    optimizers: Sequence[torch.optim.Optimizer]
    """The optimizers; empty for a model that is not trained."""
    grad_norm: float
    """The norm that gradients are clipped to; 0 for no clipping."""
    ranks: Ranks = ALONE
    """The processes that hold the model together; it is sharded over their mesh."""
    microbatch: int | None = None
    """The largest number of tokens of a micro-batch, None for the device's default."""
    throughput: ThroughputCounter = field(default_factory=ThroughputCounter)
    """Counts the sequences that have been run."""
    packed: bool = False
    """True if sequences are run without padding, and assigned by FLOPs."""
    adapted: bool = False
    """True if the model has LoRA adapters."""
    base: bool = False
    """True if passes leave the adapters out."""
    recipe: Recipe = ALL_WEIGHTS
    """The settings that decide how much training state is on a device, for messages about memory."""
    shares_device: bool = True
    """True if an engine uses the same device, so that cached memory is returned to it."""
    cost: float = 1.0
    """The cost of a pass of this model, relative to a pass of the policy, for `throughput`."""

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
        """Build a learner of a model.

        If sequences are packed, the model's attention is set to packed attention, and flash attention 4 and fused
        kernels are installed if available. The model is changed in place.

        Args:
            model: The `transformers` model.
            optimizers: Its optimizers.
            grad_norm: The norm that gradients are clipped to; 0 for no clipping.
            ranks: The processes that hold the model together.
            scorer: The module that runs the forward pass of a sharded model or in another precision; None for a default
                `Scorer`.
            microbatch: The largest number of tokens of a micro-batch, None for the device's default.
            packed: Whether sequences are packed; None to decide by `packs`.
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
        """Return whether the parameters are shards, also if a single process holds them."""
        return self.ranks.mesh is not None

    @property
    def bound(self) -> int:
        """Return the largest number of tokens of a micro-batch, padding included; a single sequence may be longer."""
        return self.microbatch or token_bound(self.device)

    @property
    def sizes(self) -> Sizes | None:
        """Return the model's sizes, for FLOPs and bytes; None if its config lacks them."""
        return from_config(self.model.config.to_dict())

    @property
    def passes(self) -> int:
        """Return the cost of a forward and backward pass, in forward passes: 3, or 2 if only adapters are trained."""
        return 2 if self.adapted else 3

    def assign_rows(self, batch: TrainBatch, rows: Sequence[int] | None = None) -> list[list[Tensor]]:
        """Assign the rows of a batch to processes and micro-batches; rows without trained tokens are left out.

        Args:
            batch: The batch.
            rows: The rows to assign; None for all.

        Returns:
            For each process and micro-batch, the indices of rows.
        """
        candidates = torch.arange(len(batch)) if rows is None else torch.tensor(rows, dtype=torch.int64)
        trained = candidates[batch.num_trained[candidates] > 0]
        lengths = batch.lengths[trained].tolist()
        if self.packed:
            groups_of = assign_packed(lengths, self._costs(lengths), self.bound, self.ranks.world)
        else:
            groups_of = assign_padded(lengths, self.bound, self.ranks.world)
        return [[trained[torch.tensor(group, dtype=torch.int64)] for group in groups] for groups in groups_of]

    def microbatches(
        self, batch: TrainBatch, passes: int, assignment: Sequence[Sequence[Tensor]]
    ) -> list[MicroBatch]:
        """Return this process's micro-batches on its device, and count the rows of all processes in `throughput`.

        Args:
            batch: The batch.
            passes: The cost of running a row, in forward passes: 1, or `Learner.passes` with a backward pass.
            assignment: The result of `assign_rows`.
        """
        for rows in chain.from_iterable(assignment):
            self.throughput.add(batch.lengths[rows].tolist(), passes * self.cost, trained=passes > 1)
        make = make_packed if self.packed else make_padded
        return [make(batch.select(rows), self.device) for rows in assignment[self.ranks.rank]]

    def _costs(self, lengths: Sequence[int]) -> list[float]:
        """Return the FLOPs of a forward pass over each sequence; or its tokens, if the model's sizes are unknown."""
        sizes = self.sizes
        if sizes is None:
            return [float(length) for length in lengths]
        # Attention is causal: a token attends to half of its sequence on average.
        return [sizes.forward_flops(length, length**2 / 2) for length in lengths]

    def logprobs(
        self,
        micro: MicroBatch,
        temperature: float,
        with_entropies: bool = False,
        other: Distributions | TopkDistributions | None = None,
    ) -> Tensor:
        """Return the log-probabilities of the trained tokens of a micro-batch, with a gradient.

        Args:
            micro: The micro-batch.
            temperature: The divisor of the logits.
            with_entropies: Whether to compute entropies.
            other: The distributions from which divergences are computed; None for no divergences.

        Returns:
            Nats: log-probabilities, [trained tokens]; or [2 or 3, trained tokens] with entropies and divergences in
            further rows.
        """
        with self.explain_oom(micro), self._weights_of_pass():
            targets, sequences = micro.targets, micro.sequences
            measured: Tensor = self.scorer(
                micro.ids, micro.positions, targets, temperature, with_entropies, sequences, other
            )
            return measured

    @torch.no_grad()
    def hidden(self, micro: MicroBatch) -> Tensor:
        """Return the hidden states that predict the trained tokens, [trained tokens, hidden], without a gradient."""
        with self.explain_oom(micro), self._weights_of_pass():
            states: Tensor = self.scorer(micro.ids, micro.positions, None, sequences=micro.sequences)
            return states

    def head(self) -> Tensor:
        """Return the full output matrix in the precision of passes, [vocabulary, hidden]; all ranks must call this."""
        weight = self.model.get_output_embeddings().weight.detach()
        return full_tensor(weight).to(self.scorer.precision)

    def topk_logprobs(
        self, batch: TrainBatch, k: int, vocabulary: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return the k most likely tokens at each trained token of a batch, with log-probabilities, on every process.

        Args:
            batch: The batch.
            k: The number of tokens; larger values are lowered to `vocabulary - 1`.
            vocabulary: The number of first rows of the output matrix to use; later rows are padding.
            temperature: The divisor of the logits.

        Returns:
            Token ids, [trained tokens, k], and log-probabilities in nats, [trained tokens, k + 1]. The last column is
            the log-probability of all other tokens together.
        """
        head, assignment = self.head()[:vocabulary], self.assign_rows(batch)
        micros = self.microbatches(batch, 1, assignment)
        pairs = [find_topk(self.hidden(micro), head, k, temperature) for micro in micros]
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(assignment)])
        width = min(k, vocabulary - 1)
        columns = []
        for index, cols, kind in ((0, width, torch.int32), (1, width + 1, torch.float32)):
            flat = [
                torch.zeros(0, dtype=kind, device=self.device),
                *(pair[index].flatten() for pair in pairs),
            ]
            # `all_gather` joins one-dimensional tensors.
            joined = self.ranks.all_gather(torch.cat(flat)).view(-1, cols)
            columns.append(unshuffle(joined, order, batch.num_trained))
        return columns[0], columns[1]

    def _weights_of_pass(self) -> AbstractContextManager[None]:
        """Return a context in which the model's passes leave its adapters out, if `base` is set."""
        return without_adapters(self.model) if self.base else nullcontext()

    def score(self, batch: TrainBatch, temperature: float) -> Tensor:
        """Return the log-probabilities of a batch's trained tokens, without a gradient, on every process.

        Returns:
            Nats, [trained tokens].
        """
        return self.measure(batch, temperature)[0]

    def measure(self, batch: TrainBatch, temperature: float, with_entropies: bool = False) -> Tensor:
        """Return the log-probabilities of a batch's trained tokens, and entropies if requested, without a gradient.

        The result is the same on every process. All processes must call this function.

        Args:
            batch: The batch.
            temperature: The divisor of the logits.
            with_entropies: Whether to compute entropies.

        Returns:
            Nats: log-probabilities, and entropies in the second row if requested, [1 or 2, trained tokens].
        """
        num_rows, assignment = 1 + with_entropies, self.assign_rows(batch)
        scored = [torch.zeros(num_rows, 0, device=self.device)]
        with torch.no_grad():
            for micro in self.microbatches(batch, 1, assignment):
                scored.append(self.logprobs(micro, temperature, with_entropies).float().view(num_rows, -1))
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(assignment)])
        # Read results once at the end, since each read waits for the GPU; `all_gather` joins one-dimensional tensors.
        gathered = (self.ranks.all_gather(row.contiguous()) for row in torch.cat(scored, 1))
        return torch.stack([unshuffle(row, order, batch.num_trained) for row in gathered])

    def weights(self, device: torch.device | None = None) -> dict[str, Tensor]:
        """Return all tensors of the model by their `transformers` names, with merged adapters.

        All ranks must call this function. Gradients are freed first. The allocator's cached memory is freed too if an
        engine shares the device.

        Args:
            device: The device of gathered tensors of a sharded model; None for the model's device.

        Returns:
            Full tensors. For a sharded model only rank 0 gets tensors; other ranks get an empty dict.
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
        """Move these weights towards the policy's: w = decay * w + (1 - decay) * w_policy, on every process.

        The weights must be float32, even if passes run in bfloat16, which would round most of these small changes away.

        Args:
            policy: The learner whose weights are followed.
            decay: The share of the old weights, 0 to 1.
        """
        for name, rows in iter_local_weights(policy.model):
            to_local(self.model.get_parameter(name)).lerp_(rows, 1.0 - decay)

    def explain_oom(self, micro: MicroBatch | None = None) -> AbstractContextManager[None]:
        """Return a context in which running out of memory raises E0937 with advice.

        Args:
            micro: The micro-batch that is run in the context; None for the optimizer's step.
        """

        def explain() -> Explanation:
            """Return what the device's memory is used for."""
            sizes, device, recipe = self.sizes, self.device, self.recipe
            if micro is None:
                return explain_training(sizes, device, "in the optimizer's step", recipe)
            rows, tokens = len(micro.columns), micro.ids.numel()
            doing = f"on a micro-batch of {rows} rows, {tokens} tokens"
            return explain_training(sizes, device, doing, recipe, max(rows, 1), tokens, self.bound)

        return explain_oom(self.device, explain)

    def release_memory(self) -> None:
        """Drop gradients; if an engine shares the device, also return the allocator's cached memory to the device."""
        for parameter in self.model.parameters():
            parameter.grad = None
        if self.shares_device and self.device.type != "cpu":
            torch.get_device_module(self.device).empty_cache()

    @property
    def bytes_still_needed(self) -> float:
        """Return the bytes of this device that are not allocated yet, but will be needed while an engine runs on it.

        These are the optimizers' moments, which exist only after the first step, and for a sharded model the buffer of
        gathered weights that are sent to an engine.
        """
        weights = sum(p.numel() for p in self.model.parameters()) if self.sharded else 0
        return moments_to_come(self.optimizers) + min(weights * self.scorer.precision.itemsize, BUCKET_BYTES)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A frozen model whose distributions the policy's are compared with, in the divergence that `form` names.

    `head` is the teacher's output matrix, [vocabulary, hidden]. `learner` and `head` are None if batches contain the
    teacher's most likely tokens.
    """

    form: Form
    learner: Learner | None = None
    head: Tensor | None = None

    def microbatches(self, batch: TrainBatch, assignment: Sequence[Sequence[Tensor]]) -> Sequence[MicroBatch]:
        """Return the teacher's micro-batches of a batch; an empty tuple if the batch has the teacher's likely tokens.

        Args:
            batch: The batch.
            assignment: The result of the policy's `assign_rows` for the batch.
        """
        return () if self.learner is None else self.learner.microbatches(batch.teacher_rows(), 1, assignment)

    def distributions(
        self, micro: MicroBatch, teacher_micro: MicroBatch | None
    ) -> Distributions | TopkDistributions:
        """Return the teacher's distributions at the trained tokens: top-k from the batch, or full from a forward pass.

        Args:
            micro: The policy's micro-batch.
            teacher_micro: The same rows with the teacher's prompts; None if the batch has the teacher's most likely
                tokens.
        """
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
    with_entropies: bool = False,
    rows: Sequence[int] | None = None,
    teacher: Teacher | None = None,
) -> OptimizerStepResult:
    """Run one step of the optimizers on the summed loss of a batch.

    If the rows have no trained tokens, the gradient is zero, and the optimizers still step, because momentum and weight
    decay apply.

    Args:
        learner: The model.
        batch: The full batch, the same on each process.
        loss: The loss of a micro-batch.
        temperature: The divisor of the logits.
        where: The current step in words, e.g. `step 3, epoch 1, minibatch 2`, for messages.
        check: Called once, after the gradient is computed and before a weight changes; it may raise to stop the step.
        with_entropies: Whether the loss reads entropies.
        rows: The rows to train on; None for all.
        teacher: The teacher whose divergences the loss reads.

    Returns:
        The loss, and the gradient's norm before clipping.

    Raises:
        Problem: E0926, if the loss or the gradient is not finite; no weight has changed.
    """
    parameters = [parameter for parameter in learner.model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        # The first backward pass leaves its gradients here, which saves a launch and a sum for each parameter.
        parameter.grad = None
    losses: list[Tensor] = []
    assignment = learner.assign_rows(batch, rows)
    micros = learner.microbatches(batch, learner.passes, assignment)
    teacher_micros = teacher.microbatches(batch, assignment) if teacher is not None else ()
    for index, (micro, teacher_micro) in enumerate(zip_longest(micros, teacher_micros), 1):
        other = teacher.distributions(micro, teacher_micro) if teacher is not None else None
        # Copies of the model sum their gradients once, after the last micro-batch.
        join_copies(learner.scorer, index == len(micros))
        value = loss(micro.columns, learner.logprobs(micro, temperature, with_entropies, other))
        with learner.explain_oom(micro):
            value.backward()
        losses.append(value.detach())
    for parameter in (p for p in parameters if p.grad is None):
        # Zeros, not None, so that momentum and weight decay apply to a minibatch without a gradient too.
        parameter.grad = torch.zeros_like(parameter)
    total_norm = full_tensor(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    # Read all numbers once, since each read waits for the GPU.
    *values, grad_norm = torch.stack([*losses, total_norm]).tolist()
    (total,) = learner.ranks.all_reduce_sum([sum(values, 0.0)])
    _require_finite(total, grad_norm, where)
    check()
    if learner.grad_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, learner.grad_norm, total_norm)
    with learner.explain_oom():
        for optimizer in learner.optimizers:
            optimizer.step()
    return OptimizerStepResult(total, grad_norm)


def _require_finite(loss: float, grad_norm: float, where: str) -> None:
    """Raise E0926 if the loss or the gradient's norm is not finite; `where` is the current step in words."""
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return
    raise problem(
        "E0926",
        f"training diverged: the loss is {loss:g} and the gradient's norm {grad_norm:g}",
        where=where,
        notes=["the last saved step is kept; this step has changed no weights"],
        help="lower `optim.lr`, lengthen `optim.warmup`, or set `optim.grad_norm` to 1 or below",
    )
