"""Write tables of kept numbers into the pages that show them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "tables"
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"


def path_of(name: str) -> Path:
    """Return the file of a kept table."""
    return KEPT / f"{name}.csv"


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a kept table."""
    with path_of(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(text: str | None) -> float | None:
    """Return a kept number; None for an empty cell."""
    return float(text) if text else None


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table. A column whose name begins with `>` is aligned to the right."""
    names = [name.removeprefix(">") for name in head]
    rule = ["---:" if name.startswith(">") else "---" for name in head]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (names, rule, *rows))


def difference(row: Mapping[str, str]) -> str:
    """Return a row's difference with its interval, as in `-3.1* [-4.0, -2.2]`; empty if it has none.

    The star is that of the column `difference_star`; a table that was kept without it has none.
    """
    value, low, high = (number(row[f"difference{end}"]) for end in ("", "_low", "_high"))
    if value is None or low is None or high is None:
        return "" if value is None else f"{value:+.1f}"
    return f"{value:+.1f}{'*' if row.get('difference_star') == 'true' else ''} [{low:.1f}, {high:.1f}]"


def place(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with each text between the markers of its name; a page without them is a SystemExit."""
    for name, text in texts.items():
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        if not end:
            raise SystemExit(
                f"the page has no markers named {name}: write {BEGIN.format(name)} and {END.format(name)}"
            )
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def rewrite(path: Path, texts: Mapping[str, str]) -> None:
    """Write texts between their markers in the page at `path`."""
    path.write_text(place(path.read_text("utf-8"), texts), "utf-8")
