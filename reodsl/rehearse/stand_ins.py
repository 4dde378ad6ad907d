"""What takes the place of weights and questions in a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reodsl.ir.base import digest
from reodsl.ir.data import Data, DataSource
from reodsl.ir.model import Model, ModelSource


@dataclass(frozen=True, slots=True)
class StandIn:
    """A model's small double. `words` say what it is; `byte_level` ones have a made-up tokenizer, a token a byte."""

    source: ModelSource
    words: str
    byte_level: bool = False


@dataclass(frozen=True, slots=True)
class StandIns:
    """Doubles of models and of data sets whose own are not to be used, or are not at hand, by what they stand for."""

    models: Mapping[str, StandIn] = field(default_factory=dict)
    data: Mapping[str, tuple[DataSource, ...]] = field(default_factory=dict)

    def model(self, model: Model) -> StandIn | None:
        """Return the double of a model, if it has one."""
        return self.models.get(digest(model.source))

    def sources(self, data: Data) -> tuple[DataSource, ...] | None:
        """Return the questions that stand in for those of a data set, if there are any."""
        return self.data.get(of_data(data))


def of_data(data: Data) -> str:
    """Return the name of a data set in a rehearsal: its sources."""
    return digest(list(data.sources))
