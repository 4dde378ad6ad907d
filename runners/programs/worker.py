"""A confined process in whose copies programs of models run, or the tests that judge them; never both in one process.

It knows nothing of any answer: for each it starts a copy of itself that does, and that serves one session. A session has a
copy of its own for what is not trusted, passes lines between that and the one that asks, and ends.

The first line out is `{"ready": true}`, or `{"ready": false}` with `lacking` or `why`. The first line in of a session says
what it is for, with `seconds` of processor time for all of it:

- `{"program": TEXT}`: each further line `{"input": TEXT}` runs it anew, and is answered with `{"ended", "output"}`.
- `{"answer": TEXT}` or `{"tests": TEXT, "entry": NAME}`: each further line goes to the one copy, which answers with one,
  told as `{"said": LINE}`, or `{"ended"}` where it has none to give.

`{"close": true}` ends a session, and is answered with `{"closed": true}`.
"""

from __future__ import annotations

import atexit
import builtins
import io
import json
import os
import select
import sys
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from runners.programs.values import Uncarried, packed, unpacked
from runners.sandbox import LONGEST_REPLY, Copy, Sandbox, limit_memory, python_folders, write_all
from runners.sandbox.confine import Tell, confinable, lines, serve
from runners.sandbox.kernel import end_with_parent
from runners.untrusted import decoded

_PIPE_STEP = 4096
_NOTHING_LEFT = 7
_POLL_SECONDS = 10.0
_LONGEST_WORDS = 300
_LONGEST_REQUEST = 16 * LONGEST_REPLY


class _Nowhere(io.TextIOBase):
    """A place for what functions print."""

    def write(self, text: str) -> int:
        return len(text)


def typing_names() -> dict[str, Any]:
    """Return the names of `typing`, which questions with types in them take for granted."""
    return {name: getattr(typing, name) for name in typing.__all__}


def run_program(text: str) -> bytes:
    """Run a program as Python runs a script; what it prints goes to its stdout."""
    sys.stdin = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace"
    )
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="backslashreplace"
    )
    sys.argv = ["answer.py"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    vars(module).update(typing_names(), __name__="__main__")
    code: object = None
    try:
        exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(module))
    except SystemExit as ending:
        code = ending.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if code not in (None, 0):
        raise RuntimeError("it ended with an error")
    return b""


def serve_answer(text: str) -> bytes:
    """Run an answer as a module, then do what lines ask of it: a name, a call, an attribute."""
    sys.stdout = sys.stderr = _Nowhere()
    sys.stdin = io.StringIO()
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    vars(module).update(typing_names())
    before = set(vars(module))
    kept: list[Any] = []

    def keep(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    def do(request: list[Any]) -> Any:
        match request:
            case ["name", name]:
                return getattr(module, name)
            case ["entry", name]:
                return entry_of(module, name, before)
            case ["call", number, arguments, named]:
                return kept[number](
                    *(unpacked(each, kept.__getitem__) for each in arguments),
                    **{name: unpacked(each, kept.__getitem__) for name, each in named.items()},
                )
            case ["get", number, name]:
                return getattr(kept[number], name)
            case ["set", number, name, value]:
                return setattr(kept[number], name, unpacked(value, kept.__getitem__))
        raise Uncarried("it is no request")

    failure = ""
    asked = _requests()
    try:
        exec(compile(text, "answer.py", "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as caught:
        failure = f"{type(caught).__name__}: {caught}"[:_LONGEST_WORDS]
    for request in asked:
        if failure:
            reply: dict[str, Any] = {"broken": failure}
        else:
            try:
                reply = {"value": packed(do(request), keep)}
            except (Exception, SystemExit) as caught:
                reply = {
                    "raised": [
                        kind.__name__ for kind in type(caught).__mro__ if kind.__module__ == "builtins"
                    ],
                    "words": _words(caught),
                }
        _tell(reply)
    return b""


def entry_of(module: types.ModuleType, name: str, before: set[str]) -> Any:
    """Return the function that a question asks for by name, in the module or its `Solution`; without a name, the last."""
    solution = getattr(module, "Solution", None)
    if name:
        if hasattr(module, name) or solution is None:
            return getattr(module, name)
        return getattr(solution(), name)
    if isinstance(solution, type):
        public = [each for each in vars(solution) if not each.startswith("_")]
        return getattr(solution(), public[-1])
    functions = [
        value
        for key, value in vars(module).items()
        if key not in before and isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    ]
    return functions[-1]


class Elsewhere:
    """Something of the answer's, seen from its tests: they can call it and use its attributes. It equals itself alone."""

    __slots__ = ("_asks", "_number")

    def __init__(self, number: int, asks: Callable[..., Any]) -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_asks", asks)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._asks(
            "call", self._number, [_sent(each) for each in arguments], {k: _sent(v) for k, v in named.items()}
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._asks("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._asks("set", self._number, name, _sent(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elsewhere) and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)


def _sent(value: Any) -> Any:
    def keep(part: Any) -> int:
        if isinstance(part, Elsewhere):
            return int(part._number)
        raise Uncarried(f"tests hand over plain values, and not {type(part).__name__}")

    return packed(value, keep)


class _Names(dict[str, Any]):
    """The names of tests: their own, then Python's, then the answer's. So no answer replaces what a test goes by."""

    def __init__(self, asks: Callable[..., Any]) -> None:
        super().__init__(typing_names(), __name__="tests", __builtins__=builtins)
        self._asks = asks

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        return self._asks("name", name)


class _Solution(types.ModuleType):
    """The answer as a module that tests import from."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.asks("name", name)


def serve_tests(text: str, entry: str) -> bytes:
    """Run tests to their end, asking for the answer's values over lines; the last says how it ended."""
    sys.stdout = sys.stderr = _Nowhere()
    sys.stdin = io.StringIO()
    replies = _requests()
    next(replies)

    def asks(*request: Any) -> Any:
        _tell({"ask": list(request)})
        reply = next(replies)
        if "value" in reply:
            try:
                return unpacked(reply["value"], lambda number: Elsewhere(number, asks))
            except Uncarried as failure:
                raise RuntimeError(f"the answer gave no value: {failure}") from None
        raise _error_of(reply)

    solution = _Solution("solution")
    vars(solution)["asks"] = asks
    sys.modules["solution"] = solution
    names = _Names(asks)
    try:
        exec(compile(text, "tests.py", "exec", dont_inherit=True), names)
        check = names.get("check")
        if callable(check) and entry:
            check(asks("entry", entry))
        for name, value in list(names.items()):
            if name.startswith("test") and isinstance(value, types.FunctionType):
                value()
    except Uncarried as failure:
        _tell({"unfit": str(failure)})
    except (Exception, SystemExit) as failure:
        _tell({"passed": False, "words": f"{type(failure).__name__}: {_words(failure)}"})
    else:
        _tell({"passed": True})
    return b""


def _error_of(reply: dict[str, Any]) -> Exception:
    """Return an error of the answer's as one of Python's own, by the nearest that it derives from.

    Ends of iterations are none: a test's loop would take one for its own.
    """
    for name in reply.get("raised", ()):
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            if issubclass(kind, (StopIteration, StopAsyncIteration)):
                break
            with suppress(TypeError):
                return kind(str(reply.get("words", "")))
    return RuntimeError(str(reply.get("words", "the answer ended")))


def _words(failure: BaseException) -> str:
    try:
        return str(failure)[:_LONGEST_WORDS]
    except Exception:
        return ""


def _requests() -> Iterator[Any]:
    """Lines that come to a copy; they end with its session."""
    buffer = b""
    while part := os.read(0, 2**16):
        *whole, buffer = (buffer + part).split(b"\n")
        for line in whole:
            yield decoded(line, _LONGEST_REQUEST)


def _tell(message: dict[str, Any]) -> None:
    data = json.dumps(message).encode("ascii")
    if len(data) >= LONGEST_REPLY:
        data = json.dumps({"raised": ["OverflowError"], "words": "a value is too large"}).encode("ascii")
    write_all(1, data + b"\n")


def exchange(copy: Copy, text: bytes) -> bytes:
    """Return a program's output, to its end or one byte past its limit, while it is given its input."""
    output, sent = b"", 0
    writes: list[int] = [copy.writes]
    while len(output) <= LONGEST_REPLY:
        readable, writable = copy.wait([copy.reads], writes)
        if not readable and not writable:
            break
        if readable:
            part = os.read(copy.reads, 2**16)
            if not part:
                break
            output += part
        elif writable:
            # A pipe that takes anything takes this much without waiting.
            step = text[sent : sent + _PIPE_STEP]
            try:
                sent += os.write(copy.writes, step) if step else 0
            except OSError:
                sent = len(text)
            if sent >= len(text):
                writes = []
                copy.end_input()
    return output


def read_line(copy: Copy) -> bytes | None:
    """Return the next line of a copy; None where it ends, or says more than it may."""
    while b"\n" not in copy.said:
        part = os.read(copy.reads, 2**16) if copy.wait([copy.reads], [])[0] else b""
        if not part or len(copy.said) > LONGEST_REPLY:
            return None
        copy.said += part
    line, _, copy.said = copy.said.partition(b"\n")
    return line


def serve_session(sandbox: Sandbox, parent: int, tell: Tell) -> int:
    """Serve one session; the exit status of its process."""
    asked = lines(parent)
    first = next(asked, b"")
    if not first:
        return _NOTHING_LEFT
    said = json.loads(first)
    left = float(said["seconds"])
    if "program" in said:
        tell({"open": True})
        for line in asked:
            request = json.loads(line)
            if "close" in request:
                break
            text = str(request["input"]).encode("utf-8", "replace")
            copy = sandbox.start(lambda: run_program(said["program"]), max(left, 0.01))
            output = exchange(copy, text)
            ended, spent = copy.close()
            left -= spent
            if left <= 0 and ended == "done":
                ended = "timeout"
            tell({"ended": ended, "output": output[: LONGEST_REPLY + 1].decode("utf-8", "replace")})
        tell({"closed": True})
        return 0
    if "answer" in said:
        copy = sandbox.start(lambda: serve_answer(said["answer"]), left)
    else:
        copy = sandbox.start(lambda: serve_tests(said["tests"], said["entry"]), left)
    tell({"open": True})
    for line in asked:
        if json.loads(line) == {"close": True}:
            break
        answer: bytes | None = None
        with suppress(OSError):
            request = line + b"\n"
            while request and copy.wait([], [copy.writes])[1]:
                request = request[os.write(copy.writes, request[:_PIPE_STEP]) :]
            answer = read_line(copy)
        if answer is None:
            tell({"ended": copy.close()[0]})
        else:
            tell({"said": answer.decode("utf-8", "replace")})
    copy.close()
    tell({"closed": True})
    return 0


def main(memory_mib: int) -> None:
    """Confine this process, then start a copy of it for each session until the parent closes the pipe."""
    parent, here = os.getppid(), os.getpid()

    def prepare(tell: Tell) -> Callable[[], None]:
        confinable()
        limit_memory(memory_mib)
        sandbox = Sandbox(python_folders())
        sandbox.enter()

        def answer() -> None:
            while os.getppid() == parent:
                if not select.select([0], [], [], _POLL_SECONDS)[0]:
                    continue
                session = os.fork()
                if session == 0:
                    try:
                        end_with_parent(here)
                        os._exit(serve_session(sandbox, here, tell))
                    finally:
                        os._exit(1)
                status = os.waitstatus_to_exitcode(os.waitpid(session, 0)[1])
                if status == _NOTHING_LEFT:
                    return
                if status:
                    # Whoever asks waits for a line.
                    tell({"ended": "failed"})

        return answer

    serve(prepare)


if __name__ == "__main__":
    main(int(sys.argv[1]))
