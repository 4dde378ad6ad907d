"""Programs against tests: right and wrong ones of each shape, and programs that forge, escape, or take too much."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from reodsl.diagnostics import Problem
from runners.grade import SEPARATOR, Claim, Verdict
from runners.grade.verifier import verify_programs
from runners.programs import judge as judge_module
from runners.programs.judge import ProgramJudge, ProgramLimits, same_output, same_value
from runners.programs.tests import read_tests
from runners.sandbox import lacking
from tests.sandbox.test_breakouts import BREAKOUTS, Scene

confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
PRINTS = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]})
RETURNS = json.dumps({"inputs": [[[1, 2]], [[3]]], "outputs": [3, 3], "fn_name": "f"})
ASSERTS = SEPARATOR.join(["assert f(1) == 2", "assert set(f(2) for _ in range(3)) == {3}"])
CHECK = """def check(candidate):
    for i in range(9):
        assert candidate(i) == i + 1
    try:
        candidate("a")
        assert False
    except TypeError:
        pass
"""
MODULE = """from solution import Node, f
def test_values():
    node = Node(3)
    node.left = Node(4)
    assert node.left.value == 4
    assert f(node) == 7
def test_nothing():
    assert f(None) is None
"""
NODE = """class Node:
    def __init__(self, value):
        self.value, self.left = value, None
def f(node):
    return node and node.value + node.left.value
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[ProgramJudge]:
    # So much time that no busy machine ends anything by the clock.
    opened = ProgramJudge(ProgramLimits(30.0, 512), 1e-4)
    yield opened
    opened.close()


def outcome(judge: ProgramJudge, program: str, tests: str, **meta: Any) -> str:
    return judge.judge([(program, read_tests(tuple(tests.split(SEPARATOR)), json.dumps(meta)))])[0]


def left_of(judge: ProgramJudge) -> list[psutil.Process]:
    """Copies of its processes that do not end by themselves. A session says that it is closed just before it ends."""
    children = [each for pid in judge.pids() for each in psutil.Process(pid).children(recursive=True)]
    return list(psutil.wait_procs(children, timeout=60)[1])


@confined
@pytest.mark.parametrize(
    ("tests", "meta", "right", "wrong"),
    [
        (PRINTS, {}, "print(sum(map(int, input().split())))", "print(3)"),
        (PRINTS, {}, "import sys\na, b = sys.stdin.read().split()\nprint(int(a) + int(b)); sys.exit()", "print(3)"),
        (PRINTS, {}, "a, b = open(0).read().split()\nimport os\nos.write(1, b'%d' % (int(a) + int(b)))\nos._exit(0)", "1/0"),
        (PRINTS, {}, "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()", "="),
        (RETURNS, {}, "def f(x): return sum(x)", "def f(x): return 3 + len(x) % 2"),
        (RETURNS, {}, "class Solution:\n    def f(self, x: List[int]) -> int:\n        return sum(x)", "def g(x): return 3"),
        (ASSERTS, {}, "def f(x):\n    print('so'); return x + 1", "def f(x): return 2"),
        (CHECK, {"entry_point": "f"}, "def f(x): return x + 1", "def f(x): return int(x) + 1"),
        (MODULE, {}, NODE, NODE.replace("+", "-")),
    ],
)  # fmt: skip
def test_programs_of_each_shape(
    judge: ProgramJudge, tests: str, meta: dict[str, str], right: str, wrong: str
) -> None:
    assert outcome(judge, right, tests, **meta) == "right"
    assert outcome(judge, wrong, tests, **meta) == "wrong"


OUTSIDE = {
    "names a record by a number of 5,000 digits": "def f(x): return {10**5000: 1}",
    "gives a fraction with an exponent": (
        "from fractions import Fraction\nclass F(Fraction):\n    def __str__(self): return '1e100000000'\n"
        "def f(x): return F(1)"
    ),
    "nests what it returns": "def f(x):\n    for _ in range(10**5): x = [x]\n    return x",
    "gives numbers that collide": "def f(x): return {k * (2**61 - 1) for k in range(2000)}",
    "names records by numbers that collide": "def f(x): return {k * (2**61 - 1): 1 for k in range(2000)}",
    "returns a number of 5,000 digits": "def f(x): return 10**5000",
    "exits well": "import os\nos._exit(0)",
    "exits well in a call": "import os\ndef f(x): os._exit(0)",
    "raises an exit": "import sys\nsys.exit(0)",
    "says it passed everywhere": (
        "import os\nfor n in range(64):\n    try: os.write(n, b'{\"ended\": \"done\"}\\n')\n"
        "    except OSError: pass\nos._exit(0)"
    ),
    "equals everything": "class A(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x): return A()",
    "an object that equals everything": (
        "class A:\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 2\ndef f(x): return A()"
    ),
    "reads the results from memory": (
        "import gc, sys\n"
        "texts = [o for o in gc.get_objects() if isinstance(o, (str, bytes, list, dict))]\n"
        "frame = sys._getframe()\n"
        "while frame.f_back: frame = frame.f_back; texts.append(frame.f_locals)\n"
        "found = 'outp' + 'uts' in repr(texts)\n"
        "def f(x): return 3 if found else 0"
    ),
    "reads its process": (
        "def f(x):\n    try: return 3 if open('/proc/self/mem', 'rb') else 0\n    except OSError: return 0"
    ),
}  # fmt: skip
"""What gives no right result, whatever it does to its own process."""
ANYWHERE = {
    "exits well": "import os\nos._exit(0)",
    "exits well in a call": "import os\ndef f(x): os._exit(0)",
    "raises an exit": "import sys\nsys.exit(0)",
    "fails as an assertion": "def f(x): raise AssertionError",
    "asks the process that judges": "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n    return x + 1",
    "starts another": "import os\ndef f(x):\n    return x + 1 if os.fork() >= 0 else 0",
    "writes a file": "def f(x):\n    open('/tmp/made', 'w')\n    return x + 1",
    "a name that a test goes by": "def check(g): pass\ndef candidate(x): pass\ndef f(x): return 0",
    "tests of its own": "def test_nothing(): pass\ndef f(x): return 0",
}
"""What no test accepts by mistake."""


@confined
@pytest.mark.parametrize("name", OUTSIDE)
def test_no_program_forges_a_result(judge: ProgramJudge, name: str) -> None:
    assert outcome(judge, OUTSIDE[name], RETURNS) == "wrong"
    assert outcome(judge, "def f(x): return sum(x)", RETURNS) == "right"


@confined
@pytest.mark.parametrize("name", ANYWHERE)
def test_no_program_passes_asserts_by_mistake(judge: ProgramJudge, name: str) -> None:
    assert outcome(judge, ANYWHERE[name], CHECK, entry_point="f") == "wrong"
    assert outcome(judge, ANYWHERE[name], ASSERTS) == "wrong"
    assert outcome(judge, "def f(x): return x + 1", CHECK, entry_point="f") == "right"


@confined
def test_what_cannot_be_read_is_told_apart(judge: ProgramJudge) -> None:
    """The places of a reply are found in the process itself: what comes there is bytes of anybody's."""
    forge = (
        "import os\ndef f(x):\n    said = {}\n    for n in range(3, 64):\n        try: os.write(n, said)\n"
        "        except OSError: pass\n    os._exit(0)"
    )
    said = {
        "b'[' * 990 + b']' * 990": "it is nested deeper than 400",
        "b'[' + b'9' * 5000 + b']'": "one of its numbers has more than 4,300 digits",
        "b'['": "it is not JSON",
    }
    for text, why in said.items():
        found = outcome(judge, forge.format(text), RETURNS)
        assert found == f"its program's output cannot be read: {why}"
    assert outcome(judge, forge.format("b'[' * 399 + b']' * 399"), RETURNS) == "wrong"
    assert outcome(judge, "def f(x): return sum(x)", RETURNS) == "right"


@confined
@pytest.mark.heavy
def test_no_program_breaks_out(judge: ProgramJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All break-outs of the sandbox's own tests, as a script and within a function."""
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    folder = tmp_path / "home"
    folder.mkdir()
    scene = Scene(folder)
    try:
        for breakout in BREAKOUTS:
            code = breakout["code"].format(**scene.names)
            assert outcome(judge, f"eval({code!r})\nprint(3)", PRINTS) in ("wrong", "timeout"), breakout[
                "name"
            ]
            outcome(judge, f"def f(x):\n    eval({code!r})\n    return x + 1", ASSERTS)
            assert scene.untouched(), breakout["name"]
            assert outcome(judge, "def f(x): return x + 1", ASSERTS) == "right", breakout["name"]
            assert left_of(judge) == [], breakout["name"]
    finally:
        scene.close()


@confined
def test_no_program_prints_what_it_does_not_know(judge: ProgramJudge) -> None:
    known = "import gc\nprint('7' if '\"outputs\"' in repr(gc.get_objects()) else '')"
    assert outcome(judge, known, PRINTS) == "wrong"
    assert outcome(judge, 'print(input())\nprint(\'{"ended": "done", "output": "3"}\')', PRINTS) == "wrong"


@confined
@pytest.mark.parametrize(
    "program",
    [
        "x = [0] * 10**9",
        "while True: print('x' * 2**16)",
        "import threading\nthreading.Thread(target=print).start()",
        "import time\ntime.sleep(100)",
        "import socket\nsocket.socket()",
    ],
)
def test_limits(judge: ProgramJudge, program: str) -> None:
    assert outcome(judge, program + "\nprint(sum(map(int, input().split())))", PRINTS) == "wrong"


@confined
def test_time_ends_a_program_and_what_comes_after_is_judged() -> None:
    judge = ProgramJudge(ProgramLimits(0.2, 512), 1e-4)
    try:
        assert outcome(judge, "while True: pass", PRINTS) == "timeout"
        assert outcome(judge, "def f(x):\n    while True: pass", ASSERTS) == "timeout"
        assert left_of(judge) == []
    finally:
        judge.close()


IGNORES = "import signal\nfor n in (signal.SIGPROF, signal.SIGXCPU): signal.signal(n, signal.SIG_IGN)\n"
WAITS: dict[str, tuple[str, str, str]] = {
    "a lock": ("import threading\nthreading.Event().wait()", PRINTS, "wrong"),
    "a lock in a function": (
        "def f(x):\n    import threading\n    threading.Event().wait()",
        ASSERTS,
        "wrong",
    ),
    "more input": (
        "import os\nwhile os.read(0, 9): pass\nos.read(0, 9)\nwhile True: pass",
        PRINTS,
        "timeout",
    ),
    "a line in a function": ("def f(x):\n    import os\n    os.read(0, 9)", ASSERTS, "wrong"),
    "its limits ignored": (f"{IGNORES}while True: pass", PRINTS, "timeout"),
    "its limits ignored in a function": (f"{IGNORES}def f(x):\n    while True: pass", ASSERTS, "timeout"),
}


@confined
@pytest.mark.parametrize("name", WAITS)
def test_who_waits_or_ignores_its_limits_is_ended_once(name: str) -> None:
    program, tests, ended = WAITS[name]
    judge = ProgramJudge(ProgramLimits(0.5, 512), 1e-4)
    try:
        started = time.monotonic()
        assert outcome(judge, program, tests) == ended
        assert time.monotonic() - started < 60
        assert left_of(judge) == []
        assert judge.started == 1
    finally:
        judge.close()


@confined
def test_a_process_that_somebody_ends_makes_no_answer_wrong() -> None:
    """The system ends one when memory is short: before an answer, at one, and as it starts."""
    judge = ProgramJudge(ProgramLimits(30.0, 512), 1e-4, workers=1)
    verifier = verify_programs(judge)
    slow = "sum(range(10**7))\ndef f(x): return x + 1"
    try:
        assert verifier.grade([Claim("def f(x): return x + 1", ASSERTS)]) == [Verdict(True, "checked")]
        os.kill(judge.pids()[0], signal.SIGKILL)
        assert verifier.grade([Claim("def f(x): return 1 + x", ASSERTS)]) == [Verdict(True, "checked")]
        process = psutil.Process(judge.pids()[0])
        with ThreadPoolExecutor(1) as thread:
            grading = thread.submit(verifier.grade, [Claim(slow, ASSERTS)])
            # A copy of it is at the answer.
            while not process.children():
                assert not grading.done()
            process.kill()
            assert grading.result() == [Verdict(True, "checked")]
    finally:
        verifier.close()


@confined
def test_verdicts_are_kept_and_equal_answers_run_once() -> None:
    verifier = verify_programs(ProgramJudge(ProgramLimits(30.0, 512), 1e-4, workers=2))
    right, wrong = Claim("def f(x): return x + 1", ASSERTS), Claim("def f(x): return x", ASSERTS)
    try:
        assert verifier.grade([right, wrong, right, Claim("", ASSERTS)]) == [
            Verdict(True, "checked"),
            Verdict(False, "checked"),
            Verdict(True, "cached"),
            Verdict(False, "checked"),
        ]
        assert verifier.grade([wrong, right]) == [Verdict(False, "cached"), Verdict(True, "cached")]
        assert verifier.grade([Claim("x = 1", "nothing that is a test")]) == [Verdict(False, "failed")]
    finally:
        verifier.close()


def test_a_machine_that_cannot_confine_runs_no_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: Any
) -> None:
    worker = tmp_path / "old_kernel.py"
    worker.write_text(
        "import sys\nimport runners.sandbox.confine\n"
        "runners.sandbox.confine.lacking = lambda: 'the kernel (4.4) has no Landlock'\n"
        f"import runpy\nrunpy.run_path({str(judge_module.WORKER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(judge_module, "WORKER", worker)
    with pytest.raises(Problem) as caught:
        ProgramJudge(ProgramLimits(1.0, 512), 0.0).judge([("print(1)", read_tests((PRINTS,)))])
    refusal("runs/E0742-programs.txt", caught.value, task="tiny.train.s1")


@pytest.mark.parametrize(
    ("wanted", "printed", "same"),
    [
        ("1 2\n3\n", "1  2 \n3", True),
        ("1 2", "1\n2", False),
        ("0.5", "0.50001", True),
        ("0.5", "0.6", False),
        ("7", "7.0", False),
        ("1e-3", "0.001", True),
        ("a", "", False),
        ("", "\n", True),
        ("nan", "x", False),
    ],
)
def test_outputs(wanted: str, printed: str, same: bool) -> None:
    assert same_output(wanted, printed, 1e-4) is same


@pytest.mark.parametrize(
    ("wanted", "said", "same"),
    [
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (1, 1.0, True),
        (0.3, 0.1 + 0.2, True),
        (0.3, 0.31, False),
        ({"1": [2]}, {"1": [2]}, True),
        ({"1": 2}, {"1": 2, "2": 3}, False),
        ("a", ["a"], False),
        (None, None, True),
        (None, 0, False),
        (10**400, float("inf"), False),
        (0.5, 10**400, False),
        ([1], {"1": 1}, False),
    ],
)
def test_returned_values(wanted: Any, said: Any, same: bool) -> None:
    assert same_value(wanted, said, 1e-4) is same


@confined
@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("def f(): return (1, (2,))", [1, [2]]),
        ("def f(): return {1: (2,), 10**20: None}", {"1": [2], str(10**20): None}),
        ("import numpy\ndef f(): return [numpy.int64(3), numpy.arange(2)]", [3, [0, 1]]),
        ("def f(): return 'a\\ud800'", "a\ud800"),
    ],
)
def test_results_are_compared_as_json(judge: ProgramJudge, program: str, wanted: Any) -> None:
    assert (
        outcome(judge, program, json.dumps({"inputs": [[]], "outputs": [wanted], "fn_name": "f"})) == "right"
    )
