"""Functions of a reward: they stand for what they would be written out as, and what is wrong in them is said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir.reward import Reward
from reodsl.language import check_file
from reodsl.language.chosen_reward import choose_reward

WRITTEN_OUT = """reward r(k: number = 0.1) {
  let mu = mean(len(z) for z in group)
  let all = mean((k * len(z) / max(mu, 1 tokens) if correct(z) else -1) for z in group)
  (k * len(y) / max(mu, 1 tokens) if correct(y) else -1) - all
}
"""
WITH_FUNCTION = """reward r(k: number = 0.1) {
  let mu = mean(len(z) for z in group)
  let own(a) = k * len(a) / max(mu, 1 tokens) if correct(a) else -1
  let all = mean(own(z) for z in group)
  own(y) - all
}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return tmp_path / "own.reo"


def meant(spec: Path, text: str) -> Reward:
    spec.write_text(text)
    chosen = choose_reward(str(spec), None)
    assert chosen.reward is not None, chosen.diagnostics
    return chosen.reward


def found(spec: Path, body: str) -> list[tuple[str, str, int]]:
    """Code, message and line of what is wrong with a reward."""
    spec.write_text(f"reward r {{\n{body}\n}}\n")
    return [
        (each.code, each.message, each.labels[0].span.line)
        for each in check_file(spec).diagnostics
        if each.severity == "error"
    ]


def test_a_function_is_what_it_stands_for(spec: Path) -> None:
    assert meant(spec, WITH_FUNCTION) == meant(spec, WRITTEN_OUT)


@pytest.mark.parametrize(
    ("functions", "plain"),
    [
        # A parameter may be called as the response, and hide it.
        ("let f(y) = len(y) / 1 tokens\nmean(f(z) for z in group)", "mean(len(z) / 1 tokens for z in group)"),
        # A statistic inside a function runs by a variable of its own, beside the caller's.
        (
            "let far(n) = mean(abs(n - len(z)) for z in group) / 1 tokens\nmean(far(len(z)) for z in group)",
            "mean(mean(abs(len(z) - len(w)) for w in group) / 1 tokens for z in group)",
        ),
        # Functions use those before them.
        ("let f(a) = 2 * a\nlet g(a) = f(a) + 1\ng(len(y) / 1 tokens)", "2 * (len(y) / 1 tokens) + 1"),
        (
            "let f(a, L) = before(L) / 1 tokens + correct(answer(a[:L]))\ndense L in [4 tokens, 8 tokens]: f(y, L)",
            "dense L in [4 tokens, 8 tokens]: before(L) / 1 tokens + correct(answer(y[:L]))",
        ),
    ],
)
def test_names_do_not_mix(functions: str, plain: str, spec: Path) -> None:
    one, two = (meant(spec, f"reward r {{\n{body}\n}}\n") for body in (functions, plain))
    assert one == two


@pytest.mark.parametrize(
    ("body", "code", "words", "line"),
    [
        ("let f(a) = f(a) + 1\nf(correct(y))", "E0313", "the function `f` calls itself", 2),
        ("let f(a) = len(a) + 1\nf(y) + f(y) / 1 tokens", "E0302", "equal units", 2),
        ("let f(a, b) = a + b\nf(correct(y))", "E0310", "`f` takes 2 arguments", 3),
        ("let f(a) = len(z)\nmean(f(z) for z in group) / 1 tokens", "E0301", "not a response", 2),
        ("let f(a, a) = a\nf(1, correct(y))", "E0208", "a", 2),
        ("let max(a) = a\nmax(correct(y))", "E0208", "max", 2),
        ("let f(a) = trapezoid(a)\nf(correct(y))", "E0301", "takes a split, and", 2),
    ],
)
def test_what_is_wrong_is_said_once_and_in_its_place(
    body: str, code: str, words: str, line: int, spec: Path
) -> None:
    (one,) = found(spec, body)
    assert (one[0], one[2]) == (code, line)
    assert words in one[1]


def test_a_fraction_beside_a_length_is_no_number_of_tokens(spec: Path) -> None:
    spec.write_text("reward r { correct(y) - (len(y) - 0.5) / 1 tokens }\n")
    (one,) = [each for each in check_file(spec).diagnostics if each.code == "E0302"]
    assert "`… / 1 token`" in (one.help or "")
