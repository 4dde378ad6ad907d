"""Judge programs by tests: this process compares outputs and results; tests in Python run in the program's process.

A program runs in a confined process, which does not get the expected outputs and results. The program's output is read as
plain data of limited size, and is never called or hashed.
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
"""The largest size of a reply in bytes: a program's output, each character of which may be escaped."""

LOST = "its process was killed twice, or its output was too long"


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of a program: processor seconds of all tests together, and mebibytes of memory of its process."""

    seconds: float
    memory_mib: int


class ProgramJudge(WorkerPool):
    """A judge of up to `workers` programs at a time; a program whose process was killed is judged once more."""

    def __init__(self, limits: ProgramLimits, tolerance: float, workers: int = 1) -> None:
        """Set the limits.

        Args:
            limits: The limits of a program.
            tolerance: The largest distance of decimals, as a share of the expected number.
            workers: The number of processes.
        """
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
        """Return the outcome of each program: `right`, `wrong`, `timeout`, or why it could not be judged.

        Args:
            programs: Pairs of a program's text and its tests.

        Raises:
            Problem: E0741 or E0742, if no process can run programs.
        """
        return self.map(self._judge, programs, lambda death: "timeout" if death.late else LOST)

    def _judge(self, worker: Worker, program: tuple[str, TestCases]) -> str:
        """Return a program's outcome, as `judge` does.

        The type of the tests decides what is judged: the program's outputs, the results of its function, or whether
        tests in Python pass.

        Args:
            worker: The process that runs programs.
            program: The program's text, and its tests.
        """
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
            return f"its program's output cannot be read: {failure}"

    def _judge_outputs(self, worker: Worker, text: str, tests: Inputs) -> str:
        """Return the outcome of a program that is run once for each input, within one limit of time.

        Args:
            worker: The process that runs programs.
            text: The program.
            tests: The inputs and expected outputs.
        """
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
        """Send a request to a worker, and return its reply; `programs/worker.py` describes both.

        If the reply sets `retire`, end the worker, because a program may still run in it.

        Args:
            worker: The worker.
            seconds: The limit on the program's processor time.
            **request: The fields of the request.

        Raises:
            WorkerDied: The program's process was killed from outside.
        """
        reply = worker.ask({**request, "seconds": seconds}, wall_seconds(seconds))
        if reply["ended"] == "lost":
            raise WorkerDied(status=-signal.SIGKILL)
        if reply.get("retire"):
            self.end(worker)
        return reply


def _outcome_of(reply: dict[str, Any]) -> str:
    """Return the outcome of a program that failed a test: `timeout` if its time ran out, else `wrong`."""
    return "timeout" if reply["ended"] == "timeout" else "wrong"


def same_output(expected_text: str, printed: str, tolerance: float) -> bool:
    """Return whether two outputs are equal line by line and word by word; false if `printed` is too long.

    White space between words, and empty lines at the end, are ignored.

    Args:
        expected_text: The expected output.
        printed: The program's output.
        tolerance: For words that are numbers with decimals, the largest distance as a share of the expected number.
    """
    if len(printed.encode("utf-8", "replace")) > LONGEST_REPLY:
        return False
    expected_lines, printed_lines = _lines(expected_text), _lines(printed)
    return len(expected_lines) == len(printed_lines) and all(
        len(line) == len(other)
        and all(_same_word(*words, tolerance) for words in zip(line, other, strict=True))
        for line, other in zip(expected_lines, printed_lines, strict=True)
    )


def same_value(expected: Any, value: Any, tolerance: float) -> bool:
    """Return whether two JSON values are equal, with a tolerance for expected decimals; 1 equals 1.0, but not `true`.

    Args:
        expected: The expected value.
        value: The function's value.
        tolerance: The largest distance of decimals, as a share of the expected number.
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
    """Return the words of each line of a text, without empty lines at the end."""
    lines = [line.split() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(expected: str, word: str, tolerance: float) -> bool:
    """Return whether a word equals the expected word, or is close to it if the expected word is a decimal.

    A decimal is a number that is written with a point or an exponent.
    """
    if expected == word:
        return True
    if "." not in expected and "e" not in expected.lower():
        return False
    try:
        return _near(float(expected), float(word), tolerance)
    except ValueError:
        return False


def _near(target: float, value: float, tolerance: float) -> bool:
    """Return whether a number equals an expected integer, or is close to an expected decimal.

    Args:
        target: The expected number.
        value: The number.
        tolerance: The largest distance from a decimal, as a share of the expected number.
    """
    if isinstance(target, int):
        return target == value
    try:
        return target == value or (math.isfinite(target) and abs(target - value) <= tolerance * abs(target))
    except OverflowError:
        return False
