"""What documents say was measured is what benchmarks/results.json has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import text

ALL: dict[str, Any] = json.loads(Path("benchmarks/results.json").read_text())
RESULTS = next(results for processor, results in ALL.items() if "Xeon" in processor)
(VARIED, FIXED), (VARIED_AMD, FIXED_AMD) = (
    [row["ratio"] for row in of["step"].values()] for of in (RESULTS, ALL["AMD EPYC with AVX2"])
)
FIRST, SECOND, THIRD = RESULTS["lag"]["ratios"]


def quote_few_seeds() -> str:
    """Return the sentence of SCIENCE on fewer than four seeds: the least and the most coverage of INTERVALS' tables."""
    lines = Path("benchmarks/INTERVALS.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    shares = [row for row in rows if row[0] in ("measure", "accuracy", "pass_at(2)")]
    found: list[list[str]] = [[], []]
    for seeds in ("1 seed", "2 seeds", "3 seeds"):
        column = shares[0].index(seeds)
        differences = [row[1] for row in rows if re.match(rf"{seeds}\b", row[0])]
        for ranges, cells in zip(found, (differences, [row[column] for row in shares[1:]]), strict=True):
            values = sorted(float(cell.rstrip("%")) for cell in cells)
            ranges.append(f"{values[0]}–{values[-1]}%")
    return f"with 1, 2, 3 seeds in {', '.join(found[0])}, and shares in {', '.join(found[1])}."


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("docs/SCIENCE.md", quote_few_seeds()),
        (
            "docs/COMPARISON.md",
            f"at 32 budgets cost {RESULTS['engine']['forced_32_over_generation']:.2f} of the generation",
        ),
        (
            "docs/COMPARISON.md",
            f"{VARIED} times TRL's tokens a second at varied lengths, {FIXED:.1f} times at fixed ones on an Intel Xeon, "
            f"and {VARIED_AMD} and {FIXED_AMD:.1f} times on an AMD EPYC without AVX-512.",
        ),
        (
            "docs/PROOFS.md",
            f"rounds on a quiet machine took {FIRST}, {SECOND} and {THIRD} of the time without",
        ),
        (
            "docs/PROOFS.md",
            f"`python -m benchmarks reading` measured {RESULTS['reading']['without']} and "
            f"{RESULTS['reading']['with_logprobs']}.",
        ),
    ],
)
def test_a_page_says_what_was_measured(page: str, said: str) -> None:
    assert said in " ".join(Path(page).read_text().split())


def test_bounds_that_pages_promise_hold() -> None:
    assert "less than 150 ms" in Path("docs/TOOLS.md").read_text()
    for results in ALL.values():
        assert results["editor"]["slowest"] < 150
        # Seconds of the client for a million tokens, with log-probabilities and without (docs/PROOFS.md).
        assert results["reading"]["with_logprobs"] <= 0.3
        assert results["reading"]["without"] <= 0.1


def test_the_page_of_results_is_made_of_them() -> None:
    assert Path("benchmarks/RESULTS.md").read_text() == text(ALL)
