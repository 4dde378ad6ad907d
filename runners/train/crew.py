"""Let all trainers hand weights to an engine and score tokens for a reward, at the call of rank 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from runners.engine.protocol import SharedWeights, Weights
from runners.train.batch import TrainBatch, broadcast_batch
from runners.train.sharding import full_shapes, iter_full_tensors, name_as_in_files
from runners.train.update import Learner


class Crew:
    """This rank's learner and its reference model. Rank 0 calls a method on all ranks; the other ranks `serve`."""

    def __init__(self, learner: Learner, reference: Learner | None = None) -> None:
        self.learner, self.reference, self.ranks = learner, reference, learner.ranks

    def call(self, method: str, *arguments: Any, **own: Any) -> Any:
        """Call a method on every rank, and return this rank's result; `own` arguments are for rank 0 alone."""
        self.ranks.broadcast((method, arguments))
        return getattr(self, method)(*arguments, **own)

    def serve(self) -> None:
        """Run the methods that rank 0 calls, until it releases this rank."""
        call: tuple[str, tuple[Any, ...]] | None
        while call := self.ranks.broadcast(None):
            getattr(self, call[0])(*call[1])

    def release(self) -> None:
        """Let the other ranks return from `serve`."""
        self.ranks.broadcast(None)

    def weights(self, copied: bool = False) -> Weights:
        """Return the learner's weights for an engine: its tensors, or copies of them; shards are gathered when asked for."""
        if self.learner.sharded:
            assemble, gather, hand = (partial(self.call, name) for name in ("assemble", "gather", "hand"))
            return SharedWeights(self.ranks.world, full_shapes(self.learner.model), assemble, gather, hand)
        weights = dict(name_as_in_files(self.learner.model, self.learner.weights().items()))
        return {name: value.detach().clone() for name, value in weights.items()} if copied else weights

    def assemble(self, device: str | None = None) -> dict[str, Tensor]:
        """Return all weights on rank 0; nothing on other ranks.

        Returns:
            Full tensors by their names in files.
        """
        weights = self.learner.weights(None if device is None else torch.device(device))
        return dict(name_as_in_files(self.learner.model, weights.items()))

    def gather(self) -> Iterator[tuple[str, Tensor]] | None:
        """Return an iterator over all weights on rank 0, each gathered when it is asked for; None on other ranks.

        Returns:
            Pairs of a name in files and a full tensor.
        """
        if self.ranks.is_rank_zero:
            return self._pieces()
        deque(self._pieces(), 0)
        return None

    def hand(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function with all full tensors, the rank and its `all_gather_objects`, on every rank."""
        self.learner.release_memory()
        try:
            function(self._whole(), self.ranks.rank, self.ranks.all_gather_objects, *arguments)
        finally:
            self.learner.release_memory()

    def score(self, teacher: bool, entropies: bool, batch: TrainBatch | None = None) -> Tensor:
        """Score the trained tokens of a batch at temperature 1, with `Learner.measure` of the policy or the reference model.

        Args:
            teacher: Whether the reference model scores, in the policy's place.
            entropies: Whether entropies are asked for too.
            batch: The rows, on rank 0 alone.

        Returns:
            Log-probabilities, and entropies below, in nats: [1 or 2, trained tokens].
        """
        batch = broadcast_batch(self.ranks, batch)
        if not teacher:
            return self.learner.measure(batch, 1.0, entropies)
        assert self.reference is not None
        return self.reference.measure(batch.teacher_rows(), 1.0, entropies)

    def _whole(self) -> Iterator[tuple[str, Tensor]]:
        return name_as_in_files(
            self.learner.model, iter_full_tensors(self.learner.model, self.learner.scorer.precision)
        )

    def _pieces(self) -> Iterator[tuple[str, Tensor]]:
        self.learner.release_memory()
        yield from self._whole()
        self.learner.release_memory()
        self.ranks.barrier()
