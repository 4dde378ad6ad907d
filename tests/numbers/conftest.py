"""The published frontiers of the standard library, read off its text."""

import re
from pathlib import Path

import pytest

from reodsl.numbers.curves import Curve, Curves

TEXT = (Path(__file__).parents[2] / "stdlib" / "paper.reo").read_text(encoding="utf-8")
BLOCK = re.compile(r"^frontier (\w+) \{(.*?)^\}", re.M | re.S)
CURVE = re.compile(r'curve (\w+) \{\s+accuracy = shares\(\s*"([\d ]+)",\s*of: (\d+)', re.S)
BUDGETS = (*range(0, 1024, 64), *range(1024, 32 * 1024 + 1, 1024))
FOUND = {
    name: {
        benchmark: Curve(BUDGETS, tuple(int(right) / int(of) for right in counts.split()))
        for benchmark, counts, of in CURVE.findall(body)
    }
    for name, body in BLOCK.findall(TEXT)
}


@pytest.fixture
def all_published() -> dict[str, Curves]:
    """The published frontiers by name."""
    return dict(FOUND)


@pytest.fixture(params=["qwen3_4b", "qwen3_8b", "deepseek_1_5b", "deepseek_7b"])
def published(request: pytest.FixtureRequest) -> Curves:
    """Each of the four published frontiers in turn."""
    return FOUND[request.param]
