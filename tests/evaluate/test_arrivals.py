"""Responses that are graded as they end: in any order and company, to the same chunks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.protocol import Response
from runners.evaluate.arrivals import Arrivals, Key, Tables
from runners.evaluate.tables import SAMPLES, Sampled
from runners.rollout.generator import Question

CHUNKS = {4: [("b", "q1", 0), ("b", "q1", 1), ("a", "q1", 0)], 7: [("a", "q2", 0), ("a", "q2", 1)]}
NAMES = ("benchmark", "question", "sample")


def sampled(key: Key) -> Sampled:
    return Sampled(Question(key[0], key[1], "", "", ""), key[2], Response((), (), (), "stop", (0,)))


def rows(keys: Sequence[Key], budgets: Sequence[int]) -> pl.DataFrame:
    schema = {**{name: SAMPLES[name] for name in NAMES}, "budget": pl.Int64}
    return pl.DataFrame([(*key, budget) for key in keys for budget in budgets], schema=schema, orient="row")


def tables(keys: Sequence[Key]) -> dict[str, pl.DataFrame]:
    """A row of each response, two of it in falling order, and some of the first benchmark's alone."""
    return {
        "one": rows(keys, [0]),
        "two": rows(keys, [9, 3]),
        "few": rows([key for key in keys if key[0] == "b"], [1]),
    }


def graded(group: Sequence[Sampled]) -> Tables:
    return tables([(each.question.benchmark, each.question.id, each.number) for each in group])


@given(st.permutations([key for keys in CHUNKS.values() for key in keys]), st.integers(0, 5))
def test_chunks_are_in_the_order_that_was_announced_however_responses_come(
    order: Sequence[Key], early: int
) -> None:
    kept: dict[int, Tables] = {}
    arrivals = Arrivals(graded, kept.__setitem__)
    futures = [arrivals.expect(index, keys) for index, keys in CHUNKS.items()]
    for key in order[:early]:
        arrivals.add(sampled(key))
    # All of them once more, as they are handed over at the end.
    for keys in CHUNKS.values():
        for key in keys:
            arrivals.add(sampled(key))
    assert len({future.result() for future in futures}) <= 2
    arrivals.close()
    for index, keys in CHUNKS.items():
        for name, frame in tables(keys).items():
            assert kept[index][name].equals(frame), (index, name)


def test_tables_without_a_benchmark_are_told_apart_by_their_questions() -> None:
    kept: dict[int, Tables] = {}
    arrivals = Arrivals(lambda group: {"one": graded(group)["one"].drop("benchmark")}, kept.__setitem__)
    arrivals.expect(0, [("", "q1", 0), ("", "q2", 0)])
    arrivals.add(sampled(("", "q2", 0)))
    arrivals.add(sampled(("", "q1", 0)))
    arrivals.close()
    assert kept[0]["one"]["question"].to_list() == ["q1", "q2"]


def test_what_waits_is_graded_together_and_a_whole_chunk_is_kept_at_once() -> None:
    began, goes_on = threading.Event(), threading.Event()
    groups: list[int] = []
    kept: dict[int, Tables] = {}

    def slow(group: Sequence[Sampled]) -> Tables:
        groups.append(len(group))
        began.set()
        assert goes_on.wait(30)
        return graded(group)

    arrivals = Arrivals(slow, kept.__setitem__)
    (first, second) = (arrivals.expect(index, keys) for index, keys in CHUNKS.items())
    arrivals.add(sampled(CHUNKS[7][0]))
    assert began.wait(30)
    for key in (*CHUNKS[4], CHUNKS[7][0]):
        arrivals.add(sampled(key))
    goes_on.set()
    assert first.result(30) > 0
    assert groups == [1, 3], "the one that came twice is graded once"
    assert (list(kept), second.done()) == ([4], False)
    arrivals.close()
    assert list(kept) == [4], "the other one misses a response"


def test_a_fault_ends_what_is_still_generated() -> None:
    def broken(_: Any) -> Tables:
        raise ArithmeticError("no verdict")

    arrivals = Arrivals(broken, lambda *_: None)
    futures = [arrivals.expect(index, keys) for index, keys in CHUNKS.items()]
    arrivals.add(sampled(CHUNKS[4][0]))
    for future in futures:
        with pytest.raises(ArithmeticError, match="no verdict"):
            future.result(30)
    with pytest.raises(ArithmeticError, match="no verdict"):
        arrivals.add(sampled(CHUNKS[4][1]))
    arrivals.close()


def test_a_chunk_that_cannot_be_kept_says_so() -> None:
    """A full disk under the last chunk: nothing comes after it that could raise."""

    def full(index: int, _: Tables) -> None:
        if index == 4:
            raise OSError("no space left")

    arrivals = Arrivals(graded, full)
    (first, second) = (arrivals.expect(index, keys) for index, keys in CHUNKS.items())
    for key in CHUNKS[4]:
        arrivals.add(sampled(key))
    for future in (first, second):
        with pytest.raises(OSError, match="no space left"):
            future.result(30)
    arrivals.close()
