"""`reodsl frontier`, `reg` and `budgets`: files and names that they are given, and what they say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.called import call

ONE = {"mine": {"easy": {"budgets": [0, 64], "accuracy": [0.1, 0.6]}}}
EDGE = {"base": "it", "curves": {"easy": {"budgets": [0, 64], "accuracy": [0.2, 0.7]}}}


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
    assert call("reg", "one.json", "--frontier", "edge.json", "--approximate", "--l-max", "1M") == 1
    assert "REG is integrated over 0 to 1048576" in capsys.readouterr().err
    for wrong in ("M", "1MK", "1G", "-1M"):
        assert call("reg", "one.json", "--frontier", "edge.json", "--l-max", wrong) == 1
        assert "error[E0114]" in capsys.readouterr().err


def test_a_single_budget_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("frontier", "one.json", "--to", "0") == 0
    assert capsys.readouterr().out.startswith("easy: 1 budget up to 0 tokens")


PAPER = ("--frontier", "std.paper.qwen3_4b", "--base", "Qwen/Qwen3-4B")
FOUR = ("aime24", "aime25", "amc23", "minerva")
FULL = {"budgets": [*range(0, 1024, 64), *range(1024, 16385, 1024)], "accuracy": [0.5] * 32}


def written(name: str, data: object) -> str:
    Path(name).write_text(json.dumps(data))
    return name


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(*arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(*arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "help: " in err
    return err


def test_a_published_frontier_scores_each_benchmark_and_their_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = written("mine.json", {"mine": dict.fromkeys(FOUR, FULL)})
    facts = json.loads(printed(capsys, "reg", mine, *PAPER, "--json"))
    assert facts["approximate"] == []
    assert facts["base"] == ["Qwen/Qwen3-4B"]
    assert list(facts["reg"]["mine"]) == [*FOUR, "mean"]
    assert facts["reg"]["mine"]["mean"] == pytest.approx(sum(facts["reg"]["mine"][b] for b in FOUR) / 4)
    assert "~" not in printed(capsys, "reg", mine, *PAPER)


@pytest.mark.parametrize(
    ("curves", "options", "code", "words", "columns"),
    [
        (dict.fromkeys(FOUR, FULL), ("--base", "Qwen/Qwen3-8B"), "E0433", "these curves go back to Qwen/Qwen3-8B", FOUR),
        (dict.fromkeys(FOUR, FULL), (), "E0433", "nothing says to which model these curves go back", FOUR),
        (dict.fromkeys(FOUR[:2], FULL), PAPER[2:], "E0425", "`mine` lacks amc23, minerva", FOUR[:2]),
        ({"gsm8k": FULL}, PAPER[2:], "E0425", "has gsm8k, which the frontier lacks", ("Average",)),
        (
            {**dict.fromkeys(FOUR[:3], FULL), "minerva_math": FULL},
            PAPER[2:],
            "E0425",
            "if `minerva_math` is `minerva`",
            ("Average",),
        ),
        (
            {**dict.fromkeys(FOUR, FULL), "amc23": {"budgets": [0, 16384], "accuracy": [0.1, 0.6]}},
            PAPER[2:],
            "E0434",
            "`mine` on amc23 has no point between 0 and 16384 tokens, where REG is taken at 30",
            FOUR,
        ),
    ],
)  # fmt: skip
def test_what_the_frontier_is_not_of_is_refused_or_marked(
    curves: dict[str, object],
    options: tuple[str, ...],
    code: str,
    words: str,
    columns: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("reg", written("mine.json", {"mine": curves}), *PAPER[:2], *options)
    err = refused(capsys, *asked)
    assert f"error[{code}]" in err
    assert words in err
    assert "--> mine.json against std.paper.qwen3_4b" in err
    lines = printed(capsys, *asked, "--approximate").splitlines()
    message = re.search(rf"error\[{code}\]: (.*)", err)
    assert message
    assert lines[-1] == f"~ approximate: {message[1]}"
    assert all(cell.startswith("~") for cell in lines[1].split()[1:])
    facts = json.loads(printed(capsys, *asked, "--approximate", "--json"))
    assert facts["approximate"] == [message[1]]
    assert list(facts["reg"]["mine"]) == [*columns, "mean"]


SIX = {"budgets": [0, 8, 16, 32, 64, 128], "accuracy": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}


@pytest.mark.parametrize(
    ("curves", "code", "place", "words", "advice"),
    [
        (
            {"easy": {"budgets": [64], "accuracy": [0.1]}},
            "E0424",
            "m.json against six.json",
            "one point, at 64",
            "from 0 to 128",
        ),
        (
            {"easy": {"budgets": [0, 8, 8], "accuracy": [0.1, 0.2, 0.2]}},
            "E0421",
            "m.json: m: easy",
            "8 is listed twice",
            "keep one",
        ),
        (
            {"easy": {"budgets": [0, 8], "accuracy": [0.1, float("nan")]}},
            "E0421",
            "m.json: m: easy",
            "accuracy[1] is nan",
            "leave out",
        ),
        (
            {"easy": {"budgets": [float("inf")], "accuracy": [0.1]}},
            "E0421",
            "m.json: m: easy",
            "budgets[0] is inf",
            "whole tokens",
        ),
        ({"Easy": SIX}, "E0425", "m.json against six.json", "lacks easy and has Easy", "`Easy` is `easy`"),
        (
            {"easy": {"budgets": [0, 8], "accuracy": [0.1, 0.2]}},
            "E0424",
            "m.json against six.json",
            "covers 0 to 8",
            "`--l-max`",
        ),
    ],
)
def test_bad_curves_are_one_error_with_place_and_advice(
    curves: object, code: str, place: str, words: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    six = written("six.json", {"base": "it", "curves": {"easy": SIX}})
    curves_file = written("m.json", {"base": "it", "curves": {"m": curves}})
    err = refused(capsys, "reg", curves_file, "--frontier", six, "--l-max", "128")
    assert re.findall(r"^error\[(E\d+)\]", err, re.M) == [code]
    assert f"--> {place}\n" in err
    assert words in err
    assert advice in err[err.index("help: ") :]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["easy,0,0.1", "easy,8,nan"], "accuracy[1] is nan"),
        (["easy,0,0.1", "easy,8,0.2", "easy,8,0.3"], "at 8 tokens is listed twice, in rows 2 and 3"),
        (["easy,64,0.1"], "has one point, at 64 tokens"),
        (["easy,0,0.1", "easy,16384,0.5"], "the frontier on easy covers 0 to 128 tokens"),
    ],
)
def test_so_are_bad_tables(rows: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last goes on past the end of the frontier, up to which REG would be integrated."""
    six = written("six.json", {"base": "it", "curves": {"easy": SIX}})
    Path("m.csv").write_text(
        "\n".join(["model,benchmark,budget,accuracy", *(f"m,{row}" for row in rows), ""])
    )
    err = refused(
        capsys,
        "reg",
        "m.csv",
        "--frontier",
        six,
        "--base",
        "it",
        *(() if "16384" in rows[-1] else ("--l-max", "128")),
    )
    assert words in err
    assert err.count("error[") == 1


@pytest.mark.parametrize("base", [[], 5, "", " ", [""], ["it", 5], None])
def test_a_base_is_a_name(base: object, capsys: pytest.CaptureFixture[str]) -> None:
    six = written("six.json", {"base": "it", "curves": {"easy": SIX}})
    mine = written("m.json", {"base": base, "curves": {"m": {"easy": SIX}}})
    for asked in (("reg", mine, "--frontier", six), ("frontier", mine), ("reg", six, "--frontier", mine)):
        assert "which names no model" in refused(capsys, *asked)


def test_a_model_may_be_called_base(capsys: pytest.CaptureFixture[str]) -> None:
    both = written("m.json", {"base": {"easy": SIX}, "curves": {"easy": SIX}})
    assert "best at: base 6, curves 6" in printed(capsys, "frontier", both)


def test_a_grid_of_the_curves_own_points_is_not_sparse(capsys: pytest.CaptureFixture[str]) -> None:
    few = {"budgets": [0, 4096, 16384], "accuracy": [0, 0.4, 0.6]}
    coarse = written("mine.json", {"mine": dict.fromkeys(FOUR, few)})
    assert "over 3 budgets" in printed(capsys, "reg", coarse, *PAPER, "--grid", "0,4K,16K")
    assert "E0434" in refused(capsys, "reg", coarse, *PAPER)
    assert "E0434" in refused(capsys, "reg", coarse, *PAPER, "--grid", "0,4K,8K,16K")


def test_the_authors_files_are_read_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs of lists by benchmark, and frontiers by model: those that fit the base are taken."""
    edge = {name: [FULL["budgets"], [0.6] * 32] for name in FOUR}
    mine = written("mine.json", {"base": "Qwen/Qwen3-4B", "curves": {"mine": dict.fromkeys(FOUR, FULL)}})
    pairs = written("pairs.jsonl", edge)
    err = refused(capsys, "reg", mine, "--frontier", pairs)
    assert "nothing says which model the frontier is of" in err
    (advice,) = re.findall(r"`reodsl (.*?)`", err)
    printed(capsys, *advice.split())
    assert json.loads(Path("edge.json").read_text())["base"] == ["Qwen/Qwen3-4B"]
    several = written(
        "several.json", {"source": "…", "frontiers": {"Qwen3-8B": {"hard": edge["amc23"]}, "Qwen3-4B": edge}}
    )
    for frontier in ("edge.json", several):
        assert "1638.4" in printed(capsys, "reg", mine, "--frontier", frontier)
    bare = written("bare.json", {"mine": dict.fromkeys(FOUR, FULL)})
    err = refused(capsys, "reg", bare, "--frontier", several)
    assert "--base Qwen3-8B" in err
    assert err.partition(": ")[2] in refused(
        capsys, "budgets", "linear(to: 64 tokens, n: 2)", "--frontier", several
    )
    assert "`reodsl frontier several.json --of Qwen3-8B -o edge.json`" in err
    means = written("means.json", {"frontiers": {"Qwen3-4B": FULL}})
    assert "a mean over unnamed benchmarks" in refused(capsys, "reg", mine, "--frontier", means)
    assert "~0.0" in printed(capsys, "reg", mine, "--frontier", means, "--approximate")
    printed(capsys, "frontier", several, "--of", "Qwen3-4B", "-o", "one.json")
    assert json.loads(Path("one.json").read_text())["base"] == ["Qwen3-4B"]
    assert "it names no base model" in printed(
        capsys, "frontier", "one.json", bare, "--of", "mine", "-o", "two.json"
    )


def test_percent_is_given_where_its_denominator_is_apart_from_0(capsys: pytest.CaptureFixture[str]) -> None:
    def model(*accuracy: float) -> dict[str, object]:
        return {"easy": {"budgets": [0, 64], "accuracy": accuracy}}

    Path("three.json").write_text(
        json.dumps({"base": model(0, 0.5), "like": model(0.9, 0.9), "best": model(0.95, 0.95)})
    )
    Path("top.json").write_text(json.dumps({"base": ["it", "that"], "curves": model(0.95, 0.95)}))

    def lines(relative_to: str, *more: str) -> list[str]:
        options = ("--base", "that", "--l-max", "64", "--grid", "0,64", "--relative-to", relative_to)
        assert call("reg", "three.json", "--frontier", "top.json", *options, *more) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    plain = lines("base")
    assert plain[1:4] == ["best 0.0 -44.8 0.0 -44.8", "like 3.2 -41.6 3.2 -41.6", "base 44.8 44.8"]
    assert "--questions N adds percent" in plain[5]
    told = lines("base", "--questions", "30")
    assert told[2] == "like 3.2 -41.6 -93% 3.2 -41.6 -93%"
    assert told[5] == "After each REG: its difference from the REG of base, also in percent"
    tiny = lines("like", "--questions", "30")
    assert tiny[3] == "base 44.8 +41.6 44.8 +41.6"
    assert tiny[5].endswith("except where that REG may be 0: easy, mean")


def test_no_name_in_a_file_reaches_the_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters would move the cursor, name the window or clear the screen."""
    name = "m\x1b]0;title\x07\x1b[2J\r"
    Path("theirs.json").write_text(json.dumps({name: ONE["mine"]}))
    options = ["--frontier", "edge.json", "--base", "it", "--grid", "0,64", "--relative-to", name]
    for command in (["frontier", "theirs.json"], ["reg", "theirs.json", *options]):
        assert call(*command) == 0
        out, err = capsys.readouterr()
        assert "m\\u{1b}]0;title\\u{7}\\u{1b}[2J\\u{d}" in out
        assert not {"\x1b", "\x07", "\r"} & set(out + err)


@pytest.mark.parametrize(
    ("frontier", "base", "code"),
    [
        ({"easy": ONE["mine"]["easy"]}, ("--base", "Qwen/Qwen3-4B"), "E0433"),
        ({"m1": ONE["mine"], "m2": ONE["mine"]}, ("--base", "MODEL"), "E0421"),
        ({"frontiers": {"A": ONE["mine"], "B": ONE["mine"]}}, (), "E0421"),
    ],
)
def test_the_command_of_a_help_makes_the_frontier_that_is_missing(
    frontier: object, base: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("given.json").write_text(json.dumps(frontier))
    options = (*base, "--l-max", "64")
    told = refused(capsys, "reg", "one.json", "--frontier", "given.json", *options)
    assert f"error[{code}]" in told
    (line,) = re.findall(r"`reodsl (frontier [^`]+ -o edge.json)`", told)
    Path("edge.json").unlink()
    printed(capsys, *line.split())
    options = options if base else ("--base", "A", *options)
    printed(capsys, "reg", "one.json", "--frontier", "edge.json", *options)


def labelled(kind: str, *accuracy: float) -> dict[str, object]:
    return {"easy": {"budgets": [0, 64, 128], "accuracy": accuracy, "kind": kind}}


def test_an_ended_curve_gives_two_numbers_and_never_reg(capsys: pytest.CaptureFixture[str]) -> None:
    edge = written("j.json", {"base": "it", "curves": labelled("J", 0.5, 0.5, 1.0)})
    mine = written("ended.json", {"base": "it", "curves": {"mine": labelled("ended", 0.0, 0.25, 1.0)}})
    asked = ("reg", mine, "--frontier", edge, "--grid", "0,64,128")
    facts = json.loads(printed(capsys, *asked, "--json"))
    assert (facts["kind"], facts["reg"]) == ("ended", {"mine": {"easy": None, "mean": None}})
    # By hand: 64 tokens each step, (0.5 + 0.5)/2 + (0.5 + 1)/2 is the frontier's; at most all is right, 128.
    assert facts["between"]["mine"]["easy"] == [pytest.approx(80 - 128), pytest.approx(80 - 48)]
    lines = printed(capsys, *asked).splitlines()
    assert "[-48.0, 32.0]" in lines[1]
    assert "the two numbers that REG lies between" in lines[2]
    assert "error[E0435]" in refused(capsys, *asked, "--relative-to", "mine")


def test_two_kinds_of_curves_never_meet(capsys: pytest.CaptureFixture[str]) -> None:
    edge = written("j.json", {"base": "it", "curves": labelled("J", 0.5, 0.5, 1.0)})
    both = {"a": labelled("asked", 0.1, 0.2, 0.3), "b": labelled("asked", 0.2, 0.2, 0.2)}
    mine = written("asked.json", {"base": "it", "curves": both})
    grid = ("--grid", "0,64,128")
    err = refused(capsys, "reg", mine, "--frontier", edge, *grid)
    assert "error[E0435]: the frontier is of the kind `J`, and the curve is of the kind `asked`" in err
    # Alike they have a frontier, whose file says what it is, and a gap that is not called REG.
    assert "3 budgets of the kind `asked`" in printed(capsys, "frontier", mine, "-o", "own.json")
    assert json.loads(Path("own.json").read_text())["curves"]["easy"]["kind"] == "asked"
    told = printed(capsys, "reg", mine, "--frontier", "own.json", *grid)
    assert "Not REG, but the gap between `asked` curves" in told
    table = "model,benchmark,budget,accuracy,kind\na,easy,0,0.1,bare\na,easy,64,0.2,J\n"
    Path("mixed.csv").write_text(table)
    assert "of two kinds, `bare` and `J`" in refused(capsys, "frontier", "mixed.csv")
    Path("odd.csv").write_text(table.replace("bare", "K").replace(",J", ",K"))
    assert "`kind` is 'K', which is not a kind of curve" in refused(capsys, "frontier", "odd.csv")
