"""A worker process that checks answers, with bounded time and memory, over lines of JSON.

Models wrote the answers, and scorers of packages may evaluate them as Python. So the process is confined (`runners.sandbox`)
before it reads the first answer, and has an empty environment. If a scorer does more than compare texts, a fork of the
process checks each answer, so that no answer affects the next. The process imports as little as possible, so that it starts
fast, and may be killed at any time.

A request is `{"gold", "text", "meta"}` and a reply `{"correct", "outcome", "retire"}`. The outcome is `checked`, `timeout`,
`failed`, or `lost` if another process killed the fork; with `retire` the process ends after the reply. The first line to the
parent is `{"ready": true}`, `{"ready": false, "why"}`, or `{"ready": false, "lacking"}` if the process must be confined and
cannot be.
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
    """Return the check of mathematical answers: math-verify for expressions, and a comparison by value for numbers.

    math-verify rounds numbers to six decimals, so that all small numbers would be equal. Its timers are turned off, since
    the sandbox bounds the time.
    """
    from math_verify import parse, verify

    guard_sympy()

    @lru_cache(maxsize=256)
    def parse_boxed(text: str) -> list[Any]:
        return list(parse(f"\\boxed{{{text}}}", parsing_timeout=None))

    def check(gold: str, text: str, meta: str) -> bool:
        """Return whether an answer agrees with a reference; `meta` is the relative tolerance, or "" for exact numbers."""
        expected, parsed = parse_boxed(gold), parse_boxed(text)
        gold_value, answer_value = number_value(expected), number_value(parsed)
        if gold_value is None or answer_value is None:
            return bool(verify(expected, parsed, timeout_seconds=None)) or equal_at_points(expected, parsed)
        # The rounding error is relative to the absolute value, and may be larger than a real or imaginary part.
        error = EXACT * max(map(abs, gold_value[0])) if gold_value[1] or answer_value[1] else Fraction(0)
        return all(
            abs(gold_part - answer_part) <= max(Fraction(meta or 0) * abs(gold_part), error)
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
"""Words, and names of functions without LaTeX's backslash: math-verify would read both as products of their letters."""


def load_references() -> Check:
    """Return the check whether math-verify can read a reference as mathematics."""
    from math_verify import parse

    guard_sympy()

    def check(gold: str, text: str, meta: str) -> bool:
        """Return whether math-verify parses a reference, and takes no word in it for a product; `text` is not used."""
        read = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
        texts = [value for value in read if isinstance(value, str)]
        return len(read) > len(texts) and not any(_LETTERS.search(_MARKUP.sub(" ", value)) for value in texts)

    return check


EXACT = Fraction(1, 10**24)
"""The relative difference below which two values that were computed to `DIGITS` count as equal."""
DIGITS = 30
"""The number of decimal digits to which values are computed."""


def number_value(parsed: list[Any]) -> tuple[tuple[Fraction, Fraction], bool] | None:
    """Return the value of an answer or reference that is a number without variables.

    Args:
        parsed: The result of math-verify's `parse`; the variable `i` is the imaginary unit.

    Returns:
        The real and the imaginary part, and whether they were rounded to `DIGITS`; None for anything but a number.
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
"""Pairs of numbers, from which each variable gets a different value, to compare two expressions."""


def equal_at_points(left: list[Any], right: list[Any]) -> bool:
    r"""Return whether two expressions have the same variables and equal values at all `POINTS` at which both are real.

    There must be at least three such points. `\sqrt{ab}` and `\sqrt{a}\sqrt{b}` are equal, `\sqrt{x^2}` and `x` are not.

    Args:
        left: The result of math-verify's `parse` for one expression.
        right: The result for the other.
    """
    sympy = import_module("sympy")
    if not left or not right or not all(isinstance(parsed[0], sympy.Expr) for parsed in (left, right)):
        return False
    left, right = ([sympy.nsimplify(parsed[0], rational=True)] for parsed in (left, right))
    names = sorted({str(symbol) for symbol in left[0].free_symbols})
    unsupported = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit, sympy.factorial)
    has_same_names = {str(symbol) for symbol in right[0].free_symbols} == set(names)
    if not (has_same_names and 0 < len(names) <= 8) or any(x[0].has(*unsupported) for x in (left, right)):
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
    """Return the value of an expression with numbers for its variables (by name); None if a subexpression is not real."""
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
    """Return the check by reasoning-gym's data sets, whose `score_answer` has to give an answer the score 1."""
    guard_sympy()
    import_module("reasoning_gym")

    def check(gold: str, text: str, meta: str) -> bool:
        """Return whether the data set that generated a question (`meta`) accepts an answer; `gold` is not used."""
        fields = json.loads(meta)
        return float(_scorer(fields).score_answer(answer=text, entry=entry_of(fields))) >= 1.0

    return check


def _scorer(fields: dict[str, Any]) -> Any:
    """Return the data set of a question's metadata, with its task and options."""
    return scorer_of(fields["task"], json.dumps(fields.get("options", {}), sort_keys=True))


@lru_cache(maxsize=64)
def scorer_of(task: str, options: str = "{}") -> Any:
    """Return the data set of a task of reasoning-gym, for its `score_answer`; `options` is JSON."""
    return create_dataset(task, 1, 0, json.loads(options))


def compares_only(meta: str) -> bool:
    """Return whether the scorer of a question's task only compares texts or decimals, by the names in its code.

    Args:
        meta: The metadata of the question, as JSON.
    """
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
"""For each check, whether an answer with some metadata is checked without a fork, because the scorer runs none of its code.

math-verify parses a grammar, and `guard_sympy` keeps sympy's parser from running code."""


def message_of(reply: CallReply) -> dict[str, object]:
    """Return the reply to the parent for the result of a check; bytes other than a verdict are a failure."""
    verdict = _VERDICTS.get(reply.data)
    if reply.status == "done":
        return {"correct": verdict is True, "outcome": "failed" if verdict is None else "checked"}
    return {"correct": False, "outcome": reply.status}


def resident_kib(status: int) -> int:
    """Return the resident memory of this process in KiB.

    `ru_maxrss` is only a fallback, since a new process starts with the value of its parent: if the parent trains a model,
    every worker would retire at once.

    Args:
        status: The descriptor of the open `/proc/self/statm`, or -1 if there is none.
    """
    if status < 0:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(os.pread(status, 200, 0).split()[1]) * resource.getpagesize() // 2**10


def main(kind: str, seconds: float, memory_mib: int, must_confine: bool = True) -> None:
    """Load a check, then answer requests until the parent closes the pipe.

    Args:
        kind: The name of the check, a key of `CHECKS`.
        seconds: The limit of processor time for an answer.
        memory_mib: The limit of the address space in MiB.
        must_confine: True to end if this process cannot be confined.
    """
    parent = os.getppid()

    def prepare(tell: Tell) -> Callable[[], None]:
        """Load the check and confine this process; return the function that answers requests by `tell`."""
        confined, status = confinable(must_confine), -1
        with suppress(OSError):
            status = os.open("/proc/self/statm", os.O_RDONLY)
        limit_memory(memory_mib)
        check = CHECKS[kind]()
        sandbox = Sandbox(python_folders(sys.modules), confined=confined)
        sandbox.enter()

        def answer() -> None:
            """Answer requests until there are no more, or until this process is large."""
            for line in lines(parent):
                message = message_of(settle(sandbox, check, RUN_IN_PROCESS[kind], line, seconds))
                # A new process replaces a large process, because memory that a check took is seldom freed.
                retire = resident_kib(status) > memory_mib * 2**10 // 2
                tell({**message, "retire": retire})
                if retire:
                    return

        return answer

    serve(prepare)


def settle(
    sandbox: Sandbox, check: Check, runs_in_process: Callable[[str], bool], line: bytes, seconds: float
) -> CallReply:
    """Return the result of a request's check, which runs in this process or in a fork.

    Args:
        sandbox: The sandbox of this process.
        check: The check.
        runs_in_process: Returns whether a request with some metadata is checked without a fork.
        line: The request as a line of JSON.
        seconds: The limit of processor time.
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
