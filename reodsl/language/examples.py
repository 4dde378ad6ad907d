"""Fill a setting's example with names that the file has, or with the imports that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reodsl.ir.setting import Type
from reodsl.language.context import Context
from reodsl.language.hints import provided
from reodsl.language.modules import Loaded
from reodsl.language.schema import kinds_of
from reodsl.syntax import tree

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?! *[=:(\w.])")


def in_file(ctx: Context, module: Loaded | None, example: str, type_: Type) -> tuple[str, list[str]]:
    """`example` as it can be written into a file, and the import of each name in it that the file lacks.

    A declaration of the file of the same kind stands in for one that it lacks.
    """
    kinds = kinds_of(type_)
    if module is None or not kinds:
        return example, []
    imports: list[str] = []
    taken: set[str] = set()

    def ready(kind: str) -> tuple[str, ...]:
        return ctx.once_of(f"ready {kind}", module, lambda: tuple(_ready(ctx, module, kind)))

    def here(match: re.Match[str]) -> str:
        name = match[0]
        known = [each for each in provided(name) if each[1] in kinds]
        if name in module.items or name in module.imports or len(known) != 1:
            return name
        library, kind = known[0]
        declared = next((each for each in ready(kind) if each not in taken), None)
        if declared is None:
            imports.append(f"from {library} import {name}")
            return name
        taken.add(declared)
        return declared

    return _NAME.sub(here, example), imports


def with_imports(imports: list[str]) -> str:
    """What follows an example that needs imports."""
    return f", with `{'` and `'.join(imports)}`" if imports else ""


def _ready(ctx: Context, module: Loaded, kind: str) -> Iterator[str]:
    """The names of a file for declarations of a kind that need no arguments."""
    for name, item in module.items.items():
        if _is_ready(item, kind):
            yield name
    for name, imported in module.imports.items():
        target = ctx.modules.loaded.get(imported.module or "")
        if target is not None and _is_ready(target.items.get(imported.name), kind):
            yield name


def _is_ready(item: tree.ModuleItem | None, kind: str) -> bool:
    if not isinstance(item, tree.Decl) or item.kind.name != kind:
        return False
    return all(each.default is not None for each in item.params or ())
