"""The table of docs/JSON.md as data, and the comparison of a command's output with it."""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCUMENT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "site" / "outputs.py"))
_PLAIN: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "int": (int,),
    "number": (int, float),
    "bool": (bool,),
    "list": (list,),
    "object": (dict,),
}


@dataclass
class Shape:
    """What stands at a path: its types (empty: a list or object as its children say), and what is inside."""

    types: tuple[str, ...] = ()
    optional: bool = False
    inside: dict[str, Shape] = field(default_factory=dict)
    seen: bool = False


def read_document() -> dict[str, list[Shape]]:
    """The shapes of every section, by an object's or a command's name."""
    found: dict[str, list[Shape]] = {}
    for name, tables in DOCUMENT["read_tables"]().items():
        found[name.removeprefix("reodsl ")] = [Shape() for _ in tables]
        for shape, rows in zip(found[name.removeprefix("reodsl ")], tables, strict=True):
            for path in rows.keys() - {""}:
                _put(shape, path, rows[path].partition(": ")[0])
    return found


def _put(root: Shape, path: str, words: str) -> None:
    words, _, optional = words.partition(", ")
    at = root
    for part in re.findall(r"\[\]|[^.\[\]]+", path):
        at = at if part == "*" else at.inside.setdefault(part, Shape())
    at.types = tuple(words.split(" or "))
    at.optional = optional == "optional"


class Mismatch(AssertionError):
    """The document and a command disagree at a place."""


def compare(value: Any, shape: Shape, parts: dict[str, list[Shape]], at: str = "") -> None:
    """Holds that a value has exactly the documented keys, of the documented types; marks what was seen."""
    shape.seen = True
    named = [part for word in shape.types if word in parts for part in parts[word]]
    if value is None:
        if "null" not in shape.types:
            raise Mismatch(f"{at or 'the whole'} is null, and docs/JSON.md does not say that it may be")
        return
    if shape.types == ("any",):
        return
    inside = dict(shape.inside)
    for part in named:
        part.seen = True
        inside = {**part.inside, **inside}
    if not inside:
        fits = tuple(kind for word in shape.types if word in _PLAIN for kind in _PLAIN[word])
        if not isinstance(value, fits) or (isinstance(value, bool) and bool not in fits):
            raise Mismatch(
                f"{at} is {type(value).__name__}, and docs/JSON.md says {' or '.join(shape.types)}"
            )
    elif "[]" in inside:
        if not isinstance(value, list):
            raise Mismatch(f"{at or 'the whole'} is not a list")
        for item in value:
            compare(item, inside["[]"], parts, f"{at}[]")
    else:
        _compare_object(value, inside, parts, at)


def _compare_object(value: Any, inside: dict[str, Shape], parts: dict[str, list[Shape]], at: str) -> None:
    if not isinstance(value, dict):
        raise Mismatch(f"{at or 'the whole'} is not an object")
    anything = next((shape for name, shape in inside.items() if name.startswith("<")), None)
    for name, each in value.items():
        found = inside.get(name, anything)
        if found is None:
            raise Mismatch(f"docs/JSON.md has no `{f'{at}.{name}'.lstrip('.')}`")
        compare(each, found, parts, f"{at}.{name}".lstrip("."))
    for name, shape in inside.items():
        if name not in value and not optional(shape) and not name.startswith("<"):
            raise Mismatch(f"docs/JSON.md promises `{f'{at}.{name}'.lstrip('.')}`, which is not there")


def optional(shape: Shape) -> bool:
    """Whether a key may be missing: it is said to, or all that is in it is."""
    return shape.optional or (not shape.types and all(optional(each) for each in shape.inside.values()))


def unseen(shape: Shape, at: str = "") -> list[str]:
    """Documented paths that no output had."""
    found = [] if shape.seen else [at]
    for name, each in shape.inside.items():
        found += unseen(each, f"{at}.{name}".lstrip(".").replace(".[]", "[]"))
    return found
