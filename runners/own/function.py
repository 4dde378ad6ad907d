"""A function of the user's as its callers see it: a number for each row, or a problem that names its line."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Python
from reodsl.store.consent import LARGEST_CODE, FunctionCode, read_code
from reodsl.store.files import read_plain
from runners.own.worker import ROWS
from runners.sandbox.untrusted import Undecodable, encoded, shown
from runners.sandbox.workers import Worker, WorkerDied, WorkerPool, wall_seconds


def opened(name: str, folder: Path, allowed: Collection[str]) -> FunctionCode:
    """Return the code of a function that this run may call. Raises E0743, and E0746 if the code is not the allowed one."""
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
    """Return why a file cannot be used: it does not parse, lacks the function, or the function takes other parameters.

    Only files are read; the contents of a package's module are known once it is imported.
    """
    if code.module:
        return None
    single, many, _ = ROWS[role]
    form, expected = f"`def {code.function}({single}) -> …`", f"`{single}`"
    if many != single:
        form += f", or `def {code.function}({many}) -> list[…]`"
        expected += f" or `{many}`"
    try:
        tree = ast.parse(code.source, str(code.path))
    except SyntaxError as failure:
        return _unusable(f"{code.path}:{failure.lineno or 1}", f"it does not parse: {failure.msg}", form)
    except (ValueError, RecursionError, MemoryError) as failure:
        return _unusable(str(code.path), f"it does not parse: {failure or type(failure).__name__}", form)
    functions = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.function
    ]
    if not functions:
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        hint = f"; there is {', '.join(f'`{name}`' for name in names[:8])}" if names else ""
        return _unusable(str(code.path), f"there is no function `{code.function}` at its top{hint}", form)
    function = functions[-1]
    position = f"{code.path}:{function.lineno}"
    if isinstance(function, ast.AsyncFunctionDef):
        return _unusable(position, f"`{code.function}` is `async`, and nothing awaits it", form)
    params = [node.arg for node in (*function.args.posonlyargs, *function.args.args)]
    more = len(params) - 1 - len(function.args.defaults)
    name = params[0] if params else ""
    if name not in (single, many) or more > 0:
        found_text = f"takes `{ast.unparse(function.args)}`" if name else "takes nothing"
        return _unusable(position, f"`{code.function}` {found_text}, and not {expected} alone", form)
    return None


def problem_at(code: FunctionCode, message: str, line: int | None, help: str, inside: str = "") -> Problem:
    """Return E0744 for an error inside the code, at its line; `inside` names another file of its package."""
    text, path, source = "", code.path, code.source
    if inside and code.root is not None and (file := code.root / inside).suffix == ".py":
        # What a process says of itself is not to be trusted.
        with suppress(OSError, ValueError):
            if file.resolve().is_relative_to(code.root.resolve()):
                path, source = file, read_plain(file, LARGEST_CODE)
    if line is not None:
        source_lines = source.decode("utf-8", "replace").splitlines()
        text = source_lines[line - 1].strip() if 0 < line <= len(source_lines) else ""
    return problem(
        "E0744",
        f"`{code.name}` failed: {message}",
        where=str(path) if line is None else f"{path}:{line}",
        notes=[f"the line is: {text}"] if text else (),
        help=help,
    )


def _unusable(where: str, why: str, signature: str) -> Diagnostic:
    return error(
        "E0743", f"Python that the spec names cannot be used: {why}", where=where, help=f"write {signature}"
    )


WORKER = Path(__file__).with_name("worker.py")
LONGEST_REPLY, LONGEST_ALONE = 2**21, 2**15
"""Bytes of what is said of a batch, and more of each row of it."""
MOST_QUESTIONS = 4096
"""Questions of a step that a function of advantages is given together."""
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row without a value, if rows have a process each: its status, and the problem that would end a batch."""

    status: Literal["timeout", "failed"]
    problem: Problem

    @property
    def why(self) -> str:
        """Return the reason without folders of this machine."""
        (fault,) = self.problem.diagnostics
        line = re.search(r":\d+$", fault.where or "")
        return f"{shown(fault.message)}{f', line {line[0][1:]}' if line else ''}"


class UserFunction:
    """A function of the user for a role, called in up to `workers` processes, `batch` rows at a time.

    A batch has `seconds` of processor time; a function of single rows has a process and `seconds` for each row. A process
    has `memory_mib` MiB of address space. Processes are confined; with `confined` false they run the function also if they
    cannot be confined. None is started before the first call, and none outlives this object or its process.
    """

    def __init__(
        self,
        code: FunctionCode,
        role: str,
        *,
        batch: int,
        seconds: float,
        memory_mib: int,
        workers: int = 1,
        confined: bool = True,
    ) -> None:
        self.code, self.batch, self.seconds, self.memory_mib = code, batch, seconds, memory_mib
        self._role = role
        self._worked = False
        settings = {
            "role": role,
            "file": str(code.path),
            "root": str(code.root or ""),
            "function": code.function,
            "module": code.module,
            "source": code.source.decode("utf-8", "replace"),
            "seconds": seconds,
            "memory_mib": memory_mib,
            "must": confined,
        }
        self._pool = WorkerPool(
            workers,
            WORKER,
            longest=LONGEST_REPLY + batch * LONGEST_ALONE,
            settings=encoded(settings),
            task=f"calls `{code.name}`",
            where=str(code.path),
            confined=f"`{code.name}`",
            help=f"give it more memory: `memory: {memory_mib / 512:g} GiB` would be twice as much",
        )

    def call(self, rows: Sequence[Mapping[str, Any]]) -> list[float | FailedRow]:
        """Return the function's value for each row, or how a row failed if the function takes single rows.

        Args:
            rows: the fields of each answer or response.

        Raises:
            Problem: the function failed for a list, or for a single row before any value (E0744), a value is of another kind
                (E0744), no process can be confined (E0742), or none starts (E0741).
        """
        values = self._all_of(rows, _is_number)
        failed = [value for value in values if isinstance(value, FailedRow)]
        self._worked |= len(failed) < len(values)
        if failed and not self._worked:
            raise failed[0].problem
        return [value if isinstance(value, FailedRow) else float(value) for value in values]

    def advantages(self, rows: Sequence[Mapping[str, Any]]) -> list[list[list[float]]]:
        """Return the advantages of each question's responses. Raises as `call` does.

        Args:
            rows: the fields of each question's group, with `rewards` of each response.

        Returns:
            An advantage for each reward, by question and response.
        """
        values: list[list[list[float]]] = self._all_of(rows, _is_table)
        for table, row in zip(values, rows, strict=True):
            if [*map(len, table)] != [*map(len, row["rewards"])]:
                raise self._unfit("its values are not of the form that is asked for")
        return values

    def draw(self, seed: int, draws: range) -> list[dict[str, str]]:
        """Return the questions of these draws; `meta` is JSON, or nothing. Raises as `call` does."""
        return self._all_of([{"seed": seed, "draw": draw} for draw in draws], _is_question)

    def _all_of(self, rows: Sequence[Mapping[str, Any]], fits: Callable[[object], bool]) -> list[Any]:
        """Return the values of all rows, called in batches; a value that does not fit raises or becomes a `FailedRow`."""

        def ask(worker: Worker, batch: Sequence[Mapping[str, Any]]) -> list[Any]:
            try:
                reply = worker.ask({"rows": list(batch)}, wall_seconds(self.seconds) * len(batch))
            except Undecodable as failure:
                raise self._unread(str(failure), len(batch)) from None
            rows = reply.get("rows") if reply.get("status") == "each" else None
            replies = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            if len(replies) == len(batch):
                return [self._value(row, fits) for row in replies]
            return self._values(reply, len(batch), fits)

        batches = [rows[start : start + self.batch] for start in range(0, len(rows), self.batch)]
        values = self._pool.map(ask, batches, self._gone)
        return [value for batch_values in values for value in batch_values]

    def _gone(self, death: WorkerDied) -> list[Any]:
        """Raise E0744 for a batch whose process ended."""
        raise self._late(self.batch) if death.late else self._ended(self.batch)

    def close(self) -> None:
        """End the processes; the next call starts new processes."""
        self._pool.close()

    def pids(self) -> list[int]:
        """Return the process ids of its live processes."""
        return self._pool.pids()

    def _value(self, reply: Mapping[str, Any], fits: Callable[[object], bool]) -> Any:
        try:
            return self._values(reply, 1, fits)[0]
        except Problem as fault:
            return FailedRow("timeout" if reply.get("status") == "timeout" else "failed", fault)

    def _values(self, reply: Mapping[str, Any], count: int, fits: Callable[[object], bool]) -> list[Any]:
        """Return the values of a reply. Raises E0744 for any reply without `count` fitting values."""
        match reply:
            case {"status": "done", "values": list(values)} if len(values) == count and all(
                map(fits, values)
            ):
                return values
            case {"status": "done"}:
                raise self._unread("its values are not of the form that is asked for", count)
            case {"status": "unreadable", "message": str(message)}:
                raise self._unread(message, count)
            case {"status": "unfit", "message": str(message)}:
                raise self._unfit(shown(message))
            case {"status": "error", "message": str(message), **more}:
                raise problem_at(
                    self.code, shown(message), _line_of(more), self._advice(more), _inside_of(more)
                )
            case {"status": "timeout", **more}:
                raise self._late(count, _line_of(more), _inside_of(more))
        code = reply.get("code")
        raise self._ended(count, code if isinstance(code, int) else None)

    def _unread(self, why: str, count: int) -> Problem:
        return self._unfit(f"its reply cannot be read: {why}{_shared(count)}")

    def _unfit(self, message: str) -> Problem:
        return problem(
            "E0744",
            f"`{self.code.name}` does not give what is asked of it: {message}",
            where=str(self.code.path),
            help="give one number for each, as the page says: reodsl explain E0744",
        )

    def _advice(self, more: Mapping[str, Any]) -> str:
        if more.get("confined"):
            return "it may compute and read installed packages: no files, processes, threads or network"
        if "missing" in more:
            return (
                f"install `{more['missing']}` in the environment that runs reodsl; files beside the spec cannot be imported"
                if more["missing"]
                else "a file stands alone: it may import installed packages"
            )
        return "mend the line; what a model writes may be anything, an empty text too"

    def _late(self, count: int, line: int | None = None, inside: str = "") -> Problem:
        return problem_at(
            self.code,
            f"it took more than its {self.seconds:g} s of processor time{_shared(count)}",
            line,
            f'end its loops, or allow more: `python("{self.code.name}", {"y, " if self._role == "reward" else ""}'
            f"batch: {max(1, self.batch // 2)}, seconds: {2 * self.seconds:g} seconds)`",
            inside,
        )

    def _ended(self, count: int, code: int | None = None) -> Problem:
        """Return E0744 for a process that ended: by the code itself, or for lack of memory."""
        # A copy of its process that can go on no more says 1.
        by_itself = code is not None and 0 <= code < 256 and code != 1
        return problem_at(
            self.code,
            f"it ended its process{_shared(count)}",
            None,
            f"its exit status was {code}: take out what ends a process, such as `os._exit`, and return"
            if by_itself
            else f"it may have run out of memory, of which it has {self.memory_mib:,} MiB: "
            f"`memory: {self.memory_mib / 512:g} GiB` would be twice that",
        )


def open_function(
    chosen: Python, role: str, folder: Path, resources: Resources, workers: int = 2
) -> UserFunction:
    """Return the function that a spec in `folder` names for a role, with its limits. Raises E0743 and E0746.

    Raises E0743 for a file that cannot be used, and E0746 for one that may not run as it is now.
    """
    return UserFunction(
        opened(chosen.function, folder, resources.python),
        role,
        # All of a step's questions together.
        batch=MOST_QUESTIONS if role == "advantage" else chosen.batch,
        seconds=chosen.seconds,
        memory_mib=round(chosen.memory * 1024),
        workers=workers,
        confined=resources.confined,
    )


def _shared(count: int) -> str:
    """Return a clause for a batch, any row of which may have ended the process."""
    return f", which {count} rows share: what is in any of them may have done it" if count > 1 else ""


def _line_of(reply: Mapping[str, Any]) -> int | None:
    line = reply.get("line")
    return line if isinstance(line, int) else None


def _inside_of(reply: Mapping[str, Any]) -> str:
    """Return the package's file that has the line; empty for the module's own file."""
    inside = reply.get("inside")
    return inside if isinstance(inside, str) else ""


def _is_number(value: object) -> bool:
    # No finite float is as large as some whole numbers are, and NaN compares with none.
    return isinstance(value, (bool, int, float)) and abs(value) <= sys.float_info.max


def _is_table(value: object) -> bool:
    rows = value if isinstance(value, list) else [None]
    return all(isinstance(row, list) and all(map(_is_number, row)) for row in rows)


def _is_question(value: object) -> bool:
    names = {"question", "answer", "meta", "trace"}
    return isinstance(value, dict) and value.keys() == names and all(map(_is_text, value.values()))


def _is_text(value: object) -> bool:
    """Return whether a value is a text, without halves of characters, which no tokenizer takes."""
    return isinstance(value, str) and not _HALVES.search(value)
