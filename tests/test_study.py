"""The README's table of a study, from tables as a report writes them; the page around it stays as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import pictures, study, tables
from reodsl.numbers.reg import holm
from reodsl.numbers.verdict import from_json
from reodsl.report import drawing
from reodsl.report.verdict_words import sentences


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two arms and three seeds, the columns that the table reads; of several benchmarks only the mean is told."""
    kept, read = tmp_path / "kept", tmp_path / "run" / "tables"
    monkeypatch.setattr(tables, "KEPT", kept)
    kept.mkdir()
    read.mkdir(parents=True)
    arms = {"vanilla": (0.97, 53.3, 21.04, None), "reo_exp": (0.974, 29.81, 0.6, -20.44)}
    main = [
        {
            "arm": arm,
            "benchmark": benchmark,
            "accuracy": accuracy,
            "accuracy_sd": 0.0123,
            "length": length,
            "difference": gap,
            "difference_low": None if gap is None else gap - 2,
            "difference_high": None if gap is None else gap + 2,
            "difference_star": None if gap is None else True,
        }
        for arm, (accuracy, length, reg, gap) in arms.items()
        for benchmark in ("easy", "mean")
    ]
    seeds = [
        {"arm": arm, "benchmark": "mean", "seed": seed, "accuracy": accuracy + seed / 1000, "reg": reg + seed}
        for arm, (accuracy, _, reg, _) in arms.items()
        for seed in (3, 1, 2)
    ]
    pl.DataFrame(main).write_parquet(read / "main.parquet")
    pl.DataFrame(seeds).write_parquet(read / "per_seed.parquet")
    (tmp_path / "run" / "verdict.json").write_text('{"sentences": ["reo_exp leads.", "On 3 seeds."]}')
    return tmp_path / "run"


def table_of(run: Path) -> str:
    study.keep(run)
    return study.text().split("\n\n")[1]


def test_the_readmes_table_is_written_from_the_kept_numbers() -> None:
    page = study.README.read_text()
    assert tables.place(page, {"study": study.text()}) == page


@pytest.mark.parametrize("uncertain", [0.17, 0.45, 0.89])
def test_the_kept_study_is_corrected_as_one_family(uncertain: float) -> None:
    """Holm's steps over REG of all pairs and accuracy; the three accuracies that are as good as equal change no step."""
    data = json.loads((tables.KEPT / "study_verdict.json").read_text())
    verdict = from_json(data)
    assert list(sentences(verdict)) == data["sentences"]
    rows = {row["arm"]: row for row in tables.read_rows("study")}
    accuracy = {"base": 19, "shrink_64": 9}
    own = [float(rows[arm]["accuracy_change_p"]) / left for arm, left in accuracy.items()]
    corrected = holm([*(pair.p or 0.0 for pair in verdict.pairs), *own, *[uncertain] * 3])
    assert len(corrected) == verdict.comparisons == 20
    assert corrected[:15] == pytest.approx([pair.p_holm for pair in verdict.pairs])
    assert [p <= 0.05 for p in corrected[:15]] == [pair.significant for pair in verdict.pairs]
    assert [round(p, 6) for p in corrected[15:17]] == [
        float(rows[arm]["accuracy_change_p"]) for arm in accuracy
    ]
    for pair in verdict.against_baseline:
        row = rows[pair.one]
        assert float(row["difference_p"]) == pytest.approx(pair.p_holm, abs=1e-6)
        assert (row["difference_star"] == "true") == pair.significant
        assert float(row["difference"]) == pytest.approx(pair.value, abs=1e-6)


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [("difference_star", False, "| -20.4 [-22.4, -18.4] |"), ("accuracy_sd", None, "| 97.0% | 53.3 |")],
)
def test_a_star_is_the_tables_and_one_seed_has_no_deviation(
    run: Path, column: str, value: object, shown: str
) -> None:
    path = run / "tables" / "main.parquet"
    main = pl.read_parquet(path)
    main.with_columns(pl.lit(value, main.schema[column]).alias(column)).write_parquet(path)
    assert shown in table_of(run)


def test_each_arm_has_a_row_with_its_paired_difference_first(run: Path) -> None:
    head, _, vanilla, reo = table_of(run).split("\n")
    assert head == "| mean of 3 seeds | REG vs. vanilla [95% interval] | accuracy ± SD | tokens |"
    assert vanilla == "| vanilla |  | 97.0 ± 1.2% | 53.3 |"
    assert reo == "| reo_exp | -20.4* [-22.4, -18.4] | 97.4 ± 1.2% | 29.8 |"


def test_the_table_goes_between_the_readmes_markers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = run.parent
    begin, end = "<!-- study: begin -->", "<!-- study: end -->"
    (root / "README.md").write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    monkeypatch.setattr(study, "README", root / "README.md")
    monkeypatch.setattr("sys.argv", ["study", str(run)])
    study.main()
    text = (root / "README.md").read_text()
    assert text == f"before\n{begin}\nreo_exp leads. On 3 seeds.\n\n{table_of(run)}\n{end}\nafter\n"


def test_every_picture_of_the_documents_is_what_the_script_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = pictures.draw()
    assert {path.stem for path in pictures.DOCS.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (pictures.DOCS / f"{name}.svg").read_text() == text, f"{name}: python -m benchmarks.pictures"
    # A browser's letters are its machine's, so of a screenshot the page is compared.
    monkeypatch.setattr(drawing, "vega_script", str)
    kept = json.loads(pictures.SCREENSHOTS.read_text())
    assert pictures.digests(pictures.report_page()) == kept, "python -m benchmarks.pictures, with Chromium"
    shown = re.findall(r'(?:src|srcset)="docs/([^"]+)"', study.README.read_text())
    assert {"page", *shown} == set(kept)


def test_the_pictured_run_is_scored_as_its_curves_say() -> None:
    material, table = pictures.read_kept()
    rows = dict(table.select("arm", "reg_plain").iter_rows())
    edge = material.frontiers.sort("budget")
    for (arm,), curve in material.curves.sort("budget").group_by("name"):
        lost = edge["accuracy"].to_numpy() - curve["accuracy"].to_numpy()
        assert np.trapezoid(lost, curve["budget"]) == pytest.approx(rows[arm], abs=0.01)
    assert set(rows) == set(material.arms)
