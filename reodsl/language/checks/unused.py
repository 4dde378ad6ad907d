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
    kinds = {name: item.kind.name for name, item in main.items.items() if isinstance(item, tree.Decl)}
    taken = {getattr(item.type, "name", "") for item in main.items.values() if isinstance(item, tree.Param)}
    for name, imported in main.imports.items():
        source = ctx.modules.loaded.get(imported.module or "")
        item = source.items.get(imported.name) if source is not None else None
        # The command line can set a param that is imported, whoever reads it, and a param of the file to what is imported.
        settable = isinstance(item, tree.Param) or (isinstance(item, tree.Decl) and item.kind.name in taken)
        if (main.key, name) not in ctx.used_imports and not settable:
            yield warning(
                "W0201",
                f"`{name}` is imported and never used",
                imported.at.span,
                "unused",
                help="take it out of the import",
            )
    running = [name for name, kind in kinds.items() if kind == "study"] or [
        name for name, kind in kinds.items() if kind == "experiment"
    ]
    if not running or main.std:
        return
    for name, item in main.items.items():
        if name not in running and (main.key, name) not in ctx.used:
            yield warning(
                "W0202",
                f"the {kinds.get(name, 'param')} `{name}` is never used",
                item.name.span,
                "unused",
                help="use it, or take it out",
            )
