"""`watch`, `ls`, `why` and `report` beside a run that goes: from another process, with the steps it has done."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.store.files import hash_plain
from reodsl.store.live import add_step
from reodsl.store.runs import RunRecord, events, records, save
from reodsl.store.store import Store
from reodsl.watch import read_state
from tests.bad_input.commands import SPEC
from tests.called import call
from tests.terminal import terminal

ROOT = Path(__file__).resolve().parents[2]
LONG = SPEC.replace("in 1 steps..9 steps", "in 1 steps..100000 steps")


@pytest.fixture
def place(tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tiny.reo").write_text(LONG)
    return tmp_path


@pytest.fixture
def going(place: Path) -> Any:
    """A run that trains on and on, in a process of its own, once it has done some steps."""
    options = ["--local", "--quiet", "--set", "length=100000"]
    command = [sys.executable, "-m", "reodsl", "run", "tiny.reo", *options]
    process = subprocess.Popen(command, cwd=place, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while not [line for path in place.glob(".reodsl/work/*/metrics.jsonl") for line in path.open()][2:]:
            assert process.poll() is None, "the run ended"
            assert time.monotonic() < deadline, "no step was done"
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = call(*arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_a_run_is_followed_from_another_process(going: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "watch", "--json")
    state = json.loads(out)
    (task,) = state["running"]
    assert (code, state["status"], task["task"]) == (2, "running", "tiny.train.s1")
    assert task["step"] >= 1
    assert task["steps"] == 100000
    assert {"reward", "accuracy", "length"} <= task["numbers"].keys()
    assert state["done"] < state["total"]

    code, out, _ = output(capsys, "watch", "tiny", "--once")
    assert code == 2
    assert "tiny.train.s1" in out
    assert "/100000" in out

    code, out, _ = output(capsys, "ls")
    assert "running" in out
    assert "    at  tiny.train.s1  " in out
    assert "/100000" in output(capsys, "ls", "tiny")[1]
    code, out, _ = output(capsys, "why", "tiny.reo", "tiny.train", "--set", "length=100000")
    assert out.startswith("tiny.train.s1: run, it is running now\n  it is at step ")
    assert " of 100000, " in out

    code, out, err = output(capsys, "report", "tiny", "--out", "shown")
    assert (code, out) == (0, "report: shown/report.html\n")
    assert "warning[W0805]: the report leaves out" in err
    assert "drawn up to the last step so far: tiny.train.s1 (step " in err
    page = Path("shown/report.html").read_text()
    assert "This study is not finished." in page
    assert "State of the run: running." in page
    assert "Nothing is evaluated yet." in page
    assert Path("shown/tables/training.csv").read_text().count("\n") > 2

    # The process is gone: what it had done is still there, and nothing says that it goes on.
    os.killpg(going.pid, signal.SIGKILL)
    going.wait()
    code, out, _ = output(capsys, "watch")
    assert code == 1
    assert "stopped  tiny.train.s1  at " in out
    state = json.loads(output(capsys, "watch", "--json")[1])
    assert state["running"] == []
    (left,) = [each for each in state["tasks"] if each["status"] != "finished"]
    assert (left["task"], left["status"], left["seconds"]) == ("tiny.train.s1", "stopped", None)
    assert left["said"].endswith(" of 100000")
    assert "    at " not in output(capsys, "ls")[1]
    code, out, err = output(capsys, "report", "tiny", "--out", "shown")
    assert code == 0
    assert " results, missing or damaged" in err
    assert "reodsl run tiny.reo" in err


@pytest.mark.slow
def test_a_run_is_watched_to_its_end_in_a_terminal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "from tests.undrawn import undraw; undraw(setattr); from reodsl.cli.main import entry; entry()"
    command = [sys.executable, "-c", script, "run", "tiny.reo", "--local", "--quiet"]
    process = subprocess.Popen(command, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 120
    while not list(place.glob(".reodsl/runs/*.events")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with terminal(80) as (file, screen):
        monkeypatch.setattr(sys, "stdout", file)
        code = call("watch", "--every", "0.2")
        monkeypatch.undo()
        monkeypatch.chdir(place)
    assert process.wait(120) == 0
    assert code == 0
    text = screen.lines()
    assert "done     tiny.eval.s1" in text
    assert "\nfinished: " in text
    assert "report.html" in text.replace("\n", "")
    assert "Traceback" not in text


@pytest.mark.slow
def test_what_a_finished_run_left(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "tiny.reo", "--local", "--quiet") == 0
    store = Store(place / ".reodsl")
    (record,) = records(store)
    found = events(store, record)
    assert found[0]["kind"] == "began"
    assert {each["task"] for each in found if each["kind"] == "finished"} == set(record.tasks)
    assert not list(place.glob(".reodsl/work/*"))
    assert not list(place.glob(".reodsl/live/*"))
    code, out, _ = output(capsys, "watch")
    assert code == 0
    assert "finished" in out
    assert "report: " in out
    (log,) = place.glob(".reodsl/runs/*.events")
    for damaged in ('[]\n{"at": 1, "kind": "fini', None):
        log.write_text(damaged) if damaged else log.unlink()
        state = read_state(store, record)
        assert (state.status, state.total, state.going) == ("finished", None, ())
        for command in (("watch", record.name), ("report", record.name, "--out", "again"), ("ls",)):
            assert output(capsys, *command)[0] == 0
    # One that found everything in place says nothing of single tasks.
    assert call("run", "tiny.reo", "--local", "--quiet") == 0
    again = records(store)[-1]
    assert [each["kind"] for each in events(store, again)] == ["began"]


def left(place: Path, *lines: dict[str, object]) -> tuple[Store, RunRecord, Path]:
    """A store with a run whose process is gone, and these events in its log."""
    store = Store(place / ".reodsl")
    store.open()
    began = "2099-01-01T00:00:00+00:00"
    record = RunRecord("20990101T000000.left", "tiny", "0" * 64, "tiny.reo", {}, [], began, os.getpid())
    save(store, record)
    log = store.root / "runs" / f"{record.name}.events"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return store, record, log


def test_a_run_whose_process_died_is_stopped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How far it was, and what Python of the user failed at until then."""
    at = {"at": 1.0, "kind": "started", "task": "tiny.train.s1", "key": "0a"}
    store, _, _ = left(place, {"at": 1.0, "kind": "began", "total": 3}, at)
    add_step(store.root / "work" / "0a", {"step": 2, "verifier_failures": 3.0})
    reasons = [f"failed: `own.py:judge` failed: ValueError: {number}, line 15" for number in range(3)]
    pl.DataFrame({"unsettled": [reasons]}).write_parquet(store.root / "work" / "0a" / "rollouts.parquet")
    code, out, _ = output(capsys, "watch")
    said = " ".join(out.split())
    assert code == 1
    assert "stopped tiny.train.s1 at 2" in said
    assert "3 answers made the verifier fail; answers that are not judged count as wrong" in said
    assert f"3 times: {reasons[0]}" in said
    state = json.loads(output(capsys, "watch", "--json")[1])
    assert (state["status"], state["running"]) == ("stopped", [])
    assert [(each["status"], each["failing"][0]["times"]) for each in state["tasks"]] == [("stopped", 3)]
    assert "    at " not in output(capsys, "ls")[1]


def test_torn_and_damaged_lines_are_no_events(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, record, log = left(place, {"at": 1.0, "kind": "began", "total": 3, "seconds": 9.0})
    assert read_state(store, record).expected == 9
    log.write_text(log.read_text() + '{"at": 1, "kind": "fini')
    assert len(events(store, record)) == 1
    log.write_text('{"kind": 3}\n{"at": "x"}\n[]\n')
    assert events(store, record) == []
    whole = {"at": 1.0, "kind": "started", "task": "a", "key": "0a"}
    damaged = [
        *({name: value for name, value in whole.items() if name != lost} for lost in ("at", "kind", "task")),
        *(whole | {name: value} for name in whole for value in (None, 7, [1], {"a": 1}, True)),
        *(
            whole | change
            for change in ({"at": math.nan}, {"at": math.inf}, {"key": "../../a"}, {"seconds": "x"})
        ),
        *({"at": 1.0, "kind": "began", "total": total} for total in (None, "3", -math.inf, 10**4299, [3])),
        {"at": 1.0, "kind": "began"},
    ]
    lines = [json.dumps(each) for each in damaged]
    log.write_text("\n".join([*lines, "[" * 100_000, "9" * 5_000, json.dumps(whole)]) + "\n")
    assert events(store, record) == [whole]
    assert output(capsys, "watch", record.name)[0] == 1
    assert output(capsys, "ls")[0] == 0


def test_a_store_with_nothing_in_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(place / ".reodsl").open()
    code, _, err = output(capsys, "watch")
    assert code == 1
    assert "error[E0954]: nothing has run here yet" in err


@pytest.mark.slow
def test_a_report_says_what_it_cannot_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An artifact of another version, whole for the store, has other columns."""
    assert call("run", "tiny.reo", "--local", "--quiet") == 0
    table = next(place.glob(".reodsl/objects/*/*/metrics.parquet"))
    table.parent.chmod(0o755)
    table.chmod(0o644)
    size = table.stat().st_size
    table.write_bytes(b"PAR0" + b"\0" * (size - 4))
    listed = table.parent / "manifest.json"
    listed.chmod(0o644)
    manifest = json.loads(listed.read_bytes())
    manifest["files"]["metrics.parquet"]["sha256"] = hash_plain(table)
    listed.write_text(json.dumps(manifest))
    code, out, err = output(capsys, "report", "tiny", "--out", "shown", "--json")
    assert code == 0
    (finding,) = json.loads(out)["diagnostics"]
    assert finding["code"] == "W0805"
    assert finding["where"] == "tiny.train.s1"
    assert output(capsys, "why", "tiny.reo", finding["where"])[0] == 0
    assert "warning[W0805]: the report leaves out a result that cannot be read" in err
    assert "tiny" in Path("shown/tables/main.csv").read_text()

    # A run that has just begun: what it lacks and what it cannot show are told together, once each.
    store = Store(place / ".reodsl")
    (record,) = records(store)
    tasks = {each: key for each, key in record.tasks.items() if each != "tiny.eval.s1"}
    begun = replace(
        record,
        name="20990101T000000.begun",
        started="2099-01-01T00:00:00+00:00",
        status="running",
        ended=None,
        report=None,
        tasks=tasks,
    )
    save(store, begun)
    kept = store.root / "runs"
    (kept / f"{begun.name}.spec").write_bytes((kept / f"{record.name}.spec").read_bytes())
    code, out, err = output(capsys, "report", begun.name, "--out", "both", "--json")
    assert code == 0
    assert [each["code"] for each in json.loads(out)["diagnostics"]] == ["W0805"] * 2
    assert "the report leaves out 1 of " in err
    assert "left out: tiny.eval.s1" in err
    html = Path("both/report.html").read_text()
    assert "The report leaves out 1 of 3 results" in html
    assert "State of the run: interrupted." in html


def test_steps_alone_are_nothing_to_go_on_from(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", "tiny.reo", "--json") == 2
    Store(place / ".reodsl").open()
    key = json.loads(output(capsys, "plan", "tiny.reo", "--json")[1])["tasks"][0]["key"]
    add_step(place / ".reodsl" / "work" / key, {"step": 1, "loss": 1.0})
    assert json.loads(output(capsys, "plan", "tiny.reo", "--json")[1])["tasks"][0]["reason"] == "not done yet"
