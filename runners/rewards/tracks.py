"""The values of a reward's tracks: numbers that change from step to step.

A track is a formula of statistics over the responses of earlier steps or to the monitor set. A table of responses has the
rows of `rollouts.parquet`, with all responses to a question one after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import polars as pl

from reodsl.ir.base import Node, values_of
from reodsl.ir.expression import METRIC, STEP, TRACK, Constant, StepStatistic, Variable, rewrite
from reodsl.ir.reward import ResponseGroup, Reward
from runners.rewards.inputs import RewardInputs
from runners.rewards.interpret import measure
from runners.rewards.vectorise import measure_each, summarise

COLUMNS = ("rollout", "tokens", "correct", "mode", "budget")
"""The columns of a table of responses that a track may read."""


def track_values(
    reward: Reward,
    step: int,
    recent: Sequence[pl.DataFrame],
    monitor: pl.DataFrame | None,
    overrides: Mapping[str, float] = MappingProxyType({}),
    previous: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the value of each track at a step, by name; tracks are evaluated in order and may read earlier tracks.

    A track with a `start` may read its own previous value, and metrics of the previous step. At step 0 its value is
    `start`. If it has no previous value, `start` takes the place of this value. It keeps its previous value if a metric
    that it reads has no value.

    Args:
        reward: The reward with its tracks.
        step: The step, counted from 0.
        recent: Tables of the responses of earlier steps, the latest last.
        monitor: The table of the latest responses to the monitor set, or None.
        overrides: Values of tracks, by name, to use instead of the formulas.
        previous: The values of tracks at the previous step by name, and its metrics as `metric.NAME`.
    """
    values: dict[str, float] = {}
    reader = f"the reward `{reward.name}`"
    for track in reward.tracks:
        if track.name in overrides:
            values[track.name] = overrides[track.name]
            continue
        numbers = {f"{TRACK}{name}": value for name, value in values.items()}

        numbers[STEP] = float(step)
        if track.start is not None:
            start = measure(reader, track.start, ResponseGroup("", ()), {}, numbers)
            before = previous.get(track.name, start) if step else start
            numbers |= {name: value for name, value in previous.items() if name.startswith(METRIC)}
            numbers[f"{TRACK}{track.name}"] = before
            names = {variable.name for variable in values_of(track.value, Variable)}
            if not step or any(name.startswith(METRIC) for name in names - numbers.keys()):
                values[track.name] = before
                continue

        def replace_statistic(node: Node, numbers: Mapping[str, float] = numbers) -> Constant | None:
            """Return a statistic over earlier responses as a constant; None leaves another node unchanged."""
            if not isinstance(node, StepStatistic):
                return None
            return Constant(value=_measure_statistic(node, recent, monitor, numbers, reader))

        values[track.name] = measure(
            reader, rewrite(track.value, replace_statistic), ResponseGroup("", ()), {}, numbers
        )
    return values


def inputs_of(table: pl.DataFrame) -> RewardInputs:
    """Return the responses of a table as the arrays of a reward, [questions, rollouts].

    The numbers of rollouts start at 0 and are equally many for each question. The features `mode` and `budget` are
    present only if no response lacks them. Question ids are empty.
    """
    rollouts = int(table["rollout"].max()) + 1  # type: ignore[arg-type]
    shape = (table.height // rollouts, rollouts)
    length = table["tokens"].to_numpy().astype(float).reshape(shape)
    features = {
        name: table[name].to_numpy().astype(float).reshape(shape)
        for name in ("mode", "budget")
        if not table[name].null_count()
    }
    correct = table["correct"].to_numpy().astype(float).reshape(shape)
    return RewardInputs(
        ("",) * shape[0], length, correct, length[:, :, None], np.ones((*shape, 1), dtype=np.bool_), features
    )


def _measure_statistic(
    node: StepStatistic,
    recent: Sequence[pl.DataFrame],
    monitor: pl.DataFrame | None,
    numbers: Mapping[str, float],
    reader: str,
) -> float:
    """Return a statistic over the responses that meet its condition.

    A statistic over `steps` reads the last `node.window` tables of `recent`; another statistic reads `monitor`.

    Args:
        node: The statistic.
        recent: Tables of the responses of earlier steps, the latest last.
        monitor: The table of the latest responses to the monitor set, or None.
        numbers: The numbers that the expression names, by name.
        reader: The setting with the expression, for messages.

    Returns:
        The statistic. If no response meets the condition: the value of `empty` if given, else 0 for a sum or count, and
        NaN for another statistic.
    """
    no_group = ResponseGroup("", ())
    tables = recent[-node.window :] if node.over == "steps" else [monitor] if monitor is not None else []
    values: list[float] = []
    for inputs in (inputs_of(table) for table in tables if table.height):
        value, keep = (
            np.ones(inputs.length.shape)
            if expression is None
            else measure_each(expression, node.var, inputs, numbers)
            for expression in (None if node.fn == "count" else node.value, node.where)
        )
        values += value[keep != 0].tolist()
    if not values:
        if node.empty is not None:
            return measure(reader, node.empty, no_group, {}, numbers)
        return 0.0 if node.fn in ("sum", "count") else math.nan
    share = measure(reader, node.at, no_group, {}, numbers) if node.at is not None else math.nan
    return summarise(node.fn, np.array(values), share)
