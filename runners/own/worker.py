"""A process that calls a function of the user's on batches of rows; time and memory are bounded.

The process is confined (`runners.sandbox`) before the user's file is run for the first time, and each batch is a copy of it
that ends with the batch: the file is run anew, so that no batch knows of another. Where the function takes one answer or
response, each of them has a copy of its own, and its own time. Packages that the file imports at its top
are loaded once, before the copies are made.

The first line in is `{"role", "file", "root", "function", "module", "source", "seconds", "memory_mib", "must"}`, and its
answer `{"ready": true}`, `{"ready": false, "lacking"}` or `{"ready": false, "why"}`. Each further line in is
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
"""Characters that a batch may print. They are shown nowhere."""
LONGEST_ALONE = 2**14
"""Bytes of what is said of one answer: a number, or what went wrong."""
_LONGEST_WORDS = 500
ROWS: dict[str, tuple[str, str, type]] = {
    "verifier": ("answer", "answers", Answer),
    "reward": ("response", "responses", Response),
    "task": ("random", "random", Random),
    "advantage": ("group", "groups", Group),
    "loss": ("tokens", "tokens", Tokens),
}
"""Each role's name of the parameter for one at a time, its name for a list, and the type of each."""


class UserCodeError(Exception):
    """The user's function takes or returns other values than it should."""


class _Sink(io.TextIOBase):
    """A stream that discards what is printed, up to `MOST_PRINTED` characters."""

    def __init__(self) -> None:
        self._left = MOST_PRINTED

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            raise RuntimeError(f"it printed more than {MOST_PRINTED:,} characters, which are shown nowhere")
        return len(text)


def packages_of(source: str) -> list[str]:
    """Return the modules that a file imports at its top."""
    packages: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            packages += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.append(node.module)
    return packages


def packages_before(request: dict[str, Any]) -> list[str]:
    """Return the modules that are loaded once, before the process forks."""
    return [request["module"]] if request["module"] else packages_of(request["source"])


def load_function(request: dict[str, Any]) -> Callable[..., Any]:
    """Return the requested function, running its file now."""
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
        raise UserCodeError(f"there is no `{request['function']}` in it") from None


def call(request: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
    """Return the function's results for rows: numbers, truth values, advantages, or the fields of questions."""
    function = load_function(request)
    single, many, kind = ROWS[request["role"]]
    name = next(iter(inspect.signature(function).parameters), "")
    if request["role"] == "task":
        if name != single:
            raise UserCodeError(f"its parameter is called `{name}`, and not `{single}`")
        return [question_of(function(Random(f"{row['seed']} {row['draw']}"))) for row in rows]
    arguments = [kind(**row) for row in rows]
    if name == many:
        values = list_of(function(arguments), len(rows), many)
    elif name == single:
        values = [function(row) for row in arguments]
    else:
        raise UserCodeError(f"its parameter is called `{name}`, and not `{single}` or `{many}`")
    if request["role"] == "advantage":
        return [advantages_of(value, row["rewards"]) for value, row in zip(values, rows, strict=True)]
    return [number_of(value, request["role"], row) for value, row in zip(values, rows, strict=True)]


def list_of(values: Any, count: int, noun: str) -> list[Any]:
    """Return the values of a function as a list of `count` values."""
    if not _is_ordered(values):
        raise UserCodeError(f"it gave {_shown(values)}, and not a list of {count} values")
    listed = list(values)
    if len(listed) != count:
        raise UserCodeError(f"it was given {count} {noun} and gave {len(listed)} values")
    return listed


def _is_ordered(values: Any) -> bool:
    # A set is in no order, and an array may be of no dimension.
    ordered = hasattr(values, "__len__") and getattr(values, "ndim", 1) > 0
    return ordered and not isinstance(values, (str, bytes, dict, set, frozenset))


def advantages_of(values: Any, rewards: list[list[float]]) -> list[list[float]]:
    """Return the advantages of a question's responses.

    Args:
        values: the function's values, a list or a number for each response; a number counts for all its sections.
        rewards: the rewards of each response, by section.
    """
    table = []
    for value, earned in zip(list_of(values, len(rewards), "responses"), rewards, strict=True):
        row = list_of(value, len(earned), "sections") if _is_ordered(value) else [value] * len(earned)
        table.append([number_of(value, "advantage", {"text": f"rewards of {earned}"}) for value in row])
    return table


def takes_one(request: dict[str, Any]) -> bytes:
    """Return `one` if the function takes a single answer or response, found out without a row; else nothing."""
    if request["role"] not in ("verifier", "reward"):
        return b""
    sys.stdout = sys.stderr = _Sink()
    name = next(iter(inspect.signature(load_function(request)).parameters), "")
    return b"one" if name == ROWS[request["role"]][0] else b""


def settle(sandbox: Sandbox, request: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the reply to rows from a fork of this process, whose bytes are read within bounds and may be anything."""
    for _ in range(2):
        reply = sandbox.call(lambda: reply_for(request, rows), request["seconds"])
        # What somebody else ended is asked once more. Code can lower its own limits and look as if it were.
        if reply.status != "lost":
            break
    if reply.status != "done" or not reply.data:
        return {"status": "failed" if reply.status == "done" else reply.status, "code": reply.code}
    alone = len(rows) == 1 and request["role"] in ("verifier", "reward")
    try:
        message = decoded(reply.data, LONGEST_ALONE if alone else LONGEST_REPLY)
    except Undecodable as failure:
        return {"status": "unreadable", "message": str(failure)}
    return message if isinstance(message, dict) else {"status": "unreadable", "message": "it is no record"}


def question_of(value: object) -> dict[str, Any]:
    """Return the fields of a task's question."""
    if not isinstance(value, Question):
        raise UserCodeError(
            f"it gave {_shown(value)}, which is {_article(type(value).__name__)} and no `Question`"
        )
    for name in ("question", "answer", "trace"):
        text = getattr(value, name)
        if not isinstance(text, str) or (name != "trace" and not text.strip()):
            raise UserCodeError(f"the `{name}` of a question is {_shown(text)}, and has to be a text")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise UserCodeError(
                f"the `{name}` of a question is {_shown(text)}, in which half a character stands"
            )
    try:
        meta = json.dumps(dict(value.meta), allow_nan=False) if value.meta else ""
    except (TypeError, ValueError):
        raise UserCodeError(
            f"the `meta` of a question is {_shown(value.meta)}, which JSON cannot hold"
        ) from None
    return {"question": value.question, "answer": value.answer, "meta": meta, "trace": value.trace}


def number_of(value: object, role: str, row: dict[str, Any]) -> float | bool:
    """Return a value as a finite number, or of a verifier as true or false.

    Args:
        value: a number, or a single number of numpy or torch.
        role: the function's role.
        row: the row, which messages quote.
    """
    item = getattr(value, "item", None)
    plain = value
    if callable(item) and not isinstance(value, (int, float)):
        with suppress(ValueError, RuntimeError, TypeError):
            plain = item()
    of = f" for {_shown(next((row[name] for name in ('text', 'question') if row.get(name)), ''))}"
    if not isinstance(plain, (bool, int, float)):
        raise UserCodeError(
            f"it gave {_shown(value)}{of}, which is {_article(type(value).__name__)} and no number"
        )
    if not isinstance(plain, bool) and not -sys.float_info.max <= plain <= sys.float_info.max:
        raise UserCodeError(f"it gave {_shown(plain)}{of}, and a number has to be finite")
    if role == "verifier":
        if plain not in (0, 1):
            raise UserCodeError(
                f"it gave {plain:g}{of}: a verifier says True or False, and shares belong in a reward"
            )
        return bool(plain)
    return float(plain)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def reply_for(request: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    """Return the results of a batch as a line of JSON."""
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
            "message": f"a batch gave {len(data):,} bytes, and may give {LONGEST_REPLY:,}",
        }
        return json.dumps(message).encode("ascii")
    return data


def error_of(failure: BaseException, request: dict[str, Any]) -> dict[str, Any]:
    """Return an exception as its words and the line of the user's file that it came from."""
    try:
        words = str(failure).strip().partition("\n")[0][:_LONGEST_WORDS]
    except Exception:
        # Its text is the user's code too.
        words = ""
    kind = type(failure).__name__
    message: dict[str, Any] = {"status": "error", "message": f"{kind}: {words}" if words else kind}
    frame = failure.__traceback__
    while frame is not None:
        message |= place_in(request, frame.tb_frame.f_code.co_filename, frame.tb_lineno)
        frame = frame.tb_next
    if isinstance(failure, SyntaxError) and place_in(request, failure.filename or "", failure.lineno or 1):
        message |= place_in(request, failure.filename or "", failure.lineno or 1)
        message["message"] = f"{kind}: {failure.msg}"
    if isinstance(failure, MemoryError):
        message["message"] = f"it takes more than {request['memory_mib']:g} MiB of memory"
    elif isinstance(failure, (PermissionError, BlockingIOError)) or "start new thread" in words:
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
    """Return a line as a message has it, in the user's file or `inside` its package; nothing for any other file."""
    if file == request["file"]:
        return {"line": line, "inside": ""}
    inside = request["root"] and file.startswith(f"{request['root']}{os.sep}")
    return {"line": line, "inside": os.path.relpath(file, request["root"])} if inside else {}


def main() -> None:
    """Confine this process, load what the file imports, then answer until the parent closes the pipe."""
    requests = lines(os.getppid())

    def prepare(tell: Tell) -> Callable[[], None]:
        request = json.loads(next(requests, b"{}"))
        confined = confinable(request["must"])
        limit_memory(int(request["memory_mib"]))
        package_folder = os.path.dirname(os.path.abspath(sys.modules["reodsl"].__file__ or ""))
        module = importlib.util.find_spec(request["module"].partition(".")[0]) if request["module"] else None
        package = list(module.submodule_search_locations or ()) if module is not None else []
        sandbox = Sandbox([*python_folders(sys.modules), package_folder, *package], confined=confined)
        sandbox.enter()
        # What cannot be loaded is told where the file is run, with its line.
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            for name in packages_before(request):
                try:
                    importlib.import_module(name)
                except (Exception, SystemExit) as failure:
                    # A half-loaded package is not tried again; one that the spec names is, since its error shows a line.
                    if not (request["module"] or isinstance(failure, ImportError)):
                        sys.modules[name.partition(".")[0]] = None  # type: ignore[assignment]
        # Copies share what was loaded, as long as nobody looks through it for what is not needed any more.
        gc.collect()
        gc.freeze()

        def answer() -> None:
            alone: bool | None = None
            for line in requests:
                rows = json.loads(line)["rows"]
                if alone is None:
                    alone = sandbox.call(lambda: takes_one(request), request["seconds"]).data == b"one"
                if alone:
                    tell({"status": "each", "rows": [settle(sandbox, request, [row]) for row in rows]})
                else:
                    tell(settle(sandbox, request, rows))

        return answer

    serve(prepare)


if __name__ == "__main__":
    main()
