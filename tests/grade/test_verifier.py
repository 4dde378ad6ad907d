"""Grading: order, statuses and counts, killed and dead workers, threads, forks, no orphans."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from runners.grade import SEPARATOR, Claim, ExactVerifier, PooledVerifier, Verdict, make_verifier
from runners.grade import checks as checks_module

pytestmark = pytest.mark.slow

TOWER = "10^{10^{10^{10}}}"


@pytest.fixture
def math() -> Iterator[PooledVerifier]:
    verifier = PooledVerifier("math", workers=2, seconds=1.0, memory_mib=1024, fast=True)
    yield verifier
    verifier.close()


LIGHT = f"""
import json, sys
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    while json.loads(line)["text"] == {TOWER!r}:
        pass
    print(json.dumps({{"correct": True, "outcome": "checked", "retire": False}}), flush=True)
"""


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers without packages, for tests of what becomes of a worker: all is right to them, and the tower has no end."""
    (tmp_path / "light.py").write_text(LIGHT)
    monkeypatch.setattr(checks_module, "WORKER", tmp_path / "light.py")


@pytest.fixture(scope="module")
def shared() -> Iterator[PooledVerifier]:
    """For tests that look at verdicts alone: its workers have read their packages."""
    verifier = PooledVerifier("math", workers=2, seconds=1.0, memory_mib=1024, fast=True)
    yield verifier
    verifier.close()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within: float = 20.0) -> bool:
    end = time.monotonic() + within
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


def test_verdicts_keep_the_order_of_the_answers(shared: PooledVerifier) -> None:
    answers = [Claim(f"{n}x + {n}", f"{n % 3}(x+1)") for n in range(12)]
    assert [v.correct for v in shared.grade(answers)] == [n == n % 3 for n in range(12)]
    assert len(shared.checks.pids()) == 2


def test_plain_answers_start_no_process(math: PooledVerifier) -> None:
    verdicts = math.grade([Claim("6", "6"), Claim("5", "6"), Claim("", "6"), Claim("x", "x")])
    assert verdicts == [
        Verdict(True, "fast"),
        Verdict(False, "fast"),
        Verdict(False, "fast"),
        Verdict(True, "fast"),
    ]
    assert math.checks.pids() == []
    assert math.checks.started == 0


def test_an_answer_is_checked_once(math: PooledVerifier) -> None:
    twice = [Claim("\\sqrt{4}/4", "0.5")] * 2
    assert [v.status for v in math.grade(twice)] == ["checked", "cached"]
    assert [v.status for v in math.grade(twice)] == ["cached", "cached"]
    more = math.grade([*twice, Claim("1", "1")])
    assert [(v.correct, v.status) for v in more] == [(True, "cached"), (True, "cached"), (True, "fast")]
    assert math.checks.started == 1


def test_a_hostile_answer_times_out_and_its_neighbours_do_not() -> None:
    math = PooledVerifier("math", workers=2, seconds=0.5, memory_mib=1024, fast=True)
    math.grade([Claim("x+1", "1+x"), Claim("x+2", "2+x")])
    workers = math.checks.pids()
    verdicts = math.grade([Claim("x+3", "3+x"), Claim(TOWER, "1"), Claim("2y", "y+y"), Claim(TOWER, "1")])
    assert [v.correct for v in verdicts] == [True, False, True, False]
    assert [v.status for v in verdicts] == ["checked", "timeout", "checked", "timeout"]
    # The check stopped itself: no worker had to be replaced.
    assert math.checks.pids() == workers
    math.close()


@pytest.mark.usefixtures("light")
def test_what_the_clock_ends_is_not_asked_again() -> None:
    math = PooledVerifier("math", workers=1, seconds=1.0, memory_mib=1024, fast=True)
    math.grade([Claim("x+1", "1+x")])
    (pid,) = math.checks.pids()
    os.kill(pid, signal.SIGSTOP)
    assert math.grade([Claim("x+2", "2+x")]) == [Verdict(False, "timeout")]
    assert gone([pid])
    assert math.grade([Claim("x+3", "3+x")]) == [Verdict(True, "checked")]
    assert math.checks.started == 2
    math.close()


@pytest.mark.usefixtures("light")
def test_equal_answers_that_the_clock_ends_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    math = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=1024, fast=True)
    monkeypatch.setattr(checks_module, "wall_seconds", lambda seconds: 0.3)
    verdicts = math.grade([Claim(TOWER, "1"), Claim(TOWER, "1")])
    assert verdicts == [Verdict(False, "timeout")] * 2
    assert math.checks.started == 1
    math.close()


@pytest.mark.usefixtures("light")
def test_a_worker_that_died_between_batches_is_replaced(math: PooledVerifier) -> None:
    math.grade([Claim("x+1", "1+x")])
    (pid,) = math.checks.pids()
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])
    assert math.grade([Claim("x+2", "2+x")]) == [Verdict(True, "checked")]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_somebody_ends_at_work_makes_no_answer_wrong(
    math: PooledVerifier, by: signal.Signals
) -> None:
    math.grade([Claim("x+1", "1+x")])
    (pid,) = math.checks.pids()
    # It stands still until its end, so that the answer is surely with it then.
    os.kill(pid, signal.SIGSTOP)
    ends = [by] if by == signal.SIGKILL else [by, signal.SIGCONT]
    threading.Timer(0.4, lambda: [os.kill(pid, end) for end in ends]).start()
    answer = Claim("x+2", "2+x")
    assert math.grade([answer]) == [Verdict(True, "checked")]
    assert math.grade([answer]) == [Verdict(True, "cached")]
    assert math.checks.started == 2


@pytest.mark.usefixtures("light")
def test_a_worker_that_dies_of_an_answer_fails_that_answer_only(math: PooledVerifier) -> None:
    math.grade([Claim("x+1", "1+x")])
    (pid,) = math.checks.pids()
    killer = threading.Timer(0.4, os.kill, (pid, signal.SIGXCPU))
    killer.start()
    assert math.grade([Claim(TOWER, "1")]) == [Verdict(False, "failed")]
    assert math.grade([Claim("x+2", "2+x")]) == [Verdict(True, "checked")]
    assert math.checks.started == 2


def test_a_text_too_long_to_send_fails_without_a_process(math: PooledVerifier) -> None:
    assert (
        math.grade([Claim("9" * 100_000, "1"), Claim("\U0001f600" * 10_000, "1")])
        == [Verdict(False, "failed")] * 2
    )
    assert math.checks.pids() == []


def test_a_worker_that_grew_makes_way_for_a_fresh_one() -> None:
    # Its packages alone take more than half of this limit.
    math = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=100, fast=True)
    answers = [Claim(f"x+{n}", f"{n}+x") for n in range(1, 4)]
    assert math.grade(answers) == [Verdict(True, "checked")] * 3
    assert math.checks.started == 3
    assert math.checks.pids() == []


def run_worker(load: str, seconds: float, here: bool = True) -> subprocess.CompletedProcess[bytes]:
    """A worker whose one check is made by the statements `load`, asked once; `here`: without a copy of its process."""
    code = (
        "import itertools, os, runpy, sys\n"
        "module = runpy.run_path(sys.argv[1])\n"
        f"def load():\n    {load}\n"
        "module['CHECKS']['own'] = load\n"
        f"module['RUN_IN_PROCESS']['own'] = lambda meta: {here}\n"
        f"module['main']('own', {seconds}, 1024)\n"
    )
    worker = str(checks_module.__file__).replace("checks.py", "worker.py")
    request = b'{"gold": "1", "text": "1", "meta": ""}\n'
    return subprocess.run(
        [sys.executable, "-c", code, worker], input=request, capture_output=True, timeout=60
    )


def outcome(run: subprocess.CompletedProcess[bytes]) -> dict[str, object]:
    return dict(json.loads(run.stdout.splitlines()[1]))


def test_the_kernel_ends_a_check_that_no_timer_reaches() -> None:
    endless = "return lambda gold, text, meta: max(itertools.repeat(1))"
    assert run_worker(endless, 0.2).returncode == -signal.SIGXCPU
    run = run_worker(endless, 0.2, here=False)
    assert outcome(run) == {"correct": False, "outcome": "timeout", "retire": False}


@pytest.mark.parametrize("here", [True, False])
def test_what_a_worker_prints_does_not_reach_the_protocol(here: bool) -> None:
    run = run_worker(
        "print('noise'); os.system('echo noise'); "
        "return lambda gold, text, meta: print('{\"correct\": false}') or os.write(1, b'noise\\n') > 0",
        5.0,
        here,
    )
    lines = run.stdout.decode().splitlines()
    assert lines[0] == '{"ready": true}'
    assert lines[1].startswith('{"correct": true, "outcome": "checked"')
    assert len(lines) == 2
    assert run.stderr.decode().count("noise") == (3 if here else 2)


@pytest.mark.parametrize("here", [True, False])
def test_a_check_that_asks_to_exit_fails_its_answer(here: bool) -> None:
    run = run_worker("return lambda gold, text, meta: sys.exit(0)", 5.0, here)
    assert (run.returncode, outcome(run)["outcome"]) == (0, "failed")


SAID = {
    "no JSON": b"not json\n",
    "a number": b"7\n",
    "a deep list": b"[" * 100_000 + b"\n",
    "a verdict that is not a truth value": b'{"correct": 1, "outcome": "checked", "retire": false}\n',
    "right though it failed": b'{"correct": true, "outcome": "failed", "retire": false}\n',
    "ready once more": b'{"ready": true}\n',
    "no text": b"\xff\xfe\n",
    "a line without end": b"x" * 50_000,
    "two verdicts": b'{"correct": true, "outcome": "checked", "retire": false}\n' * 2,
}


@pytest.mark.parametrize("said", SAID)
def test_what_no_worker_says_is_a_failed_answer(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the worker's pipe: the next answers are asked of another worker."""
    fake = tmp_path / "worker.py"
    honest = (
        "import sys\n"
        "print('{\"ready\": true}', flush=True)\n"
        "for line in sys.stdin:\n"
        '    print(\'{"correct": true, "outcome": "checked", "retire": false}\', flush=True)\n'
    )
    fake.write_text(
        "import os, sys\n"
        f"said = b'{{\"ready\": true}}\\n', {SAID[said]!r}, b''\n"
        "for part in said:\n    os.write(1, part)\n    os.read(0, 70000)\n"
    )
    monkeypatch.setattr(checks_module, "WORKER", fake)
    math = PooledVerifier("math", workers=1, seconds=1.0, memory_mib=1024, fast=True)
    (verdict,) = math.grade([Claim("x+1", "1+x")])
    # The first of two verdicts was asked for, and is this answer's; the second belongs to none.
    assert verdict == (Verdict(True, "checked") if said == "two verdicts" else Verdict(False, "failed"))
    fake.write_text(honest)
    assert math.grade([Claim("x+2", "2+x")]) == [Verdict(True, "checked")]
    assert math.checks.started == 2
    math.close()


def test_a_scorer_may_read_and_import_at_any_time(tmp_path: Path) -> None:
    """Of the packages that it has loaded; of nothing else."""
    package = tmp_path / "scored"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "late.py").write_text("there = 1\n", "utf-8")
    (package / "data.txt").write_text("there", "utf-8")
    (tmp_path / "else.txt").write_text("not there", "utf-8")
    load = (
        f"sys.path.insert(0, {str(tmp_path)!r}); import scored; "
        f"return lambda gold, text, meta: __import__('scored.late') and open({str(package / 'data.txt')!r}).read()"
    )
    assert outcome(run_worker(load, 5.0)) == {"correct": True, "outcome": "checked", "retire": False}
    load = f"return lambda gold, text, meta: open({str(tmp_path / 'else.txt')!r}).read()"
    assert outcome(run_worker(load, 5.0)) == {"correct": False, "outcome": "failed", "retire": False}


def test_grading_works_off_the_main_thread(shared: PooledVerifier) -> None:
    found: list[list[Verdict]] = []
    thread = threading.Thread(
        target=lambda: found.append(shared.grade([Claim("x+1", "1+x"), Claim(TOWER, "1")]))
    )
    thread.start()
    thread.join(30)
    assert [v.status for v in found[0]] == ["checked", "timeout"]
    assert shared.grade([Claim("x+2", "2+x")]) == [Verdict(True, "checked")]


def test_threads_share_a_verifier(shared: PooledVerifier) -> None:
    found: dict[int, list[Verdict]] = {}

    def grade(n: int) -> None:
        found[n] = shared.grade([Claim(f"{n}(x+{k})", f"{n}x+{n * k}") for k in range(3)])

    threads = [threading.Thread(target=grade, args=(n,)) for n in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert all(v.correct for verdicts in found.values() for v in verdicts)


def grade_in_child(verifier: PooledVerifier, pipe: object) -> None:
    statuses = [v.status for v in verifier.grade([Claim("x+5", "5+x")])]
    pipe.send((statuses, verifier.checks.pids()))  # type: ignore[attr-defined]


def test_a_forked_process_starts_its_own_workers(math: PooledVerifier) -> None:
    math.grade([Claim("x+1", "1+x")])
    before = math.checks.pids()
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=grade_in_child, args=(math, send), daemon=True)
    child.start()
    assert receive.poll(60)
    statuses, workers = receive.recv()
    assert statuses == ["checked"]
    assert not set(workers) & set(before)
    child.join(30)
    assert math.grade([Claim("x+6", "6+x")]) == [Verdict(True, "checked")]
    assert math.checks.pids() == before


@pytest.mark.parametrize(
    "end",
    [
        "return",
        "os._exit(1)",
        "os.kill(os.getpid(), 9)",
        f"threading.Timer(0.3, os._exit, (1,)).start(); verifier.grade([Claim('{TOWER}', '1')])",
    ],
)
def test_no_worker_outlives_its_parent_even_at_work(end: str) -> None:
    code = (
        "import os, threading\n"
        "from runners.grade import Claim, make_verifier\n"
        "def main():\n"
        "    verifier = make_verifier('math', workers=1, seconds=1)\n"
        "    verifier.grade([Claim('x+1', '1+x')])\n"
        "    print(*verifier.checks.pids(), flush=True)\n"
        f"    {end}\n"
        "main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    pids = [int(pid) for pid in run.stdout.split()]
    assert len(pids) == 1, run.stderr
    assert gone(pids)


def test_closing_ends_the_workers_and_grading_starts_new_ones(math: PooledVerifier) -> None:
    math.grade([Claim("x+1", "1+x")])
    pids = math.checks.pids()
    math.close()
    assert gone(pids)
    assert math.grade([Claim("x+2", "2+x")]) == [Verdict(True, "checked")]


def test_workers_that_cannot_start_are_one_clear_problem(refusal: Callable[..., None]) -> None:
    verifier = make_verifier("math", memory_mib=20)
    with pytest.raises(Problem) as caught:
        verifier.grade([Claim("x+1", "1+x")])
    why = caught.value.diagnostics[0].message.partition("started: ")[2]
    assert why
    refusal("runs/E0741.txt", caught.value, (why, "WHY"), task="tiny.train.s1")


def test_exact_grades_words_and_numbers() -> None:
    answers = [Claim(" +7 ", "7"), Claim("north  east", "north east"), Claim("x+1", "1+x"), Claim("", "")]
    verifier = make_verifier("exact")
    assert isinstance(verifier, ExactVerifier)
    assert [v.correct for v in verifier.grade(answers)] == [True, True, False, False]


def test_mathematics_does_not_read_what_a_package_says_of_its_question(shared: PooledVerifier) -> None:
    assert shared.grade([Claim("1+x", "x+1", '{"task": "sums"}')]) == [Verdict(True, "checked")]


def test_any_of_several_references_will_do(shared: PooledVerifier) -> None:
    several = SEPARATOR.join(["1", "1+x", "\\boxed{7}"])
    answers = [Claim(text, several) for text in ("7", "x+1", "3", "1")]
    assert [v.correct for v in shared.grade(answers)] == [True, True, False, True]
    assert [v.correct for v in make_verifier("exact").grade(answers)] == [True, False, False, True]
    assert shared.grade([Claim(TOWER, several)]) == [Verdict(False, "timeout")]


def test_an_unknown_verifier_is_a_problem() -> None:
    with pytest.raises(Problem) as caught:
        make_verifier("latex")
    assert caught.value.diagnostics[0].code == "E0314"


def test_a_large_parent_keeps_its_workers() -> None:
    held = bytearray(700 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    with_large_parent = PooledVerifier("math", workers=1, seconds=5.0, memory_mib=1024, fast=True)
    for n in (1, 2, 3):
        with_large_parent.grade([Claim(f"x+{n}", f"{n}+x")])
    assert with_large_parent.checks.started == 1
    with_large_parent.close()
    assert len(held) == 700 * 2**20
