"""Reports of odd shapes: two hundred arms, one arm, no baseline, one question, and nothing but a training under way."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest

from reodsl.ir.study import Arm, Score
from reodsl.report.figures import Gallery, curve_group
from reodsl.report.material import Material
from reodsl.report.page import page
from reodsl.report.ranking import MOST, MOST_LISTED, keep_arms


def change(
    material: Material, arms: tuple[Arm, ...], score: Score | None, **frames: pl.DataFrame
) -> Material:
    """The material of a study with these arms and this score, without responses and trainings."""
    names = {arm.name for arm in arms}
    frontiers = tuple(
        each.model_copy(update={"of": tuple(name for name in each.of if name in names)})
        for each in material.study.frontiers
    )
    changed = {"arms": arms, "score": score, "frontiers": frontiers, "charts": (), "tables": ()}
    study = material.study.model_copy(update=changed)
    spec = material.spec.model_copy(update={"study": study})
    return replace(
        material, spec=spec, evaluations={}, trainings={}, metrics=material.metrics.clear(), **frames
    )


def test_two_hundred_arms(material: Material) -> None:
    arms = material.study.arms
    names = [f"arm{number}" for number in range(200 - len(arms))]

    def repeat(frame: pl.DataFrame, column: str) -> pl.DataFrame:
        one = frame.filter(pl.col(column) == "shrink")
        return pl.concat([frame, *(one.with_columns(pl.lit(name).alias(column)) for name in names)])

    shrink = next(arm for arm in arms if arm.name == "shrink")
    many = change(
        material,
        (*arms, *(shrink.model_copy(update={"name": name}) for name in names)),
        material.study.score,
        curves=repeat(material.curves, "name"),
        summary=repeat(material.summary, "arm"),
        scores=repeat(material.scores, "arm"),
    )
    gallery = Gallery()
    html = page(many, gallery, {})
    assert len(html) < 10_000_000
    # The baseline is named though it is not among the best.
    assert re.search(rf"and {200 - MOST_LISTED - 1}|and {200 - MOST_LISTED} more, in the table", html)
    assert f"Charts show {MOST} of 200 arms" in html
    assert html.count('role="rowheader"') == 200
    # Curves of all have a button and a line for each; a description names some and counts the others.
    group = str(curve_group(whole := Gallery(), many, "curves", ["mean"]))
    spec = whole.specs["curves-Average"]
    assert {row["arm"] for row in spec["datasets"][spec["usermeta"]["cross"]["data"]]} == set(many.arms)
    assert (group.count('data-arm="'), spec["description"].count("and 188 more")) == (200, 1)


def test_one_arm(material: Material) -> None:
    (arm,) = (arm for arm in material.study.arms if arm.name == "vanilla")
    alone = keep_arms(material, ("vanilla",))
    html = page(change(alone, (arm,), material.study.score), Gallery(), {})
    assert "<b>1</b> arm<" in html
    assert 'data-arm="vanilla"' in html


def test_no_baseline(material: Material) -> None:
    score = material.study.score
    assert score is not None
    plain = score.model_copy(update={"relative_to": None})
    scores = material.scores.drop(pl.selectors.contains("difference", "change", "star"), strict=False)
    html = page(
        change(replace(material, verdict=None), material.study.arms, plain, scores=scores), Gallery(), {}
    )
    assert "REG in tokens" in html
    assert "None" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_one_question_and_a_training_alone(material: Material) -> None:
    one = material.summary.with_columns(pl.lit(1, pl.Int64).alias("questions"))
    html = page(change(material, material.study.arms, material.study.score, summary=one), Gallery(), {})
    assert "<b>3</b> questions" in html
    empty = {name: getattr(material, name).clear() for name in ("summary", "curves", "scores")}
    begun = change(replace(material, verdict=None), material.study.arms, material.study.score, **empty)
    html = page(replace(begun, metrics=material.metrics.filter(pl.col("at") < 3)), Gallery(), {})
    assert "Nothing is evaluated yet." in html
    assert "No arm is evaluated yet; 6 of 6 arms began to train." in html
    assert 'id="training"' in html


@pytest.mark.usefixtures("undrawn")
def test_without_a_score_the_first_screen_says_what_there_is(material: Material) -> None:
    def said(shown: Material) -> str:
        (words,) = re.findall(r'class="verdict">(.*?)</div>', page(shown, Gallery(), {}))
        return re.sub("<[^>]*>", "", words)

    unscored = replace(material, verdict=None, scores=pl.DataFrame())
    means = material.summary.filter(benchmark="mean")
    best, least = (means.sort(name).to_dicts() for name in ("accuracy", "length"))
    assert said(change(unscored, material.study.arms, None)) == (
        f"{best[-1]['arm']} has the highest accuracy, {100 * best[-1]['accuracy']:.1f}%, and {least[0]['arm']} the least "
        f"mean length, {least[0]['length']:.1f} tokens."
        "The study names no score, so no difference between its arms is tested."
    )
    arms = tuple(arm for arm in material.study.arms if arm.name == "base")
    alone = said(change(keep_arms(unscored, ("base",)), arms, None))
    assert re.fullmatch(
        r"Only base is evaluated: its accuracy is [\d.]+%, its mean length [\d.]+ tokens\.", alone
    )
    charts = said(change(keep_arms(unscored, ()), (), None))
    assert charts == "This study compares no models: it has 0 charts of frontiers or of rules for budgets."
