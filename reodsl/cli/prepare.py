"""Make a spec ready to plan: compiled, lowered, with its keys."""

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
    """Compile and lower a spec.

    Its warnings go to stderr unless `quiet`, and its errors end the command.
    """
    compiled = compile_file(
        path, sets=assignments("--set", sets), amends=assignments("--amend", amends), target=target
    )
    show((d for d in compiled.diagnostics if not quiet or d.severity == "error"), compiled.sources)
    if compiled.spec is None or has_error(compiled.diagnostics):
        raise SystemExit(1)
    return prepare_study(compiled.spec, Path(path), store_dir)


def wrong_files(ready: Ready, plan: Plan) -> tuple[Diagnostic, ...]:
    """Return the findings in files and copies of a hub's data sets that a run would read for questions.

    Files that are missing may be on the machine that runs the spec. Python beside the spec is read in any case
    (E0743).
    """
    folder = ready.keys.folder
    todo = [item for item in plan.items if item.verdict != "reuse"]
    codes, unread = read_all((item.task.payload for item in todo), folder)
    coded = tuple(item.task for item in todo if read_all([item.task.payload], folder)[0]) if codes else ()
    # A package need not be installed where a spec is planned.
    code = [diagnostic for diagnostic in unread if (diagnostic.where or "").endswith(".py")]
    tasks = tuple(
        item.task
        for item in todo
        if item.task.kind == "data"
        and not item.absent
        and all(source["kind"] in ("file", "hub") for source in item.task.payload["data"]["sources"])
    )
    try:
        check = load_registry().check
        lacks = check(tasks, ready.spec, folder, Machine(local=True)) if tasks else ()
        diagnostics = check(coded, ready.spec, folder, Machine(local=True)) if coded else ()
        code += [
            diagnostic for diagnostic in diagnostics if diagnostic.code == "E0743" and diagnostic not in code
        ]
    except Problem:
        lacks = ()
    # A copy may be without the split, and planning needs no packages.
    return (*code, *(diagnostic for diagnostic in lacks if diagnostic.code not in ("E0850", "E0121")))
