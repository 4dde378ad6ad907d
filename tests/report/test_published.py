"""Published numbers beside measured ones: the difference, what is list_unmatched, and the balanced subset by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.study import PublishedRow, PublishedTable, Table
from reodsl.report import tables
from reodsl.report.figures import Gallery
from reodsl.report.material import Material
from reodsl.report.page import page
from reodsl.report.study_tables import balanced_table, compare_numbers, list_unmatched

PRINTED = PublishedTable(
    name="printed",
    doc="Table 1 of a paper.",
    benchmarks=("easy", "unheard_of", "mean"),
    relative_to="vanilla",
    rows=(
        PublishedRow(name="vanilla", title="Vanilla RL", accuracy=(0.9, 0.5, 0.8), reg=(9.0, 8.0, 7.0)),
        PublishedRow(name="reo_exp", title="REO-RL (Exp)", length=(30.0, 20.0, 25.0), reg_change=(-0.5, 0, -0.6)),
        PublishedRow(name="frontier_model", title="A model of others", accuracy=(0.99, 0.9, 0.95)),
    ),
)  # fmt: skip


def wanted(columns: tuple[str, ...] = ("accuracy", "length", "reg"), **more: object) -> Table:
    rows = ("vanilla", "reo_exp", "group_norm")
    return Table.model_validate({"name": "main", "rows": rows, "columns": columns} | more)


def test_measured_published_and_their_difference(material: Material) -> None:
    main = tables.main(material)
    frame = compare_numbers(wanted(published=PRINTED), main)
    found = {(row["arm"], row["benchmark"], row["measure"]): row for row in frame.to_dicts()}
    here = {(row["arm"], row["benchmark"]): row for row in main.to_dicts()}
    for arm, place, measure, printed in (
        ("vanilla", "easy", "accuracy", 0.9),
        ("vanilla", "mean", "reg", 7.0),
        ("reo_exp", "easy", "length", 30.0),
        ("reo_exp", "mean", "change_pct", -60.0),
    ):
        row = found[arm, place, measure]
        own = here[arm, place].get({"reg": "reg_plain"}.get(measure, measure))
        if measure == "change_pct":
            # As printed: of REG against the plain frontier.
            plain, base = (here[name, place]["reg_plain"] for name in (arm, "vanilla"))
            own = 100 * (plain - base) / base
        assert row["published"] == pytest.approx(printed)
        assert (row["measured"], row["difference"]) == pytest.approx((own, own - printed))
    assert found["reo_exp", "mean", "length"]["title"] == "REO-RL (Exp)"
    # Missing on either side: kept, without a difference.
    assert found["frontier_model", "mean", "accuracy"]["measured"] is None
    assert found["group_norm", "mean", "length"]["published"] is None
    assert found["vanilla", "unheard_of", "accuracy"]["difference"] is None
    assert found["vanilla", "medium", "accuracy"]["published"] is None


def test_only_the_columns_of_the_table_are_compared(material: Material) -> None:
    frame = compare_numbers(wanted(("accuracy",), published=PRINTED), tables.main(material))
    assert set(frame["measure"]) == {"accuracy"}


def test_what_is_missing_is_said(material: Material) -> None:
    table = wanted(published=PRINTED)
    lines = list_unmatched(table, compare_numbers(table, tables.main(material)))
    assert lines == [
        "Published and not measured here: A model of others.",
        "Measured and not published: group_norm.",
        "Benchmarks in print that were not evaluated here: unheard_of.",
    ]


@pytest.mark.usefixtures("undrawn")
def test_the_page_shows_both(material: Material) -> None:
    table = wanted(published=PRINTED)
    study = material.study.model_copy(update={"tables": (table,)})
    text = page(replace(material, spec=material.spec.model_copy(update={"study": study})), Gallery(), {})
    assert "Comparison with published numbers" in text
    assert "Published and not measured here: A model of others." in text
    assert text.count("<details><summary>easy</summary>") == 1
    assert "Comparison with published numbers" not in page(material, Gallery(), {})


def evaluation(folder: Path, draw: random.Random, p: float, samples: int) -> list[dict[str, object]]:
    """Samples of five questions on each of two benchmarks, in no order."""
    rows: list[dict[str, object]] = [
        {"benchmark": name, "question": f"q{q}", "sample": s, "tokens": draw.randint(1, 90), "correct": draw.random() < p,
         "text": "1 + 1", "gold": "2", "response": "so 2", "finish": "stop", "answer": "2"}
        for name in ("easy", "hard")
        for q in range(5)
        for s in range(samples)
    ]  # fmt: skip
    draw.shuffle(rows)
    folder.mkdir()
    pl.DataFrame(rows).write_parquet(folder / "samples.parquet")
    return rows


def slowly(models: dict[str, list[dict[str, object]]]) -> tuple[int, dict[str, tuple[float, float]]]:
    """The subset's size, and by model (accuracy, mean over questions of the mean length of right responses)."""
    names = {(row["benchmark"], row["question"]) for rows in models.values() for row in rows}
    kept = []
    for name in names:
        own = [[r for r in rows if (r["benchmark"], r["question"]) == name] for rows in models.values()]
        if all(sum(bool(r["correct"]) for r in rows) * 2 > len(rows) for rows in own):
            kept.append(name)
    found = {}
    for model, rows in models.items():
        lengths, shares = [], []
        for name in kept:
            own_rows = [r for r in rows if (r["benchmark"], r["question"]) == name]
            hits = [float(r["tokens"]) for r in own_rows if r["correct"]]  # type: ignore[arg-type]
            lengths.append(sum(hits) / len(hits))
            shares.append(len(hits) / len(own_rows))
        found[model] = (sum(shares) / len(kept), sum(lengths) / len(kept))
    return len(kept), found


def test_the_balanced_subset_question_by_question(material: Material, tmp_path: Path) -> None:
    draw = random.Random(3)
    models = {
        "vanilla": evaluation(tmp_path / "vanilla", draw, 0.8, 4),
        "reo_exp": evaluation(tmp_path / "reo_exp", draw, 0.75, 6),
        "group_norm": evaluation(tmp_path / "group_norm", draw, 0.8, 5),
    }
    # A model as it comes belongs to no seed.
    folders = {
        ("vanilla", None): tmp_path / "vanilla",
        ("reo_exp", 1): tmp_path / "reo_exp",
        ("group_norm", 1): tmp_path / "group_norm",
    }
    size, expected = slowly(models)
    assert 0 < size < 10
    subset = balanced_table(replace(material, evaluations=folders), tuple(models))
    assert (subset.questions, subset.num_questions) == ((size,), 10)
    for row in subset.table.to_dicts():
        assert (row["accuracy"], row["length"]) == pytest.approx(expected[row["arm"]])
        assert row["seeds"] == 1
    # Fewer models, a larger subset.
    assert balanced_table(replace(material, evaluations=folders), ("vanilla",)).questions[0] >= size


@pytest.mark.usefixtures("undrawn")
def test_a_balanced_table_on_the_page(material: Material, tmp_path: Path) -> None:
    draw = random.Random(3)
    folders = {}
    for name in ("vanilla", "reo_exp"):
        evaluation(tmp_path / name, draw, 0.9, 4)
        folders[name, 1] = tmp_path / name
    printed = PublishedTable(
        name="p", doc="", benchmarks=("mean",), rows=(PublishedRow(name="vanilla", title="V", length=(40.0,)),)
    )  # fmt: skip
    table = wanted(("length", "accuracy"), rows=("vanilla", "reo_exp"), subset="balanced", published=printed)
    study = material.study.model_copy(update={"tables": (table,)})
    spec = material.spec.model_copy(update={"study": study})
    # Examples of the synthetic study have other questions: they are left out here.
    text = page(
        replace(material, spec=spec, evaluations=folders, curves=material.curves.clear()), Gallery(), {}
    )
    assert "of 10 questions that every arm of this table solves" in text
    assert "Measured and not published: reo_exp." in text


def test_arms_with_other_questions_make_no_subset(material: Material, tmp_path: Path) -> None:
    draw = random.Random(1)
    evaluation(tmp_path / "one", draw, 0.9, 2)
    rows = evaluation(tmp_path / "two", draw, 0.9, 2)
    pl.DataFrame([row | {"question": f"other {row['question']}"} for row in rows]).write_parquet(
        tmp_path / "two" / "samples.parquet"
    )
    folders = {("vanilla", 1): tmp_path / "one", ("reo_exp", 1): tmp_path / "two"}
    with pytest.raises(Problem) as caught:
        balanced_table(replace(material, evaluations=folders), ("vanilla", "reo_exp"))
    assert caught.value.diagnostics[0].code == "E0431"
