"""Ask worker processes whether answers agree with their references."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Sequence
from pathlib import Path

from reodsl.diagnostics import Problem
from runners.grade.answer import SEPARATOR, Claim, Verdict
from runners.grade.compare import expressions
from runners.sandbox.untrusted import Undecodable, encoded
from runners.sandbox.workers import Worker, WorkerDied, WorkerPool, wall_seconds

WORKER = Path(__file__).with_name("worker.py")
LONGEST_LINE, LONGEST_MESSAGE = 60_000, 10_000
_TIMEOUT = Verdict(False, "timeout")
_LONG = Verdict(False, "failed", f"with its reference it has more than {LONGEST_LINE:,} bytes")
_FAILED = Verdict(False, "failed", "what checks it raised an error, or ran out of memory")
_ENDED = Verdict(False, "failed", "what checks it ended, or said what is no verdict")


class Checks(WorkerPool):
    """Up to `workers` processes of the same check, each with `memory_mib` MiB of address space.

    They are confined (`runners.sandbox`); with `confined` false they also check answers if they cannot be confined. An
    answer has `seconds` of processor time. A request whose worker another program killed is sent to another worker once.
    """

    def __init__(
        self, kind: str, workers: int, seconds: float, memory_mib: int, confined: bool = True
    ) -> None:
        package = "reasoning-gym" if kind == "reasoning_gym" else "math-verify"
        super().__init__(
            workers,
            WORKER,
            *(kind, str(seconds), str(memory_mib), "confined" if confined else "open"),
            longest=LONGEST_MESSAGE,
            task="checks answers",
            where=f"verifier `{kind}`",
            confined="verifier `package`",
            help="the machine, or a `ulimit` on it, may give its processes too little memory; else its package is broken: "
            f"`pip install --force-reinstall {package}`",
        )
        self._seconds, self._package = seconds, package

    def check(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdict of each answer, in order: `checked`, `timeout` or `failed`. Raises E0741 and E0742."""
        lines = [_request_line(answer) for answer in answers]
        verdicts = iter(
            self.map(
                self._ask, [line for line in lines if line], lambda death: _TIMEOUT if death.late else _ENDED
            )
        )
        return [next(verdicts) if line else _LONG for line in lines]

    def _ask(self, worker: Worker, line: bytes) -> Verdict:
        """Return the verdict that a worker sends; a message of any other form counts as the worker's end."""
        try:
            reply = worker.ask_line(line, wall_seconds(self._seconds))
        except Undecodable:
            raise WorkerDied from None
        if reply.get("retire") is True:
            self.end(worker)
        match reply:
            case {"correct": bool(correct), "outcome": "checked", "retire": bool()}:
                return Verdict(correct, "checked")
            case {"correct": False, "outcome": "timeout", "retire": bool()}:
                return _TIMEOUT
            case {"correct": False, "outcome": "failed", "retire": bool()}:
                return _FAILED
            case {"correct": False, "outcome": "lost", "retire": bool()}:
                raise WorkerDied(status=-signal.SIGKILL)
        raise WorkerDied

    def _not_started(self, why: str) -> Problem:
        if "ModuleNotFoundError" in why:
            self._help = f"install what it needs: `pip install {self._package}`"
        return super()._not_started(why)


def _request_line(answer: Claim) -> bytes:
    """Return the request as an ASCII line; empty if it is too long to send."""
    if len(answer.gold) + len(answer.text) + len(answer.meta) > LONGEST_LINE:
        return b""
    line = encoded({"gold": answer.gold, "text": answer.text, "meta": answer.meta})
    return line if len(line) <= LONGEST_LINE else b""


SECONDS, MEMORY_MIB = 5.0, 1024


def find_unreadable(references: Sequence[str], workers: int = 1) -> list[bool]:
    """Return for each reference whether a mathematical verifier can read none of its answers.

    Numbers, choices and words are read here, and math-verify reads the rest within `SECONDS` an answer. Without math-verify
    on this machine the rest counts as readable.

    Args:
        references: references, whose answers are joined by `SEPARATOR`.
        workers: processes of math-verify.
    """
    formulas_of = {each: expressions(each) for text in references for each in text.split(SEPARATOR)}
    queries = dict.fromkeys(each for answers in formulas_of.values() for each in answers if each)
    readable = dict.fromkeys(queries, True)
    if queries and importlib.util.find_spec("math_verify") is not None:
        checks = Checks("math_references", workers, SECONDS, MEMORY_MIB, confined=False)
        try:
            verdicts = checks.check([Claim("", each) for each in queries])
        finally:
            checks.close()
        readable = {each: verdict.correct for each, verdict in zip(queries, verdicts, strict=True)}
    read = {text: all(each and readable[each] for each in answers) for text, answers in formulas_of.items()}
    return [not any(read[each] for each in text.split(SEPARATOR)) for text in references]
