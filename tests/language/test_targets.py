"""What a file runs: its one study, its one experiment as a study, or the one that is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diagnostics.render import render
from reodsl.ir.study import Spec
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE

STUDY = "study all { arm base = checkpoint(qwen3_4b) arm mine = mine }".replace(") arm", ")\n arm")


def test_a_lone_experiment_is_a_study_of_its_start_and_itself(spec: Callable[..., Spec]) -> None:
    study = spec(HEAD + MINE).study
    assert [arm.name for arm in study.arms] == ["base", "mine"]
    assert study.name == "mine"
    assert study.seeds == (1,)
    assert study.tables[0].rows == ("base", "mine")


def test_a_published_frontier_scores_a_lone_experiment(spec: Callable[..., Spec]) -> None:
    text = (
        HEAD
        + "from std.paper import qwen3_4b as printed\n"
        + MINE.replace("  eval", "  score = reg(against: printed, to: 16K tokens)\n  eval")
    )
    study = spec(text).study
    assert study.score is not None
    assert study.score.relative_to == "base"
    (frontier,) = study.frontiers
    assert frontier.name == study.score.frontier
    assert frontier.published[0].budgets[-1] == 32768


def test_a_study_goes_before_experiments_and_a_target_before_both(spec: Callable[..., Spec]) -> None:
    text = f"{HEAD}{MINE}\nexperiment other = mine {{ steps = 5 steps }}\n{STUDY}"
    assert spec(text).study.name == "all"
    assert spec(text, target="other").study.name == "other"
    assert spec(text, target="all").study.name == "all"


def test_what_another_starts_from_is_on_its_way(spec: Callable[..., Spec]) -> None:
    text = f"{HEAD}{MINE}\nexperiment more = mine {{ base = checkpoint(mine), steps = 5 steps }}\n"
    assert spec(text).study.name == "more"
    assert spec(text, target="mine").study.name == "mine"


@pytest.mark.parametrize(
    ("text", "target", "code"),
    [
        (f"{HEAD}{MINE}\nexperiment other = mine {{ steps = 5 steps }}\n", None, "E0214"),
        (HEAD + MINE, "mime", "E0214"),
        ("budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)\n", None, "E0215"),
    ],
)
def test_refused(
    compiled: Callable[..., CompileResult],
    golden: Callable[[str, str], None],
    text: str,
    target: str | None,
    code: str,
) -> None:
    result = compiled(text, target=target)
    assert result.spec is None
    assert [each.code for each in result.diagnostics if each.severity == "error"] == [code]
    golden(f"language/{code}{'-target' if target else ''}.txt", render(result.diagnostics, result.sources))


def test_evaluation_alone(spec: Callable[..., Spec]) -> None:
    study = spec(
        HEAD.replace("from std.recipes import ppo\n", "")
        + "experiment look = checkpoint(qwen3_4b) { eval = math_reg }"
    ).study
    assert [arm.name for arm in study.arms] == ["look"]
    assert not study.arms[0].is_trained


def test_an_arm_is_not_run_alone(compiled: Callable[..., CompileResult]) -> None:
    text = HEAD + MINE.replace("mine =", "own =") + STUDY.replace("= mine", "= own")
    (found,) = (each for each in compiled(text, target="mine").diagnostics if each.severity == "error")
    assert (found.code, found.help) == (
        "E0214",
        "`mine` is an arm of `all`, which runs as a whole: make it an experiment to run it alone",
    )
