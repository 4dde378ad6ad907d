"""Break-outs: what answers that run code try, against the scorers of reasoning-gym and against the sandbox alone.

Against the scorers no code runs at all. Against the sandbox all of it runs, and nothing comes of it: no file, no process,
no signal, no word to anybody, no secret, and no other answer's verdict.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from runners.grade import Claim, PooledVerifier, Verdict, worker
from runners.grade import checks as process_module
from runners.sandbox import lacking

pytestmark = pytest.mark.slow

BREAKOUTS: list[dict[str, str]] = json.loads(Path(__file__).with_name("breakouts.json").read_text())
WHY = f"BREAK-OUTS NOT TRIED: {lacking()}"
confined = pytest.mark.skipif(lacking() is not None, reason=WHY)


class Scene:
    """A folder with a file that is to stay as it is, a port that nobody is to reach, and a secret in the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made, self.held = folder, folder / "made", folder / "held.py"
        self.held.write_text("hunter2\n", "utf-8")
        os.utime(self.held, (10**9, 10**9))
        self.server = socket.create_server(("127.0.0.1", 0))
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        port = self.server.getsockname()[1]
        self.datagrams.bind(("127.0.0.1", port))
        for each in (self.server, self.datagrams):
            each.setblocking(False)
        self.names = {
            "made": self.made,
            "held": self.held,
            "folder": folder,
            "port": port,
            "trainer": os.getpid(),
        }
        self.before = self.looks()

    def looks(self) -> tuple[object, ...]:
        held = self.held.stat()
        return (
            sorted(os.listdir(self.folder)),
            self.held.read_text("utf-8"),
            (held.st_mode, held.st_uid, held.st_mtime, held.st_nlink, os.listxattr(self.held)),
            psutil.Process().nice(),
            psutil.Process().rlimit(psutil.RLIMIT_NOFILE),
        )

    def untouched(self) -> bool:
        for each in (self.server.accept, lambda: self.datagrams.recv(10)):
            try:
                each()
                return False
            except BlockingIOError:
                pass
        return self.looks() == self.before

    def close(self) -> None:
        self.server.close()
        self.datagrams.close()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    folder = tmp_path / "home"
    folder.mkdir()
    made = Scene(folder)
    yield made
    made.close()


def asked(scene: Scene) -> list[str]:
    return [breakout["code"].format(**scene.names) for breakout in BREAKOUTS]


def processes_of(verifier: PooledVerifier) -> list[psutil.Process]:
    return [child for pid in verifier.checks.pids() for child in psutil.Process(pid).children(recursive=True)]


def test_there_are_many_and_their_names_differ() -> None:
    assert len(BREAKOUTS) >= 52
    assert len({breakout["name"] for breakout in BREAKOUTS}) == len(BREAKOUTS)


OWN = """
import sys
sys.argv[1:2] = ["own"]
import runpy
module = runpy.run_path({worker!r})

def load():
    def check(gold, text, meta):
        if gold == "compare":
            return text == meta
        eval(text)
        return False
    return check

module["CHECKS"]["own"] = load
module["RUN_IN_PROCESS"]["own"] = lambda meta: False
module["main"]("own", float(sys.argv[2]), int(sys.argv[3]), True)
"""


@pytest.fixture
def evaluating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PooledVerifier]:
    """A verifier whose workers run whatever an answer says, as Python, and then call it wrong."""
    worker = tmp_path / "own_worker.py"
    worker.write_text(OWN.format(worker=str(process_module.WORKER)))
    monkeypatch.setattr(process_module, "WORKER", worker)
    verifier = PooledVerifier("own", workers=1, seconds=2.0, memory_mib=1024, fast=False)
    yield verifier
    verifier.close()


@confined
def test_code_that_runs_in_the_sandbox_does_nothing_and_changes_no_other_verdict(
    evaluating: PooledVerifier, scene: Scene
) -> None:
    right, wrong = Claim("7", "compare", "7"), Claim("8", "compare", "7")
    assert evaluating.grade([right, wrong]) == [Verdict(True, "checked"), Verdict(False, "checked")]
    workers = evaluating.checks.pids()
    for number, code in enumerate(asked(scene)):
        name = BREAKOUTS[number]["name"]
        # What gets what it asked for comes to its end, and is `checked`.
        assert evaluating.grade([Claim(code, "")]) == [Verdict(False, "failed")], name
        # Neither verdict is kept from before: the answers differ.
        after = [Claim(f"{number}", "compare", f"{number}"), Claim(f"{number}", "compare", "7.")]
        assert [each.correct for each in evaluating.grade(after)] == [True, False], name
        assert processes_of(evaluating) == [], name
        assert scene.untouched(), name
    # The worker that each of them ran in a copy of is the one that was there first.
    assert evaluating.checks.pids() == workers
    assert "made" not in os.listdir(scene.folder)


READS = [
    "open({held!r}).read()",
    "open('/etc/passwd').read()",
    "open('/proc/self/environ').read()",
    "open('/proc/{trainer}/environ').read()",
    "open('/proc/1/environ').read()",
    "__import__('os').listdir({folder!r})",
    "__import__('os').listdir('/proc')",
    "__import__('os').environ['HF_TOKEN']",
    "next(v for v in __import__('os').environ.values() if 'hunter2' in v)",
    "open({folder!r} + '/../own_worker.py').read()",
    "open('/dev/mem', 'rb').read(1)",
    "open('/dev/shm/x').read()",
]


@confined
@pytest.mark.parametrize("read", READS)
def test_code_in_the_sandbox_reads_no_secret(evaluating: PooledVerifier, scene: Scene, read: str) -> None:
    code = read.format(held=str(scene.held), folder=str(scene.folder), trainer=os.getpid())
    # It would end in `checked` if it were read.
    assert evaluating.grade([Claim(code, "")]) == [Verdict(False, "failed")]


FORGED = """
import os, stat
for number in range(3, 64):
    try:
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            os.write(number, b"right")
            os._exit(0)
    except OSError:
        pass
"""


@confined
def test_code_in_the_sandbox_forges_its_own_verdict_and_no_other(evaluating: PooledVerifier) -> None:
    """What SECURITY.md says: compare outside what code gave, or run none, as the scorers here do."""
    own, after = Claim(f"exec({FORGED!r})", ""), Claim("8", "compare", "7")
    assert evaluating.grade([own, after]) == [Verdict(True, "checked"), Verdict(False, "checked")]
    assert evaluating.checks.started == 1


EVALUATE = (
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "number_sorting",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix", "string_insertion",
)  # fmt: skip
"""The tasks of the pinned reasoning-gym whose scorers call `eval` or sympy's parser."""


def test_a_process_for_each_answer_is_left_out_only_where_texts_are_compared() -> None:
    """By what the code of a scorer calls, of every task of reasoning-gym."""
    pytest.importorskip("reasoning_gym")
    tasks = set(import_module("reasoning_gym.factory").DATASETS) - {"composite"}
    calls = {task: called_in(type(worker.scorer_of(task)).score_answer) for task in tasks}
    assert {task for task in tasks if calls[task] & {"eval", "parse_expr"}} == set(EVALUATE)
    shares = worker.RUN_IN_PROCESS["reasoning_gym"]
    here = {task for task in tasks if shares(json.dumps({"task": task}))}
    assert 20 < len(here) < len(tasks)
    assert set().union(*(calls[task] for task in here)) == {
        "isinstance",
        "len",
        "str",
        "compute_decimal_reward",
    }


def called_in(function: Any) -> set[str]:
    """The names of what the text of a function calls."""
    calls = [
        node.func
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if isinstance(node, ast.Call)
    ]
    return {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "?") for call in calls}


def entry(task: str) -> tuple[dict[str, Any], str]:
    gym = pytest.importorskip("reasoning_gym")
    made = gym.create_dataset(task, size=1, seed=7)[0]
    return made, json.dumps({"task": task, "entry": made}, default=str)


@pytest.fixture(scope="module")
def scorers() -> Iterator[PooledVerifier]:
    """The scorers of reasoning-gym in one process, which takes seconds to import them."""
    verifier = PooledVerifier("reasoning_gym", workers=1, seconds=5.0, memory_mib=1024, fast=False)
    yield verifier
    verifier.close()


@confined
@pytest.mark.parametrize("task", EVALUATE)
def test_no_answer_breaks_out_of_a_scorer_that_evaluates(
    task: str, scene: Scene, scorers: PooledVerifier
) -> None:
    """Of sympy's parser and of `eval`, in the pinned reasoning-gym; the answer itself is still graded."""
    made, meta = entry(task)
    right = made["metadata"].get("expression", made["answer"])
    verdicts = scorers.grade([Claim(code, "", meta) for code in asked(scene)])
    assert [v.correct for v in verdicts] == [False] * len(BREAKOUTS)
    assert processes_of(scorers) == []
    assert scene.untouched()
    assert scorers.checks.started == 1
    if right is not None:
        assert scorers.grade([Claim(str(right), "", meta), Claim("1", "", meta)])[0].correct


@confined
def test_no_answer_breaks_out_of_math(scene: Scene) -> None:
    verifier = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=1024, fast=True)
    try:
        some = asked(scene)[::6]
        assert not any(v.correct for v in verifier.grade([Claim(code, "7") for code in some]))
        assert verifier.grade([Claim("x+1", "1+x")]) == [Verdict(True, "checked")]
        assert scene.untouched()
    finally:
        verifier.close()


def test_a_worker_has_nothing_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    verifier = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=1024, fast=True)
    verifier.grade([Claim("x+1", "1+x")])
    (pid,) = verifier.checks.pids()
    there = {line.split("=", 1)[0] for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if line}
    verifier.close()
    assert there <= {
        "PYTHONPATH",
        "PYTHONHOME",
        "LD_LIBRARY_PATH",
        "PYTHONHASHSEED",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
    }


TYPES = """
import mimetypes
import sys
from runners.sandbox import Sandbox, python_folders

mimetypes.knownfiles[:] = sys.argv[1:]
sandbox = Sandbox(python_folders())
sandbox.enter()
print(sandbox.call(lambda: repr(mimetypes.guess_type("a.own")).encode(), 9.0).data.decode())
"""


@confined
def test_libraries_that_look_up_types_of_files_load_in_the_sandbox(tmp_path: Path) -> None:
    """A table outside of Python's own is not read, and nothing fails because it cannot be."""
    table = tmp_path / "mime.types"
    table.write_text("text/own own\n")
    told = subprocess.run(
        [sys.executable, "-c", TYPES, str(table)], capture_output=True, text=True, check=True
    ).stdout
    assert told == "(None, None)\n"


DUMPABLE = """
import ctypes
from runners.sandbox import Sandbox, python_folders

asks, get = ctypes.CDLL(None).prctl, 3
before = asks(get, 0, 0, 0, 0)
Sandbox(python_folders()).enter()
print(before, asks(get, 0, 0, 0, 0))
"""


@confined
def test_others_of_the_same_user_cannot_look_into_a_confined_process() -> None:
    told = subprocess.run([sys.executable, "-c", DUMPABLE], capture_output=True, text=True, check=True).stdout
    assert told == "1 0\n"


def test_a_machine_that_cannot_confine_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: Any
) -> None:
    """A package's scorers are; math-verify reads formulas and goes on."""
    from reodsl.diagnostics import Problem

    worker = tmp_path / "old_kernel.py"
    worker.write_text(
        "import sys\n"
        "import runners.sandbox.confine\n"
        "runners.sandbox.confine.lacking = lambda: 'the kernel (4.4) has no Landlock'\n"
        "import runpy\n"
        f"runpy.run_path({str(process_module.WORKER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(process_module, "WORKER", worker)
    scored = PooledVerifier("reasoning_gym", workers=1, seconds=5.0, memory_mib=1024, fast=False)
    with pytest.raises(Problem) as caught:
        scored.grade([Claim("1", "1", "{}")])
    refusal("runs/E0742.txt", caught.value, task="tiny.train.s1")
    math = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=1024, fast=True, confined=False)
    assert math.grade([Claim("x+1", "1+x")]) == [Verdict(True, "checked")]
    math.close()


def test_what_is_told_of_another_system() -> None:
    code = "import sys; sys.platform = 'darwin'; from runners.sandbox import lacking; print(lacking())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "darwin" in told
