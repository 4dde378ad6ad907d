r"""Units against the SI's own definitions: a factor and powers of metre, kilogram and second; a text that names none."""

from __future__ import annotations

from fractions import Fraction

import pytest

from runners.grade.compare.quantity import quantity, unit_of


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


@pytest.mark.parametrize(
    ("unit", "by_others"),
    [
        ("N", "kg m / s^2"),
        ("J", "N m"),
        ("eV", "N m"),
        ("cal", "N m"),
        ("W", "J / s"),
        ("Pa", "N / m^2"),
        ("Hz", "s^{-1}"),
        ("A", "C / s"),
        ("V", "W / A"),
        ("\u03a9", "V / A"),
        ("F", "C / V"),
        ("T", "N / A / m"),
        ("L", "m^3"),
    ],
)
def test_a_derived_unit_is_what_the_si_derives_it_from(unit: str, by_others: str) -> None:
    one, other = unit_of(unit), unit_of(by_others)
    assert one is not None
    assert other is not None
    assert one.dimension == other.dimension
    assert one.size == other.size or unit in ("eV", "cal", "L")


def test_parts_in_several_units_add_up_in_the_first() -> None:
    for text, value in (("1 hour 30 minutes", "3/2"), ("2 ft 6 in", "5/2"), ("90 minutes", "90")):
        read = quantity(text)
        assert read is not None
        assert read.value == Fraction(value)


def test_a_base_may_be_a_word() -> None:
    words = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    found = [quantity(rf"10_{{\text{{{word}}}}}") for word in words]
    assert [each.base if each is not None else None for each in found] == list(range(2, 11))
