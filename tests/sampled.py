"""Mark most values of a parametrised test slow, so that the ordinary tests hold a sample of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters, each slow unless it is among `quick`. A tuple has a value for each argument."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[] if value in quick else pytest.mark.slow,
        )
        for value in values
    ]
