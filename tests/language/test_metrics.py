"""Metrics of a reward: what they are lowered to and written as, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir import canonical
from reodsl.ir.reward import RewardCuts
from reodsl.ir.reward_text import as_written, let_names, reward_lines
from reodsl.language.chosen_reward import choose_reward
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

TEXT = """reward own(usual: tokens = 16 tokens) {
  let share = len(y) / max(len(z) for z in group)
  metric share  = share
  metric spread = std(len(z) for z in group)
  metric early  = correct(answer(y[:usual]))
  z(correct(y)) - 0.5 * z(share)
}
"""


def test_metrics_are_any_expressions(tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(TEXT)
    chosen = choose_reward(str(path), None)
    assert chosen.reward is not None
    assert chosen.diagnostics == ()
    names = let_names(chosen.reward.lets)
    assert [as_written(line, names) for line in reward_lines(chosen.reward)] == [
        "let share = len(y) / max(len(z) for z in group)",
        "metric share = share",
        "metric spread = std(len(z) for z in group)",
        "metric early = correct(answer(y[:16 tokens]))",
        "z(correct(y)) + -0.5 * z(share)",
    ]
    # An answer that is only logged is forced too, and priced.
    assert chosen.reward.forced == RewardCuts(frozenset({16}))
    bare = chosen.reward.model_copy(update={"metrics": ()})
    assert "metrics" not in canonical(bare)
    assert format_source(Source("own.reo", TEXT.replace("metric early  =", "metric early="))).text == TEXT


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("metric share { }", "E0313"),
        ("metric spread = len(z)", "E0301"),
        ("metric spread = 1\n  metric spread = 2", "E0208"),
        ("metric spread = len(y) + 1", "E0302"),
    ],
)
def test_what_is_not_a_number_is_refused(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "own.reo"
    path.write_text(TEXT.replace("metric spread = std(len(z) for z in group)", line))
    found = [each.code for each in choose_reward(str(path), None).diagnostics if each.severity == "error"]
    assert len(found) == 1, found
    assert found == [code]
