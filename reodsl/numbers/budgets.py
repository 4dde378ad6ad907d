"""Budgets: schedules by rule or as given, checked, and the weight of each of their splits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from reodsl.diagnostics import Diagnostic, Label, Problem, Span, error

MOST_TOKENS = 2**24
MOST_BUDGETS = 4096

Reason = Literal["setting", "not_whole", "not_increasing", "equal", "outside", "uncovered"]


class BudgetError(Problem):
    """Budgets that make no schedule: the `reason`, and the offending `values` (tokens, or a count of budgets).

    It can be shown as it is; `at` returns the same diagnostic with its location in a spec.
    """

    def __init__(
        self, reason: Reason, message: str, values: Sequence[int | float] = (), help: str | None = None
    ) -> None:
        """Make E0408 for a frontier that does not cover the budgets, else E0410.

        Args:
            reason: What is wrong with the budgets.
            message: The message.
            values: The offending numbers, in tokens or budgets.
            help: What to write instead.
        """
        self.code = "E0408" if reason == "uncovered" else "E0410"
        super().__init__(error(self.code, message, help=help))
        self.reason = reason
        self.message = message
        self.values = tuple(values)
        self.help = help

    def at(self, span: Span, text: str = "", labels: Sequence[Label] = ()) -> Diagnostic:
        """Return the diagnostic with its location in a spec.

        Args:
            span: The primary location.
            text: The words below the primary location.
            labels: Further locations with their words.
        """
        return error(self.code, self.message, span, text, labels=labels, help=self.help)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Budgets `0 < L_1 < … < L_N < l_max`, in tokens of the response. Raises `BudgetError` otherwise.

    `budgets` holds L_1 … L_N; `l_max` is L_{N+1}, the longest response.
    """

    budgets: tuple[int, ...]
    l_max: int

    def __post_init__(self) -> None:
        """Check that the budgets are whole numbers that increase between 0 and `l_max`."""
        check_l_max(self.l_max)
        check_count(len(self.budgets), self.l_max)
        for budget in self.budgets:
            require_whole(budget, "a budget")
        for before, after in zip(self.budgets, self.budgets[1:], strict=False):
            if before == after:
                raise BudgetError(
                    "equal",
                    f"the budget {tokens(after)} is listed twice",
                    (before, after),
                    "list each budget once",
                )
            if before > after:
                raise BudgetError(
                    "not_increasing",
                    f"budgets must increase, and {tokens(after)} follows {tokens(before)}",
                    (before, after),
                    "write them from the smallest to the largest",
                )
        for budget in (self.budgets[0], self.budgets[-1]):
            if not 0 < budget < self.l_max:
                raise BudgetError(
                    "outside",
                    f"the budget {tokens(budget)} is not between 0 and the longest response, "
                    f"{tokens(self.l_max)}",
                    (budget, self.l_max),
                    f"keep budgets from 1 to {self.l_max - 1} tokens; the longest response is a split of its own",
                )

    @property
    def splits(self) -> tuple[int, ...]:
        """Return L_1 … L_{N+1}: the positions, in tokens, at which a response is divided into sections.

        They are the budgets and, last, `l_max`.
        """
        return (*self.budgets, self.l_max)


def exp(l_min: int, l_max: int, n: int) -> Schedule:
    """Return `L_i = l_min (l_max / l_min)^((i-1)/n)`, rounded, i = 1 … n: the paper's REO-RL (Exp).

    `l_min` = 1K, `l_max` = 32K and `n` = 5 give 1K, 2K, 4K, 8K, 16K exactly.

    Args:
        l_min: The smallest budget in tokens.
        l_max: The longest response in tokens.
        n: The number of budgets.

    Raises:
        BudgetError: No range is left between `l_min` and `l_max`, or rounding makes two budgets equal.
    """
    check_l_max(l_max)
    require_whole(l_min, "the smallest budget")
    if not 0 < l_min < l_max:
        raise BudgetError(
            "setting",
            f"budgets from {tokens(l_min)} to {tokens(l_max)} leave no range",
            (l_min, l_max),
            f"start at 1 to {l_max - 1} tokens",
        )
    check_count(n, l_max)
    return round_schedule([round(l_min * (l_max / l_min) ** (i / n)) for i in range(n)], l_max)


def linear(l_max: int, n: int) -> Schedule:
    """Return the equidistant budgets `L_i = i l_max / (n + 1)`, i = 1 … n, rounded to even at a half.

    The paper names this rule without a formula.

    Raises:
        BudgetError: The budgets do not fit below `l_max`.
    """
    check_l_max(l_max)
    check_count(n, l_max)
    return round_schedule([round(Fraction(i * l_max, n + 1)) for i in range(1, n + 1)], l_max)


def explicit(budgets: Sequence[int], l_max: int) -> Schedule:
    """Return given budgets as a schedule, which checks that they increase and lie between 0 and `l_max`."""
    return Schedule(tuple(budgets), l_max)


def halve(start: int, stop: int) -> tuple[int, ...]:
    """Return `start` and its halves down to `stop`, such as 16K, 8K, 4K, 2K, 1K, 512.

    These are the maximum response lengths of successive RL stages. Stages are named by the lengths, so `stop` has to be
    one of the halves.

    Args:
        start: The first and largest length in tokens.
        stop: The last length in tokens.

    Raises:
        BudgetError: Halving `start` does not reach `stop`.
    """
    require_whole(start, "the first maximum")
    require_whole(stop, "the last maximum")
    check_l_max(start)
    if not 0 < stop <= start:
        raise BudgetError(
            "setting",
            f"halving {tokens(start)} never reaches {tokens(stop)}",
            (start, stop),
            f"stop at 1 to {start} tokens",
        )
    caps = [start]
    while caps[-1] % 2 == 0 and caps[-1] // 2 >= stop:
        caps.append(caps[-1] // 2)
    if caps[-1] != stop:
        raise BudgetError(
            "setting",
            f"halving {tokens(start)} skips {tokens(stop)}: {', '.join(str(cap) for cap in caps)}",
            (start, stop),
            f"stop at one of these lengths, or start at {stop} times a power of two",
        )
    return tuple(caps)


def round_schedule(budgets: Sequence[int], l_max: int) -> Schedule:
    """Return budgets that a rule computed and rounded as a schedule.

    Args:
        budgets: The rounded budgets in tokens, in ascending order.
        l_max: The longest response in tokens.

    Raises:
        BudgetError: Rounding made two budgets equal.
    """
    for i, (before, after) in enumerate(itertools.pairwise(budgets), start=1):
        if before == after:
            raise BudgetError(
                "equal",
                f"budgets {i} and {i + 1} of {len(budgets)} are both {tokens(after)} after rounding",
                (before, after),
                "take fewer budgets, or a wider range",
            )
    return Schedule(tuple(budgets), l_max)


def check_l_max(l_max: int) -> None:
    """Check that the longest response has 2 to `MOST_TOKENS` tokens: a budget needs a token on either side.

    Raises:
        BudgetError: It has fewer or more tokens, or is not a whole number.
    """
    require_whole(l_max, "the longest response")
    if not 2 <= l_max <= MOST_TOKENS:
        raise BudgetError(
            "setting",
            f"the longest response is {tokens(l_max)}, but has to be 2 to {MOST_TOKENS} tokens",
            (l_max,),
            "give it in tokens, such as 32K tokens",
        )


def check_count(n: int, l_max: int) -> None:
    """Check that `n` different budgets fit below `l_max`.

    Raises:
        BudgetError: `n` is below 1 or too large.
    """
    most = min(MOST_BUDGETS, l_max - 1)
    require_whole(n, "the number of budgets")
    if not 1 <= n <= most:
        raise BudgetError(
            "setting",
            f"{n} budgets do not fit below {tokens(l_max)}: 1 to {most} are possible",
            (n, l_max),
            "the paper takes 5",
        )


def require_whole(value: object, noun: str) -> None:
    """Check that a value is an `int`; `True` and 512.0 are refused.

    Args:
        value: The value.
        noun: What the value is, for the message.

    Raises:
        BudgetError: The value is not a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        text = value if isinstance(value, (int, float)) else repr(value)[:40]
        raise BudgetError(
            "not_whole",
            f"{noun} is {text}, which is not a whole number",
            (value,) if isinstance(value, (int, float)) else (),
            "write a whole number of tokens",
        )


def tokens(count: int) -> str:
    """Return a number of tokens with its noun: `1 token`, `512 tokens`."""
    return f"{count} token" if count == 1 else f"{count} tokens"


Rule = Literal["trapezoid", "uniform", "half_first"]


def coefficients(rule: Rule, budgets: Sequence[int], l_max: int) -> tuple[float, ...]:
    """Return the weights c_1 … c_{N+1} of N budgets and of `l_max` in a sum that estimates an integral over budgets.

    The rules are:

    - `trapezoid`: c_i = (L_{i+1} - L_{i-1}) / 2 and c_{N+1} = (l_max - L_N) / 2, with L_0 = 0.
    - `uniform`: all weights are 1.
    - `half_first`: as `trapezoid`, but c_1 = L_1 / 2, as the paper prints it for Q-Spec.

    A question's own budget may equal `l_max`; the last weight is then 0.

    Args:
        rule: The rule.
        budgets: L_1 ≤ … ≤ L_N ≤ l_max, in tokens.
        l_max: The longest response in tokens.

    Returns:
        N + 1 weights, in tokens but for `uniform`.
    """
    if rule == "uniform":
        return (1.0,) * (len(budgets) + 1)
    points = (0, *budgets, l_max)
    inner = [(points[i + 1] - points[i - 1]) / 2 for i in range(1, len(budgets) + 1)]
    if rule == "half_first" and budgets:
        inner[0] = budgets[0] / 2
    return (*inner, (l_max - points[-2]) / 2)


def trapezoid(schedule: Schedule) -> tuple[float, ...]:
    """Return the paper's weights c_1 … c_{N+1} of a schedule.

    Returns:
        Weights in tokens, whose sum is `l_max - L_1 / 2`.
    """
    return coefficients("trapezoid", schedule.budgets, schedule.l_max)
