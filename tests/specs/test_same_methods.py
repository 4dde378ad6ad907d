"""The miniature trains the paper's methods: settings that make a method what it is are equal in both."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Ppo, Stage
from reodsl.language import compile_file
from tests.specs.compare import differences

ROOT = Path(__file__).resolve().parents[2] / "specs"
ARMS = {
    "vanilla": "vanilla",
    "reo_exp": "reo_exp",
    "reo_oracle": "reo_oracle",
    "reo_qspec": "reo_qspec",
    "budget_1k": "budget_64",
    "group_norm": "group_norm",
    "harmonizing": "harmonizing",
    "mrt": "mrt",
    "hgpo": "hgpo",
    "sft_shortest": "sft_shortest",
    "sft_tops": "sft_tops",
    "simpo_shortest": "simpo_shortest",
    "simpo_tops": "simpo_tops",
    "simpo_dast": "simpo_dast",
}
MORE = {
    ("deepseek_7b", "reo_linear"): "reo_linear",
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
# What may differ: model, data, lengths, batch, steps, learning rate and forcing, and numbers scaled with the length.
OTHERWISE = {
    "name", "data", "steps", "expected_length", "save_every", "plateau", "max_tokens", "max_prompt", "batch",
    "minibatches", "epochs", "forcing", "reference_samples", "start", "samples", "passes",
    "lr", "warmup_steps", "warmup_share", "decay", "decay_from", "algorithm",
    "question", "system", "prefix", "low", "high", "separator", "keywords", "min_chunks", "l_max", "budgets", "frontier",
    "rollouts", "step",
}  # fmt: skip
CONSTANTS: dict[tuple[str, str], set[tuple[float, float]]] = {
    ("qwen3_4b", "group_norm"): {(0.1, 0.2)},
    ("qwen3_4b", "simpo_dast"): {(0.5, 0.7)},
    ("l1", "exact_4k"): {(0.0003, 0.01)},
    ("l1", "max_4k"): {(0.0003, 0.01)},
    ("more_baselines", "overlong"): {(16384, 32), (4096, 64)},
    ("more_baselines", "brpo"): {(2000 * part, 32 * part) for part in (1, 2, 3, 4)},
    ("more_baselines", "prune"): {(3000, 32)},
}
"""All constants of rewards and selections that differ: two that the paper leaves open, and those of lengths."""


@lru_cache
def study(path: str) -> Study:
    found = compile_file(ROOT / path)
    assert found.spec is not None
    return found.spec.study


def last(of: Study, arm: str) -> Stage:
    start = of.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment.stages[start.stage]


def constants(found: list[tuple[str, Any, Any]]) -> set[tuple[float, float]]:
    """The values of those differences that are constants of an expression."""
    return {(one, two) for path, one, two in found if path.endswith(".value")}


def beside_constants(found: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    return [each for each in found if not each[0].endswith(".value")]


@pytest.mark.parametrize(("file", "arm"), PAIRS)
def test_a_method_is_the_same_in_miniature(file: str, arm: str) -> None:
    paper = last(study(f"paper/{file}.reo"), arm).model_dump(mode="json")
    small = last(study("miniature/paper.reo"), PAIRS[file, arm]).model_dump(mode="json")
    found = list(differences(paper, small, OTHERWISE))
    assert beside_constants(found) == []
    assert constants(found) == CONSTANTS.get((file, arm), set())


def test_thinkprune_names_each_of_its_limits_in_miniature() -> None:
    """Every stage is the paper's, and each asks for the length that it allows."""
    start = study("miniature/paper.reo").arm("thinkprune").checkpoint
    paper = study("paper/more_baselines.reo").arm("prune").checkpoint
    assert isinstance(start, FromTraining)
    assert isinstance(paper, FromTraining)
    for one, two in zip(paper.experiment.stages, start.experiment.stages, strict=True):
        assert (
            beside_constants(
                list(differences(one.model_dump(mode="json"), two.model_dump(mode="json"), OTHERWISE))
            )
            == []
        )
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
    paper = last(study("paper/qwen3_4b.reo"), "mrt").model_dump(mode="json")
    for arm in ("vanilla", "reo_exp", "group_norm", "hgpo", "sft_shortest"):
        small = last(study("miniature/paper.reo"), arm).model_dump(mode="json")
        assert list(differences(paper, small, OTHERWISE)), arm
