"""Questions that are trained on and evaluated on are refused where they are of one source."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file

SPEC = """
from std.miniature import chain, chain_easy, chain_hard, chain_low, chain_model_asked, chain_forcing, chain_traces
from std.recipes import ppo
from std.rewards import outcome

task other = chain { modulus = 3, values = words("0 1 2"), length = 2..3 }

data asked { source = TRAINED, verifier = exact }
data held  { source = JUDGED, verifier = exact }
benchmark bench { data = held }

suite mine {
  benchmarks = [bench]
  max_tokens = 128 tokens
  samples    = 2
  grid       = every(16 tokens, to: 128 tokens)
  reg_to     = 128 tokens
  forcing    = chain_forcing
}

experiment tried = ppo {
  base    = chain_model_asked
  data    = asked
  reward  = outcome
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps   = 4 steps
  eval    = mine
}
"""


def codes(folder: Path, trained: str, judged: str) -> set[str]:
    path = folder / "spec.reo"
    path.write_text(SPEC.replace("TRAINED", trained).replace("JUDGED", judged))
    found = check_file(path).diagnostics
    assert not [each.message for each in found if each.severity == "error" and each.code != "E0603"]
    return {each.code for each in found} & {"E0603"}


def drawn(task: str, seed: int, split: str = "train", more: str = "") -> str:
    return f"generated({task}, count: 8, seed: {seed}, split: {split}{more})"


def packaged(task: str, split: str) -> str:
    return f'package("reasoning-gym", task: "{task}", count: 8, seed: 1, split: {split})'


@pytest.mark.parametrize(
    ("trained", "judged", "found"),
    [
        (drawn("chain", 1), drawn("chain", 2), {"E0603"}),
        (drawn("chain_low", 1), drawn("chain_easy", 1, "held_out"), set()),
        (drawn("chain_easy", 1), drawn("chain_hard", 2), set()),
        (drawn("other", 1), drawn("chain_easy", 2), set()),
        (packaged("chain_sum", "train"), packaged("chain_sum", "held_out"), set()),
        (packaged("products", "all"), packaged("chain_sum", "all"), set()),
        (drawn("chain", 1), 'file("test.jsonl")', set()),
    ],
)
def test_sources_that_may_share_questions(tmp_path: Path, trained: str, judged: str, found: set[str]) -> None:
    assert codes(tmp_path, trained, judged) == found
