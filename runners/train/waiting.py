"""Save and load the data of steps that wait for their turn, with the questions that are under way."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors import safe_open
from torch import Tensor

from reodsl.diagnostics import first_line, problem
from runners.engine.protocol import Response
from runners.train.batch import TrainBatch
from runners.train.checkpoint import save_tensors
from runners.train.gather import StepData
from runners.train.segments import OpenQuestions

RESPONSE: dict[str, Any] = {
    "tokens": pl.List(pl.Int64),
    "logprobs": pl.List(pl.Float64),
    "behaviour": pl.List(pl.Float64),
    "finish": pl.String,
    "weight_versions": pl.List(pl.Int64),
}
OPEN = {"draw": pl.Int64, "position": pl.Int64, **RESPONSE}
"""A row for each response to an open question: where the question was drawn, and the response."""


def save_waiting(folder: Path, done: int, waiting: Mapping[int, StepData]) -> None:
    """Write the data of steps after the first `done`.

    The file of steps before stays until the next call: the standing that goes with it may be the last one saved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for number, step in waiting.items():
        tensors |= {f"{number}/{each.name}": getattr(step.batch, each.name) for each in fields(TrainBatch)}
        tensors[f"{number}/table"] = _packed(step.table)
        facts[str(number)] = {"metrics": dict(step.metrics), "seconds": dict(step.seconds)}
    # Later steps go on from what the last one left open.
    under_way = waiting[max(waiting)].open_questions if waiting else OpenQuestions()
    rows = [
        (draw, position, *(getattr(response, name) for name in RESPONSE))
        for (draw, position), responses in under_way.responses.items()
        for response in responses
    ]
    tensors["open"] = _packed(pl.DataFrame(rows, schema=OPEN, orient="row"))
    path = _path(folder, done)
    save_tensors(path, tensors, {"steps": facts, "rounds": under_way.rounds})
    every = sorted(folder.glob("*.safetensors"))
    before = every[: every.index(path)]
    for old in every:
        # Files of later steps are of an attempt that ended before those counted.
        if old not in (path, *before[-1:]):
            old.unlink(missing_ok=True)


def load_waiting(folder: Path, done: int) -> dict[int, StepData]:
    """Return what `save_waiting` wrote after `done` steps; nothing before the first. Raises E0939 where it is unreadable."""
    if not done:
        return {}
    try:
        with safe_open(_path(folder, done), framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            return _waiting(facts, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except Exception as fault:
        raise problem(
            "E0939",
            "the rollouts that an interrupted stage has left cannot be read",
            where=str(_path(folder, done)),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove the stage's work folder, and it begins again",
        ) from fault


def _waiting(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[int, StepData]:
    steps = {}
    for number, each in sorted((int(name), each) for name, each in facts["steps"].items()):
        batch = TrainBatch(
            **{column.name: tensors[f"{number}/{column.name}"] for column in fields(TrainBatch)}
        )
        table = _unpacked(tensors[f"{number}/table"])
        steps[number] = StepData(batch, each["metrics"], table, each["seconds"])
    responses: dict[tuple[int, int], tuple[Response, ...]] = {}
    rows = _unpacked(tensors["open"]).iter_rows()
    for draw, position, tokens, logprobs, behaviour, finish, versions in rows:
        response = Response(tuple(tokens), tuple(logprobs), tuple(behaviour), finish, tuple(versions))
        responses[draw, position] = (*responses.get((draw, position), ()), response)
    if steps:
        last = max(steps)
        steps[last] = replace(steps[last], open_questions=OpenQuestions(facts["rounds"], responses))
    return steps


def _packed(frame: pl.DataFrame) -> Tensor:
    """Return a table as the bytes of a Parquet file."""
    parquet = io.BytesIO()
    frame.write_parquet(parquet)
    return torch.frombuffer(bytearray(parquet.getvalue()), dtype=torch.uint8)


def _unpacked(data: Tensor) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(data.numpy().tobytes()), glob=False)


def _path(folder: Path, done: int) -> Path:
    return folder / f"{done:08d}.safetensors"
