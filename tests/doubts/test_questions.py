"""Marks of a chat, doubtful references, and questions that are trained on and judged on: warned of at their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.doubts import find_in_results, marks_left, overlaps
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, Task
from reodsl.ir.data import Marks
from reodsl.language import compile_file
from reodsl.plan.places import locate_failures
from runners.data.load import strip_marks
from tests.data.test_marks import SPEC
from tests.data.test_references import found as facts_of

MARKED = [
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n",
    "Why?",
]


def test_the_warning_stands_at_the_line_of_the_data(tmp_path: Path, refusal: Callable[..., None]) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.replace("STRIP", ""))
    compiled = compile_file(tmp_path / "spec.reo")
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    for name, questions in (("mine.data", MARKED), ("aime24_questions.data", ["How many?"])):
        (tmp_path / name).mkdir()
        pl.DataFrame({"question": questions}).write_parquet(tmp_path / name / "questions.parquet")
    folders = {name: tmp_path / name for name in ("mine.data", "aime24_questions.data")}
    found_by_task = find_in_results(graph, folders)
    assert found_by_task["aime24_questions.data"] == []
    (found,) = locate_failures(compiled.spec, graph, found_by_task)["mine.data"]
    assert found.code == "W0714"
    assert (
        found.labels[0].span.line == SPEC.split("\n").index('data mine { source = file("d.jsonl")STRIP }') + 1
    )
    refusal("runs/W0714.txt", Problem(found))


def test_what_it_says_to_write_takes_the_marks_off() -> None:
    (found,) = marks_left(MARKED, "mine.data")
    assert found.message == "1 of 2 questions contain chat markup (ChatML, as of Qwen)"
    written = re.search(r'marks\(before: "(.*)", after: "(.*)"\)', found.help or "")
    assert written is not None
    before, after = (part.encode().decode("unicode_escape") for part in written.groups())
    assert strip_marks(MARKED[0], [Marks(before=before, after=after)]) == "How many?"
    assert marks_left(["How many?", "Why?"], "mine.data") == []


ROWS = [("1/4 + 1/4?", r"\frac{1}{2"), ("7 * 8?", "56"), ("Who?", "Evelyn"), ("7 * 8 ?", "7 times 8 is 56.")]


def test_the_warnings_stand_at_the_line_of_the_data(tmp_path: Path, refusal: Callable[..., None]) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.replace("STRIP", ", duplicates = drop"))
    compiled = compile_file(tmp_path / "spec.reo")
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    folder = tmp_path / "mine.data"
    folder.mkdir()
    facts = facts_of(tmp_path, ROWS)
    (folder / "references.json").write_text(json.dumps(facts))
    (tmp_path / "other").mkdir()
    folders = {"mine.data": folder, "aime24_questions.data": tmp_path / "other"}
    warned = find_in_results(graph, folders)
    assert warned["aime24_questions.data"] == []
    (unread,) = locate_failures(compiled.spec, graph, warned)["mine.data"]
    assert (unread.code, unread.severity) == ("W0716", "warning")
    line = next(n for n, text in enumerate(SPEC.split("\n"), 1) if text.startswith("data mine"))
    assert unread.labels[0].span.line == line
    refusal("runs/W0716.txt", Problem(unread))


def task(name: str, kind: str, arm: str = "", **inputs: str) -> Task:
    return Task(
        name, kind, {}, {role.replace("__", ":"): own for role, own in inputs.items()}, arm=arm or None
    )  # type: ignore[arg-type]


@pytest.fixture
def graph() -> Graph:
    """Two stages, the first one on data of its own, and two arms that are evaluated on `held`."""
    return Graph(
        (
            task("base.model", "model"),
            task("first.data", "data"),
            task("second.data", "data"),
            task("held.data", "data"),
            task("one.train", "train", "one", start="base.model", data="first.data"),
            task("two.train", "train", "two", start="one.train", data="second.data"),
            task("base.eval", "evaluate", "base", start="base.model", data__held="held.data"),
            task("two.eval.s1", "evaluate", "two", start="two.train", data__held="held.data"),
            task("two.eval.s2", "evaluate", "two", start="two.train", data__held="held.data"),
        )
    )


def folders(root: Path, bare: dict[str, list[str]] | None = None, **tables: list[str]) -> dict[str, Path]:
    found = {}
    for name, questions in tables.items():
        place = root / name
        place.mkdir()
        columns = {"id": questions, "question": questions, "bare": (bare or {}).get(name)}
        table = pl.DataFrame({column: texts for column, texts in columns.items() if texts is not None})
        table.write_parquet(place / "questions.parquet")
        found[f"{name}.data"] = place
    return found


def test_shared_questions_are_found_in_any_spelling_and_told_once(
    graph: Graph, tmp_path: Path, refusal: Callable[..., None]
) -> None:
    there = folders(tmp_path, first=["WHAT is  1+1?", "z"], second=["y"], held=["what is 1+1?", "b", "Ｙ "])
    first, second = sorted(overlaps(graph, there), key=lambda found: found.message)
    assert first.message == "1 of 3 questions of `held.data` are also trained on, in `first.data`"
    assert second.message == "1 of 3 questions of `held.data` are also trained on, in `second.data`"
    assert first.notes == ("the first is: what is 1+1?", "arms affected: two")
    refusal("commands/W0802.txt", Problem(first))


def test_apart_is_nothing(graph: Graph, tmp_path: Path) -> None:
    assert overlaps(graph, folders(tmp_path, first=["a"], second=["b"], held=["c"])) == []


def test_what_is_not_there_is_passed_over(graph: Graph, tmp_path: Path) -> None:
    there = folders(tmp_path, first=["a"], held=["a"])
    (there["first.data"] / "questions.parquet").write_text("no table")
    assert overlaps(graph, there) == []
    assert overlaps(graph, {}) == []


def test_through_the_marks_of_a_chat(graph: Graph, tmp_path: Path) -> None:
    marked = "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
    (found,) = overlaps(graph, folders(tmp_path, second=[marked], held=["how many?", "b"]))
    assert found.message == "1 of 2 questions of `held.data` are also trained on, in `second.data`"


def test_through_the_words_of_generated_tasks(graph: Graph, tmp_path: Path) -> None:
    """Worked solutions behind an effort and the bare question of a benchmark."""
    bare = {"second": ["5 +6 mod 10", "1 +1 mod 10"], "held": ["5 +6 mod 10", "2 +2 mod 10"]}
    tables = {
        "second": ["<low> <q> 5 a +6 ?", "<low> <q> 1 a +1 ?"],
        "held": ["<q> 5 a +6 ?", "<q> 2 a +2 ?"],
    }
    (found,) = overlaps(graph, folders(tmp_path, bare, **tables))
    assert found.message == "1 of 2 questions of `held.data` are also trained on, in `second.data`"
    assert found.notes[0] == "the first is: <q> 5 a +6 ?"


def test_through_the_wordings_and_prompts_of_the_study(tmp_path: Path) -> None:
    """A file that holds questions as a wording, inside a model's prompt, puts them; other words are not taken for such."""
    wording = {"wordings": [{"question": "Within {budget}  tokens: {question}"}]}
    prompt = {"model": {"prompt": {"template": "{question}\nThink step by step."}}}
    tasks = (
        task("base.model", "model"),
        task("own.data", "data"),
        task("held.data", "data"),
        Task("own.train", "train", wording | prompt, {"start": "base.model", "data": "own.data"}, arm="own"),
        task("own.eval", "evaluate", "own", start="own.train", data__held="held.data"),
    )
    own = ["within 64 tokens: A? Think  step by step.", "B? Think step by step.", "Within few tokens: C?"]
    (found,) = overlaps(Graph(tasks), folders(tmp_path, own=own, held=["A?", "B?", "C?"]))
    assert found.message == "2 of 3 questions of `held.data` are also trained on, in `own.data`"


@pytest.mark.parametrize("kept", [False, True])
def test_through_pools_and_selections(tmp_path: Path, kept: bool) -> None:
    """What a selection picks, or keeps, are questions of its pools' data: known before anything is sampled."""
    select = {"pool__0": "own.pool"} | ({"data": "asked.data"} if kept else {})
    tasks = (
        task("base.model", "model"),
        task("asked.data", "data"),
        task("held.data", "data"),
        task("own.pool", "sample", start="base.model", data="asked.data"),
        task("own.select", "select", **select),
        task("own.train", "train", "own", start="base.model", data="own.select"),
        task("own.eval", "evaluate", "own", start="own.train", data__held="held.data"),
    )
    (found,) = overlaps(Graph(tasks), folders(tmp_path, asked=["a", "b"], held=["b"]))
    assert found.message == "1 of 1 questions of `held.data` are also trained on, in `asked.data`"
