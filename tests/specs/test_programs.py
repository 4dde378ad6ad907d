"""The dozen code tasks: right programs pass their tests, wrong ones do not, and the spec is compiled and priced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.graph.job import Resources
from reodsl.graph.lower import lower
from reodsl.ir.data import AnswerReader, Code, Data, LastBox
from reodsl.ir.data import Tests as ByTests
from reodsl.language import check_file, compile_file
from reodsl.price import price
from runners.data.load import load_data
from runners.grade import Claim, Verifier
from runners.grade.verifier import open_verifier
from runners.sandbox import lacking

SPEC = Path(__file__).resolve().parents[2] / "specs" / "code" / "tasks.reo"
PROGRAMS = {
    "There are N lamps": (
        "n, m = map(int, input().split())\non = [0] * n\nfor _ in range(m):\n    a, b = map(int, input().split())\n"
        "    for i in range(a - 1, b): on[i] ^= 1\nprint(sum(on))",
        ("a - 1", "a"),
    ),
    "A shelf is": (
        "import sys\nw, n, *widths = map(int, sys.stdin.read().split())\nstand = 0\nfor each in widths:\n"
        "    w -= each\n    if w < 0: break\n    stand += 1\nprint(stand)",
        ("w < 0", "w <= 0"),
    ),
    "Leave the least": (
        "n = int(input())\nx = sorted(map(int, input().split()))[1:-1]\nprint(sum(x) / len(x))",
        ("[1:-1]", "[1:]"),
    ),
    "A path through": (
        "x = y = 0\nlast = ''\nfor step in input().strip():\n    if last and step != last: print(x, y)\n"
        "    x += {'E': 1, 'W': -1}.get(step, 0)\n    y += {'N': 1, 'S': -1}.get(step, 0)\n    last = step\nprint(x, y)",
        ("'S': -1", "'S': 1"),
    ),
    "Return the greatest": (
        "class Solution:\n    def widestGap(self, values: List[int]) -> int:\n        values = sorted(values)\n"
        "        return max((b - a for a, b in zip(values, values[1:])), default=0)",
        ("sorted(values)", "values"),
    ),
    "Return how often": (
        "from collections import Counter\nclass Solution:\n    def repeated(self, text, least: int) -> Dict[str, int]:\n"
        "        return {k: n for k, n in Counter(text).items() if n >= least}",
        (">= least", "> least"),
    ),
}
"""A right program by how its question begins, and a change that makes it wrong."""
WRONG = {
    "longest_run": ("else 1", "else 0"),
    "digit_sum": ("+= digit", "+= 1"),
    "merge_ranges": ("<=", "<"),
    "halvings": ("3 * number + 1", "number + 1"),
    "turn_words": (">=", ">"),
    "mode_of": ("-values.count", "values.count"),
}
"""A change of each published solution that makes it wrong."""


def data_of(name: str) -> Data:
    spec = compile_file(SPEC).spec
    assert spec is not None
    (found,) = (each.data for each in spec.study.arms[0].suite.benchmarks if each.data.name == name)
    return found


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    # So much time that no busy machine ends anything by the clock.
    opened = open_verifier(ByTests(seconds=60.0), 1e-4, SPEC.parent, Resources())
    yield opened
    opened.close()


def verdicts(verifier: Verifier, name: str, programs: dict[str, tuple[str, str]]) -> list[tuple[bool, bool]]:
    """Of each question, whether its right and its wrong program pass; programs by how questions begin."""
    found = []
    for row in load_data(data_of(name), SPEC.parent).iter_rows(named=True):
        (both,) = (each for begin, each in programs.items() if begin in row["question"])
        claims = [Claim(text, row["answer"], meta=row["meta"]) for text in both]
        found.append(tuple(each.correct for each in verifier.grade(claims)))
    return found


@pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
def test_right_programs_pass_and_wrong_ones_do_not(verifier: Verifier) -> None:
    programs = {begin: (text, text.replace(*change)) for begin, (text, change) in PROGRAMS.items()}
    assert all(one != two for one, two in programs.values())
    assert verdicts(verifier, "programs", programs) == [(True, False)] * 6
    lines = (SPEC.parent / "functions.jsonl").read_text().splitlines()
    functions = {}
    for row in map(json.loads, lines):
        solution = row["canonical_solution"]
        changed = solution.replace(*WRONG[row["entry_point"]])
        assert changed != solution
        functions[row["entry_point"]] = (row["prompt"] + solution, row["prompt"] + changed)
    assert verdicts(verifier, "functions", functions) == [(True, False)] * 6


def test_it_compiles_and_is_priced() -> None:
    compiled = compile_file(SPEC)
    assert compiled.diagnostics == ()
    assert compiled.spec is not None
    data = data_of("functions")
    assert (data.verifier, data.answer) == (ByTests(seconds=5.0), (Code(),))
    graph = lower(compiled.spec)
    assert price(graph, compiled.spec).tasks["base.eval"].verified > 0
    # What reads the files knows that references are tests, and not which limits programs have.
    assert {task.payload["data"]["verifier"]["seconds"] for task in graph.tasks if task.kind == "data"} == {
        10.0
    }


@pytest.mark.parametrize(
    ("settings", "readers"),
    [
        ("verifier = tests()", (Code(),)),
        ("verifier = tests(), answer = boxed", (LastBox(),)),
        ("verifier = exact, answer = [code, boxed]", (Code(), LastBox())),
        ("verifier = exact", (LastBox(),)),
    ],
)
def test_programs_are_read_from_blocks_of_code(
    settings: str, readers: tuple[AnswerReader, ...], tmp_path: Path
) -> None:
    (tmp_path / "spec.reo").write_text(
        SPEC.read_text().replace("verifier  = tests(seconds: 5 seconds)", settings)
    )
    spec = compile_file(tmp_path / "spec.reo").spec
    assert spec is not None
    assert spec.study.arms[0].suite.benchmarks[0].data.answer == readers


def test_a_program_without_time_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.read_text().replace("5 seconds", "0 seconds"))
    for name in ("functions", "programs"):
        (tmp_path / f"{name}.jsonl").write_text((SPEC.parent / f"{name}.jsonl").read_text())
    assert {each.code for each in check_file(tmp_path / "spec.reo").diagnostics} == {"E0303", "E0304"}
