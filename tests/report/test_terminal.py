"""The table on a terminal: the page's numbers, readable without colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
from rich.console import Console

from reodsl.ir.expression import Constant
from reodsl.ir.reward import Measure
from reodsl.ir.study import Table
from reodsl.report import tables
from reodsl.report.export import report_tables, write_spec, write_tables, write_verdict
from reodsl.report.material import Material
from reodsl.report.results import report_summary, summary_table
from reodsl.report.verdict_words import sentences


def shown(table: object) -> list[str]:
    console = Console(width=200, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def in_a_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_each_arm_has_a_line_with_its_numbers(material: Material) -> None:
    table = tables.main(material)
    lines = shown(summary_table(material.study, table, average_only=True))
    count = len(material.arms)
    assert [line.split()[0] for line in lines[1 : count + 1]] == list(material.arms)
    row = table.filter((pl.col("arm") == "reo_exp") & (pl.col("benchmark") == "mean")).to_dicts()[0]
    line = next(line for line in lines if line.startswith("reo_exp"))
    assert f"{100 * row['accuracy']:.1f}" in line
    assert f"{row['length']:.1f}" in line
    assert f"−{abs(row['difference']):.1f}* [" in line
    assert "%" not in line


def test_a_report_folder_is_enough(of_seeds: Material, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", report_tables(of_seeds))
    write_spec(tmp_path / "spec.reo.json", of_seeds)
    lines = shown(report_summary(tmp_path))
    assert "easy" in lines[0]
    assert "Average" in lines[0]
    assert lines[2 + len(of_seeds.arms)].startswith(
        "* significantly different from vanilla (Holm-corrected)."
    )


def test_what_does_not_fit_is_left_to_the_report(material: Material, tmp_path: Path) -> None:
    """Intervals first, then measures from the last one on; what is named is whole."""
    names = ("brief(0.5)", "long_name_of_a_measure", "more")
    shape = Table(
        name="main",
        rows=material.arms,
        columns=("accuracy", *(Measure(name=name, value=Constant(value=1)) for name in names)),
    )
    spec = material.spec.model_copy(
        update={"study": material.study.model_copy(update={"tables": (shape,), "charts": ()})}
    )
    row = {"benchmark": "mean", "value": 0.25, "low": None, "high": None}
    row |= dict.fromkeys(("change", "change_low", "change_high"))
    measured = pl.DataFrame(
        [row | {"arm": "base", "measure": number} for number in range(len(names))], infer_schema_length=None
    ).cast({name: pl.Float64() for name in row if name != "benchmark"})
    changed = replace(material, spec=spec, measures=measured)
    write_tables(tmp_path / "tables", report_tables(changed))
    write_spec(tmp_path / "spec.reo.json", changed)
    for width, left in ((200, ()), (80, ("long_name_of_a_measure", "more")), (20, names)):
        lines = shown(report_summary(tmp_path, average_only=True, width=width))
        heads = next(line for line in lines if line.startswith("arm"))
        assert [name in heads for name in names] == [name not in left for name in names]
        text = in_a_line(lines)
        assert (f"The report has {', '.join(left)} too." in text) is bool(left)


def test_the_verdict_comes_first(of_seeds: Material, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", report_tables(of_seeds))
    write_spec(tmp_path / "spec.reo.json", of_seeds)
    write_verdict(tmp_path / "verdict.json", of_seeds.verdict)
    said = " ".join(sentences(of_seeds.verdict))
    assert said
    assert in_a_line(shown(report_summary(tmp_path, average_only=True))).startswith(
        f"{said} arm REG vs. vanilla"
    )


def test_names_are_no_markup(material: Material) -> None:
    table = tables.main(material).with_columns(
        pl.col("arm").replace("reo_exp", "[red]x[/red]"),
        pl.col("benchmark").replace("easy", "[bold]e[/bold]"),
    )
    text = "\n".join(shown(summary_table(material.study, table)))
    assert "[red]x[/red]" in text
    assert "[bold]e[/bold]" in text


def test_numbers_stand_alone_where_intervals_have_no_room(material: Material) -> None:
    table = tables.main(material)
    assert any("[" in line for line in shown(summary_table(material.study, table, average_only=True)))
    alone = shown(summary_table(material.study, table, average_only=True, intervals=False))
    assert not any("[" in line or "±" in line for line in alone)
    assert max(map(len, alone[: len(material.arms) + 1])) <= 60


def test_long_names_are_cut_and_no_number(material: Material, tmp_path: Path) -> None:
    tail = "_of_a_name_of_sixty_letters_that_goes_on_and_on"
    frames = report_tables(material)
    write_tables(tmp_path / "tables", frames | {"main": frames["main"].with_columns(pl.col("arm") + tail)})
    write_spec(tmp_path / "spec.reo.json", material)
    lines = shown(report_summary(tmp_path, average_only=True, width=60))[1 : 1 + len(material.arms)]
    assert {max(len(line.rstrip()) for line in lines) <= 60, *("…" in x.split()[0] for x in lines)} == {True}
    assert not any("…" in word for line in lines for word in line.split()[1:])


def test_brackets_and_marks_are_said(material: Material, of_seeds: Material) -> None:
    one = in_a_line(shown(summary_table(material.study, tables.main(material), average_only=True)))
    assert "Brackets: 95% intervals over questions." in one
    assert "With one seed they do not cover differences between training runs." in one
    several = in_a_line(shown(summary_table(of_seeds.study, tables.main(of_seeds), average_only=True)))
    assert (
        "Brackets: 95% intervals over 3 seeds and questions. * significantly different from vanilla (Holm-corrected)."
        in several
    )
    assert "±" not in several


def test_a_study_without_a_score_says_what_a_spread_is(of_seeds: Material) -> None:
    study = of_seeds.study.model_copy(update={"score": None})
    bare = replace(of_seeds, spec=of_seeds.spec.model_copy(update={"study": study}), scores=pl.DataFrame())
    text = in_a_line(shown(summary_table(study, tables.main(bare), average_only=True)))
    assert "±" in text.split("± is")[0]
    assert "± is one standard deviation over seeds." in text
