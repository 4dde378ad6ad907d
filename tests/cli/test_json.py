"""docs/JSON.md is what `--json` prints: every command that has it is run, and its keys and types are compared."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest

from reodsl.cli.main import cli, main
from reodsl.diagnostics import error
from reodsl.graph.job import Event, Progress
from reodsl.plan.registry import MachinePart
from reodsl.store import runs
from reodsl.store.live import Teller, add_step
from reodsl.store.store import Store
from runners.data import load
from runners.execute import Local
from tests.bad_input.commands import FROM_FOLDER, SPEC
from tests.cli.json_document import Mismatch, Shape, compare, read_document, unseen

ROOT = Path(__file__).resolve().parent.parent

SMALL = (
    SPEC.replace("import outcome", "import reo").replace(
        "reward      = outcome",
        "reward      = reo(at: exp(from: 8 tokens, to: 16 tokens, n: 1))\n  forcing     = chain_forcing",
    )
    + """
study small {
  arm base = mite
  arm tiny = tiny
  frontier edge = envelope(of: [base], to: 16 tokens)
  score = reg(against: edge, to: 16 tokens, relative_to: base)
}
"""
)
OTHER = SMALL.replace("arm base = mite", "arm start = mite\n  arm more = tiny")
OTHER = OTHER.replace("[base]", "[start]").replace("relative_to: base", "relative_to: start")
PLACED = SMALL.replace(
    "study small {",
    'cluster one {\n  nodes = 1\n  gpus_per_node = 1\n  gpu = "H100"\n  memory = 80 GiB\n}\n'
    "study small {\n  cluster = one\n  engine = embedded",
)
CURVES = (
    "model,benchmark,budget,accuracy\n"
    "a,m,0,0.1\na,m,8,0.5\na,m,16,0.5\nb,m,0,0.0\nb,m,8,0.2\nb,m,16,0.6\nedge,m,0,0.1\nedge,m,8,0.5\nedge,m,16,0.6\n"
)
ENDED = "model,benchmark,budget,accuracy,kind\na,m,0,0.1,ended\na,m,8,0.5,ended\na,m,16,0.5,ended\n"
ANSWERS = (
    "model,benchmark,question,sample,tokens,correct,correct@0,correct@8,correct@16,response\n"
    + "".join(
        f"{model},m,q{q},0,{tokens},{q % 2},0,{q % 2},{q % 2},so\n"
        for model, tokens in (("a", 6), ("b", 12))
        for q in (1, 2, 3)
    )
)
WRONG = 'experiment x = y { }\nparam n: int = "two"\n'
GRID = ("--l-max", "16", "--grid", "0,8,16")
ACCEPTED = ("tiny.train", "--amend", "tiny.optim.lr=2e-3")

# Commands in their order: some need what those before them leave.
CALLS: dict[str, list[tuple[str, ...]]] = {
    "check": [("check", "tiny.reo", "bad.reo")],
    "budgets": [
        ("budgets", "exp(from: 1K tokens, to: 32K tokens, n: 5)"),
        ("budgets", "linear(to: 32K tokens, n: 5)", "--frontier", "std.paper.qwen3_4b"),
    ],
    "import": [
        ("import", "answers.csv", "--out", "theirs.parquet"),
        ("import", "answers.csv", "--ended", "--out", "ended.parquet"),
    ],
    "frontier": [
        ("frontier", "curves.csv", "--of", "a", "--of", "b", "--base", "mite", "--out", "edge.json"),
        ("frontier", "ended.csv"),
    ],
    "reg": [
        ("reg", "curves.csv", "--frontier", "edge.json", "--base", "mite", *GRID),
        ("reg", "theirs.parquet", "--of", "b", "--relative-to", "a"),
        ("reg", "ended.parquet", "--frontier", "edge.json", "--base", "mite", "--relative-to", "a", *GRID),
        ("reg", "ended.parquet", "--frontier", "edge.json", "--approximate", *GRID),
        ("reg", "curves.csv", "--frontier", "edge.json", "--approximate", *GRID, "--relative-to", "edge"),
        ("reg", "ended.csv", "--frontier", "edge.json", "--base", "mite", *GRID),
    ],
    "explain": [("explain", "E0402"), ("explain",)],
    "graph": [("graph", "tiny.reo")],
    "new": [("new", "--list")],
    "doctor": [("doctor", "tiny.reo", "absent.reo"), ("doctor", "--node")],
    "run": [("run", "tiny.reo", "--local"), ("run", "far.reo", "--local", "--set", "length=3")],
    "rehearse": [("rehearse", "far.reo"), ("rehearse", "placed.reo", "--address", "local")],
    "reward": [
        ("reward", "tiny.reo", "--group", "group.json"),
        ("reward", "tiny.reo", "std.rewards.hgpo", "--length", "4", "--correct", "yes", "--given", "mode=0"),
    ],
    "accept": [("accept", "tiny.reo", *ACCEPTED, "--because", "a test")],
    "plan": [
        ("plan", "tiny.reo"),
        ("plan", "absent.reo"),
        ("plan", "tiny.reo", "--set", "length=3", "--amend", "tiny.optim.lr=2e-3"),
    ],
    "why": [
        ("why", "tiny.reo", *ACCEPTED),
        ("why", "tiny.reo", "tiny.train", "--set", "length=4"),
        ("why", "tiny.reo", "tiny.eval", "--set", "length=4"),
    ],
    "diff": [
        ("diff", "tiny.reo", "--set", "length=3"),
        ("diff", "small", "other.reo"),
        ("diff", "other.reo", "tiny.reo"),
    ],
    "report": [("report", "small", "--out", "again")],
    "watch": [("watch", "small"), ("watch", "--once")],
    "ls": [("ls",), ("ls", "small"), ("ls", "--verify")],
    "export": [("export", "small", "--to", "inspect")],
    "gc": [("gc", "--dry-run")],
}


def commands_with_json() -> list[str]:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return [name for name, each in commands.items() if each and any("--json" in p.opts for p in each.params)]


def output(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> Any:
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert out, err
    return json.loads(out)


def test_every_command_with_json_is_documented_and_run() -> None:
    document = read_document()
    for name in commands_with_json():
        assert name in document, f"`reodsl {name}` has --json, and docs/site/outputs.toml has no table of it"
        assert name in CALLS, (
            f"`reodsl {name}` has --json: add a call of it to CALLS, so that docs/JSON.md is compared"
        )
    assert set(CALLS) <= set(commands_with_json())


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_what_is_printed_is_what_is_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lacking = MachinePart("glibc", "broken", "glibc 2.31", "take a newer system")
    monkeypatch.setattr("runners.execute.probes.probe_nodes", lambda store, address: {"left": (lacking,)})
    # Without Ray; its own test is long.
    monkeypatch.setattr("runners.execute.cluster.RayCluster", lambda address, store, emit, *_: Local(emit))
    # What is wrong inside a file is left to the task that reads it, which fails.
    monkeypatch.setattr(load, "CHECKED_BYTES", 0)
    for name, text in (
        ("tiny.reo", SMALL),
        ("placed.reo", PLACED),
        ("other.reo", OTHER),
        ("absent.reo", FROM_FOLDER),
        ("far.reo", SPEC.replace("generated(chain_easy, count: 4, seed: 1)", 'file("two.jsonl")')),
        ("bad.reo", WRONG),
        ("answers.csv", ANSWERS),
        ("curves.csv", CURVES),
        ("ended.csv", ENDED),
        (
            "group.json",
            '{"responses": [{"length": 4, "correct": true}, {"length": 8, "correct": false, "forced": {"8": false}}]}',
        ),
        # Found by a task alone: the question is longer than prompts may be.
        ("two.jsonl", f'{{"question": "{"1 " * 99}", "answer": "1"}}\n'),
    ):
        Path(name).write_text(text)
    document = read_document()
    commands = {name: document[name] for name in CALLS}
    wrong = []
    for name, calls in CALLS.items():
        if name == "why":
            _leave_steps(output(capsys, ("plan", "tiny.reo", "--set", "length=4")))
        if name == "report":
            going = _begin_a_run()
        if name == "gc":
            runs.end(Store(Path(".reodsl")), going, "interrupted")
        if name == "ls":
            next(tmp_path.glob(".reodsl/objects/*/*/summary.json")).unlink()
        for call in calls:
            value = output(capsys, call)
            try:
                _fit(value, commands[name], document)
            except Mismatch as caught:
                wrong.append(f"reodsl {' '.join(call)}: {caught}")
    for name, shapes in commands.items():
        for shape in shapes:
            wrong += [f"no call of `reodsl {name}` printed `{path}`" for path in unseen(shape)]
    assert not wrong, "\n".join(wrong)


def _leave_steps(plan: Any) -> None:
    """What a training leaves that was stopped."""
    (key,) = (task["key"] for task in plan["tasks"] if task["id"] == "tiny.train.s1")
    add_step(Path(".reodsl") / "work" / key, {"step": 1, "reward": 0.5, "loss": float("nan")})


def _begin_a_run() -> runs.RunRecord:
    """A run that goes on, in this process, and has all but its last result."""
    store = Store(Path(".reodsl"))
    first = next(each for each in runs.records(store) if each.study == "small")
    record = runs.begin(store, runs.require_spec(store, first), first.spec)
    writer = runs.Writer(store, record)
    writer.begin(9)
    for task, key in first.tasks.items():
        if not task.startswith("score"):
            writer.add(task, key)
    writer.note(Event("started", "score", key="0" * 64))
    writer.note(Event("finished", "tiny.train.s1", seconds=1.5))
    writer.note(Event("failed", "tiny.eval.s1", diagnostics=(error("E0990", "it broke"),)))
    Teller(store.root, "0" * 64, "score").tell(Progress(1, 1, {"reward": 0.5, "verifier_failures": 1.0}))
    folder = store.path(first.tasks["tiny.train.s1"])
    folder.chmod(0o755)
    for place in (store.root / "work" / ("0" * 64) / "rollouts" / "1.parquet", folder / "monitor.parquet"):
        place.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"unsettled": [["failed: it broke"]]}).write_parquet(place)
    return record


def _fit(value: Any, shapes: list[Shape], parts: dict[str, list[Shape]]) -> None:
    """The value is as one of the tables of its command says."""
    mismatches = []
    for shape in shapes:
        try:
            compare(value, shape, parts)
        except Mismatch as caught:
            mismatches.append(caught)
        else:
            return
    raise mismatches[-1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1}, "promises `b`"),
        ({"a": "1", "b": []}, "a is str"),
        ({"a": True, "b": []}, "a is bool"),
        ({"a": 1, "b": [], "c": 2}, "has no `c`"),
        ({"a": 1, "b": [{"d": None}]}, "null"),
        ({"a": 1, "b": {}}, "not a list"),
    ],
)
def test_a_difference_is_found(value: Any, words: str) -> None:
    shape = Shape(
        inside={"a": Shape(("int",)), "b": Shape(inside={"[]": Shape(inside={"d": Shape(("text",))})})}
    )
    with pytest.raises(Mismatch, match=words):
        compare(value, shape, {})
