"""Lets the tests of this folder use the small studies; the runs that were measured, and the sizes of Qwen3-4B."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.ir.model import Dimensions
from reodsl.price.history import Facts, Past, PastResults
from reodsl.price.machine import processor
from reodsl.price.memory import Sizes, from_dimensions

_TOLD = json.loads(Path(__file__).with_name("measured.json").read_text())
_MEASURED = _TOLD["runs"]


def _past(row: dict[str, object]) -> Past:
    sizes, facts = Sizes(**row.pop("sizes")), Facts(**row.pop("facts"))  # type: ignore[arg-type]
    return Past(sizes=sizes, facts=facts, model=processor(), **row)  # type: ignore[arg-type]


@pytest.fixture(params=sorted(_MEASURED))
def measured(request: pytest.FixtureRequest) -> PastResults:
    """A whole run of the quickstart as it was measured."""
    return PastResults(tuple(_past(dict(row)) for row in _MEASURED[request.param]))


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
