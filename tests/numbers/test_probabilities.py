"""Student's t against printed tables and closed forms."""

import math
from statistics import NormalDist

import pytest

from reodsl.numbers.reg import t_probability, t_quantile

# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
PRINTED = {
    (0.975, 1): 12.706,
    (0.975, 2): 4.303,
    (0.975, 3): 3.182,
    (0.95, 5): 2.015,
    (0.975, 9): 2.262,
    (0.99, 10): 2.764,
    (0.995, 30): 2.750,
    (0.975, 100): 1.984,
}


@pytest.mark.parametrize(("probability", "df"), PRINTED)
def test_printed_quantiles(probability: float, df: int) -> None:
    assert round(t_quantile(probability, df), 3) == PRINTED[probability, df]


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.7, 40.0])
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    assert t_probability(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)
    assert t_probability(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-13)


@pytest.mark.parametrize("df", [1, 7.5, math.inf])
def test_half_of_all_is_below_0(df: float) -> None:
    assert t_quantile(0.5, df) == pytest.approx(0, abs=1e-15)


def test_many_degrees_are_the_normal_distribution() -> None:
    for df in (1e7, math.inf):
        assert t_quantile(0.975, df) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-6)


@pytest.mark.parametrize("df", [0.7, 1.5, 2.6, 17.3])
def test_a_quantile_has_its_probability_below_it(df: float) -> None:
    for probability in (0.6, 0.9, 0.975, 0.9999):
        assert t_probability(t_quantile(probability, df), df) == pytest.approx(probability, abs=1e-12)
        assert t_quantile(1 - probability, df) == pytest.approx(-t_quantile(probability, df), rel=1e-9)
