"""The display of a run while it runs: a live table on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from reodsl.graph.job import Event, Progress
from reodsl.watch.draw import Pace, draw, numbers, span, wrap_pieces

if TYPE_CHECKING:
    from rich.console import Group

_PLAIN_EVERY = 15.0


@dataclass(slots=True)
class Board:
    """The state of all tasks at a moment."""

    total: int
    clock: Callable[[], float] = time.monotonic
    ended: int = 0
    running: dict[str, Pace] = field(default_factory=dict)
    last: dict[str, Progress] = field(default_factory=dict)

    def hear(self, event: Event) -> None:
        """Take in an event."""
        now = self.clock()
        match event.kind:
            case "started":
                self.running[event.task] = Pace(now)
            case "progress" if event.progress is not None:
                pace = self.running.setdefault(event.task, Pace(now))
                pace.advance(event.progress, now)
                pace.steps.append(event.progress.numbers)
                self.last[event.task] = event.progress
            case "waiting":
                self.running.setdefault(event.task, Pace(now)).waiting = True
            case "reused" | "finished" | "failed" | "blocked":
                self.running.pop(event.task, None)
                self.ended += 1
            case "rebuilding":
                self.ended -= 1


def ending(event: Event, last: Progress | None) -> str | None:
    """Return the line that stays on the screen for an event, if one does."""
    match event.kind:
        case "finished":
            took = "made by another run" if event.seconds is None else span(event.seconds)
            return f"done     {event.task}  {took}  {numbers(last)}".rstrip()
        case "failed":
            return (
                f"failed   {event.task}  {event.diagnostics[0].message if event.diagnostics else ''}".rstrip()
            )
        case "blocked":
            return f"skipped  {event.task}"
        case "waiting":
            return f"waiting  {event.task}  {event.why}"
        case "rebuilding":
            return f"damaged  {event.task}  it is made anew"
    return None


class Plain:
    """Lines for logs and pipes: starts, ends, and progress now and then."""

    def __init__(self, board: Board) -> None:
        """Lines go to stderr."""
        self.board = board
        self.printed: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        """Write a line where there is something to say."""
        self.board.hear(event)
        now = self.board.clock()
        count = f"[{self.board.ended}/{self.board.total}]"
        if event.kind == "started":
            click.echo(f"{count} start    {event.task}", err=True)
        elif event.kind == "progress" and event.progress is not None:
            if now - self.printed.setdefault(event.task, now) >= _PLAIN_EVERY:
                self.printed[event.task] = now
                left = self.board.running[event.task].left(now)
                rest = f"  {span(left)} left" if left is not None else ""
                at = f"{event.progress.done}/{event.progress.total}"
                click.echo(f"{count} at       {event.task}  {at}  {numbers(event.progress)}{rest}", err=True)
        else:
            line = ending(event, self.board.last.get(event.task))
            if line:
                click.echo(f"{count} {line}", err=True)

    def close(self) -> None:
        """Nothing is open."""


class LiveTable:
    """A live table of the running tasks under a list of the ended ones, for terminals.

    It begins once something is done: though nothing is planned, a damaged result may be made anew.
    """

    def __init__(self, board: Board, title: str) -> None:
        """Prepare a table that is drawn on stderr a few times a second."""
        from rich.console import Console
        from rich.live import Live

        self.board, self.title = board, title
        self.began, self.shown = board.clock(), False
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(
            console=self.console, refresh_per_second=4, transient=True, get_renderable=self._draw
        )

    def hear(self, event: Event) -> None:
        """Take in an event; the end of a task stays on the screen."""
        if not self.shown and event.kind != "reused":
            self.shown = True
            self.live.start()
        self.board.hear(event)
        line = ending(event, self.board.last.get(event.task))
        if line:
            style = {"finished": "", "failed": "red"}.get(event.kind, "dim")
            pieces = [(part.strip(), style) for part in line[9:].split("  ") if part.strip()]
            for each in wrap_pieces(line[:9], pieces, self.console.width):
                self.console.print(each)

    def close(self) -> None:
        """Take the table away."""
        self.live.stop()

    def _draw(self) -> Group:
        now = self.board.clock()
        rows = [pace.row(task, now) for task, pace in list(self.board.running.items())]
        count = f"{self.board.ended} of {self.board.total} tasks"
        head = [(self.title, "bold"), (count, "bold"), (span(now - self.began), "bold")]
        return draw(head, rows, self.console.width, self.console.height)


def display(total: int, title: str, quiet: bool, terminal: bool) -> LiveTable | Plain | None:
    """Return the display that suits: none, a live table on a terminal, or plain lines."""
    if quiet:
        return None
    return LiveTable(Board(total), title) if terminal else Plain(Board(total))
