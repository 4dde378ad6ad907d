"""Find the store of a command, and make a spec ready to plan: compiled, lowered, with its keys."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, problem
from reodsl.plan.registry import Machine, load_registry
from reodsl.plan.verdict import Plan, Ready, prepare_study
from reodsl.store.consent import read_all
from reodsl.store.store import Store


def prepare(
    path: str,
    sets: Iterable[str],
    amends: Iterable[str],
    target: str | None,
    store_dir: Path | None,
    *,
    quiet: bool = False,
) -> Ready:
    """Compile and lower a spec; its warnings go to stderr, unless `quiet`; its errors end the command."""
    from reodsl.cli.options import assignments
    from reodsl.cli.output import has_error, show
    from reodsl.language import compile_file

    compiled = compile_file(
        path, sets=assignments("--set", sets), amends=assignments("--amend", amends), target=target
    )
    show((d for d in compiled.diagnostics if not quiet or d.severity == "error"), compiled.sources)
    if compiled.spec is None or has_error(compiled.diagnostics):
        raise SystemExit(1)
    return prepare_study(compiled.spec, Path(path), store_dir)


def wrong_files(ready: Ready, plan: Plan) -> tuple[Diagnostic, ...]:
    """Return the findings inside the files and copies of a hub's data sets that a run would read for questions.

    The runners give them, if there are any; E0743 is for Python beside the spec that cannot be read.

    Questions that are not there may be on the machine that is to run the spec. Python is read here in any case.
    """
    folder = ready.keys.folder
    todo = [item for item in plan.items if item.verdict != "reuse"]
    unread = read_all((item.task.payload for item in todo), folder)[1]
    # A package need not be installed where a spec is planned.
    code = [each for each in unread if (each.where or "").endswith(".py")]
    tasks = tuple(
        item.task
        for item in todo
        if item.task.kind == "data"
        and not item.absent
        and all(source["kind"] in ("file", "hub") for source in item.task.payload["data"]["sources"])
    )
    try:
        lacks = load_registry().check(tasks, ready.spec, folder, Machine(local=True)) if tasks else ()
    except Problem:
        lacks = ()
    # A copy may be without the split, and planning needs no packages.
    return (*code, *(each for each in lacks if each.code not in ("E0708", "E0972")))


def existing_store(store_dir: Path | None) -> Store:
    """Return the store that is meant when no spec is named: the option's, `./.reodsl`, or the only one a folder below."""
    if store_dir is not None:
        folders = [store_dir]
    elif (Path(".reodsl") / "format").is_file():
        folders = [Path(".reodsl")]
    else:
        folders = sorted(mark.parent for mark in Path().glob("*/.reodsl/format"))
    if len(folders) != 1 or not (folders[0] / "format").is_file():
        raise no_store(folders)
    store = Store(folders[0])
    store.recognise()
    return store


def no_store(folders: list[Path]) -> Problem:
    """Return the diagnostic for a store that is not there, or not the only one."""
    if len(folders) > 1:
        return problem(
            "E0953",
            f"there are several stores: {', '.join(map(str, folders))}",
            help="name one: --store DIR",
        )
    return problem(
        "E0953",
        "there is no store here",
        where=str(folders[0] if folders else Path(os.curdir).resolve()),
        help="a spec's store is `.reodsl` beside it: go there, or name it with --store DIR; `reodsl run SPEC` makes one",
    )
