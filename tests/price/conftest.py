"""Lets the tests of this folder use the small studies; the runs that were measured, and the sizes of Qwen3-4B."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.ir.model import Dimensions
from reodsl.price.history import Facts, MeasuredTask
from reodsl.price.machine import processor
from reodsl.price.memory import Sizes, from_dimensions

_TOLD = json.loads(Path(__file__).with_name("measured.json").read_text())
_MEASURED = _TOLD["runs"]


@pytest.fixture(params=sorted(_MEASURED))
def measured(request: pytest.FixtureRequest) -> dict[str, tuple[MeasuredTask, Sizes]]:
    """A run of the quickstart as it was measured: the result of each task, and the sizes of its model."""
    found = {}
    for row in _MEASURED[request.param]:
        kept = {name: row[name] for name in ("task", "kind", "payload", "seconds", "terms", "device")}
        past = MeasuredTask(**kept, facts=Facts(**row["facts"]), model=processor(), peak=row.get("peak"))
        found[past.task] = past, Sizes(**row["sizes"])
    return found


@pytest.fixture
def spent() -> dict[str, float]:
    """Seconds of processor that every task of the quickstart took, by its id."""
    return dict(_TOLD["tasks"])


@pytest.fixture
def qwen3_4b() -> Sizes:
    """The sizes in the published configuration."""
    return from_dimensions(
        Dimensions(
            parameters=4022468096,
            layers=36,
            hidden=2560,
            heads=32,
            kv_heads=8,
            head_dim=128,
            intermediate=9728,
            vocabulary=151936,
        )
    )
