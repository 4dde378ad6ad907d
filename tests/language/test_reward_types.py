"""Reward expressions: which are sound, and which code each unsound one gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SOUND = [
    "correct(y)",
    "1 - correct(y)",
    "len(y) / 1K tokens",
    "correct(y) * (1 - 0.1 * sigmoid((len(y) - mean(len(z) for z in group)) / max(std(len(z) for z in group), 1 tokens)))",
    "mean(correct(z) for z in ref) - correct(y)",
    "count(z for z in group if correct(z)) / 8",
    "count(1 for z in group if not correct(z))",
    "sum(len(z) for z in group if correct(z)) / 1K tokens",
    "median(len(z) for z in group) / len(y)",
    "log(len(y) / 1 tokens)",
    "sqrt(abs(correct(y) - 1))",
    "correct(y) - floor(len(y) / 128 tokens) / 8",
    "floor(len(y) / 3) / 1 token",
    "clip(len(y) / 1K tokens, 0, 1)",
    "e ^ (-len(y) / 1K tokens)",
    "2 ^ (0 - correct(y))",
    "1 if correct(y) and len(y) < 1K tokens else 0",
    "min(0, 1 - len(y) / 4K tokens) if correct(y) else 0",
    "(len(y) - min(len(z) for z in group)) / (max(len(z) for z in group) - min(len(z) for z in group))"
    " if max(len(z) for z in group) != min(len(z) for z in group) else 0",
    "correct(answer(y[:1K tokens])) + correct(y[:1K tokens])",
    "mean(correct(answer(z[:64 tokens])) for z in group)",
    "x.difficulty * correct(y)",
    "max(correct(y), 0, 0.5)",
    "1 / (2 + cos(pi * len(y) / 1K tokens)) - correct(y)",
    "log(cos(correct(y)) + 0.1)",
    'correct(y) + 0.1 * python("style.py:score", y)',
    'python("my_package.checks:score", y) - mean(python("style.py:score", z) for z in group if correct(z), empty: 0)',
    "correct(y) - mean(mean(correct(w[:8 tokens]) for w in group) for z in ref)",
]
UNSOUND = [
    ("sum(correct(y[:M]) for M in splits)", "E0301"),
    ("correct(y) * 9^9^9^9", "E0307"),
    ("correct(answer(y[:64]))", "E0302"),
    ("len(y)", "E0302"),
    ("len(y) + 1", "E0302"),
    ("len(y) < 5", "E0302"),
    ("1 if len(y) < 5 else 0", "E0302"),
    ("1 if correct(y) else 1 tokens", "E0302"),
    ("1 if len(y) else 0", "E0301"),
    ("sigmoid(len(y))", "E0302"),
    ("cos(len(y))", "E0302"),
    ("clip(correct(y), 1, 0)", "E0310"),
    ("correct(y) - mean(correct(answer(z[:8 tokens])) for z in ref)", "E0301"),
    ("correct(y) - mean(mean(correct(w[:8 tokens]) for w in ref) for z in group)", "E0301"),
    ("1 / cos(correct(y) * 2)", "E0307"),
    ("correct(y) + pi(2)", "E0213"),
    ("log(len(y))", "E0302"),
    ("e ^ len(y)", "E0302"),
    ("max(len(y), 1)", "E0302"),
    ("correct(y) / correct(y)", "E0307"),
    ("1 / std(correct(z) for z in group)", "E0307"),
    ("1 / 0", "E0307"),
    ('correct(y) / python("style.py:score", y)', "E0307"),
    ('len(y) + python("style.py:score", y)', "E0302"),
    ('python("style.py:score")', "E0310"),
    ('correct(y) + python("style.py:score", y, seconds: 0 seconds)', "E0303"),
    ('correct(y) + python("style.py:score", y, seconds: 3 tokens)', "E0302"),
    ('correct(y) + python("style.py:score", y, second: 3 seconds)', "E0310"),
    ('correct(y) + python("style.py:score", y, 3)', "E0310"),
    ('correct(y) + python("s.py:f", y, batch: 8) - mean(python("s.py:f", z) for z in group)', "E0310"),
    ("correct(y) + python(score, y)", "E0310"),
    ('correct(y) + python("../style.py:score", y)', "E0317"),
    ('correct(y) + python("style.py:score", 3)', "E0301"),
    ('correct(y) - mean(python("style.py:score", z) for z in ref)', "E0301"),
    ("log(correct(y))", "E0307"),
    ("sqrt(correct(y) - 1)", "E0307"),
    ("e ^ (len(y) / 1 tokens)", "E0307"),
    ("mean(len(z) for z in group if correct(z)) / len(y)", "E0306"),
    ("mean(len(z) for z in group if correct(z), empty: 1) / len(y)", "E0302"),
    ("mean(len(z) for z in everyone)", "E0301"),
    ("mean(len(y))", "E0310"),
    ("y", "E0301"),
    ("group", "E0301"),
    ("answer(y)", "E0301"),
    ("y[:5]", "E0301"),
    ("correct(y[5:])", "E0301"),
    ("correct(answer(y[:5]))", "E0302"),
    ("trapezoid(y)", "E0301"),
    ("lenn(y)", "E0213"),
    ("len(y, y)", "E0310"),
    ("clip(1, 2)", "E0310"),
    ("gamma * correct(y)", "E0201"),
    ('"text"', "E0301"),
    ("correct(y) == len(y)", "E0302"),
    ("1 in group", "E0301"),
]


@pytest.mark.parametrize("expression", SOUND)
def test_sound(codes: Callable[..., list[str]], expression: str) -> None:
    # A file with nothing to run is all that is wrong.
    assert codes(f"reward r {{\n  {expression}\n}}") == ["E0215"]


@pytest.mark.parametrize(("expression", "code"), UNSOUND)
def test_unsound(codes: Callable[..., list[str]], expression: str, code: str) -> None:
    assert code in codes(f"reward r {{\n  {expression}\n}}")


def test_parameters_and_lets(codes: Callable[..., list[str]]) -> None:
    assert codes("reward r(a: number in 1..2) {\n let b = a * 2\n correct(y) / b\n}") == ["E0215"]
    assert codes("reward r(a: number in 0..2) {\n let b = a * 2\n correct(y) / b\n}") == ["E0307"]
    assert codes("reward r(a: number) {\n correct(y) / a\n}") == ["E0307"]
    assert codes("reward r(a: tokens in 1 tokens..9 tokens) {\n len(y) / a\n}") == ["E0215"]
    assert codes("reward r {\n let b = lenn(y)\n correct(y) * b\n}") == ["E0213"]


def test_names_that_mean_something_in_every_reward_are_not_given_away(
    codes: Callable[..., list[str]],
) -> None:
    for name in ("y", "group", "ref", "x"):
        assert codes(f"reward r {{\n let {name} = 3\n correct(y)\n}}")[0] == "E0208"
        assert "E0208" in codes(f"reward r({name}: number) {{\n correct(y)\n}}")


def test_dense(codes: Callable[..., list[str]]) -> None:
    assert codes("reward r(at: budgets) {\n dense L in at: uniform(L) * correct(answer(y[:L]))\n}") == [
        "E0215"
    ]
    assert codes("reward r(at: budgets) {\n dense L in at: L\n}") == ["E0302"]
    assert codes("reward r(at: budgets) {\n dense L in at: sum(correct(y[:L]) for L in splits)\n}") == [
        "E0208"
    ]
    assert codes("reward r(at: budgets) {\n dense L in at: correct(y) * sum(M for M in splits)\n}") == [
        "E0302"
    ]
    assert codes("reward r(at: budgets) {\n dense L in at: correct(y[:L]) * mean(L / M for M in at)\n}") == [
        "E0215"
    ]
    assert codes(
        "reward r(at: budgets) {\n dense L in at: correct(y) / sum(1 for M in splits if M < L)\n}"
    ) == ["E0307"]
    assert codes("reward r(at: budgets) {\n dense L in at: L / len(y)\n}") == ["E0215"]
    assert codes("reward r(at: budgets) {\n trapezoid(L)\n}") == ["E0301"]
    assert codes("reward r(at: number) {\n dense L in at: 1\n}") == ["E0301"]
    steps = 'steps(separator: "\\n\\n", keywords: ["Wait"])'
    assert codes(f"reward r {{\n dense s in {steps}: correct(answer(y[:s])) + 0.2 * correct(y)\n}}") == [
        "E0215"
    ]
