"""Read units of measure after a number: their dimension and size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Dimension = tuple[tuple[str, int], ...]
MOST_CHARACTERS = 80
MOST_POWER = 6


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its measure as powers of base quantities, and its size in base units."""

    dimension: Dimension
    size: Fraction


_PREFIXES = {
    "k": 3, "M": 6, "G": 9, "T": 12, "m": -3, "u": -6, "\u00b5": -6, "\u03bc": -6, "n": -9, "p": -12, "f": -15,
}  # fmt: skip
_LONG = {"kilo": 3, "mega": 6, "giga": 9, "milli": -3, "micro": -6, "nano": -9, "pico": -12}

# Symbol, words, size in base units, powers of the base quantities.
_WITH_PREFIXES: tuple[tuple[str, tuple[str, ...], str, Mapping[str, int]], ...] = (
    ("m", ("meter", "metre"), "1", {"length": 1}),
    ("g", ("gram",), "0.001", {"mass": 1}),
    ("s", ("second",), "1", {"time": 1}),
    ("J", ("joule",), "1", {"mass": 1, "length": 2, "time": -2}),
    ("eV", ("electronvolt",), "1.602176634e-19", {"mass": 1, "length": 2, "time": -2}),
    ("cal", ("calorie",), "4.184", {"mass": 1, "length": 2, "time": -2}),
    ("W", ("watt",), "1", {"mass": 1, "length": 2, "time": -3}),
    ("N", ("newton",), "1", {"mass": 1, "length": 1, "time": -2}),
    ("Pa", ("pascal",), "1", {"mass": 1, "length": -1, "time": -2}),
    ("Hz", ("hertz",), "1", {"time": -1}),
    ("C", ("coulomb",), "1", {"charge": 1}),
    ("A", ("ampere", "amp"), "1", {"charge": 1, "time": -1}),
    ("V", ("volt",), "1", {"mass": 1, "length": 2, "time": -2, "charge": -1}),
    ("\u03a9", ("ohm",), "1", {"mass": 1, "length": 2, "time": -1, "charge": -2}),
    ("F", ("farad",), "1", {"mass": -1, "length": -2, "time": 2, "charge": 2}),
    ("T", ("tesla",), "1", {"mass": 1, "time": -1, "charge": -1}),
    ("mol", ("mole",), "1", {"amount": 1}),
    ("L", ("liter", "litre"), "0.001", {"length": 3}),
    ("l", (), "0.001", {"length": 3}),
    ("pc", ("parsec",), "3.0856775814913673e16", {"length": 1}),
    ("K", ("kelvin",), "1", {"temperature": 1}),
)
_ALONE: tuple[tuple[tuple[str, ...], str, Mapping[str, int]], ...] = (
    (("cm", "centimeter", "centimetre"), "0.01", {"length": 1}),
    (("in", "inch", "inche"), "0.0254", {"length": 1}),
    (("ft", "foot", "feet"), "0.3048", {"length": 1}),
    (("yd", "yard"), "0.9144", {"length": 1}),
    (("mi", "mile"), "1609.344", {"length": 1}),
    (("\u00c5", "\u212b", "angstrom"), "1e-10", {"length": 1}),
    (("AU", "au"), "1.495978707e11", {"length": 1}),
    (("ly", "lightyear"), "9.4607304725808e15", {"length": 1}),
    (("min", "minute"), "60", {"time": 1}),
    (("h", "hr", "hour"), "3600", {"time": 1}),
    (("day", "d"), "86400", {"time": 1}),
    (("week",), "604800", {"time": 1}),
    (("month",), "1", {"month": 1}),
    (("year", "yr"), "12", {"month": 1}),
    (("sec",), "1", {"time": 1}),
    (("lb", "pound"), "0.45359237", {"mass": 1}),
    (("oz", "ounce"), "0.028349523125", {"mass": 1}),
    (("ton", "tonne"), "1000", {"mass": 1}),
    (("erg",), "1e-7", {"mass": 1, "length": 2, "time": -2}),
    (("dyn", "dyne"), "1e-5", {"mass": 1, "length": 1, "time": -2}),
    (("M", "molar"), "1000", {"amount": 1, "length": -3}),
    (("atm",), "101325", {"mass": 1, "length": -1, "time": -2}),
    (("bar",), "100000", {"mass": 1, "length": -1, "time": -2}),
    (("mph",), "0.44704", {"length": 1, "time": -1}),
    (("kph", "kmh"), "5/18", {"length": 1, "time": -1}),
    (("dollar", "buck", "USD", "$"), "1", {"money": 1}),
    (("cent", "penny", "pennie", "\u00a2"), "0.01", {"money": 1}),
    (("euro", "EUR", "\u20ac"), "1", {"euro": 1}),
    (("GBP", "\u00a3"), "1", {"sterling": 1}),
    (("rupee", "INR", "\u20b9", "Rs"), "1", {"rupee": 1}),
    (("yuan", "CNY", "RMB", "\u00a5", "\u5143"), "1", {"yuan": 1}),
    (("won", "KRW", "\u20a9"), "1", {"won": 1}),
    (("ruble", "rouble", "RUB", "\u20bd"), "1", {"ruble": 1}),
    (("Msun",), "1.98892e30", {"mass": 1}),
    (("Lsun",), "3.828e26", {"mass": 1, "length": 2, "time": -3}),
    (("Rsun",), "6.957e8", {"length": 1}),
    (("rad", "radian"), "1", {"angle": 1}),
)


def _powers(quantities: Mapping[str, int]) -> Dimension:
    return tuple(sorted((name, power) for name, power in quantities.items() if power))


def _table() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for symbol, words, size, quantities in _WITH_PREFIXES:
        dimension, value = _powers(quantities), Fraction(size)
        for prefix, power in {"": 0, **_PREFIXES}.items():
            units.setdefault(prefix + symbol, Unit(dimension, value * Fraction(10) ** power))
        for word in words:
            for prefix, power in {"": 0, **_LONG}.items():
                for ending in ("", "s"):
                    units[prefix + word + ending] = Unit(dimension, value * Fraction(10) ** power)
    for names, size, quantities in _ALONE:
        for name in names:
            unit = Unit(_powers(quantities), Fraction(size))
            units[name] = unit
            if len(name) > 1:
                units.setdefault(name + "s", unit)
    units["hertz"] = units["Hz"]
    return units


_UNITS = _table()
_TOKEN = re.compile(
    r"\s*+(?:([A-Za-z\u00b5\u03bc\u03a9\u00c5\u212b]++|[$\u20ac\u00a3\u20b9\u00a5\u20a9\u20bd\u00a2\u5143])|\^\{?(-?\d)\}?|(/)|(\\cdot|\*))"
)
_MODIFIERS, _AFTER = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}, {"squared": 2, "cubed": 3}
_WRAPPED = re.compile(r"\\(?:text|mathrm)\{((?:[^{}]|\{[^{}]*+\})*+)\}")
_SUN = re.compile(r"([MLR])_ ?\{? ?\\odot ?\}?")
_QUOTIENT = re.compile(r"\\frac\{([^{}]*+)\}\{([^{}]*+)\}")


@lru_cache(maxsize=4096)
def unit_of(text: str) -> Unit | None:
    r"""Return the unit that a text such as `\text{ km/h}`, `cm^2`, `\mathrm{erg s^{-1}}` names; None where it names none."""
    if len(text) > MOST_CHARACTERS:
        return None
    text = _QUOTIENT.sub(r"\1 / \2 ", _SUN.sub(r"\1sun ", _WRAPPED.sub(r" \1 ", text)))
    text = text.replace(".", " ").replace(r"\$", "$").replace(r"\Omega", "\u03a9").strip()
    place, sign, next_power = 0, 1, 1
    powers: dict[str, int] = {}
    size, last = Fraction(1), None
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
        word = token[1]
        if token[2] is not None or word in _AFTER:
            # One power has been counted with the unit itself.
            if (
                last is None
                or abs(power := int(token[2]) if token[2] is not None else _AFTER[word]) > MOST_POWER
            ):
                return None
            size *= last[0].size ** (last[1] * (power - 1))
            _add(powers, last[0].dimension, last[1] * (power - 1))
            last = None
        elif token[3] is not None or word == "per":
            sign = -1
        elif word in _MODIFIERS:
            next_power = _MODIFIERS[word]
        elif word is not None:
            unit = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 3 else word)
            if unit is None:
                return None
            size *= unit.size ** (sign * next_power)
            _add(powers, unit.dimension, sign * next_power)
            last, next_power = (unit, sign * next_power), 1
    return Unit(_powers(powers), size) if powers or last is not None else None


def _add(powers: dict[str, int], dimension: Dimension, times: int) -> None:
    for name, power in dimension:
        powers[name] = powers.get(name, 0) + power * times
