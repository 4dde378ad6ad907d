"""Thinking that is ended by force is read again before its solution, and priced so."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.price import Price, price
from reodsl.price.rollout import LengthDistribution

FLAGSHIP = Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo"


def stage(**changes: str) -> Price:
    amends = {f"qwen3_4b_reo_exp.{name}": value for name, value in changes.items()}
    spec = compile_file(FLAGSHIP, amends={"qwen3_4b_reo_exp.reward": "std.rewards.outcome", **amends}).spec
    assert spec is not None
    return price(lower(spec), spec).tasks["qwen3_4b_reo_exp.train.s1"]


def test_ended_thinking_is_read_again() -> None:
    plain, ended = stage(), stage(**{"rollout.solution": "8K tokens"})
    assert plain.read_again == 0
    responses = plain.verified
    lengths = LengthDistribution.of(plain.generated / responses, 32 * 1024)
    # Prompts are at most 1K tokens, and thinking 24K.
    least = responses * lengths.beyond(24 * 1024) * 24 * 1024
    assert least < ended.read_again < least * (1 + 1 / 24)
    assert ended.generated == plain.generated
    more = ended.seconds["generation"] / plain.seconds["generation"]
    assert more == pytest.approx(1.0, abs=0.1)
    assert more > 1
