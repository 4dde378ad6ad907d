"""Dynamic sampling: how many questions give no gradient, and how many draws fill a step's batch."""

from __future__ import annotations

import math

_NEGLIGIBLE = 1e-9


def equal_groups(rollouts: int) -> float:
    """The share of questions whose responses are all right or all wrong, where nobody has measured it.

    A question that is answered with a chance `p` has such a group with `p^n + (1 - p)^n`; over questions with every
    chance from 0 to 1 equally likely, that is `2 / (n + 1)`.
    """
    return 2 / (rollouts + 1)


def expected_draws(prompts: int, most: int, equal: float) -> float:
    """Draws of `prompts` questions, `most` at the utmost, until as many of them as one draw has give a gradient.

    Each question gives none with the chance `equal`, independently: after `k` draws those that do are binomial, and
    one draw more is made where they are fewer than `prompts`.
    """
    expected = 1.0
    for draws in range(1, most):
        short = _fewer(prompts, draws * prompts, 1 - equal)
        expected += short
        if short < _NEGLIGIBLE:
            break
    return expected


def _fewer(wanted: int, tries: int, chance: float) -> float:
    """The probability that fewer than `wanted` of `tries` succeed."""
    if chance <= 0:
        return 1.0
    if chance >= 1:
        return 0.0
    whole = math.lgamma(tries + 1)
    logs = (
        whole
        - math.lgamma(successes + 1)
        - math.lgamma(tries - successes + 1)
        + successes * math.log(chance)
        + (tries - successes) * math.log1p(-chance)
        for successes in range(wanted)
    )
    return min(1.0, math.fsum(math.exp(each) for each in logs))
