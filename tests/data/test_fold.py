"""Generated questions: distinct, deterministic, prefixes agree, splits apart, answers right by a second reading."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.task import FoldTask
from runners.data.draws import Stream, split_of
from runners.data.fold import distinct_questions, generate_questions
from runners.data.table import question_id

MINIATURE = json.loads(Path(__file__).with_name("fold.json").read_text())
TASK = FoldTask.model_validate(MINIATURE["task"])
PINNED = ["<q> 5 a -6 b +3 c -2 d -1 e +1 ? <think>", "<q> 5 a +6 b +5 c -4 d +6 e -8 f +5 g +3 ? <think>"]


def solve(question: str) -> int:
    """Read a question of the miniature word by word and do the sums."""
    words = question.split()
    assert words[0] == "<q>"
    assert words[-2:] == ["?", "<think>"]
    value = int(words[1])
    for label, operation in zip(words[2:-2:2], words[3:-2:2], strict=True):
        assert label in "abcdefgh"
        value += int(operation)
    return value % 10


def bare(question: str) -> str:
    """What a question of the miniature asks, read off its words."""
    words = question.split()
    return " ".join([words[1], *words[3:-2:2], "mod 10"])


def test_answers_are_those_of_the_questions() -> None:
    table = generate_questions(TASK, 500, seed=3)
    assert [solve(question) for question in table["question"]] == [int(answer) for answer in table["answer"]]
    assert table["id"].to_list() == [question_id(question) for question in table["question"]]


def test_questions_are_distinct_and_prefixes_agree() -> None:
    long = generate_questions(TASK, 600, seed=1)
    assert long["question"].n_unique() == 600
    assert generate_questions(TASK, 150, seed=1).equals(long.head(150))
    assert not generate_questions(TASK, 150, seed=2).equals(long.head(150))


def test_the_draws_never_change() -> None:
    table = generate_questions(TASK, 2, seed=1)
    assert table["question"].to_list() == PINNED


def test_streams_differ_by_seed_purpose_and_index() -> None:
    streams = [
        Stream(1, "question", 0),
        Stream(2, "question", 0),
        Stream(1, "trace", 0),
        Stream(1, "question", 1),
        Stream(1, "question", 8),
        Stream(-1, "question", 0),
    ]
    draws = [tuple(stream.below(2**32) for _ in range(100)) for stream in streams]
    assert len({number for numbers in draws for number in numbers}) > 599 - 3
    assert [Stream(1, "question", 0).uniform() for _ in range(2)] == [Stream(1, "question", 0).uniform()] * 2


def test_lengths_starts_and_operations_are_uniform() -> None:
    table = generate_questions(TASK, 3000, seed=5)
    words = [question.split() for question in table["question"]]
    lengths = collections.Counter((len(w) - 4) // 2 for w in words)
    assert set(lengths) == set(range(2, 9))
    # Seven lengths, 3000 draws: standard deviation 19 around 429.
    assert all(abs(n - 3000 / 7) < 100 for n in lengths.values())
    starts = collections.Counter(w[1] for w in words)
    assert all(abs(n - 300) < 85 for n in starts.values())
    operations = collections.Counter(w[3] for w in words)
    assert len(operations) == 18
    assert all(abs(n - 3000 / 18) < 65 for n in operations.values())


def test_training_and_held_out_questions_are_apart() -> None:
    train = set(generate_questions(TASK, 800, seed=1)["question"])
    held_out = set(generate_questions(TASK, 300, seed=1, split="held_out")["question"])
    assert not train & held_out
    every = generate_questions(TASK, 800, seed=2)
    assert every["bare"].to_list() == [bare(question) for question in every["question"]]
    assert {split_of(question) for question in every["bare"]} == {"train"}


def test_excluded_questions_are_left_out() -> None:
    first = generate_questions(TASK, 50, seed=1)["question"].to_list()
    second = generate_questions(TASK, 50, seed=1, exclude=first)["question"].to_list()
    assert not set(first) & set(second)


SMALL = TASK.model_copy(update={"operations": ("+1", "-1"), "length": (1, 2)})


def test_a_small_task_gives_all_it_has_and_says_when_that_is_not_enough() -> None:
    assert distinct_questions(SMALL) == 60
    held_out = sum(split_of(bare(q)) == "held_out" for q in every_small_question())
    assert generate_questions(SMALL, 60 - held_out, seed=1).height == 60 - held_out
    assert generate_questions(SMALL, held_out, seed=1, split="held_out").height == held_out
    with pytest.raises(Problem) as caught:
        generate_questions(SMALL, 60 - held_out + 1, seed=1)
    (found,) = caught.value.diagnostics
    assert found.code == "E0711"
    assert f"{60 - held_out} were found" in found.message
    assert "60 different questions" in found.notes[0]


def every_small_question() -> list[str]:
    one = [f"<q> {s} a {x} ? <think>" for s in range(10) for x in ("+1", "-1")]
    two = [f"<q> {s} a {x} b {y} ? <think>" for s in range(10) for x in ("+1", "-1") for y in ("+1", "-1")]
    return one + two


WRONG: dict[str, dict[str, object]] = {
    "modulus": {"modulus": 11},
    "values": {"values": ("0",) * 10},
    "no_operations": {"operations": ()},
    "operations": {"operations": ("+1", "+1")},
    "operation": {"operations": ("plus",)},
    "labels": {"labels": ("a",)},
    "length": {"length": (3, 2)},
    "shortest": {"length": (0, 2)},
    "question": {"question": "{start}"},
    "step": {"step": "{label}"},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_task_that_does_not_fit_together_is_refused(what: str, refusal: Callable[..., None]) -> None:
    with pytest.raises(Problem) as caught:
        generate_questions(TASK.model_copy(update=WRONG[what]), 5, seed=1)
    refusal(f"runs/E0720-{what}.txt", caught.value)


def test_nothing_of_the_miniature_is_built_in() -> None:
    task = FoldTask(
        modulus=3,
        values=("nought", "one", "two"),
        operations=("add +1", "take -5"),
        labels=("first", "second"),
        question="Begin: {start}; {steps} {now}",
        step="[{label}] {op};",
        length=(2, 2),
    )
    table = generate_questions(task, 5, seed=1)
    for question, answer in zip(table["question"], table["answer"], strict=True):
        begin, one, two = question.removesuffix("; {now}").split("; ")
        total = task.values.index(begin.removeprefix("Begin: ")) + sum(
            1 if "add" in step else -5 for step in (one, two)
        )
        assert task.values[total % 3] == answer
