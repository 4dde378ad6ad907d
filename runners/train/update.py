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
from runners.train.attention import activate_flash, fuse, pack, packs
from runners.train.batch import (
    MicroBatch,
    TrainBatch,
    deal_packed,
    deal_padded,
    packed,
    padded,
    put_in_order,
    token_bound,
)
from runners.train.logprobs import Distributions, Likeliest, find_likeliest
from runners.train.metrics import Tally
from runners.train.optimizers import moments_to_come
from runners.train.ranks import ALONE, Ranks
from runners.train.sharding import Scorer, iter_local_weights, join_copies, local, whole, whole_state

Loss = Callable[[TrainBatch, Tensor], Tensor]
"""From a micro-batch and what `Learner.logprobs` gives of its trained tokens to a sum that adds up over micro-batches."""


@dataclass(frozen=True, slots=True)
class Learner:
    """A model being trained: its pass, its optimizers, and the gradient norm that is clipped at (0: never).

    `ranks` are the processes that hold it together, and it is sharded over their mesh. `microbatch` bounds the tokens that
    are run at once. `tally` counts what has been run. `packed` sequences are run without padding, and dealt by FLOPs. An
    `adapted` model has adapters beside its weights, and `base` leaves them out of its passes. `recipe` says what of its
    state is on a device. With `yields` its device is an engine's too, which gets back what the allocator keeps. A pass costs
    `cost` times one of the model that the tally is of.
    """

    model: Any
    scorer: Scorer
    optimizers: Sequence[torch.optim.Optimizer]
    grad_norm: float
    ranks: Ranks = ALONE
    microbatch: int | None = None
    tally: Tally = field(default_factory=Tally)
    packed: bool = False
    adapted: bool = False
    base: bool = False
    recipe: Recipe = ALL_WEIGHTS
    yields: bool = True
    cost: float = 1.0

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
        """Return a learner with this pass of the model, or its plain one.

        Sequences are packed as `packs` says, or as `packed`.
        """
        device = next(model.parameters()).device
        if packed is None:
            packed = packs(model, device)
        if packed:
            pack(model)
            activate_flash(device)
            fuse(model, device)
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
        """Return where the parameters are."""
        return next(self.model.parameters()).device

    @property
    def sharded(self) -> bool:
        """Return whether the parameters are shards, of one process or several."""
        return self.ranks.mesh is not None

    @property
    def bound(self) -> int:
        """The most tokens that are run at once, padding and all, unless one sequence is longer."""
        return self.microbatch or token_bound(self.device)

    @property
    def sizes(self) -> Sizes | None:
        """The model's sizes, for FLOPs and bytes; None where its config does not tell them."""
        return from_config(self.model.config.to_dict())

    @property
    def passes(self) -> int:
        """Return what a step costs, in forward passes: weights that are not trained need no gradient, where none is made."""
        return 2 if self.adapted else 3

    def deal(self, batch: TrainBatch, rows: Sequence[int] | None = None) -> list[list[Tensor]]:
        """Return which rows of a batch each process runs, of these or of all, in parts that are run at once.

        Rows without trained tokens are skipped.
        """
        every = torch.arange(len(batch)) if rows is None else torch.tensor(rows, dtype=torch.int64)
        run = every[batch.trained[every] > 0]
        lengths = batch.lengths[run].tolist()
        if self.packed:
            dealt = deal_packed(lengths, self._costs(lengths), self.bound, self.ranks.world)
        else:
            dealt = deal_padded(lengths, self.bound, self.ranks.world)
        return [[run[torch.tensor(group, dtype=torch.int64)] for group in groups] for groups in dealt]

    def microbatches(
        self, batch: TrainBatch, passes: int, dealt: Sequence[Sequence[Tensor]]
    ) -> list[MicroBatch]:
        """Return this process's share of what `deal` gave, on its device.

        It is run `passes` times: 3 with a backward pass, else 1.
        """
        for rows in chain.from_iterable(dealt):
            self.tally.add(batch.lengths[rows].tolist(), passes * self.cost)
        part_of = packed if self.packed else padded
        return [part_of(batch.select(rows), self.device) for rows in dealt[self.ranks.rank]]

    def _costs(self, lengths: Sequence[int]) -> list[float]:
        """Return the FLOPs of a forward pass over each sequence; its tokens, where the model's sizes are not known."""
        sizes = self.sizes
        if sizes is None:
            return [float(length) for length in lengths]
        # Attention is causal: a token attends to half of its sequence on average.
        return [sizes.forward_flops(length, length**2 / 2) for length in lengths]

    def logprobs(
        self,
        part: MicroBatch,
        temperature: float,
        entropies: bool = False,
        other: Distributions | Likeliest | None = None,
    ) -> Tensor:
        """Return the log-probabilities of the trained tokens, with gradient.

        With `entropies` those of the distributions that the tokens are drawn from are below, and last the divergences from
        an `other` one: [1 to 3, tokens].
        """
        with self.explain_oom(part), self._weights_of_pass():
            targets, sequences = part.targets, part.sequences
            measured: Tensor = self.scorer(
                part.ids, part.at, targets, temperature, entropies, sequences, other
            )
            return measured

    @torch.no_grad()
    def hidden(self, part: MicroBatch) -> Tensor:
        """Return the hidden states that predict the trained tokens, [tokens, hidden], without a gradient."""
        with self.explain_oom(part), self._weights_of_pass():
            states: Tensor = self.scorer(part.ids, part.at, None, sequences=part.sequences)
            return states

    def head(self) -> Tensor:
        """Return the output matrix as passes see it, [vocabulary, hidden]. Every process has to ask."""
        weight = self.model.get_output_embeddings().weight.detach()
        return whole(weight).to(self.scorer.precision)

    def likeliest(
        self, batch: TrainBatch, count: int, rows: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return ids and log-probabilities of `find_likeliest` of a batch's trained tokens, on every process.

        They are of the first `rows` of the vocabulary.
        """
        head, dealt = self.head()[:rows], self.deal(batch)
        parts = self.microbatches(batch, 1, dealt)
        found = [find_likeliest(self.hidden(part), head, count, temperature) for part in parts]
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(dealt)])
        width = min(count, rows - 1)
        columns = []
        for at, wide, kind in ((0, width, torch.int32), (1, width + 1, torch.float32)):
            flat = [torch.zeros(0, dtype=kind, device=self.device), *(each[at].flatten() for each in found)]
            # Processes join numbers, not rows of them.
            whole_column = self.ranks.join(torch.cat(flat)).view(-1, wide)
            columns.append(put_in_order(whole_column, order, batch.trained))
        return columns[0], columns[1]

    def _weights_of_pass(self) -> AbstractContextManager[None]:
        return without_adapters(self.model) if self.base else nullcontext()

    def score(self, batch: TrainBatch, temperature: float) -> Tensor:
        """Return the log-probabilities of a batch's trained tokens, on every process and without a gradient."""
        return self.measure(batch, temperature)[0]

    def measure(self, batch: TrainBatch, temperature: float, entropies: bool = False) -> Tensor:
        """Return log-probabilities as `score`, and in nats the entropies of what tokens are drawn from: [1 or 2, tokens]."""
        count, dealt = 1 + entropies, self.deal(batch)
        scored = [torch.zeros(count, 0, device=self.device)]
        with torch.no_grad():
            for part in self.microbatches(batch, 1, dealt):
                scored.append(self.logprobs(part, temperature, entropies).float().view(count, -1))
        order = torch.cat([torch.zeros(0, dtype=torch.int64), *chain.from_iterable(dealt)])
        # A GPU works on while nobody asks it for a number. Processes join numbers, not rows of them.
        joined = (self.ranks.join(row.contiguous()) for row in torch.cat(scored, 1))
        return torch.stack([put_in_order(row, order, batch.trained) for row in joined])

    def weights(self, device: torch.device | None = None) -> dict[str, Tensor]:
        """Return all tensors by their `transformers` names, as the passes see them.

        Every process has to ask, and only the first one gets any, on `device` or its own. Gradients are gone then, and
        no process holds more of its device than it has to keep: an engine may be on it too.
        """
        self.rest()
        if not self.sharded:
            return merge_state(self.model) if self.adapted else self.model.state_dict()
        state = whole_state(self.model, self.ranks, device or self.device, self.scorer.precision)
        self.rest()
        self.ranks.wait()
        return state

    @torch.no_grad()
    def follow(self, policy: Learner, decay: float) -> None:
        """Move these weights to `decay` times themselves and 1 - `decay` times a policy's, on every process.

        They are float32 as the policy's are, whatever passes round: in bfloat16 most of such small steps would be none.
        """
        for name, rows in iter_local_weights(policy.model):
            local(self.model.get_parameter(name)).lerp_(rows, 1.0 - decay)

    def explain_oom(self, part: MicroBatch | None = None) -> AbstractContextManager[None]:
        """Say what to change where the passes of a micro-batch, or without one the optimizer, run out of memory."""

        def explain() -> Explanation:
            sizes, device, recipe = self.sizes, self.device, self.recipe
            if part is None:
                return explain_training(sizes, device, "in the optimizer's step", recipe)
            rows, tokens = len(part.columns), part.ids.numel()
            doing = f"on a micro-batch of {rows} rows, {tokens} tokens"
            return explain_training(sizes, device, doing, recipe, max(rows, 1), tokens, self.bound)

        return explain_oom(self.device, explain)

    def rest(self) -> None:
        """Let go of gradients, and of what the allocator keeps for later where an engine is on the device too."""
        for parameter in self.model.parameters():
            parameter.grad = None
        if self.yields and self.device.type != "cpu":
            torch.get_device_module(self.device).empty_cache()

    @property
    def growth(self) -> float:
        """Bytes of this device that are not held yet and will be between updates: moments, and weights on their way."""
        whole = sum(p.numel() for p in self.model.parameters()) if self.sharded else 0
        return moments_to_come(self.optimizers) + min(whole * self.scorer.precision.itemsize, BUCKET_BYTES)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A frozen model that distributions are compared with, as `form` says.

    `head` is its output matrix. Both it and `learner` are None where batches have its likeliest tokens already.
    """

    form: Form
    learner: Learner | None = None
    head: Tensor | None = None

    def parts(self, batch: TrainBatch, dealt: Sequence[Sequence[Tensor]]) -> Sequence[MicroBatch]:
        """Return what it reads of a dealt batch; nothing where it has been read."""
        return () if self.learner is None else self.learner.microbatches(batch.asked_rows(), 1, dealt)

    def distributions(self, part: MicroBatch, asked: MicroBatch | None) -> Distributions | Likeliest:
        """Return its distributions at the trained tokens of a micro-batch, in their order; it reads them as `asked`."""
        if self.learner is None or self.head is None or asked is None:
            return Likeliest(part.columns.likeliest, part.columns.likelihoods, self.form)
        return Distributions(self.learner.hidden(asked), self.head, self.form)


@dataclass(frozen=True, slots=True)
class OptimizerStepResult:
    """The loss of one optimizer step, and the gradient's norm before clipping."""

    loss: float
    grad_norm: float


def optimizer_step(
    learner: Learner,
    batch: TrainBatch,
    loss: Loss,
    temperature: float,
    at: str,
    check: Callable[[], None] = lambda: None,
    entropies: bool = False,
    rows: Sequence[int] | None = None,
    teacher: Teacher | None = None,
) -> OptimizerStepResult:
    """Take one step of the optimizers on the summed loss of a batch, or of these rows of it.

    Without trained tokens the gradient is zero.

    The batch is that of all processes, the same on each. `at` says where training is, for the message of E0926,
    which is raised before anything changes when the loss or the gradient is not finite; `check` is called then too.
    `entropies` says that the loss reads them, and with a `teacher` it reads divergences from that.
    """
    parameters = [parameter for parameter in learner.model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        # Zeros, not None: momentum and decay go on for a minibatch without a signal.
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.zero_()
    losses: list[Tensor] = []
    dealt = learner.deal(batch, rows)
    parts = learner.microbatches(batch, learner.passes, dealt)
    theirs = teacher.parts(batch, dealt) if teacher is not None else ()
    for number, (part, asked) in enumerate(zip_longest(parts, theirs), 1):
        other = teacher.distributions(part, asked) if teacher is not None else None
        # Between nodes the sum travels once.
        join_copies(learner.scorer, number == len(parts))
        value = loss(part.columns, learner.logprobs(part, temperature, entropies, other))
        with learner.explain_oom(part):
            value.backward()
        losses.append(value.detach())
    norm = whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    # Read once, since a GPU works on while nobody asks it for a number.
    (total,) = learner.ranks.total([sum(torch.stack(losses).tolist()) if losses else 0.0])
    _require_finite(total, float(norm), at)
    check()
    if learner.grad_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, learner.grad_norm, norm)
    with learner.explain_oom():
        for optimizer in learner.optimizers:
            optimizer.step()
    return OptimizerStepResult(total, float(norm))


def _require_finite(loss: float, norm: float, at: str) -> None:
    if math.isfinite(loss) and math.isfinite(norm):
        return
    raise problem(
        "E0926",
        f"training diverged: the loss is {loss:g} and the gradient's norm {norm:g}",
        where=at,
        notes=["the last saved step is kept, and nothing of this one"],
        help="lower `optim.lr`, lengthen `optim.warmup`, or set `optim.grad_norm` to 1 or below",
    )
