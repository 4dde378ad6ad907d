"""Save and load rollouts that wait for their step, with open responses."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import safe_open
from torch import Tensor

from reodsl.diagnostics import first_line, problem
from runners.engine.protocol import Response
from runners.train.batch import Batch
from runners.train.gather import Gathered
from runners.train.saved import save_tensors
from runners.train.segments import Flow, Open


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step's batch, and the questions that were under way once it was gathered."""

    gathered: Gathered
    flow: Flow = field(default_factory=Flow)


def keep_waiting(folder: Path, steps: int, prepared: Mapping[int, Prepared]) -> None:
    """Leaves on the disk what steps after the first `steps` will learn from.

    What belongs to steps before stays until the next call: the standing that goes with it may be the last one saved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for number, one in prepared.items():
        gathered = one.gathered
        for each in fields(Batch):
            tensors[f"{number}/{each.name}"] = getattr(gathered.batch, each.name)
        parquet = io.BytesIO()
        gathered.table.write_parquet(parquet)
        tensors[f"{number}/table"] = torch.frombuffer(bytearray(parquet.getvalue()), dtype=torch.uint8)
        facts[str(number)] = {"row": dict(gathered.row), "seconds": dict(gathered.seconds)}
    # Later batches come from what the last one left open.
    flow = prepared[max(prepared)].flow if prepared else Flow()
    tensors.update(_responses([response for one in flow.open for response in one.responses]))
    opened = [
        {
            "place": [one.draw, one.position, one.question],
            "finish": [response.finish for response in one.responses],
            "versions": [list(response.weight_versions) for response in one.responses],
        }
        for one in flow.open
    ]
    path = _path(folder, steps)
    save_tensors(path, tensors, {"batches": facts, "rounds": flow.rounds, "open": opened})
    every = sorted(folder.glob("*.safetensors"))
    before = every[: every.index(path)]
    for old in every:
        # Files of later steps are of an attempt that ended before those counted.
        if old not in (path, *before[-1:]):
            old.unlink(missing_ok=True)


def load_waiting(folder: Path, steps: int) -> dict[int, Prepared]:
    """What `keep_waiting` left after `steps` steps; nothing before the first. Raises E0939 where it cannot be read."""
    if not steps:
        return {}
    try:
        with safe_open(_path(folder, steps), framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            return _prepared(facts, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except Exception as fault:
        raise problem(
            "E0939",
            "the rollouts that an interrupted stage has left cannot be read",
            where=str(_path(folder, steps)),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove the stage's work folder, and it begins again",
        ) from fault


def _prepared(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[int, Prepared]:
    numbers = sorted(map(int, facts["batches"]))
    flow = Flow(facts["rounds"], tuple(_open(facts["open"], tensors)))
    prepared = {}
    for number in numbers:
        said = facts["batches"][str(number)]
        table = pl.read_parquet(io.BytesIO(tensors[f"{number}/table"].numpy().tobytes()), glob=False)
        batch = Batch(**{each.name: tensors[f"{number}/{each.name}"] for each in fields(Batch)})
        gathered = Gathered(batch, said["row"], table, said["seconds"])
        prepared[number] = Prepared(gathered, flow if number == numbers[-1] else Flow())
    return prepared


def _responses(responses: Sequence[Response]) -> dict[str, Tensor]:
    """Responses one after another, as columns."""
    counts = [len(response.tokens) for response in responses]

    def column(values: Iterable[Sequence[float]], kind: Any) -> Tensor:
        return torch.from_numpy(np.fromiter(chain.from_iterable(values), dtype=kind))

    return {
        "open/counts": torch.tensor(counts, dtype=torch.int64),
        "open/tokens": column((one.tokens for one in responses), np.int64),
        "open/logprobs": column((one.logprobs for one in responses), np.float64),
        "open/behaviour": column((one.behaviour for one in responses), np.float64),
    }


def _open(opened: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> Iterable[Open]:
    counts = tensors["open/counts"].tolist()
    columns = [
        [tuple(part.tolist()) for part in tensors[f"open/{name}"].split(counts)]
        for name in ("tokens", "logprobs", "behaviour")
    ]
    rows = zip(*columns, strict=True)
    for one in opened:
        responses = []
        for finish, versions in zip(one["finish"], one["versions"], strict=True):
            tokens, logprobs, behaviour = next(rows)
            responses.append(Response(tokens, logprobs, behaviour, finish, tuple(versions)))
        draw, position, question = one["place"]
        yield Open(draw, position, question, tuple(responses))


def _path(folder: Path, steps: int) -> Path:
    return folder / f"{steps:08d}.safetensors"
