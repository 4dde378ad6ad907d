"""What the standard library provides: from a name to the module that declares it, for hints."""

from __future__ import annotations

import re

from reodsl.language.modules import LIBRARY, library_names

_DECLARES = re.compile(r"^[a-z]+ ([A-Za-z_][A-Za-z0-9_]*) *[={(:]", re.MULTILINE)


def provider(name: str) -> str | None:
    """The module of the standard library that declares `name`, if just one does."""
    found = []
    for module in library_names():
        path = LIBRARY.joinpath(*module.split("."))
        text = path.with_name(path.name + ".reo").read_text(encoding="utf-8")
        if name in _DECLARES.findall(text):
            found.append(f"std.{module}")
    return found[0] if len(found) == 1 else None
