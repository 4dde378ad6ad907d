"""What the standard library provides: from a name to the modules that declare it, for hints."""

from __future__ import annotations

import re
from functools import cache

from reodsl.language.modules import LIBRARY, library_names

_DECLARES = re.compile(r"^([a-z]+) ([A-Za-z_][A-Za-z0-9_]*) *[={(:]", re.MULTILINE)


def provided(name: str) -> tuple[tuple[str, str], ...]:
    """The modules of the standard library that declare `name`, each with the kind of that declaration."""
    return tuple((module, kind) for module, kind, each in _declarations() if each == name)


@cache
def _declarations() -> tuple[tuple[str, str, str], ...]:
    declarations = []
    for module in library_names():
        path = LIBRARY.joinpath(*module.split("."))
        text = path.with_name(path.name + ".reo").read_text(encoding="utf-8")
        declarations += [(f"std.{module}", kind, name) for kind, name in _DECLARES.findall(text)]
    return tuple(declarations)
