"""`reodsl watch [RUN]`: look on while a run goes, or at one that has ended; and the display of a run by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reodsl.cli.options import complete_runs, existing_store, known_store_option
from reodsl.cli.output import print_json
from reodsl.diagnostics import problem
from reodsl.graph.job import Event
from reodsl.numbers.unsettled import say_failing
from reodsl.store.runs import RunRecord, alive, pick, records
from reodsl.store.store import Store
from reodsl.watch import (
    FinishedTask,
    RunningTask,
    RunState,
    draw_curve,
    named_numbers,
    numbers,
    read_state,
    span,
    to_json,
)

if TYPE_CHECKING:
    from rich.console import Console, Group

_PLAIN_SECONDS = 15.0
_LABELS = {
    "started": "start",
    "progress": "at",
    "waiting": "waiting",
    "finished": "done",
    "failed": "failed",
    "blocked": "skipped",
    "stopped": "stopped",
    "rebuilding": "damaged",
    "": "",
}


@dataclass(slots=True)
class Board:
    """The running tasks of a run, with the speed of each."""

    title: str
    """Study and digest of the spec."""
    total: int | None
    """Number of tasks; None if unknown."""
    clock: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds."""
    began: float | None = None
    """Time at which the run began."""
    count: int = 0
    """Number of tasks that have ended."""
    running: dict[str, RunningTask] = field(default_factory=dict)
    """Running tasks by name."""
    first: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Time and step at which a task's progress was first seen."""

    def hear(self, event: Event) -> RunningTask | None:
        """Take in an event, and return the task if it was running before."""
        previous = self.running.get(event.task)
        task = previous or RunningTask(event.task, self.clock())
        match event.kind:
            case "started":
                self.take(RunningTask(event.task, self.clock()))
            case "progress" if event.progress is not None:
                steps = (*task.steps, event.progress.numbers)
                self.take(replace(task, progress=event.progress, steps=steps))
            case "waiting":
                self.take(replace(task, waiting=True))
            case "reused" | "finished" | "failed" | "blocked":
                self.running.pop(event.task, None)
                self.count += 1
            case "rebuilding":
                self.count -= 1
        return previous

    def take(self, task: RunningTask) -> None:
        """Take in the present state of a running task."""
        self.running[task.task] = task
        if task.progress is not None:
            self.first.setdefault(task.task, (self.clock(), task.progress.done))

    def left(self, task: RunningTask) -> float | None:
        """Return the seconds that a task still needs at its speed so far; None while its speed is unknown."""
        began, first_step = self.first.get(task.task, (0.0, 0))
        if task.progress is None or task.progress.done <= first_step or task.task not in self.first:
            return None
        pace = (self.clock() - began) / (task.progress.done - first_step)
        return pace * (task.progress.total - task.progress.done)

    def rest(self, task: RunningTask) -> str:
        """Return the time that is left, or else the time that has passed."""
        left_s = self.left(task)
        return (
            f"{span(left_s)} left" if left_s is not None and left_s >= 0 else span(self.clock() - task.began)
        )


def draw(board: Board, console: Console) -> Group:
    """Return the head and a line for each running task, or three if a line is too long.

    Tasks beyond the height of the terminal are counted.
    """
    from rich.columns import Columns
    from rich.console import Group
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    count = f"{board.count} of {board.total} tasks" if board.total is not None else f"{board.count} results"
    since = "" if board.began is None else f"  {span(board.clock() - board.began)}"
    wide, tall = Table.grid(padding=(0, 2, 0, 0)), []
    # Another thread may begin and end tasks.
    tasks = list(board.running.values())
    for task in tasks:
        p = task.progress
        bar = ProgressBar(p.total, p.done, width=20) if p is not None and p.total else ""
        metrics = [*named_numbers(p.numbers if p else {}), *filter(None, [draw_curve(task.steps)])]
        cells = (bar, format_steps(task), Text(board.rest(task), "dim"))
        wide.add_row(Text(task.task), *cells, Text("  ".join(metrics)))
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(*cells)
        name = Text(task.task, "bold", overflow="fold")
        tall.append(Group(name, Padding(Group(row, Columns(metrics, (0, 2))), (0, 0, 0, 2))))
    head = Text(f"{board.title}  {count}{since}", "bold")
    unbounded = console.options.update(width=10_000)
    failing = [
        Text(f"{task.task}: {'; '.join(lines)}", "yellow")
        for task in tasks
        if (lines := say_failing(task.failing))
    ]
    fits = Measurement.get(console, unbounded, wide).maximum <= console.width
    if fits and len(tasks) + 2 <= console.height:
        return Group(head, wide, *failing)
    room = max(1, console.height // 3 - 1)
    more = [Text(f"and {len(tall) - room} more", "dim")] if len(tall) > room else []
    return Group(head, *tall[:room], *more, *failing)


def format_steps(task: RunningTask) -> str:
    """Format a task's progress: `13/40`, or `waiting` for another run that makes the same result, or for nodes."""
    if task.progress is None:
        return "waiting" if task.waiting else ""
    return f"{task.progress.done}/{task.progress.total}" if task.progress.total else f"{task.progress.done}"


class Display:
    """The display of a run: lines for ended tasks, and below them the running ones.

    On a terminal these are a live table, elsewhere lines now and then. The table begins with the first event that is
    not a reuse, since a damaged result may be computed again in a run without planned work.
    """

    def __init__(self, board: Board, console: Console, live: bool) -> None:
        """Prepare a display that is not seen yet."""
        from rich.live import Live

        self.board, self.console = board, console
        self.printed: dict[str, float] = {}
        self.live = (
            Live(console=console, transient=True, get_renderable=lambda: draw(board, console))
            if live
            else None
        )

    def hear(self, event: Event) -> None:
        """Take in an event; the end of a task stays on the screen."""
        if event.kind != "reused":
            self.open()
        before = self.board.hear(event)
        match event.kind:
            case "started" if self.live is None:
                self.say("started", event.task)
            case "progress":
                self.tell_progress(event.task)
            case "finished":
                took = "made by another run" if event.seconds is None else span(event.seconds)
                self.say("finished", event.task, took, numbers(before.progress if before else None))
            case "failed":
                self.say("failed", event.task, *(diagnostic.message for diagnostic in event.diagnostics[:1]))
            case "blocked":
                self.say("blocked", event.task)
            case "waiting":
                self.say("waiting", event.task, "another run is making it")
            case "rebuilding":
                self.say("rebuilding", event.task, "it is computed again")

    def open(self) -> None:
        """Begin the table."""
        if self.live is not None:
            self.live.start()

    def close(self) -> None:
        """Take the table away."""
        if self.live is not None:
            self.live.stop()

    def say(self, kind: str, *words: str) -> None:
        """Print a line that stays: in a terminal its words wrap beside the label."""
        from rich.table import Table
        from rich.text import Text

        label, line = f"{_LABELS[kind]:<9}", "  ".join(filter(None, words))
        if self.live is None:
            count = f"[{self.board.count}/{self.board.total}] "
            self.console.print(Text(count + label + line), soft_wrap=True)
            return
        style = {"finished": "", "failed": "red", "": "yellow"}.get(kind, "dim")
        grid = Table.grid()
        grid.add_row(Text(label, style), Text(line, style, overflow="fold"))
        self.console.print(grid)

    def tell_progress(self, name: str) -> None:
        """Print how far a task is, now and then, if no table shows it."""
        now, task = self.board.clock(), self.board.running[name]
        if self.live is None and now - self.printed.setdefault(name, now) >= _PLAIN_SECONDS:
            self.printed[name] = now
            self.say("progress", name, format_steps(task), numbers(task.progress), self.board.rest(task))


def display(total: int, title: str, quiet: bool, terminal: bool) -> Display | None:
    """Return the display that suits: none, a live table on a terminal, or plain lines."""
    if quiet:
        return None
    from rich.console import Console

    board = Board(title, total, began=time.monotonic())
    return Display(board, Console(stderr=True, highlight=False, force_jupyter=False), terminal)


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

    Args:
        run: Name of a study, or the start of a run's name; None for the run that is going on, else the latest run.
        store_dir: Folder of the store, or None to look for it.
        once: Whether to print the present state once, without waiting for the end of the run.
        every: Seconds between two looks at the store.
        as_json: Whether to print JSON instead of text.
    """
    store = existing_store(store_dir)
    name = _choose_run(store, run).name

    def look() -> RunState:
        return read_state(store, pick(records(store), name))

    state = look()
    if as_json:
        print_json(to_json(state))
    else:
        try:
            state = _follow(look, state, 0 if once else every)
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
        raise problem("E0954", "nothing has run here yet", where=store.shown, help="reodsl run SPEC")
    return next((record for record in reversed(runs) if alive(store, record)), runs[-1])


def _follow(look: Callable[[], RunState], state: RunState, every: float) -> RunState:
    """Show a run until it ends, or once if `every` is 0, and return its last state."""
    from rich.console import Console

    live, following = sys.stdout.isatty(), every and not state.has_ended
    # A pipe has no width: what is printed there stays on one line a task.
    width, height = None if live else 200, None if live and following else 10_000
    console = Console(highlight=False, width=width, height=height)
    began = None if state.has_ended else state.began
    board = Board(f"{state.record.study} {state.record.spec[:8]}", state.total, time.time, began)
    screen = Display(board, console, live)
    seen = {task.task for task in state.finished if task.kind == "finished" and not task.failing}
    _show(screen, state, seen)
    if live and following:
        screen.open()
    else:
        console.print(draw(board, console))
    try:
        while following and not state.has_ended:
            time.sleep(every)
            state = look()
            _show(screen, state, seen)
    finally:
        screen.close()
    if state.has_ended:
        summary = (
            f": {state.done} of {state.total or state.done} tasks"
            if following
            else f" {state.record.ended or ''}"
        )
        console.print(f"{state.status}{summary}".rstrip())
    if state.has_ended and state.record.report:
        console.print(f"report: {state.record.report}", soft_wrap=True, markup=False)
    return state


def _show(screen: Display, state: RunState, seen: set[str]) -> None:
    """Show tasks that ended since the last look, grouped by their reason of failure, and the progress of running ones."""
    screen.board.count, screen.board.running = state.done, {task.task: task for task in state.going}
    by_reason: dict[object, list[FinishedTask]] = {}
    for task in state.finished:
        if task.task not in seen:
            by_reason.setdefault(task.reason if task.kind == "failed" else task.task, []).append(task)
    for first, *more in by_reason.values():
        names = [task.task for task in (first, *more)]
        seen.update(names)
        seconds = "" if first.seconds is None else span(first.seconds)
        screen.say(first.kind, ", ".join(names), seconds, first.reason)
        for line in say_failing(first.failing):
            screen.say("", line)
    for running in state.going:
        screen.board.take(running)
        screen.tell_progress(running.task)
