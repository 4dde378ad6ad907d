"""Print how much code each package of `reodsl/` and `runners/` has, and how much a user and a reader have to know."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = ("files", "lines", "statements", "docstrings")


def measure_file(path: Path) -> tuple[int, ...]:
    """Return the columns for one file: lines and statements outside docstrings, and the lines of docstrings.

    A text that stands as a statement is a docstring: of a module, class, function or field.
    """
    text = path.read_text(encoding="utf-8")
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    docstrings = [
        statement.end_lineno - statement.lineno + 1
        for statement in statements
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        and statement.end_lineno is not None
    ]
    documented = sum(docstrings)
    return 1, len(text.splitlines()) - documented, len(statements) - len(docstrings), documented


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


def count_parts() -> dict[str, int]:
    """Return the number of diagnostic codes, of settings that a spec may write, and of lines of tests."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("reodsl/ir/**/*.py"))
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    tests = ROOT.joinpath("tests").rglob("*.py")
    return {
        "codes": sum(1 for _ in ROOT.glob("reodsl/diagnostics/pages/*.md")),
        "settings": sum(isinstance(call, ast.Name) and call.id == "setting" for call in calls),
        "lines of tests": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests),
    }


def main() -> None:
    """Print the table, its total, and the parts that are counted besides."""
    packages = measure_packages()
    print(f"{'package':28}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name, row in [*packages.items(), ("total", add_columns(list(packages.values())))]:
        print(f"{name:28}" + "".join(f"{number:>12,}" for number in row))
    for name, number in count_parts().items():
        print(f"{name:28}{number:>12,}")


if __name__ == "__main__":
    main()
