"""Verifiers: compare text and numbers themselves, or ask math-verify behind a fast path and a cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import get_args

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Chance, Comparison, NamedVerifier, Python, Tests
from runners.grade.answer import SEPARATOR, CachedVerifier, Claim, Status, Verdict, Verifier
from runners.grade.checks import Checks
from runners.grade.compare import LONGEST, CasQuery, Plan, judge, outcome, questions
from runners.grade.compare.notation import plain, spelt, tidy
from runners.grade.compare.quantity import quantity, same_quantity
from runners.own.function import FailedRow, UserFunction, open_function
from runners.programs.judge import ProgramJudge, ProgramLimits
from runners.programs.tests import TestCases, Unreadable, read_tests

LONGEST_PROGRAM = 100_000
"""Characters of a program beyond which it is not run."""
_VERDICTS = {
    "right": Verdict(True, "checked"),
    "wrong": Verdict(False, "checked"),
    "timeout": Verdict(False, "timeout"),
}


def verify_programs(judge: ProgramJudge) -> CachedVerifier:
    """Return a verifier that runs each program against its question's tests, and equal programs once.

    Programs run in confined processes or not at all. A program that another process ended is run once more. It raises E0741
    and E0742 if no process can run programs.
    """

    def check(answers: Sequence[Claim]) -> list[Verdict]:
        programs = [_program(answer) for answer in answers]
        outcomes = iter(judge.judge([program for program in programs if isinstance(program, tuple)]))
        return [program if isinstance(program, Verdict) else _verdict(next(outcomes)) for program in programs]

    return CachedVerifier(check, judge.close, _digest)


def _digest(answer: Claim) -> Claim:
    """Return a key for an answer whose program and tests are too long to keep themselves."""
    joined = "\0".join((answer.text, answer.gold, answer.meta))
    return Claim(hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest(), "")


def _program(answer: Claim) -> tuple[str, TestCases] | Verdict:
    """Return a program with its tests, or the verdict if it is not run."""
    if not answer.text.strip():
        return _VERDICTS["wrong"]
    if len(answer.text) > LONGEST_PROGRAM:
        return _verdict(f"its program has more than {LONGEST_PROGRAM:,} characters")
    try:
        return answer.text, read_tests(tuple(answer.gold.split(SEPARATOR)), answer.meta)
    except Unreadable as failure:
        # Reading the data has said so already, unless they were not read here.
        return _verdict(f"its tests cannot be read: {failure}")


def _verdict(outcome: str) -> Verdict:
    return _VERDICTS.get(outcome) or Verdict(False, "failed", outcome)


TOLERANCE = 1e-4
"""The greatest distance of a rounded number, as a share of the reference, where a data set does not say."""


class ExactVerifier:
    """A verifier by equality of texts without space and emphasis, or of numbers and their units.

    It is for tasks whose answers are words of a vocabulary: nothing is parsed and no process is started.
    """

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return a verdict for each answer, with the status `fast`."""
        return [
            Verdict(any(same(gold, answer.text) for gold in answer.gold.split(SEPARATOR)), "fast")
            for answer in answers
        ]

    def close(self) -> None:
        """Do nothing: the verifier holds no process."""


def same(gold: str, text: str) -> bool:
    """Return whether two texts are equal without space and Markdown around them, or as numbers with their units.

    An empty text equals nothing.
    """
    gold, text = tidy(gold), tidy(text)
    if not gold or not text:
        return False
    if gold == text or len(gold) + len(text) > LONGEST:
        return gold == text
    if spelt(gold) == spelt(text) != "":
        return True
    expected = quantity(plain(gold), reference=True)
    actual = None if expected is None else quantity(plain(text))
    return expected is not None and actual is not None and same_quantity(expected, actual, Fraction(0))


class PooledVerifier:
    """A cache, then worker processes; with `fast`, what `judge` can decide never reaches either.

    `kind` is the workers' check, `seconds` the processor time of one answer, `memory_mib` a worker's address space.
    `tolerance` is how far a rounded number may be off, as a share of the reference; only `fast` reads it.
    `confined` as for `Checks`.
    Equal questions within a batch are checked once. Time-outs and failures are kept too: a text that cost its
    deadline once does not cost it again. Usable from any thread.
    """

    def __init__(
        self,
        kind: str,
        workers: int,
        seconds: float,
        memory_mib: int,
        *,
        fast: bool,
        tolerance: float = TOLERANCE,
        confined: bool = True,
    ) -> None:
        self._fast, self._tolerance = fast, tolerance
        self.checks = Checks(kind, workers, seconds, memory_mib, confined)
        self._checked = CachedVerifier(self.checks.check, self.checks.close)

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers. Raises a Problem (E0741) when no worker can be started."""
        # What a package says of its question is no business of mathematics.
        meta = [("" if self._fast else answer.meta) for answer in answers]
        single = [
            [Claim(answer.text, gold, facts) for gold in answer.gold.split(SEPARATOR)]
            for answer, facts in zip(answers, meta, strict=True)
        ]
        verdicts = iter(self._grade_single([claim for claims in single for claim in claims]))
        return [_any([next(verdicts) for _ in claims]) for claims in single]

    def _grade_single(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts of answers with a single reference."""
        plans = [self._plan(answer) for answer in answers]
        requests_of = [
            [_request(ask, answer) for ask in questions(plan)]
            for plan, answer in zip(plans, answers, strict=True)
        ]
        verdicts = iter(self._checked.grade([request for requests in requests_of for request in requests]))
        return [
            _combine(plan, answer, {request: next(verdicts) for request in requests})
            for plan, answer, requests in zip(plans, answers, requests_of, strict=True)
        ]

    def _plan(self, answer: Claim) -> Plan:
        if not self._fast:
            return CasQuery(answer.gold, answer.text)
        return judge(answer.gold, answer.text, self._tolerance)

    def close(self) -> None:
        """Kill the workers; grading again starts new workers."""
        self.checks.close()


def _any(verdicts: Sequence[Verdict]) -> Verdict:
    """Return a single verdict from those on several references: the right one, else an unsettled one, else any."""
    ranks = ("failed", "timeout", "checked", "cached", "fast")
    return min(verdicts, key=lambda verdict: (not verdict.correct, ranks.index(verdict.status)))


def _request(ask: CasQuery, answer: Claim) -> Claim:
    """Return a question as a worker reads it: with a tolerance for mathematics, with metadata for a package."""
    return Claim(ask.answer, ask.gold, repr(ask.tolerance) if ask.tolerance else answer.meta)


def _combine(plan: Plan, answer: Claim, verdicts: Mapping[Claim, Verdict]) -> Verdict:
    """Return the verdict of a plan; a wrong verdict names a query that was not judged."""
    if isinstance(plan, bool):
        return Verdict(plan, "fast")
    correct = outcome(plan, lambda ask: verdicts[_request(ask, answer)].correct)
    reasons = {verdict.status: verdict.why for verdict in verdicts.values()}
    unsettled: tuple[Status, ...] = () if correct else ("failed", "timeout")
    order: tuple[Status, ...] = (*unsettled, "checked", "cached")
    status: Status = next((status_name for status_name in order if status_name in reasons), "checked")
    return Verdict(correct, status, reasons.get(status, ""))


def verify_by_function(function: UserFunction) -> CachedVerifier:
    """Return a verifier by the user's own function.

    A fault of the function ends the grading with E0741 to E0744; a fault that an answer causes fails that answer.
    """

    def check(answers: Sequence[Claim]) -> list[Verdict]:
        values = function.call([answer_row(value) for value in answers])
        return [
            Verdict(False, value.status, value.why)
            if isinstance(value, FailedRow)
            else Verdict(value == 1, "checked")
            for value in values
        ]

    return CachedVerifier(check, function.close)


class ChanceVerifier:
    """A verifier that counts half of another verifier's wrong answers as right, as rehearsals do.

    Which half depends on the question, the text and the answer's number.
    """

    def __init__(self, verifier: Verifier) -> None:
        """Wrap `verifier`, which `close` closes too."""
        self._verifier = verifier

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers."""
        return [
            replace(verdict, correct=verdict.correct or _lucky(answer))
            for answer, verdict in zip(answers, self._verifier.grade(answers), strict=True)
        ]

    def close(self) -> None:
        """Close the verifier."""
        self._verifier.close()


def _lucky(answer: Claim) -> bool:
    text = f"{answer.which}\0{answer.question}\0{answer.text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0


def answer_row(answer: Claim) -> dict[str, object]:
    """Return an answer as own code is given it."""
    try:
        meta = json.loads(answer.meta) if answer.meta else {}
    except ValueError:
        meta = {}
    references = answer.gold.split(SEPARATOR)
    row: dict[str, object] = {"question": answer.question, "text": answer.text, "reference": references[0]}
    row |= {"references": references, "meta": meta if isinstance(meta, dict) else {}}
    return row


def open_verifier(chosen: Comparison, tolerance: float, folder: Path, resources: Resources) -> Verifier:
    """Open the verifier of a data set: a named verifier, or the user's own function.

    Two processes grade beside the embedded engine. Servers leave this machine's cores free, so each core gets a process.

    Args:
        chosen: the verifier's name or function.
        tolerance: the greatest distance of a rounded number, as a share of the reference.
        folder: the folder where paths of the user's files start.
        resources: the task's share of the machines.

    Raises:
        Problem: a file cannot be used (E0743), or may not run as it is now (E0746).
    """
    if isinstance(chosen, Chance):
        return ChanceVerifier(open_verifier(chosen.of, tolerance, folder, resources))
    workers = 2 if resources.engine == "embedded" else max(2, len(os.sched_getaffinity(0)))
    if isinstance(chosen, Tests):
        limits = ProgramLimits(chosen.seconds, round(chosen.memory * 1024))
        return verify_programs(ProgramJudge(limits, tolerance, workers))
    if not isinstance(chosen, Python):
        return make_verifier(chosen, workers=workers, tolerance=tolerance, confined=resources.confined)
    return verify_by_function(open_function(chosen, "verifier", folder, resources, workers))


def make_verifier(
    kind: str,
    *,
    workers: int = 2,
    seconds: float = 5.0,
    memory_mib: int = 1024,
    tolerance: float = TOLERANCE,
    confined: bool = True,
) -> Verifier:
    """Return the verifier that a data set names.

    A package's scorer may evaluate answers as code: it grades nothing if its process cannot be confined, unless `confined`
    is false. math-verify reads a grammar and formulas, and needs no sandbox.

    Args:
        kind: `math`, `exact`, or `package` (questions of reasoning-gym, scored by the package).
        workers: worker processes.
        seconds: processor seconds for an answer.
        memory_mib: address space of a worker in MiB.
        tolerance: for `math`, the greatest distance of a rounded number, as a share of the reference.
        confined: whether a package's scorer must be confined.

    Raises:
        Problem: there is no such verifier (E0314).
    """
    if kind == "exact":
        return ExactVerifier()
    if kind == "math":
        return PooledVerifier(
            "math", workers, seconds, memory_mib, fast=True, tolerance=tolerance, confined=False
        )
    if kind == "package":
        return PooledVerifier("reasoning_gym", workers, seconds, memory_mib, fast=False, confined=confined)
    names = ", ".join(f"`{name}`" for name in get_args(NamedVerifier))
    raise problem("E0314", f"there is no verifier `{kind}`", help=f"the verifiers are {names}")
