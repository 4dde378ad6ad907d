"""The split: one question in five, and the same side under every wording, in every data that is generated or packaged."""

from __future__ import annotations

import collections
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.data import PackageData
from reodsl.ir.task import FoldTask, FoldTraces
from runners.data.draws import split_of
from runners.data.fold import generate_questions
from runners.data.package import bare_question, read_package
from runners.data.traces import generate_traces

MINIATURE = json.loads(Path(__file__).with_name("fold.json").read_text())
TASK = FoldTask.model_validate(MINIATURE["task"])
TRACES = FoldTraces.model_validate(MINIATURE["traces"])


def wordings(number: int) -> Iterator[FoldTask]:
    """The miniature's task put in `number` other ways: templates, labels, words of values and of operations, lengths."""
    draw = random.Random(7)
    for _ in range(number):
        before, after = (" ".join(draw.choices(["<low>", "Q:", "within", "64", "so"], k=3)) for _ in "ab")
        shortest = draw.randint(1, 2)
        yield TASK.model_copy(
            update={
                "question": f"{before} {{start}} {{steps}} {after}",
                "step": draw.choice(["{op}", "{label}: {op};", "then {op}"]),
                "labels": tuple(f"{draw.choice('xyz')}{n}" for n in range(8)),
                "values": tuple(f"v{n}" for n in range(10)) if draw.random() < 0.5 else TASK.values,
                "operations": tuple(f"{draw.choice(['', 'do '])}{word}" for word in TASK.operations),
                "length": (shortest, draw.randint(max(shortest, 2), 3)),
            }
        )


def asked(question: str, task: FoldTask) -> tuple[int, ...]:
    """Start and operations of a question, read off the words between those of its template."""
    before, after = (re.escape(part) for part in task.question.split("{start} {steps}"))
    found = re.fullmatch(f"{before}(.*?){after}", question)
    assert found is not None
    start, rest = found[1].split(" ", 1)
    return (task.values.index(start), *map(int, re.findall(r"[+-]\d", rest)))


def test_nothing_held_out_is_trained_on_in_any_wording() -> None:
    """Of short chains, so that each wording has most of all questions, with worked solutions and without."""
    trained: set[tuple[int, ...]] = set()
    held_out: set[tuple[int, ...]] = set()
    for seed, task in enumerate(wordings(24)):
        for_training = [generate_questions(task, 150, seed), generate_traces(task, TRACES, 150, seed)]
        for table in for_training:
            trained |= {asked(question, task) for question in table["question"]}
        for_judging = generate_questions(task, 30, seed, split="held_out")
        held_out |= {asked(question, task) for question in for_judging["question"]}
    assert len(trained) > 2000
    assert len(held_out) > 300
    assert not trained & held_out


def test_the_bare_form_is_one_for_all_wordings_of_a_question() -> None:
    forms: dict[tuple[int, ...], set[str]] = {}
    for seed, task in enumerate(wordings(24)):
        short = task.model_copy(update={"length": (1, 1)})
        for question, bare in (
            generate_questions(short, 60, seed=seed % 8).select("question", "bare").iter_rows()
        ):
            forms.setdefault(asked(question, short), set()).add(bare)
    assert len(forms) > 100
    assert all(len(found) == 1 for found in forms.values())
    assert len(set.union(*forms.values())) == len(forms)


def test_a_question_is_on_the_same_side_however_it_is_spaced_and_cased() -> None:
    """What counts as one question in the check of duplicates and in the report's overlap is never on both sides."""
    for n in range(40):
        forms = (f"Question {n}: a + b", f" question  {n}:\ta + B\n", f"QUESTION\u00a0{n}: A \uff0b b")
        assert len({split_of(form) for form in forms}) == 1


def test_one_question_in_five_is_held_out() -> None:
    sides = collections.Counter(split_of(f"question {n}") for n in range(5000))
    assert 850 < sides["held_out"] < 1150


def entry(question: str, **metadata: Any) -> dict[str, Any]:
    return {"question": question, "answer": "1", "metadata": metadata}


def test_a_packages_question_is_its_expression_where_that_is_all_it_asks() -> None:
    same = [
        entry("Calculate 5 - 3 - 6.", expression="5 - 3 - 6", num_terms=3),
        entry("State the final answer to the following problem: 5 - 3 - 6 =", expression="5 - 3 - 6"),
        entry("What is (5-3-6)?", expression="5-3-6"),
    ]
    assert {bare_question(each) for each in same} == {"5-3-6"}
    countdown = entry("Calculate 309 using all of: 6, 61, 94, 4.", expression="94*4 - 61 - 6")
    circuit = entry("Given A = 1, what is A&B?", expression="A&B")
    more = entry("Round 5 - 3 to 2 places.", expression="5 - 3")
    for whole in (countdown, circuit, more, {"question": "q", "answer": "1"}):
        assert bare_question(whole) == whole["question"]


@pytest.mark.slow
def test_nothing_held_out_of_a_package_is_trained_on_in_another_of_its_tasks() -> None:
    """chain_sum and basic_arithmetic put the same sums in different words, the second in several."""
    pytest.importorskip("reasoning_gym")
    options = ("min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1")

    def sums(task: str, split: str, count: int, *more: str) -> set[tuple[str, ...]]:
        source = {"package": "reasoning-gym", "task": task, "count": count, "seed": 3}
        table = read_package(
            PackageData.model_validate({**source, "split": split, "options": (*options, *more)})
        )
        return {tuple(re.findall(r"\d+|[-+*/]", question)) for question in table["question"]}

    plain = ("allow_parentheses=false", "allow_negation=false")
    trained = sums("basic_arithmetic", "train", 120, *plain) | sums("chain_sum", "train", 60)
    held_out = sums("chain_sum", "held_out", 20) | sums("basic_arithmetic", "held_out", 20, *plain)
    assert len(trained) > 100
    assert len(held_out) > 15
    assert not trained & held_out
