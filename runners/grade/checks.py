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
_LONG = Verdict(False, "failed", f"answer and reference have more than {LONGEST_LINE:,} bytes together")
_FAILED = Verdict(False, "failed", "its check raised an error or ran out of memory")
_ENDED = Verdict(False, "failed", "the process of its check died or replied no verdict")


class Checks(WorkerPool):
    """A pool of worker processes that all run the same check, confined by `runners.sandbox`.

    A request whose worker another program killed is sent to another worker once.
    """

    def __init__(
        self, kind: str, workers: int, seconds: float, memory_mib: int, confined: bool = True
    ) -> None:
        """Prepare a pool, whose workers start with the first request.

        Args:
            kind: The name of the check in `worker.CHECKS`.
            workers: The most worker processes.
            seconds: The processor time for an answer.
            memory_mib: The address space of a worker in MiB.
            confined: False to check answers even on a machine where a process cannot be confined (by
                `runners.sandbox`).
        """
        package = "reasoning-gym" if kind == "reasoning_gym" else "math-verify"
        super().__init__(
            workers,
            WORKER,
            *(kind, str(seconds), str(memory_mib), "confined" if confined else "open"),
            longest=LONGEST_MESSAGE,
            task="checks answers",
            where=f"verifier `{kind}`",
            confined="verifier `package`",
            help="the machine or a `ulimit` may give processes too little memory; otherwise its package is broken: "
            f"`pip install --force-reinstall {package}`",
        )
        self._seconds, self._package = seconds, package

    def check(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers, with the status `checked`, `timeout` or `failed`.

        Raises:
            Problem: E0741 if no worker starts, E0742 if a worker cannot be confined.
        """
        lines = [_request_line(answer) for answer in answers]
        verdicts = iter(
            self.map(
                self._ask, [line for line in lines if line], lambda death: _TIMEOUT if death.late else _ENDED
            )
        )
        return [next(verdicts) if line else _LONG for line in lines]

    def _ask(self, worker: Worker, line: bytes) -> Verdict:
        """Send a request to a worker, and return the verdict of its reply.

        A worker whose reply says `retire` is ended, because its process may be damaged by the answer. The outcome
        `lost` says that a child of the worker was killed from outside.

        Raises:
            WorkerDied: The worker died, its reply is not a verdict, or the outcome is `lost`.
        """
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
        """Return E0741 for a worker that did not start.

        Args:
            why: The last words of the worker. If they say that a module is missing, the error advises to install the
                package.
        """
        if "ModuleNotFoundError" in why:
            self._help = f"install its package: `pip install {self._package}`"
        return super()._not_started(why)


def _request_line(answer: Claim) -> bytes:
    """Return the request for an answer as a line of JSON in ASCII; empty if the line would be too long."""
    if len(answer.gold) + len(answer.text) + len(answer.meta) > LONGEST_LINE:
        return b""
    line = encoded({"gold": answer.gold, "text": answer.text, "meta": answer.meta})
    return line if len(line) <= LONGEST_LINE else b""


SECONDS, MEMORY_MIB = 5.0, 1024


def find_unreadable(references: Sequence[str], workers: int = 1) -> list[bool]:
    """Return for each reference whether it is unreadable: the mathematical verifier can read none of its answers.

    This process reads numbers, choices and words. Other answers are formulas, which math-verify reads, within `SECONDS`
    of processor time for an answer. If math-verify is not installed, formulas count as readable.

    Args:
        references: Reference answers; several answers of a reference are joined by `SEPARATOR`.
        workers: The most processes of math-verify.
    """
    formulas_of = {answer: expressions(answer) for text in references for answer in text.split(SEPARATOR)}
    queries = dict.fromkeys(formula for formulas in formulas_of.values() for formula in formulas if formula)
    readable = dict.fromkeys(queries, True)
    if queries and importlib.util.find_spec("math_verify") is not None:
        checks = Checks("math_references", workers, SECONDS, MEMORY_MIB, confined=False)
        try:
            verdicts = checks.check([Claim("", formula) for formula in queries])
        finally:
            checks.close()
        readable = {formula: verdict.correct for formula, verdict in zip(queries, verdicts, strict=True)}
    can_read = {
        answer: all(formula and readable[formula] for formula in formulas)
        for answer, formulas in formulas_of.items()
    }
    return [not any(can_read[answer] for answer in text.split(SEPARATOR)) for text in references]
