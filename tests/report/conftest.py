"""Finished studies to report on, made once a session, and one whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.ir.expression import Constant
from reodsl.ir.wording import Wording
from reodsl.report.material import Material, read
from tests.report.synthetic import World, world

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\"'&<!--\u2028\x00"
"""What a name, a question, a model or a spec may hold at worst: ends of every context, a line separator, a zero."""


@pytest.fixture(scope="session")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A study of one seed on three benchmarks."""
    return world(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="session")
def three_seeds(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A study of three seeds on two benchmarks."""
    return world(tmp_path_factory.mktemp("three"), seeds=(1, 2, 3), benchmarks=("easy", "hard"))


@pytest.fixture(scope="session")
def material(one_seed: World) -> Material:
    """What the study of one seed gives a report."""
    return read(one_seed.spec, one_seed.inputs)


@pytest.fixture
def worded(material: Material, tmp_path: Path) -> Material:
    """The same where `base` was asked its first questions in one of two wordings, and `vanilla` all of them in one."""
    brief, free = Wording(name="brief", when=Constant(value=1)), Wording(name="free")
    suites = {"base": {"wordings": (brief, free)}, "vanilla": {"wording": free}}
    arms = []
    for arm in material.study.arms:
        suite = arm.suite.model_copy(update=suites.get(arm.name, {}))
        arms.append(arm.model_copy(update={"suite": suite}))
    samples = pl.read_parquet(material.evaluations["base", 1] / "samples.parquet")
    samples.with_columns(mode=(pl.col("question") != "q0").cast(int)).write_parquet(
        tmp_path / "samples.parquet"
    )
    study = material.study.model_copy(update={"arms": tuple(arms)})
    evaluations = dict(material.evaluations) | {("base", 1): tmp_path}
    return replace(material, spec=material.spec.model_copy(update={"study": study}), evaluations=evaluations)


@pytest.fixture(scope="session")
def of_seeds(three_seeds: World) -> Material:
    """What the study of three seeds gives a report."""
    return read(three_seeds.spec, three_seeds.inputs)
