"""The least time of a run: closed forms of small graphs, and bounds that hold for every graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.graph.task import Graph, Task
from reodsl.price.prices import ElapsedTime, bound_elapsed
from reodsl.price.show import summary, total, until_the_end
from reodsl.price.value import Price, Prices


def graph(reads: Mapping[str, str]) -> Graph:
    """Tasks by name, each with the names of those that it reads, a letter each."""
    return Graph(tuple(Task(name, "frontier", {}, {each: each for each in of}) for name, of in reads.items()))


def prices(seconds: Mapping[str, float], room: int, wide: Mapping[str, int] | None = None) -> Prices:
    """On this machine every task takes a core; with `wide` as many GPUs as it says."""
    tasks = {
        name: Price(seconds={"start": each}, gpus=1 if wide is None else wide[name])
        for name, each in seconds.items()
    }
    return Prices(tasks, "seconds" if wide is None else "gpu_hours", "", None, room)


def took(
    reads: Mapping[str, str], seconds: Mapping[str, float], room: int, wide: Mapping[str, int] | None = None
) -> tuple[float, float]:
    found = bound_elapsed(graph(reads), prices(seconds, room, wide), reads)
    assert found is not None
    assert found.devices == room
    return found.seconds, found.longest


@pytest.mark.parametrize("room", [1, 2, 8])
def test_a_chain_takes_the_sum_on_any_number_of_cores(room: int) -> None:
    assert took({"a": "", "b": "a", "c": "b"}, {"a": 2, "b": 3, "c": 5}, room) == (10, 10)


@pytest.mark.parametrize(("room", "seconds"), [(1, 18), (2, 9), (3, 6), (4, 4.5), (6, 3), (9, 3)])
def test_tasks_that_wait_for_nothing_are_spread(room: int, seconds: float) -> None:
    six = "abcdef"
    assert took(dict.fromkeys(six, ""), dict.fromkeys(six, 3.0), room) == (seconds, 3)


def test_a_fan_in_takes_its_chain_or_its_work() -> None:
    reads = {"a": "", "b": "", "c": "", "z": "abc"}
    seconds = {"a": 7.0, "b": 2.0, "c": 3.0, "z": 1.0}
    assert took(reads, seconds, 2) == (8, 8)
    assert took(reads, seconds, 1) == (13, 8)
    assert took({"r": "", **dict.fromkeys("abc", "r"), "z": "abc"}, {"r": 1.0, **seconds}, 2) == (9, 9)


def test_questions_come_before_anything_long_that_could_start() -> None:
    """`held` has a shorter way to go than the training, and may tell that the training is for nothing."""
    reads = {"model": "", "asked": "", "held": "", "train": ["model", "asked"], "eval": ["train", "held"]}
    tasks = Graph(
        tuple(Task(name, "frontier", {}, {each: each for each in of}) for name, of in reads.items())
    )
    for seconds in ({"train": 900.0}, {}):
        turns = tasks.turns(seconds)
        assert sorted(turns, key=turns.__getitem__) == ["model", "asked", "held", "train", "eval"]


def test_what_has_the_longest_way_to_go_is_first() -> None:
    reads = {"a": "", "b": "a", "c": "", "d": ""}
    turns = graph(reads).turns({"a": 1.0, "b": 1.0, "c": 2.0, "d": 4.0})
    assert min(turns, key=turns.__getitem__) == "d"
    assert min(graph(reads).turns({}), key=graph(reads).turns({}).__getitem__) == "a"


def test_a_wide_task_is_more_work() -> None:
    wide = {"a": 4, "b": 2}
    assert took({"a": "", "b": ""}, {"a": 5.0, "b": 4.0}, 4, wide) == (7, 5)


def test_what_takes_no_gpu_waits_for_none() -> None:
    assert took(
        {"a": "", "d": "", "b": "d"}, {"a": 9.0, "d": 1.0, "b": 2.0}, 4, {"a": 4, "d": 0, "b": 0}
    ) == (9, 9)


def test_finished_tasks_take_no_time() -> None:
    chain = graph({"a": "", "b": "a", "c": "b"})
    told = prices({"a": 2, "b": 3, "c": 5}, 1)
    assert bound_elapsed(chain, told, ["c"]) == ElapsedTime(5, 5, 1)
    assert bound_elapsed(chain, told, ["b", "c"]) == ElapsedTime(8, 8, 1)
    assert bound_elapsed(chain, told, []) == ElapsedTime(0, 0, 1)


def test_a_task_without_a_price_leaves_the_time_open() -> None:
    told = prices({"a": 2.0}, 1)
    for odd in (Price(unpriced="nobody knows"), Price(requests=8.0)):
        assert bound_elapsed(graph({"a": ""}), replace(told, tasks={"a": odd}), ["a"]) is None
    words = total(replace(told, tasks={"a": odd}), ["a"], [])
    assert words.endswith(" now, on one core, besides the time and cost of servers, which are unknown")
    assert until_the_end(told, None) == []


def test_a_reason_for_no_price_is_told_once() -> None:
    tasks = {name: Price(unpriced="nobody knows") for name in ("a.s1", "a.s2", "a.s3")}
    told = Prices({**tasks, "b": Price(unpriced="no hardware")}, "seconds", "", None, 1)
    assert [line for line in summary(told, list(told.tasks)) if line.startswith("No price")] == [
        "No price for a.s1, a.s2 and 1 more: nobody knows",
        "No price for b: no hardware",
    ]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, float], int]:
    count = draw(st.integers(1, 12))
    names = [f"t{number}" for number in range(count)]
    tasks = []
    for number, name in enumerate(names):
        before = draw(st.lists(st.sampled_from(names[:number]), max_size=3, unique=True)) if number else []
        tasks.append(Task(name, "frontier", {}, {each: each for each in before}))
    seconds = {name: float(draw(st.integers(1, 9))) for name in names}
    return Graph(tuple(tasks)), seconds, draw(st.integers(1, 4))


@given(graphs())
def test_no_order_is_shorter_and_one_that_leaves_no_core_idle_is_at_most_twice_as_long(
    drawn: tuple[Graph, dict[str, float], int],
) -> None:
    """The order of the graph, laid out task by task, each on the core that is free first."""
    made, seconds, room = drawn
    found = bound_elapsed(made, prices(seconds, room), seconds)
    assert found is not None
    ends: dict[str, float] = {}
    cores = [0.0] * room
    for task in made.tasks:
        core = min(range(room), key=cores.__getitem__)
        begins = max([cores[core], *(ends[name] for name in task.inputs.values())])
        ends[task.id] = cores[core] = begins + seconds[task.id]
    assert found.longest - 1e-9 <= found.seconds <= max(ends.values()) + 1e-9
    # Graham's bound for any order that leaves no core idle while a task is ready.
    work = sum(seconds.values())
    assert found.longest + (work - found.longest) / room <= 2 * found.seconds + 1e-9


def test_it_is_told_in_one_line() -> None:
    here, there = prices({"a": 1.0}, 2), prices({"a": 1.0}, 2, {"a": 1})
    assert until_the_end(here, ElapsedTime(267, 178, 2)) == [
        "From start to report: at least 4m 27s on 2 cores; the longest chain of tasks alone takes 2m 58s."
    ]
    assert until_the_end(there, ElapsedTime(178, 178, 1)) == [
        "From start to report: at least 2m 58s on 1 GPU; more would not make it faster."
    ]
