"""Let all trainers hand weights to an engine and score tokens for a reward, at the call of rank 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from runners.engine.protocol import SharedWeights, Weights
from runners.train.batch import TrainBatch, spread_batch
from runners.train.sharding import name_as_in_files, whole_shapes, whole_tensors
from runners.train.update import Learner


class Crew:
    """This rank's learner and its reference model. Rank 0 calls a method on all ranks, while the others `serve`."""

    def __init__(self, learner: Learner, reference: Learner | None = None) -> None:
        self.learner, self.reference, self.ranks = learner, reference, learner.ranks

    def call(self, method: str, *arguments: Any, **own: Any) -> Any:
        """Call a method on every rank, and return this rank's result; `own` arguments are for rank 0 alone."""
        self.ranks.share((method, arguments))
        return getattr(self, method)(*arguments, **own)

    def serve(self) -> None:
        """Run what rank 0 calls, until it releases the others."""
        called: tuple[str, tuple[Any, ...]] | None
        while called := self.ranks.share(None):
            getattr(self, called[0])(*called[1])

    def release(self) -> None:
        """Let the other ranks return from `serve`."""
        self.ranks.share(None)

    def weights(self, copied: bool = False) -> Weights:
        """Return the learner's weights for an engine: its own tensors, or copies, unless they are shards."""
        if self.learner.sharded:
            assemble, gather, hand = (partial(self.call, name) for name in ("assemble", "gather", "hand"))
            return SharedWeights(self.ranks.world, whole_shapes(self.learner.model), assemble, gather, hand)
        weights = dict(name_as_in_files(self.learner.model, self.learner.weights().items()))
        return {name: value.detach().clone() for name, value in weights.items()} if copied else weights

    def assemble(self, device: str | None = None) -> dict[str, Tensor]:
        """Return all weights on rank 0."""
        weights = self.learner.weights(None if device is None else torch.device(device))
        return dict(name_as_in_files(self.learner.model, weights.items()))

    def gather(self) -> Iterator[tuple[str, Tensor]] | None:
        """Return all weights on rank 0, each gathered when it is asked for."""
        if self.ranks.first:
            return self._pieces()
        deque(self._pieces(), 0)
        return None

    def hand(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function with every tensor whole, the rank and its `gather`, on every rank."""
        self.learner.rest()
        try:
            function(self._whole(), self.ranks.rank, self.ranks.gather, *arguments)
        finally:
            self.learner.rest()

    def score(self, teacher: bool, entropies: bool, batch: TrainBatch | None = None) -> Tensor:
        """Return `Learner.measure` of a batch's trained tokens by the policy or the reference, at temperature 1."""
        batch = spread_batch(self.ranks, batch)
        if not teacher:
            return self.learner.measure(batch, 1.0, entropies)
        assert self.reference is not None
        return self.reference.measure(batch.asked_rows(), 1.0, entropies)

    def _whole(self) -> Iterator[tuple[str, Tensor]]:
        return name_as_in_files(
            self.learner.model, whole_tensors(self.learner.model, self.learner.scorer.precision)
        )

    def _pieces(self) -> Iterator[tuple[str, Tensor]]:
        self.learner.rest()
        yield from self._whole()
        self.learner.rest()
        self.ranks.wait()
