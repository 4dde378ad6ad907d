"""Adversarial answers: the right verdict or a counted stop, in bounded time and memory, however grading is called."""

from __future__ import annotations

import json
import multiprocessing
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from runners.grade import Claim, PooledVerifier, Verdict, make_verifier
from runners.sandbox.workers import wall_seconds

CORPUS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("hostile.json").read_text())
MEMORY_MIB = 1024


def build(parts: str | list[str | list[Any]]) -> str:
    """A text of the corpus: as it stands, or parts in order, a pair being a text and how often it repeats."""
    if isinstance(parts, str):
        return parts
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


def answers(rows: list[dict[str, Any]]) -> list[Claim]:
    return [Claim(build(row["text"]), build(row["gold"])) for row in rows]


def grade(
    rows: list[dict[str, Any]], seconds: float, stopped: Sequence[dict[str, Any]] = ()
) -> list[Verdict]:
    """Grade rows in `seconds` each, and those of `stopped` after them in one second each."""
    if stopped:
        return [*grade(rows, seconds), *grade([*stopped], 1.0)]
    workers = min(2, len(rows))
    verifier = PooledVerifier("math", workers=workers, seconds=seconds, memory_mib=MEMORY_MIB, fast=True)
    try:
        return verifier.grade(answers(rows))
    finally:
        verifier.close()


def judge(rows: list[dict[str, Any]], verdicts: list[Verdict]) -> None:
    for row, verdict in zip(rows, verdicts, strict=True):
        stopped = verdict.status in ("timeout", "failed")
        assert not (stopped and verdict.correct), row["name"]
        if stopped:
            assert row["may_stop"], (row["name"], verdict)
        else:
            assert verdict.correct == row["correct"], (row["name"], verdict)


def in_a_thread(*given: Any) -> list[Verdict]:
    found: list[list[Verdict]] = []
    thread = threading.Thread(target=lambda: found.append(grade(*given)))
    thread.start()
    thread.join()
    return found[0]


def send_grades(pipe: Any, *given: Any) -> None:
    pipe.send(grade(*given))


def in_a_process(*given: Any) -> list[Verdict]:
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=send_grades, args=(send, *given), daemon=True)
    child.start()
    found: list[Verdict] = receive.recv()
    child.join()
    return found


def in_ray(*given: Any) -> list[Verdict]:
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        found: list[Verdict] = ray.get(ray.remote(grade).remote(*given))
        return found
    finally:
        ray.shutdown()


HERE = [row for row in CORPUS if not row["may_stop"]]
SLOW = [row for row in CORPUS if row["name"] in ("power tower", "nested factorials", "unclosed braces")]


def test_the_corpus_is_large_and_its_names_differ() -> None:
    assert len(CORPUS) >= 40
    assert len({row["name"] for row in CORPUS}) == len(CORPUS)


@pytest.mark.slow
@pytest.mark.parametrize("call", [grade, in_a_thread, in_a_process])
def test_hostile_answers_in_every_way_of_calling(call: Any) -> None:
    """A machine that is busy may be slow with what must be decided, so that alone has much time."""
    rows, stopped = (HERE, SLOW) if call is grade else (HERE[::4], SLOW[:1])
    judge(rows + stopped, call(rows, 60.0, stopped))


@pytest.mark.heavy
@pytest.mark.parametrize("call", [grade, in_a_thread, in_a_process, in_ray])
def test_the_whole_corpus_in_every_way_of_calling(call: Any) -> None:
    seconds = 3.0
    start = time.monotonic()
    judge(CORPUS, call(CORPUS, seconds))
    # Two workers; every answer may cost its deadline and a fresh worker's start.
    assert time.monotonic() - start < len(CORPUS) * (wall_seconds(seconds) + 5) / 2 + 60
    # The largest child this process ever had, whoever started it (KiB).
    if call is grade:
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= MEMORY_MIB * 1024


def test_words_and_numbers_alone_settle_every_hostile_answer_here() -> None:
    """The verifier of word tasks starts no process, and takes nothing for right that is not."""
    verifier, before = make_verifier("exact"), set(psutil.Process().children())
    for row, verdict in zip(CORPUS, verifier.grade(answers(CORPUS)), strict=True):
        assert verdict.status == "fast", row["name"]
        assert row["correct"] or not verdict.correct or build(row["text"]).strip() == row["gold"], row["name"]
    assert set(psutil.Process().children()) <= before


def test_nothing_a_hostile_answer_asks_for_is_done() -> None:
    rows = [row for row in CORPUS if row["name"] in ("latex write", "python import", "latex include")]
    grade(rows, 1.0)
    assert not Path("/tmp/owned").exists()
