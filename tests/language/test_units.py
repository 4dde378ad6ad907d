"""Units: K by unit, spellings that mean the same, and a value written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.ir.setting import AnyOf, ListOf, Num, Type
from reodsl.language.context import attempt
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate
from reodsl.language.fitting import TypeMismatch, coerce
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.units import (
    STEPS,
    TOKENS,
    Dimension,
    Quantity,
    format_quantity,
    multiply_units,
    name_unit,
    write_quantity,
)
from reodsl.language.values import Scope, Value, plain
from reodsl.syntax import parse, parse_expression
from reodsl.syntax.source import Source


def value(text: str, want: Type | None = None) -> Value | None:
    module = ParsedFile("t", "t", parse(Source("t", "")).module, False, {}, {})
    expression = parse_expression(Source("t", text)).expression
    assert expression is not None, text
    return attempt(lambda: evaluate(new_context(Modules(Path())), expression, Scope(module), want))


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("16K tokens", 16384, "tokens"),
        ("1M tokens", 2**20, "tokens"),
        ("1.5K tokens", 1536, "tokens"),
        ("4K gpu_hours", 4000, "gpu_hours"),
        ("4K", 4000, ""),
        ("0.2%", 0.002, ""),
        ("20%", 0.2, ""),
        ("1 step", 1, "steps"),
        ("2 * 8K tokens", 16384, "tokens"),
        ("16K tokens / 2", 8192, "tokens"),
        ("16K tokens / 4K tokens", 4, ""),
        ("-3 steps + 5 steps", 2, "steps"),
        ("2 ^ 10", 1024, ""),
        ("8 if 1K tokens < 1000 tokens else 9", 9, ""),
    ],
)
def test_numbers(text: str, number: float, unit: str) -> None:
    found = value(text)
    assert found is not None
    assert isinstance(found.data, Quantity)
    assert (found.data.number, name_unit(found.data.unit)) == (number, unit)


@pytest.mark.parametrize(
    "text",
    [
        "1 tokens + 1",
        "1 tokens < 1 steps",
        "1 / 0",
        "1K tokens / 0 tokens",
        "2 ^ (1 tokens)",
        "5% tokens",
        "[1] + 1",
    ],
)
def test_refused(text: str) -> None:
    assert value(text) is None


UNITS = st.sampled_from([(), TOKENS, STEPS])


@given(st.integers(-(10**9), 10**9), UNITS)
def test_what_is_written_is_read_back(number: int, unit: Dimension) -> None:
    quantity = Quantity(number, unit)
    for text in (write_quantity(quantity), format_quantity(quantity)):
        found = value(text)
        assert found is not None
        assert found.data == quantity


@given(st.floats(1e-12, 1e12))
def test_fractions_are_read_back(number: float) -> None:
    found = value(format_quantity(Quantity(number)))
    assert found is not None
    assert plain(found) == number


@given(UNITS, UNITS)
def test_a_quotient_undoes_a_product(one: Dimension, two: Dimension) -> None:
    assert multiply_units(multiply_units(one, two), two, -1) == one


def test_a_setting_gives_a_bare_number_its_unit() -> None:
    tokens = Num("tokens", integer=True, low=1)
    for text, number in (("32K", 32768), ("32K tokens", 32768), ("7", 7)):
        found = value(text)
        assert found is not None
        fitted = coerce(found, tokens)
        assert isinstance(fitted, Value)
        assert plain(fitted) == number
    for text in ("32K steps", "0", "0.3", "1.5 tokens", "5%", '"x"', "2 * 3"):
        found = value(text)
        assert found is not None
        assert isinstance(coerce(found, tokens), TypeMismatch), text


def test_the_first_of_some_types_that_fits() -> None:
    warmup = AnyOf((Num("steps", integer=True, low=0), Num(low=0, high=1)))
    assert [plain(coerce(value(text), warmup)) for text in ("3 steps", "3", "0.1%", "0.5")] == [
        3,
        3,
        0.001,
        0.5,
    ]  # type: ignore[arg-type]
    assert isinstance(coerce(value("5%") or Value("", None), Num("steps")), TypeMismatch)  # type: ignore[arg-type]


def test_lists() -> None:
    tokens = ListOf(Num("tokens", integer=True, low=1), lone=True)
    assert plain(coerce(value("[1K, 2K tokens]"), tokens)) == (1024, 2048)  # type: ignore[arg-type]
    assert plain(coerce(value("1K"), tokens)) == (1024,)  # type: ignore[arg-type]
