"""Processes of ours: how one is ended, and how its end is told to another."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from runners.machine.process import Child, ProcessDied, explain_death

PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(1, flush=True)
sys.stdin.read()
"""


def child(code: str) -> Child:
    return Child([sys.executable, "-c", code], {}, stdout=subprocess.PIPE)


def test_a_process_ends_with_all_that_it_started() -> None:
    one = child(PARENT)
    assert one.stdout is not None
    assert one.stdout.readline() == b"1\n"
    (below,) = psutil.Process(one.pid).children()
    assert one.end() == -signal.SIGKILL
    below.wait(20)
    assert one.end() == -signal.SIGKILL


def test_one_that_ends_in_time_keeps_its_status() -> None:
    assert child("raise SystemExit(3)").end(60) == 3


def test_an_end_is_what_it_is_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {number}\n\n" for number in range(40)))
    told = pickle.loads(pickle.dumps(explain_death("a server", "killed by SIGKILL", tmp_path / "log")))
    assert isinstance(told, ProcessDied)
    (found,) = told.diagnostics
    assert (found.code, found.message) == ("E0938", "a server ended: killed by SIGKILL")
    assert found.notes == tuple(f"line {number}" for number in range(28, 40))
