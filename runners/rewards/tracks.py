"""Find the values of a reward's tracks, from responses of steps before or to the monitor set.

A table has a row for each response as `rollouts.parquet` has it, all responses to a question one after another.
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
from runners.rewards.inputs import Floats, RewardInputs
from runners.rewards.interpret import measure
from runners.rewards.vectorise import measure_each, summarise

COLUMNS = ("rollout", "tokens", "correct", "mode", "budget")
"""The columns that a track may look at."""


def track_values(
    reward: Reward,
    step: int,
    recent: Sequence[pl.DataFrame],
    monitor: pl.DataFrame | None,
    overrides: Mapping[str, float] = MappingProxyType({}),
    before: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the value of each track before a step, by name.

    A track that reads itself or a metric has its start value at step 0, and whenever it has no earlier value; if a metric
    has no value, the track keeps its earlier value.

    Args:
        reward: the reward with its tracks.
        step: the step, from 0.
        recent: tables of responses of earlier steps, the latest last.
        monitor: the table of the monitor set's latest responses, or None.
        overrides: values that replace tracks.
        before: values at the step before, and its metrics as `metric.NAME`.
    """
    values: dict[str, float] = {}
    asker = f"the reward `{reward.name}`"
    for track in reward.tracks:
        if track.name in overrides:
            values[track.name] = overrides[track.name]
            continue
        numbers = {f"{TRACK}{name}": value for name, value in values.items()}

        numbers[STEP] = float(step)
        if track.start is not None:
            start = measure(asker, track.start, ResponseGroup("", ()), {}, numbers)
            if step == 0:
                values[track.name] = start
                continue
            numbers |= {name: value for name, value in before.items() if name.startswith(METRIC)}
            numbers[f"{TRACK}{track.name}"] = before.get(track.name, start)
            read = {variable.name for variable in values_of(track.value, Variable)}
            if any(name.startswith(METRIC) for name in read - numbers.keys()):
                values[track.name] = before.get(track.name, start)
                continue

        def put(node: Node, numbers: Mapping[str, float] = numbers) -> Constant | None:
            if not isinstance(node, StepStatistic):
                return None
            return Constant(value=_measured(node, recent, monitor, numbers, asker))

        values[track.name] = measure(asker, rewrite(track.value, put), ResponseGroup("", ()), {}, numbers)
    return values


def inputs_of(table: pl.DataFrame) -> RewardInputs:
    """Return the responses of a table as arrays [questions, rollouts]."""
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


def _measured(
    node: StepStatistic,
    recent: Sequence[pl.DataFrame],
    monitor: pl.DataFrame | None,
    numbers: Mapping[str, float],
    asker: str,
) -> float:
    """Return a statistic over the responses that meet its condition, or its value over nothing."""
    nobody = ResponseGroup("", ())
    tables = (
        list(recent[-node.window :]) if node.over == "steps" else [monitor] if monitor is not None else []
    )
    collected: list[Floats] = []
    for table in tables:
        if not table.height:
            continue
        inputs = inputs_of(table)
        value = (
            np.ones(inputs.length.shape)
            if node.fn == "count"
            else measure_each(node.value, node.var, inputs, numbers)
        )
        keep = (
            np.ones(value.shape, dtype=np.bool_)
            if node.where is None
            else measure_each(node.where, node.var, inputs, numbers) != 0
        )
        collected.append(value[keep])
    values = np.concatenate(collected) if collected else np.zeros(0)
    if not len(values):
        if node.empty is not None:
            return measure(asker, node.empty, nobody, {}, numbers)
        return 0.0 if node.fn in ("sum", "count") else math.nan
    share = measure(asker, node.at, nobody, {}, numbers) if node.at is not None else math.nan
    return summarise(node.fn, values, share)
