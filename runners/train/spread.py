"""Give an engine the weights that several processes train together.

The first process talks to the engine. The others wait for what it shares: a call to take part in, until it is a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runners.train.sharding import whole_shapes, whole_tensors
from runners.train.update import Learner


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that all processes take part in; without `function` they put all weights together on the first one."""

    function: Callable[..., None] | None = None
    arguments: tuple[Any, ...] = ()
    device: str | None = None


class SpreadWeights:
    """A learner's weights as the first process hands them to an engine; see `Spread`."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    @property
    def world(self) -> int:
        """See `Spread.world`."""
        return self._learner.ranks.world

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See `Spread.shapes`."""
        return whole_shapes(self._learner.model)

    def whole(self, device: str | None = None) -> dict[str, Tensor]:
        """See `Spread.whole`."""
        return self._take_part(_Call(device=device))

    def each(self, call: Callable[..., None], *arguments: Any) -> None:
        """See `Spread.each`."""
        self._take_part(_Call(call, arguments))

    def _take_part(self, call: _Call) -> dict[str, Tensor]:
        self._learner.ranks.share(call)
        return _take_part(self._learner, call)


def weights_of(learner: Learner) -> dict[str, Tensor] | SpreadWeights:
    """Return what an engine gets of a learner: its own tensors if it trains alone."""
    return learner.weights() if learner.ranks.world == 1 else SpreadWeights(learner)


def await_value(learner: Learner) -> Any:
    """Take part in all that the first process calls for, until it shares a value; returns that.

    For the others alone.
    """
    value: Any = learner.ranks.share(None)
    while isinstance(value, _Call):
        _take_part(learner, value)
        value = learner.ranks.share(None)
    return value


def _take_part(learner: Learner, call: _Call) -> dict[str, Tensor]:
    if call.function is None:
        return learner.weights(None if call.device is None else torch.device(call.device))
    learner.rest()
    try:
        ranks = learner.ranks
        call.function(
            whole_tensors(learner.model, learner.scorer.precision), ranks.rank, ranks.gather, *call.arguments
        )
    finally:
        learner.rest()
    return {}
