"""A Python function of the user: check its source, and call it on rows in sandboxed processes, with errors as problems."""

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
    """Read the code of a function of the user, check that the user allowed it for this run, and return it.

    Args:
        name: Name as the spec spells it, `FILE.py:FUNCTION` or `MODULE:FUNCTION`.
        folder: The spec's folder, where relative paths start.
        allowed: Checksums of the allowed code.

    Raises:
        Problem: E0743 if the code cannot be read, E0746 if it has changed since the run started.
    """
    code = read_code(name, folder)
    if code.checksum not in allowed:
        raise problem(
            "E0746",
            f"`{code.file}` has changed since this run started",
            where=str(code.path),
            notes=[f"its content is now sha256:{code.checksum}"],
            help="run the command again: results of the old content are kept, and the new content needs approval",
        )
    return code


def source_problem(code: FunctionCode, role: str) -> Diagnostic | None:
    """Return E0743 if a file does not parse, or does not define the function with the parameter of its role, else None.

    The function must be at the top level, not `async`, and callable with its first argument alone. The code of a package
    is not checked, since its functions are known only after importing it.

    Args:
        code: The code.
        role: What the function does in the spec: `verifier`, `reward`, `task`, `advantage` or `loss`. The role decides the
            name of the parameter, for a single row or for a list of rows, in `ROWS`.
    """
    if code.module:
        return None
    single, plural, _ = ROWS[role]
    signature, expected = f"`def {code.function}({single}) -> …`", f"`{single}`"
    if plural != single:
        signature += f", or `def {code.function}({plural}) -> list[…]`"
        expected += f" or `{plural}`"
    try:
        tree = ast.parse(code.source, str(code.path))
    except SyntaxError as failure:
        return _unusable(f"{code.path}:{failure.lineno or 1}", f"it does not parse: {failure.msg}", signature)
    except (ValueError, RecursionError, MemoryError) as failure:
        return _unusable(str(code.path), f"it does not parse: {failure or type(failure).__name__}", signature)
    functions = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.function
    ]
    if not functions:
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        hint = f"; it has {', '.join(f'`{name}`' for name in names[:8])}" if names else ""
        return _unusable(str(code.path), f"it has no top-level function `{code.function}`{hint}", signature)
    function = functions[-1]
    position = f"{code.path}:{function.lineno}"
    if isinstance(function, ast.AsyncFunctionDef):
        return _unusable(position, f"`{code.function}` is `async`, but it is not awaited", signature)
    params = [node.arg for node in (*function.args.posonlyargs, *function.args.args)]
    num_unfilled = len(params) - 1 - len(function.args.defaults)
    name = params[0] if params else ""
    if name not in (single, plural) or num_unfilled > 0:
        found_text = f"takes `{ast.unparse(function.args)}`" if name else "takes nothing"
        return _unusable(position, f"`{code.function}` {found_text} instead of {expected}", signature)
    return None


def problem_at(
    code: FunctionCode, message: str, line: int | None, help: str, package_file: str = ""
) -> Problem:
    """Return E0744 for an error of a user's function, with the line of the code.

    Args:
        code: Code of the function.
        message: Message of the error.
        line: Number of the line, or None if it is not known.
        help: Advice to the user.
        package_file: File of the function's package that has the line, relative to the package; empty for the
            function's own file.
    """
    text, path, source = "", code.path, code.source
    if package_file and code.root is not None and (file := code.root / package_file).suffix == ".py":
        # The path comes from the sandboxed process, so it must be checked.
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
    """Return E0743 for a function that cannot be used, with its file and line, the reason, and the signature to write."""
    return error(
        "E0743", f"Python that the spec names cannot be used: {why}", where=where, help=f"write {signature}"
    )


WORKER = Path(__file__).with_name("worker.py")
LONGEST_REPLY, LONGEST_ALONE = 2**21, 2**15
"""Largest size in bytes of a reply to a batch, and its further bytes for each row of the batch."""
MOST_QUESTIONS = 4096
"""Largest number of a step's questions that a function of advantages gets in a call."""
# Lone surrogates, which tokenizers refuse.
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FailedRow:
    """The failure of a function on a single row; a failure on a list of rows ends the call with an error instead."""

    status: Literal["timeout", "failed"]
    """Kind of the failure."""
    problem: Problem
    """The error."""

    @property
    def why(self) -> str:
        """Return the message of the failure with its line, but without paths of this machine."""
        (fault,) = self.problem.diagnostics
        line = re.search(r":\d+$", fault.where or "")
        return f"{shown(fault.message)}{f', line {line[0][1:]}' if line else ''}"


class UserFunction:
    """A function of the user, which is called on batches of rows in sandboxed processes.

    Its role says what it does in the spec, such as `reward`. A row has the fields of an answer, a response or a group.
    Processes start with the first call, and end with this object or its process. A function that takes a single row has a
    forked process for each row.
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
        """Prepare the function; no process starts yet.

        Args:
            code: Code of the function.
            role: Role of the function, a key of `ROWS`.
            batch: Rows of a batch at most.
            seconds: Processor seconds for a batch, or for a row of a function that takes a single row.
            memory_mib: Address space of a process in MiB.
            workers: Number of processes at most.
            confined: Whether the sandbox is required. Otherwise the function runs unconfined if the sandbox does not work.
        """
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
        """Return the function's number for each row, or the failure of the row.

        Only a function that takes a single row can fail for one row and continue with others.

        Args:
            rows: Fields of each answer or response.

        Raises:
            Problem: E0744 if the function fails for a list, returns a wrong value, or has failed for all rows so far;
                E0742 if no process can be confined, E0741 if none starts.
        """
        values = self._call_batches(rows, _is_number)
        failures = [value for value in values if isinstance(value, FailedRow)]
        self._worked |= len(failures) < len(values)
        if failures and not self._worked:
            raise failures[0].problem
        return [value if isinstance(value, FailedRow) else float(value) for value in values]

    def advantages(self, rows: Sequence[Mapping[str, Any]]) -> list[list[list[float]]]:
        """Return the advantages that the function, whose role is `advantage`, gives the responses of each question.

        Args:
            rows: Fields of each question's group, with the `rewards` of each response by section.

        Returns:
            Advantages by question, response and section, in the form of the rewards.

        Raises:
            Problem: E0744 if the function fails or returns a wrong value, E0742 or E0741 if no process can run.
        """
        values: list[list[list[float]]] = self._call_batches(rows, _is_table)
        for table, row in zip(values, rows, strict=True):
            if [*map(len, table)] != [*map(len, row["rewards"])]:
                raise self._explain_misfit("its advantages have not the form of the rewards")
        return values

    def draw(self, seed: int, draws: range) -> list[dict[str, str]]:
        """Return the questions that the function, whose role is `task`, generates.

        Args:
            seed: Seed of the data set.
            draws: Numbers of the questions. A question's random generator is seeded with `seed` and its number.

        Returns:
            Fields of each question; `meta` is JSON text, or empty.

        Raises:
            Problem: E0744 if the function fails or returns a wrong value, E0742 or E0741 if no process can run.
        """
        return self._call_batches([{"seed": seed, "draw": draw} for draw in draws], _is_question)

    def _call_batches(
        self, rows: Sequence[Mapping[str, Any]], is_valid: Callable[[object], bool]
    ) -> list[Any]:
        """Call the function on all rows in batches, and return its values.

        Args:
            rows: Fields of each row.
            is_valid: Function from a value to whether it has the form of the role.

        Returns:
            A value for each row, or a `FailedRow` if the function takes a single row and fails.

        Raises:
            Problem: E0744 if the function fails for a batch, or returns a wrong value.
        """

        def ask(worker: Worker, batch: Sequence[Mapping[str, Any]]) -> list[Any]:
            """Return the values of a batch of rows: send the batch to a process, and check its reply.

            If the function takes a single row, the reply has a reply for each row, and a row may have a `FailedRow`.
            """
            try:
                reply = worker.ask({"rows": list(batch)}, wall_seconds(self.seconds) * len(batch))
            except Undecodable as failure:
                raise self._explain_unreadable(str(failure), len(batch)) from None
            rows = reply.get("rows") if reply.get("status") == "each" else None
            replies = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            if len(replies) == len(batch):
                return [self._read_value(row, is_valid) for row in replies]
            return self._read_values(reply, len(batch), is_valid)

        batches = [rows[start : start + self.batch] for start in range(0, len(rows), self.batch)]
        values = self._pool.map(ask, batches, self._refuse_dead)
        return [value for batch_values in values for value in batch_values]

    def _refuse_dead(self, death: WorkerDied) -> list[Any]:
        """Raise E0744 for a batch whose process ended, or took too long (`death.late`)."""
        raise self._explain_timeout(self.batch) if death.late else self._explain_end(self.batch)

    def close(self) -> None:
        """End the processes; the next call starts new processes."""
        self._pool.close()

    def pids(self) -> list[int]:
        """Return the ids of the processes that run."""
        return self._pool.pids()

    def _read_value(self, reply: Mapping[str, Any], is_valid: Callable[[object], bool]) -> Any:
        """Return the value of a reply to a single row, or a `FailedRow` if the reply has no valid value.

        Args:
            reply: Reply of the process, whose forms `worker.py` describes.
            is_valid: Function from a value to whether it has the form of the role.
        """
        try:
            return self._read_values(reply, 1, is_valid)[0]
        except Problem as fault:
            return FailedRow("timeout" if reply.get("status") == "timeout" else "failed", fault)

    def _read_values(
        self, reply: Mapping[str, Any], count: int, is_valid: Callable[[object], bool]
    ) -> list[Any]:
        """Return the values of a reply to a batch.

        Args:
            reply: Reply of the process, whose forms `worker.py` describes.
            count: Number of rows in the batch.
            is_valid: Function from a value to whether it has the form of the role.

        Raises:
            Problem: E0744 for any reply without `count` valid values.
        """
        match reply:
            case {"status": "done", "values": list(values)} if len(values) == count and all(
                map(is_valid, values)
            ):
                return values
            case {"status": "done"}:
                raise self._explain_unreadable("its values have another form than its role needs", count)
            case {"status": "unreadable", "message": str(message)}:
                raise self._explain_unreadable(message, count)
            case {"status": "unfit", "message": str(message)}:
                raise self._explain_misfit(shown(message))
            case {"status": "error", "message": str(message), **more}:
                raise problem_at(
                    self.code, shown(message), _parse_line(more), self._advice(more), _read_failing_file(more)
                )
            case {"status": "timeout", **more}:
                raise self._explain_timeout(count, _parse_line(more), _read_failing_file(more))
        code = reply.get("code")
        raise self._explain_end(count, code if isinstance(code, int) else None)

    def _explain_unreadable(self, reason: str, count: int) -> Problem:
        """Return E0744 for an unreadable reply to a batch of `count` rows, with the reason."""
        return self._explain_misfit(f"its reply cannot be read: {reason}{_format_share(count)}")

    def _explain_misfit(self, message: str) -> Problem:
        """Return E0744 for a function that returned a wrong value; `message` says what is wrong."""
        return problem(
            "E0744",
            f"`{self.code.name}` returned a wrong value: {message}",
            where=str(self.code.path),
            help="return a number for each row, as the page says: reodsl explain E0744",
        )

    def _advice(self, reply: Mapping[str, Any]) -> str:
        """Return advice for an exception of the function.

        Args:
            reply: Reply of the process. It has `confined` if the sandbox forbade what the code did, and `missing` with
                the name of a package that could not be imported.
        """
        if reply.get("confined"):
            return "it may only compute and read installed packages: no files, processes, threads or network"
        if "missing" in reply:
            return (
                f"install `{reply['missing']}` in the environment that runs reodsl; files beside the spec cannot be imported"
                if reply["missing"]
                else "the file may import only installed packages"
            )
        return "correct the line; a model may write any text, also an empty one"

    def _explain_timeout(self, count: int, line: int | None = None, package_file: str = "") -> Problem:
        """Return E0744 for a batch that took too long.

        Args:
            count: Number of rows in the batch.
            line: Number of the line that was running, or None if it is not known.
            package_file: File of the function's package that has the line; empty for the function's own file.
        """
        return problem_at(
            self.code,
            f"it took more than its {self.seconds:g} s of processor time{_format_share(count)}",
            line,
            f'end its loops, or allow more: `python("{self.code.name}", {"y, " if self._role == "reward" else ""}'
            f"batch: {max(1, self.batch // 2)}, seconds: {2 * self.seconds:g} seconds)`",
            package_file,
        )

    def _explain_end(self, count: int, code: int | None = None) -> Problem:
        """Return E0744 for a process that ended unexpectedly: the code ended it, or it had too little memory.

        Args:
            count: Number of rows in the batch.
            code: Exit status of the process, negative for a signal; None if it is not known.
        """
        # A forked process that cannot continue, for example without memory, has the exit status 1.
        ended_itself = code is not None and 0 <= code < 256 and code != 1
        return problem_at(
            self.code,
            f"it ended its process{_format_share(count)}",
            None,
            f"its exit status was {code}: remove code that ends the process, such as `os._exit`"
            if ended_itself
            else f"it may have run out of its {self.memory_mib:,} MiB of memory: "
            f"`memory: {self.memory_mib / 512:g} GiB` would be twice as much",
        )


def open_function(
    chosen: Python, role: str, folder: Path, resources: Resources, workers: int = 2
) -> UserFunction:
    """Return the user's function that a spec names for a role, such as `reward`, ready to be called within its limits.

    Args:
        chosen: Setting `python(…)` of the spec, with the function's name and limits.
        role: Role of the function, a key of `ROWS`.
        folder: The spec's folder, where relative paths start.
        resources: The task's share of the machines, with the checksums of allowed code.
        workers: Number of processes at most.

    Raises:
        Problem: E0743 if the code cannot be used, E0746 if it has changed since the run started.
    """
    return UserFunction(
        opened(chosen.function, folder, resources.python),
        role,
        # A function of advantages gets all questions of a step in one call.
        batch=MOST_QUESTIONS if role == "advantage" else chosen.batch,
        seconds=chosen.seconds,
        memory_mib=round(chosen.memory * 1024),
        workers=workers,
        confined=resources.confined,
    )


def _format_share(count: int) -> str:
    """Return a clause for a batch of several rows, any of which may have caused an error; empty for a single row."""
    return f", for a batch of {count} rows, any of which may be the cause" if count > 1 else ""


def _parse_line(reply: Mapping[str, Any]) -> int | None:
    """Return the number of the line in a reply; None if the reply has none."""
    line = reply.get("line")
    return line if isinstance(line, int) else None


def _read_failing_file(reply: Mapping[str, Any]) -> str:
    """Return the file in which a reply reports an error; empty if it is the function's own file."""
    inside = reply.get("inside")
    return inside if isinstance(inside, str) else ""


def _is_number(value: object) -> bool:
    # The comparison is also false for NaN, and for whole numbers that no float can hold.
    return isinstance(value, (bool, int, float)) and abs(value) <= sys.float_info.max


def _is_table(value: object) -> bool:
    """Return whether a value is a list of lists of numbers."""
    rows = value if isinstance(value, list) else [None]
    return all(isinstance(row, list) and all(map(_is_number, row)) for row in rows)


def _is_question(value: object) -> bool:
    """Return whether a value has the fields of a question, all of them texts."""
    names = {"question", "answer", "meta", "trace"}
    return isinstance(value, dict) and value.keys() == names and all(map(_is_text, value.values()))


def _is_text(value: object) -> bool:
    """Return whether a value is a text without lone surrogates, which tokenizers refuse."""
    return isinstance(value, str) and not _HALVES.search(value)
