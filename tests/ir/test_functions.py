"""The tables of the functions of numbers have the same names, and the ranges hold every value."""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import pytest

from reodsl.ir.expression import FUNCTIONS, Function
from runners.rewards import arithmetic, vectorise


def test_every_table_has_every_function() -> None:
    names = {*get_args(Function)}
    assert FUNCTIONS.keys() == names
    assert arithmetic.FUNCTIONS.keys() == names
    assert vectorise.FUNCTIONS.keys() == names


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_range_holds_every_value(name: Function) -> None:
    function = FUNCTIONS[name]
    bounds = [(0.5, 2.0), (3.0, 7.5)] if function.domain else [(-4.5, -1.0), (-1.5, 3.0), (0.5, 7.5)]
    for ends in product(bounds, repeat=function.arity):
        low, high = function.range(*ends)
        for args in product(*(np.linspace(*each, 5) for each in ends)):
            if name == "clip" and args[1] > args[2]:
                continue  # no such bounds are meant
            assert low - 1e-12 <= arithmetic.FUNCTIONS[name](*map(float, args)) <= high + 1e-12
