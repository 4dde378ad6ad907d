"""REG, its bounds and differences from tables of responses: by hand, and as a run's own report has them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reodsl.numbers import arm_scores as arm_scores_module
from reodsl.numbers import responses
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.intervals import score_arms
from reodsl.numbers.reg import paper_grid
from reodsl.numbers.responses import read_responses, score_responses
from reodsl.share.evaluated import export
from runners.results.table import MOST_ROWS
from tests.called import call
from tests.share.evaluations import shared

GRID = (0, 8, 16)
HEAD = "model,benchmark,question,tokens,correct,finish,correct@0,correct@8,correct@16\n"
# By hand, answers at 0, 8 and 16: of `a` 0 1 1 and 0 0 1, of `b` 0 0 1 and 0 0 0.
TABLE = HEAD + "a,m,q,4,1,stop,0,1,1\na,m,r,12,1,stop,0,0,1\nb,m,q,12,1,stop,0,0,1\nb,m,r,16,0,length,0,0,0\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def brought(text: str, *options: str) -> str:
    Path("r.csv").write_text(text)
    assert call("import", "r.csv", *options, "-o", "t.parquet") == 0
    return "t.parquet"


def scored(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert call("reg", "t.parquet", *arguments, "--json") == 0, capsys.readouterr().err
    return {
        row["model"]: row for row in json.loads(capsys.readouterr().out)["rows"] if row["benchmark"] == "m"
    }


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert call("reg", "t.parquet", *arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "help: " in err
    return err


def value(row: dict[str, object], name: str) -> float:
    cell = row[name]
    assert isinstance(cell, dict)
    return float(cell["value"])


def edge(kind: str = "J") -> str:
    curve = {"budgets": GRID, "accuracy": [0.0, 0.5, 1.0], "kind": kind}
    Path("edge.json").write_text(json.dumps({"base": "it", "curves": {"m": curve}}))
    return "edge.json"


def test_forced_answers_give_reg_and_differences_without_a_frontier(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brought(TABLE)
    rows = scored(capsys, "--relative-to", "b")
    # Areas: a 8·(0 + 0.5)/2 + 8·(0.5 + 1)/2 = 8, b 8·(0 + 0.5)/2 = 2.
    assert value(rows["a"], "difference") == pytest.approx(-6)
    assert rows["a"]["reg"] is None
    rows = scored(capsys, "--frontier", edge(), "--base", "it", "--relative-to", "b")
    assert [value(rows[name], "reg") for name in "ab"] == pytest.approx([0, 6])
    assert call("reg", "t.parquet", "--of", "a", "--relative-to", "b", "--picture", "c.svg") == 0
    told = capsys.readouterr().out
    assert "REG in tokens, integrated from 0 to 16 tokens" in told
    assert "drew c.svg" in told
    assert "accuracy by budget, of the kind J" in Path("c.svg").read_text()


def test_responses_alone_give_bounds_and_never_reg(capsys: pytest.CaptureFixture[str]) -> None:
    brought(TABLE, "--ended")
    grid = ("--grid", "0,8,16")
    rows = scored(capsys, "--frontier", edge(), "--base", "it", "--relative-to", "b", *grid)
    for name, low, high in (("a", -8, 0), ("b", -6, 6)):
        # `ended` of a: 0, ½, 1, of b: 0, 0, ½. With what had not ended besides: 1, 1, 1 and 1, 1, ½.
        assert (rows[name]["reg"], rows[name]["difference"]) == (None, None)
        assert value(rows[name], "reg_at_most") == pytest.approx(high)
        assert value(rows[name], "reg_at_least") == pytest.approx(low)
    # Of each right response the share of 16 tokens that it left: ¾ and ¼, and ¼ and none.
    assert [value(rows[name], "auc_oaa") for name in "ab"] == pytest.approx([0.5, 0.125])
    assert value(rows["a"], "auc_oaa_change") == pytest.approx(0.375)
    assert call("reg", "t.parquet", "--frontier", "edge.json", "--base", "it", *grid) == 0
    assert "REG lies between the two numbers" in capsys.readouterr().out
    assert (
        "error[E0424]: responses of `b` were cut off at 16 tokens, so it is unknown which of them would have ended by 64"
        in refused(capsys, "--l-max", "64")
    )
    assert "a frontier of `ended` responses gives neither REG" in refused(capsys, "--of", "a", *grid)
    assert "error[E0435]" in refused(capsys, "--frontier", edge("asked"), "--base", "it", *grid)
    assert call("frontier", "t.parquet", "--to", "16", "-o", "own.json") == 0
    assert json.loads(Path("own.json").read_text())["m"]["kind"] == "ended"


def test_what_does_not_pair_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    brought(TABLE.replace("b,m,r", "b,m,s"))
    assert "2 questions lack responses of some models" in refused(capsys, "--relative-to", "b")
    text = TABLE.replace("0,0,1\n", ",,\n", 1).replace("0,1,1\n", ",,\n", 1)
    brought(text)
    assert "error[E0435]: `a` is of the kind `ended`, and `b` is of the kind `J`" in refused(
        capsys, "--relative-to", "b", *("--l-max", "16")
    )
    brought(TABLE.replace("0,0,1\n", ",,\n", 1))
    assert "`a` has forced answers for only 50% of its responses" in refused(capsys)
    assert "the frontier is named twice" in refused(capsys, "--of", "a", "--frontier", edge())
    table = pl.read_parquet("t.parquet")
    table.with_columns(pl.col("tokens").cast(pl.String)).write_parquet("t.parquet")
    assert "`tokens` has the type String" in refused(capsys)


FORCED = pl.List(pl.Struct({"budget": pl.Int64, "correct": pl.Boolean}))


def forced(*pairs: tuple[int | None, bool | None]) -> pl.Expr:
    """Return a column with these forced answers in the table's second row."""
    at = pl.lit([dict(zip(("budget", "correct"), pair, strict=True)) for pair in pairs], dtype=FORCED)
    return second(at, "at")


def second(value: Any, name: str) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) == 1).then(value).otherwise(pl.col(name)).alias(name)


FOREIGN: dict[str, tuple[pl.Expr, str]] = {
    **{name: (second(None, name), f"`{name}` is missing") for name in ("model", "benchmark", "question", "sample")},
    "a long name": (second(pl.lit("a" * 301), "model"), "`model` has more than 300 characters"),
    "no tokens": (second(None, "tokens"), "`tokens` is missing"),
    "no score": (second(None, "correct"), "`correct` is missing"),
    "tokens below 0": (second(-1, "tokens"), "`tokens` is below 0"),
    "another end": (second(pl.lit("eos"), "finish"), "`finish` is neither `stop` nor `length`"),
    "no budget": (forced((None, True), (8, True)), "a forced answer has no budget from 0, or no verdict"),
    "no verdict": (forced((0, None), (8, True)), "a forced answer has no budget from 0, or no verdict"),
    "no answer": (second(pl.lit([None], dtype=FORCED), "at"), "a forced answer has no budget from 0"),
    "both verdicts": (forced((0, False), (8, True), (8, False), (16, True)), "a budget is listed twice"),
    "other budgets": (forced((0, False), (9, True), (16, True)), "answers are forced at other budgets"),
    "fewer budgets": (forced((0, False), (16, True)), "answers are forced at other budgets"),
    "a response twice": (second(pl.lit("q"), "question"), "this response is listed twice"),
    "numbers as names": (pl.col("benchmark").str.len_bytes().cast(pl.Int64), "`benchmark` has the type Int64"),
    "no numbers": (pl.col("sample").cast(pl.Float64), "`sample` has the type Float64"),
    "no texts": (pl.lit(None).alias("response"), "`response` has the type Null"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
def test_a_table_of_anybody_is_looked_at_before_it_is_believed(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each gave a traceback, an error after everything had run, or numbers."""
    change, words = FOREIGN[case]
    brought(TABLE)
    pl.read_parquet("t.parquet").with_columns(change).write_parquet("t.parquet")
    row = "" if "type" in words else ": row 2\n"
    for command in (("reg", "t.parquet"), ("frontier", "t.parquet", "--of", "b", "--to", "16")):
        capsys.readouterr()
        assert call(*command) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("error[E0421]")) == ("", 1), err
        assert words in err
        assert f"t.parquet{row}" in err
        assert (
            "help: make the table again: `reodsl import" if "type" in words else "help: mend it where"
        ) in err
    if "type" in words:
        assert call("import", "t.parquet", "-o", "again.parquet") == call("reg", "again.parquet") == 0


def test_a_damaged_table_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    brought(TABLE)
    whole = Path("t.parquet").read_bytes()
    chance = np.random.default_rng(3)
    for place in chance.integers(4, len(whole), 40):
        damaged = bytearray(whole)
        damaged[place] ^= int(chance.integers(1, 256))
        Path("t.parquet").write_bytes(damaged)
        status = call("reg", "t.parquet", "--json")
        err = capsys.readouterr().err
        # What no format can tell: other names, or other numbers.
        assert status == 0 or err.startswith("error[E04"), (place, err)


def test_responses_that_were_not_imported_are_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.csv").write_text(TABLE)
    Path("r.jsonl").write_text('{"question": "q", "tokens": 1}\n{"question": "r", "tokens": 1}\n')
    Path("r.eval").write_bytes(b"PK")
    for name in ("r.csv", "r.jsonl", "r.eval"):
        assert call("reg", name, "--frontier", edge()) == 1
        assert f"`reodsl import {name} -o theirs.parquet`" in capsys.readouterr().err


def test_logs_of_a_run_give_its_own_numbers(tmp_path: Path) -> None:
    study = shared(tmp_path, seeds=(1, 2))
    arms: dict[str, list[Path]] = {}
    chance = np.random.default_rng(7)
    for one in study.evaluations:
        arms.setdefault(one.arm.name, []).append(one.folder)
        samples = pl.read_parquet(one.folder / "samples.parquet")
        forced = [
            (b, q, n, budget, True, None, right if budget >= tokens else bool(chance.random() < budget / 20))
            for (b, q, n, tokens, right), budget in product(
                samples.select("benchmark", "question", "sample", "tokens", "correct").iter_rows(), GRID
            )
        ]
        names = ["benchmark", "question", "sample", "budget", "forced", "answer", "correct"]
        pl.DataFrame(forced, schema=names, orient="row").write_parquet(one.folder / "forced.parquet")
    logs = [str(path) for path in export(study, tmp_path / "logs")]
    assert call("import", *logs, "-o", "t.parquet") == 0
    read = {
        name: [arm_scores(folder, name)[0] for folder in folders] for name, folders in sorted(arms.items())
    }
    first, second = list(read)[:2]
    rows = score_arms(read, GRID, [first, second], seeds=[1, 2], l_max=16, grid=GRID, relative_to=first)

    found = score_responses(read_responses(Path("t.parquet")), GRID, [first, second], first)
    assert [each.scores for each in found] == [row for row in rows if row.seed is None]


def test_rows_without_an_order_are_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of responses at budgets are a join, whose parts lose rows and repeat others: there is one part of any table."""
    lots = []

    def seen(*given: Any) -> Any:
        lots.append(given[3] if len(given) > 3 else arm_scores_module.LOT_ROWS)
        return arm_scores_module.scores_of(*given)

    monkeypatch.setattr(responses, "scores_of", seen)
    brought(TABLE, "--ended")
    scored(capsys, "--l-max", "16")
    # The most responses of a table at the most budgets of the paper's grid.
    assert min(lots) > MOST_ROWS * len(paper_grid())
