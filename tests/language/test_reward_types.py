"""Reward expressions: which are sound, and which code each unsound one gets."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from reodsl.language import CompileResult
from tests.lsp.advice import apply_edits

SOUND = [
    "correct(y)",
    "1 - correct(y)",
    "len(y) / 1K tokens",
    "correct(y) * (1 - 0.1 * sigmoid((len(y) - mean(len(z) for z in group)) / max(std(len(z) for z in group), 1 tokens)))",
    "mean(correct(z) for z in ref) - correct(y)",
    "count(z for z in group if correct(z)) / 8",
    "count(1 for z in group if not correct(z))",
    "count(2 tokens for t in y)",
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
    "correct(y) / len(y) * 1 tokens if mode(y) == 1 and correct(y) else 0",
    "1 / mode(y) if correct(y) and mode(y) > 0 else 0",
    "1 / mode(y) if mode(y) > 0 and correct(y) else 0",
    "0 if mode(y) == 0 or correct(y) else 1 / mode(y)",
    "1 / mode(y) if not (mode(y) == 0 or correct(y)) else 0",
    "0 if not (mode(y) != 0 and correct(y)) else 1 / mode(y)",
    "1 / x.score if x.score > 1 or x.score > 2 else correct(y)",
    "1 / (len(y) / 1 tokens - 5) if len(y) / 1 tokens > 5 and correct(y) else 0",
    "1 / correct(y) if correct(y) else 0",
    "log(x.score) if x.score > 0 and correct(y) else 0",
    "sqrt(x.score) + correct(y) if 0 <= x.score else 0",
    "correct(y) / std(len(z) for z in group) * 1 tokens if mode(y) == 1 and std(len(z) for z in group) > 0 tokens else 0",
    "correct(answer(y[:mean(len(z) for z in ref if correct(z), empty: 8 tokens)])) + answered(y)",
    "correct(answer(y[:min(len(z) for z in history(x) if correct(z), empty: 8 tokens)]))",
    "correct(y[:max(len(z) for z in group)])",
    "sqrt(1 - count(z for z in group if correct(z)) / count(z for z in group)) + correct(y)",
    "sqrt(1 - count(z for z in group if correct(z) and len(z) > len(y)) / max(count(z for z in group if correct(z)), 1))"
    " + correct(y)",
]
UNSOUND = [
    ("correct(answer(y[:len(y) * correct(y)]))", "E0312"),
    ("correct(y[:8 tokens if answered(y) else 4 tokens])", "E0312"),
    ("correct(y[:len(y) / 2 if correct(y[:4 tokens]) else 4 tokens])", "E0312"),
    ('correct(answer(y[:python("style.py:score", y) * 8 tokens]))', "E0312"),
    ("sum(prob(t) for t in y[:8 tokens * mean(prob(t) for t in y)]) + correct(y)", "E0312"),
    ("correct(answer(y[:mean(len(z) for z in group if correct(z), empty: 8 tokens)]))", "E0312"),
    ("correct(y[:max(len(z) * correct(y) for z in ref)])", "E0312"),
    ("correct(y[:max(mean(len(z) for z in group if correct(z), empty: 8 tokens) for z in ref)])", "E0312"),
    ("correct(y[:8 tokens * mean(correct(z) for z in batch)])", "E0312"),
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
    ("correct(y) + pi(2)", "E0201"),
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
    ("lenn(y)", "E0201"),
    ("x.mode * correct(y)", "E0301"),
    ("len(y, y)", "E0310"),
    ("clip(1, 2)", "E0310"),
    ("gamma * correct(y)", "E0201"),
    ('"text"', "E0301"),
    ("correct(y) == len(y)", "E0302"),
    ("1 in group", "E0301"),
    ("1 / mode(y) if mode(y) > 0 or correct(y) else 0", "E0307"),
    ("0 if mode(y) == 0 and correct(y) else 1 / mode(y)", "E0307"),
    ("1 / mode(y) if mode(y) >= 0 and correct(y) else 0", "E0307"),
    ("1 / x.score if x.score > 1 or x.score < 2 else correct(y)", "E0307"),
    (
        "sqrt(1 - count(z for z in group) / max(count(z for z in group if correct(z)), 1)) + correct(y)",
        "E0307",
    ),
    ("sqrt(1 - count(z for z in ref if correct(z)) / count(z for z in group)) + correct(y)", "E0307"),
]


@pytest.mark.parametrize("expression", SOUND)
def test_sound(codes: Callable[..., list[str]], expression: str) -> None:
    # A file with nothing to run is all that is wrong.
    assert codes(f"reward r {{\n  {expression}\n}}") == ["E0215"]


LETS = """reward r {
  let sd = std(len(z) for z in group)
  let ok = sd > 0 tokens
  let both = ok and correct(y)
  let none = not ok or len(y) < 2 tokens
  VALUE
}"""


@pytest.mark.parametrize(
    "value",
    [
        "correct(y) + (len(y) / sd if ok else 0)",
        "correct(y) + (0 if not ok else len(y) / sd)",
        "correct(y) + (len(y) / sd if mode(y) == 1 and both else 0)",
        "correct(y) + (0 if none else len(y) / sd + 1 / (len(y) / 1 tokens - 1))",
    ],
)
def test_a_condition_means_by_its_name_what_it_means_in_place(
    codes: Callable[..., list[str]], value: str
) -> None:
    assert "E0307" not in codes(LETS.replace("VALUE", value))


@pytest.mark.parametrize(
    "value",
    [
        "correct(y) + (0 if ok else len(y) / sd)",
        "correct(y) + (0 if both else len(y) / sd)",
        "correct(y) + (len(y) / sd if none else 0)",
        "correct(y) + (len(y) / sd if ok or correct(y) else 0)",
    ],
)
def test_a_named_condition_narrows_nothing_that_it_does_not_say(
    codes: Callable[..., list[str]], value: str
) -> None:
    assert "E0307" in codes(LETS.replace("VALUE", value))


@pytest.mark.parametrize(("expression", "code"), UNSOUND)
def test_unsound(codes: Callable[..., list[str]], expression: str, code: str) -> None:
    assert code in codes(f"reward r {{\n  {expression}\n}}")


@pytest.mark.parametrize(
    ("lets", "divided", "ways"),
    [
        ("f = mean(correct(z) for z in group)", "correct(y) / f", ["… if f != 0 else 0"]),
        ("s = std(len(z) for z in group)", "len(y) / s", ["… if s != 0 tokens else 0"]),
        ("s = std(correct(z) for z in group)", "len(y) / s / len(y)", ["… if s != 0 else 0 tokens"]),
        ("c = count(z for z in group if correct(z))", "1 / c", ["max(…, 1)", "… if c != 0 else 0"]),
        ("d = 0 - mean(correct(z) for z in group)", "correct(y) / d", ["… if d != 0 else 0"]),
        ("d = len(y) - 5 tokens", "len(y) / d", ["… if d != 0 tokens else 0"]),
        (
            "v = std(len(z) for z in group) * len(y)",
            "len(y) * len(y) / v",
            ["… if v != 0 tokens * 1 tokens else 0"],
        ),
        ("w = 1 + 1", "w / correct(y)", ["… if correct(y) else 0"]),
    ],
)
def test_what_keeps_a_divisor_from_0_leaves_it_its_values(
    compiled: Callable[..., CompileResult],
    codes: Callable[..., list[str]],
    lets: str,
    divided: str,
    ways: list[str],
) -> None:
    """Each way is taken to the file that it is about: nothing is wrong after it, and the divisor goes on to move."""
    text = f"reward r {{\n  let {lets}\n  correct(y) + {divided}\n}}"
    finding = next(each for each in compiled(text).diagnostics if each.code == "E0307")
    assert re.findall("`([^`]+)`", finding.help or "") == ways
    assert len(finding.edits) == len(ways)
    for edit in finding.edits:
        mended = apply_edits(text, (edit,))
        assert codes(mended) == ["E0215"], mended


@pytest.mark.parametrize(
    ("function", "inside", "kept"),
    [
        ("({})^(0 - 2)", "count(z for z in group if correct(z))", "max(…, 1)"),
        ("({})^0.5", "correct(y) - 1", "abs(…)"),
        ("sqrt({})", "correct(y) - 1", "abs(…)"),
        ("sqrt({})", "correct(y) - 0.5", "max(…, 0)"),
        ("log({})", "correct(y) - 1", "abs(…) + 1e-6"),
        ("log({})", "count(z for z in group if correct(z))", "max(…, 1)"),
    ],
)
def test_what_keeps_an_argument_where_it_has_a_value_leaves_it_its_values(
    compiled: Callable[..., CompileResult], function: str, inside: str, kept: str
) -> None:
    text = "reward r {{\n  correct(y) + {}\n}}".format
    finding = next(
        each for each in compiled(text(function.format(inside))).diagnostics if each.code == "E0307"
    )
    assert kept in re.findall("`([^`]+)`", finding.help or "")
    mended = compiled(text(function.format(kept.replace("…", inside))))
    assert [each.code for each in mended.diagnostics] == ["E0215"]


def test_parameters_and_lets(codes: Callable[..., list[str]]) -> None:
    assert codes("reward r(a: number in 1..2) {\n let b = a * 2\n correct(y) / b\n}") == ["E0215"]
    assert codes("reward r(a: number in 0..2) {\n let b = a * 2\n correct(y) / b\n}") == ["E0307"]
    assert codes("reward r(a: number) {\n correct(y) / a\n}") == ["E0307"]
    assert codes("reward r(a: tokens in 1 tokens..9 tokens) {\n len(y) / a\n}") == ["E0215"]
    assert codes("reward r {\n let b = lenn(y)\n correct(y) * b\n}") == ["E0201"]


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
    assert codes("reward r {\n let a = 1 + correct(y)\n let b = a * 2 tokens\n correct(y[:b])\n}") == [
        "E0312"
    ]
    assert codes("reward r {\n let far(z) = len(z) * correct(z)\n correct(y[:far(y)])\n}") == ["E0312"]
    steps = 'steps(separator: "\\n\\n", keywords: ["Wait"])'
    assert codes(f"reward r {{\n dense s in {steps}: correct(answer(y[:s])) + 0.2 * correct(y)\n}}") == [
        "E0215"
    ]
