"""Reading artifacts by role, and what a report makes of parts that are not there."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.task import Role, parse_role
from reodsl.ir.data import After, LastBox
from reodsl.ir.reward import QuestionBudgets
from reodsl.ir.training import FromTraining, Stage
from reodsl.report import provenance, schedules
from reodsl.report.export import report_tables
from reodsl.report.figures import Gallery, safe_name
from reodsl.report.markup import render
from reodsl.report.material import Material, rank_arms, read, read_json, read_origin, read_parquet
from reodsl.report.page import page
from reodsl.report.study_tables import _samples
from tests.report.synthetic import World


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("score@3", Role("score", seed=3)),
        ("score", Role("score")),
        ("evaluate:base", Role("evaluate", "base")),
        ("train:reo_exp:2@1", Role("train", "reo_exp", 2, 1)),
        ("frontier:edge@12", Role("frontier", "edge", seed=12)),
    ],
)
def test_roles_are_taken_apart(text: str, role: Role) -> None:
    assert parse_role(text) == role


def test_arms_seeds_and_bases_are_found(of_seeds: Material) -> None:
    assert of_seeds.seeds == (1, 2, 3)
    assert of_seeds.benchmarks == ("easy", "hard")
    assert of_seeds.bases == ("base",), "the checkpoint that all training starts from"
    assert of_seeds.frontier_arms == ("base", "vanilla", "group_norm", "shrink")


def test_a_damaged_artifact_is_one_clear_error(
    one_seed: World, tmp_path: Path, refusal: Callable[..., None]
) -> None:
    role = "score@1"
    (tmp_path / "reg.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(Problem) as caught:
        read(one_seed.spec, one_seed.inputs | {role: tmp_path})
    reason = caught.value.diagnostics[0].message.partition(" read: ")[2]
    assert reason
    refusal("commands/E0981.txt", caught.value, (reason, "REASON"))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("kept", "gone"),
    [
        (("evaluate",), {"training", "budgets"}),
        (("evaluate", "score", "frontier"), {"training"}),
        (("train",), {"curves", "tradeoff", "examples"}),
        ((), {"curves", "tradeoff", "training", "examples"}),
    ],
)
def test_parts_that_are_not_there_leave_their_place_out(
    one_seed: World, kept: tuple[str, ...], gone: set[str]
) -> None:
    inputs = {
        role: folder for role, folder in one_seed.inputs.items() if role.split(":")[0].split("@")[0] in kept
    }
    text = page(read(one_seed.spec, inputs), Gallery(), {})
    there = {
        name
        for name in ("curves", "tradeoff", "training", "budgets", "examples")
        if f'<section id="{name}"' in text
    }
    assert not there & (gone - {"budgets"})
    assert '<section id="provenance"' in text


def test_budgets_have_weights_and_an_error(of_seeds: Material) -> None:
    rows = {(row.arm, row.seed): row for row in schedules.list_schedules(of_seeds)}
    given = rows["reo_exp", None]
    assert given.weights == (4, 6, 12, 24, 48, 32)
    assert sum(given.weights) == 128 - 4 / 2
    assert given.measure_error(of_seeds) is not None
    assert rows["reo_oracle", 2].budgets == (12, 20, 28, 40, 68)
    frame = schedules.table(of_seeds)
    assert frame.filter(arm="reo_oracle", seed=2)["budget"].to_list() == [12, 20, 28, 40, 68, 128]


def test_budgets_of_questions_say_how_many_have_none(of_seeds: Material) -> None:
    arm = of_seeds.study.arm("reo_oracle")
    assert isinstance(arm.checkpoint, FromTraining)
    stage = arm.checkpoint.experiment.stages[0]
    split = QuestionBudgets(rollouts=("vanilla",), l_max=128, unsolved="drop")
    asked = json.loads(stage.model_dump_json())
    asked["method"]["reward"]["dense"]["split"] = split.model_dump()
    experiment = arm.checkpoint.experiment.model_copy(update={"stages": (Stage.model_validate(asked),)})
    arms = (arm.model_copy(update={"checkpoint": FromTraining(experiment=experiment, stage=0)}),)
    spec = of_seeds.spec.model_copy(update={"study": of_seeds.study.model_copy(update={"arms": arms})})
    facts = {"l_max": 128, "questions": {"a": 9, "b": None, "c": 3}, "unsolved": 1, "unmet": 1200}
    material = replace(of_seeds, spec=spec, budgets={("reo_oracle", 1): facts})
    (row,) = schedules.list_schedules(material)
    assert (row.questions, row.unsolved, row.unmet) == ((3, 9), 1, 1200)
    assert "2 questions, 1 dropped, 1,200 without rollouts" in render(schedules.section(material))
    # As an earlier version wrote them, whose reports can be drawn anew.
    before = {name: facts[name] for name in ("l_max", "questions")}
    (row,) = schedules.list_schedules(replace(material, budgets={("reo_oracle", 1): before}))
    assert (row.questions, row.unsolved, row.unmet) == ((3, 9), 1, 0)


def test_file_names_are_safe_and_distinct() -> None:
    assert safe_name("../../etc/passwd", {}) == "etc-passwd"
    assert safe_name("\u202e", {}) == "chart"
    assert safe_name("curves", {"curves": 1}) == "curves-2"


def test_the_command_that_runs_it_again_is_quoted(one_seed: World) -> None:
    from reodsl.ir import Change

    changed = one_seed.spec.model_copy(
        update={"changes": (Change(option="--amend", target="reo_exp.doc", value="a b; rm -rf ~"),)}
    )
    assert provenance.rerun(changed) == "reodsl run specs/quickstart.reo --amend 'reo_exp.doc=a b; rm -rf ~'"


def test_versions_are_those_that_made_the_results(one_seed: World, tmp_path: Path) -> None:
    """What this machine has installed says nothing of where a model was trained."""
    inputs = dict(one_seed.inputs)
    for i, version in enumerate(("2.9", "2.13")):
        role = list(inputs)[i]
        folder = tmp_path / str(i)
        shutil.copytree(inputs[role], folder)
        made = {"seconds": 61.5, "device": "cuda", "versions": {"torch": version, "python": "3.12"}}
        made["hub"] = {"me/mine": "0123abc"}
        made["unconfined"] = "the kernel (4.4) has no Landlock" if i else None
        (folder / "manifest.json").write_text(json.dumps({"made": made}))
        inputs[role] = folder
    found = read(one_seed.spec, inputs)
    used = provenance.collect_versions(found, {"torch": "1.0", "polars": "2.1", "Python": "3.11"})
    assert set(used.pop("torch").split(" and ")) == {"2.9", "2.13"}
    assert used == {"python": "3.12", "polars": "2.1"}
    text = "".join(provenance.section(found, {}))
    assert "answers were checked without a sandbox: the kernel (4.4) has no Landlock<" in text
    assert "me/mine at 0123abc<" in text
    assert "61.5" in text
    assert "cuda" in text


def test_it_says_where_answers_were_read_and_how_they_were_compared(one_seed: World) -> None:
    spec = one_seed.spec
    first, *rest = spec.study.arms
    easy, *others = first.suite.benchmarks
    data = easy.data.model_copy(
        update={"verifier": "math", "answer": (After(marker="####"), LastBox()), "tolerance": 0.001}
    )
    suite = first.suite.model_copy(update={"benchmarks": (easy.model_copy(update={"data": data}), *others)})
    arms = (first.model_copy(update={"suite": suite}), *rest[:0])
    found = provenance.answers_read(
        spec.model_copy(update={"study": spec.study.model_copy(update={"arms": arms})})
    )
    assert (
        found[0]
        == f'{easy.name}: read by after("####"), then boxed, compared by math (rounded numbers within 0.1%)'
    )
    assert found[1:] == [f"{', '.join(each.name for each in others)}: read by boxed, compared by exact"]


def test_times_and_memory_are_beside_a_steps_numbers_and_in_no_table(material: Material) -> None:
    """They differ from run to run, and equal results have equal tables."""
    arm = material.metrics.filter(arm="vanilla", seed=material.seeds[0]).sort("at")
    assert arm["memory"].to_list() == pytest.approx([1 + at / arm.height for at in arm["at"]])
    assert arm["seconds_update"].is_between(0.8, 0.9).all()
    named = set(material.metrics.columns) - set(report_tables(material)["training"].columns)
    assert named == {"seconds_update", "memory"}


READERS: dict[str, Callable[[Path], object]] = {
    "budgets.json": read_json,
    "reg.parquet": read_parquet,
    "samples.parquet": lambda path: _samples("arm", path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("held", [b"PAR1 and no more", b"\xff{", None])
def test_what_cannot_be_read_is_named(name: str, held: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if held is not None:
        path.write_bytes(held)
    with pytest.raises(Problem) as caught:
        READERS[name](path)
    (found,) = caught.value.diagnostics
    assert (found.code, found.where) == ("E0981", str(path))
    assert len(found.message.splitlines()) == 1
    assert "--verify" in (found.help or "")


def test_an_artifact_without_a_manifest_still_has_its_key(tmp_path: Path) -> None:
    assert (read_origin(tmp_path).key, read_origin(tmp_path).seconds) == (tmp_path.name, None)


def test_the_best_have_the_least_reg_or_else_the_highest_accuracy(material: Material) -> None:
    """An arm without a score comes last, a benchmark's rows count for nothing, and equal arms keep the study's order."""
    arms = tuple(material.study.arms[0].model_copy(update={"name": name}) for name in "abcde")
    study = material.study.model_copy(update={"arms": arms})
    keys = {"arm": ["a", "b", "c", "d", "d"], "benchmark": ["mean"] * 4 + ["hard"]}
    summary = pl.DataFrame(keys | {"accuracy": [0.5, 0.7, 0.6, 0.7, 0.9]})
    for missing in (None, math.nan):
        scores = pl.DataFrame(keys | {"reg": [1.0, 3.0, missing, -2.0, -9.0]})
        assert rank_arms(study, summary, scores) == ("d", "a", "b", "c")
        scores = scores.with_columns(reg=pl.lit(missing, pl.Float64))
        assert rank_arms(study, summary, scores) == ("b", "d", "c", "a")
    failed = summary.with_columns(accuracy=pl.when(pl.col("arm") != "b").then("accuracy"))
    assert rank_arms(study, failed, pl.DataFrame()) == ("d", "c", "a", "b")
