"""The facts of a schedule, as scripts read them."""

from reodsl.numbers.budgets import exp, explicit
from reodsl.numbers.curves import Curve
from reodsl.numbers.describe import describe_schedule


def test_exactly_the_documented_keys():
    assert describe_schedule(exp(1024, 32768, 5)) == {
        "l_max": 32768,
        "budgets": [1024, 2048, 4096, 8192, 16384],
        "weights": [1024, 1536, 3072, 6144, 12288, 8192],
    }


def test_with_a_frontier_also_the_error(all_published):
    facts = describe_schedule(exp(1024, 32768, 5), all_published["qwen3_4b"])
    assert list(facts) == ["l_max", "budgets", "weights", "approximation_error"]
    assert -0.02 < facts["approximation_error"] < -0.01


def test_the_error_by_hand():
    # J = 0, 1/4, 1/2, 1/2, 1/2: S = 7/4; f = 1/2 * 0 + 3/2 * 1/4 + 4/2... with L_1 = 2: 2 * 1/2 + 1 * 1/2
    frontier = {"b": Curve((0, 2, 4), (0.0, 0.5, 0.5))}
    facts = describe_schedule(explicit([2], 4), frontier)
    assert facts["weights"] == [2, 1]
    assert facts["approximation_error"] == (1.5 - 1.75) / 1.75
