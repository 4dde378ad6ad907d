"""Commands on a store: `ls` lists runs and results, `gc` removes results that no recent run needs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from humanize import naturalsize

from reodsl.cli.options import complete_runs, existing_store, known_store_option
from reodsl.cli.output import print_json
from reodsl.diagnostics import group, plural
from reodsl.diagnostics.render import visible
from reodsl.plan.render import ago
from reodsl.store.layout import models
from reodsl.store.runs import RunRecord, alive, began, find_repeated, pick, records, select
from reodsl.store.store import Store, acceptances
from reodsl.store.sweep import find_garbage, sweep
from reodsl.watch import going_json, named_numbers, read_state, read_status


@click.command(
    short_help="List runs, or the results of one.",
    epilog="""\b
Examples:
  reodsl ls                              every run, the latest first
  reodsl ls quickstart                   the results of the latest run of that study
  reodsl ls 20260101T120000              the results of the run whose name starts with this
  reodsl ls quickstart reo_exp           the results of one arm
  reodsl ls quickstart reo_exp+          the results of one arm, and all results made from them
  reodsl ls quickstart +score.s1         a result and all its inputs
  reodsl ls quickstart '*.train'         results of one kind, by a pattern
  reodsl ls --verify                     read every byte of every result
""",
)
@click.argument("run", required=False, shell_complete=complete_runs)
@click.argument("selector", required=False)
@known_store_option
@click.option("--verify", is_flag=True, help="Check the checksums of the listed results; exits 1 on damage.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def ls_command(
    run: str | None, selector: str | None, store_dir: Path | None, verify: bool, as_json: bool
) -> None:
    """List runs, or with RUN (a study or a run's name) the run's results that SELECTOR selects.

    A run with nothing to do has no line: it is counted at the run that it repeats.

    Args:
        run: Name of a study, or the start of a run's name; None to list runs.
        selector: Pattern of tasks, such as `reo_exp+` or `*.train`; None for all tasks of the run.
        store_dir: Folder of the store, or None to look for it.
        verify: Whether to compare each result with its checksums.
        as_json: Whether to print JSON instead of text.
    """
    store = existing_store(store_dir)
    runs = records(store)
    if run is None and not verify:
        repeats = find_repeated(runs)
        rows = [
            {
                "name": record.name,
                "study": record.study,
                "spec": record.spec,
                "path": record.path,
                "status": read_status(store, record),
                "started": record.started,
                "ended": record.ended,
                "results": len(record.tasks),
                "running": _list_going(store, record),
                "report": record.report,
                "changes": record.changes,
                "repeats": repeats.get(record.name),
                "verdict": list(_read_verdict(store, record)),
            }
            for record in reversed(runs)
        ]
        if as_json:
            print_json({"store": str(store.root), "runs": rows})
        else:
            click.echo(_format_runs(rows))
        return
    record = None if run is None else pick(runs, run)
    tasks = {key: key for key in store} if record is None else select(store, record, selector)
    results = [_describe_result(store, name, key, verify) for name, key in tasks.items()]
    running = _list_going(store, record)
    if as_json:
        print_json({"store": str(store.root), "results": results, "running": running})
    else:
        for line in _read_verdict(store, record) if record is not None and selector is None else ():
            click.echo(visible(line))
        click.echo(_format_results(results, verify))
        for task in running:
            click.echo(_format_going(task))
        for path in models(Path(record.report)) if record is not None and record.report else ():
            click.echo(f"model: {path}")
    if verify and any(result["damage"] for result in results):
        raise SystemExit(1)


def _read_verdict(store: Store, record: RunRecord) -> tuple[str, ...]:
    """Return the sentences of the verdict in a run's report; empty before the run has a report."""
    from reodsl.report.verdict_words import read_sentences

    key = record.tasks.get("report")
    return () if key is None else read_sentences(store.path(key))


def _list_going(store: Store, record: RunRecord | None) -> list[dict[str, Any]]:
    """Return the tasks that a run works on now as JSON data with their progress.

    The list is empty if the run has ended, and if `record` is None.
    """
    if record is None or not alive(store, record):
        return []
    return [going_json(task) for task in read_state(store, record, with_steps=False).going]


def _format_going(task: dict[str, Any]) -> str:
    """Return a running task, given as JSON data, as a line such as `at  vanilla.train.s1  13/40  reward 0.94`."""
    steps = "" if task["step"] is None else str(task["step"]) + (f"/{task['steps']}" if task["steps"] else "")
    steps = steps or ("waiting" if task["waiting"] else "")
    return "  ".join(filter(None, ["at", task["task"], steps, *named_numbers(task["numbers"])]))


def _describe_result(store: Store, name: str, key: str, verify: bool) -> dict[str, Any]:
    """Return a result as JSON data: its task, key, size, time, path, acceptances, and sentences on its damage.

    Without `verify`, only a missing result and wrong sizes of files are noticed as damage.

    Args:
        store: The store.
        name: Name of the task in the listed run, or the key if no run is listed.
        key: Key of the result.
        verify: Whether to compare the result with its checksums.
    """
    manifest = store.get(key)
    damage = store.damage(key) if verify else () if manifest else ("it is missing or damaged",)
    return {
        "task": manifest.provenance.get("task", name) if manifest and name == key else name,
        "key": key,
        "bytes": manifest.size if manifest else 0,
        "made": manifest.created if manifest else None,
        "seconds": manifest.provenance.get("seconds") if manifest else None,
        "path": str(store.path(key)),
        "damage": list(damage),
        "accepted": [asdict(item) for item in acceptances(manifest)] if manifest else [],
    }


def _format_runs(rows: list[dict[str, Any]]) -> str:
    """Return the list of runs as text: a line for each run that did any work, then its verdict and running tasks.

    Runs that repeat another run, with nothing to do, are counted on the line of that run.

    Args:
        rows: Runs as JSON data, the latest first.
    """
    if not rows:
        return "No runs yet."
    now = datetime.now(UTC)
    width = max(len(row["study"]) for row in rows)
    runs_by_first = group((row["repeats"] or row["name"], row) for row in rows)

    def count(number: int) -> str:
        return f"{number:>4} {'result ' if number == 1 else 'results'}"

    def count_repeats(row: dict[str, Any]) -> str:
        """Return how often later runs repeated a run, and when the last one did, as text; empty if none did."""
        latest, *repeats = runs_by_first[row["name"]]
        times = "once" if len(repeats) == 1 else f"{len(repeats)} times"
        return f"  (repeated {times}, last {ago(latest['started'], now)})" if repeats else ""

    return "\n".join(
        f"{began(row['name'])}  {row['study']:<{width}}  {row['spec'][:8]}  {row['status']:<11}  "
        f"{count(row['results'])}  {ago(row['started'], now):<14}  {row['report'] or ''}{count_repeats(row)}".rstrip()
        + "".join(f"\n    {visible(line)}" for line in row["verdict"][:1])
        + "".join(f"\n    {_format_going(task)}" for task in row["running"])
        for row in rows
        if row["repeats"] is None
    )


def _format_results(results: list[dict[str, Any]], verify: bool) -> str:
    """Return a list of results as text, with a line for each: task, key, size, age, and damage or acceptance.

    Args:
        results: Results as JSON data.
        verify: Whether checksums were compared; an undamaged result is then marked `whole`.
    """
    now = datetime.now(UTC)
    width = max((len(result["task"]) for result in results), default=0)
    lines = []
    for result in results:
        accepted = f"accepted: {visible(result['accepted'][-1]['because'])}" if result["accepted"] else ""
        state = "; ".join([*result["damage"], *filter(None, [accepted])]) or ("whole" if verify else "")
        size = naturalsize(result["bytes"], binary=True)
        age = ago(result["made"], now) if result["made"] else ""
        lines.append(
            f"{result['task']:<{width}}  {result['key'][:8]}  {size:>10}  {age:<14}  {state}".rstrip()
        )
    return "\n".join([*lines, plural(len(results), "result")])


@click.command(
    short_help="Remove results that no recent run of any study needs.",
    epilog="""\b
Examples:
  reodsl gc --dry-run            print what would be removed, and how much space that frees
  reodsl gc                      ask, then remove
  reodsl gc --keep 3 --yes       keep the results that the last three runs of each study used
""",
)
@known_store_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of finished runs of each study whose results are kept.",
)
@click.option("--dry-run", is_flag=True, help="Only list; exits 2 if there is something to remove.")
@click.option("--yes", "-y", is_flag=True, help="Remove without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def gc_command(store_dir: Path | None, keep: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove results that no recent run of any study needs, and what killed runs left behind.

    Results that the last finished run of each study used are kept, and results of later runs, finished or not.

    A removed result can be made again by running its spec again.

    Args:
        store_dir: Folder of the store, or None to look for it.
        keep: Number of finished runs of each study whose results stay.
        dry_run: Whether to list what would be removed, without removing it.
        yes: Whether to remove without asking.
        as_json: Whether to print JSON instead of text.
    """
    store = existing_store(store_dir)
    items = find_garbage(store, keep)
    total = sum(item.bytes for item in items)
    if as_json:
        listed = [{"kind": item.kind, "name": item.name, "bytes": item.bytes} for item in items]
        print_json({"store": str(store.root), "items": listed, "bytes": total})
    else:
        for kind in ("result", "leftover", "record"):
            of_kind = [item for item in items if item.kind == kind]
            if of_kind:
                kinds = kind if len(of_kind) == 1 else f"{kind}s"
                click.echo(
                    f"{len(of_kind):6} {kinds}  {naturalsize(sum(item.bytes for item in of_kind), binary=True)}"
                )
        if not items:
            click.echo("Nothing to remove.")
    if not items:
        return
    if dry_run:
        raise SystemExit(2)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("add --yes to remove without being asked, or --dry-run to only list")
        click.confirm(f"Remove them from {store.root}?", abort=True, err=True)
    freed = sweep(store, items)
    if not as_json:
        click.echo(f"{naturalsize(freed, binary=True)} freed")
