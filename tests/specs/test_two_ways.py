"""The two ways to an answer: arms differ by their method alone, and both starts are trained alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir.data import Data, TaskData
from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Ppo, Stage
from reodsl.language import compile_file
from tests.specs.compare import differences
from tests.specs.test_readings import stages

SPECS = Path(__file__).resolve().parents[2] / "specs" / "miniature"
METHOD = {"name", "doc", "reward", "max_tokens"}
"""What makes a method what it is here: its reward, or the longest response. Steps and learning rates are no part of it."""
ARMS = ("vanilla", "reo_exp", "group_norm", "budget_80", "budget_40", "reo_qspec")


def study(name: str) -> Study:
    spec = compile_file(SPECS / f"{name}.reo").spec
    assert spec is not None
    return spec.study


def alike(one: Stage, two: Stage) -> bool:
    return not list(differences(one.model_dump(mode="json"), two.model_dump(mode="json"), METHOD))


@pytest.mark.parametrize("name", ["two_ways", "two_ways_tuned"])
@pytest.mark.parametrize("arm", ARMS[1:])
def test_methods_are_trained_alike(name: str, arm: str) -> None:
    """One stage with the same data, batch, steps and learning rate at each of them."""
    own = study(name)
    (usual,), (stage,) = stages(own, "vanilla"), stages(own, arm)
    assert alike(usual, stage)
    assert stage.steps == usual.steps


@pytest.mark.parametrize("arm", ARMS[1:])
def test_the_tuned_start_is_trained_on_as_the_raw_one(arm: str) -> None:
    """But for the arm whose rollouts tell budgets of questions: vanilla RL goes on there."""
    raw, tuned = study("two_ways"), study("two_ways_tuned")
    for one, two in zip(stages(raw, arm), stages(tuned, arm), strict=True):
        found = list(differences(one.model_dump(mode="json"), two.model_dump(mode="json"), set()))
        assert [path for path, *_ in found] == (
            [".method.reward.dense.split.rollouts"] if arm == "reo_qspec" else []
        )
    start = tuned.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    before = start.experiment.start
    assert isinstance(before, FromTraining)
    assert before.experiment.stages == stages(raw, "vanilla")


def test_questions_are_met_several_times() -> None:
    (stage,) = stages(study("two_ways"), "vanilla")
    assert isinstance(stage.method, Ppo)
    assert isinstance(stage.data, Data)
    (source,) = stage.data.sources
    assert isinstance(source, TaskData)
    asked = stage.steps * stage.method.batch.prompts
    assert asked / source.count >= 5
