"""Read the tests of a question, in the forms of published data sets of code questions.

| form | data set | content |
| --- | --- | --- |
| `{"inputs": […], "outputs": […]}` | APPS, TACO | the standard inputs of a program, and its expected outputs |
| the same with `"fn_name"` | APPS, TACO | the arguments of a function, and its expected results |
| `[{"input", "output", "testtype"}, …]` | LiveCodeBench | one of the two forms above, by `testtype` |
| statements, one text or several | MBPP | `assert f(1) == 2` |
| a text that defines `check` | HumanEval | `check` is called with the function that `entry_point` names |
| a text that defines `test_…` | pytest | the functions are called in order; `solution` is the answer as a module |

This module does not run tests.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runners.sandbox.untrusted import Undecodable, decoded

LONGEST_TESTS = 2**26
"""The largest size in bytes of the tests or the metadata of a question."""
_NAMES = ("entry_point", "fn_name", "func_name")
"""The keys of metadata or tests that name the function to call."""
_SETUPS = ("test_imports", "test_setup_code")
"""The keys of metadata with statements to run before the tests."""


class Unreadable(Exception):
    """Tests in none of the known forms, with the reason."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Pairs of a program's standard input and its expected output."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Calls:
    """Pairs of a function's arguments and its expected result; an empty `name` means the answer's last function."""

    name: str
    pairs: tuple[tuple[list[Any], Any], ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Python that ends without an error if the answer is right.

    `entry` names the function that is passed to the script's `check`, if it defines one.
    """

    text: str
    entry: str = ""


TestCases = Inputs | Calls | Script


@lru_cache(maxsize=256)
def read_tests(references: tuple[str, ...], meta: str = "") -> TestCases:
    """Return the tests of a question, in one of the forms that the module lists.

    A single text of JSON has inputs and outputs. Any other text, or several texts, are tests in Python.

    Args:
        references: The reference answers of the question: the tests.
        meta: The question's metadata as JSON, which may name the function to call and statements to run before the
            tests.

    Raises:
        Unreadable: The tests have none of the known forms.
    """
    facts = _read_facts(meta)
    name = next((str(facts[key]) for key in _NAMES if facts.get(key)), "")
    try:
        content = decoded(references[0], LONGEST_TESTS) if len(references) == 1 else None
    except Undecodable:
        content = None
    if content is None:
        return _read_script(references, facts, name)
    match content:
        case {"inputs": list(inputs), "outputs": list(outputs), **settings}:
            if len(inputs) != len(outputs):
                raise Unreadable(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
            function = next((str(settings[key]) for key in _NAMES if settings.get(key)), name)
            pairs = list(zip(inputs, outputs, strict=True))
            tests: Inputs | Calls = _read_calls(function, pairs) if function else _read_inputs(pairs)
        case [{"input": _, "output": _}, *_]:
            pairs = [_read_pair(test) for test in content]
            functional = any(test.get("testtype") == "functional" for test in content)
            tests = _read_calls(name, pairs) if functional else _read_inputs(pairs)
        case _:
            raise Unreadable("it is JSON, but neither inputs with outputs nor a list of pairs of both")
    if not tests.pairs:
        raise Unreadable("it has no tests")
    return tests


def _read_facts(meta: str) -> dict[str, Any]:
    """Return the values of a question's metadata, and of its inner object `metadata`, as in LiveCodeBench.

    An outer value replaces an inner value of this name. The result is empty if the texts cannot be decoded.
    """
    try:
        facts = decoded(meta, LONGEST_TESTS) if meta else {}
        inner = facts.get("metadata") if isinstance(facts, dict) else None
        inner_facts = decoded(inner, LONGEST_TESTS) if isinstance(inner, str) and inner else inner
    except Undecodable:
        return {}
    return {
        **(inner_facts if isinstance(inner_facts, dict) else {}),
        **(facts if isinstance(facts, dict) else {}),
    }


def _read_pair(test: Any) -> tuple[Any, Any]:
    """Return the input and the output of a test in LiveCodeBench's form."""
    if not isinstance(test, dict) or not {"input", "output"} <= test.keys():
        raise Unreadable("a pair has no `input` or no `output`")
    return test["input"], test["output"]


def _read_inputs(pairs: list[tuple[Any, Any]]) -> Inputs:
    """Return pairs of a program's input and expected output, which may be lists of lines."""
    return Inputs(tuple((_text_of(text), _text_of(expected)) for text, expected in pairs))


def _text_of(value: Any) -> str:
    """Return a text, or a list of lines as one text; raise Unreadable for other values."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value) + "\n"
    if not isinstance(value, str):
        raise Unreadable("an input or output of a program is no text")
    return value


def _read_calls(name: str, pairs: list[tuple[Any, Any]]) -> Calls:
    """Return the calls of a function, from pairs of arguments and expected result.

    Args:
        name: The name of the function; empty if unknown.
        pairs: For each call, its arguments and its expected result: a list and a value, or a text with one argument as
            JSON per line and a text of JSON.

    Raises:
        Unreadable: The arguments are no list, or a text is no JSON.
    """
    calls = []
    for arguments, expected in pairs:
        try:
            if isinstance(arguments, str):
                arguments = [decoded(line, LONGEST_TESTS) for line in arguments.split("\n") if line.strip()]
                expected = decoded(expected, LONGEST_TESTS) if isinstance(expected, str) else expected
        except Undecodable:
            raise Unreadable("the arguments of a function, or its result, are no JSON") from None
        if not isinstance(arguments, list):
            raise Unreadable("the arguments of a function are no list")
        calls.append((arguments, expected))
    return Calls(name, tuple(calls))


def _read_script(references: Sequence[str], facts: Mapping[str, Any], name: str) -> Script:
    """Return tests in Python as one script, after the metadata's statements to run before them.

    Args:
        references: The texts of the tests.
        facts: The metadata, which may have statements to run before the tests.
        name: The name of the function that `check` gets; empty if unknown.

    Raises:
        Unreadable: The tests do not parse, assert nothing, or lack the name that `check` needs.
    """
    setup_lines: list[str] = []
    for key in _SETUPS:
        setup = facts.get(key)
        setup_lines += setup if isinstance(setup, list) else [setup] if isinstance(setup, str) else []
    text = "\n".join([*setup_lines, *references])
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        line = getattr(failure, "lineno", None)
        where = f" (line {line})" if line else ""
        raise Unreadable(f"it is not JSON, and as Python it does not parse{where}") from None
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
