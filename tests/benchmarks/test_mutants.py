"""Mutants of a small source, their names, and the page that follows from the results."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from benchmarks import mutants as module
from benchmarks.mutants import AREAS, EQUAL, PAGE, ROOT, Trial, changed, files, mutants, page, sample, tried

pytestmark = pytest.mark.slow

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
    assert made.keys() == {
        "3 → 4", "a < b → (a <= b)", "a < b → (a >= b)", "a < b and (not a) → (a < b or not a)", "not a → a",
        "a += b[0] → pass", "0 → 1", "-a → a", "f'{a + 1}' or max(a, 2.5) → (f'{a + 1}' and max(a, 2.5))", "max → min",
        "2.5 → 3.5",
    }  # fmt: skip
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    for name, one in made.items():
        after = ast.unparse(changed(SOURCE, one.number)).splitlines()
        (line,) = (new for old, new in zip(before, after, strict=True) if old != new)
        assert name.partition(" → ")[2].strip("()") in line


def test_a_change_elsewhere_leaves_names_and_order_as_they_are() -> None:
    one = list(mutants("numbers", "a.py", SOURCE))
    other = list(mutants("numbers", "a.py", f"{SOURCE}\n\ndef g():\n    return 7\n"))
    assert [each.name for each in other[: len(one)]] == [each.name for each in one]
    assert len({each.name for each in other}) == len(other) == len(one) + 1


def test_words_alone_change_no_fingerprint() -> None:
    before, words, code = (
        [one.code for one in mutants("numbers", "a.py", f"def f(a):\n    {text}\n    return 7\n")]
        for text in ("'Return seven.'", "'''Return it.\n\n    Always.'''  # 7", "a()")
    )
    assert before == words
    assert before[0] not in code


def test_every_area_takes_its_turn_with_what_was_tried() -> None:
    everyone = sample({})
    assert [one.area for one in everyone[: len(AREAS)]] == list(AREAS)
    *_, stale, late = (one for one in everyone if one.area == "price")
    rows = {late.name: {"code": late.code}, stale.name: {"code": "of another text"}}
    of_price = [one for one in sample(rows) if one.area == "price"]
    assert (of_price[0], of_price[-1]) == (late, stale)
    for part in "; ".join(chain.from_iterable(AREAS.values())).split("; "):
        folder, _, names = part.partition(": ")
        assert all(files(f"{folder}: {name}") for name in names.split())


def test_shares_are_of_those_that_change_something() -> None:
    outcomes = {"a": "killed", "b": "timeout", "c": "survived", "d": "survived"}
    rows = {
        name: {"mutant": name, "area": "price", "outcome": outcome, "line": "x = 1"}
        for name, outcome in outcomes.items()
    }
    text = page(rows, {"d": "it sorts what is sorted"})
    assert "| price | 4 | 1 | 2 | 1 | 67% |" in text
    assert text.endswith("Survivors:\n\n- `c`, in `x = 1`")


def test_the_page_is_that_of_the_results() -> None:
    equal = json.loads(EQUAL.read_text())
    assert page(tried(), equal) in PAGE.read_text()


CODE = """
LIMIT = 3

def used(a):
    return a + LIMIT

def shared():
    return 5

def unused():
    return 7

def loose(a):
    return a > 9

def endless(a):
    while a:
        a -= 1
"""
TESTS = """
import pytest
import changed_code
from changed_code import LIMIT

@pytest.fixture(scope="module")
def five():
    return changed_code.shared()

def test_used():
    assert changed_code.used(1) == 4

def test_limit():
    assert LIMIT == 3

def test_loose():
    assert changed_code.loose(12)
    assert not changed_code.loose(2)

def test_first(five):
    pass

def test_second(five):
    assert five == 5

def test_ends():
    changed_code.endless(2)

def test_fails_without_any():
    assert changed_code.unused() == 8
"""


def test_the_tests_that_reach_a_line_judge_its_mutants(tmp_path: Path) -> None:
    """What a shared fixture reaches counts for each of its tests, and one that fails anyway for none.

    It runs in a process without another pytest, as `make mutants` does.
    """
    code = "import sys; from tests.benchmarks.test_mutants import judge_small_file; judge_small_file(sys.argv[1])"
    run = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def judge_small_file(folder: str) -> None:
    """Hold the outcomes of the mutants of a small file."""
    module.ROOT = Path(folder)
    module.REACHED = module.ROOT / "reached.json"
    (module.ROOT / "test_it.py").write_text(TESTS)
    (module.ROOT / "changed_code.py").write_text(CODE)
    sys.path.insert(0, folder)
    outcomes = {}

    def keep(one: module.Mutant, outcome: str) -> None:
        outcomes[one.name.partition(": ")[2]] = outcome

    todo = list(mutants("numbers", "changed_code.py", CODE))
    pytest.main(["-s", "-p", "no:cacheprovider", "--rootdir", folder, folder], [Trial(todo, keep, spare=2)])
    assert outcomes == dict.fromkeys(["3 → 4", "a + LIMIT → (a - LIMIT)", "5 → 6"], "killed") | {
        "7 → 8": "survived",
        "a > 9 → (a >= 9)": "survived",
        "a > 9 → (a <= 9)": "killed",
        "9 → 10": "survived",
        "a -= 1 → pass": "timeout",
        "1 → 0": "timeout",
    }
