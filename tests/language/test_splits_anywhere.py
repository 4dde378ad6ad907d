"""Splits in every place of a reward: which statistics over them are sound, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.ir.reward import Budgets, Exits, OracleBudgets, Reward, Steps
from reodsl.ir.study import Spec
from reodsl.ir.training import Experiment, Ppo
from reodsl.language import CompileResult, check_file
from reodsl.language.chosen_reward import choose_reward
from tests.language.conftest import HEAD, MINE

AT = "[4 tokens, 8 tokens]"
SOUND = [
    f"mean(correct(answer(y[:M])) for M in {AT})",
    f"1 - max(correct(y[:M]) for M in {AT}) if correct(y) else 0",
    "let f(a, n) = correct(answer(a[:n]))\n"
    f"mean(f(y, M) / 2 for M in {AT}) if correct(y) else mean(f(z, 4 tokens) for z in group)",
    f"metric kept = count(M for M in splits if M < len(y))\ndense L in {AT}: correct(answer(y[:L]))",
    f"let n = count(M for M in splits)\ndense L in {AT}: correct(y[:L]) / n",
    f"dense L in {AT}: correct(y[:L]) * sum(uniform(M) for M in splits if M <= L)",
    f"dense L in {AT}: sum(correct(y[:M]) for M in {AT})",
    f"z(sum(trapezoid(M) * correct(answer(y[:M])) for M in {AT})) + z(mode(y) == 0, on: prefix)",
    f"let last = before(len(y))\ncorrect(answer(y[:last])) / count(M for M in {AT})",
    f"let right = max(M for M in {AT} if correct(answer(y[:M])), empty: 4 tokens)\nbefore(right) / len(y) + correct(y)",
    "correct(y) - mean(correct(y[:M]) for M in linear(to: 64 tokens, n: 3))",
    'correct(y) / count(M for M in steps(separator: "\\n", keywords: ["Wait"]))',
    "correct(y) + mean(correct(answer(y[:M])) for M in random_exits(n: 3, to: 64 tokens))",
    f"dense L in reached({AT}): trapezoid(L) * correct(answer(y[:L]))",
    f"mean(correct(answer(y[:M])) for M in reached({AT}))",
]
UNSOUND = [
    ("correct(y) + count(M for M in splits)", "E0301", "this reward has no splits"),
    ("correct(y) + before(len(y)) / 1 token", "E0301", "takes a split, and this reward has no splits"),
    ("correct(y) * trapezoid(4 tokens)", "E0301", "takes a split, and"),
    (f"correct(y) * sum(M for M in {AT})", "E0302", "a plain number"),
    (f"correct(y) + sum(before(3) / M for M in {AT})", "E0302", "`before` is of a number of tokens"),
    (f"correct(y) * sum(trapezoid(M / 2) for M in {AT})", "E0301", "takes a split of the reward"),
    (f"dense L in {AT}: correct(y[:L]) * trapezoid(before(L))", "E0301", "takes a split of the reward"),
    (f"mean(M for M in {AT} if correct(answer(y[:M]))) / len(y)", "E0306", "may have nothing to run over"),
    (
        f"dense L in {AT}: correct(y[:L]) + mean(correct(y[:M]) for M in [2 tokens, 8 tokens])",
        "E0301",
        "one set of splits",
    ),
    (
        f"mean(correct(y[:M]) for M in {AT}) - mean(correct(y[:M]) for M in [2 tokens, 8 tokens])",
        "E0301",
        "one set of splits",
    ),
    ("mean(correct(y[:M]) for M in [8 tokens, 4 tokens])", "E0410", "the budget 8 tokens is not between"),
    (f"let first = correct(y[:L])\ndense L in {AT}: first", "E0201", "is known only in the `dense` line"),
    (f"track t = mean(len(z) for z in {AT}, empty: 1 token)\ncorrect(y) * t / 1 token", "E0301", ""),
    (
        "track t = mean(before(len(z)) for z in steps(2 steps), empty: 1 token)\n"
        f"dense L in {AT}: correct(y[:L]) * t / 1 token",
        "E0301",
        "a track has no splits",
    ),
    (
        "dense L in reached(random_exits(n: 3)): correct(answer(y[:L]))",
        "E0301",
        "splits responses at their end already",
    ),
    ("dense L in reached(64 tokens): correct(answer(y[:L]))", "E0301", ""),
    (f"mean(correct(z) for z in {AT})", "E0301", "not a response"),
]


@pytest.mark.parametrize("body", SOUND)
def test_sound(codes: Callable[..., list[str]], body: str) -> None:
    # A file with nothing to run is all that is wrong.
    assert codes(f"reward r {{\n{body}\n}}") == ["E0215"]


@pytest.mark.parametrize(("body", "code", "words"), UNSOUND)
def test_what_is_wrong_is_said_once(body: str, code: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(f"reward r {{\n{body}\n}}")
    wrong = [
        each for each in check_file(path).diagnostics if each.severity == "error" and each.code != "E0215"
    ]
    assert [each.code for each in wrong] == [code], wrong
    assert words in wrong[0].message, wrong[0].message
    assert wrong[0].help


def test_a_parameter_is_the_splits(codes: Callable[..., list[str]]) -> None:
    head = "reward r(at: budgets) {\n"
    assert codes(head + "mean(correct(answer(y[:M])) for M in at)\n}") == ["E0215"]
    assert codes(head + "let n = count(M for M in at)\ndense L in at: correct(y[:L]) / n\n}") == ["E0215"]
    assert codes(head + "dense L in reached(at): correct(y[:L])\n}") == ["E0215"]
    assert codes(f"{head}dense L in at: correct(y[:L]) + count(M for M in {AT})\n}}") == ["E0301"]
    assert codes("reward r(at: number) {\ncorrect(y) + count(M for M in at)\n}") == ["E0301"]


def method(spec: Spec) -> Ppo:
    arm = spec.study.arm("mine").checkpoint
    experiment = getattr(arm, "experiment", None)
    assert isinstance(experiment, Experiment)
    found = experiment.stages[0].method
    assert isinstance(found, Ppo)
    return found


@pytest.mark.parametrize(
    ("at", "split"),
    [
        ("[1K tokens, 32K tokens]", Budgets(budgets=(1024,), l_max=32768)),
        ("reached([1K tokens, 32K tokens])", Budgets(budgets=(1024,), l_max=32768, reached=True)),
        (
            "reached(exp(from: 1K tokens, to: 32K tokens, n: 1))",
            Budgets(budgets=(1024,), l_max=32768, reached=True),
        ),
        ("random_exits(n: 2)", Exits(n=2, l_max=32768)),
        ('steps(separator: ".", keywords: ["So"])', Steps(separator=".", keywords=("So",), l_max=32768)),
    ],
)
@pytest.mark.parametrize("line", ["dense L in at: correct(y[:L])", "mean(correct(y[:M]) for M in at)"])
def test_a_stage_is_given_the_splits_that_its_reward_names(
    at: str, split: object, line: str, spec: Callable[..., Spec]
) -> None:
    text = f"reward own(at: budgets) {{\n{line}\n}}\n" + MINE.replace(
        "reward = outcome", f"reward = own(at: {at})\n  rollout {{ max_tokens = 32K tokens }}"
    )
    reward = method(spec(HEAD + text)).reward
    assert reward.splits == split
    assert (reward.split is None) == (reward.dense is not None)


def test_what_no_reward_said_before_is_left_out_of_what_is_kept() -> None:
    assert "reached" not in Budgets(budgets=(4,), l_max=8).model_dump()
    assert "reached" not in OracleBudgets(frontier="edge", n=2, l_max=8).model_dump()
    assert "split" not in Reward(name="r").model_dump()


def test_the_splits_of_an_outcome_are_checked_as_those_of_a_line(
    codes: Callable[..., list[str]], compiled: Callable[..., CompileResult]
) -> None:
    text = "reward own {\nmean(correct(y[:M]) for M in [1K tokens, 64K tokens])\n}\n" + MINE.replace(
        "reward = outcome", "reward = own"
    )
    assert codes(HEAD + text) == ["E0402"]
    # What comes after the last budget is no section that earns nothing: an outcome is one number.
    below = text.replace("64K tokens]", "2K tokens]")
    assert "W0402" not in [each.code for each in compiled(HEAD + below).diagnostics]


@pytest.mark.parametrize(("value", "told"), [("correct(y[:L])", True), ("correct(y) * (L > 1 token)", False)])
def test_only_splits_at_which_answers_are_graded_need_a_grid(
    compiled: Callable[..., CompileResult], value: str, told: bool
) -> None:
    text = f"reward own {{\ndense L in [1 token, 32K tokens]: {value}\n}}\n" + MINE.replace(
        "reward = outcome", "reward = own"
    )
    assert ("W0403" in [each.code for each in compiled(HEAD + text).diagnostics]) is told


def test_a_reward_that_is_tried_has_the_splits(tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(f"reward r {{\nmean(correct(answer(y[:M])) for M in reached({AT}))\n}}")
    chosen = choose_reward(str(path), None)
    assert chosen.reward is not None
    assert chosen.reward.splits == Budgets(budgets=(4,), l_max=8, reached=True)
