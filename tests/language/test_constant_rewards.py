"""Rewards that teach nothing, and the conditions that never or always hold behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file
from reodsl.language.intervals import compared

INF = float("inf")


@pytest.mark.parametrize(
    ("body", "constant"),
    [
        ("1", True),
        ("0 * correct(y)", True),
        ("x.level / 2", True),
        ("1 if len(y) >= 1 tokens else 0", False),
        ("let worth = 2 * correct(y)\n  worth", False),
        (
            "let mean_length = mean(len(z) for z in group)\n  count(z for z in group) / 8 + mean_length / 1K tokens",
            True,
        ),
        ("count(z for z in group if len(z) < len(y))", False),
        ("mode(y)", False),
        ("dense L in at: trapezoid(L)", True),
        ("dense L in at: trapezoid(L) * correct(answer(y[:L]))", False),
        ("z(correct(y)) + z(mean(mode(z) for z in group))", True),
    ],
)
def test_what_is_the_same_for_all(body: str, constant: bool, tmp_path: Path) -> None:
    at = "(at: budgets)" if "dense" in body else ""
    path = tmp_path / "spec.reo"
    path.write_text(f"reward mine{at} {{\n  {body}\n}}\n")
    codes = [each.code for each in check_file(path).diagnostics]
    assert codes.count("W0301") == constant, codes
    assert not [code for code in codes if code.startswith("E")]


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("<", (0, 1), (2, 3), (1, 1)),
        ("<", (0, 2), (2, 3), (0, 1)),
        ("<=", (0, 2), (2, 3), (1, 1)),
        (">", (0, 2), (2, 3), (0, 0)),
        (">=", (2, 3), (0, 2), (1, 1)),
        (">=", (1, INF), (0, INF), (0, 1)),
        ("==", (1, 1), (1, 1), (1, 1)),
        ("==", (0, 1), (2, 2), (0, 0)),
        ("==", (0, 1), (1, 2), (0, 1)),
        ("!=", (0, 1), (2, 2), (1, 1)),
        ("!=", (1, 1), (1, 1), (0, 0)),
    ],
)
def test_comparisons_of_ranges(
    op: str, left: tuple[float, float], right: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert compared(op, left, right) == expected


@pytest.mark.parametrize(
    "choice",
    [
        "argmin(len(z) for z in group if len(z) < 1 tokens)",
        "argmin(len(z) for z in group if correct(z) and correct(z) > 1)",
        "argmin(len(z) for z in group if not (len(z) > 0 tokens or correct(z)))",
    ],
)
def test_a_condition_that_never_holds(choice: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(f"selection mine {{ trace = {choice} }}\n")
    assert [each.code for each in check_file(path).diagnostics] == ["E0316"]
