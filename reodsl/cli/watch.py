"""`reodsl watch [RUN]`: look on while a run goes, from another terminal or machine, or at one that has ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reodsl.cli.options import complete_runs, existing_store, known_store_option
from reodsl.cli.output import print_json
from reodsl.diagnostics import problem
from reodsl.store.runs import Record, alive, pick, records
from reodsl.store.store import Store
from reodsl.watch.draw import Pace, TaskRow, at, draw, numbers, span, wrap_pieces
from reodsl.watch.state import Ended, Going, State, read_state, to_json

if TYPE_CHECKING:
    from rich.console import Console, Group

_PLAIN_EVERY = 15.0
_FAILED = {"failed": "failed   ", "blocked": "skipped  ", "finished": "done     "}


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


def _choose_run(store: Store, run: str | None) -> Record:
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
            _print_end(console, each)
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
    rows = [_row(each, paces, now) for each in state.going] if not state.over else []
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
            _print_end(console, each)


def _print_end(console: Console, each: Ended) -> None:

    style = {"finished": "", "failed": "red"}.get(each.kind, "dim")
    pieces = [each.task, *([span(each.seconds)] if each.seconds is not None else []), each.said]
    for line in wrap_pieces(_FAILED[each.kind], [(p, style) for p in pieces if p], console.width):
        console.print(line)


def _tell_progress(state: State, paces: dict[str, Pace], printed: dict[str, float]) -> None:

    now = time.time()
    for each in state.going:
        row = _row(each, paces, now)
        if each.progress is not None and now - printed.setdefault(each.task, now) >= _PLAIN_EVERY:
            printed[each.task] = now
            click.echo(f"at       {each.task}  {at(row)}  {numbers(each.progress)}  {row.rest}")
