"""`reodsl frontier`, `reg` and `budgets`: files and names that they are given, and what they say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.called import call

ONE = {"mine": {"easy": {"budgets": [0, 64], "accuracy": [0.1, 0.6]}}}
EDGE = {"easy": {"budgets": [0, 64], "accuracy": [0.2, 0.7]}}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.json").write_text(json.dumps(ONE))
    Path("other.json").write_text(json.dumps({"theirs": {"hard": ONE["mine"]["easy"]}}))
    Path("edge.json").write_text(json.dumps(EDGE))


@pytest.mark.parametrize(
    ("arguments", "code", "place", "words"),
    [
        (["frontier", "one.json", "other.json"], "E0425", "one.json, other.json", "theirs lacks easy"),
        (["frontier", "one.json", "-o", "edge.csv"], "E0118", "edge.csv", "name it edge.json"),
        (["frontier", "one.json", "-o", "edge.parquet"], "E0118", "edge.parquet", "name it edge.json"),
        (["reg", "one.json", "--frontier", "std.paper.nobody"], "E0201", "std.paper.nobody", "help: "),
        (
            ["budgets", "[1 token, 64 tokens]", "--frontier", "std.paper.nobody"],
            "E0201",
            "std.paper.nobody",
            "help",
        ),
    ],
)
def test_a_refusal_has_its_place(
    arguments: list[str], code: str, place: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().iterdir())
    assert call(*arguments) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert re.findall(r"^error\[(E\d+)\]", told.err, re.M) == [code]
    assert f"--> {place}\n" in told.err
    assert words in told.err
    assert sorted(Path().iterdir()) == before


def test_megatokens_are_a_number_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reg", "one.json", "--frontier", "edge.json", "--l-max", "1M") == 1
    assert "REG is integrated over 0 to 1048576" in capsys.readouterr().err
    for wrong in ("M", "1MK", "1G", "-1M"):
        assert call("reg", "one.json", "--frontier", "edge.json", "--l-max", wrong) == 1
        assert "error[E0117]" in capsys.readouterr().err


def test_a_single_budget_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("frontier", "one.json", "--to", "0") == 0
    assert capsys.readouterr().out.startswith("easy: 1 budget up to 0 tokens")


def test_a_mean_over_other_benchmarks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    published = ("--frontier", "std.paper.qwen3_4b", "--l-max", "64")
    assert call("reg", "one.json", *published) == 0
    assert "beside it stands each model's mean over easy" in capsys.readouterr().out
    assert call("reg", "one.json", "--frontier", "edge.json", "--l-max", "64", "--grid", "0,64") == 0
    assert "mean over its own benchmarks" not in capsys.readouterr().out
    Path("average.json").write_text(json.dumps({"mine": {"Average": ONE["mine"]["easy"]}}))
    assert call("reg", "average.json", *published) == 0
    assert "mean over its own benchmarks" not in capsys.readouterr().out


def test_percent_is_given_where_its_denominator_is_apart_from_0(capsys: pytest.CaptureFixture[str]) -> None:
    def model(*accuracy: float) -> dict[str, object]:
        return {"easy": {"budgets": [0, 64], "accuracy": accuracy}}

    Path("three.json").write_text(
        json.dumps({"base": model(0, 0.5), "like": model(0.9, 0.9), "best": model(0.95, 0.95)})
    )
    Path("top.json").write_text(json.dumps(model(0.95, 0.95)))

    def lines(relative_to: str, *more: str) -> list[str]:
        options = ("--l-max", "64", "--grid", "0,64", "--relative-to", relative_to)
        assert call("reg", "three.json", "--frontier", "top.json", *options, *more) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    plain = lines("base")
    assert plain[1:4] == ["base 44.8 44.8", "like 3.2 -41.6 3.2 -41.6", "best 0.0 -44.8 0.0 -44.8"]
    assert "--questions gives it in percent too" in plain[5]
    told = lines("base", "--questions", "30")
    assert told[2] == "like 3.2 -41.6 -93% 3.2 -41.6 -93%"
    assert told[5] == "Beside it stands the difference from base, and in percent of it"
    tiny = lines("like", "--questions", "30")
    assert tiny[1] == "base 44.8 +41.6 44.8 +41.6"
    assert tiny[5].endswith("but where that REG may be 0: easy, mean")
