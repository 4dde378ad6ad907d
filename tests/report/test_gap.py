"""The causes of the gap on the page: parts of each arm that add up to its difference of REG, with the score's interval."""

from __future__ import annotations

from dataclasses import replace

import pytest
from polars.testing import assert_frame_equal

from reodsl.numbers.arm_scores import ArmScores, arm_scores
from reodsl.numbers.intervals import score_arms
from reodsl.numbers.verdict import CAUSES
from reodsl.report import gap
from reodsl.report.gap import gap_chart, gap_rows, gap_table
from reodsl.report.markup import render
from reodsl.report.material import Material


@pytest.mark.parametrize("study", ["material", "of_seeds"])
def test_causes_add_up_to_the_difference_of_reg(study: str, request: pytest.FixtureRequest) -> None:
    """Of scores of the same files: the synthetic study's own are of its curves."""
    material: Material = request.getfixturevalue(study)
    arms: dict[str, list[ArmScores]] = {}
    for (arm, _), folder in sorted(material.evaluations.items(), key=lambda item: item[0][1] or 0):
        scores, budgets = arm_scores(folder, arm)
        arms.setdefault(arm, []).append(scores)
    seeds, edge = material.seeds, ["base", "vanilla"]
    scored = score_arms(arms, budgets, edge, seeds=seeds, l_max=128, grid=budgets, relative_to="vanilla")
    rows = {(r["arm"], r["benchmark"], r["cause"]): r for r in gap_rows(material).to_dicts()}
    rests = set()
    for score in (row for row in scored if row.seed is None):
        whole = rows[score.model, score.benchmark, "all"]
        parts = [rows[score.model, score.benchmark, cause] for cause in CAUSES]
        assert sum(part["value"] for part in parts) == pytest.approx(whole["value"])
        # What the frontier loses is one number for all arms.
        assert score.reg_plain is not None
        rests.add((score.benchmark, round(whole["value"] - score.reg_plain, 6)))
        if score.model != "vanilla":
            assert score.difference is not None
            ends = score.difference.value, score.difference.low, score.difference.high
            assert (whole["change"], whole["change_low"], whole["change_high"]) == pytest.approx(ends)
            assert sum(part["change"] for part in parts) == pytest.approx(score.difference.value)
    assert len(rests) == len({place for place, _ in rests})


def test_the_losses_of_a_few_questions_at_a_time_are_those_of_all(
    of_seeds: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = gap_rows(of_seeds)
    monkeypatch.setattr(gap, "BATCH_RESPONSES", 3)
    assert_frame_equal(gap_rows(of_seeds), rows)


def test_the_page_shows_them_and_has_none_without_a_score(material: Material) -> None:
    rows = gap_rows(material)
    html = render(gap_table(material, rows))
    assert all(f'<th scope="col">{words}</th>' in html for words in (*CAUSES.values(), "together"))
    assert html.count("<tr") == 1 + len(material.arms)
    drawn = gap_chart(rows)
    (data,) = drawn["datasets"].values()
    assert len(data) == len(CAUSES) * len(material.arms)
    study = material.study.model_copy(update={"score": None})
    assert gap_rows(replace(material, spec=material.spec.model_copy(update={"study": study}))).is_empty()
