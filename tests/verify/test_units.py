r"""Units against the SI's own definitions: a factor and powers of metre, kilogram and second; a text that names none."""

from __future__ import annotations

from fractions import Fraction

import pytest

from runners.verify.quantity import quantity
from runners.verify.units import unit_of


@pytest.mark.parametrize(
    ("text", "size", "powers"),
    [
        ("m", "1", {"length": 1}),
        (r"\text{ km/h}", "5/18", {"length": 1, "time": -1}),
        ("km per hour", "5/18", {"length": 1, "time": -1}),
        ("cm^2", "1/10000", {"length": 2}),
        ("cm^{-2}", "10000", {"length": -2}),
        ("square feet", "0.09290304", {"length": 2}),
        ("cubic cm", "1/1000000", {"length": 3}),
        ("cm cubed", "1/1000000", {"length": 3}),
        ("inches", "0.0254", {"length": 1}),
        ("hours", "3600", {"time": 1}),
        ("hr", "3600", {"time": 1}),
        ("days", "86400", {"time": 1}),
        ("years", "12", {"month": 1}),
        (r"m / s^2", "1", {"length": 1, "time": -2}),
        (r"\mathrm{erg s^{-1}}", "1/10000000", {"mass": 1, "length": 2, "time": -3}),
        (r"m \cdot s", "1", {"length": 1, "time": 1}),
        ("cents", "1/100", {"money": 1}),
        ("$", "1", {"money": 1}),
        ("m/m", "1", {}),
    ],
)
def test_a_unit_has_its_size_and_its_powers(text: str, size: str, powers: dict[str, int]) -> None:
    unit = unit_of(text)
    assert unit is not None
    assert (dict(unit.dimension), unit.size) == (powers, Fraction(size))


@pytest.mark.parametrize("text", ["", "hs", "\u00c5s", "apples", "^2", "m^2^2", "m?"])
def test_what_names_no_unit(text: str) -> None:
    """A letter alone has no plural: `hs` are no hours."""
    assert unit_of(text) is None


def test_a_unit_without_a_word_is_none_and_no_error() -> None:
    assert quantity(r"5\mathrm{}") is None
