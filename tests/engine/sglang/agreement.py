"""How far two samples of one study lie apart: tables of both in; means of the difference and their standard errors out.

Both ask the same questions of the same checkpoint with other random streams. A question's difference of means is then
unbiased and independent of the other questions', however much questions differ in difficulty: the mean over questions has
the standard error that these differences show, which falls with the root of questions times samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

DEVIATIONS = 4.0
"""Standard errors that a mean may be away from 0: by chance one in 16,000 is, so one study of 25 such means in 600."""


@dataclass(frozen=True)
class Gap:
    """A mean difference over questions, and its standard error."""

    mean: float
    error: float

    @property
    def within_noise(self) -> bool:
        """Whether chance makes such a difference of two samples of the same."""
        return abs(self.mean) <= DEVIATIONS * self.error + 1e-12


def gaps(
    one: pl.DataFrame, other: pl.DataFrame, columns: Sequence[str], by: Sequence[str] = ()
) -> dict[str, Gap]:
    """By column, and by what `by` names beside it: how far one's mean lies above the other's."""
    keys = ["benchmark", "question", *by]
    means = [frame.group_by(keys).agg(pl.col(columns).cast(pl.Float64).mean()) for frame in (one, other)]
    both = means[0].join(means[1], on=keys, suffix="_other")
    assert both.height == means[0].height == means[1].height
    found = {}
    for group, part in both.sort(keys).group_by(by or [pl.lit(0)], maintain_order=True):
        for column in columns:
            values = (part[column] - part[f"{column}_other"]).to_numpy()
            name = f"{column} {' '.join(map(str, group))}" if by else column
            found[name] = Gap(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
    return found
