"""`reodsl watch [RUN]`: look on while a run goes, or at one that has ended; and the display of a run by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reodsl.cli.options import complete_runs, existing_store, known_store_option
from reodsl.cli.output import print_json
from reodsl.diagnostics import problem
from reodsl.graph.job import Event, Progress
from reodsl.store.runs import RunRecord, alive, pick, records
from reodsl.store.store import Store
from reodsl.watch import (
    Ended,
    Going,
    Pace,
    State,
    TaskRow,
    at,
    draw,
    numbers,
    read_state,
    span,
    to_json,
    wrap_pieces,
)

if TYPE_CHECKING:
    from rich.console import Console, Group


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
        """Begin with nothing open."""


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
            _print_end(self.console, event.kind, line[:9], line[9:].split("  "))

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


_ENDS = {"failed": "failed   ", "blocked": "skipped  ", "finished": "done     ", "stopped": "stopped  "}


@click.command(
    short_help="Follow a run while it goes.",
    epilog="""\b
Examples:
  reodsl watch                           the run that goes on, or the latest
  reodsl watch quickstart                the latest run of that study
  reodsl watch --store /shared/reo       from another machine that has the store
  reodsl watch quickstart --once         how far it is, and back to the prompt
  reodsl watch --json                    the same as JSON, for scripts
""",
)
@click.argument("run", required=False, shell_complete=complete_runs)
@known_store_option
@click.option("--once", is_flag=True, help="Show how far the run is and stop; do not wait for its end.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=1.0,
    metavar="SECONDS",
    help="How often to look. Default: 1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print how far the run is as JSON, and stop.")
def watch_command(run: str | None, store_dir: Path | None, once: bool, every: float, as_json: bool) -> None:
    """Follow a run while it goes: its tasks, their steps, rewards and lengths.

    RUN is a study, or the start of a run's name. Watching changes nothing, and Ctrl-C ends the watching, not the
    run. Exits 0 when the run finished, 1 when it failed or stopped, 2 when it is still going.
    """
    store = existing_store(store_dir)
    name = _choose_run(store, run).name

    def look() -> State:
        return read_state(store, pick(records(store), name))

    state = look()
    if as_json:
        print_json(to_json(state))
    elif once or state.over:
        _show_once(state)
    else:
        try:
            state = _follow(look, state, every)
        except KeyboardInterrupt:
            click.echo("the run goes on; look again with `reodsl watch`", err=True)
            raise SystemExit(0) from None
    raise SystemExit(0 if state.status == "finished" else 2 if state.status == "running" else 1)


def _choose_run(store: Store, run: str | None) -> RunRecord:
    """Return the run that is named; else the latest that goes on, else the latest."""
    runs = records(store)
    if run is not None:
        return pick(runs, run)
    if not runs:
        raise problem("E0954", "nothing has run here yet", where=str(store.root), help="reodsl run SPEC")
    return next((each for each in reversed(runs) if alive(store, each)), runs[-1])


def _show_once(state: State) -> None:
    from rich.console import Console

    # A pipe has no width: what is printed there stays on one line a task.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    for each in state.ended:
        if each.kind != "finished":
            _print_ended(console, each)
    console.print(draw_state(state, {}, console.width, 10_000))
    if state.over:
        console.print(f"{state.status} {state.record.ended or ''}".rstrip())
        if state.record.report:
            console.print(f"report: {state.record.report}", soft_wrap=True, markup=False)


def _follow(look: Callable[[], State], state: State, every: float) -> State:
    """Show a run until it ends: a live table on a terminal, lines elsewhere; its last state."""
    from rich.console import Console

    paces: dict[str, Pace] = {}
    seen = {each.task for each in state.ended if each.kind == "finished"}
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    printed: dict[str, float] = {}
    if sys.stdout.isatty():
        from rich.live import Live

        current = [state]
        with Live(
            console=console,
            transient=True,
            refresh_per_second=2,
            get_renderable=lambda: draw_state(current[0], paces, console.width, console.height),
        ):
            while not current[0].over:
                _tell_ends(console, current[0], seen)
                time.sleep(every)
                current[0] = look()
        state = current[0]
    else:
        console.print(draw_state(state, paces, console.width, 10_000))
        while not state.over:
            _tell_ends(console, state, seen)
            _tell_progress(state, paces, printed)
            time.sleep(every)
            state = look()
    _tell_ends(console, state, seen)
    console.print(f"{state.status}: {state.done} of {state.total or state.done} tasks")
    if state.record.report:
        console.print(f"report: {state.record.report}", soft_wrap=True, markup=False)
    return state


def draw_state(state: State, paces: dict[str, Pace], width: int, height: int) -> Group:
    """Return the state as lines; `paces` remembers how far tasks were, for the time that is left."""
    now = time.time()
    rows = [_row(each, paces, now) for each in state.going]
    total = f"{state.done} of {state.total} tasks" if state.total is not None else f"{state.done} results"
    head = [(f"{state.record.study} {state.record.spec[:8]}", "bold"), (total, "bold")]
    if state.began is not None and not state.over:
        head.append((span(now - state.began), "bold"))
    return draw(head, rows, width, height)


def _row(each: Going, paces: dict[str, Pace], now: float) -> TaskRow:

    pace = paces.setdefault(each.task, Pace(each.began))
    pace.waiting, pace.steps = each.waiting, list(each.steps)
    if each.progress is not None:
        pace.advance(each.progress, now)
    row = pace.row(each.task, now)
    return replace(row, rest=f"{row.rest}, weights {each.weights}") if each.weights else row


def _tell_ends(console: Console, state: State, seen: set[str]) -> None:
    for each in state.ended:
        if each.task not in seen:
            seen.add(each.task)
            _print_ended(console, each)


def _print_end(console: Console, kind: str, label: str, words: Sequence[str]) -> None:
    style = {"finished": "", "failed": "red"}.get(kind, "dim")
    pieces = [(word.strip(), style) for word in words if word.strip()]
    for line in wrap_pieces(label, pieces, console.width):
        console.print(line)


def _print_ended(console: Console, each: Ended) -> None:
    seconds = "" if each.seconds is None else span(each.seconds)
    _print_end(console, each.kind, _ENDS[each.kind], (each.task, seconds, each.said))


def _tell_progress(state: State, paces: dict[str, Pace], printed: dict[str, float]) -> None:

    now = time.time()
    for each in state.going:
        row = _row(each, paces, now)
        if each.progress is not None and now - printed.setdefault(each.task, now) >= _PLAIN_EVERY:
            printed[each.task] = now
            click.echo(f"at       {each.task}  {at(row)}  {numbers(each.progress)}  {row.rest}")
