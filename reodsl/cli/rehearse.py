"""`reodsl rehearse SPEC`: run the whole graph of a spec small, and say what that cannot show."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.doubts import Doubts
from reodsl.cli.options import Place, spec_options, trust_options
from reodsl.cli.place import prepare
from reodsl.diagnostics import problem
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.cluster import Cluster
from reodsl.plan.registry import Machine, load_registry
from reodsl.plan.verdict import Ready, prepare_study
from reodsl.price.history import keep_rehearsal, read_history
from reodsl.price.machine import gpus_of
from reodsl.rehearse import Size, StandIns, list_unshown, shrink
from reodsl.run import RunOutcome, run
from reodsl.store import runs

REAL_TOKENS = 2048
"""The longest response of a rehearsal with real models: short ones would measure what surrounds tokens alone."""
PREFIX = ".reodsl-rehearsal-"
"""The start of the name of the folder beside the store in which a rehearsal keeps what it needs until it ends."""


@click.command(
    epilog="""\b
Examples:
  reodsl rehearse specs/qwen3_4b_reo_exp.reo
  reodsl rehearse specs/paper/qwen3_4b.reo --amend reo_exp.optim.lr=1e-6
  reodsl rehearse specs/quickstart.reo --engine sglang
  reodsl rehearse specs/qwen3_4b_reo_exp.reo --real --address auto   (the cluster and the weights of the spec)
  reodsl rehearse specs/quickstart.reo --out /tmp/rehearsed   (keeps its report)
""",
)
@click.argument("spec", shell_complete=completing.files)
@spec_options
@click.option(
    "--engine",
    type=click.Choice(["embedded", "sglang"]),
    help="What generates. Default: embedded, which every machine has; with --real what the spec says.",
)
@click.option(
    "--tokens",
    type=click.IntRange(16, 32768),
    help=f"The longest response; all other lengths follow. Default: {Size().longest}, with --real {REAL_TOKENS:,}.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 1000),
    default=Size().steps,
    show_default=True,
    help="Steps of each stage, if it has as many.",
)
@click.option(
    "--real",
    is_flag=True,
    help="Run the spec's own models where the spec runs, on its cluster by Ray, and keep times and memory for `plan`.",
)
@click.option(
    "--address", metavar="HOST:PORT", help="With --real: the Ray cluster (`auto`: the one of this node)."
)
@click.option("--out", type=Place(), metavar="DIR", help="Keep the report there.")
@trust_options
@click.option("--quiet", "-q", is_flag=True, help="Show nothing but errors and what was not shown.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    engine: str | None,
    tokens: int | None,
    steps: int,
    real: bool,
    address: str | None,
    out: Path | None,
    without_sandbox: bool,
    allow_python: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run all tasks of a spec small, before anything is spent.

    It runs on this machine. Models are small doubles of the same architecture with the same tokenizer and chat template,
    lengths are cut in proportion, and each stage takes two steps (`--steps`). Data are read as they are; questions that are
    not on this machine have made-up ones in their place. What a rehearsal cannot show is listed. Results of runs are not
    touched.
    With --real the spec's own models run where the spec says, and `plan` prices by what that took.
    Exits 0 when every task was done, 1 when one failed.
    """
    if real and engine:
        raise click.UsageError("--real takes the spec's engine; change that one with --amend")
    if address and not real:
        raise click.UsageError("--address goes with --real")
    from reodsl.cli.run import Watcher

    ready = prepare(spec, sets, amends, target, store_dir, quiet=quiet)
    registry = load_registry()
    if registry.stand_ins is None:
        raise problem("E0964", "these runners know nothing of rehearsals", help="take those of reodsl")
    beside = ready.store.root.parent
    beside.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=beside))
    begun = time.monotonic()
    try:
        doubles = registry.stand_ins(ready.spec, ready.keys.folder, place / "models")
        if real:
            doubles = StandIns(data=doubles.data)
            small = shrink(ready.spec, _real_size(ready.spec, tokens or REAL_TOKENS, steps), doubles)
        else:
            size = Size(longest=tokens or Size().longest, steps=steps)
            small = shrink(ready.spec, size, doubles, "sglang" if engine == "sglang" else "embedded")
        missing = list_unshown(ready.spec, small, doubles)
        little = prepare_study(small, Path(spec), place / "store").for_run()
        plan = little.plan()
        folder = out or place / "report"
        watcher = Watcher(little, plan, folder, quiet, as_json)
        # What a double writes is noise, so warnings about its responses say nothing.
        watcher.doubts = Doubts(little, True)
        local = small.study.cluster is None and address is None
        machine = Machine(local, address, without_sandbox=without_sandbox, allow_python=allow_python)
        outcome = run(little, plan, machine, folder, watcher)
        measured = _keep(ready, little) if real else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)
    _tell(ready, little, outcome, missing, time.monotonic() - begun, out, as_json)
    if real and not as_json:
        click.echo(f"`reodsl plan` goes by what {measured} of its tasks took, until a run has told more.")
    if outcome.results.failed:
        raise SystemExit(1)


def _real_size(spec: Spec, tokens: int, steps: int) -> Size:
    """Return a rehearsal with something to do for each GPU of a step."""
    gpus = max((gpus_of(each) for each in values_of(spec.study, Cluster)), default=1)
    return Size(longest=tokens, steps=steps, prompts=max(Size().prompts, gpus), pool=max(Size().pool, gpus))


def _keep(ready: Ready, little: Ready) -> int:
    """Keep in the spec's store what the rehearsal measured; how many tasks that were."""
    results = read_history(little.store, runs.records(little.store)).results
    keep_rehearsal(ready.store.open().root, ready.spec.study.name, results)
    return len(results)


def _tell(
    ready: Ready,
    little: Ready,
    outcome: RunOutcome,
    missing: tuple[str, ...],
    seconds: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the tasks that failed, how many were done, and the limits of that; or the same as JSON."""
    from reodsl.cli.output import gather_findings, print_json, show
    from reodsl.diagnostics.render import to_json
    from reodsl.plan.places import locate_failures

    results = outcome.results
    faults = list(gather_findings(locate_failures(little.spec, little.graph, results.failed)))
    show(faults, ready.spec.sources)
    if as_json:
        tasks = [
            {
                "id": task.id,
                "kind": task.kind,
                "status": "failed"
                if task.id in results.failed
                else "done"
                if task.id in results.keys
                else "blocked",
            }
            for task in little.graph.tasks
        ]
        print_json(
            {
                "study": ready.spec.study.name,
                "status": "failed" if results.failed else "finished",
                "tasks": tasks,
                "unshown": list(missing),
                "diagnostics": to_json(faults),
            }
        )
        return
    done, whole = len(results.keys), len(little.graph.tasks)
    click.echo(f"Rehearsed {ready.spec.study.name}: {done} of {whole} tasks done in {seconds:.0f} s.")
    click.echo("What this did not show:")
    for each in missing:
        click.echo(f"  - {each}")
    if out is not None and outcome.page is not None:
        click.echo(f"report: {outcome.page}")
