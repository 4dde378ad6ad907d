"""A process that checks one answer at a time: JSON lines in, JSON lines out, its time and memory bounded.

It is started as a file and imports nothing of this project, so that it starts fast and can be killed at any
moment. What it checks was written by a model, and scorers of packages may evaluate that as Python (an arithmetic
expression, by sympy): while it checks it starts no process, reaches no network, and writes and removes no file.

A line in is `{"gold", "text", "meta"}`; a line out is `{"correct", "outcome", "retire"}`, where outcome is `checked`,
`timeout` or `failed`, and `retire` says that the process ends after this answer. The first line out is
`{"ready": true}` or `{"ready": false, "why"}`.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from types import FrameType
from typing import Any, TextIO

Check = Callable[[str, str, str], bool]

PARENT_POLL_SECONDS = 10.0
_STARTS = ("os.exec", "os.fork", "os.kill", "os.posix_spawn", "os.spawn", "os.system", "pty.", "subprocess.")
_CHANGES = ("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink")
_DEEDS = (*_STARTS, *_CHANGES, "os.truncate", "shutil.", "ctypes.", "socket.")
"""How Python's audit events begin of what no check has a reason to do."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Expired(BaseException):
    """Raised by the timer inside a check; no `except Exception` on the way catches it."""


def load_math() -> Check:
    """math-verify's verdict on an answer inside a box, with its own timers off: this process has better ones.

    Real numbers are the exception: math-verify rounds them to six decimals, so that any two small ones are equal. Here
    they are compared by value, within the share of the reference that `meta` names, or exactly where it names none.
    """
    from math_verify import parse, verify

    @lru_cache(maxsize=256)
    def read(text: str) -> list[Any]:
        return list(parse(f"\\boxed{{{text}}}", parsing_timeout=None))

    def check(gold: str, text: str, meta: str) -> bool:
        expected, given = read(gold), read(text)
        one, other = real_value(expected), real_value(given)
        if one is None or other is None:
            return bool(verify(expected, given, timeout_seconds=None))
        share = max(Fraction(meta or 0), EXACT if one[1] or other[1] else Fraction(0))
        return abs(one[0] - other[0]) <= share * abs(one[0])

    return check


EXACT = Fraction(1, 10**24)
"""Share of a number within which its value, computed to `DIGITS`, counts as the same."""
DIGITS = 30


def real_value(parsed: list[Any]) -> tuple[Fraction, bool] | None:
    """The value of what math-verify read, and whether it was rounded to `DIGITS`; None where that is not one real number
    without variables."""
    sympy = import_module("sympy")
    if not parsed or not isinstance(parsed[0], sympy.Expr) or parsed[0].free_symbols:
        return None
    done = parsed[0].doit()
    if isinstance(done, sympy.Rational):
        return Fraction(int(done.p), int(done.q)), False
    value = done.evalf(DIGITS)
    return (Fraction(str(value)), True) if isinstance(value, sympy.Float) and value.is_finite else None


def load_reasoning_gym() -> Check:
    """The verdict of the data set that made a question: right where its `score_answer` gives full marks."""
    create_dataset = import_module("reasoning_gym").create_dataset

    @lru_cache(maxsize=64)
    def scorer(task: str) -> Any:
        return create_dataset(task, size=1, seed=0)

    def check(gold: str, text: str, meta: str) -> bool:
        fields = json.loads(meta)
        return float(scorer(fields["task"]).score_answer(answer=text, entry=fields["entry"])) >= 1.0

    return check


CHECKS: dict[str, Callable[[], Check]] = {"math": load_math, "reasoning_gym": load_reasoning_gym}


def private_stdout() -> TextIO:
    """The pipe to the parent, out of reach of whatever prints: stdout itself goes to stderr from here on."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return out


def limit_memory(mebibytes: int) -> None:
    """Address space at most so large, and no core file when a limit kills the process."""
    size = mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_cpu(seconds: float) -> None:
    """The kernel ends this process when a check burns more than `seconds` from now, even if no parent is left."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1, hard))


def refuse_deeds() -> None:
    """From here on what `_DEEDS` names, and opening a file to write, is a PermissionError; reading and importing go on."""

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(_DEEDS) or (event == "open" and args[2] & _WRITES):
            raise PermissionError(f"checking an answer takes no `{event}`")

    # Loading it is among what is refused, and libraries may ask for it later; some Pythons have none.
    with suppress(ImportError):
        import_module("ctypes")
    sys.addaudithook(refuse)


def resident_kib() -> int:
    """Memory that this process holds now, in KiB.

    Not `ru_maxrss` where it can be helped: a fresh process starts with its parent's, and a parent that trains a
    model would have every worker retire at once.
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 2**10
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def on_timer(signum: int, frame: FrameType | None) -> None:
    """Ends the check that is going on: its processor time is used up."""
    raise Expired


def run(check: Check, request: dict[str, str], seconds: float) -> tuple[bool, str]:
    """One check within `seconds` of processor time: its verdict, and `checked`, `timeout` or `failed`."""
    try:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            return check(request["gold"], request["text"], request["meta"]), "checked"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except Expired:
        return False, "timeout"
    except Exception:
        return False, "failed"


def lines(parent: int) -> Any:
    """Lines from stdin until it ends, or until the process that started this one is gone."""
    buffer = b""
    while True:
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            yield line
        if not select.select([0], [], [], PARENT_POLL_SECONDS)[0]:
            if os.getppid() != parent:
                return
            continue
        part = os.read(0, 2**16)
        if not part:
            return
        buffer += part


def main(kind: str, seconds: float, memory_mib: int) -> None:
    """Load the check named `kind`, then answer until the parent closes the pipe."""
    parent = os.getppid()
    out = private_stdout()

    def tell(message: dict[str, object]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    limit_memory(memory_mib)
    try:
        check = CHECKS[kind]()
    except Exception as failure:
        tell({"ready": False, "why": f"{type(failure).__name__}: {failure}"[:500].rstrip(": ")})
        return
    # Nothing that is checked has a reason to write a file.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGPROF, on_timer)
    refuse_deeds()
    tell({"ready": True})
    for line in lines(parent):
        limit_cpu(seconds)
        correct, outcome = run(check, json.loads(line), seconds)
        # Memory that a check took seldom comes back: a large process makes way for a fresh one.
        retire = resident_kib() > memory_mib * 2**10 // 2
        tell({"correct": correct, "outcome": outcome, "retire": retire})
        if retire:
            return


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
