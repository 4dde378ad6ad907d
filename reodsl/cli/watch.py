"""`reodsl watch [RUN]`: follow a run, or show a run that has ended; and the display that `reodsl run` shows."""

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
from reodsl.diagnostics import group, problem
from reodsl.graph.job import Event, Progress
from reodsl.numbers.unsettled import say_failing
from reodsl.store.runs import RunRecord, alive, pick, records
from reodsl.store.store import Store
from reodsl.watch import (
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
"""Seconds between two lines on the progress of the same task, if no live table shows it."""
_LABELS = {
    "planned": "plan",
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
    """The running tasks of a run with their progress, as the display shows them."""

    title: str
    """Study and digest of the spec."""
    total: int | None
    """Number of tasks; None if unknown."""
    clock: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds."""
    began: float | None = None
    """Time at which the run began."""
    expected: float | None = None
    """Seconds that the run takes at least, as its price says; None if unknown."""
    count: int = 0
    """Number of tasks that have ended."""
    running: dict[str, RunningTask] = field(default_factory=dict)
    """Running tasks by name."""
    first: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Time and step at which a task's progress was first seen."""

    def hear(self, event: Event) -> RunningTask | None:
        """Update the running tasks by an event, and return the state of the event's task before the event.

        The result is None if the task was not running.
        """
        previous = self.running.get(event.task)
        task = previous or RunningTask(event.task, self.clock())
        match event.kind:
            case "started":
                self.take(RunningTask(event.task, self.clock()))
            case "progress" if event.progress is not None:
                # On a cluster the progress of a step is heard several times.
                is_new = task.progress is None or task.progress.done != event.progress.done
                steps = (*(task.steps if is_new else task.steps[:-1]), event.progress.numbers)
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
        """Store the present state of a running task, and remember when its progress was first seen."""
        self.running[task.task] = task
        if task.progress is not None:
            self.first.setdefault(task.task, (self.clock(), task.progress.done))

    def left(self, task: RunningTask) -> float | None:
        """Return the seconds that a task still needs at its speed since its progress was first seen.

        The result is None if the task has done no step since then.
        """
        began, first_step = self.first.get(task.task, (0.0, 0))
        if task.progress is None or task.progress.done <= first_step or task.task not in self.first:
            return None
        pace = (self.clock() - began) / (task.progress.done - first_step)
        return pace * (task.progress.total - task.progress.done)

    def whole(self) -> float | None:
        """Return the seconds that the run takes: as its price says, or more if a running task needs longer at its pace.

        The result is None if the price or the begin is unknown.
        """
        if self.began is None or not self.expected:
            return None
        lefts = (self.left(task) or 0.0 for task in list(self.running.values()))
        return max(self.expected, self.clock() - self.began + max(lefts, default=0.0))

    def rest(self, task: RunningTask) -> str:
        """Return the time that a task still needs as text, `2 min left`, or the time that it has run if that is unknown."""
        left_s = self.left(task)
        return (
            f"{span(left_s)} left" if left_s is not None and left_s >= 0 else span(self.clock() - task.began)
        )


def draw(board: Board, console: Console) -> Group:
    """Return the display for the terminal: a heading, the running tasks, and warnings about code that fails at responses.

    Each task has a line if all lines fit the width and height of the terminal. Otherwise each task has about three
    lines, and tasks beyond the height of the terminal are only counted.

    Args:
        board: The running tasks.
        console: The terminal, whose width and height count.
    """
    from rich.columns import Columns
    from rich.console import Group
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    count = f"{board.count} of {board.total} tasks" if board.total is not None else f"{board.count} results"
    elapsed = "" if board.began is None else f"  {span(board.clock() - board.began)}"
    elapsed += f" of about {span(seconds)}" if (seconds := board.whole()) is not None else ""
    table, tall_rows = Table.grid(padding=(0, 2, 0, 0)), []
    # A copy, as another thread may add and remove tasks.
    tasks = list(board.running.values())
    for task in tasks:
        progress = task.progress or Progress(0, 0)
        bar = ProgressBar(progress.total, progress.done, width=20) if progress.total else ""
        metrics = [*named_numbers(progress.numbers), *filter(None, [draw_curve(task.steps)])]
        cells = (bar, format_steps(task), Text(board.rest(task), "dim"))
        table.add_row(Text(task.task), *cells, Text("  ".join(metrics)))
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(*cells)
        name = Text(task.task, "bold", overflow="fold")
        tall_rows.append(Group(name, Padding(Group(row, Columns(metrics, (0, 2))), (0, 0, 0, 2))))
    head = Text(f"{board.title}  {count}{elapsed}", "bold")
    unbounded = console.options.update(width=10_000)
    failing = [
        Text(f"{task.task}: {'; '.join(lines)}", "yellow")
        for task in tasks
        if (lines := say_failing(task.failing))
    ]
    fits = Measurement.get(console, unbounded, table).maximum <= console.width
    if fits and len(tasks) + 2 <= console.height:
        return Group(head, table, *failing)
    max_rows = max(1, console.height // 3 - 1)
    more = [Text(f"and {len(tall_rows) - max_rows} more", "dim")] if len(tall_rows) > max_rows else []
    return Group(head, *tall_rows[:max_rows], *more, *failing)


def format_steps(task: RunningTask) -> str:
    """Return a task's progress as text: `13/40`, or `13` if the total is unknown.

    Before any progress the text is empty, or `waiting` if the task waits for nodes or for another run that computes its
    result.
    """
    if task.progress is None:
        return "waiting" if task.waiting else ""
    return f"{task.progress.done}/{task.progress.total}" if task.progress.total else f"{task.progress.done}"


class Display:
    """The display of a run: a line for each task that ended, and below these lines the running tasks.

    On a terminal, running tasks are a live table; in a pipe, each has a line every `_PLAIN_SECONDS`. The table begins
    with the first event that is not the reuse of a result, since most runs without planned work compute nothing.
    """

    def __init__(self, board: Board, console: Console, live: bool) -> None:
        """Prepare a display, and show nothing yet.

        Args:
            board: The running tasks.
            console: The terminal or pipe that the display writes to.
            live: Whether to draw a live table, which needs a terminal.
        """
        from rich.live import Live

        self.board, self.console = board, console
        self.printed: dict[str, float] = {}
        self.live = (
            Live(console=console, transient=True, get_renderable=lambda: draw(board, console))
            if live
            else None
        )

    def hear(self, event: Event) -> None:
        """Update the display by an event.

        The end of a task, and its wait for another run, get a line that stays on the screen. Without a live table, the
        start of a task and its progress get lines as well.
        """
        if event.kind != "reused":
            self.open()
        previous = self.board.hear(event)
        match event.kind:
            case "started" if self.live is None:
                self.say("started", event.task)
            case "progress":
                self.tell_progress(event.task)
            case "finished":
                duration = "computed by another run" if event.seconds is None else span(event.seconds)
                self.say("finished", event.task, duration, numbers(previous.progress if previous else None))
            case "failed":
                self.say("failed", event.task, *(diagnostic.message for diagnostic in event.diagnostics[:1]))
            case "blocked":
                self.say("blocked", event.task)
            case "waiting":
                self.say("waiting", event.task, "another run computes it")
            case "rebuilding":
                self.say("rebuilding", event.task, "computing it again")

    def open(self) -> None:
        """Begin to draw the live table, if there is a terminal."""
        if self.live is not None:
            self.live.start()

    def close(self) -> None:
        """Remove the live table from the screen."""
        if self.live is not None:
            self.live.stop()

    def say(self, kind: str, *texts: str) -> None:
        """Print a line that stays on the screen: a label for the kind of event, then texts.

        Args:
            kind: Kind of an event, a key of `_LABELS`; an empty kind prints a note in yellow.
            texts: Texts, which follow the label; empty texts are skipped.
        """
        from rich.table import Table
        from rich.text import Text

        label, text = f"{_LABELS[kind]:<9}", "  ".join(filter(None, texts))
        if self.live is None:
            count = f"[{self.board.count}/{self.board.total}] "
            self.console.print(Text(count + label + text), soft_wrap=True)
            return
        style = {"finished": "", "failed": "red", "": "yellow"}.get(kind, "dim")
        grid = Table.grid()
        grid.add_row(Text(label, style), Text(text, style, overflow="fold"))
        self.console.print(grid)

    def tell_progress(self, name: str) -> None:
        """Print a line on the progress of the task `name` if there is no live table, at most every `_PLAIN_SECONDS`."""
        now, task = self.board.clock(), self.board.running[name]
        if self.live is None and now - self.printed.setdefault(name, now) >= _PLAIN_SECONDS:
            self.printed[name] = now
            self.say("progress", name, format_steps(task), numbers(task.progress), self.board.rest(task))


def display(
    total: int, title: str, quiet: bool, is_terminal: bool, expected: float | None = None
) -> Display | None:
    """Return a display of a run, which writes to stderr.

    Args:
        total: Number of tasks.
        title: Heading of the display.
        quiet: Whether to show nothing.
        is_terminal: Whether stderr is a terminal, which gets a live table instead of lines.
        expected: Seconds that the run takes at least, as its price says; None if unknown.

    Returns:
        The display, or None if `quiet`.
    """
    if quiet:
        return None
    from rich.console import Console

    board = Board(title, total, began=time.monotonic(), expected=expected)
    return Display(board, Console(stderr=True, highlight=False, force_jupyter=False), is_terminal)


@click.command(
    short_help="Follow a run while it goes.",
    epilog="""\b
Examples:
  reodsl watch                           the run that is going on, or the latest run
  reodsl watch quickstart                the latest run of that study
  reodsl watch --store /shared/reo       a run on another machine that shares the store
  reodsl watch quickstart --once         print the present state, and return to the prompt
  reodsl watch --json                    the present state as JSON, for scripts
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
            state = _follow_run(look, state, 0 if once else every)
        except KeyboardInterrupt:
            click.echo("the run goes on; look again with `reodsl watch`", err=True)
            raise SystemExit(0) from None
    raise SystemExit(0 if state.status == "finished" else 2 if state.status == "running" else 1)


def _choose_run(store: Store, run: str | None) -> RunRecord:
    """Return the run that `run` names; without a name, the latest run that is going on, else the latest run."""
    runs = records(store)
    if run is not None:
        return pick(runs, run)
    if not runs:
        raise problem("E0954", "nothing has run here yet", where=store.shown, help="reodsl run SPEC")
    return next((record for record in reversed(runs) if alive(store, record)), runs[-1])


def _follow_run(look: Callable[[], RunState], state: RunState, interval_s: float) -> RunState:
    """Show a run until it ends, and return its last state.

    Args:
        look: Function that reads the present state of the run.
        state: The state when the command began.
        interval_s: Seconds between two looks; 0 shows the run once without waiting for its end.
    """
    from rich.console import Console

    is_terminal, is_following = sys.stdout.isatty(), interval_s and not state.has_ended
    # A pipe has no width: 200 columns keep each task on a line.
    width, height = None if is_terminal else 200, None if is_terminal and is_following else 10_000
    console = Console(highlight=False, width=width, height=height)
    began = None if state.has_ended else state.began
    title = f"{state.record.study} {state.record.spec[:8]}"
    board = Board(title, state.total, time.time, began, state.expected)
    display = Display(board, console, is_terminal)
    seen = {task.task for task in state.finished if task.kind == "finished" and not task.failing}
    _show_state(display, state, seen)
    if is_terminal and is_following:
        display.open()
    else:
        console.print(draw(board, console))
    try:
        while is_following and not state.has_ended:
            time.sleep(interval_s)
            state = look()
            _show_state(display, state, seen)
    finally:
        display.close()
    if state.has_ended:
        summary = (
            f": {state.done} of {state.total or state.done} tasks"
            if is_following
            else f" {state.record.ended or ''}"
        )
        console.print(f"{state.status}{summary}".rstrip())
    if state.has_ended and state.record.report:
        console.print(f"report: {state.record.report}", soft_wrap=True, markup=False)
    return state


def _show_state(display: Display, state: RunState, seen: set[str]) -> None:
    """Print the tasks that ended since the last look, and update the progress of running tasks.

    Tasks that failed for the same reason share a line.

    Args:
        display: The display to update.
        state: The present state of the run.
        seen: Names of the tasks that are printed already; the newly printed names are added.
    """
    display.board.count, display.board.running = state.done, {task.task: task for task in state.going}
    by_reason = group(
        (task.reason if task.kind == "failed" else task.task, task)
        for task in state.finished
        if task.task not in seen
    )
    for first, *others in by_reason.values():
        names = [task.task for task in (first, *others)]
        seen.update(names)
        seconds = "" if first.seconds is None else span(first.seconds)
        display.say(first.kind, ", ".join(names), seconds, first.reason)
        for line in say_failing(first.failing):
            display.say("", line)
    for running in state.going:
        display.board.take(running)
        display.tell_progress(running.task)
