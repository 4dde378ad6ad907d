"""Judge a program by tests, from a process that runs neither.

The program runs in one confined process and Python that tests it in another, which are never copies of each other. What
passes between them is plain data, and goes through here. Expected outputs stay here, or with the tests: nothing that a
program does to its own process, its exit, its prints or its values' `__eq__`, is a verdict.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from runners.programs.tests import Calls, Inputs, Script, TestCases
from runners.sandbox import LONGEST_REPLY
from runners.sandbox.workers import PROGRAMS, Gone, Worker, WorkerPool, wall_seconds
from runners.untrusted import Undecodable, decoded

WORKER = Path(__file__).with_name("worker.py")
LONGEST_LINE = 16 * LONGEST_REPLY
"""Bytes of what a process says at once: a program's output, every character of which may be escaped."""

_LONGEST_NAME = 3500
"""Hexadecimal digits of a number that names something in a record: Python writes no longer one as a text."""

UNSENT = "a test hands over what cannot be sent to a program"
LOST = "its process ended twice, or said more than any may"


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of an answer: processor time of all its tests together, and a process's memory."""

    seconds: float
    memory_mib: int


class _Ended(Exception):
    """A session's process ended, or what it says cannot be read: `outcome` is what that makes of the answer."""

    def __init__(self, outcome: str) -> None:
        super().__init__()
        self.outcome = outcome


class _Session:
    """One answer, or the tests of one, in a copy of a started process that ends with it."""

    def __init__(self, process: Worker, limits: ProgramLimits, **what: str) -> None:
        self._process, self._seconds = process, wall_seconds(limits.seconds)
        self._hear({**what, "seconds": limits.seconds})

    def run(self, text: str) -> tuple[str, str]:
        """Return how the program ended, and what it printed, given this input."""
        said = self._hear({"input": text})
        if said.get("ended") == "lost":
            raise Gone(status=-signal.SIGKILL)
        return str(said.get("ended")), str(said.get("output", ""))

    def ask(self, request: object) -> dict[str, Any]:
        """Return the copy's answer, none of which is to be trusted. Raises _Ended."""
        said = self._hear(request)
        if said.get("ended") == "lost":
            raise Gone(status=-signal.SIGKILL)
        if "said" not in said:
            raise _Ended("timeout" if said.get("ended") == "timeout" else "wrong")
        try:
            reply = decoded(str(said["said"]), LONGEST_REPLY)
        except Undecodable as failure:
            raise _Ended(_unreadable(failure)) from None
        if not isinstance(reply, dict):
            raise _Ended(_unreadable("it is no record"))
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: object
    ) -> None:
        """End it, so that its process can serve the next."""
        if failure is None or isinstance(failure, _Ended):
            self._hear({"close": True})

    def _hear(self, message: object) -> dict[str, Any]:
        try:
            return self._process.ask(message, self._seconds)
        except Undecodable as failure:
            raise _Ended(_unreadable(failure)) from None


def _unreadable(why: object) -> str:
    return f"what its program says cannot be read: {why}"


class ProgramJudge(WorkerPool):
    """Judges up to `workers` answers at a time, each by two processes of which one runs its tests.

    What somebody else ended is judged once more.
    """

    def __init__(self, limits: ProgramLimits, tolerance: float, workers: int = 1) -> None:
        """`tolerance`: how far a number with decimals may be off, as a share of the expected one."""
        self._limits, self._tolerance = limits, tolerance
        memory = limits.memory_mib
        processes: dict[str, Any] = {
            "longest": LONGEST_LINE,
            "what": "runs programs",
            "where": PROGRAMS,
            "confined": PROGRAMS,
            "help": f"give it more memory: `tests(memory: {memory / 512:g} GiB)` would be twice as much",
        }
        self._tests = WorkerPool(workers, WORKER, str(memory), **processes)
        super().__init__(workers, WORKER, str(memory), **processes)

    def judge(self, programs: Sequence[tuple[str, TestCases]]) -> list[str]:
        """Return the outcome of each answer's program: `right`, `wrong`, `timeout`, or why it could not be judged.

        Raises E0741 or E0742 where no process can run it.
        """
        return self.map(
            self._judge,
            programs,
            lambda gone: "timeout" if gone.late else LOST,
        )

    def close(self) -> None:
        """End all processes; the next answer starts new ones."""
        super().close()
        self._tests.close()

    def forget_foreign(self) -> None:
        """Leave the processes of another process alone."""
        super().forget_foreign()
        self._tests.forget_foreign()

    def pids(self) -> list[int]:
        """Return the numbers of its processes, those of answers first."""
        return super().pids() + self._tests.pids()

    def _judge(self, worker: Worker, program: tuple[str, TestCases]) -> str:
        text, tests = program
        if not isinstance(tests, Script):
            return self._outcome(text, tests, worker, worker)
        with self._tests.lease() as other:
            return self._outcome(text, tests, worker, other)

    def _outcome(self, text: str, tests: TestCases, worker: Worker, other: Worker) -> str:
        try:
            if isinstance(tests, Inputs):
                with _Session(worker, self._limits, program=text) as program:
                    return self._by_inputs(program, tests)
            if isinstance(tests, Calls):
                with _Session(worker, self._limits, answer=text) as answer:
                    return self._by_calls(answer, tests)
            with (
                _Session(other, self._limits, tests=tests.text, entry=tests.entry) as judging,
                _Session(worker, self._limits, answer=text) as answer,
            ):
                return _by_script(answer, judging)
        except _Ended as ended:
            return ended.outcome

    def _by_inputs(self, program: _Session, tests: Inputs) -> str:
        for given, wanted in tests.pairs:
            ended, printed = program.run(given)
            if ended != "done" or not same_output(wanted, printed, self._tolerance):
                return "timeout" if ended == "timeout" else "wrong"
        return "right"

    def _by_calls(self, answer: _Session, tests: Calls) -> str:
        entry = answer.ask(["entry", tests.name]).get("value")
        if not isinstance(entry, dict) or "kept" not in entry:
            return "wrong"
        for given, wanted in tests.pairs:
            reply = answer.ask(["call", entry["kept"], [_written(each) for each in given], {}])
            if "value" not in reply or not same_value(wanted, reply["value"], self._tolerance):
                return "wrong"
        return "right"


def _by_script(answer: _Session, judging: _Session) -> str:
    """Hand what tests ask to the answer and its values to the tests, until these have ended."""
    reply: dict[str, Any] = {}
    while True:
        match judging.ask(reply):
            case {"ask": list(request)}:
                reply = answer.ask(request)
            case {"passed": bool(passed)}:
                return "right" if passed else "wrong"
            case _:
                return UNSENT


def same_output(wanted: str, printed: str, tolerance: float) -> bool:
    """Equal line by line and word by word, or as numbers where the expected one has decimals."""
    if len(printed.encode("utf-8", "replace")) > LONGEST_REPLY:
        return False
    expected, given = _lines(wanted), _lines(printed)
    return len(expected) == len(given) and all(
        len(line) == len(other)
        and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True))
        for line, other in zip(expected, given, strict=True)
    )


def same_value(wanted: Any, said: Any, tolerance: float) -> bool:
    """Return whether a packed value equals the wanted one as JSON has values, decimals within the tolerance.

    A tuple is a list, names of a record are texts, and 1 is 1.0. Nothing is built of what is said: it is looked at as far as
    the wanted value goes, and no number of it is hashed.
    """
    match wanted, said:
        case ((bool() | None), _):
            return said is wanted
        case ((int() | float()), {"int": str(text)}):
            return _near(wanted, _integer(text), tolerance)
        case ((int() | float()), (int() | float())):
            return not isinstance(said, bool) and _near(wanted, said, tolerance)
        case list(), {"tuple": list(parts)}:
            return same_value(wanted, parts, tolerance)
        case list(), list():
            return len(said) == len(wanted) and all(
                same_value(*each, tolerance) for each in zip(wanted, said, strict=True)
            )
        case dict(), {"dict": list(pairs)} if len(pairs) == len(wanted):
            named = {_name(pair[0]): pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2}
            return named.keys() == wanted.keys() and all(
                same_value(each, named[name], tolerance) for name, each in wanted.items()
            )
    return isinstance(wanted, str) and isinstance(said, str) and said == wanted


def _name(said: Any) -> str | None:
    """Return the text that a record's name is in JSON, or None for what JSON does not have as a name."""
    match said:
        case None | str() | int() | float():
            return str(said)
        case {"int": str(text)} if len(text) <= _LONGEST_NAME:
            return str(_integer(text))
    return None


def _integer(text: str) -> float:
    """Return a number that was sent in hexadecimal digits; NaN, which equals nothing, for what is none."""
    try:
        return int(text, 16)
    except ValueError:
        return math.nan


def _lines(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(wanted: str, word: str, tolerance: float) -> bool:
    if wanted == word:
        return True
    if "." not in wanted and "e" not in wanted.lower():
        return False
    try:
        return _near(float(wanted), float(word), tolerance)
    except ValueError:
        return False


def _near(wanted: float, value: float, tolerance: float) -> bool:
    if isinstance(wanted, int):
        return wanted == value
    try:
        return wanted == value or (math.isfinite(wanted) and abs(wanted - value) <= tolerance * abs(wanted))
    except OverflowError:
        return False


def _written(value: Any) -> Any:
    if isinstance(value, dict):
        return {"dict": [[name, _written(each)] for name, each in value.items()]}
    return [_written(each) for each in value] if isinstance(value, list) else value
