"""Tests of programs in the shapes of published sets, and what has none of them."""

from __future__ import annotations

import json

import pytest

from runners.programs.tests import Calls, Inputs, Script, TestCases, Unreadable, read_tests

PAIRS = {"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", "7"]}
LIVE = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
FUNCTIONAL = [{"input": '[1, 2]\n"a"', "output": "[2, 1]", "testtype": "functional"}]
CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"


@pytest.mark.parametrize(
    ("references", "meta", "tests"),
    [
        ([json.dumps(PAIRS)], {}, Inputs((("1 2\n", "3\n"), ("3\n4\n", "7")))),
        (
            [json.dumps({"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"})],
            {},
            Calls("add", (([1, 2], 3),)),
        ),
        ([json.dumps(LIVE)], {"metadata": "{}"}, Inputs((("1 2\n", "3\n"),))),
        (
            [json.dumps(FUNCTIONAL)],
            {"metadata": '{"func_name": "swap"}'},
            Calls("swap", (([[1, 2], "a"], [2, 1]),)),
        ),
        ([json.dumps(FUNCTIONAL)], {}, Calls("", (([[1, 2], "a"], [2, 1]),))),
        (["assert f(1) == 2", "assert f(2) == 3"], {}, Script("assert f(1) == 2\nassert f(2) == 3")),
        (
            ["assert f(1) == 2"],
            {"test_setup_code": "import math", "test_imports": ["import re"]},
            Script("import re\nimport math\nassert f(1) == 2"),
        ),
        ([CHECK], {"entry_point": "f"}, Script(CHECK, "f")),
        ([CHECK + "check(f)\n"], {"entry_point": "f"}, Script(CHECK + "check(f)\n")),
    ],
)
def test_shapes(references: list[str], meta: dict[str, object], tests: TestCases) -> None:
    assert read_tests(tuple(references), json.dumps(meta)) == tests


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("42", "JSON"),
        ("{}", "JSON"),
        ('{"inputs": [], "outputs": []}', "no tests"),
        ('{"inputs": ["1"], "outputs": []}', "1 inputs and 0"),
        ('{"inputs": [1], "outputs": ["1"]}', "no text"),
        ('[{"input": "1", "output": "1"}, {"input": "1"}]', "no `input` or no `output`"),
        ('[{"input": "x", "output": "1", "testtype": "functional"}]', "no JSON"),
        ("assert f(1) = 2", "line 1"),
        ("f(1) + 2", "asserts nothing"),
        ("[" * 10_000, "parse"),
        (CHECK, "entry_point"),
    ],
)
def test_what_has_no_shape(reference: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_tests((reference,), "")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, "[" * 900 + "]" * 900, "\ud800"])
def test_tests_beyond_the_bounds_are_unreadable(value: str) -> None:
    for tests in (value, f'{{"fn_name": "f", "inputs": [[{value}]], "outputs": [1]}}'):
        with pytest.raises(Unreadable):
            read_tests((tests,))
    assert read_tests(("assert f(1) == 2",), f'{{"fn_name": {value}}}') == read_tests(("assert f(1) == 2",))
