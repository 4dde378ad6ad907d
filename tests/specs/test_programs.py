"""The spec of a code task: compiled and priced here, run in miniature by `make heavy`."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import reodsl
from reodsl.graph.lower import lower
from reodsl.ir.data import After, Boxed, Code
from reodsl.ir.data import Tests as ByTests
from reodsl.language import check_file, compile_file
from reodsl.price import price
from runners.sandbox import lacking

SPEC = Path(__file__).resolve().parents[2] / "specs" / "code" / "programs.reo"


def test_it_compiles_and_is_priced() -> None:
    compiled = compile_file(SPEC)
    assert compiled.diagnostics == ()
    assert compiled.spec is not None
    data = compiled.spec.study.arms[0].suite.benchmarks[0].data
    assert (data.verifier, data.answer) == (ByTests(seconds=5.0), (After(marker="answer"),))
    prices = price(lower(compiled.spec), compiled.spec)
    assert prices.tasks["practised.train.s1"].verified > 0


@pytest.mark.parametrize(
    ("settings", "readers"),
    [
        ("verifier = tests()", (Code(),)),
        ("verifier = tests(), answer = boxed", (Boxed(),)),
        ("verifier = exact, answer = [code, boxed]", (Code(), Boxed())),
        ("verifier = exact", (Boxed(),)),
    ],
)
def test_programs_are_read_from_blocks_of_code(settings: str, readers: object, tmp_path: Path) -> None:
    text = SPEC.read_text().replace(
        'verifier = tests(seconds: 5 seconds)\n  answer   = after("answer")', settings
    )
    (tmp_path / "spec.reo").write_text(text)
    spec = compile_file(tmp_path / "spec.reo").spec
    assert spec is not None
    assert spec.study.arms[0].suite.benchmarks[0].data.answer == readers


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("tests(seconds: 5 seconds)", "tests(seconds: 0 seconds)"), "E0303"),
        (("steps: 1..2", "steps: 0..2"), "E0303"),
        (("    count: 1024,", "    count: 1024,\n    traces: chain_clean,"), "E0310"),
    ],
)
def test_mistakes_are_told(change: tuple[str, str], code: str, tmp_path: Path) -> None:
    text = SPEC.read_text().replace(*change)
    text = text.replace("from std.recipes", "from std.miniature import chain_clean\nfrom std.recipes")
    (tmp_path / "spec.reo").write_text(text if code == "E0310" else SPEC.read_text().replace(*change))
    assert code in {each.code for each in check_file(tmp_path / "spec.reo").diagnostics}


@pytest.mark.heavy
@pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "programs.reo").write_text(SPEC.read_text())
    monkeypatch.chdir(tmp_path)
    reodsl.load("programs.reo").run(local=True, quiet=True)
    samples = pl.concat(map(pl.read_parquet, tmp_path.glob("runs/*/arms/*/samples.parquet")))
    assert samples["correct"].mean() > 0.1
    assert samples["unsettled"].null_count() == samples.height
