"""The published frontiers of the standard library, read off its text."""

import re
from pathlib import Path

import pytest

from reodsl.numbers.curves import Curve, Curves

TEXT = (Path(__file__).parents[2] / "stdlib" / "paper.reo").read_text(encoding="utf-8")
BLOCK = re.compile(
    r'^frontier (\w+) \{.*?benchmark = "(\w+)"\s+budgets = \[(.*?)\]\s+accuracy = \[(.*?)\]\s+\}', re.M | re.S
)
FOUND = {
    name: {
        benchmark: Curve(
            tuple(int(b) for b in budgets.split(",") if b.strip()),
            tuple(float(a) for a in accuracy.split(",") if a.strip()),
        )
    }
    for name, benchmark, budgets, accuracy in BLOCK.findall(TEXT)
}


@pytest.fixture
def all_published() -> dict[str, Curves]:
    """The published frontiers by name."""
    return dict(FOUND)


@pytest.fixture(params=["qwen3_4b", "qwen3_8b", "deepseek_1_5b", "deepseek_7b"])
def published(request: pytest.FixtureRequest) -> Curves:
    """Each of the four published frontiers in turn."""
    return FOUND[request.param]
