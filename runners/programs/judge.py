"""Judge programs by tests: outputs and results are compared here, and asserts run beside the program.

A program runs in a confined process that has no expected output and no result. What it says is plain data within bounds, and
nothing of it is called, hashed or built into more than that. Tests in Python run in the program's process.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.programs.tests import Calls, Inputs, TestCases
from runners.sandbox import LONGEST_REPLY
from runners.sandbox.untrusted import Undecodable, decoded
from runners.sandbox.workers import PROGRAMS, Gone, Worker, WorkerPool, wall_seconds

WORKER = Path(__file__).with_name("worker.py")
LONGEST_LINE = 16 * LONGEST_REPLY
"""Bytes of what a process says at once: a program's output, every character of which may be escaped."""

LOST = "its process ended twice, or said more than any may"


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of an answer: processor time of all its tests together, and a process's memory."""

    seconds: float
    memory_mib: int


class ProgramJudge(WorkerPool):
    """Judges up to `workers` answers at a time. What somebody else ended is judged once more."""

    def __init__(self, limits: ProgramLimits, tolerance: float, workers: int = 1) -> None:
        """`tolerance`: how far a number with decimals may be off, as a share of the expected one."""
        self._limits, self._tolerance = limits, tolerance
        super().__init__(
            *(workers, WORKER, str(limits.memory_mib)),
            longest=LONGEST_LINE,
            what="runs programs",
            where=PROGRAMS,
            confined=PROGRAMS,
            help=f"give it more memory: `tests(memory: {limits.memory_mib / 512:g} GiB)` would be twice as much",
        )

    def judge(self, programs: Sequence[tuple[str, TestCases]]) -> list[str]:
        """Return the outcome of each answer's program: `right`, `wrong`, `timeout`, or why it could not be judged.

        Raises E0741 or E0742 where no process can run it.
        """
        return self.map(self._judge, programs, lambda gone: "timeout" if gone.late else LOST)

    def _judge(self, worker: Worker, program: tuple[str, TestCases]) -> str:
        text, tests = program
        try:
            if isinstance(tests, Inputs):
                return self._judge_outputs(worker, text, tests)
            if isinstance(tests, Calls):
                calls = [given for given, _ in tests.pairs]
                said = self._ask(worker, self._limits.seconds, program=text, name=tests.name, calls=calls)
                wanted = [result for _, result in tests.pairs]
                if said["ended"] != "done" or not said["output"]:
                    return _outcome_of(said)
                results = decoded(said["output"], LONGEST_REPLY)
                return "right" if same_value(wanted, results, self._tolerance) else "wrong"
            said = self._ask(worker, self._limits.seconds, program=text, tests=tests.text, entry=tests.entry)
            return "right" if said == {"ended": "done", "output": "passed"} else _outcome_of(said)
        except Undecodable as failure:
            return f"what its program says cannot be read: {failure}"

    def _judge_outputs(self, worker: Worker, text: str, tests: Inputs) -> str:
        left = self._limits.seconds
        for given, wanted in tests.pairs:
            said = self._ask(worker, max(left, 0.01), program=text, input=given)
            left -= float(said["spent"])
            if said["ended"] != "done" or not same_output(wanted, said["output"], self._tolerance):
                return _outcome_of(said)
            if left <= 0:
                return "timeout"
        return "right"

    def _ask(self, worker: Worker, seconds: float, **what: object) -> dict[str, Any]:
        said = worker.ask({**what, "seconds": seconds}, wall_seconds(seconds))
        if said["ended"] == "lost":
            raise Gone(status=-signal.SIGKILL)
        if said.get("retire"):
            self.end(worker)
        return said


def _outcome_of(said: dict[str, Any]) -> str:
    return "timeout" if said["ended"] == "timeout" else "wrong"


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
    """Return whether a value equals the wanted one as JSON has values, decimals within the tolerance; 1 is 1.0."""
    if isinstance(wanted, bool) or wanted is None or isinstance(said, bool):
        return said is wanted
    if isinstance(wanted, (int, float)):
        return isinstance(said, (int, float)) and _near(wanted, said, tolerance)
    if isinstance(wanted, list) and isinstance(said, list):
        return len(said) == len(wanted) and all(
            same_value(*each, tolerance) for each in zip(wanted, said, strict=True)
        )
    if isinstance(wanted, dict) and isinstance(said, dict):
        return said.keys() == wanted.keys() and all(
            same_value(each, said[name], tolerance) for name, each in wanted.items()
        )
    return isinstance(wanted, str) and said == wanted


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
