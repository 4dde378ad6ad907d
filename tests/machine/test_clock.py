"""Time of processors: that of this process and of all below it, gone or not, and none of others."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from runners.machine import clock
from runners.machine.clock import Moment, now, processor_seconds, time_spans

BURN = "import time\nwhile time.process_time() < {}: pass\n"
TELL = "print('done', flush=True); input()"


def test_waiting_is_time_by_the_clock_alone() -> None:
    began = now()
    time.sleep(0.2)
    took = time_spans("nap", (began, now()))
    assert took["seconds_nap"] >= 0.2
    assert took["processor_nap"] < 0.2


def test_spans_add_up_and_never_run_backwards() -> None:
    a, b, c, d = Moment(1.0, 5.0), Moment(2.5, 5.5), Moment(4.0, 6.0), Moment(4.5, 5.0)
    assert time_spans("x", (a, b), (c, d)) == {"seconds_x": 2.0, "processor_x": 0.5}


@pytest.mark.skipif(sys.platform != "linux", reason="processes that still run are told of by /proc")
def test_what_a_process_below_spends_counts_while_it_lives_and_after() -> None:
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(0.2)!r}])\n"
    began = processor_seconds()
    child = subprocess.Popen(
        [sys.executable, "-c", below + TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    alive = processor_seconds() - began
    child.communicate(b"\n")
    ended = processor_seconds() - began
    # The system counts in hundredths of a second.
    assert 0.18 <= alive <= ended + 0.02


def test_without_children_or_a_way_to_see_them_there_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began = time.process_time()
    monkeypatch.setattr(clock, "_has_children", lambda: True)
    monkeypatch.setattr(clock, "_PROCESSES", tmp_path)
    assert processor_seconds() >= began
