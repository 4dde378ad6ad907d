"""`reodsl rehearse SPEC`: run every task of a spec at a small size, and print what a rehearsal cannot show."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from reodsl.cli.options import PathOption, complete_files, spec_options, trust_options
from reodsl.cli.prepare import prepare
from reodsl.diagnostics import problem
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.cluster import Cluster
from reodsl.plan.registry import Machine, load_registry
from reodsl.plan.verdict import Ready, prepare_study
from reodsl.price.history import keep_rehearsal, read_history
from reodsl.price.machine import gpus_of
from reodsl.rehearse import Phase, Size, StandIns, list_reached, list_unshown, shrink
from reodsl.run import RunOutcome, run
from reodsl.store import runs
from reodsl.store.live import read_notes

STEPS = 3
"""Steps of each stage on a cluster: one more than on one machine, so that new weights reach engines despite a lag."""
REAL_TOKENS = 2048
"""Length of the longest response with real models, in tokens; in short responses fixed costs would outweigh tokens."""
NODES = 2
"""Largest number of nodes of a Ray cluster that a rehearsal starts itself."""
PREFIX = ".reodsl-rehearsal-"
"""Start of the name of a rehearsal's temporary folder, which is beside the store."""


@click.command(
    epilog="""\b
Examples:
  reodsl rehearse specs/qwen3_4b_reo_exp.reo
  reodsl rehearse specs/paper/qwen3_4b.reo --amend reo_exp.optim.lr=1e-6
  reodsl rehearse specs/quickstart.reo --engine sglang
  reodsl rehearse specs/qwen3_4b_reo_exp.reo --address local   (on Ray, with nodes and GPUs that are only declared)
  reodsl rehearse specs/qwen3_4b_reo_exp.reo --real --address auto   (the cluster and the weights of the spec)
  reodsl rehearse specs/quickstart.reo --out /tmp/rehearsed   (keeps its report)
"""
)
@click.argument("spec", shell_complete=complete_files)
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
    help=f"Steps of each stage, if it has as many. Default: {Size().steps}, on a cluster {STEPS}.",
)
@click.option(
    "--real",
    is_flag=True,
    help="Run the spec's own models where the spec runs, on its cluster by Ray, and keep times and memory for `plan`.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Place all tasks on the Ray cluster at this address as a run does (`auto`: this node's cluster; `local`: a new"
    " cluster, with GPUs that are only declared). Processors stand in for GPUs; with --real, GPUs are used.",
)
@click.option("--out", type=PathOption(), metavar="DIR", help="Keep the report there.")
@trust_options
@click.option("--quiet", "-q", is_flag=True, help="Show only errors and what was not covered.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def rehearse_command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    engine: str | None,
    tokens: int | None,
    steps: int | None,
    real: bool,
    address: str | None,
    out: Path | None,
    without_sandbox: bool,
    allow_python: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Test a spec: run every task with a tiny model and two steps.

    It runs on this machine. Models are tiny ones of the same architecture with the same tokenizer and chat template,
    lengths are scaled down, and each stage takes two steps (`--steps`). Data sets are read unchanged; missing questions are
    replaced by generated ones. What a rehearsal cannot show is listed. Results of runs are not touched.
    With --address it keeps the spec's cluster, and reports whether placement, weight updates and lag were reached.
    With --real the spec's own models run where the spec says, and `plan` prices by the measured times.
    Exits 0 if every task finished, 1 if a task failed or a phase on the cluster was not reached.

    Args:
        spec: Path of the spec file.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        engine: Engine that generates, `embedded` or `sglang`; None for the default.
        tokens: Length of the longest response, in tokens; None for the default.
        steps: Steps of each stage at most; None for the default.
        real: Whether to run the spec's own models where the spec runs.
        address: Address of a Ray cluster, `auto` or `local`; None to run in this process.
        out: Folder in which the report is kept; None to remove it.
        without_sandbox: Whether scorers of packages may run without the sandbox.
        allow_python: Whether Python files of the spec that are new to this machine may run.
        quiet: Whether to print only errors and what the rehearsal did not cover.
        as_json: Whether to print JSON instead of text.
    """
    if engine and (real or address):
        option = "--real" if real else "--address"
        raise click.UsageError(
            f"{option} uses the spec's engine: leave out --engine, or change the spec's with --amend"
        )
    if real and address == "local":
        raise click.UsageError("--address local declares GPUs that do not exist, and --real needs GPUs")
    from reodsl.cli.run import Doubts, Watcher

    ready = prepare(spec, sets, amends, target, store_dir, quiet=quiet)
    registry = load_registry()
    if registry.stand_ins is None:
        raise problem(
            "E0121",
            "these runners do not support rehearsals",
            help="use the runners of reodsl: unset REODSL_RUNNERS",
        )
    with_stand_in_gpus = bool(address) and not real
    if with_stand_in_gpus and ready.spec.study.cluster is None:
        raise problem(
            "E0971",
            "the spec names no cluster, so a rehearsal places nothing on one",
            where=spec,
            help="name one in the study, as `cluster = h100_1x8`, or leave out --address",
        )
    parent = ready.store.root.parent
    parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    started, makes_cluster = time.monotonic(), address == "local"
    steps = steps or (STEPS if with_stand_in_gpus else Size().steps)
    phases: tuple[Phase, ...] = ()
    try:
        doubles = registry.stand_ins(ready.spec, ready.keys.folder, scratch / "models")
        if real:
            doubles = StandIns(data=doubles.data)
            small_spec = shrink(ready.spec, _size_for(ready.spec, tokens or REAL_TOKENS, steps), doubles)
        elif with_stand_in_gpus:
            size = _size_for(ready.spec, tokens or Size().longest, steps, NODES if makes_cluster else None)
            small_spec = shrink(ready.spec, size, doubles)
        else:
            size = Size(longest=tokens or Size().longest, steps=steps)
            small_spec = shrink(ready.spec, size, doubles, "sglang" if engine == "sglang" else "embedded")
        unshown = list_unshown(ready.spec, small_spec, doubles, with_stand_in_gpus)
        small_study = prepare_study(small_spec, Path(spec), scratch / "store").for_run()
        plan = small_study.plan()
        folder = out or scratch / "report"
        watcher = Watcher(small_study, plan, folder, quiet, as_json)
        # A tiny stand-in model writes random text, so warnings about responses would be false.
        watcher.doubts = Doubts(small_study, True)
        machine = Machine(
            small_spec.study.cluster is None and address is None,
            None if makes_cluster else address,
            without_sandbox=without_sandbox,
            allow_python=allow_python,
            notes=(scratch / "notes").resolve() if with_stand_in_gpus else None,
        )
        if machine.notes is not None:
            machine.notes.mkdir()
        outcome = run(small_study, plan, machine, folder, watcher)
        num_measured = _keep_measurements(ready, small_study) if real else 0
        if machine.notes is not None:
            phases = list_reached(
                small_spec, read_notes(machine.notes), *_read_rollouts(small_study, outcome)
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _print_outcome(ready, small_study, outcome, phases, unshown, time.monotonic() - started, out, as_json)
    if real and not as_json:
        click.echo(
            f"`reodsl plan` now uses the measured times of {num_measured} tasks, until a run measures them."
        )
    if outcome.results.failed or any(phase.reached is False for phase in phases):
        raise SystemExit(1)


def _size_for(spec: Spec, tokens: int, steps: int, nodes: int | None = None) -> Size:
    """Return the size of a rehearsal on a cluster.

    If it uses the spec's own cluster, a step has at least as many prompts as the largest cluster has GPUs, and so has the
    pool of questions.

    Args:
        spec: The spec to rehearse.
        tokens: Length of the longest response, in tokens.
        steps: Steps of each stage at most.
        nodes: Nodes of a cluster that the rehearsal starts itself; None for the nodes of the spec's cluster.
    """
    gpus = max((gpus_of(c) for c in values_of(spec.study, Cluster)), default=1) if nodes is None else 1
    prompts, pool = max(Size().prompts, gpus), max(Size().pool, gpus)
    return Size(longest=tokens, steps=steps, prompts=prompts, pool=pool, nodes=nodes)


def _read_rollouts(small_study: Ready, outcome: RunOutcome) -> tuple[list[int], float]:
    """Return from the stored rollouts of a rehearsal which versions of the weights sampled responses.

    Args:
        small_study: The small study that was run.
        outcome: Results of the run; trainings without a result are skipped.

    Returns:
        (steps after which the sampling weights were taken, with repetitions; the largest number of steps by which
        these weights were older than the trained weights).
    """
    import polars as pl

    versions, lag = list[int](), 0.0
    store = small_study.store.open()
    for task in small_study.graph.tasks:
        folder = store.path(outcome.results.keys[task.id]) if task.id in outcome.results.keys else None
        if task.kind == "train" and folder is not None and (folder / "rollouts.parquet").exists():
            table = pl.read_parquet(
                folder / "rollouts.parquet", columns=["step", "weight_versions"], glob=False
            )
            table = table.explode("weight_versions")
            versions += table["weight_versions"].unique().to_list()
            lag = max(lag, float((table["step"] - 1 - table["weight_versions"]).max()))  # type: ignore[arg-type]
    return versions, lag


def _keep_measurements(ready: Ready, small_study: Ready) -> int:
    """Copy a rehearsal's measured times and memory into the spec's store, and return the number of measured tasks.

    Args:
        ready: The spec, whose store receives the measurements.
        small_study: The small study that was run in its place.
    """
    tasks = {task.id for task in small_study.graph.tasks}
    results = read_history(small_study.store, runs.records(small_study.store), tasks).results
    keep_rehearsal(ready.store.open().root, ready.spec.study.name, results.values())
    return len(results)


def _print_outcome(
    ready: Ready,
    small_study: Ready,
    outcome: RunOutcome,
    phases: tuple[Phase, ...],
    unshown: tuple[str, ...],
    seconds: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the outcome of a rehearsal: failed tasks, the number of done tasks, reached phases, and what is not covered.

    Args:
        ready: The spec.
        small_study: The small study that was run in its place.
        outcome: Results, failures and report of the run.
        phases: Phases on a cluster, each with whether it was reached; empty without a cluster.
        unshown: Sentences on what the rehearsal does not cover.
        seconds: Duration of the run.
        out: Folder in which the report is kept, or None if it is removed.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.cli.output import gather_findings, print_json, show
    from reodsl.diagnostics.render import to_json
    from reodsl.plan.places import locate_failures

    results = outcome.results
    faults = list(gather_findings(locate_failures(small_study.spec, small_study.graph, results.failed)))
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
            for task in small_study.graph.tasks
        ]
        print_json(
            {
                "study": ready.spec.study.name,
                "status": "failed" if results.failed else "finished",
                "tasks": tasks,
                "reached": [asdict(phase) for phase in phases],
                "unshown": list(unshown),
                "diagnostics": to_json(faults),
            }
        )
        return
    num_done, num_tasks = len(results.keys), len(small_study.graph.tasks)
    click.echo(f"Rehearsed {ready.spec.study.name}: {num_done} of {num_tasks} tasks done in {seconds:.0f} s.")
    for phase in phases:
        state = {True: "reached", False: "not reached", None: "left out"}[phase.reached]
        first, *lines = phase.words
        click.echo(f"{phase.name}: {state}: {first}")
        for line in lines:
            click.echo(f"  {line}")
    click.echo("Not covered by the rehearsal:")
    for limit in unshown:
        click.echo(f"  - {limit}")
    if out is not None and outcome.page is not None:
        click.echo(f"report: {outcome.page}")
