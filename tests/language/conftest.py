"""A spec's text to what the language makes of it, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.ir.study import Spec
from reodsl.language import CompileResult, compile_file

HEAD = """
from std.models import qwen3_4b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.rewards import outcome, reo
from std.suites import math_reg
"""
MINE = """
experiment mine = ppo {
  base = qwen3_4b
  data = areal_boba_7b
  reward = outcome
  steps = 400 steps
  eval = math_reg
}
"""


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompileResult]:
    """`compiled(text, sets=…, amends=…, target=…)`."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, **options: object) -> CompileResult:
        Path("spec.reo").write_text(text, encoding="utf-8")
        return compile_file("spec.reo", **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def spec(compiled: Callable[..., CompileResult]) -> Callable[..., Spec]:
    """As `compiled`, for a text that is right."""

    def run(text: str, **options: object) -> Spec:
        result = compiled(text, **options)
        assert result.spec is not None, result.diagnostics
        return result.spec

    return run


@pytest.fixture
def codes(compiled: Callable[..., CompileResult]) -> Callable[..., list[str]]:
    """The codes of the errors in a text, in order."""

    def run(text: str, **options: object) -> list[str]:
        found = compiled(text, **options).diagnostics
        return [each.code for each in found if each.severity == "error"]

    return run
