"""Trees to a readable text for golden files, and the specs that the syntax tests read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

from reodsl.syntax import Source, read_source

SPECS = sorted(Path(__file__).with_name("specs").glob("*.reo"))
ROOT = Path(__file__).parents[2]
# Everything written in the language: our own specs, the library, and what users start from.
EVERY_SPEC = [*SPECS, *sorted(ROOT.glob("stdlib/**/*.reo")), *sorted(ROOT.glob("specs/**/*.reo"))]
PLACES = {"span", "unit_span", "module_span", "doc_span", "path"}


def source(path: Path) -> Source:
    return read_source(path, path.name)


def dump(node: object, indent: int = 0) -> str:
    """One line per node and value, children indented; nodes with their places."""
    pad = "  " * indent
    if is_dataclass(node) and not isinstance(node, type):
        span = node.span  # type: ignore[attr-defined]
        head = f"{type(node).__name__} {span.line}:{span.column}-{span.end_line}:{span.end_column}"
        lines = [head]
        for field in fields(node):
            if field.name not in PLACES:
                lines.append(f"{pad}  {field.name}: {dump(getattr(node, field.name), indent + 1)}")
        return "\n".join(lines)
    if isinstance(node, tuple):
        return "[]" if not node else "".join(f"\n{pad}  - {dump(part, indent + 2)}" for part in node)
    return repr(node)
