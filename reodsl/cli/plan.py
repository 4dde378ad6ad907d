"""Commands on what a run of a spec would do: `plan`, `why` it would do a task, and `accept` a result instead."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import complete_files, complete_tasks, spec_options
from reodsl.cli.output import print_json, show, terminal_columns
from reodsl.cli.prepare import prepare, wrong_files
from reodsl.diagnostics import plural
from reodsl.diagnostics.render import visible
from reodsl.plan.places import words
from reodsl.plan.render import ago, item_json, place, to_json, to_text
from reodsl.plan.verdict import Item, Plan, Ready, accept, find
from reodsl.price import Prices
from reodsl.price.show import more_seeds, refusals
from reodsl.report.formats import finite
from reodsl.run import prices_of
from reodsl.store.live import read_live, read_steps
from reodsl.store.store import acceptances
from reodsl.watch import named_numbers


@click.command(
    epilog="""\b
Examples:
  reodsl plan specs/quickstart.reo
  reodsl plan specs/quickstart.reo --set n=10 --all
  reodsl plan specs/quickstart.reo --json
"""
)
@click.argument("spec", shell_complete=complete_files)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show the unchanged tasks too.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show what running a spec would do, and change nothing.

    Each task has a verdict: reuse (its result exists), run (it is new), rerun (a setting changed: shown with old and
    new value and its line), later (it depends on the result of another task). Each has its price: --all shows tokens, calls,
    memory and disk task by task. Exits 0 if there is nothing to do, 2 if there is work, and 1 if the work costs more
    than the spec's limit, a local file of questions has mistakes, or Python beside the spec cannot be read.

    Args:
        spec: Path of the spec file.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        everything: Whether to print unchanged tasks too.
        as_json: Whether to print JSON instead of text.
    """
    ready = prepare(spec, sets, amends, target, store_dir)
    plan = ready.plan()
    prices, file_findings = prices_of(ready), wrong_files(ready, plan)
    if as_json:
        print_json(to_json(plan, prices))
    else:
        text = to_text(plan, everything, prices=prices, columns=terminal_columns())
        click.echo("\n".join((text, *_settling(ready, plan, prices))))
    refused = (*file_findings, *refusals(prices, (*plan.now, *plan.later), ready.spec))
    if refused:
        show(refused, ready.spec.sources)
        raise SystemExit(1)
    if plan.work:
        raise SystemExit(2)


def _settling(ready: Ready, plan: Plan, prices: Prices) -> tuple[str, ...]:
    """Return what would settle which of the two best arms is ahead, by the report in the store; empty without a report."""
    key = next(
        (item.key for item in plan.items if (item.task.kind, item.verdict) == ("report", "reuse")), None
    )
    if key is None:
        return ()
    # Who has a report has what draws it; a plan alone needs less.
    from reodsl.numbers.verdict import from_json
    from reodsl.report.verdict_words import read_verdict, settle

    try:
        verdict = from_json(read_verdict(ready.store.path(key)))
    except ValueError:  # none, or that of another version
        return ()
    return settle(ready.spec, verdict, lambda count: more_seeds(ready.graph, prices, count))


@click.command(
    short_help="Explain the verdict on one task of a plan.",
    epilog="""\b
Examples:
  reodsl why specs/quickstart.reo reo_exp.train.s1
  reodsl why specs/quickstart.reo report --json
""",
)
@click.argument("spec", shell_complete=complete_files)
@click.argument("task", required=False, shell_complete=complete_tasks)
@spec_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print the facts as JSON, the material of the key included."
)
def why_command(
    spec: str,
    task: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    as_json: bool,
) -> None:
    """Explain the verdict on one task: every setting that changed, what it reads, and which tasks read it.

    Args:
        spec: Path of the spec file.
        task: Name of the task, such as `vanilla.train.s1`; with None the command refuses with all names.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        as_json: Whether to print JSON instead of text.
    """
    ready = prepare(spec, sets, amends, target, store_dir)
    plan = ready.plan()
    item = find(plan, task)
    if as_json:
        material = ready.store.material(item.key) if item.key else None
        manifest = ready.store.get(item.key) if item.key else None
        print_json(
            {
                **item_json(item),
                "inputs": item.task.inputs,
                "readers": list(ready.graph.readers()[item.task.id]),
                "material": material,
                "accepted": [asdict(acceptance) for acceptance in acceptances(manifest)] if manifest else [],
                "path": str(ready.store.path(item.key)) if item.key and material else None,
                "running": _read_progress(ready, item),
            }
        )
    else:
        click.echo(_format_item(ready, plan, item))


def _format_reason(ready: Ready, item: Item) -> str:
    """Return the reason for a task's verdict, with the age and duration of the task's result if it is in the store."""
    manifest = ready.store.get(item.key) if item.created and item.key else None
    if manifest is None:
        return item.reason
    return f"{item.reason} {ago(manifest.created, datetime.now(UTC))}, in {manifest.provenance.get('seconds', 0):.3g} s"


def _read_progress(ready: Ready, item: Item) -> dict[str, Any] | None:
    """Return the progress of a task in a run that is going, or the progress that a stopped run had made.

    Returns:
        None if the task's result exists, its key is not known yet, or no run has begun it. Otherwise `going` (whether a
        run works on the task now), `node`, `step`, `steps` (their total) and `numbers` (the latest metrics by name); the
        node, the step and the total are None if unknown.
    """
    if item.key is None or item.verdict == "reuse":
        return None
    is_going = ready.store.busy(item.key)
    rows = read_steps(ready.store.root / "work" / item.key)
    status = read_live(ready.store.root, item.key) if is_going else None
    if not is_going and not rows:
        return None
    progress = status.progress if status is not None else None
    numbers: dict[str, float] = {
        name: value for row in rows[-1:] for name, value in row.items() if name != "step"
    }
    if progress is not None:
        numbers |= progress.numbers
    step = progress.done if progress is not None else int(rows[-1]["step"]) if rows else None
    return {
        "going": is_going,
        "node": status.node if status is not None else None,
        "step": step,
        "steps": progress.total or None if progress is not None else None,
        "numbers": finite(numbers),
    }


def _format_progress(running: dict[str, Any]) -> str:
    """Return the progress of a task as a line such as `it is at step 13 of 40, reward 0.94`.

    Args:
        running: Facts from `_read_progress`: step, number of steps, metrics, and whether a run is going.
    """
    step = "no step yet" if running["step"] is None else f"step {running['step']}"
    if running["steps"]:
        step += f" of {running['steps']}"
    head = "it is at " if running["going"] else "it was stopped at "
    return "  " + head + ", ".join([step, *named_numbers(running["numbers"])[:6]])


def _format_item(ready: Ready, plan: Plan, item: Item) -> str:
    """Return the explanation of a task's verdict as text: the reason, what changed, the tasks it reads, its readers.

    Args:
        ready: The compiled spec with its store and graph.
        plan: The plan, with the verdicts on the other tasks.
        item: The task in the plan.
    """
    verdicts = {other.task.id: other.verdict for other in plan.items}
    running = _read_progress(ready, item)
    reason = "it is running now" if running is not None and running["going"] else _format_reason(ready, item)
    readers = ready.graph.readers()[item.task.id]
    changes = (change for change in item.changes if change.origin is not None or words(change) != item.reason)
    lines = [
        f"{item.task.id}: {item.verdict}, {reason}",
        *([_format_progress(running)] if running is not None else []),
        *(f"  {words(c)}" + (f"   {place(c.origin)}" if c.origin else "") for c in changes),
        *(["reads"] if item.task.inputs else []),
        *(f"  {role:<20} {source}  ({verdicts[source]})" for role, source in item.task.inputs.items()),
        *(["read by"] if readers else []),
        *(f"  {reader}  ({verdicts[reader]})" for reader in readers),
        *([f"key {item.key}"] if item.key else []),
    ]
    manifest = ready.store.get(item.key) if item.key else None
    if item.key and manifest is not None:
        lines.append(f"made {item.created}, in {ready.store.path(item.key)}")
        for entry in acceptances(manifest):
            lines.append(f"accepted {entry.at} from {entry.result[:8]}: {visible(entry.because)}")
            lines += [f"  {change}" for change in entry.changes]
    return "\n".join(lines)


@click.command(
    short_help="Accept a result although its task would run again.",
    epilog="""\b
Examples:
  reodsl accept specs/quickstart.reo vanilla.train.s1 --because "only the docstring of the data file changed"
  reodsl accept specs/quickstart.reo vanilla.train.s1 --because "same weights" --result 4fd1a2c0
  reodsl why specs/quickstart.reo vanilla.train.s1       (what changed, before; and the reason, afterwards)
""",
)
@click.argument("spec", shell_complete=complete_files)
@click.argument("task", shell_complete=complete_tasks)
@click.option(
    "--because", required=True, metavar="TEXT", help="Why the result still holds; shown in every report."
)
@click.option(
    "--result",
    metavar="KEY",
    help="The result to accept, by the beginning of its key. Default: the task's result in the last run of the study.",
)
@spec_options
@click.option("--json", "as_json", is_flag=True, help="Print what was accepted as JSON.")
def accept_command(
    spec: str,
    task: str,
    because: str,
    result: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    as_json: bool,
) -> None:
    """Accept an existing result for TASK, which would run again because a setting or a file changed.

    Results made from the accepted result are then up to date as well. The reason and the change are stored with the
    result, and `why`, `ls` and the report show them.

    Args:
        spec: Path of the spec file.
        task: Name of the task that would run again, such as `vanilla.train.s1`.
        because: Reason why the old result still holds, which is stored with the acceptance.
        result: Start of the key of the result to accept; None for the task's result in the last run of the study.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        as_json: Whether to print JSON instead of text.
    """
    ready = prepare(spec, sets, amends, target, store_dir).for_run()
    plan = ready.plan()
    acceptance = accept(plan, ready.store, ready.keys, find(plan, task), because, result)
    if as_json:
        print_json(asdict(acceptance))
        return
    click.echo(f"accepted {acceptance.task}: the result {acceptance.result[:8]} is used, although")
    for change in acceptance.changes:
        click.echo(f"  {change}")
    count = sum(item.verdict != "reuse" for item in ready.plan().items)
    click.echo(f"{plural(count, 'task')} left to run" if count else "Nothing is left to run.")
