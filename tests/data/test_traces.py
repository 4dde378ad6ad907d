"""Worked solutions: each step's arithmetic, mistakes carried on, passes, styles and fillers at their rates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.task import FoldTask, FoldTraces
from runners.data.draws import split_of
from runners.data.traces import generate_traces

MINIATURE = json.loads(Path(__file__).with_name("fold.json").read_text())
TASK = FoldTask.model_validate(MINIATURE["task"])
TRACES = FoldTraces.model_validate(MINIATURE["traces"])
CLEAN = FoldTraces.model_validate(MINIATURE["clean"])
VERBOSE, MEDIUM, TERSE = TRACES.styles
STEP = re.compile(r"(?:so step ([a-h]) : take|([a-h])) (?:(\d) )?([+-]\d) (\d)(?: \.)?")


def passes(trace: str) -> list[str]:
    thinking, _ = trace.split(" </think> ")
    return thinking.split(" wait check again . ")


def test_clean_traces_are_one_right_pass() -> None:
    table = generate_traces(TASK, CLEAN, 100, seed=1)
    for question, answer, trace in table.select("question", "answer", "trace").iter_rows():
        start, operations = question.split()[1], question.split()[3:-2:2]
        assert sum(map(int, [start, *operations])) % 10 == int(answer)
        assert trace.endswith(f"so {answer} . </think> answer \\boxed{{ {answer} }}")
        assert trace.count("hmm .") == 1
        labels = [step[1] for step in STEP.findall(trace)]
        assert "".join(labels) == "abcdefgh"[: len(labels)]
        assert len(labels) == (len(question.split()) - 4) // 2


def test_a_short_trace_word_for_word() -> None:
    change = {"operations": ("+4",), "length": (2, 2), "values": tuple("v123456789")}
    (trace,) = generate_traces(TASK.model_copy(update=change), CLEAN, 1, seed=1)["trace"]
    start = trace.split()[3]
    value = "v123456789".index(start)
    one, two = ("v123456789"[(value + 4 * n) % 10] for n in (1, 2))
    assert trace == f"hmm . a {start} +4 {one} b {one} +4 {two} so {two} . </think> answer \\boxed{{ {two} }}"


def test_every_step_follows_from_the_one_before_but_for_mistakes_of_one() -> None:
    table = generate_traces(TASK, TRACES, 400, seed=2)
    steps = mistakes = up = 0
    for question, trace in table.select("question", "trace").iter_rows():
        operations = question.split()[3:-2:2]
        for text in passes(trace):
            value = int(question.split()[1])
            found = STEP.findall(text)
            assert [step[3] for step in found] == operations
            for long, short, before, operation, after in found:
                assert (long or short) in "abcdefgh"
                assert before in ("", str(value))
                off = (int(after) - value - int(operation)) % 10
                assert off in (0, 1, 9)
                steps += 1
                mistakes += off != 0
                up += off == 1
                value = int(after)
            assert text.endswith(f"so {value} .")
    # 6% of about 4,500 steps: standard deviation 0.35%.
    assert abs(mistakes / steps - 0.06) < 0.015
    assert abs(up / mistakes - 0.5) < 0.12


def test_the_last_pass_gives_the_answer_and_disagreement_asks_for_another() -> None:
    change = {"another_pass": 0.5, "max_passes": 6, "error": 0.1}
    table = generate_traces(TASK, TRACES.model_copy(update=change), 400, seed=3)
    lengths = []
    for trace, meta in table.select("trace", "meta").iter_rows():
        ends = [re.findall(r"so (\d) \.$", text)[0] for text in passes(trace)]
        given = re.findall(r"\\boxed\{ (\d) \}", trace)
        assert given == [ends[-1]]
        assert json.loads(meta)["passes"] == len(ends)
        assert json.loads(meta)["given"] == ends[-1]
        assert len(ends) == 6 or len(ends) == 1 or ends[-1] == ends[-2]
        lengths.append(len(ends))
    assert abs(lengths.count(1) / 400 - 0.5) < 0.11


def test_one_pass_when_no_other_is_wanted_and_never_more_than_allowed() -> None:
    def count(**change: object) -> set[int]:
        table = generate_traces(TASK, TRACES.model_copy(update=change), 60, seed=1)
        return {json.loads(meta)["passes"] for meta in table["meta"]}

    assert count(another_pass=0.0) == {1}
    assert count(another_pass=1.0) == {3}
    assert count(another_pass=1.0, max_passes=5) == {5}


def test_styles_come_at_their_weights_and_stay_within_a_trace() -> None:
    table = generate_traces(TASK, TRACES.model_copy(update={"restyle": 0.0}), 600, seed=4)
    used = [set(json.loads(meta)["styles"]) for meta in table["meta"]]
    assert all(len(styles) == 1 for styles in used)
    verbose = sum("verbose" in styles for styles in used) / 600
    assert abs(verbose - 0.7) < 0.08
    mixed = generate_traces(TASK, TRACES, 300, seed=4)
    assert any(len(set(json.loads(meta)["styles"])) > 1 for meta in mixed["meta"])


def test_a_style_without_weight_is_never_used() -> None:
    styles = (MEDIUM, TERSE.model_copy(update={"weight": 0.0}))
    table = generate_traces(TASK, TRACES.model_copy(update={"styles": styles, "restyle": 1.0}), 100, seed=1)
    assert {style for meta in table["meta"] for style in json.loads(meta)["styles"]} == {"medium"}


def test_fillers_come_at_their_rate() -> None:
    table = generate_traces(TASK, TRACES, 400, seed=5)
    steps = sum(len(json.loads(meta)["styles"]) for meta in table["meta"])
    fillers = sum(len(re.findall(r"\b(?:well|okay)\b", trace)) for trace in table["trace"])
    assert abs(fillers / steps - 0.12) < 0.025


def test_traces_are_deterministic_prefixes_agree_and_keep_to_their_split() -> None:
    long = generate_traces(TASK, TRACES, 120, seed=7)
    assert generate_traces(TASK, TRACES, 40, seed=7).equals(long.head(40))
    assert {split_of(question) for question in long["bare"]} == {"train"}
    other = generate_traces(TASK, TRACES, 40, seed=7, split="held_out")
    assert {split_of(question) for question in other["bare"]} == {"held_out"}


def test_questions_may_repeat_in_another_solution() -> None:
    task = TASK.model_copy(update={"operations": ("+1", "-1"), "length": (1, 1)})
    table = generate_traces(task, TRACES, 100, seed=1)
    assert table.height == 100
    assert table["question"].n_unique() <= 20
    assert table["trace"].n_unique() > table["question"].n_unique()


@pytest.mark.parametrize(
    "change",
    [
        {"styles": ()},
        {"styles": (MEDIUM.model_copy(update={"weight": -1.0}), TERSE)},
        {"error": 1.5},
        {"max_passes": 0},
        {"filler": ()},
        {"answer": "</think>"},
    ],
)
def test_traces_that_do_not_fit_together_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(Problem) as caught:
        generate_traces(TASK, TRACES.model_copy(update=change), 5, seed=1)
    assert caught.value.diagnostics[0].code == "E0720"
