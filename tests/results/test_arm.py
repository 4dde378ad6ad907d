"""Results of others as arms of a study, beside a model that is evaluated here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.language import compile_file
from reodsl.rehearse import Size, StandIns, list_unshown, shrink
from tests.called import call

SPEC = """
from std.miniature import chain_model, chain_forcing

data sums_data { source = file("q.jsonl", columns: columns(id: "id")), verifier = exact }
benchmark sums { data = sums_data }
suite small {
  benchmarks = [sums]
  max_tokens = 16 tokens
  samples    = 1
  grid       = [0 tokens, 8 tokens, 16 tokens]
  forcing    = chain_forcing
}

study theirs {
  eval = small
  arm base  = checkpoint(chain_model)
  arm mine  = results("t.parquet", model: "a")
  arm other = results("t.parquet", model: "b")
  frontier edge = envelope(of: [base, other], to: 16 tokens)
  score = reg(against: edge, to: 16 tokens, relative_to: other)
  report { chart curves { x = budget, y = accuracy, lines = [base, mine, other, edge] } }
}
"""
# By hand: the areas to 16 tokens are 8 of `a`, and 2 of `b`.
HEAD = "model,benchmark,question,text,tokens,correct,finish"
ROWS = (
    ("a,sums,q,<q> 1 +2 ?,4,1,stop", "0,1,1"), ("a,sums,r,<q> 2 +2 ?,12,1,stop", "0,0,1"),
    ("b,sums,q,<q> 1 +2 ?,12,1,stop", "0,0,1"), ("b,sums,r,<q> 2 +2 ?,16,0,length", "0,0,0"),
)  # fmt: skip
ALONE = (
    re.sub(r"  arm base .*\n", "", SPEC)
    .replace("of: [base, ", "of: [")
    .replace("lines = [base, ", "lines = [")
)
ENDED = re.sub(r"  (frontier|score) .*\n", "", ALONE).replace(", edge]", "]")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "q", "question": "<q> 1 +2 ?", "answer": "3"},
        {"id": "r", "question": "<q> 2 +2 ?", "answer": "4"},
    ]
    Path("q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table()


def table(*options: str, change: tuple[str, str] = ("\0", ""), forced: bool = True) -> None:
    head = f"{HEAD},correct@0,correct@8,correct@16" if forced else HEAD
    rows = [f"{row},{at}" if forced else row for row, at in ROWS]
    Path("r.csv").write_text("\n".join([head, *rows]).replace(*change))
    assert call("import", "r.csv", *options, "-o", "t.parquet") == 0


def spec(text: str) -> Spec:
    Path("s.reo").write_text(text)
    compiled = compile_file("s.reo")
    assert compiled.spec is not None, compiled.diagnostics
    return compiled.spec


def ran(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.reo").write_text(text)
    capsys.readouterr()
    assert call("run", "s.reo", "--local", "--quiet", "--out", "out") == 0, capsys.readouterr().err


def verdicts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    call("plan", "s.reo", "--json")
    return {each["id"]: each["verdict"] for each in json.loads(capsys.readouterr().out)["tasks"]}


def test_results_are_arms_beside_a_model_that_is_evaluated_here(capsys: pytest.CaptureFixture[str]) -> None:
    ran(SPEC, capsys)
    main = pl.read_csv("out/tables/main.csv").filter(benchmark="mean")
    scores = {row["arm"]: row for row in main.to_dicts()}
    assert set(scores) == {"base", "mine", "other"}
    assert scores["mine"]["difference"] == pytest.approx(-6)
    assert (scores["mine"]["accuracy"], scores["mine"]["length"]) == (1.0, 8.0)
    drawn = pl.read_csv("out/tables/curves.csv").filter(arm="mine", benchmark="sums")
    assert drawn["accuracy"].to_list() == [0.0, 0.5, 1.0]
    assert "kind" not in drawn.columns
    # The suite's own references, whatever the table had.
    assert pl.read_parquet("out/arms/mine/samples.parquet")["gold"].to_list() == ["3", "4"]
    # The table's content is part of the key, and its place is not.
    Path("elsewhere").mkdir()
    Path("t.parquet").rename("elsewhere/t.parquet")
    Path("s.reo").write_text(SPEC.replace("t.parquet", "elsewhere/t.parquet"))
    assert {verdicts(capsys)[name] for name in ("mine.results", "other.results", "score.s1")} == {"reuse"}
    table(change=("a,sums,q,<q> 1 +2 ?,4", "a,sums,q,<q> 1 +2 ?,5"))
    Path("s.reo").write_text(SPEC)
    found = verdicts(capsys)
    assert (found["mine.results"], found["base.eval.s1"]) == ("rerun", "reuse")


def test_questions_are_found_by_their_texts_too_and_ended_curves_say_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table(change=(",sums,q,", ",sums,0,"), forced=False)
    ran(ENDED, capsys)
    drawn = pl.read_csv("out/tables/curves.csv").filter(benchmark="sums")
    assert drawn.filter(arm="mine")["accuracy"].to_list() == [0.0, 0.5, 1.0]
    assert drawn.filter(arm="other")["accuracy"].to_list() == [0.0, 0.0, 0.5]
    assert drawn["kind"].unique().to_list() == ["ended"]
    assert json.loads(Path("out/arms/mine/curves.json").read_text())["sums"]["kind"] == "ended"


ONE = re.sub(r"  arm other .*\n", "", ALONE).replace("mine, other", "mine").replace("other", "mine")
BOTH = re.sub(r"  (frontier|score) .*\n", "", SPEC).replace(", edge]", "]")
FORCED = SPEC.replace('model: "a")', 'model: "a", at: forced(chain_model))')
TWELVE = ALONE.replace(
    "  frontier edge",
    "".join(f'  arm a{n} = results("t.parquet", model: "a")\n' for n in range(10)) + "  frontier edge",
)
BAD = {
    "no file": (lambda: Path("t.parquet").unlink(), ONE, "E0438", "there is no such file"),
    "no table": (
        lambda: pl.DataFrame({"a": [1]}).write_parquet("t.parquet"), ONE, "E0438",
        "this is no table of responses: it is no Parquet file of responses",
    ),
    "lacking columns": (
        lambda: pl.read_parquet("t.parquet").drop("gold", "at").write_parquet("t.parquet"), ONE, "E0438",
        "this is no table of responses: it lacks the columns gold, at",
    ),
    "no model": (lambda: None, ALONE.replace('model: "b"', 'model: "c"'), "E0438", "there is no model `c`"),
    "no texts": (lambda: None, FORCED, "E0438", "2 responses of `a` have no text, and forced"),
    "no benchmark": (lambda: table("--benchmark", "all"), ONE, "E0438", "no response to sums, and has all"),
    "other questions": (
        lambda: table(change=("q,<q> 1 +2 ?", "p,<q> 1 +3 ?")), ONE, "E0438", "1 have no response, and 1 are unknown",
    ),
    "not as import writes it": (
        lambda: pl.read_parquet("t.parquet").with_columns(tokens=None).cast({"tokens": pl.Int64}).write_parquet("t.parquet"),
        TWELVE, "E0421", "`tokens` is missing",
    ),
    "no file for twelve arms": (lambda: Path("t.parquet").unlink(), TWELVE, "E0438", "there is no such file"),
    "cut off": (
        lambda: table(forced=False), ENDED.replace("16 tokens", "32 tokens"),
        "E0438", "cut off at 16 tokens, and the suite goes to 32",
    ),
    "other budgets": (lambda: None, ONE.replace("8 tokens,", "4 tokens,"), "E0438", "no answers forced at 4 tokens"),
    "REG of ended": (lambda: table("--ended"), ONE, "E0435", "has no forced answers (`ended`), and REG needs them"),
    "two kinds": (
        lambda: table("--ended"), BOTH, "E0435", "`mine` has no forced answers (`ended`), and `base` has them (`J`)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_arm_of_the_suite_is_one_error_at_its_line(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, text, code, words = BAD[case]
    make()
    Path("s.reo").write_text(text)
    capsys.readouterr()
    assert call("run", "s.reo", "--local", "--quiet", "--out", "out") == 1
    err = capsys.readouterr().err
    assert err.count("error[") == err.count(f"error[{code}]") == 1
    assert words in err
    assert ("import t.parquet --model NAME -o responses.parquet" in err) is ("no table of responses" in words)
    assert re.search(r"--> s\.reo:\d+", err)
    assert 'results("t.parquet"' in err
    assert "help: " in err
    # `check` opens no table; what is wrong with one is told before any task begins, except what only the data show.
    assert case == "other questions" or not [*Path().glob(".reodsl/objects/*/*")]


def test_nothing_is_trained_from_results(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.reo").write_text(SPEC.replace("arm other", "arm again = checkpoint(mine)\n  arm other"))
    assert call("check", "s.reo") == 1
    assert "`mine` is made from imported results, which have no weights" in capsys.readouterr().err


def test_a_published_frontier_needs_to_know_the_model_behind_results() -> None:
    text = ENDED.replace(
        "study theirs {",
        """frontier printed {
  base = chain_model
  budgets = [0 tokens, 8 tokens, 16 tokens]
  curve sums { accuracy = [0.1, 0.5, 0.9] }
}
study theirs {
  score = reg(against: printed, to: 16 tokens, approximate: false)""",
    )
    Path("s.reo").write_text(text)
    (fault,) = {
        each.message: each for each in compile_file("s.reo").diagnostics if each.code == "E0616"
    }.values()
    assert "the spec does not say which model wrote the responses of `mine`" in fault.message
    Path("s.reo").write_text(re.sub(r'(model: "\w")', r"\1, base: chain_model", text))
    assert not [
        each
        for each in compile_file("s.reo").diagnostics
        if each.code == "E0616" and "which model" in each.message
    ]


def test_answers_are_forced_out_of_imported_texts(capsys: pytest.CaptureFixture[str]) -> None:
    """The arm is of forced answers by the model, graded as the suite grades, and of the table's lengths."""
    head = {"benchmark": "sums", "correct": 0}
    Path("r.jsonl").write_text(
        "\n".join(
            json.dumps(head | {"model": model, "question": name, "tokens": tokens, "response": text})
            for model in ("a", "b")
            for name, tokens, text in (("q", 9, "so 1 +2 3 answer \\boxed{ 3 }"), ("r", 2, "so"))
        )
    )
    assert call("import", "r.jsonl", "-o", "t.parquet") == 0
    text = (
        re.sub(r"  (frontier|score) .*\n", "", FORCED)
        .replace(", other, edge]", "]")
        .replace("  arm other", "  # ")
    )
    ran(text, capsys)
    samples = pl.read_parquet("out/arms/mine.s1/samples.parquet")
    assert samples["tokens"].to_list() == [9, 2]
    assert samples["correct"].to_list() == [True, False]
    forced = pl.read_parquet("out/arms/mine.s1/forced.parquet")
    assert forced["forced"].to_list() == [True, True, False, True, False, False]
    assert json.loads(Path("out/arms/mine.s1/curves.json").read_text())["sums"]["inexact"] == ["retokenised"]
    assert "retokenised" in Path("out/report.html").read_text()
    assert verdicts(capsys)["mine.eval.s1"] == "reuse"
    little = list_unshown(spec(text), shrink(spec(text), Size(), StandIns(), "embedded"), StandIns())
    assert any("`chain_model` answered in place of `mine`" in each for each in little)


def test_a_rehearsal_puts_a_model_in_their_place() -> None:
    whole = spec(SPEC)
    little = shrink(whole, Size(), StandIns(), "embedded")
    assert {task.kind for task in lower(whole).tasks} >= {"results", "evaluate"}
    assert not any(task.kind == "results" for task in lower(little).tasks)
    assert any(
        "`chain_model` answered in place of `mine`, `other`" in each
        for each in list_unshown(whole, little, StandIns())
    )
    alone = spec(ALONE)
    assert shrink(alone, Size(), StandIns(), "embedded") == alone
