"""Check for unused imports and declarations, in files that run something."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, warning
from reodsl.language.program import Program
from reodsl.syntax import tree


def check_unused(program: Program) -> Iterator[Diagnostic]:
    """Report W0201 for imports, W0202 for declarations and params that nothing uses."""
    main, ctx = program.main, program.context
    if main is None or not program.sound:
        return
    for name, imported in main.imports.items():
        source = ctx.modules.loaded.get(imported.module or "")
        # A param that is imported can be set from the command line, whoever reads it.
        is_param = source is not None and isinstance(source.items.get(imported.name), tree.Param)
        if (main.key, name) not in ctx.used_imports and not is_param:
            yield warning(
                "W0201",
                f"`{name}` is imported and never used",
                imported.at.span,
                "unused",
                help="take it out of the import",
            )
    studies = {
        name for name, item in main.items.items() if isinstance(item, tree.Decl) and item.kind.name == "study"
    }
    experiments = {
        name
        for name, item in main.items.items()
        if isinstance(item, tree.Decl) and item.kind.name == "experiment"
    }
    running = studies or experiments
    if not running or main.std:
        return
    for name, item in main.items.items():
        if name not in running and (main.key, name) not in ctx.used:
            kind = item.kind.name if isinstance(item, tree.Decl) else "param"
            yield warning(
                "W0202",
                f"the {kind} `{name}` is never used",
                item.name.span,
                "unused",
                help="use it, or take it out",
            )
