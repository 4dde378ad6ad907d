"""Several runs on one page: arms that answered the same questions are paired, the others are told apart."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from reodsl.ir import Spec
from reodsl.report import theme
from reodsl.report.compare import Run, compare
from reodsl.report.compare_page import draw, write_comparison
from reodsl.report.markup import escape
from reodsl.report.material import Material, read
from reodsl.report.verdict_words import read_verdict, sentences
from tests.report.synthetic import ARMS, world


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """A study of the same questions as that of one seed, with seed 1 and a second one, under another name."""
    renamed = {"study": "again", "shrink": "cut"}
    made = world(tmp_path_factory.mktemp("other"), seeds=(1, 2), rename=renamed, draw=7)
    return read(made.spec, made.inputs)


def run(label: str, material: Material) -> Run:
    """A run with one measurement of its trainings: a chart for each says nothing more."""
    measured = ("arm", "seed", "index", "stage", "method", "at", "step", "reward", "loss")
    few = material.metrics.select(name for name in measured if name in material.metrics.columns)
    return Run(label, f"20260101T000000-{label}", replace(material, metrics=few))


def another_rate(spec: Spec) -> Spec:
    """The spec with another learning rate in all of its trainings."""
    return Spec.model_validate_json(spec.model_dump_json().replace('"lr":0.0005', '"lr":0.0001'))


def difference(one: Path, other: Path) -> float:
    """REG of the first evaluation minus that of the second, averaged over benchmarks: trapezoids, question by question."""

    def area(folder: Path) -> float:
        forced = pl.read_parquet(folder / "forced.parquet")
        areas: dict[str, list[float]] = {}
        for part in forced.partition_by("benchmark", "question"):
            points = part.group_by("budget").agg(pl.col("correct").cast(float).mean()).sort("budget").rows()
            total = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))
            areas.setdefault(part["benchmark"][0], []).append(total)
        return sum(sum(each) / len(each) for each in areas.values()) / len(areas)

    return area(other) - area(one)


def test_each_method_is_compared_with_itself_in_the_other_run(material: Material, other: Material) -> None:
    """By question, over the seeds in common; the arm that has another name in the other run is the one that is left."""
    comparison = compare([run("first", material), run("second", other)])
    (group,) = comparison.groups
    assert group.reference is None
    assert group.apart == ()
    assert group.against == {
        f"second/{arm}": f"first/{'shrink' if arm == 'cut' else arm}" for arm in other.arms
    }
    rows = {row["arm"]: row for row in group.material.scores.filter(pl.col("benchmark") == "mean").to_dicts()}
    for name, there in group.against.items():
        arm = name.removeprefix("second/")
        folders = other.evaluations, material.evaluations
        one, two = (
            folders[i].get((each, None)) or folders[i][each, 1]
            for i, each in enumerate((arm, there.removeprefix("first/")))
        )
        assert rows[name]["difference"] == pytest.approx(difference(one, two)), name
        assert rows[name]["difference_low"] < rows[name]["difference"] < rows[name]["difference_high"]
        assert rows[there]["difference"] is None
    # A method's arms stand together, in one colour and other dashes.
    assert list(group.material.arms)[:4] == ["first/base", "second/base", "first/vanilla", "second/vanilla"]
    colours = group.material.colours
    assert all(colours[name] == colours[there] for name, there in group.against.items())
    assert len(set(colours.values())) == len(material.arms)
    dashes = theme.dashes(colours)
    assert {dashes[name] for name in group.against} == {1}
    # Accuracy is over all of an arm's seeds, whichever of them are paired.
    of_seeds = [pl.read_parquet(other.evaluations["cut", seed] / "samples.parquet") for seed in (1, 2)]
    assert rows["second/cut"]["accuracy"] == pytest.approx(
        sum(float(each["correct"].mean()) for each in of_seeds) / 2  # type: ignore[arg-type]
    )


@pytest.mark.usefixtures("undrawn")
def test_runs_without_a_method_in_common_are_compared_with_one_baseline(
    tmp_path: Path, material: Material
) -> None:
    """The arms of the other study are other methods under other names: all are compared with the first's baseline."""
    made = world(tmp_path, rename={"study": "new"} | {arm: f"new_{arm}" for arm in ARMS}, draw=7)
    second = read(another_rate(made.spec), made.inputs)
    runs = [run("first", material), run("second", second)]
    (group,) = compare(runs).groups
    assert group.reference == "first/vanilla"
    assert set(group.against.values()) == {"first/vanilla"}
    rows = {row["arm"]: row for row in group.material.scores.filter(pl.col("benchmark") == "mean").to_dicts()}
    assert rows["second/new_vanilla"]["difference"] == pytest.approx(
        difference(second.evaluations["new_vanilla", 1], material.evaluations["vanilla", 1])
    )
    assert "Against first/vanilla: " in draw(runs, {}).html


@pytest.mark.usefixtures("undrawn")
def test_runs_without_a_seed_in_common_have_no_difference(material: Material, other: Material) -> None:
    second = replace(
        other, evaluations={key: folder for key, folder in other.evaluations.items() if key[1] == 2}
    )
    (group,) = compare([run("first", material), run("second", second)]).groups
    assert group.material.verdict is None
    assert set(group.unpaired) == {f"second/{arm}" for arm in second.arms}
    html = draw([run("first", material), run("second", second)], {}).html
    assert "Without a difference: second/base (no seed in common)" in html


@pytest.mark.usefixtures("undrawn")
def test_what_was_evaluated_otherwise_stands_apart_with_the_reason(
    tmp_path: Path, material: Material
) -> None:
    made = world(tmp_path, benchmarks=("easy", "new"), rename={"study": "new"})
    longer = made.spec.study.arms[0].suite.model_copy(update={"samples": 2, "grid": (0, 8, 128)})
    arms = tuple(arm.model_copy(update={"suite": longer}) for arm in made.spec.study.arms)
    spec = made.spec.model_copy(update={"study": made.spec.study.model_copy(update={"arms": arms})})
    second = read(spec, made.inputs)
    comparison = compare([run("first", material), run("second", second)])
    one, two = comparison.groups
    assert {arm.split("/")[0] for arm in one.material.arms} == {"first"}
    assert two.reference == "second/vanilla"
    assert "the questions of medium are only there" in two.apart
    assert "the questions of new are only here" in two.apart
    assert "the grid (20 budgets up to 128 tokens there, 3 budgets up to 128 tokens here)" in two.apart
    drawn = draw([run("first", material), run("second", second)], {})
    assert "Not comparable with the above: second/base" in drawn.html
    assert drawn.html.count('class="results"') == 2
    assert set(drawn.tables["main"]["group"]) == {1, 2}


@pytest.mark.usefixtures("undrawn")
def test_runs_of_whole_responses_alone_are_compared_by_accuracy_and_length(tmp_path: Path) -> None:
    made = world(tmp_path, benchmarks=("easy",), rename={"study": "whole"})
    for role, folder in made.inputs.items():
        if role.startswith("evaluate:"):
            last = pl.read_parquet(folder / "forced.parquet").filter(pl.col("budget") == 128)
            last.write_parquet(folder / "forced.parquet")
    suite = made.spec.study.arms[0].suite.model_copy(update={"grid": (128,), "forcing": None})
    arms = tuple(arm.model_copy(update={"suite": suite}) for arm in made.spec.study.arms)
    study = made.spec.study.model_copy(update={"arms": arms, "score": None})
    spec = made.spec.model_copy(update={"study": study})
    only = {role: folder for role, folder in made.inputs.items() if role.startswith("evaluate:")}
    runs = [run("one", read(spec, only)), run("two", read(spec, only))]
    drawn = draw(runs, {})
    main = drawn.tables["main"]
    assert main["difference"].drop_nulls().len() == 0
    assert main["accuracy_change"].drop_nulls().len() > 0
    assert 'id="curves"' not in drawn.html


def test_other_code_that_evaluated_is_told(tmp_path: Path, material: Material) -> None:
    made = world(tmp_path, rename={"study": "old"})
    for role, folder in made.inputs.items():
        if role.startswith("evaluate:"):
            (folder / "material.json").write_text('{"version": 3}')
    _, two = compare([run("new", material), run("old", read(made.spec, made.inputs))]).groups
    assert two.apart == ("the code that evaluated (unknown there, number 3 here)",)


@pytest.mark.usefixtures("undrawn")
def test_a_result_that_two_runs_share_stands_there_once(material: Material) -> None:
    comparison = compare([run("first", material), run("second", material)])
    (group,) = comparison.groups
    assert len(group.material.arms) == len(material.arms)
    assert comparison.same["second/vanilla"] == "first/vanilla"
    # One frontier, so REG itself is there too.
    html = draw([run("first", material), run("second", material)], {}).html
    assert "second/vanilla is first/vanilla" in html
    assert "REG itself is left out" not in html


@pytest.mark.usefixtures("undrawn")
def test_reg_that_is_approximate_is_so_beside_other_runs_too(material: Material) -> None:
    assert material.study.score is not None
    score = material.study.score.model_copy(update={"misfits": ("it is of another model",)})
    study = material.study.model_copy(update={"score": score})
    one = run("first", replace(material, spec=material.spec.model_copy(update={"study": study})))
    html = draw([one, run("second", one.material)], {}).html
    assert "REG is approximate (~): it is of another model." in html
    assert "~REG ↓" in html
    assert "approximate" not in draw([run("first", material), run("second", material)], {}).html


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_an_evaluation_gives_its_trainings(material: Material, other: Material) -> None:
    bare = replace(
        other,
        evaluations={},
        summary=other.summary.clear(),
        curves=other.curves.clear(),
        scores=pl.DataFrame(),
        unfinished=("The report leaves out 12 of 24 results.",),
    )
    runs = [run("first", material), run("second", bare)]
    comparison = compare(runs)
    assert comparison.unevaluated == ("second",)
    assert set(comparison.trainings.metrics["arm"]) >= {"first/vanilla", "second/vanilla"}
    html = draw(runs, {}).html
    assert "second: nothing is evaluated yet." in html
    assert "second: The report leaves out 12 of 24 results." in html
    none = draw([run("second", bare), run("third", bare)], {}).html
    assert "No run is evaluated yet." in none


def test_the_page_leads_with_the_answer_and_tells_what_differs(
    tmp_path: Path, material: Material, other: Material
) -> None:
    write_comparison([run("first", material), run("second", other)], tmp_path)
    html = (tmp_path / "report.html").read_text("utf-8")
    header = html[: html.index("<main>")]
    verdict = compare([run("first", material), run("second", other)]).groups[0].material.verdict
    assert verdict is not None
    assert set(verdict.arms) == {f"first/{arm}" for arm in material.arms} | {
        f"second/{arm}" for arm in other.arms
    }
    # One seed is in both runs; differences are those of the table.
    assert verdict.seeds == 1
    (pair,) = (each for each in verdict.pairs if {each.one, each.two} == {"first/reo_exp", "second/reo_exp"})
    other_way = pair if pair.one == "second/reo_exp" else pair.turned()
    folders = other.evaluations["reo_exp", 1], material.evaluations["reo_exp", 1]
    assert other_way.value == pytest.approx(difference(*folders))
    assert escape(sentences(verdict)[0]) in header
    assert read_verdict(tmp_path)["sentences"] == list(sentences(verdict))
    (said,) = re.findall(r'class="lede">([^<]*)<', header)
    main = pl.read_parquet(tmp_path / "tables" / "main.parquet").filter(pl.col("benchmark") == "mean")
    apart = {
        row["arm"].removeprefix("second/"): row["difference"]
        for row in main.filter(pl.col("difference").is_not_null()).to_dicts()
        if row["difference_star"]
    }
    assert said.startswith("second against first: ")
    for arm, value in apart.items():
        words = said[: said.index(f"{arm} (")]
        assert words.rpartition(" for ")[0].endswith("lower" if value < 0 else "higher"), said
    assert ("significantly different" in said) == (len(apart) < len(other.arms))
    assert "change of REG ↓" in html
    assert "seeds" in html[html.index('id="specs"') :]
    # Every number leads to its result.
    targets = set(re.findall(r'href="#(made-[^"]+)"', html))
    assert targets
    assert targets <= set(re.findall(r'id="(made-[^"]+)"', html))
    assert "reodsl report 20260101T000000" in html
    assert {path.name for path in (tmp_path / "tables").iterdir()} >= {"main.csv", "curves.parquet"}
    assert 'data-arm="second/reo_exp"' in html
