"""A confined process that runs programs of models, each in a forked copy of itself.

It reads requests as lines of JSON, each with a program, a task and `seconds` of processor time. It writes a reply for each,
with `ended` and `output`:

- `{"program", "input"}` runs the program as a script: `output` is its standard output, and `spent` its seconds. If `retire`
  is true, this process has to be ended.
- `{"program", "name", "calls"}` calls a function with each list of arguments: `output` is the JSON of the results.
- `{"program", "tests", "entry"}` runs Python tests with the program: `output` is `passed` if they ran to their end.

The first line that it writes is `{"ready": true}`, or `{"ready": false}` with `lacking` or `why`.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from runners.sandbox import LONGEST_REPLY, Sandbox, SandboxedFork, limit_memory, python_folders
from runners.sandbox.confine import Tell, confinable, lines, serve

_PIPE_STEP_BYTES = 4096


def make_module(name: str) -> types.ModuleType:
    """Return an empty module, registered under `name`, with the names of `typing`, which answers often assume."""
    module = types.ModuleType(name)
    vars(module).update((attr, getattr(typing, attr)) for attr in typing.__all__)
    sys.modules[name] = module
    return module


def run_program(text: str) -> bytes:
    """Run a program as a script that reads from file descriptor 0 and prints to file descriptor 1.

    Returns:
        Empty bytes: the output went to the file descriptor.

    Raises:
        RuntimeError: The program exited with an error status.
    """
    sys.stdin = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace"
    )
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="backslashreplace"
    )
    sys.argv = ["answer.py"]
    exit_code: object = None
    try:
        exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(make_module("__main__")))
    except SystemExit as ending:
        exit_code = ending.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if exit_code not in (None, 0):
        raise RuntimeError("it ended with an error")
    return b""


def load_answer(text: str) -> types.ModuleType:
    """Run a program as the module `solution`, and return the module."""
    module = make_module("solution")
    exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(module))
    return module


def call_answer(text: str, name: str, calls: list[list[Any]]) -> bytes:
    """Call a program's function with each list of arguments, and return the JSON of the results.

    Args:
        text: The program.
        name: The name of the function; empty for its last function.
        calls: The lists of arguments.
    """
    entry = find_entry(load_answer(text), name)
    return json.dumps([entry(*arguments) for arguments in calls], default=_to_json).encode("ascii")


def _to_json(value: Any) -> Any:
    """Return a numpy array or number as Python lists or numbers, for `json`; other values raise AttributeError."""
    return value.tolist()


def run_tests(text: str, tests: str, entry: str) -> bytes:
    """Run Python tests with the names that a program defines.

    The tests' functions named `test…` are called. Their `check`, if they define it, is called with a function of the
    program.

    Args:
        text: The program.
        tests: The tests.
        entry: The name of the function that `check` gets; empty if the tests have no such `check`.

    Returns:
        `passed`, if no test raised an error.
    """
    module = load_answer(text)
    names = dict(vars(module))
    exec(compile(tests, "tests.py", "exec", dont_inherit=True), names)
    if entry and callable(names.get("check")):
        names["check"](find_entry(module, entry))
    for name, value in list(names.items()):
        if name.startswith("test") and isinstance(value, types.FunctionType) and name not in vars(module):
            value()
    return b"passed"


def find_entry(module: types.ModuleType, name: str) -> Any:
    """Return the function of a program to call.

    A named function of the module comes first. If the module lacks it, it is a method of a new `Solution` object. Without
    a name it is the last public method of `Solution`, or else the module's last function.

    Raises:
        AttributeError: The named function does not exist.
        IndexError: No name is given, and there is no function.
    """
    solution = getattr(module, "Solution", None)
    if name and (hasattr(module, name) or solution is None):
        return getattr(module, name)
    if isinstance(solution, type):
        public = [attribute for attribute in vars(solution) if not attribute.startswith("_")]
        return getattr(solution(), name or public[-1])
    functions = [
        value
        for value in vars(module).values()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    ]
    return functions[-1]


def exchange(fork: SandboxedFork, input_bytes: bytes) -> bytes:
    """Write a program's input to it while reading its output.

    Args:
        fork: The process of the program.
        input_bytes: The input.

    Returns:
        The output up to the program's end or time limit. Reading stops after more than `LONGEST_REPLY` bytes.
    """
    output, written = b"", 0
    writes: list[int] = [fork.stdin]
    while len(output) <= LONGEST_REPLY:
        readable, writable = fork.wait([fork.stdout], writes)
        if not readable and not writable:
            break
        if readable:
            chunk = os.read(fork.stdout, 2**16)
            if not chunk:
                break
            output += chunk
        elif writable:
            # A pipe that is writable accepts this many bytes without blocking.
            piece = input_bytes[written : written + _PIPE_STEP_BYTES]
            try:
                written += os.write(fork.stdin, piece) if piece else 0
            except OSError:
                written = len(input_bytes)
            if written >= len(input_bytes):
                writes = []
                fork.end_input()
    return output


def answer_request(sandbox: Sandbox, request: dict[str, Any]) -> dict[str, object]:
    """Run the program of a request in a fork of this process, and return the reply that the module describes."""
    program, seconds = str(request["program"]), float(request["seconds"])
    if "input" in request:
        fork = sandbox.start(lambda: run_program(program), seconds)
        output = exchange(fork, request["input"].encode("utf-8", "replace"))[: LONGEST_REPLY + 1]
        ending, cpu_seconds = fork.close()
        # A program beyond its time may still run; it ends with this process.
        return {
            "ended": ending,
            "spent": cpu_seconds,
            "retire": ending == "timeout",
            "output": output.decode("utf-8", "replace"),
        }
    work: Callable[[], bytes] = lambda: run_tests(program, request["tests"], request["entry"])  # noqa: E731
    if "calls" in request:
        work = lambda: call_answer(program, request["name"], request["calls"])  # noqa: E731
    reply = sandbox.call(work, seconds)
    return {"ended": reply.status, "output": reply.data.decode("utf-8", "replace")}


def main(memory_mib: int) -> None:
    """Confine this process, then reply to requests until the parent process closes the pipe."""
    parent = os.getppid()

    def prepare(tell: Tell) -> Callable[[], None]:
        """Confine this process, and return the function that replies to requests.

        Args:
            tell: Writes a reply.
        """
        confinable()
        limit_memory(memory_mib)
        sandbox = Sandbox(python_folders())
        sandbox.enter()

        def answer() -> None:
            """Read requests as lines of JSON, and reply to each, until the parent process closes the pipe."""
            for line in lines(parent):
                tell(answer_request(sandbox, json.loads(line)))

        return answer

    serve(prepare)


if __name__ == "__main__":
    main(int(sys.argv[1]))
