"""Verifiers: equality of texts and numbers, mathematics, scorers of packages, programs, and functions of the user."""

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
"""The most characters of a program that is run."""
_VERDICTS = {
    "right": Verdict(True, "checked"),
    "wrong": Verdict(False, "checked"),
    "timeout": Verdict(False, "timeout"),
}


def verify_programs(judge: ProgramJudge) -> CachedVerifier:
    """Return a verifier that runs the program of each answer against its question's tests; equal programs run once.

    The `grade` of the verifier raises E0741 and E0742 if no confined process can run programs.

    Args:
        judge: The pool of confined processes that run programs.
    """

    def check(answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts on different answers, in their order."""
        programs = [_program(answer) for answer in answers]
        outcomes = iter(judge.judge([program for program in programs if isinstance(program, tuple)]))
        return [program if isinstance(program, Verdict) else _verdict(next(outcomes)) for program in programs]

    return CachedVerifier(check, judge.close, _digest)


def _digest(answer: Claim) -> Claim:
    """Return the key of an answer in the cache: a claim whose text is the SHA-256 of program, tests and metadata.

    Programs and tests are too long to be kept as keys.
    """
    joined = "\0".join((answer.text, answer.gold, answer.meta))
    return Claim(hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest(), "")


def _program(answer: Claim) -> tuple[str, TestCases] | Verdict:
    """Return an answer's program and its tests, or the verdict for a program that cannot be run.

    An empty program is wrong. A program that is too long, or whose tests cannot be read, has the status `failed`.
    """
    if not answer.text.strip():
        return _VERDICTS["wrong"]
    if len(answer.text) > LONGEST_PROGRAM:
        return _verdict(f"its program has more than {LONGEST_PROGRAM:,} characters")
    try:
        return answer.text, read_tests(tuple(answer.gold.split(SEPARATOR)), answer.meta)
    except Unreadable as failure:
        return _verdict(f"its tests cannot be read: {failure}")


def _verdict(outcome: str) -> Verdict:
    """Return the verdict for an outcome of `ProgramJudge`: `right`, `wrong`, `timeout`, or the reason of a failure."""
    return _VERDICTS.get(outcome) or Verdict(False, "failed", outcome)


TOLERANCE = 1e-4
"""The default for the largest accepted distance of a rounded number, relative to the reference."""


class ExactVerifier:
    """A verifier that needs equal texts, apart from spaces and emphasis, or equal numbers with equal units.

    It suits answers from a fixed vocabulary, and is fast: it parses no formulas and starts no process.
    """

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return a verdict for each answer, with the status `fast`."""
        return [
            Verdict(any(same(gold, answer.text) for gold in answer.gold.split(SEPARATOR)), "fast")
            for answer in answers
        ]

    def close(self) -> None:
        """Do nothing, because the verifier has no process."""


def same(gold: str, text: str) -> bool:
    """Return whether a reference (`gold`) and an answer (`text`) are equal texts or equal numbers with units.

    Repeated spaces, Markdown's emphasis and the spelling of Unicode signs do not count. If both texts have more than
    `LONGEST` characters together, only repeated spaces do not count. The result for an empty text is False.
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
    """A verifier by a pool of worker processes with a cache, which many threads may use.

    With `fast`, for mathematics, `compare.judge` decides most answers in this process. Workers then get only queries to
    computer algebra, for answers that it cannot decide. Equal queries are checked once. Time-outs and failures are
    cached too.
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
        """Prepare a pool, whose workers start with the first query.

        Args:
            kind: The workers' check, a name of `worker.CHECKS`.
            workers: The most worker processes.
            seconds: The processor time for an answer.
            memory_mib: The address space of a worker in MiB.
            fast: True to decide by `compare.judge` first.
            tolerance: The largest accepted distance of a rounded number, relative to the reference; used with `fast`.
            confined: False to check answers even on a machine where a process cannot be confined.
        """
        self._fast, self._tolerance = fast, tolerance
        self.checks = Checks(kind, workers, seconds, memory_mib, confined)
        self._checked = CachedVerifier(self.checks.check, self.checks.close)

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers.

        An answer is compared with each of its references, and is right if it agrees with any of them.

        Raises:
            Problem: E0741 if no worker starts, E0742 if a worker cannot be confined.
        """
        # Mathematics does not use the metadata, which would only make equal claims differ.
        meta = [("" if self._fast else answer.meta) for answer in answers]
        single = [
            [Claim(answer.text, gold, metadata) for gold in answer.gold.split(SEPARATOR)]
            for answer, metadata in zip(answers, meta, strict=True)
        ]
        verdicts = iter(self._grade_single([claim for claims in single for claim in claims]))
        return [_best_verdict([next(verdicts) for _ in claims]) for claims in single]

    def _grade_single(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts on answers that have a single reference each.

        The plan of an answer is a verdict, or queries to workers joined by "and" and "or". The queries of all plans are
        sent together. `_combine` then makes a verdict of each plan and the replies to its queries.
        """
        plans = [self._plan(answer) for answer in answers]
        requests_of = [
            [_request(query, answer) for query in questions(plan)]
            for plan, answer in zip(plans, answers, strict=True)
        ]
        verdicts = iter(self._checked.grade([request for requests in requests_of for request in requests]))
        return [
            _combine(plan, answer, {request: next(verdicts) for request in requests})
            for plan, answer, requests in zip(plans, answers, requests_of, strict=True)
        ]

    def _plan(self, answer: Claim) -> Plan:
        """Return the plan to judge an answer: `compare.judge` for mathematics, else a single query to a worker."""
        if not self._fast:
            return CasQuery(answer.gold, answer.text)
        return judge(answer.gold, answer.text, self._tolerance)

    def close(self) -> None:
        """Kill the workers; the next `grade` starts new workers."""
        self.checks.close()


def _best_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on an answer, from the answer's verdicts for each of its references.

    It is a right verdict if there is any, else a failure, else a time-out, else a wrong verdict. Among verdicts of the
    same kind, the first in the order of `ranks` is taken.
    """
    ranks = ("failed", "timeout", "checked", "cached", "fast")
    return min(verdicts, key=lambda verdict: (not verdict.correct, ranks.index(verdict.status)))


def _request(query: CasQuery, answer: Claim) -> Claim:
    """Return the claim that a worker gets for a query.

    Its `meta` is the query's tolerance as text, or without a tolerance the metadata of the answer.
    """
    return Claim(query.answer, query.gold, repr(query.tolerance) if query.tolerance else answer.meta)


def _combine(plan: Plan, answer: Claim, verdicts: Mapping[Claim, Verdict]) -> Verdict:
    """Return the verdict of a plan, given the workers' verdicts on the plan's queries.

    A plan without queries gives the status `fast`. A wrong verdict has the status `failed`, else `timeout`, if any
    query has this status. Otherwise the status is `checked` if a worker checked any query, else `cached`.

    Args:
        plan: The plan.
        answer: The answer of the plan.
        verdicts: The workers' verdicts by request.
    """
    if isinstance(plan, bool):
        return Verdict(plan, "fast")
    correct = outcome(plan, lambda query: verdicts[_request(query, answer)].correct)
    reasons = {verdict.status: verdict.why for verdict in verdicts.values()}
    failures: tuple[Status, ...] = () if correct else ("failed", "timeout")
    order: tuple[Status, ...] = (*failures, "checked", "cached")
    status: Status = next((status_name for status_name in order if status_name in reasons), "checked")
    return Verdict(correct, status, reasons.get(status, ""))


def verify_by_function(function: UserFunction) -> CachedVerifier:
    """Return a verifier by a Python function of the user, which returns 1 for a right answer.

    If the function fails for an answer, the verdict on this answer has the status `failed` or `timeout`. If the function
    cannot run at all, `grade` raises E0741 to E0744.
    """

    def check(answers: Sequence[Claim]) -> list[Verdict]:
        """Return the function's verdicts on different answers, in their order."""
        values = function.call([answer_row(value) for value in answers])
        return [
            Verdict(False, value.status, value.why)
            if isinstance(value, FailedRow)
            else Verdict(value == 1, "checked")
            for value in values
        ]

    return CachedVerifier(check, function.close)


class ChanceVerifier:
    """A verifier for rehearsals (trial runs), which counts about half of another verifier's wrong answers as right.

    Untrained models would otherwise get no reward. A hash of the question, the answer's text and its index
    (`Claim.which`) selects the half.
    """

    def __init__(self, verifier: Verifier) -> None:
        """Wrap another verifier."""
        self._verifier = verifier

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers."""
        return [
            replace(verdict, correct=verdict.correct or _counts_as_right(answer))
            for answer, verdict in zip(answers, self._verifier.grade(answers), strict=True)
        ]

    def close(self) -> None:
        """Close the wrapped verifier."""
        self._verifier.close()


def _counts_as_right(answer: Claim) -> bool:
    """Return True for about half of all answers, selected by a hash of the answer's index, question and text."""
    text = f"{answer.which}\0{answer.question}\0{answer.text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0


def answer_row(answer: Claim) -> dict[str, object]:
    """Return the dict that a user's verifier gets for an answer.

    Returns:
        `question`; `text`, the answer; `references`, all references, and `reference`, the first; `meta`, the question's
        metadata as a dict, empty if it is no JSON object.
    """
    try:
        meta = json.loads(answer.meta) if answer.meta else {}
    except ValueError:
        meta = {}
    references = answer.gold.split(SEPARATOR)
    row: dict[str, object] = {"question": answer.question, "text": answer.text, "reference": references[0]}
    row |= {"references": references, "meta": meta if isinstance(meta, dict) else {}}
    return row


def open_verifier(chosen: Comparison, tolerance: float, folder: Path, resources: Resources) -> Verifier:
    """Open the verifier of a data set: a named verifier, tests of programs, or a function of the user.

    Two processes grade if the engine is embedded, because it computes on the same cores. With other engines there is a
    process for each core of this machine, at least two.

    Args:
        chosen: The verifier as the spec has it.
        tolerance: The largest accepted distance of a rounded number, relative to the reference.
        folder: The folder that paths of the user's files are relative to.
        resources: The engine and the machine's limits.

    Raises:
        Problem: E0743 if a file of the user cannot be used, E0746 if the user has not allowed the file as it is now.
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
    """Return the verifier with a name.

    The scorer of a package may evaluate answers as code, so by default it only runs in a confined process. math-verify
    does not evaluate answers as code, and also runs unconfined.

    Args:
        kind: `math`, `exact`, or `package` (questions of reasoning-gym, scored by the package).
        workers: The most worker processes.
        seconds: The processor time for an answer.
        memory_mib: The address space of a worker in MiB.
        tolerance: The largest accepted distance of a rounded number, relative to the reference, for `math`.
        confined: False to run a package's scorer even on a machine where a process cannot be confined.

    Raises:
        Problem: E0314 if no verifier has this name.
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
