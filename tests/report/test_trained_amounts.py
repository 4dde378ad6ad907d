"""What each arm's RL took, in the report: as measured, and with a warning where arms differ."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest

from reodsl.report import trained_amounts
from reodsl.report.material import Material, read
from tests.report.synthetic import world


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    made = world(tmp_path_factory.mktemp("amounts"), (1, 2))
    return read(made.spec, made.inputs)


def shown(material: Material) -> str:
    return re.sub(r"<[^>]+>", " ", "".join(map(str, trained_amounts.section(material))))


def shortened(material: Material) -> Material:
    """As if `shrink` had ended at half of its steps."""
    half = 12
    return replace(
        material, metrics=material.metrics.filter((pl.col("arm") != "shrink") | (pl.col("at") <= half))
    )


def test_amounts_are_sums_over_steps_and_means_over_seeds(material: Material) -> None:
    rows = {row["arm"]: row for row in trained_amounts.trained_amounts(material).to_dicts()}
    assert "base" not in rows
    of_arm = material.metrics.filter(pl.col("arm") == "vanilla")
    asked = material.study.arm("vanilla").checkpoint.experiment.stages[0].method.batch.prompts  # type: ignore[union-attr]
    steps = of_arm.height / 2
    assert rows["vanilla"]["steps"] == steps
    assert rows["vanilla"]["questions"] == steps * asked
    assert rows["vanilla"]["summed rate"] == pytest.approx(sum(of_arm["lr"]) / 2)
    assert rows["vanilla"]["tokens generated"] == sum(of_arm["tokens"]) / 2


def test_equal_arms_have_a_table_and_no_warning(material: Material) -> None:
    assert trained_amounts.unequal_arms(material) == []
    assert "Trained amounts" in shown(material)
    assert "another amount" not in shown(material)


def test_an_arm_of_half_the_steps_is_warned_of_with_the_study_s_reason(material: Material) -> None:
    short = shortened(material)
    assert trained_amounts.unequal_arms(short) == ["shrink"]
    assert "the arms they are compared with: shrink." in shown(short)
    assert "says why" not in shown(short)
    study = short.study.model_copy(update={"unequal": "it is a stage"})
    said = replace(short, spec=short.spec.model_copy(update={"study": study}))
    assert "The study says why: it is a stage." in shown(said)


def test_older_runs_without_these_numbers_have_no_table(material: Material) -> None:
    assert trained_amounts.section(replace(material, metrics=material.metrics.drop("tokens"))) == []
