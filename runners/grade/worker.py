"""A process that checks answers, each in a copy of itself, over JSON lines; time and memory are bounded.

What it checks was written by a model, and scorers of packages may evaluate that as Python. So it is confined
(`runners.sandbox`) before it sees the first answer, and has an environment with nothing in it. Where a scorer does more
than compare texts, each answer is checked in a copy of the process that ends with it: no answer leaves anything behind for
the next one. It imports of this project what is needed for that alone, so that it starts fast, and can be killed at any
moment.

A line in is `{"gold", "text", "meta"}`; a line out is `{"correct", "outcome", "retire"}`: outcome is `checked`, `timeout`,
`failed`, or `lost` where somebody else ended the copy, and `retire` says that the process ends after this answer. The first
line out is `{"ready": true}` or `{"ready": false, "why"}`; `{"ready": false, "lacking"}` where the process cannot be
confined and must be.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from typing import Any

from runners.programs.values import create_dataset, entry_of
from runners.sandbox import CallReply, Sandbox, limit_memory, python_folders
from runners.sandbox.confine import Tell, confinable, lines, serve
from runners.sandbox.expressions import guard_sympy

Check = Callable[[str, str, str], bool]

_COMPARING = frozenset({"isinstance", "str", "len", "utils", "compute_decimal_reward"})
_VERDICTS = {b"right": True, b"wrong": False}


def load_math() -> Check:
    """Return math-verify's check of an answer inside a box, without its own timers, since this process has better timers.

    Numbers are the exception: math-verify rounds them to six decimals, so that any two small numbers are equal. Here
    they are compared by value, within the share of the reference that `meta` names, or exactly if it names none.
    """
    from math_verify import parse, verify

    guard_sympy()

    @lru_cache(maxsize=256)
    def read(text: str) -> list[Any]:
        return list(parse(f"\\boxed{{{text}}}", parsing_timeout=None))

    def check(gold: str, text: str, meta: str) -> bool:
        expected, parsed = read(gold), read(text)
        gold_value, answer_value = number_value(expected), number_value(parsed)
        if gold_value is None or answer_value is None:
            return bool(verify(expected, parsed, timeout_seconds=None)) or equal_at_points(expected, parsed)
        # What is lost in computing is a share of the whole number, and may be all of a part that is 0.
        lost = EXACT * max(map(abs, gold_value[0])) if gold_value[1] or answer_value[1] else Fraction(0)
        return all(
            abs(gold_part - answer_part) <= max(Fraction(meta or 0) * abs(gold_part), lost)
            for gold_part, answer_part in zip(gold_value[0], answer_value[0], strict=True)
        )

    return check


_MARKUP = re.compile(
    r"\\(?:text|mathrm|operatorname)\{[^{}]*\}|\\(?:begin|end)\{(?:[pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?"
    r"|_\{[^{}]*\}|\\[A-Za-z]+|[A-Z]{4,}"
)
_LETTERS = re.compile(
    r"[A-Za-z]{4}|(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc|log|ln|exp|max|min|gcd|lcm|pi)(?![A-Za-z])"
)
"""Words, and names that LaTeX writes with a backslash: without one they are products of their letters."""


def load_references() -> Check:
    """Return a check whether math-verify reads a reference as more than a text, and no word as a product of letters."""
    from math_verify import parse

    guard_sympy()

    def check(gold: str, text: str, meta: str) -> bool:
        read = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
        texts = [value for value in read if isinstance(value, str)]
        return len(read) > len(texts) and not any(_LETTERS.search(_MARKUP.sub(" ", value)) for value in texts)

    return check


EXACT = Fraction(1, 10**24)
"""Share of a number within which its value, computed to `DIGITS`, counts as the same."""
DIGITS = 30


def number_value(parsed: list[Any]) -> tuple[tuple[Fraction, Fraction], bool] | None:
    """Return the real and the imaginary part that math-verify read, and whether they were rounded to `DIGITS`.

    Return None unless it is a number without variables; `i` is not a variable.
    """
    sympy = import_module("sympy")
    if not parsed or not isinstance(parsed[0], sympy.Expr):
        return None
    names = parsed[0].free_symbols
    if any(str(name) != "i" for name in names):
        return None
    value = parsed[0].subs(dict.fromkeys(names, sympy.I)).doit()
    if isinstance(value, sympy.Rational):
        return (Fraction(int(value.p), int(value.q)), Fraction(0)), False
    parts = value.evalf(DIGITS).as_real_imag()
    if not all(isinstance(n, (sympy.Float, sympy.Integer)) and n.is_finite for n in parts):
        return None
    return (Fraction(str(parts[0])), Fraction(str(parts[1]))), True


POINTS = ((3, 7), (11, 5), (2, 13), (17, 3), (-5, 3), (-7, 11), (5, -2), (-3, -13))
"""The values of variables at which two expressions are compared: the first two, and multiples of both for more."""


def equal_at_points(left: list[Any], right: list[Any]) -> bool:
    r"""Return whether two expressions of the same variables are equal at each of `POINTS` at which both are real.

    At least three points are needed. So `\sqrt{ab}` and `\sqrt{a}\sqrt{b}` are equal, `\sqrt{x^2}` and `x` are not.
    """
    sympy = import_module("sympy")
    if not left or not right or not all(isinstance(parsed[0], sympy.Expr) for parsed in (left, right)):
        return False
    left, right = ([sympy.nsimplify(parsed[0], rational=True)] for parsed in (left, right))
    names = sorted({str(parsed) for parsed in left[0].free_symbols})
    unknown = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit, sympy.factorial)
    if not names or len(names) > 8 or {str(parsed) for parsed in right[0].free_symbols} != set(names):
        return False
    if left[0].has(*unknown) or right[0].has(*unknown):
        return False
    compared = 0
    for first, second in POINTS:
        values = {
            name: sympy.Rational(first * (i + 2) + second, 3 * i + 4)
            if i % 2 == 0
            else sympy.Rational(second * (i + 1) + 2 * first, 2 * i + 5)
            for i, name in enumerate(names)
        }
        pair = [_real_at(parsed[0], values) for parsed in (left, right)]
        if pair[0] is None or pair[1] is None:
            continue
        if abs(pair[0] - pair[1]) > EXACT * max(abs(pair[0]), abs(pair[1])):
            return False
        compared += 1
    return compared >= 3


def _real_at(expression: Any, values: dict[str, Any]) -> Fraction | None:
    """Return the value of an expression, or None if a subexpression has no real value."""
    sympy = import_module("sympy")
    numbers = {symbol: values[str(symbol)] for symbol in expression.free_symbols}
    for node in sympy.preorder_traversal(expression):
        if isinstance(node, (sympy.Pow, sympy.log)):
            base = node.args[0].subs(numbers).evalf(DIGITS)
            integer_power = isinstance(node, sympy.Pow) and node.args[1].is_integer
            if not base.is_real or (not integer_power and not base > 0):
                return None
    value = expression.subs(numbers).evalf(DIGITS)
    return (
        Fraction(str(value)) if isinstance(value, (sympy.Float, sympy.Integer)) and value.is_finite else None
    )


def load_reasoning_gym() -> Check:
    """Return a check by the data set that made a question: right if its `score_answer` gives full marks."""
    guard_sympy()
    import_module("reasoning_gym")

    def check(gold: str, text: str, meta: str) -> bool:
        fields = json.loads(meta)
        return float(_scorer(fields).score_answer(answer=text, entry=entry_of(fields))) >= 1.0

    return check


def _scorer(fields: dict[str, Any]) -> Any:
    return scorer_of(fields["task"], json.dumps(fields.get("options", {}), sort_keys=True))


@lru_cache(maxsize=64)
def scorer_of(task: str, options: str = "{}") -> Any:
    """Return a data set of reasoning-gym, whose scorer runs in this process and its sandbox."""
    return create_dataset(task, 1, 0, json.loads(options))


def compares_only(meta: str) -> bool:
    """Return whether a task's scorer only compares texts or decimals, by the names that its code refers to."""
    code = type(_scorer(json.loads(meta))).score_answer.__code__
    return _COMPARING.issuperset(code.co_names) and not code.co_freevars


CHECKS: dict[str, Callable[[], Check]] = {
    "math": load_math,
    "math_references": load_references,
    "reasoning_gym": load_reasoning_gym,
}
RUN_IN_PROCESS: dict[str, Callable[[str], bool]] = {
    "math": lambda meta: True,
    "math_references": lambda meta: True,
    "reasoning_gym": compares_only,
}
"""Checks by scorer: an answer with such metadata needs no copy, because the scorer runs nothing of it. math-verify reads
a grammar, and formulas that sympy's parser is kept from running as code."""


def message_of(reply: CallReply) -> dict[str, object]:
    """Return the message about an answer; a reply that is no verdict is a failure."""
    verdict = _VERDICTS.get(reply.data)
    if reply.status == "done":
        return {"correct": verdict is True, "outcome": "failed" if verdict is None else "checked"}
    return {"correct": False, "outcome": reply.status}


def resident_kib(status: int) -> int:
    """Return this process's resident memory in KiB; `status` is its open /proc/self/statm, or negative.

    Not `ru_maxrss` where it can be helped: a fresh process starts with its parent's, and a parent that trains a
    model would have every worker retire at once.
    """
    if status < 0:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(os.pread(status, 200, 0).split()[1]) * resource.getpagesize() // 2**10


def main(kind: str, seconds: float, memory_mib: int, must: bool = True) -> None:
    """Load a check, then answer requests until the parent closes the pipe.

    Args:
        kind: the name of the check.
        seconds: processor seconds for an answer.
        memory_mib: address space in MiB.
        must: whether nothing is checked if this process cannot be confined.
    """
    parent = os.getppid()

    def prepare(tell: Tell) -> Callable[[], None]:
        confined, status = confinable(must), -1
        with suppress(OSError):
            status = os.open("/proc/self/statm", os.O_RDONLY)
        limit_memory(memory_mib)
        check = CHECKS[kind]()
        sandbox = Sandbox(python_folders(sys.modules), confined=confined)
        sandbox.enter()

        def answer() -> None:
            for line in lines(parent):
                message = message_of(settle(sandbox, check, RUN_IN_PROCESS[kind], line, seconds))
                # Memory that a check took seldom comes back: a large process makes way for a fresh one.
                retire = resident_kib(status) > memory_mib * 2**10 // 2
                tell({**message, "retire": retire})
                if retire:
                    return

        return answer

    serve(prepare)


def settle(
    sandbox: Sandbox, check: Check, runs_in_process: Callable[[str], bool], line: bytes, seconds: float
) -> CallReply:
    """Return the reply to a request, checked in this process or in its fork.

    Args:
        sandbox: the sandbox that bounds the check.
        check: the check.
        runs_in_process: whether a request with given metadata needs no fork.
        line: the request.
        seconds: processor seconds for the check.
    """
    try:
        request = json.loads(line)
        in_process = runs_in_process(request["meta"])
    except Exception:
        return CallReply("failed")

    def work() -> bytes:
        return b"right" if check(request["gold"], request["text"], request["meta"]) else b"wrong"

    return sandbox.run_in_process(work, seconds) if in_process else sandbox.call(work, seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "confined")
