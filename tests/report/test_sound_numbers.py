"""What the page says of numbers: pairs that are apart are marked, and percentages stand only where they mean something."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from reodsl.numbers.intervals import ArmScores, score_arms
from reodsl.report import tables
from reodsl.report.main_table import main_table
from reodsl.report.material import Material

BUDGETS = (0, 64, 128)
QUESTIONS = 60


def scored(material: Material, baseline: float) -> Material:
    """The material with a real score, in which `vanilla` and `shrink` are below the frontier of `base` by `baseline`."""
    rng = np.random.default_rng(1)

    def arm(shift: float) -> list[ArmScores]:
        forced = np.clip(0.5 + shift + rng.normal(0, 0.05, (QUESTIONS, 3)), 0, 1)
        return [ArmScores({"easy": forced}, {"easy": forced[:, 2]}, {"easy": rng.uniform(10, 90, QUESTIONS)})]

    shifts = {"base": 0.0, "vanilla": -baseline, "reo_exp": 0.3, "shrink": -baseline}
    rows = score_arms(
        {name: arm(shift) for name, shift in shifts.items()},
        BUDGETS,
        ["base"],
        l_max=128,
        grid=BUDGETS,
        relative_to="vanilla",
    )
    values = []
    for row in rows:
        measures = ("reg", "difference", "accuracy", "length", "accuracy_change", "length_change")
        known = {name: getattr(row, name) for name in measures if getattr(row, name) is not None}
        ends = {
            f"{name}{end}": getattr(each, part)
            for name, each in known.items()
            for end, part in (("", "value"), ("_low", "low"), ("_high", "high"), ("_star", "significant"))
        }
        values.append(
            {"arm": row.model, "benchmark": row.benchmark, "seed": None}
            | ends
            | {"reg_plain": row.reg_plain, "change_pct": row.change_pct}
        )
    scores = pl.DataFrame(values, infer_schema_length=None).with_columns(pl.col("seed").cast(pl.Int64))
    kept = material.summary.filter(pl.col("arm").is_in(list(shifts)))
    return replace(material, scores=scores, summary=kept)


def cell(html: str, arm: str) -> str:
    """The cell of an arm with its difference of REG on average."""
    row = re.search(rf'<tr[^>]*><th[^>]*title="{arm}".*?</tr>', html)
    assert row is not None
    return re.findall(r"<td.*?</td>", row[0])[0]


@pytest.mark.parametrize(("baseline", "percent"), [(0.0, False), (0.2, True)])
def test_a_percentage_stands_only_where_its_denominator_is_apart_from_0(
    material: Material, baseline: float, percent: bool
) -> None:
    shown = scored(material, baseline)
    table = tables.main(shown)
    vanilla = table.filter(arm="vanilla", benchmark="mean").row(0, named=True)
    assert (vanilla["reg_low"] <= 0 <= vanilla["reg_high"]) is not percent
    html = str(main_table(shown, table))
    assert ("%</span>" in cell(html, "reo_exp")) is percent


def test_a_pair_that_is_apart_is_marked_and_another_is_not(material: Material) -> None:
    shown = scored(material, 0.2)
    table = tables.main(shown)
    html = str(main_table(shown, table))
    assert re.search(r'<b class="good">−[\d.]+\*</b>', cell(html, "reo_exp"))
    assert "*" not in cell(html, "shrink")
    assert 'class="good"' not in cell(html, "shrink")
