"""Rewards that teach nothing, and the conditions that never or always hold behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file
from reodsl.language.reward import operators
from reodsl.language.reward.names import ValueRange, compare_ranges

INF = float("inf")


@pytest.mark.parametrize(
    ("body", "constant"),
    [
        ("1", True),
        ("0 * correct(y)", True),
        ("x.level / 2", True),
        ("1 if len(y) >= 1 tokens else 0", True),
        ("1 if len(y) >= 2 tokens else 0", False),
        ("correct(y) - correct(y)", True),
        ("let n = len(y)\n  n / n", True),
        ("len(y) / max(len(z) for z in group)", False),
        ("1 if correct(y) or not correct(y) else 0", True),
        ("1 if len(y) > 8 tokens and 4 tokens >= len(y) else 0", True),
        ("1 if len(y) > 8 tokens and len(y) <= 9 tokens else 0", False),
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


USED = """
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing, chain_think, chain_no_think
from std.recipes import ppo, sft
from std.rewards import outcome

selection best { trace = argmin(len(z) for z in group if WHERE) }

reward mine { REWARD }

experiment asked = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  reward = mine
  forcing = chain_forcing
  batch { prompts = 8, rollouts = 4 }
  rollout { max_tokens = 128 tokens, wordings = WORDINGS }
  max_prompt = 32 tokens
  minibatches = 2
  steps = 2 steps
  eval = chain_suite
}

experiment told = sft {
  base = checkpoint(overthinker)
  data = best(pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 128 tokens, wordings: WORDINGS))
  max_tokens = 192 tokens
  batch { prompts = 8 }
  steps = 2 steps
  eval = chain_suite
}
"""


@pytest.mark.parametrize(
    ("reward", "where", "wordings", "codes"),
    [
        ("correct(y)", "correct(z)", "[chain_no_think]", []),
        ("correct(y) if len(y) > 128 tokens else 0", "correct(z)", "[plain]", ["W0301"]),
        ("correct(y) if len(y) > 127 tokens else 0", "len(z) > 127 tokens", "[plain]", []),
        # What a response was made to begin with comes on top of the longest.
        ("correct(y) if len(y) > 128 tokens else 0", "correct(z)", "[chain_no_think]", []),
        ("correct(y) * (count(z for z in group if correct(z)) > 4)", "correct(z)", "[plain]", ["W0301"]),
        ("correct(y) - (len(y) / 1 tokens) ^ 200", "correct(z)", "[plain]", ["E0307"]),
        ("correct(y) - (len(y) / 1 tokens) ^ 146", "correct(z)", "[plain]", []),
        ("correct(y) - 300 ^ (len(y) / 1 tokens)", "correct(z)", "[plain]", ["E0307"]),
        ("correct(y) - 200 ^ (len(y) / 1 tokens)", "correct(z)", "[plain]", []),
        (
            "correct(y) - (1e-5 + len(y) / 1M tokens) ^ (0 - len(y) / 1 tokens)",
            "correct(z)",
            "[plain]",
            ["E0307"],
        ),
        ("correct(y) - (len(y) / 1 tokens) ^ 200", "correct(z)", "[chain_no_think]", []),
        ("correct(y)", "len(z) > 128 tokens", "[plain]", ["E0316"]),
        ("correct(y)", "mode(z) == 1", "[plain]", ["E0316"]),
        ("correct(y)", "mode(z) == 1", "[chain_think, chain_no_think]", []),
        ("correct(y)", "count(w for w in group if correct(w)) > 4 and correct(z)", "[plain]", ["E0316"]),
    ],
)
def test_what_is_the_same_for_the_responses_that_there_can_be(
    reward: str, where: str, wordings: str, codes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.reo"
    text = USED.replace("REWARD", reward).replace("WHERE", where).replace("WORDINGS", wordings)
    path.write_text(text + '\nwording plain { question = "{question}" }\n')
    found = [each for each in check_file(path).diagnostics if each.code in ("W0301", "E0307", "E0316")]
    assert [each.code for each in found] == codes
    assert all("at most 128 tokens" in each.notes[0] for each in found)


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
    assert compare_ranges(op, left, right) == expected


@pytest.mark.parametrize(
    "choice",
    [
        "argmin(len(z) for z in group if len(z) < 1 tokens)",
        "argmin(len(z) for z in group if correct(z) and correct(z) > 1)",
        "argmin(len(z) for z in group if not (len(z) > 0 tokens or correct(z)))",
        "argmin(len(z) for z in group if correct(z) and len(z) > 8 tokens and not correct(z))",
        "argmin(len(z) for z in group if len(z) == 8 tokens and len(z) < 8 tokens)",
    ],
)
def test_a_condition_that_never_holds(choice: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(f"selection mine {{ trace = {choice} }}\n")
    assert [each.code for each in check_file(path).diagnostics] == ["E0316"]


def test_a_condition_of_many_parts_is_read_in_their_number_and_not_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [f"len(y) > {number} tokens" for number in range(1, 129)]
    while len(parts) > 1:
        parts = [f"({one} and {two})" for one, two in zip(parts[::2], parts[1::2], strict=True)]
    asked: list[float] = []
    fact = operators._make_range

    def counted(op: str, limit: float) -> ValueRange:
        asked.append(limit)
        return fact(op, limit)

    monkeypatch.setattr(operators, "_make_range", counted)
    path = tmp_path / "spec.reo"
    path.write_text(f"reward mine {{ 1 if {parts[0]} else 0 }}\n")
    assert [each.code for each in check_file(path).diagnostics] == ["W0302"]
    # Three facts of each of 128 parts, on each of the 7 levels that they are in, and for each branch.
    assert 128 < len(asked) <= 128 * 3 * 9
