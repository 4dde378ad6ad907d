"""`reodsl run SPEC`: run the tasks of a spec that have no result yet, and print where the report is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import PathOption, complete_files, spec_options, trust_options
from reodsl.cli.output import folder_to_fill, gather_findings, has_error, print_json, show
from reodsl.cli.prepare import prepare
from reodsl.cli.watch import display
from reodsl.diagnostics import Diagnostic, plural
from reodsl.diagnostics.render import to_json
from reodsl.graph.job import Event
from reodsl.ir import IR
from reodsl.language.modules import STD
from reodsl.plan.places import locate_failures
from reodsl.plan.registry import Machine, RunResults
from reodsl.plan.verdict import Plan, Ready
from reodsl.run import RunOutcome, expect_seconds, prices_of, run
from reodsl.store.consent import FunctionCode, name_allowed
from reodsl.store.layout import run_folder
from reodsl.track.trackers import TRACKERS, Trackers, chosen
from reodsl.watch import span


@click.command(
    epilog="""\b
Examples:
  reodsl run specs/quickstart.reo
  reodsl run specs/quickstart.reo --set seeds=[1,2,3]
  reodsl run specs/quickstart.reo --amend reo_exp.steps=12 --out /tmp/short
  reodsl run specs/quickstart.reo --local            (in this process, without Ray)
  reodsl run specs/qwen3_4b.reo --fetch              (gets models and data sets that are missing)
  reodsl run specs/qwen3_4b.reo --address 10.0.0.7:6379 --store /shared/reo
"""
)
@click.argument("spec", shell_complete=complete_files)
@spec_options
@click.option("--local", is_flag=True, help="Run in this process, one task after another, without Ray.")
@click.option(
    "--address", metavar="HOST:PORT", help="Run on the Ray cluster there (`auto`: the one of this node)."
)
@click.option(
    "--out",
    type=PathOption(),
    metavar="DIR",
    help="Where to put the report and the arms' results. Default: a folder in runs/, named by study and digest.",
)
@click.option(
    "--track",
    multiple=True,
    metavar=f"[{'|'.join(TRACKERS)}]",
    shell_complete=lambda ctx, option, start: [name for name in TRACKERS if name.startswith(start)],
    help="Send training steps to this tracker as they finish. Repeatable. Default: `track` in the user's config.toml.",
)
@click.option(
    "--fetch",
    "fetching",
    is_flag=True,
    help="Download missing models and data sets after printing their size. Without it, a terminal is asked.",
)
@click.option(
    "--allow-served",
    "allow_served",
    is_flag=True,
    help="Allow sending questions and answers to a served model whose address or key is new here, and remember it.",
)
@trust_options
@click.option("--quiet", "-q", is_flag=True, help="Show only errors and the path of the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def run_command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    local: bool,
    address: str | None,
    out: Path | None,
    track: tuple[str, ...],
    fetching: bool,
    without_sandbox: bool,
    allow_python: bool,
    allow_served: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a spec: train and evaluate its arms, draw its report.

    Finished tasks are not run again, and an interrupted run resumes where it stopped: repeat the same command.
    Exits 0 if every result exists, 1 if a task failed.

    Args:
        spec: Path of the spec file.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        local: Whether to run in this process, without Ray.
        address: Address of a Ray cluster, or `auto`; None for a new Ray on this machine.
        out: Folder for the report, or None for a folder in `runs/`.
        track: Names of trackers that receive the training steps.
        fetching: Whether to download missing models and data sets without asking.
        without_sandbox: Whether scorers of packages may run without the sandbox.
        allow_python: Whether Python files of the spec that are new to this machine may run.
        allow_served: Whether questions and answers may be sent to a served model whose address or key is new here.
        quiet: Whether to print only errors and the path of the report.
        as_json: Whether to print JSON instead of text.
    """
    if local and address:
        raise click.UsageError("--local and --address exclude each other")
    trackers, findings = chosen(track)
    show(() if quiet else findings)
    ready = prepare(spec, sets, amends, target, store_dir, quiet=quiet).for_run()
    if fetching or sys.stdin.isatty():
        # Imported here, as it needs packages of the extra `run`; `prepare` reports missing packages before.
        from reodsl.cli.share import fetch_missing

        fetch_missing(ready, fetching)
    plan = ready.plan()
    out = out or run_folder(ready.spec.study.name, plan.digest)
    watcher = Watcher(ready, plan, out, quiet, as_json, trackers if plan.work else ())
    try:
        machine = Machine(local, address, without_sandbox, allow_python, allow_served=allow_served)
        outcome = run(ready, plan, machine, out, watcher)
    except (KeyboardInterrupt, SystemExit) as caught:
        if not watcher.begun:
            raise
        message = f"stopped: finished work is kept in {ready.store.shown}; run the same command to resume"
        click.echo(f"\n{message}", err=True)
        raise SystemExit(caught.code if isinstance(caught, SystemExit) else 130) from None
    _print_outcome(ready, plan, outcome, watcher.doubts, as_json, quiet)
    if outcome.results.failed:
        raise SystemExit(1)


class Watcher:
    """The observer of a run, whose methods the run calls; it shows findings, tasks and doubts about results."""

    def __init__(
        self, ready: Ready, plan: Plan, out: Path, quiet: bool, as_json: bool, trackers: Sequence[str] = ()
    ) -> None:
        """Prepare to observe a run that has not started.

        Args:
            ready: The compiled spec with its store.
            plan: The plan that will run.
            out: Folder for the report.
            quiet: Whether to show errors only.
            as_json: Whether the outcome is printed as JSON, so that tasks and doubts are not shown.
            trackers: Names of trackers that receive the training steps.
        """
        self.title = f"{ready.spec.study.name} {plan.digest[:8]}"
        self.ready, self.out, self.quiet, self.begun = ready, out, quiet, False
        self.silent = quiet or as_json
        self.todo = (*plan.now, *plan.later)
        expected = expect_seconds(ready, plan, prices_of(ready))
        # The checks that follow take a while. They say what is not installed where `rich` is not.
        shape = (len(ready.graph.tasks), self.title, self.silent, sys.stderr.isatty(), expected)
        self.display = display(*shape) if find_spec("rich") is not None else None
        if self.display is not None and self.todo:
            about = "" if expected is None else f"about {span(expected)}"
            self.display.say("planned", f"{plural(len(self.todo), 'task')} to run", about)
        self.doubts = Doubts(ready, self.silent)
        self.tracker_names = trackers
        self.trackers: Trackers | None = None

    def check(self, findings: tuple[Diagnostic, ...]) -> None:
        """Show findings, and end the command if any is an error."""
        show(findings if not self.quiet or has_error(findings) else (), self.ready.spec.sources)
        if has_error(findings):
            raise SystemExit(1)

    def allow(self, codes: Sequence[FunctionCode], consent: bool) -> bool:
        """Print Python code that is new to this machine, and return whether it may run.

        Args:
            codes: The code, each with its checksum.
            consent: Whether the user allowed it by --allow-python; otherwise a user at a terminal is asked.
        """
        if not (consent or (sys.stdin.isatty() and sys.stderr.isatty())):
            return False
        for line in name_allowed(codes):
            click.echo(f"{'allowed' if consent else 'new':<9}{line}", err=True)
        return consent or click.confirm("Have you read it, and may it run?", err=True)

    def begin(self) -> None:
        """Check that the report can be written, start the trackers, and begin the display, as the run begins."""
        folder_to_fill(self.out)
        if self.tracker_names:
            self.trackers = Trackers(
                self.tracker_names, self.ready.store, self.ready.graph, self.ready.spec.study.name
            )
        self.begun = True
        if self.display is not None and self.todo:
            self.display.open()

    def hear(self, event: Event) -> None:
        """Pass an event to the doubts, the trackers and the display."""
        self.doubts.hear(event)
        if self.trackers is not None:
            self.trackers.hear(event)
            self._show_tracker_news()
        if self.display is not None:
            self.display.hear(event)

    def done(self, task_id: str, key: str) -> None:
        """Show doubts about a task's new result, which the store has under `key`."""
        self.doubts.done(task_id, key)

    def close(self) -> None:
        """End the display and the trackers, after the run or its failure."""
        if self.display is not None:
            self.display.close()
        if self.trackers is not None:
            self.trackers.close()
            self._show_tracker_news()

    def _show_tracker_news(self) -> None:
        """Show the warnings of trackers that were not shown yet."""
        if self.trackers is not None and not self.quiet:
            show(self.trackers.news())


def _print_outcome(
    ready: Ready, plan: Plan, outcome: RunOutcome, doubts: Doubts, as_json: bool, quiet: bool
) -> None:
    """Print the outcome of a run: as JSON, or in a few lines that end with the report's path.

    Args:
        ready: The compiled spec with its store.
        plan: The plan that was run.
        outcome: Results, failures and report of the run.
        doubts: Doubts about the results; those that were not shown during the run are printed.
        as_json: Whether to print JSON instead of text.
        quiet: Whether to print only errors and the report's path.
    """
    results, page = outcome.results, outcome.page
    failures = gather_findings(locate_failures(ready.spec, ready.graph, results.failed))
    if as_json:
        print_json(_describe_outcome(ready, plan, outcome, doubts))
    show(failures, ready.spec.sources)
    if as_json:
        return
    if results.failed:
        counts = f"{len(results.failed)} failed, {len(results.blocked)} not tried, {len(results.keys)} done"
        click.echo(f"{counts}; run the same command to resume", err=True)
    elif not plan.work and not results.rebuilt and not quiet:
        click.echo("Nothing to do: every result exists.")
    if page is not None:
        if not quiet:
            show([d for d in doubts.all(results, page) if d not in doubts.shown], ready.spec.sources)
            _print_table(page.parent)
        click.echo(f"report: {page}")


def _print_table(folder: Path) -> None:
    """Print the averages of the report's main table, in the width of the terminal, or 100 columns in a pipe.

    Args:
        folder: The report's folder; without a main table nothing is printed.
    """
    if not (folder / "tables" / "main.parquet").exists():
        return
    from rich.console import Console

    from reodsl.report.results import report_summary
    from reodsl.report.verdict_words import read_verdict

    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(report_summary(folder, average_only=True, width=console.width))
    # A command is printed in one line, however narrow the terminal, so that it can be copied.
    if command := (read_verdict(folder) or {}).get("command"):
        click.echo(command)


def _describe_outcome(ready: Ready, plan: Plan, outcome: RunOutcome, doubts: Doubts) -> dict[str, Any]:
    """Return the outcome of a run as JSON data: each task with its status and key, the report, verdict and diagnostics.

    Args:
        ready: The compiled spec with its store and graph.
        plan: The plan that was run.
        outcome: Results, failures and report of the run.
        doubts: Doubts about the results, which are among the diagnostics.
    """
    from reodsl.report.verdict_words import read_verdict

    results, page = outcome.results, outcome.page
    reused = {item.task.id for item in plan.items if item.verdict == "reuse"}
    tasks = []
    for task in ready.graph.tasks:
        if task.id in results.failed:
            status = "failed"
        elif task.id in results.blocked:
            status = "blocked"
        else:
            status = "reused" if task.id in reused and task.id not in results.rebuilt else "done"
        tasks.append({"id": task.id, "kind": task.kind, "status": status, "key": results.keys.get(task.id)})
    return {
        "study": ready.spec.study.name,
        "spec": plan.digest,
        "status": "failed" if results.failed else "finished",
        "report": str(page) if page else None,
        "verdict": read_verdict(page.parent) if page else None,
        "store": str(ready.store.root),
        "python": dict(outcome.python),
        "tasks": tasks,
        "diagnostics": to_json(
            [
                *gather_findings(locate_failures(ready.spec, ready.graph, results.failed)),
                *(doubts.all(results, page) if page else ()),
            ]
        ),
    }


ANSWERED_SHARE = "answered"
"""Name of the metric of a training step that is the share of ended responses with an answer; only low shares are sent."""


def is_of_library(ready: Ready, task_id: str) -> bool:
    """Return whether a task prepares data, trains or samples with settings that all come from the standard library.

    The standard library is the specs that reodsl ships. Users cannot act on doubts about such a task.
    """
    task = ready.graph[task_id]
    origin_maps = [task.given_at, *(value.given_at for value in task.work.values() if isinstance(value, IR))]
    paths = {origin.path for origins in origin_maps for origin in origins.values() if origin is not None}
    is_library = all(path.startswith(f"{STD}/") for path in paths)
    return bool(paths) and is_library and task.kind in ("data", "train", "sample")


class Doubts:
    """The doubts about the results of a run: warnings that are shown while results arrive, or only at the end if `quiet`.

    `tables` are the folders of the questions so far by task. `shown` are the diagnostics that were shown. `silent` and
    `failing` are the names of tasks with a doubt about missing answers, and about failing code.
    """

    def __init__(self, ready: Ready, quiet: bool) -> None:
        """Prepare for a run that has not started; `quiet` shows nothing during the run."""
        self.ready, self.quiet = ready, quiet
        self.tables: dict[str, Path] = {}
        self.shown: set[Diagnostic] = set()
        self.silent: set[str] = set()
        self.failing: set[str] = set()

    def done(self, task_id: str, key: str) -> None:
        """Show doubts about a task's new result, such as questions that are both trained on and evaluated.

        Args:
            task_id: Name of the task.
            key: Key of its result in the store.
        """
        if self.quiet:
            return
        from reodsl.doubts import find_in_results, overlaps

        folder = self.ready.store.path(key)
        diagnostics = self._locate(find_in_results(self.ready.graph, {task_id: folder}))
        if self.ready.graph[task_id].kind == "data":
            self.tables[task_id] = folder
            diagnostics += overlaps(self.ready.graph, self.tables, task_id)
        self._show_new(diagnostics)

    def hear(self, event: Event) -> None:
        """Show doubts about a running task from the metrics of an event, each doubt once for a task.

        They are about questions that the task leaves out, responses without an answer, and code that fails at responses.
        Failing code at the last step is not shown here, as the finished result shows it.
        """
        if self.quiet or event.progress is None:
            return
        from reodsl.doubts import report_left_out, warn_failing, warn_unanswered_step
        from reodsl.numbers.unsettled import COUNTS

        task, numbers = self.ready.graph[event.task], event.progress.numbers
        doubts = report_left_out(task, numbers)
        if ANSWERED_SHARE in numbers and task.id not in self.silent:
            self.silent.add(task.id)
            doubts.append(warn_unanswered_step(task, numbers[ANSWERED_SHARE]))
        is_last = event.progress.done >= event.progress.total
        if not is_last and task.id not in self.failing and any(numbers.get(name) for name in COUNTS):
            self.failing.add(task.id)
            doubts.append(warn_failing(task, numbers, ()))
        self._show_new(self._locate({task.id: doubts}))

    def _show_new(self, diagnostics: list[Diagnostic]) -> None:
        """Show diagnostics that were not shown yet."""
        show([d for d in diagnostics if d not in self.shown], self.ready.spec.sources)
        self.shown.update(diagnostics)

    def _locate(self, by_task: Mapping[str, Iterable[Diagnostic]]) -> list[Diagnostic]:
        """Return the diagnostics of tasks with the lines of the spec that they concern.

        Tasks of the standard library's data and models are left out.
        """
        from reodsl.plan.places import locate_failures

        by_own_task = {name: ds for name, ds in by_task.items() if not is_of_library(self.ready, name)}
        with_lines = locate_failures(self.ready.spec, self.ready.graph, by_own_task)
        return [d for diagnostics in with_lines.values() for d in diagnostics]

    def all(self, results: RunResults, page: Path) -> list[Diagnostic]:
        """Return every doubt about a finished run, even if it was shown already.

        Args:
            results: Keys of the results by task.
            page: The report's page, whose folder has tables that doubts are found in.
        """
        from reodsl.doubts import find_in_results, find_unended, overlaps, unlearnt

        folders = {name: self.ready.store.path(key) for name, key in results.keys.items()}
        return [
            *self._locate(find_in_results(self.ready.graph, folders)),
            *overlaps(self.ready.graph, folders),
            *find_unended(page.parent),
            *unlearnt(page.parent),
        ]
