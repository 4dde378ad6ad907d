"""Compile a spec file, and make it ready to plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reodsl.cli.options import assignments
from reodsl.cli.output import has_error, show
from reodsl.diagnostics import Diagnostic, Problem
from reodsl.language import compile_file
from reodsl.plan.registry import Machine, load_registry
from reodsl.plan.verdict import Plan, Ready, prepare_study
from reodsl.store.consent import read_all


def prepare(
    path: str,
    sets: Iterable[str],
    amends: Iterable[str],
    target: str | None,
    store_dir: Path | None,
    *,
    quiet: bool = False,
) -> Ready:
    """Compile a spec file, lower it to a graph of tasks, and compute the tasks' keys.

    Errors of the spec are printed to stderr, and end the command with exit code 1.

    Args:
        path: Path of the spec file, or `-` for standard input.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None for the store beside the spec.
        quiet: Whether to keep warnings of the spec from stderr.
    """
    compiled = compile_file(
        path, sets=assignments("--set", sets), amends=assignments("--amend", amends), target=target
    )
    show((d for d in compiled.diagnostics if not quiet or d.severity == "error"), compiled.sources)
    if compiled.spec is None or has_error(compiled.diagnostics):
        raise SystemExit(1)
    return prepare_study(compiled.spec, Path(path), store_dir)


def wrong_files(ready: Ready, plan: Plan) -> tuple[Diagnostic, ...]:
    """Return the mistakes in data files and Python files that a run of a plan would read.

    Only files of tasks that would run are checked. Data files and downloaded data sets that are not on this machine are
    skipped, since the run may happen on another machine. A Python file beside the spec must exist and be readable
    (E0743), and define the function that the spec names. Without runners that can be loaded, only unreadable Python files
    are reported.
    """
    folder = ready.keys.folder
    todo = [item for item in plan.items if item.verdict != "reuse"]
    codes, unread = read_all((item.task.payload for item in todo), folder)
    python_tasks = (
        tuple(item.task for item in todo if read_all([item.task.payload], folder)[0]) if codes else ()
    )
    # Packages need not be installed on the machine that plans.
    python_findings = [diagnostic for diagnostic in unread if (diagnostic.where or "").endswith(".py")]
    data_tasks = tuple(
        item.task
        for item in todo
        if item.task.kind == "data"
        and not item.absent
        and all(source["kind"] in ("file", "hub") for source in item.task.payload["data"]["sources"])
    )
    try:
        check = load_registry().check
        data_findings = check(data_tasks, ready.spec, folder, Machine(local=True)) if data_tasks else ()
        diagnostics = check(python_tasks, ready.spec, folder, Machine(local=True)) if python_tasks else ()
        python_findings += [
            diagnostic
            for diagnostic in diagnostics
            if diagnostic.code == "E0743" and diagnostic not in python_findings
        ]
    except Problem:
        data_findings = ()
    # E0850 is left out, as a copy of a data set may lack a split, and E0121, as planning needs no packages.
    return (
        *python_findings,
        *(diagnostic for diagnostic in data_findings if diagnostic.code not in ("E0850", "E0121")),
    )
