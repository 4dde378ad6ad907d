"""Pages of diagnostics: what a code means, a wrong example and a right one."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

_CODE = re.compile(r"[EWN][0-9]{4}")


@cache
def codes() -> tuple[str, ...]:
    """List the codes that have a page, sorted."""
    names = (entry.name for entry in files("reodsl.diagnostics").joinpath("pages").iterdir())
    return tuple(sorted(name[:-3] for name in names if name.endswith(".md") and _CODE.fullmatch(name[:-3])))


def page(code: str) -> str:
    """Read the page of a code, as Markdown. Raises KeyError for what is not in `codes()`."""
    if code not in codes():
        raise KeyError(code)
    return files("reodsl.diagnostics").joinpath("pages", f"{code}.md").read_text(encoding="utf-8")


def find_page(code: str) -> Path | None:
    """Return the file of a code's page, if it has one."""
    path = Path(str(files("reodsl.diagnostics"))) / "pages" / f"{code}.md"
    return path.resolve() if code in codes() else None


def title(code: str) -> str:
    """Read the title of a page."""
    return page(code).split("\n", 1)[0].removeprefix("# ").strip()
