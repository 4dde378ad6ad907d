"""Shell completion of files, codes, runs and tasks."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from reodsl.diagnostics import Problem


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, as the shell completes them."""
    return [CompletionItem(incomplete, type="file")]


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes of diagnostics, in either case."""
    from reodsl.diagnostics import pages

    return [CompletionItem(code) for code in pages.codes() if code.startswith(incomplete.upper())]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Studies that ran, and how runs' names start; none where no store is found."""
    from reodsl.cli.place import existing_store
    from reodsl.store.runs import began, records

    try:
        past = records(existing_store(ctx.params.get("store_dir")))
    except (Problem, OSError):
        return []
    names = [*sorted({record.study for record in past}), *(began(record.name) for record in reversed(past))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def runs_or_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, and the runs of `runs`."""
    return files(ctx, param, incomplete) + runs(ctx, param, incomplete)


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tasks of the spec that is named before; none where it has a mistake."""
    from reodsl.graph.lower import lower
    from reodsl.language import compile_file

    path = ctx.params.get("spec")
    if not path or not Path(path).is_file():
        return []
    compiled = compile_file(path, target=ctx.params.get("target"))
    if compiled.spec is None:
        return []
    return [CompletionItem(task.id) for task in lower(compiled.spec).tasks if task.id.startswith(incomplete)]
