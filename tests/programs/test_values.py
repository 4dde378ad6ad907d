"""Entries of reasoning-gym as JSON: tuples and numbers as keys come back as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.programs.values import entry_of, pack

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def stored(value: Any) -> Any:
    return entry_of(json.loads(json.dumps({"packed": pack(value)})))


@settings(max_examples=50)
@given(VALUES)
def test_values_come_back_as_they_are(value: Any) -> None:
    assert stored(value) == value
    assert type(stored(value)) is type(value)


@pytest.mark.parametrize("value", [{"tuple": [1]}, {"dict": [[1, 2]]}, [({"tuple": ()},)]])
def test_a_record_with_a_name_of_these_is_no_tuple(value: Any) -> None:
    assert stored(value) == value


def test_an_entry_that_json_has_is_stored_as_it_is() -> None:
    assert entry_of({"entry": {"tuple": [1]}}) == {"tuple": [1]}
