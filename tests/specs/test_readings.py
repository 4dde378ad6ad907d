"""Each reading in `specs/miniature/readings.reo` is its arm with one setting changed, and every arm is `paper.reo`'s."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Stage
from reodsl.language import compile_file
from tests.specs.compare import differences

SPECS = Path(__file__).resolve().parents[2] / "specs" / "miniature"
READINGS = {
    "vanilla_once": ("vanilla", [(".method.epochs", 2, 1)]),
    "reo_exp_once": ("reo_exp", [(".method.epochs", 2, 1)]),
    "vanilla_batch": ("vanilla", [(".method.advantage.batch", False, True)]),
    "reo_exp_batch": ("reo_exp", [(".method.advantage.batch", False, True)]),
    "reo_exp_printed": ("reo_exp", [(".method.advantage.credit", "causal", "as_printed")]),
    "reo_qspec_printed": ("reo_qspec", [(".method.reward.dense.value.left.rule", "trapezoid", "half_first")]),
    "mrt_all": ("mrt", [(".method.advantage.absent", None, "zero")]),
}


def study(file: str) -> Study:
    spec = compile_file(SPECS / file).spec
    assert spec is not None
    return spec.study


def stages(of: Study, arm: str) -> tuple[Stage, ...]:
    start = of.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment.stages


@pytest.mark.parametrize("arm", READINGS)
def test_a_reading_changes_one_setting(arm: str) -> None:
    usual, expected = READINGS[arm]
    readings = study("readings.reo")
    (one,), (other,) = stages(readings, usual), stages(readings, arm)
    names = {"name", "doc"}
    found = list(differences(one.model_dump(mode="json"), other.model_dump(mode="json"), names))
    assert found == expected


def test_every_other_arm_is_the_main_study_s() -> None:
    readings, paper = study("readings.reo"), study("paper.reo")
    usual = [arm.name for arm in readings.arms if arm.name not in READINGS]
    assert {each for each, _ in READINGS.values()} <= set(usual)
    for arm in usual:
        assert stages(readings, arm) == stages(paper, arm), arm
