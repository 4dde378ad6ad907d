"""Mutants of a small source, their names, and the page that follows from the results."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mutants as module
from benchmarks.mutants import AREAS, EQUAL, PAGE, ROOT, judged, mapped, mutants, page, sample, tried

SOURCE = '''
"""A docstring."""

LIMIT: int = 3

def f(a, b=1):
    if a < b and not a:
        a += b[0]
        return -a
    return f"{a + 1}" or max(a, 2.5)
'''


def test_each_kind_of_change() -> None:
    """One change each, none of a docstring, an annotation or a text with values in it."""
    made = {one.name.partition(": ")[2]: one for one in mutants("numbers", "a.py", SOURCE)}
    assert set(made) == {
        "3 → 4", "1 → 0", "a < b → (a <= b)", "a < b → (a >= b)", "a < b and (not a) → (a < b or not a)", "not a → a",
        "a += b[0] → pass", "0 → 1", "-a → a", "f'{a + 1}' or max(a, 2.5) → (f'{a + 1}' and max(a, 2.5))", "max → min",
        "2.5 → 3.5",
    }  # fmt: skip
    for one in made.values():
        ast.parse(one.text)
        before, after = SOURCE.splitlines(), one.text.splitlines()
        assert [b.strip() for b, a in zip(before, after, strict=True) if b != a] == [one.line]


def test_a_change_elsewhere_leaves_names_and_order_as_they_are() -> None:
    one = list(mutants("numbers", "a.py", SOURCE))
    other = list(mutants("numbers", "a.py", f"{SOURCE}\n\ndef g():\n    return 7\n"))
    assert [each.name for each in other[: len(one)]] == [each.name for each in one]
    assert len({each.rank for each in other}) == len(other) == len(one) + 1


def test_every_area_takes_its_turn() -> None:
    first = sample(ROOT)[: len(AREAS)]
    assert [one.area for one in first] == list(AREAS)
    for _, tests in AREAS.values():
        assert all((ROOT / each).exists() for each in tests)


def test_shares_are_of_those_that_change_something() -> None:
    outcomes = {"a": "killed", "b": "timeout", "c": "survived", "d": "survived"}
    rows = {name: {"mutant": name, "area": "price", "outcome": outcome} for name, outcome in outcomes.items()}
    text = page(rows, {"d": "it sorts what is sorted"})
    assert "| price | 4 | 1 | 2 | 1 | 67% |" in text
    assert "- `c`\n" in text
    assert "- `d`: it sorts what is sorted" in text


def test_the_page_is_that_of_the_results() -> None:
    equal = json.loads(EQUAL.read_text())
    if not tried():
        pytest.skip("nothing was tried yet")
    assert page(tried(), equal) in PAGE.read_text()


CODE = """
LIMIT = 3

def used(a):
    return a + LIMIT

def shared():
    return 5

def unused():
    return 7
"""
TESTS = """
import pytest
import changed_code

@pytest.fixture(scope="module")
def five():
    return changed_code.shared()

def test_used():
    assert changed_code.used(1) == 4

def test_first(five):
    pass

def test_second(five):
    assert five == 5
"""


def test_the_tests_that_run_a_line_judge_its_mutants(tmp_path: Path) -> None:
    """What a shared fixture runs counts for each of its tests; what runs at import is judged by all that run the file.

    It runs in a process without another pytest, as `make mutants` does.
    """
    code = "import sys; from tests.benchmarks.test_mutants import judge_small_file; judge_small_file(sys.argv[1])"
    run = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def judge_small_file(folder: str) -> None:
    """Hold the lines that tests of a small file run, and the outcomes of its mutants."""
    tmp_path = Path(folder)
    module.COPY, module.MAP = tmp_path, tmp_path / "map.json"
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    code = tmp_path / "changed_code.py"
    code.write_text(CODE)
    tests = mapped(["test_it.py"], [code.name])
    lines = {name.partition("::")[2]: {line for _, line in lines} for name, (_, lines) in tests.items()}
    assert lines == {"": set(), "test_used": {5}, "test_first": {8}, "test_second": {8}}
    outcomes = {}
    for one in mutants("numbers", code.name, CODE):
        module.put(code, one.text)
        outcomes[one.name.partition(": ")[2]] = judged(one, tests)
    survived = {"7 → 8": "survived"}
    assert outcomes == survived | dict.fromkeys(["3 → 4", "a + LIMIT → (a - LIMIT)", "5 → 6"], "killed")
