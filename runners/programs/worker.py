"""A confined process that runs programs of models, each in a copy of itself that ends with it.

Each line in is one program with what to do, and `seconds` of processor time; each is answered with one line, `ended` and
`output`:

- `{"program", "input"}` runs it as a script: `output` is what it prints, `spent` its seconds. With `retire` this process
  has to end.
- `{"program", "name", "calls"}` calls its function with each list of arguments: `output` is the JSON of the results.
- `{"program", "tests", "entry"}` runs Python tests beside it: `output` is `passed` where they came to their end.

The first line out is `{"ready": true}`, or `{"ready": false}` with `lacking` or `why`.
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
    """Return an empty module with the names of `typing`, which questions with types assume."""
    module = types.ModuleType(name)
    vars(module).update((attr, getattr(typing, attr)) for attr in typing.__all__)
    sys.modules[name] = module
    return module


def run_program(text: str) -> bytes:
    """Run a program as Python runs a script; what it prints goes to its stdout."""
    sys.stdin = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace"
    )
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="backslashreplace"
    )
    sys.argv = ["answer.py"]
    code: object = None
    try:
        exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(make_module("__main__")))
    except SystemExit as ending:
        code = ending.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if code not in (None, 0):
        raise RuntimeError("it ended with an error")
    return b""


def load_answer(text: str) -> types.ModuleType:
    """Return a program as the module that tests import from as `solution`."""
    module = make_module("solution")
    exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(module))
    return module


def call_answer(text: str, name: str, calls: list[list[Any]]) -> bytes:
    """Return the JSON of the results of a program's function for each list of arguments."""
    entry = find_entry(load_answer(text), name)
    return json.dumps([entry(*arguments) for arguments in calls], default=_to_json).encode("ascii")


def _to_json(value: Any) -> Any:
    """Return what numpy's arrays and numbers hold. Raises AttributeError for other values."""
    return value.tolist()


def run_tests(text: str, tests: str, entry: str) -> bytes:
    """Run tests with the names of a program; a `check` of theirs gets the function that `entry` names."""
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
    """Return the named function of the module or of its `Solution`; without a name, the last function."""
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


def exchange(fork: SandboxedFork, text: bytes) -> bytes:
    """Write a program's input while reading its output, and return the output to its end or a byte past its limit."""
    output, position = b"", 0
    writes: list[int] = [fork.writes]
    while len(output) <= LONGEST_REPLY:
        readable, writable = fork.wait([fork.reads], writes)
        if not readable and not writable:
            break
        if readable:
            chunk = os.read(fork.reads, 2**16)
            if not chunk:
                break
            output += chunk
        elif writable:
            # A pipe that takes anything takes this much without waiting.
            step = text[position : position + _PIPE_STEP_BYTES]
            try:
                position += os.write(fork.writes, step) if step else 0
            except OSError:
                position = len(text)
            if position >= len(text):
                writes = []
                fork.end_input()
    return output


def answer_request(sandbox: Sandbox, request: dict[str, Any]) -> dict[str, object]:
    """Run the program of a request, and return the reply."""
    program, seconds = str(request["program"]), float(request["seconds"])
    if "input" in request:
        fork = sandbox.start(lambda: run_program(program), seconds)
        output = exchange(fork, request["input"].encode("utf-8", "replace"))[: LONGEST_REPLY + 1]
        ending, cpu_seconds = fork.close()
        # One whose time was over may run still: it ends with this process.
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
    """Confine this process, then answer lines until the parent closes the pipe."""
    parent = os.getppid()

    def prepare(tell: Tell) -> Callable[[], None]:
        confinable()
        limit_memory(memory_mib)
        sandbox = Sandbox(python_folders())
        sandbox.enter()

        def answer() -> None:
            for line in lines(parent):
                tell(answer_request(sandbox, json.loads(line)))

        return answer

    serve(prepare)


if __name__ == "__main__":
    main(int(sys.argv[1]))
