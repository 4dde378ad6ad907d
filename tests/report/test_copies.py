"""Tables to copy say what the page says, in forms that other programs read, whatever the arms are called."""

from __future__ import annotations

import csv
import io

from reodsl.report.main_table import buttons, latex, markdown, plain, rows
from reodsl.report.material import Material
from reodsl.report.tables import main

COLUMNS = ("accuracy", "length", "reg")


def test_csv_has_the_numbers_of_the_table(material: Material) -> None:
    table = main(material)
    head, body = rows(material, table, None, COLUMNS)
    read = list(csv.DictReader(io.StringIO(plain(head, body))))
    assert head[:3] == ["arm", "Average REG vs. vanilla", "Average Acc (%)"]
    for line in read:
        (row,) = table.filter((table["arm"] == line["arm"]) & (table["benchmark"] == "mean")).to_dicts()
        assert abs(float(line["Average Acc (%)"]) - 100 * row["accuracy"]) < 0.051
        assert abs(float(line["Average REG"]) - row["reg"]) < 0.051
        if line["arm"] == "vanilla":
            assert line["Average REG vs. vanilla"] == ""
        else:
            assert abs(float(line["Average REG vs. vanilla"]) - row["difference"]) < 0.051


def test_latex_and_markdown_have_a_cell_for_each(material: Material) -> None:
    head, body = rows(material, main(material), ["reo_exp", "vanilla"], COLUMNS)
    tabular = latex(head, body).split("\n")
    assert tabular[0] == f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    assert all(line.count(" & ") == len(head) - 1 for line in tabular if line.endswith("\\\\"))
    assert "reo\\_exp" in tabular[4]
    lines = markdown(head, body).split("\n")
    assert {line.count(" | ") for line in (lines[0], *lines[2:])} == {len(head) - 1}


def test_names_break_out_of_no_form() -> None:
    head, body = ["arm", "a & b"], [["x|y & 100% \\input{/etc/passwd} `z` <b>", "−1.0*"], ["=1+1", "–"]]
    tabular = latex(head, body)
    assert "\\input" not in tabular
    assert r"\textbackslash{}input\{/etc/passwd\}" in tabular
    assert "$-$1.0$^{*}$" in tabular
    assert markdown(head, body).split("\n")[2].count(" | ") == 1
    table = list(csv.reader(io.StringIO(plain(head, body))))
    assert table[1] == [body[0][0], "-1.0"]
    assert table[2] == ["'=1+1", ""]


def test_the_page_has_a_button_for_each_form(material: Material) -> None:
    found = str(buttons("main", material, main(material)))
    for form in ("latex", "markdown", "csv"):
        assert f'data-copy="main-{form}"' in found
        assert f'id="main-{form}"' in found
