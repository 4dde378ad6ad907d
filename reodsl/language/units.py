"""Convert numbers as written (`16K tokens`, `0.2%`) to quantities in base units, and multiply units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

Dimension = tuple[tuple[str, int], ...]
"""Base units with their exponents, sorted by name; empty for a plain number."""

PLAIN: Dimension = ()
TOKENS: Dimension = (("tokens", 1),)
STEPS: Dimension = (("steps", 1),)

UNITS: dict[str, str] = {
    "token": "tokens",
    "tokens": "tokens",
    "step": "steps",
    "steps": "steps",
    "gpu_hour": "gpu_hours",
    "gpu_hours": "gpu_hours",
    "second": "seconds",
    "seconds": "seconds",
    "GiB": "GiB",
}
"""The canonical name of each spelling of a unit."""
SUFFIXES = {"K": 1, "M": 2, "G": 3}
LARGEST = 10**18


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in base units, such as tokens or steps."""

    number: int | float
    """A whole number with a unit is an int."""
    unit: Dimension = PLAIN


def read_dimension(unit: str | None) -> Dimension | None:
    """Return the dimension of a unit as it is spelled; `PLAIN` if there is no unit, None if the unit is unknown."""
    if unit is None:
        return PLAIN
    base = UNITS.get(unit)
    return None if base is None else ((base, 1),)


def scale(value: int | float, suffix: str | None, unit: Dimension) -> int | float | None:
    """Return a number with its suffix applied; None if the result is larger than `LARGEST` or not finite.

    A whole result is an int, except for a float that has neither suffix nor unit.

    Args:
        value: The number as written.
        suffix: `K`, `M`, `G`, `%` or None; K is 1024 for tokens and 1000 otherwise.
        unit: The unit of the number.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) > LARGEST:
        return None
    try:
        exact = Decimal(repr(value))
        if suffix == "%":
            exact /= 100
        elif suffix is not None:
            exact *= Decimal(1024 if unit == TOKENS else 1000) ** SUFFIXES[suffix]
    except InvalidOperation:
        return None
    if abs(exact) > LARGEST:
        return None
    if exact == exact.to_integral_value() and (isinstance(value, int) or suffix or unit):
        return int(exact)
    return float(exact)


def multiply_units(left: Dimension, right: Dimension, power: int = 1) -> Dimension:
    """Return the dimension of the product `left * right**power`.

    Args:
        left: The dimension of the first factor.
        right: The dimension of the second factor.
        power: 1 for a product, -1 for a quotient.
    """
    exponents = dict(left)
    for base, exponent in right:
        exponents[base] = exponents.get(base, 0) + power * exponent
    return tuple(sorted((base, exponent) for base, exponent in exponents.items() if exponent))


def name_unit(unit: Dimension) -> str:
    """Return the name of a dimension, such as `tokens`, `tokens^2` or `tokens/steps`; empty for a plain number."""
    over = "*".join(b if e == 1 else f"{b}^{e}" for b, e in unit if e > 0)
    under = "/".join(b if e == -1 else f"{b}^{-e}" for b, e in unit if e < 0)
    return f"{over or '1'}/{under}" if under else over


def describe_unit(unit: Dimension) -> str:
    """Return a dimension for a sentence: `in tokens`, or `a plain number`."""
    name = name_unit(unit)
    return f"in {name}" if name else "a plain number"


def format_quantity(quantity: Quantity) -> str:
    """Return a quantity with all digits and without a suffix: `65536 tokens`, `1 step`, `5e-6`."""
    number = quantity.number
    text = repr(number).replace("e-0", "e-").removesuffix(".0")
    name = name_unit(quantity.unit)
    if number == 1 and name.endswith("s"):
        name = name[:-1]
    return f"{text} {name}" if name else text


def write_amount(number: float, unit: Dimension) -> str:
    """Return a number of any dimension as a spec writes it.

    A dimension of several units is a product or quotient of units, such as `2 steps * 1 tokens`.

    Args:
        number: The number in base units.
        unit: The dimension.
    """
    over = [base for base, exponent in unit for _ in range(exponent)]
    under = [base for base, exponent in unit for _ in range(-exponent)]
    text = " ".join([format_quantity(Quantity(number)), *over[:1]])
    return "".join([text, *(f" * 1 {base}" for base in over[1:]), *(f" / 1 {base}" for base in under)])


def write_divisor(unit: Dimension) -> str:
    """Return the text to write after a value so that its unit cancels, such as ` / 1 token` for a number of tokens."""
    parts = ((format_quantity(Quantity(1, ((base, 1),))), exponent) for base, exponent in unit)
    return "".join(
        (" / " if exponent > 0 else " * ").join(["", *[factor] * abs(exponent)]) for factor, exponent in parts
    )


def write_quantity(quantity: Quantity) -> str:
    """Return a quantity as a spec writes it: `32K tokens`, with the suffix K for whole thousands below 1M.

    For tokens K is 1024 and M is 1024K.
    """
    number, name = quantity.number, name_unit(quantity.unit)
    base = 1024 if quantity.unit == TOKENS else 1000
    if isinstance(number, int) and number and number % base == 0 and abs(number) < base**2:
        return f"{number // base}K {name}".rstrip()
    return format_quantity(quantity)
