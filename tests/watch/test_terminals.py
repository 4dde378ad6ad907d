"""The live view and the plan in terminals of 50, 80 and 120 columns: whole, to the byte, and no word cut."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from reodsl.cli.watch import Board, Display, draw
from reodsl.graph.job import Event, Progress
from reodsl.price.machine import measure
from reodsl.watch import RunningTask, spark
from tests.called import SPECS, call
from tests.terminal import Screen, terminal

WIDTHS = (50, 80, 120)
ALL = {"reward": 0.9412, "accuracy": 0.941, "length": 54.2, "loss": 0.00685, "tokens_per_second": 3349.0}


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_live_view_is_whole(
    columns: int, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Live, "start", lambda self: None)
    clock = Clock()
    with terminal(columns) as (file, screen):
        board = Board("quickstart 8c74ac51", 23, clock, began=0.0)
        console = Console(file=file, highlight=False, force_terminal=True, width=columns)
        table = Display(board, console, live=True)
        table.hear(Event("started", "chain_model.model.s1"))
        clock.now = 4
        table.hear(Event("finished", "chain_model.model.s1", seconds=4))
        table.hear(Event("failed", "reo_exp_with_a_long_name_that_says_a_lot.train.verbose.s12"))
        table.hear(Event("started", "vanilla.train.s1"))
        for step in range(1, 14):
            clock.now += 3
            table.hear(Event("progress", "vanilla.train.s1", Progress(step, 40, ALL)))
        table.hear(Event("started", "reo_exp_with_a_long_name_that_says_a_lot.train.verbose.s11"))
        table.hear(Event("waiting", "reo_exp_with_a_long_name_that_says_a_lot.train.verbose.s11"))
        table.hear(Event("finished", "base.eval.s1", seconds=200))
        console.print(draw(board, console))
    golden(f"watch/live-{columns}.txt", screen.lines())


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_plan_is_whole(
    columns: int, golden: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(SPECS.parent)
    here = measure(tmp_path)
    monkeypatch.setattr("reodsl.run.measure", lambda root: type(here)(**{**_fields(here), "cores": 2}))
    with terminal(columns) as (file, screen):
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr(sys, "__stdout__", file)
        assert call("plan", "specs/quickstart.reo", "--store", str(tmp_path / "none")) == 2
        monkeypatch.undo()
    golden(f"watch/plan-{columns}.txt", screen.lines())


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]


def board_of(*tasks: RunningTask) -> Board:
    board = Board("study 0123abcd", 3, Clock())
    for task in tasks:
        board.take(task)
    return board


@pytest.mark.parametrize("columns", range(20, 141, 7))
def test_no_line_is_longer_than_the_terminal(columns: int) -> None:
    console = Console(file=io.StringIO(), width=columns, height=40)
    steps = [{"reward": value} for value in (0.1, 0.4, 0.9)]
    board = board_of(
        RunningTask("a.train.s1", 0.0, Progress(3, 10, ALL), steps=steps),
        RunningTask("b" * 30, 0.0, waiting=True),
    )
    shown = Display(board, console, live=True)
    console.print(draw(board, console))
    shown.say("failed", "x.train.s1", "it broke in a sentence of some length")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    lost = [
        word
        for word in (*["it", "broke", "in", "a", "sentence", "of", "some", "length"], "0.941", "3/10")
        if word not in text
    ]
    assert lost == []


def test_tasks_that_do_not_fit_the_height_are_counted() -> None:
    console = Console(file=io.StringIO(), width=80, height=10)
    console.print(
        draw(board_of(*(RunningTask(f"task_{i}.train", 0.0, Progress(1, 2)) for i in range(30))), console)
    )
    shown = console.file.getvalue().rstrip().splitlines()  # type: ignore[attr-defined]
    assert len(shown) <= 10
    assert shown[-1].strip() == "and 28 more"


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([1.0], ""),
        ([0.0, 1.0], "▁█"),
        ([2.0, 2.0], "▁▁"),
        ([0.0, float("nan"), 1.0, float("inf")], "▁█"),
    ],
)
def test_a_curve_in_one_line(values: list[float], drawn: str) -> None:
    assert spark(values) == drawn


def test_long_curves_are_means_of_stretches() -> None:
    assert spark([0.0] * 500 + [1.0] * 500, 4) == "▁▁██"


def test_the_screen_wraps_and_moves_as_a_terminal_does() -> None:
    screen = Screen(4)
    screen.feed("abcdef\r\nxy\x1b[1A\x1b[2K\rz\x1b[1mw\x1b[0m")
    assert screen.lines() == "abcd\nzw\nxy\n"
