"""Sizes, times and counts in few characters."""

from __future__ import annotations

import pytest

from reodsl.ir import data
from reodsl.price.show import count, details, duration, memory, size
from reodsl.price.tasks import bound_check_seconds
from reodsl.price.value import Price


@pytest.mark.parametrize(
    ("value", "text"),
    [(40.32e9, "40.3 GB"), (1_499, "1.5 kB"), (999_898, "1 MB"), (999.6e9, "1 TB"), (5e12, "5 TB")],
)
def test_sizes_have_decimal_units_and_never_a_power_of_ten(value: float, text: str) -> None:
    assert size(value) == text


def test_memory_has_binary_units() -> None:
    assert [memory(each) for each in (2**28, 2**29, 71.5 * 2**30)] == ["256 MiB", "0.5 GiB", "71.5 GiB"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "under 1s"), (59, "59s"), (150, "2m 30s"), (3600, "1h"), (11_400, "3h 10m"), (352_800, "4d 2h")],
)
def test_times_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_have_two_or_three_digits() -> None:
    assert [count(each) for each in (0.21, 40, 3_900, 999_600, 2.5e9)] == ["0.21", "40", "3.9K", "1M", "2.5G"]


def test_a_batch_of_answers_that_use_up_their_limits_has_its_time() -> None:
    assert bound_check_seconds("math", 256.0) == 0.0
    within = bound_check_seconds(data.Tests(seconds=5.0), 256.0)
    assert within == 256 * 7 / 2
    (line,) = details(Price(checked_within=within))
    assert line == "checking a batch takes at most 14m 56s, if every answer uses up its limit"
