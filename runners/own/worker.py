"""A process that calls a function of the user on batches of rows, with bounds of time and memory.

The process enters the sandbox (`runners.sandbox`) before the user's file runs for the first time. For each batch it forks
a process, which runs the file again, so that no batch affects another. A function that takes a single answer or response
has a forked process, and its time, for each row. Packages that the file imports at its top are imported once, before the
forks.

The first line of input is `{"role", "file", "root", "function", "module", "source", "seconds", "memory_mib", "must"}`. Its
answer is `{"ready": true}`, `{"ready": false, "lacking"}` or `{"ready": false, "why"}`. Each further line is
`{"rows": […]}`, and its answer `{"status", …}`: `done` with `values`, `error` with `message` and perhaps `line` and
`inside`, `timeout`, `failed`, or `lost`; or `each`, with one of these for each of its `rows`.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from reodsl.own import Answer, Group, Question, Response, Tokens
from runners.sandbox import LONGEST_REPLY, CallTimeout, Sandbox, limit_memory, python_folders
from runners.sandbox.confine import Tell, confinable, lines, serve
from runners.sandbox.untrusted import Undecodable, decoded

MOST_PRINTED = 2**20
"""Characters that a batch may print; they are discarded."""
LONGEST_ALONE = 2**14
"""Largest size in bytes of the reply to a single row: a number or an error."""
_LONGEST_WORDS = 500
"""Characters of an exception's message that are kept."""
ROWS: dict[str, tuple[str, str, type]] = {
    "verifier": ("answer", "answers", Answer),
    "reward": ("response", "responses", Response),
    "task": ("random", "random", Random),
    "advantage": ("group", "groups", Group),
    "loss": ("tokens", "tokens", Tokens),
}
"""Name of the parameter for a single row, name for a list of rows, and type of a row, by role of a function."""


class UserCodeError(Exception):
    """An error about the user's function: it takes other parameters or returns other values than its role needs."""


class _Sink(io.TextIOBase):
    """A stream that discards what is printed, up to `MOST_PRINTED` characters."""

    def __init__(self) -> None:
        """Begin with nothing printed."""
        self._left = MOST_PRINTED

    def write(self, text: str) -> int:
        """Discard a text, and raise RuntimeError after `MOST_PRINTED` characters in all."""
        self._left -= len(text)
        if self._left < 0:
            raise RuntimeError(f"it printed more than {MOST_PRINTED:,} characters, which are not shown")
        return len(text)


def packages_of(source: str) -> list[str]:
    """Return the names of the modules that a file imports in statements at its top level; relative imports do not count."""
    packages: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            packages += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.append(node.module)
    return packages


def load_function(request: dict[str, Any]) -> Callable[..., Any]:
    """Run the user's file, or import the module of a package, and return the user's function.

    Args:
        request: First line of input, which names the file or module and the function.

    Raises:
        UserCodeError: the file or module does not define the function.
    """
    if request["module"]:
        scope: Any = importlib.import_module(request["module"])
    else:
        scope = types.ModuleType("own")
        scope.__file__ = request["file"]
        sys.modules["own"] = scope
        exec(compile(request["source"], request["file"], "exec", dont_inherit=True), vars(scope))
    try:
        return getattr(scope, request["function"])
    except AttributeError:
        raise UserCodeError(f"it has no function `{request['function']}`") from None


def call(request: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
    """Call the user's function on rows, and return its checked results.

    Args:
        request: First line of input, which names the function and its role.
        rows: Fields of each row.

    Returns:
        For each row a number, a truth value, a question's advantages, or the fields of a question, depending on the role.

    Raises:
        UserCodeError: the function takes another parameter, or returns values of another form.
    """
    function = load_function(request)
    single, plural, kind = ROWS[request["role"]]
    name = next(iter(inspect.signature(function).parameters), "")
    if request["role"] == "task":
        if name != single:
            raise UserCodeError(f"its parameter is called `{name}` instead of `{single}`")
        return [question_of(function(Random(f"{row['seed']} {row['draw']}"))) for row in rows]
    arguments = [kind(**row) for row in rows]
    if name == plural:
        values = list_of(function(arguments), len(rows), plural)
    elif name == single:
        values = [function(row) for row in arguments]
    else:
        raise UserCodeError(f"its parameter is called `{name}` instead of `{single}` or `{plural}`")
    if request["role"] == "advantage":
        return [advantages_of(value, row["rewards"]) for value, row in zip(values, rows, strict=True)]
    return [number_of(value, request["role"], row) for value, row in zip(values, rows, strict=True)]


def list_of(values: Any, count: int, noun: str) -> list[Any]:
    """Return the values that a function returned as a list.

    Args:
        values: What the function returned.
        count: Number of values that it should have returned.
        noun: Plural noun for what the values are for, such as `answers`, for messages.

    Raises:
        UserCodeError: the values are no list or array of `count` values.
    """
    if not _is_ordered(values):
        raise UserCodeError(f"it gave {_shown(values)} instead of a list of {count} values")
    entries = list(values)
    if len(entries) != count:
        raise UserCodeError(f"it was given {count} {noun} and gave {len(entries)} values")
    return entries


def _is_ordered(values: Any) -> bool:
    """Return whether values have an order and a length, as a list or an array with dimensions has.

    Texts, dictionaries and sets do not count.
    """
    ordered = hasattr(values, "__len__") and getattr(values, "ndim", 1) > 0
    return ordered and not isinstance(values, (str, bytes, dict, set, frozenset))


def advantages_of(values: Any, rewards: list[list[float]]) -> list[list[float]]:
    """Return what a function of advantages returned for a question as advantages by response and section.

    Args:
        values: A list or a number for each response; a number counts for all sections of the response.
        rewards: Rewards of the question's responses, by response and section.

    Raises:
        UserCodeError: the values have another form.
    """
    table = []
    for value, earned in zip(list_of(values, len(rewards), "responses"), rewards, strict=True):
        row = list_of(value, len(earned), "sections") if _is_ordered(value) else [value] * len(earned)
        table.append([number_of(value, "advantage", {"text": f"rewards of {earned}"}) for value in row])
    return table


def takes_one(request: dict[str, Any]) -> bytes:
    """Return `b"one"` if the function takes a single answer or response, else `b""`, by the name of its parameter.

    The user's file runs, but the function is not called. Only verifiers and rewards can take a single row.

    Args:
        request: First line of input, which names the function and its role.
    """
    if request["role"] not in ("verifier", "reward"):
        return b""
    sys.stdout = sys.stderr = _Sink()
    name = next(iter(inspect.signature(load_function(request)).parameters), "")
    return b"one" if name == ROWS[request["role"]][0] else b""


def settle(sandbox: Sandbox, request: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Call the function on rows in a fork of this process, and return the reply to the parent.

    Args:
        sandbox: The sandbox of this process.
        request: First line of input.
        rows: Fields of each row.

    Returns:
        A record with a `status`, as the module's docstring describes. The fork runs the user's code, which may send any
        record: the parent must check it.
    """
    for _ in range(2):
        reply = sandbox.call(lambda: reply_for(request, rows), request["seconds"])
        # A fork that another process ended is tried once more. User code can end itself in the same way.
        if reply.status != "lost":
            break
    if reply.status != "done" or not reply.data:
        return {"status": "failed" if reply.status == "done" else reply.status, "code": reply.code}
    is_single = len(rows) == 1 and request["role"] in ("verifier", "reward")
    try:
        message = decoded(reply.data, LONGEST_ALONE if is_single else LONGEST_REPLY)
    except Undecodable as failure:
        return {"status": "unreadable", "message": str(failure)}
    return message if isinstance(message, dict) else {"status": "unreadable", "message": "it is no record"}


def question_of(value: object) -> dict[str, Any]:
    """Return the fields of a question that a task's function returned, with its `meta` as JSON text, empty without `meta`.

    Raises:
        UserCodeError: the value is no `Question`, or a field has another form.
    """
    if not isinstance(value, Question):
        raise UserCodeError(
            f"it gave {_shown(value)}, which is {_article(type(value).__name__)} and no `Question`"
        )
    for name in ("question", "answer", "trace"):
        text = getattr(value, name)
        if not isinstance(text, str) or (name != "trace" and not text.strip()):
            raise UserCodeError(f"the `{name}` of a question is {_shown(text)}, and must be a text")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise UserCodeError(f"the `{name}` of a question is {_shown(text)}, which has half a character")
    try:
        meta = json.dumps(dict(value.meta), allow_nan=False) if value.meta else ""
    except (TypeError, ValueError):
        raise UserCodeError(
            f"the `meta` of a question is {_shown(value.meta)}, which cannot be written as JSON"
        ) from None
    return {"question": value.question, "answer": value.answer, "meta": meta, "trace": value.trace}


def number_of(value: object, role: str, row: dict[str, Any]) -> float | bool:
    """Return the value that a function returned for a row as a finite number, or for a verifier as a truth value.

    Args:
        value: A number, or an array of numpy or torch with a single number.
        role: Role of the function.
        row: Fields of the row, whose text messages quote.

    Raises:
        UserCodeError: the value is no finite number, or for a verifier neither 0 nor 1.
    """
    item = getattr(value, "item", None)
    number = value
    if callable(item) and not isinstance(value, (int, float)):
        with suppress(ValueError, RuntimeError, TypeError):
            number = item()
    row_text = f" for {_shown(next((row[name] for name in ('text', 'question') if row.get(name)), ''))}"
    if not isinstance(number, (bool, int, float)):
        raise UserCodeError(
            f"it gave {_shown(value)}{row_text}, which is {_article(type(value).__name__)} and no number"
        )
    if not isinstance(number, bool) and not -sys.float_info.max <= number <= sys.float_info.max:
        raise UserCodeError(f"it gave {_shown(number)}{row_text}, and a number must be finite")
    if role == "verifier":
        if number not in (0, 1):
            raise UserCodeError(
                f"it gave {number:g}{row_text}: a verifier returns True or False; partial scores belong in a reward"
            )
        return bool(number)
    return float(number)


def _shown(value: object) -> str:
    """Return a value's `repr`, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _article(name: str) -> str:
    """Return the name of a type with its article: `an int`."""
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def reply_for(request: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    """Call the user's function on rows in this forked process, and return the results or the error as a line of JSON.

    Args:
        request: First line of input.
        rows: Fields of each row.
    """
    sys.stdout = sys.stderr = _Sink()
    try:
        message: dict[str, Any] = {"status": "done", "values": call(request, rows)}
    except CallTimeout as failure:
        message = {**error_of(failure, request), "status": "timeout"}
    except UserCodeError as failure:
        message = {"status": "unfit", "message": str(failure)}
    except BaseException as failure:
        message = error_of(failure, request)
    data = json.dumps(message).encode("ascii")
    if len(data) > LONGEST_REPLY:
        message = {
            "status": "unfit",
            "message": f"the values of a batch have {len(data):,} bytes, and may have {LONGEST_REPLY:,}",
        }
        return json.dumps(message).encode("ascii")
    return data


def error_of(failure: BaseException, request: dict[str, Any]) -> dict[str, Any]:
    """Return an exception of the user's code as a reply with its message.

    The reply has `line` and `inside` for the last line of the user's code on the exception's traceback. It has `confined`
    if the sandbox forbids what the code did, and `missing` with the name of a package that could not be imported.

    Args:
        failure: The exception.
        request: First line of input, which names the user's file.
    """
    try:
        text = str(failure).strip().partition("\n")[0][:_LONGEST_WORDS]
    except Exception:
        # The user's code may define how its exception is printed, and fail there.
        text = ""
    kind = type(failure).__name__
    message: dict[str, Any] = {"status": "error", "message": f"{kind}: {text}" if text else kind}
    frame = failure.__traceback__
    while frame is not None:
        message |= place_in(request, frame.tb_frame.f_code.co_filename, frame.tb_lineno)
        frame = frame.tb_next
    if isinstance(failure, SyntaxError) and place_in(request, failure.filename or "", failure.lineno or 1):
        message |= place_in(request, failure.filename or "", failure.lineno or 1)
        message["message"] = f"{kind}: {failure.msg}"
    if isinstance(failure, MemoryError):
        message["message"] = f"it needs more than {request['memory_mib']:g} MiB of memory"
    elif isinstance(failure, (PermissionError, BlockingIOError)) or "start new thread" in text:
        message["confined"] = True
    elif (
        isinstance(failure, ImportError)
        and sys.modules.get(package := str(failure.name).partition(".")[0], sys) is None
    ):
        message |= {"message": f"`{package}` cannot be loaded in the sandbox", "confined": True}
    elif isinstance(failure, ImportError):
        message["missing"] = failure.name or ""
    return message


def place_in(request: dict[str, Any], file: str, line: int) -> dict[str, Any]:
    """Return the fields `line` and `inside` of a reply, which tell where in the user's code an error is.

    Args:
        request: First line of input, which names the user's file and the folder of its package.
        file: File of the line.
        line: Number of the line.

    Returns:
        `line`, the number of the line, and `inside`, the file relative to the package's folder, which is empty for the
        user's file itself. No fields for another file outside the package.
    """
    if file == request["file"]:
        return {"line": line, "inside": ""}
    inside = request["root"] and file.startswith(f"{request['root']}{os.sep}")
    return {"line": line, "inside": os.path.relpath(file, request["root"])} if inside else {}


def main() -> None:
    """Run this process: enter the sandbox, import the packages of the user's file, then reply to batches of rows.

    The process ends if the parent closes the pipe of the input.
    """
    requests = lines(os.getppid())

    def prepare(tell: Tell) -> Callable[[], None]:
        """Enter the sandbox, import the packages of the user's file, and return the function that replies to batches.

        Args:
            tell: Function that sends a reply to the parent.
        """
        request = json.loads(next(requests, b"{}"))
        confined = confinable(request["must"])
        limit_memory(int(request["memory_mib"]))
        package_folder = os.path.dirname(os.path.abspath(sys.modules["reodsl"].__file__ or ""))
        module = importlib.util.find_spec(request["module"].partition(".")[0]) if request["module"] else None
        package = list(module.submodule_search_locations or ()) if module is not None else []
        sandbox = Sandbox([*python_folders(sys.modules), package_folder, *package], confined=confined)
        sandbox.enter()
        # An import that fails is reported with its line when the file runs.
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            for name in [request["module"]] if request["module"] else packages_of(request["source"]):
                try:
                    importlib.import_module(name)
                except (Exception, SystemExit) as failure:
                    # A partly imported package is not imported again, except a package that the spec names: importing it
                    # again reports its error with a line.
                    if not (request["module"] or isinstance(failure, ImportError)):
                        sys.modules[name.partition(".")[0]] = None  # type: ignore[assignment]
        # Forks share the memory of imported modules as long as the garbage collector does not touch them.
        gc.collect()
        gc.freeze()

        def answer() -> None:
            """Reply to each batch of rows until the input ends.

            Before the first batch, a fork finds out whether the function takes a single row; each row then has a fork.
            """
            takes_single: bool | None = None
            for line in requests:
                rows = json.loads(line)["rows"]
                if takes_single is None:
                    takes_single = sandbox.call(lambda: takes_one(request), request["seconds"]).data == b"one"
                if takes_single:
                    tell({"status": "each", "rows": [settle(sandbox, request, [row]) for row in rows]})
                else:
                    tell(settle(sandbox, request, rows))

        return answer

    serve(prepare)


if __name__ == "__main__":
    main()
