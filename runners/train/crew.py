"""Calls of rank 0 that run on all trainer processes: weights for an engine, and scores of tokens for a reward."""

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
    """This rank's learner and reference model; rank 0 calls methods on all ranks, while the other ranks run `serve`."""

    def __init__(self, learner: Learner, reference: Learner | None = None) -> None:
        self.learner, self.reference, self.ranks = learner, reference, learner.ranks

    def call(self, method: str, *arguments: Any, **rank_zero_arguments: Any) -> Any:
        """Call a method on every rank, and return its result on rank 0; only rank 0 may call this, while others `serve`.

        Args:
            method: The name of a method of this class.
            *arguments: Arguments that all ranks pass.
            **rank_zero_arguments: Further arguments that rank 0 alone passes.
        """
        self.ranks.broadcast((method, arguments))
        return getattr(self, method)(*arguments, **rank_zero_arguments)

    def serve(self) -> None:
        """Run the methods that rank 0 calls, on this rank, until rank 0 calls `release`."""
        call: tuple[str, tuple[Any, ...]] | None
        while call := self.ranks.broadcast(None):
            getattr(self, call[0])(*call[1])

    def release(self) -> None:
        """Let the other ranks return from `serve`."""
        self.ranks.broadcast(None)

    def weights(self, as_copies: bool = False) -> Weights:
        """Return the learner's weights for an engine.

        Args:
            as_copies: Whether to copy the tensors of an unsharded model, so that later steps do not change them.

        Returns:
            Tensors by their names in files; for a sharded model an object that gathers the shards on demand.
        """
        if self.learner.sharded:
            assemble, gather, hand = (partial(self.call, name) for name in ("assemble", "gather", "hand"))
            return SharedWeights(self.ranks.world, full_shapes(self.learner.model), assemble, gather, hand)
        weights = dict(name_as_in_files(self.learner.model, self.learner.weights().items()))
        return {name: value.detach().clone() for name, value in weights.items()} if as_copies else weights

    def assemble(self, device: str | None = None) -> dict[str, Tensor]:
        """Gather all weights on rank 0; all ranks call it.

        Args:
            device: The device of the result; None for the model's device.

        Returns:
            Full tensors by their names in files on rank 0, an empty dict on other ranks.
        """
        weights = self.learner.weights(None if device is None else torch.device(device))
        return dict(name_as_in_files(self.learner.model, weights.items()))

    def gather(self) -> Iterator[tuple[str, Tensor]] | None:
        """Gather all weights on rank 0, one tensor per step of the iterator; all ranks call it.

        Returns:
            On rank 0, an iterator of pairs: the name in files and the full tensor. None on other ranks, which take
            part in all steps before they return.
        """
        if self.ranks.is_rank_zero:
            return self._iter_and_release()
        # A deque of length 0 runs the iterator to its end.
        deque(self._iter_and_release(), 0)
        return None

    def hand(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on this rank with an iterator over all full weights; all ranks must call this.

        Gradients and cached memory of the device are freed before and after.

        Args:
            function: Called with the iterator of (name, full tensor), the rank, and `Ranks.all_gather_objects`.
            *arguments: Further arguments of the function.
        """
        self.learner.release_memory()
        try:
            function(self._iter_weights(), self.ranks.rank, self.ranks.all_gather_objects, *arguments)
        finally:
            self.learner.release_memory()

    def score(self, by_reference: bool, with_entropies: bool, batch: TrainBatch | None = None) -> Tensor:
        """Score the trained tokens of a batch at temperature 1 by the policy or the reference model, on all ranks.

        The reference model reads the teacher's prompts, if the batch has them.

        Args:
            by_reference: Whether the reference model scores, instead of the policy.
            with_entropies: Whether to return entropies too.
            batch: The rows to score; None on all ranks but rank 0.

        Returns:
            Log-probabilities in the first row, and entropies in the second row if requested, in nats, [1 or 2, trained
            tokens].
        """
        batch = broadcast_batch(self.ranks, batch)
        if not by_reference:
            return self.learner.measure(batch, 1.0, with_entropies)
        assert self.reference is not None
        return self.reference.measure(batch.teacher_rows(), 1.0, with_entropies)

    def _iter_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Return an iterator over the full weights, gathered one by one, by their names in files."""
        return name_as_in_files(
            self.learner.model, iter_full_tensors(self.learner.model, self.learner.scorer.precision)
        )

    def _iter_and_release(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the full weights, with cached memory of the device freed before and after, then wait for all ranks."""
        self.learner.release_memory()
        yield from self._iter_weights()
        self.learner.release_memory()
        self.ranks.barrier()
