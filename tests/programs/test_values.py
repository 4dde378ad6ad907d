"""Values between a program and its tests: plain ones arrive equal and of Python's own types, others by number."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.programs.values import Uncarried, packed, unpacked

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False)
)  # fmt: skip
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.frozensets(KEYS)
    ),
    max_leaves=12,
)


def carried(value: Any) -> Any:
    kept: list[Any] = []

    def keep(part: Any) -> int:
        kept.append(part)
        return len(kept) - 1

    return unpacked(json.loads(json.dumps(packed(value, keep))), lambda number: kept[number])


@settings(max_examples=30)
@given(VALUES)
def test_plain_values_arrive_as_they_are(value: Any) -> None:
    assert carried(value) == value
    assert type(carried(value)) is type(value)


class Everything(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Text(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def test_what_overrides_a_plain_type_arrives_as_that() -> None:
    assert carried(Everything(3)) != 4
    assert carried([Text("a")]) != ["b"]
    assert type(carried(Counter("aab"))) is dict
    assert carried(OrderedDict(a=1)) == {"a": 1}
    assert carried(defaultdict(list, a=[1])) == {"a": [1]}
    assert carried(namedtuple("P", "x y")(1, 2)) == (1, 2)
    assert carried(np.arange(3)) == [0, 1, 2]
    assert carried(np.float64(0.5)) == 0.5
    assert list(carried(x * x for x in range(3))) == [0, 1, 4]
    assert carried(range(3)) == range(3)
    assert carried({1, 2}) == {1, 2}
    assert math.isnan(carried(math.nan))
    assert carried(10**6000) == 10**6000
    assert carried((Decimal("0.10"), Fraction(1, 3))) == (Decimal("0.10"), Fraction(1, 3))


def test_what_is_not_plain_stays() -> None:
    thing = object()
    assert carried([thing])[0] is thing


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"int": "x"},
        {"tuple": 3},
        {"dict": [[1]]},
        {"set": [[]]},
        {"bytes": "x"},
        {"range": [0, 1, 0]},
        {"a": 1},
    ],
)
def test_what_no_value_gives(said: Any) -> None:
    with pytest.raises(Uncarried):
        unpacked(said, lambda number: None)


def test_depth_and_length_have_bounds() -> None:
    deep: list[Any] = []
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(Uncarried, match="deep"):
        packed(deep, lambda value: 0)

    def forever() -> Any:
        while True:
            yield 0

    with pytest.raises(Uncarried, match="values"):
        packed(forever(), lambda value: 0)
