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
from runners.sandbox.workers import PROGRAMS, Worker, WorkerDied, WorkerPool, wall_seconds

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
    """A judge of up to `workers` answers at a time; a program that another process ended is judged once more."""

    def __init__(self, limits: ProgramLimits, tolerance: float, workers: int = 1) -> None:
        """Set the limits; `tolerance` bounds the distance of decimals, as a share of the expected number."""
        self._limits, self._tolerance = limits, tolerance
        super().__init__(
            *(workers, WORKER, str(limits.memory_mib)),
            longest=LONGEST_LINE,
            task="runs programs",
            where=PROGRAMS,
            confined=PROGRAMS,
            help=f"give it more memory: `tests(memory: {limits.memory_mib / 512:g} GiB)` would be twice as much",
        )

    def judge(self, programs: Sequence[tuple[str, TestCases]]) -> list[str]:
        """Return the outcome of each answer's program: `right`, `wrong`, `timeout`, or why it could not be judged.

        Raises E0741 or E0742 if no process can run it.
        """
        return self.map(self._judge, programs, lambda death: "timeout" if death.late else LOST)

    def _judge(self, worker: Worker, program: tuple[str, TestCases]) -> str:
        """Return a program's outcome: by its outputs, by a function's results, or by tests in Python."""
        text, tests = program
        try:
            if isinstance(tests, Inputs):
                return self._judge_outputs(worker, text, tests)
            if isinstance(tests, Calls):
                calls = [arguments for arguments, _ in tests.pairs]
                reply = self._ask(worker, self._limits.seconds, program=text, name=tests.name, calls=calls)
                expected = [result for _, result in tests.pairs]
                if reply["ended"] != "done" or not reply["output"]:
                    return _outcome_of(reply)
                results = decoded(reply["output"], LONGEST_REPLY)
                return "right" if same_value(expected, results, self._tolerance) else "wrong"
            reply = self._ask(worker, self._limits.seconds, program=text, tests=tests.text, entry=tests.entry)
            return "right" if reply == {"ended": "done", "output": "passed"} else _outcome_of(reply)
        except Undecodable as failure:
            return f"what its program says cannot be read: {failure}"

    def _judge_outputs(self, worker: Worker, text: str, tests: Inputs) -> str:
        remaining = self._limits.seconds
        for input_text, expected in tests.pairs:
            reply = self._ask(worker, max(remaining, 0.01), program=text, input=input_text)
            remaining -= float(reply["spent"])
            if reply["ended"] != "done" or not same_output(expected, reply["output"], self._tolerance):
                return _outcome_of(reply)
            if remaining <= 0:
                return "timeout"
        return "right"

    def _ask(self, worker: Worker, seconds: float, **request: object) -> dict[str, Any]:
        reply = worker.ask({**request, "seconds": seconds}, wall_seconds(seconds))
        if reply["ended"] == "lost":
            raise WorkerDied(status=-signal.SIGKILL)
        if reply.get("retire"):
            self.end(worker)
        return reply


def _outcome_of(reply: dict[str, Any]) -> str:
    return "timeout" if reply["ended"] == "timeout" else "wrong"


def same_output(expected_text: str, printed: str, tolerance: float) -> bool:
    """Return whether two outputs are equal line by line and word by word.

    Args:
        expected_text: the expected output.
        printed: the program's output.
        tolerance: for words that are numbers with decimals, the greatest distance as a share of the expected number.
    """
    if len(printed.encode("utf-8", "replace")) > LONGEST_REPLY:
        return False
    expected, actual = _lines(expected_text), _lines(printed)
    return len(expected) == len(actual) and all(
        len(line) == len(other)
        and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True))
        for line, other in zip(expected, actual, strict=True)
    )


def same_value(expected: Any, value: Any, tolerance: float) -> bool:
    """Return whether two JSON values are equal, with 1 equal to 1.0.

    Args:
        expected: the expected value.
        value: the function's value.
        tolerance: the greatest distance of decimals, as a share of the expected number.
    """
    if isinstance(expected, bool) or expected is None or isinstance(value, bool):
        return value is expected
    if isinstance(expected, (int, float)):
        return isinstance(value, (int, float)) and _near(expected, value, tolerance)
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(
            same_value(*item, tolerance) for item in zip(expected, value, strict=True)
        )
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(
            same_value(item, value[name], tolerance) for name, item in expected.items()
        )
    return isinstance(expected, str) and value == expected


def _lines(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(expected: str, word: str, tolerance: float) -> bool:
    if expected == word:
        return True
    if "." not in expected and "e" not in expected.lower():
        return False
    try:
        return _near(float(expected), float(word), tolerance)
    except ValueError:
        return False


def _near(target: float, value: float, tolerance: float) -> bool:
    if isinstance(target, int):
        return target == value
    try:
        return target == value or (math.isfinite(target) and abs(target - value) <= tolerance * abs(target))
    except OverflowError:
        return False
