"""Write docs/JSON.md from the table of what commands print: `python docs/site/outputs.py`."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "site" / "outputs.toml"
PAGE = ROOT / "docs" / "JSON.md"
HEAD = """\
# What `--json` prints

Every command that prints facts has `--json`: one JSON document on stdout, in UTF-8. Warnings and errors go to stderr,
and the exit codes stay the same. Keys may be added; a removed or changed key has a line in the
[changelog](../CHANGELOG.md). This page is generated (`python docs/site/outputs.py`) from a table that a test compares
with the output of every command.

A key is its path: `tasks[].id` is the `id` of each item of the list `tasks`, and `<name>` is any key. Types are `text`,
`int`, `number`, `bool`, `list`, `object`, `any`, or an object of the next section. An `optional` key may be missing.
Times are seconds, or ISO 8601 in UTC; budgets and lengths are tokens, accuracies shares from 0 to 1, sizes bytes, and
keys of results SHA-256 in hexadecimal.

## Objects of several commands
"""


def read_tables() -> dict[str, list[dict[str, str]]]:
    """Return the tables of each object and command: the type and meaning of each key, and an introduction as ''."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def page_text() -> str:
    """Return the whole page."""
    parts, tables = [HEAD], read_tables()
    for name, shapes in tables.items():
        parts.append(f"## `{name}`\n" if name.startswith("reodsl ") else f"### {name}\n")
        for rows in shapes:
            parts += [f"{rows['']}\n"] if "" in rows else []
            parts += ["| key | type | |", "| --- | --- | --- |"]
            for key, text in rows.items():
                kind, _, meaning = text.partition(": ")
                object_, *rest = kind.split(" or ")
                linked = [f"[{object_}](#{object_.replace(' ', '-')})"] if object_ in tables else [object_]
                parts += [f"| `{key}` | {' or '.join(linked + rest)} | {meaning} |"] if key else []
            parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
