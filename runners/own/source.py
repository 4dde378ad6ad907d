"""Read the user's code that is about to be called, or say what is wrong with it."""

from __future__ import annotations

import ast
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.store.consent import LARGEST_CODE, FunctionCode, read_code
from reodsl.store.files import read_plain
from runners.own.worker import ROWS


def opened(name: str, folder: Path, allowed: Collection[str]) -> FunctionCode:
    """Return the code of a function that this run may call. Raises E0743, and E0746 where it is not what was allowed."""
    code = read_code(name, folder)
    if code.checksum not in allowed:
        raise problem(
            "E0746",
            f"`{code.file}` is not what it was when this run started",
            where=str(code.path),
            notes=[f"its content is now sha256:{code.checksum}"],
            help="run again: what was made with its old content is kept, and the new one is asked for",
        )
    return code


def source_problem(code: FunctionCode, role: str) -> Diagnostic | None:
    """Return why a file cannot be used: it does not parse, or lacks the function, or that takes something else.

    Only files are looked into; what a package's module has is known once it is imported.
    """
    if code.module:
        return None
    one, many, _ = ROWS[role]
    written, wanted = f"`def {code.function}({one}) -> …`", f"`{one}`"
    if many != one:
        written += f", or `def {code.function}({many}) -> list[…]`"
        wanted += f" or `{many}`"
    try:
        tree = ast.parse(code.source, str(code.path))
    except SyntaxError as failure:
        return _unusable(f"{code.path}:{failure.lineno or 1}", f"it does not parse: {failure.msg}", written)
    except (ValueError, RecursionError, MemoryError) as failure:
        return _unusable(str(code.path), f"it does not parse: {failure or type(failure).__name__}", written)
    functions = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.function
    ]
    if not functions:
        others = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        there = f"; there is {', '.join(f'`{each}`' for each in others[:8])}" if others else ""
        return _unusable(str(code.path), f"there is no function `{code.function}` at its top{there}", written)
    function = functions[-1]
    place = f"{code.path}:{function.lineno}"
    if isinstance(function, ast.AsyncFunctionDef):
        return _unusable(place, f"`{code.function}` is `async`, and nothing awaits it", written)
    params = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    more = len(params) - 1 - len(function.args.defaults)
    name = params[0] if params else ""
    if name not in (one, many) or more > 0:
        said = f"takes `{ast.unparse(function.args)}`" if name else "takes nothing"
        return _unusable(place, f"`{code.function}` {said}, and not {wanted} alone", written)
    return None


def problem_at(code: FunctionCode, message: str, line: int | None, help: str, inside: str = "") -> Problem:
    """E0744: what went wrong inside the code, at its line; `inside` is the file of its package, if it is another one."""
    text, path, source = "", code.path, code.source
    if inside and code.root is not None and (file := code.root / inside).suffix == ".py":
        # What a process says of itself is not to be trusted.
        with suppress(OSError, ValueError):
            if file.resolve().is_relative_to(code.root.resolve()):
                path, source = file, read_plain(file, LARGEST_CODE)
    if line is not None:
        written = source.decode("utf-8", "replace").splitlines()
        text = written[line - 1].strip() if 0 < line <= len(written) else ""
    return problem(
        "E0744",
        f"`{code.name}` failed: {message}",
        where=str(path) if line is None else f"{path}:{line}",
        notes=[f"the line is: {text}"] if text else (),
        help=help,
    )


def _unusable(where: str, why: str, written: str) -> Diagnostic:
    return error(
        "E0743", f"Python that the spec names cannot be used: {why}", where=where, help=f"write {written}"
    )
