"""What a run shows: pace, numbers and time left, in lines or in a table, and nothing when quiet."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console
from rich.live import Live

from reodsl.cli.watch import Board, Display, display, draw
from reodsl.diagnostics import error
from reodsl.graph.job import Event, Progress
from reodsl.watch import numbers, span
from tests.watch.test_terminals import Clock


def progress(done: int, **values: float) -> Event:
    return Event("progress", "reo.train.s1", Progress(done, 10, values))


def test_time_left_follows_the_pace_since_progress_was_first_heard_of() -> None:
    clock = Clock()
    board = Board("study", 5, clock)
    board.hear(Event("started", "reo.train.s1"))
    clock.now = 100  # loading; then it goes on from step 4, where an earlier attempt stopped
    board.hear(progress(4))
    assert board.left(board.running["reo.train.s1"]) is None
    clock.now = 106
    board.hear(progress(7))
    assert board.left(board.running["reo.train.s1"]) == pytest.approx(6)
    board.hear(Event("finished", "reo.train.s1", seconds=110))
    assert board.running == {}
    assert board.count == 1


def test_a_rebuilt_task_counts_once() -> None:
    board = Board("study", 2)
    for kind in ("reused", "rebuilding", "started", "finished"):
        board.hear(Event(kind, "a"))  # type: ignore[arg-type]
    assert board.count == 1


def test_numbers_are_told_as_people_read_them() -> None:
    told = numbers(
        Progress(1, 2, {"reward": 0.4219, "accuracy": 0.615, "length": 77.84, "tokens_per_second": 12345.6})
    )
    assert told == "reward 0.422  accuracy 61.5%  length 77.8  tokens per second 12,346"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_plain_lines_tell_starts_ends_and_progress_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    plain = Display(Board("study", 3, clock), Console(stderr=True), live=False)
    plain.hear(Event("started", "reo.train.s1"))
    for step in range(1, 10):
        clock.now += 6
        plain.hear(progress(step, reward=step / 10))
    plain.hear(Event("finished", "reo.train.s1", seconds=54))
    plain.hear(Event("failed", "b.eval", diagnostics=(error("E0990", "it broke"),)))
    plain.hear(Event("blocked", "report"))
    plain.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[0/3] start    reo.train.s1"
    assert lines[1] == "[0/3] at       reo.train.s1  4/10  reward 0.4  36 s left"
    assert 2 <= sum(" at " in line for line in lines) <= 3
    assert lines[-3:] == [
        "[1/3] done     reo.train.s1  54 s  reward 0.9",
        "[2/3] failed   b.eval  it broke",
        "[3/3] skipped  report",
    ]


def test_the_table_shows_running_tasks_and_leaves_what_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Live, "start", lambda self: None)
    board = Board("mini 0123abcd", 2, time.monotonic, time.monotonic(), 200.0)
    console = Console(file=io.StringIO(), width=140)
    table = Display(board, console, live=True)
    table.hear(Event("started", "reo.train.s1"))
    table.hear(progress(5, reward=0.5))
    for _ in range(3):
        table.hear(progress(6, reward=0.75))
    console.print(draw(board, console))
    # A task whose pace needs longer corrects the price.
    board.first["reo.train.s1"] = (time.monotonic() - 300, 3)
    assert board.whole() == pytest.approx(400, abs=5)
    table.hear(Event("waiting", "[bold]x"))
    table.hear(Event("finished", "reo.train.s1", seconds=3))
    table.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"mini 0123abcd  0 of 2 tasks  0 s of about 3 min 20 s\n", text)
    assert "6/10" in text
    assert "reward 0.75" in text
    # The curve of its steps, as `watch` shows it: a bar a step.
    assert re.search("reward ▁█ *\n", text)
    assert "waiting  [bold]x  another run computes it" in text
    assert "done     reo.train.s1  3 s  reward 0.75" in text


def test_the_display_suits_where_it_is_shown() -> None:
    assert display(1, "t", quiet=True, is_terminal=True) is None
    plain, table = (display(1, "t", quiet=False, is_terminal=each) for each in (False, True))
    assert plain is not None
    assert plain.live is None
    assert table is not None
    assert table.live is not None
