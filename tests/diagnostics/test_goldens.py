"""Diagnostics of commands, numbers and stores as a person sees them: a golden file for each code or mistake."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import pytest

from reodsl.cli.main import cli, main
from reodsl.cli.specs import replace
from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from reodsl.door import FinishedRun
from reodsl.numbers.arm_scores import balance_questions
from reodsl.numbers.budgets import explicit
from reodsl.numbers.greedy import question_min
from reodsl.numbers.intervals import ArmScores, score_arms
from reodsl.plan.registry import load_registry
from reodsl.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"

SMALL = (ROOT / "specs" / "quickstart.reo").read_text()
EXP = "exp(from: 1K tokens, to: 32K tokens, n: 5)"


def curve(*points: tuple[float, float]) -> dict[str, list[float]]:
    return {"budgets": [budget for budget, _ in points], "accuracy": [right for _, right in points]}


WHOLE = curve((0, 0.25), (16384, 0.5))
EDGE = {"easy": WHOLE, "hard": WHOLE}
NAMED = ["--frontier", "edge.json", "--base", "Qwen/Qwen3-4B"]
ENDS = [*NAMED, "--grid", "0,16384"]
FILES: dict[str, object] = {
    "edge.json": {"base": "Qwen/Qwen3-4B", "curves": EDGE},
    "good.json": {"mine": EDGE},
    "other.json": {"mine": EDGE},
    "shape.json": {"mine": {"easy": {"budgets": [0]}}},
    "percent.json": {"mine": {**EDGE, "easy": curve((0, 25), (16384, 50))}},
    "twice.json": {"mine": {**EDGE, "easy": curve((0, 0.2), (64, 0.3), (64, 0.3), (16384, 0.5))}},
    "late.json": {"mine": {"easy": curve((64, 0.2), (16384, 0.5)), "hard": WHOLE}},
    "lacks.json": {"mine": {"easy": WHOLE}},
    "coarse.json": {"rare": {"easy": curve((0, 0.25), (64, 0.3), (16384, 0.5)), "hard": WHOLE}},
    "asked.json": {"theirs": {name: {**WHOLE, "kind": "asked"} for name in EDGE}},
    "half.jsonl": '{"question": "q", "tokens": 4, "correct": 0.5}',
    "odd.jsonl": '{"qid": "q", "length": 4, "ok": true}',
    "short_edge.json": {"easy": curve((0, 0.2), (1024, 0.5))},
    "torn.json": '{"mine": ',
    "group.json": {
        "responses": [
            {"length": n, "correct": True, "forced": {"4": True, "8": True, "16": True}} for n in (10, 20)
        ]
    },
    "a.reo": SMALL,
    "theirs.reo": """from std.miniature import chain_suite

study theirs {
  eval = chain_suite
  arm mine = results("theirs.parquet", model: "mine")
}
""",
    "sheet.reo": b"\x00\x01",
    "latin.reo": b'"""caf\xe9"""\n',
    "long.reo": "# " + "x" * 300_000,
    "nothing.reo": "",
    "saved.json": {"kind": "something else"},
    "folder/notes.txt": "",
}

COMMANDS: dict[str, list[str]] = {
    "E0101": ["check", "aa.reo"],
    "E0101-pipe": ["check", "pipe.reo"],
    "E0101-empty": ["check", "nothing.reo"],
    "E0101-binary": ["check", "sheet.reo"],
    "E0101-encoding": ["check", "latin.reo"],
    "E0101-large": ["check", "long.reo"],
    "E0101-data": ["check", "good.json"],
    "E0114-code": ["explain", "E9999"],
    "E0114-dash": ["fmt", "-", "a.reo"],
    "E0101-folder": ["fmt", "folder"],
    "E0114": ["check", "a.reo", "--amend", "steps"],
    "E0114-twice": ["frontier", "good.json", "other.json"],
    "E0114-model": ["frontier", "good.json", "--of", "nobody"],
    "E0114-tokens": ["reg", "good.json", "--frontier", "edge.json", "--l-max", "far"],
    "E0118-new": ["new", "a.reo"],
    "E0123-responses": ["reward", "a.reo", "reo_exp", "--length", "10,20", "--correct", "yes,no"],
    "E0123": ["reward", "a.reo", "--length", "10", "--correct", "yes"],
    "E0410": ["budgets", "exp(from: 32K tokens, to: 1K tokens, n: 2)"],
    "E0410-increase": ["budgets", "exp(from: 4 tokens, to: 8 tokens, n: 5)"],
    "E0410-outside": ["budgets", "[2K tokens, 1K tokens]"],
    "E0408-budgets": ["budgets", EXP, "--frontier", "short_edge.json"],
    "E0415": ["budgets", 'steps(separator: ".", keywords: ["wait"])'],
    "E0421-unread": ["reg", "torn.json", "--frontier", "edge.json"],
    "E0421": ["reg", "shape.json", "--frontier", "edge.json"],
    "E0421-value": ["reg", "percent.json", "--frontier", "edge.json"],
    "E0421-twice": ["reg", "twice.json", "--frontier", "edge.json"],
    "E0424": ["reg", "late.json", *ENDS],
    "E0425": ["reg", "lacks.json", *ENDS],
    "E0424-budgets": ["frontier", "good.json", "coarse.json"],
    "E0404-integral": ["reg", "good.json", "--frontier", "edge.json", "--grid", "64,0"],
    "E0114-baseline": ["reg", "good.json", *ENDS, "--relative-to", "nobody"],
    "E0433": ["reg", "good.json", "--frontier", "edge.json", "--base", "Qwen/Qwen3-8B", "--grid", "0,16384"],
    "E0434": ["reg", "good.json", *NAMED],
    "E0435": ["frontier", "good.json", "asked.json"],
    "E0436": ["import", "half.jsonl", "-o", "t.parquet"],
    "E0436-form": ["import", "odd.jsonl", "-o", "t.parquet"],
    "E0438": ["run", "theirs.reo", "--local", "--store", "store"],
    "E0952": ["run", "a.reo", "--local", "--store", "folder"],
    "E0952-none": ["ls"],
    "E0954": ["report", "nobody", "--store", "store"],
    "E0954-task": ["why", "a.reo", "nobody.train"],
    "E0956": ["accept", "a.reo", "vanilla.train.s1", "--because", "it is the same", "--store", "store"],
    "E0967": ["diff", "a.reo", "saved.json"],
}

HAND = ["--length", "10,20", "--correct", "yes,no"]
FOLLOWED: dict[str, list[str]] = {
    "E0101": ["check", "a.reo"],
    "E0101-data": ["check", "a.reo"],
    "E0114-code": ["explain"],
    "E0114-dash": ["fmt", "a.reo"],
    "E0114": ["check", "a.reo", "--amend", "reo_exp.steps=3"],
    "E0114-twice": ["frontier", "good.json"],
    "E0114-model": ["frontier", "good.json", "--of", "mine"],
    "E0114-tokens": ["reg", "good.json", *ENDS, "--approximate", "--l-max", "16K"],
    "E0118-new": ["new", "another.reo"],
    "E0123": ["reward", "a.reo", "vanilla", *HAND],
    "E0123-responses": ["reward", "a.reo", "reo_exp", "--group", "group.json"],
    "E0410": ["budgets", "exp(from: 1 tokens, to: 1K tokens, n: 2)"],
    "E0410-increase": ["budgets", "exp(from: 4 tokens, to: 8 tokens, n: 2)"],
    "E0410-outside": ["budgets", "[1 tokens, 1023 tokens, 1K tokens]"],
    "E0415": ["budgets", EXP],
    "E0404-integral": ["reg", "good.json", *NAMED, "--approximate", "--grid", "0,64"],
    "E0114-baseline": ["reg", "good.json", *ENDS, "--approximate", "--relative-to", "mine"],
    "E0952": ["plan", "a.reo", "--store", "new"],
    "E0952-none": ["ls", "--store", "store"],
    "E0954-task": ["why", "a.reo", "group_norm.train.s1"],
}
"""Commands that do what the help of a refusal says, and are not refused."""

CALLS: dict[str, Callable[[], object]] = {
    "E0118-formatted": lambda: replace(Path("nowhere/a.reo"), ""),
    "E0121-runners": lambda: without_runners(load_registry),
    "E0954-notebook": lambda: FinishedRun(Path("report.html"), None, {"evaluate:base@1": Path()}).samples(
        "vanilla", 1
    ),  # type: ignore[arg-type]
    "E0410-whole": lambda: explicit([100.5], 1024),  # type: ignore[list-item]
    "E0405-rollouts": lambda: question_min([("q1", [[(64, True), (32, False)]])], 128),
    "E0303-confidence": lambda: score_arms({"mine": [SCORES]}, [0, 64], ["mine"], l_max=64, confidence=95),
    "E0431": lambda: score_arms({}, [0, 64], []),
    "E0431-balanced": lambda: balance_questions({"mine": [[1, 0]]}, {"mine": [[5]]}),
}


def without_runners(call: Callable[[], object]) -> object:
    with patch("reodsl.plan.registry.metadata.entry_points", return_value=()):
        return call()


SCORES = ArmScores({"easy": np.zeros((2, 2))}, {"easy": np.zeros(2)}, {"easy": np.ones(2)})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the commands name."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    Store(tmp_path / "store").open()
    os.mkfifo(tmp_path / "pipe.reo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_refusal_looks_as_it_did(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    try:
        ended = main(COMMANDS[name])
    except SystemExit as caught:
        ended = caught.code
    assert ended == 1
    plan, start, rest = capsys.readouterr().err.partition(f"error[{name[:5]}]: ")
    assert (start and not plan) or plan.startswith("[0/")
    assert "error[" not in plan + rest
    golden(f"commands/{name}.txt", (start + rest).replace(str(place), "PLACE"))


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.usefixtures("place")
def test_the_help_of_a_refusal_can_be_followed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        ended = main(FOLLOWED[name])
    except SystemExit as caught:
        ended = caught.code
    assert (ended or 0) != 1, capsys.readouterr().err


def commands_named() -> list[str]:
    """Every command line that the help of a diagnostic or of a command names; what is filled in later is `FILE`."""
    context, texts, lines = click.Context(cli), list[str](), list[str]()
    for path in (each for folder in ("reodsl", "runners") for each in (ROOT / folder).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            helps = (
                [each for each in call.keywords if each.arg == "help"] if isinstance(call, ast.Call) else []
            )
            if helps and not ast.unparse(call.func).startswith("click."):
                for keyword in helps:
                    kinds = (ast.Constant, ast.FormattedValue)
                    parts = [each for each in ast.walk(keyword.value) if isinstance(each, kinds)]
                    parts.sort(key=lambda each: (each.lineno, each.col_offset))
                    texts.append(
                        "".join(
                            getattr(each, "value", "") if isinstance(each, ast.Constant) else "FILE"
                            for each in parts
                            if isinstance(getattr(each, "value", ""), (str, ast.expr))
                        )
                    )
    for text in texts:
        lines += re.findall(r"(?:`|: )(reodsl [a-z][^`]*)", text)
    names = cli.list_commands(context)
    for command in filter(None, (cli.get_command(context, name) for name in names)):
        lines += re.findall(r"^  (reodsl .*?)(?:  | \(|$)", (command.epilog or "").replace("\\\n", ""), re.M)
    # A name by itself is what a command is called.
    return sorted({line for line in lines if line.split()[1] in names and len(line.split()) > 2})


@pytest.mark.parametrize("line", commands_named())
@pytest.mark.usefixtures("place")
def test_a_command_line_that_a_help_names_lacks_nothing(line: str) -> None:
    words = shlex.split(re.split(r" [|<&] |;", line)[0])
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None
    with suppress(click.exceptions.Exit):
        command.make_context(words[1], words[2:])


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_from_python_looks_as_it_did(
    name: str, place: Path, golden: Callable[[str, str], None]
) -> None:
    with pytest.raises(Problem) as caught:
        CALLS[name]()
    assert {each.code for each in caught.value.diagnostics} == {name[:5]}
    golden(f"commands/{name}.txt", render(caught.value.diagnostics, {}).replace(str(place), "PLACE"))
