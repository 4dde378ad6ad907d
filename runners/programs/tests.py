"""Read the tests of a question, in the shapes that published sets of code questions have them.

| shape | of | what it is |
| --- | --- | --- |
| `{"inputs": […], "outputs": […]}` | APPS, TACO | what a program reads and has to print |
| the same with `"fn_name"` | APPS, TACO | arguments of a function, and what it has to return |
| `[{"input", "output", "testtype"}, …]` | LiveCodeBench | the same two, by `testtype` |
| statements, one text or several | MBPP | `assert f(1) == 2` |
| a text that defines `check` | HumanEval | called with the function that `entry_point` names |
| a text that defines `test_…` | pytest's | called one after another; `solution` is the answer as a module |

Nothing here runs any of it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runners.sandbox.untrusted import Undecodable, decoded

LONGEST_TESTS = 2**26
"""Bytes of the tests or the metadata of a question."""
_NAMES = ("entry_point", "fn_name", "func_name")
_SETUPS = ("test_imports", "test_setup_code")


class Unreadable(Exception):
    """Tests that have none of the shapes, with the reason."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Pairs of a program's standard input and its expected output."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Calls:
    """Pairs of a function's arguments and its expected result; without a `name` the answer's last function is called."""

    name: str
    pairs: tuple[tuple[list[Any], Any], ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Python that ends without an error if the answer is right; `entry` names the function that its `check` gets."""

    text: str
    entry: str = ""


TestCases = Inputs | Calls | Script


@lru_cache(maxsize=256)
def read_tests(references: tuple[str, ...], meta: str = "") -> TestCases:
    """Return the tests in a question's reference; `meta` (JSON) may name a function and statements to run before.

    Raises Unreadable.
    """
    facts = _facts(meta)
    name = next((str(facts[key]) for key in _NAMES if facts.get(key)), "")
    try:
        content = decoded(references[0], LONGEST_TESTS) if len(references) == 1 else None
    except Undecodable:
        content = None
    if content is None:
        return _script(references, facts, name)
    match content:
        case {"inputs": list(inputs), "outputs": list(outputs), **more}:
            if len(inputs) != len(outputs):
                raise Unreadable(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
            function = next((str(more[key]) for key in _NAMES if more.get(key)), name)
            pairs = list(zip(inputs, outputs, strict=True))
            read: Inputs | Calls = _calls(function, pairs) if function else _inputs(pairs)
        case [{"input": _, "output": _}, *_]:
            pairs = [_pair(test) for test in content]
            functional = any(test.get("testtype") == "functional" for test in content)
            read = _calls(name, pairs) if functional else _inputs(pairs)
        case _:
            raise Unreadable("it is JSON, and neither inputs with outputs nor a list of such pairs")
    if not read.pairs:
        raise Unreadable("there are no tests in it")
    return read


def _facts(meta: str) -> dict[str, Any]:
    """Return the facts in the question's metadata, and those in its inner `metadata`, as LiveCodeBench has it."""
    try:
        facts = decoded(meta, LONGEST_TESTS) if meta else {}
        inner = facts.get("metadata") if isinstance(facts, dict) else None
        inside = decoded(inner, LONGEST_TESTS) if isinstance(inner, str) and inner else inner
    except Undecodable:
        return {}
    return {**(inside if isinstance(inside, dict) else {}), **(facts if isinstance(facts, dict) else {})}


def _pair(test: Any) -> tuple[Any, Any]:
    if not isinstance(test, dict) or not {"input", "output"} <= test.keys():
        raise Unreadable("one of the pairs has no `input` or no `output`")
    return test["input"], test["output"]


def _inputs(pairs: list[tuple[Any, Any]]) -> Inputs:
    return Inputs(tuple((_lines(text), _lines(expected)) for text, expected in pairs))


def _lines(value: Any) -> str:
    """Return a text, or a list of its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value) + "\n"
    if not isinstance(value, str):
        raise Unreadable("an input or output of a program is no text")
    return value


def _calls(name: str, pairs: list[tuple[Any, Any]]) -> Calls:
    """Return pairs of arguments and result: lists and values, or texts with a JSON value on each line."""
    read = []
    for arguments, expected in pairs:
        try:
            if isinstance(arguments, str):
                arguments = [decoded(line, LONGEST_TESTS) for line in arguments.split("\n") if line.strip()]
                expected = decoded(expected, LONGEST_TESTS) if isinstance(expected, str) else expected
        except Undecodable:
            raise Unreadable("the arguments of a function, or its result, are no JSON") from None
        if not isinstance(arguments, list):
            raise Unreadable("the arguments of a function are no list")
        read.append((arguments, expected))
    return Calls(name, tuple(read))


def _script(references: Sequence[str], facts: Mapping[str, Any], name: str) -> Script:
    """Return tests in Python with the set-up that the metadata names. Raises Unreadable if they assert nothing."""
    before: list[str] = []
    for key in _SETUPS:
        setup = facts.get(key)
        before += setup if isinstance(setup, list) else [setup] if isinstance(setup, str) else []
    text = "\n".join([*before, *references])
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        line = getattr(failure, "lineno", None)
        position = f" (line {line})" if line else ""
        raise Unreadable(f"it is not JSON, and as Python it does not parse{position}") from None
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    if "check" in defined and "check" not in calls and not name:
        raise Unreadable(
            "it defines `check`, and nothing names the function to check: keep the column `entry_point`"
        )
    tests = any(isinstance(node, (ast.Assert, ast.Raise)) for node in ast.walk(tree))
    if not tests:
        raise Unreadable("it asserts nothing")
    return Script(text, "" if "check" in calls else name)
