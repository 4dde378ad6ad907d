"""The miniature trains the paper's methods: settings that make a method what it is are equal in both."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.reward import Budgets
from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Ppo, Stage
from reodsl.language import compile_file
from tests.specs.compare import differences

ROOT = Path(__file__).resolve().parents[2] / "specs"
SAME = (
    "vanilla", "reo_exp", "reo_oracle", "reo_qspec", "group_norm", "harmonizing", "mrt", "hgpo", "sft_shortest", "sft_tops",
    "simpo_shortest", "simpo_tops", "simpo_dast",
)  # fmt: skip
ARMS = {"budget_1k": "budget_64"} | {name: name for name in SAME}
MORE = {
    ("qwen3_4b", "budget_512"): "budget_32",
    ("deepseek_7b", "reo_linear"): "reo_linear",
    ("deepseek_7b", "reo_k10"): "reo_k10",
    ("deepseek_7b", "reo_coef1"): "reo_coef1",
    ("deepseek_7b", "reo_task_hard"): "reo_hard",
    ("l1", "exact_4k"): "l1_exact",
    ("l1", "max_4k"): "l1_max",
    ("more_baselines", "kimi"): "kimi",
    ("more_baselines", "overlong"): "overlong",
    ("more_baselines", "brpo"): "brpo",
    ("more_baselines", "prune"): "thinkprune",
}
PAIRS = {**{("qwen3_4b", arm): own for arm, own in ARMS.items()}, **MORE}
OTHERWISE = {
    # The model, and the words that it reads and writes.
    "name", "start", "question", "system", "prefix", "separator", "keywords",
    "data",
    # Lengths in tokens.
    "max_tokens", "max_prompt", "expected_length", "budgets", "l_max", "step", "low", "high",
    "batch", "reference_samples",
    "steps", "save_every", "window",
    "lr",
    "forcing",
}  # fmt: skip
"""All that may differ: model, data, lengths, batch, steps, learning rate and forcing."""
LENGTHS = {"overlong": 2, "brpo": 4, "thinkprune": 1, "l1_exact": 1, "l1_max": 1}
"""How many constants differ in an expression because they are lengths, or are for a token; nowhere else one may."""
LAST_BUDGET = ("budget_512", "budget_32")
"""The arm after the last halving, whose rollouts tell budgets of questions in both, by its two names."""


@lru_cache
def study(path: str) -> Study:
    found = compile_file(ROOT / path)
    assert found.spec is not None
    return found.spec.study


def last(of: Study, arm: str) -> Stage:
    start = of.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment.stages[start.stage]


def pair(file: str, arm: str) -> tuple[Stage, Stage]:
    """An arm's last stage in the paper's specs and in miniature."""
    return last(study(f"paper/{file}.reo"), arm), last(study("miniature/paper.reo"), PAIRS[file, arm])


def differing(one: Stage, two: Stage) -> list[tuple[str, Any, Any]]:
    return list(differences(one.model_dump(mode="json"), two.model_dump(mode="json"), OTHERWISE))


def beside_constants(found: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    return [
        each
        for each in found
        if not each[0].endswith(".value") and not (each[0].endswith(".rollouts") and each[1:] == LAST_BUDGET)
    ]


def longest(stage: Stage) -> int:
    """The longest budget that a response is asked for, and without one the longest response."""
    assert isinstance(stage.method, Ppo)
    asked = [most for each in stage.method.wordings for most in (*each.budgets, each.high or 0)]
    return max(asked, default=0) or stage.method.rollout.max_tokens


def test_every_arm_of_the_miniature_has_its_pair() -> None:
    assert {"base", *PAIRS.values()} == {arm.name for arm in study("miniature/paper.reo").arms}


@pytest.mark.parametrize(("file", "arm"), PAIRS)
def test_a_method_is_the_same_in_miniature(file: str, arm: str) -> None:
    """A constant that differs is a length, the same multiple of the longest response, or for a token, by its inverse."""
    paper, small = pair(file, arm)
    found = differing(paper, small)
    assert beside_constants(found) == []
    if isinstance(paper.method, Ppo) and isinstance(small.method, Ppo):
        # Its own `batch` is not a size: it says what is normalised.
        assert paper.method.advantage == small.method.advantage
    scaled = {(one, two) for path, one, two in found if path.endswith(".value")}
    assert len(scaled) == LENGTHS.get(PAIRS[file, arm], 0)
    per_token = PAIRS[file, arm].startswith("l1")
    for one, two in scaled:
        if per_token:
            assert one * longest(paper) == pytest.approx(two * longest(small))
        else:
            assert one / longest(paper) == two / longest(small)


@pytest.mark.parametrize(("file", "arm"), PAIRS)
def test_budgets_and_samples_are_the_papers_in_proportion(file: str, arm: str) -> None:
    """Budgets to the token, out of the longest response; as many samples of the start as rollouts, or none."""
    one, two = (stage.method for stage in pair(file, arm))
    if not isinstance(one, Ppo):
        return
    assert isinstance(two, Ppo)
    assert [m.reference_samples for m in (one, two)] in ([0, 0], [one.batch.rollouts, two.batch.rollouts])
    if one.reward.dense is None:
        return
    assert two.reward.dense is not None
    many, few = one.reward.dense.split, two.reward.dense.split
    assert (many.l_max, few.l_max) == (one.rollout.max_tokens, two.rollout.max_tokens)
    if isinstance(many, Budgets):
        assert isinstance(few, Budgets)
        assert len(many.budgets) == len(few.budgets)
        for large, small in zip(many.budgets, few.budgets, strict=True):
            assert abs(large / many.l_max * few.l_max - small) <= 0.5


def test_hgpo_begins_with_the_same_training_on_both_modes() -> None:
    before = []
    for path in ("paper/qwen3_4b.reo", "miniature/paper.reo"):
        start = study(path).arm("hgpo").checkpoint
        assert isinstance(start, FromTraining)
        assert isinstance(start.experiment.start, FromTraining)
        before.append(start.experiment.start.experiment.stages[-1])
    assert differing(*before) == []


def test_thinkprune_names_each_of_its_limits_in_miniature() -> None:
    """Every stage is the paper's, and each asks for the length that it allows."""
    start = study("miniature/paper.reo").arm("thinkprune").checkpoint
    paper = study("paper/more_baselines.reo").arm("prune").checkpoint
    assert isinstance(start, FromTraining)
    assert isinstance(paper, FromTraining)
    for one, two in zip(paper.experiment.stages, start.experiment.stages, strict=True):
        assert beside_constants(differing(one, two)) == []
    for stage in start.experiment.stages:
        assert isinstance(stage.method, Ppo)
        asked = [each.question for each in stage.method.wordings]
        assert asked == [f"within {stage.method.rollout.max_tokens} tokens {{question}}"]


@pytest.mark.parametrize(("path", "arm"), [("paper/l1.reo", "max_4k"), ("miniature/paper.reo", "l1_max")])
def test_l1_max_is_asked_in_two_ways_for_the_same_budgets(path: str, arm: str) -> None:
    method = last(study(path), arm).method
    assert isinstance(method, Ppo)
    exactly, at_most = method.wordings
    assert exactly.question != at_most.question
    assert "{budget}" in exactly.question
    assert "{budget}" in at_most.question
    assert (exactly.budgets, exactly.low, exactly.high) == (at_most.budgets, at_most.low, at_most.high)


def test_other_methods_differ() -> None:
    paper = last(study("paper/qwen3_4b.reo"), "mrt")
    for arm in ("vanilla", "reo_exp", "group_norm", "hgpo", "sft_shortest"):
        assert differing(paper, last(study("miniature/paper.reo"), arm)), arm
