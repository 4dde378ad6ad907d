"""`reodsl why SPEC TASK`: why a task would run or be reused, and what its result depends on."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from reodsl.cli import completing
from reodsl.cli.options import spec_options
from reodsl.cli.place import prepare
from reodsl.diagnostics.excerpt import visible
from reodsl.plan.find import find
from reodsl.plan.ready import Ready
from reodsl.plan.verdict import Item, Plan
from reodsl.store.accept import acceptances


@click.command(
    short_help="Explain the verdict on one task of a plan.",
    epilog="""\b
Examples:
  reodsl why specs/quickstart.reo reo_exp.train.s1
  reodsl why specs/quickstart.reo report --json
""",
)
@click.argument("spec", shell_complete=completing.files)
@click.argument("task", required=False, shell_complete=completing.tasks)
@spec_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print the facts as JSON, the material of the key included."
)
def command(
    spec: str,
    task: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    as_json: bool,
) -> None:
    """Explain the verdict on one task: every setting that changed, what it reads, and what waits for it."""
    from reodsl.cli.output import print_json

    ready = prepare(spec, sets, amends, target, store_dir)
    plan = ready.plan()
    item = find(plan, task)
    if as_json:
        print_json(_json(ready, item))
    else:
        click.echo(_text(ready, plan, item))


def _json(ready: Ready, item: Item) -> dict[str, Any]:
    from reodsl.plan.render import item_json

    material = ready.store.material(item.key) if item.key else None
    manifest = ready.store.get(item.key) if item.key else None
    return {
        **item_json(item),
        "inputs": item.task.inputs,
        "readers": list(ready.graph.readers()[item.task.id]),
        "material": material,
        "accepted": [asdict(kept) for kept in acceptances(manifest)] if manifest else [],
        "path": str(ready.store.path(item.key)) if item.key and material else None,
    }


def _reason(ready: Ready, item: Item) -> str:
    """Why, and of a result that is there when it was made and how long that took."""
    from reodsl.plan.render import ago

    manifest = ready.store.get(item.key) if item.made and item.key else None
    if manifest is None:
        return item.reason
    return f"{item.reason} {ago(manifest.created, datetime.now(UTC))}, in {manifest.made.get('seconds', 0):.3g} s"


def _text(ready: Ready, plan: Plan, item: Item) -> str:
    from reodsl.plan.changes import words
    from reodsl.plan.render import place

    verdicts = {other.task.id: other.verdict for other in plan.items}
    lines = [f"{item.task.id}: {item.verdict}, {_reason(ready, item)}"]
    for change in item.changes:
        if change.origin is None and words(change) == item.reason:
            continue
        lines.append(f"  {words(change)}" + (f"   {place(change.origin)}" if change.origin else ""))
    if item.task.inputs:
        lines.append("reads")
        for role, source in item.task.inputs.items():
            lines.append(f"  {role:<20} {source}  ({verdicts[source]})")
    readers = ready.graph.readers()[item.task.id]
    if readers:
        lines.append("read by")
        lines += [f"  {reader}  ({verdicts[reader]})" for reader in readers]
    if item.key:
        lines.append(f"key {item.key}")
        manifest = ready.store.get(item.key)
        if manifest is not None:
            lines.append(f"made {item.made}, in {ready.store.path(item.key)}")
            for kept in acceptances(manifest):
                lines.append(f"accepted {kept.at} from {kept.result[:8]}: {visible(kept.because)}")
                lines += [f"  {change}" for change in kept.changes]
    return "\n".join(lines)
