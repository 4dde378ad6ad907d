"""Every error and warning says what to do: none is written in the code without its help."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted(path for package in ("reodsl", "runners") for path in (ROOT / package).rglob("*.py"))


def without_help(path: Path) -> list[str]:
    """Calls of `problem`, `error`, `warning` and a context's `fail` with a code of their own and no help."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return [
        f"{path.name}:{call.lineno}: {call.args[0].value!r}"
        for call in calls
        if (
            (isinstance(call.func, ast.Name) and call.func.id in ("problem", "error", "warning"))
            or (isinstance(call.func, ast.Attribute) and call.func.attr == "fail" and _has_code(call))
        )
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and not any(keyword.arg == "help" for keyword in call.keywords)
    ]


def _has_code(call: ast.Call) -> bool:
    """Whether a call of something's `fail` is of an evaluation, and not click's."""
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and re.fullmatch(r"E\d{4}", str(first.value)) is not None


@pytest.mark.slow
def test_what_is_wrong_comes_with_what_to_do() -> None:
    assert [each for path in FILES for each in without_help(path)] == []


def test_a_call_without_help_is_found(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text('raise problem("E0101", "no")\nerror("E0103", "no", help="do")\nwarning(code, "no")\n')
    assert without_help(path) == ["some.py:1: 'E0101'"]
