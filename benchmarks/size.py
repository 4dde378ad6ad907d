"""Print how much code each package of `reodsl/` and `runners/` has: files, lines, statements, docstrings."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = ("files", "lines", "statements", "docstrings")


def measure_file(path: Path) -> tuple[int, ...]:
    """Return the columns for one file; statements are nodes of `ast.stmt`, so a docstring is one too."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = (node for node in nodes if isinstance(node, documented) and ast.get_docstring(node))
    statements = (node for node in nodes if isinstance(node, ast.stmt))
    return 1, len(text.splitlines()), sum(1 for _ in statements), sum(1 for _ in docstrings)


@cache
def measure_packages() -> dict[str, tuple[int, ...]]:
    """Return the columns for each package that holds Python files, by its folder."""
    packages: dict[str, tuple[int, ...]] = {}
    for top in ("reodsl", "runners"):
        for path in sorted(ROOT.joinpath(top).rglob("*.py")):
            name = path.parent.relative_to(ROOT).as_posix()
            packages[name] = add_columns([packages.get(name, (0, 0, 0, 0)), measure_file(path)])
    return packages


def add_columns(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum of each column."""
    return tuple(map(sum, zip(*rows, strict=True)))


def main() -> None:
    """Print the table, and the total last."""
    packages = measure_packages()
    print(f"{'package':28}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name, row in [*packages.items(), ("total", add_columns(list(packages.values())))]:
        print(f"{name:28}" + "".join(f"{number:>12,}" for number in row))


if __name__ == "__main__":
    main()
