"""Rewards as text: what is printed, read by the language, is the same reward again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.base import canonical
from reodsl.ir.expression import Constant, Correct, If, Infix, Negation, Variable
from reodsl.ir.reward import Reward
from reodsl.ir.reward_text import number_text, reward_lines
from reodsl.ir.training import FromTraining, Ppo
from reodsl.language import compile_file

ROOT = Path(__file__).resolve().parents[2]
HEAD = (ROOT / "specs" / "quickstart.reo").read_text().partition("experiment vanilla")[0]


ASKED = "rollout { wordings = [think, brief] }"
HEAD += """
wording think { prefix = "hmm" }
wording brief { prefix = "</think>" }
"""


def compiled(body: str, tmp: Path) -> Reward:
    """The reward that a body in braces means, in the quickstart's frame."""
    # Few of the bodies read responses of the reference model: these are drawn by an experiment that others are made from.
    frame = f"recipe frame = small {{ reference_samples = 2, {ASKED} }}"
    text = f"{HEAD}\nreward mine {{\n{body}\n}}\n{frame}\nexperiment it = frame {{ reward = mine }}\n"
    path = tmp / "spec.reo"
    path.write_text(text)
    found = compile_file(path, target="it")
    assert found.spec is not None, [each.message for each in found.diagnostics] + [body]
    start = found.spec.study.arms[-1].checkpoint
    assert isinstance(start, FromTraining)
    method = start.experiment.stages[-1].method
    assert isinstance(method, Ppo)
    return method.reward


def body_of(reward: Reward) -> str:
    lines = reward_lines(reward)
    if reward.dense is not None:
        lines[-1] = f"dense L in five: {lines[-1]}"
    return "\n".join(lines)


BODIES = [
    "z(correct(y)) + 0.5 * z(mode(y) == 0, on: prefix)",
    "let m = mean(len(z) for z in group if mode(z) == 1, empty: 1 tokens)\nz(len(y) / m) + -2 * z(correct(y))",
    "z(correct(y)) + mean(correct(z) for z in group) * z(len(y) / 64 tokens) + -std(correct(z) for z in group) * z(mode(y))",
    "z(correct(y)) + (2 if mean(len(z) for z in group) < 64 tokens else 1) * z(len(y) / 64 tokens)",
    "dense L in five: correct(answer(y[:L])) - correct(answer(y[:before(L)]))",
    "correct(y)",
    'correct(y) + python("style.py:score", y, batch: 8, seconds: 2.5 seconds, memory: 0.5 GiB)',
    'python("style.py:score", y) - mean(python("style.py:score", z, batch: 64) for z in group)',
    "correct(y) - 0.5 * len(y) / 128 tokens",
    "correct(y) * (1 - len(y) / (64 tokens + len(y)))",
    "correct(y) - (1 - (2 - correct(y)))",
    "-correct(y) ^ 2",
    "(2 - correct(y)) ^ -1",
    "1 if correct(y) and len(y) < 64 tokens else 0 if len(y) < 96 tokens or not correct(y) else -1",
    "(1 if len(y) < 64 tokens else 2) * correct(y)",
    "mean(len(z) for z in group) / len(y)",
    "mean(len(z) for z in group if correct(z), empty: 1 tokens) / len(y) - 1",
    "count(z for z in group if correct(z)) / 8",
    "std(correct(z) for z in group)",
    "sigmoid((len(y) - mean(len(z) for z in group)) / max(std(len(z) for z in group), 1 tokens))",
    "clip(len(y) / 128 tokens, 0, 1) + min(correct(y), 0.5) + abs(correct(y) - 1)",
    "exp(-len(y) / 128 tokens) + log(1 + correct(y)) + sqrt(correct(y))",
    "e^(-correct(y))",
    "let a = 64 tokens\nlet b = max(len(y), a)\nb / (b + 1 tokens)",
    "let q = mean(len(z) * len(z) for z in group)\ncorrect(y) - q / (q + 4 tokens * 1 tokens)",
    "correct(answer(y[:64 tokens])) + correct(y[:32 tokens])",
    "correct(answer(y[:max(len(y) / 2, 1 tokens)]))",
    "dense L in five: trapezoid(L) * correct(answer(y[:L]))",
    "dense L in five: correct(y[:L]) * 0.5 ^ sum(correct(answer(y[:M])) for M in splits if M < L)",
    "dense L in five: correct(y) * L / max(min(M for M in splits if M > L, empty: L), 1 tokens)",
    "dense L in five: correct(y) + L / (1 tokens + max(N * count(M for M in splits if M < N) for N in splits))",
    "dense L in five: uniform(L) * correct(y[:L]) * (L / 128 tokens)",
    "let s = mean(len(z) for z in ref)\ndense L in five: correct(answer(y[:L])) * L / max(s, 1 tokens)",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_reward_reads_back_as_it_was(body: str, tmp_path: Path) -> None:
    reward = compiled(body, tmp_path)
    again = compiled(body_of(reward), tmp_path)
    assert canonical(again) == canonical(reward)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("correct( y )", "correct(y)"),
        ("correct(y) - (0.5 * (len(y) / 1K tokens))", "correct(y) - 0.5 * (len(y) / 1K tokens)"),
        ("(correct(y) - 1) - 1", "correct(y) - 1 - 1"),
        ("correct(y) - (1 - correct(y))", "correct(y) - (1 - correct(y))"),
        ("let m = mean(len(w) for w in group if correct(w), empty: 1)\nlen(y) / max(m, 1 tokens)", ""),
    ],
)
def test_the_text_is_plain(body: str, text: str, tmp_path: Path) -> None:
    if not text:
        body = body.replace("empty: 1)", "empty: 1 tokens)")
        text = "let let1 = mean(len(z) for z in group if correct(z), empty: 1 tokens)\nlen(y) / max(let1, 1 tokens)"
    assert "\n".join(reward_lines(compiled(body, tmp_path))) == text


def test_the_papers_reward_reads_as_in_the_paper() -> None:
    found = compile_file(ROOT / "specs" / "qwen3_4b_reo_exp.reo").spec
    assert found is not None
    method = found.study.arm("qwen3_4b_reo_exp").checkpoint.experiment.stages[0].method  # type: ignore[union-attr]
    assert reward_lines(method.reward) == ["trapezoid(L) * correct(answer(y[:L]))"]


LEAVES = st.sampled_from(
    ["correct(y)", "len(y) / 128 tokens", "0.25", "-2", "mean(correct(z) for z in group)"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger bodies, fully parenthesised, all plain numbers and free of divisions by what may be 0."""
    return st.one_of(
        st.builds(lambda a, op, b: f"({a}) {op} ({b})", inner, st.sampled_from("+-*"), inner),
        st.builds(lambda a, b, c: f"({a}) if ({b}) < ({c}) else ({a})", inner, inner, inner),
        st.builds(
            lambda a, b, c: f"({a}) if (({b}) >= 0 and not ({c}) == 1 or ({a}) != ({b})) else ({c})",
            inner,
            inner,
            inner,
        ),
        st.builds(lambda a: f"-({a})", inner),
        st.builds(lambda a, b: f"max(({a}), ({b}), 1)", inner, inner),
        st.builds(lambda a: f"sigmoid({a})", inner),
        st.builds(lambda a: f"(2 + sigmoid({a})) ^ 2", inner),
        st.builds(lambda a, b: f"({a}) / ((1 + sigmoid({b})) / 2)", inner, inner),
    )


@settings(max_examples=30)
@given(body=st.recursive(LEAVES, grown, max_leaves=6))
def test_any_body_reads_back_as_it_was(body: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    reward = compiled(body, folder)
    assert compiled(body_of(reward), folder) == reward


@pytest.mark.parametrize(
    ("value", "tokens", "text"),
    [
        (1.0, False, "1"),
        (0.2, False, "0.2"),
        (1e-6, False, "1e-6"),
        (1024.0, True, "1K tokens"),
        (1.5, True, "1.5 tokens"),
    ],
)
def test_numbers(value: float, tokens: bool, text: str) -> None:
    assert number_text(value, tokens) == text


def test_parentheses_stand_where_they_are_needed_alone() -> None:
    one, name = Constant(value=1.0), Variable(name="a")
    inner = Infix(fn="-", left=one, right=name)
    for value, text in (
        (Infix(fn="-", left=inner, right=inner), "1 - a - (1 - a)"),
        (Infix(fn="*", left=inner, right=inner), "(1 - a) * (1 - a)"),
        (Negation(fn="neg", value=inner), "-(1 - a)"),
        (Infix(fn="^", left=Constant(value=-1.0), right=Constant(value=-1.0)), "(-1) ^ -1"),
        (If(test=Correct(of="y"), then=one, other=one), "1 if correct(y) else 1"),
    ):
        assert reward_lines(Reward(name="", outcome=value)) == [text]
