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
from reodsl.ir.expression import METRIC, STEP, TRACK, Constant, History, Variable, rewrite
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
    known: Mapping[str, float] = MappingProxyType({}),
    before: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the value of each track before step `step` (from 0), by name; of one that is `known`, that value.

    `recent` are the tables of the steps before it, the last one last; `monitor` is that of the monitor set's last responses.
    `before` are the values at the step before, and its metrics as `metric.NAME`. A track that reads itself or a metric has
    its start at step 0, and where it has no value before; where a metric has none, it stays as it was.
    """
    values: dict[str, float] = {}
    asker = f"the reward `{reward.name}`"
    for track in reward.tracks:
        if track.name in known:
            values[track.name] = known[track.name]
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
            read = {each.name for each in values_of(track.value, Variable)}
            if any(name.startswith(METRIC) for name in read - numbers.keys()):
                values[track.name] = before.get(track.name, start)
                continue

        def put(node: Node, numbers: Mapping[str, float] = numbers) -> Constant | None:
            if not isinstance(node, History):
                return None
            return Constant(value=_measured(node, recent, monitor, numbers, asker))

        values[track.name] = measure(asker, rewrite(track.value, put), ResponseGroup("", ()), {}, numbers)
    return values


def inputs_of(table: pl.DataFrame) -> RewardInputs:
    """Return the responses of a table as arrays, [questions, rollouts]."""
    rollouts = int(table["rollout"].max()) + 1  # type: ignore[arg-type]
    shape = (table.height // rollouts, rollouts)
    length = table["tokens"].to_numpy().astype(float).reshape(shape)
    given = {
        name: table[name].to_numpy().astype(float).reshape(shape)
        for name in ("mode", "budget")
        if not table[name].null_count()
    }
    correct = table["correct"].to_numpy().astype(float).reshape(shape)
    return RewardInputs(
        ("",) * shape[0], length, correct, length[:, :, None], np.ones((*shape, 1), dtype=np.bool_), given
    )


def _measured(
    node: History,
    recent: Sequence[pl.DataFrame],
    monitor: pl.DataFrame | None,
    numbers: Mapping[str, float],
    asker: str,
) -> float:
    """Return one statistic over the responses that meet its condition; what it is of nothing otherwise."""
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
    at = measure(asker, node.at, nobody, {}, numbers) if node.at is not None else math.nan
    return summarise(node.fn, values, at)
