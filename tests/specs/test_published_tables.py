"""The paper's tables as constants: every number as printed, and in agreement with itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.study import PublishedTable
from reodsl.language import compile_file

ROOT = Path(__file__).resolve().parents[2]
PRINTED: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text())["tables"]
"""From the LaTeX source of the paper; the file says what is what."""

TABLES = {
    "main_deepseek_1_5b": "main DeepSeek-R1-Distill-Qwen-1.5B",
    "main_deepseek_7b": "main DeepSeek-R1-Distill-Qwen-7B",
    "main_qwen3_4b": "main Qwen3-4B",
    "main_qwen3_8b": "main Qwen3-8B",
    "ablation_deepseek_7b": "ablation",
    "frontier_models": "frontier",
    "l1_exact_24k": "l1",
    "z1_deepseek_1_5b": "z1",
}
BENCHMARKS = {
    "AIME 2024": "aime24", "AIME24": "aime24", "AIME 2025": "aime25", "AIME25": "aime25", "AMC 2023": "amc23",
    "AMC23": "amc23", "Minerva Math": "minerva", "MATH500": "math500", "GPQA": "gpqa", "Average": "mean",
    "balanced subset of 71 questions": "mean",
}  # fmt: skip
Constants = dict[str, PublishedTable]
SPEC = """
from std.miniature import overthinker, chain_suite, chain_easy_questions
from std.tables import NAME

benchmark aime24  { data = chain_easy_questions }
benchmark math500 { data = chain_easy_questions }
suite named = chain_suite { benchmarks = [aime24, math500] }

study it {
  arm base = checkpoint(overthinker) { eval = named }
  arm ROW  = checkpoint(overthinker) { eval = named }
  report { table main { rows = arms, columns = [accuracy, length], published = NAME } }
}
"""
ONE = {"frontier_models": "qwen3_4b", "l1_exact_24k": "exact_2k"}


@pytest.fixture(scope="module")
def constants(tmp_path_factory: pytest.TempPathFactory) -> Constants:
    """The tables of `std.tables` as a study has them."""
    found = {}
    path = tmp_path_factory.mktemp("published") / "spec.reo"
    for name in TABLES:
        path.write_text(SPEC.replace("NAME", name).replace("ROW", ONE.get(name, "another")))
        compiled = compile_file(path)
        assert compiled.spec is not None, [each.message for each in compiled.diagnostics]
        (table,) = compiled.spec.study.tables
        assert table.published is not None
        found[name] = table.published
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_number_is_as_printed(name: str, constants: Constants) -> None:
    printed, constant = PRINTED[TABLES[name]], constants[name]
    assert constant.benchmarks == tuple(BENCHMARKS[column] for column in printed["columns"])
    assert len(constant.rows) == len(printed["rows"])
    for row, (title, numbers) in zip(constant.rows, printed["rows"].items(), strict=True):
        assert title in row.title
        for measure in ("accuracy", "length", "reg", "reg_change"):
            scale = 0.01 if measure in ("accuracy", "reg_change") else 1
            assert getattr(row, measure) == pytest.approx(
                [scale * n for n in numbers.get(measure, ())], abs=1e-12
            )


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith(("main", "ablation"))])
def test_averages_and_changes_are_those_of_the_rows(name: str, constants: Constants) -> None:
    """`Average` is the mean of four benchmarks, and the small changes beside accuracies are differences of rows."""
    constant, printed = constants[name], PRINTED[TABLES[name]]["rows"]
    rows = {row.name: row for row in constant.rows}
    base = rows[constant.relative_to or ""]
    for row, numbers in zip(constant.rows, printed.values(), strict=True):
        for values, rounding in ((row.accuracy, 0.0011), (row.length, 0.11), (row.reg, 0.11)):
            if values:
                assert values[-1] == pytest.approx(sum(values[:-1]) / 4, abs=rounding)
        for value, other, change in zip(
            row.accuracy, base.accuracy, numbers.get("accuracy_change", ()), strict=False
        ):
            assert 100 * (value - other) == pytest.approx(change, abs=0.16)


def test_tables_that_share_rows_agree(constants: Constants) -> None:
    """The rows that the ablation repeats, under another name for Q-Spec."""
    main = [constants[name] for name in TABLES if name.startswith("main")]
    assert [len(table.rows) for table in main] == [16, 16, 10, 10]
    reo = {(table.name, row.name): row for table in constants.values() for row in table.rows}
    assert reo["main_qwen3_4b", "reo_exp"].reg_change[-1] == pytest.approx(-0.652)
    assert reo["main_deepseek_7b", "reo_qspec"].length == reo["ablation_deepseek_7b", "reo_qspec"].length
    shared = {row.name for row in constants["ablation_deepseek_7b"].rows} & {
        row.name for row in constants["main_deepseek_7b"].rows
    }
    assert shared == {"base", "vanilla", "reo_exp", "reo_oracle", "reo_qspec"}
    for name in shared:
        one, two = reo["main_deepseek_7b", name], reo["ablation_deepseek_7b", name]
        assert (one.accuracy, one.length, one.reg_change) == (two.accuracy, two.length, two.reg_change)
