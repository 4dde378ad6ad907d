"""The library's data sets in the form in which they are published: files, columns, types, marks. The rows are our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.ir.chat import find_turn
from reodsl.ir.data import Data
from reodsl.language import compile_file
from runners.data.load import doubts, file_problems, load_data, read_sources
from runners.grade import SEPARATOR, Claim, make_verifier

BOXED = "Please reason step by step, and put your final answer within \\boxed{}."


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def json_list(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows))


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pl.DataFrame(rows).write_parquet(path)


def boba(question: str, *solutions: str, name: str) -> dict[str, Any]:
    prompt = f"<｜User｜>\n{question}\n{BOXED}<｜Assistant｜><think>\n"
    return {"prompt": prompt, "task": "math", "query_id": name, "solutions": list(solutions)}


@dataclass(frozen=True, slots=True)
class Published:
    """A data set of a hub: its file, how that is written, two of its rows, and the table that they make."""

    repo: str
    file: str
    write: Callable[[Path, list[dict[str, Any]]], None]
    rows: list[dict[str, Any]]
    table: list[tuple[str, str]]
    ids: tuple[str, ...] = ()


PUBLISHED = {
    "areal_boba_7b": Published(
        "inclusionAI/AReaL-boba-Data",
        "AReaL-boba-106k.jsonl",
        jsonl,
        [
            boba("Half of $x$ is $7$. What is $x$?", "\\boxed{14}", name="d0"),
            boba("Simplify $\\frac{4}{6}$.", "\\boxed{\\frac{2}{3}}", "\\boxed{2/3}", name="d1"),
        ],
        [
            ("Half of $x$ is $7$. What is $x$?", "\\boxed{14}"),
            ("Simplify $\\frac{4}{6}$.", f"\\boxed{{\\frac{{2}}{{3}}}}{SEPARATOR}\\boxed{{2/3}}"),
        ],
        ids=("d0", "d1"),
    ),
    "deepscaler": Published(
        "agentica-org/DeepScaleR-Preview-Dataset",
        "deepscaler.json",
        json_list,
        [
            {
                "problem": "Half of $x$ is $7$. What is $x$?",
                "answer": "14",
                "solution": "It is $2 \\cdot 7$.",
            },
            {"problem": "Simplify $\\frac{4}{6}$.", "answer": "\\frac{2}{3}", "solution": ""},
        ],
        [("Half of $x$ is $7$. What is $x$?", "14"), ("Simplify $\\frac{4}{6}$.", "\\frac{2}{3}")],
    ),
    "aime24_questions": Published(
        "HuggingFaceH4/aime_2024",
        "data/train-00000-of-00001.parquet",
        parquet,
        [
            {
                "id": 60 + n,
                "problem": question,
                "solution": "Count them.",
                "answer": answer,
                "url": "https://example.org/1",
                "year": "2024",
            }
            for n, (question, answer) in enumerate([("Count the pairs.", "025"), ("Find $m+n$.", "113")])
        ],
        [("Count the pairs.", "025"), ("Find $m+n$.", "113")],
    ),
    "aime25_questions": Published(
        "math-ai/aime25",
        "test.jsonl",
        jsonl,
        [
            {"problem": "Find the sum of all bases.", "answer": "70", "id": "0"},
            {"problem": "Find the area.", "answer": "588", "id": "1"},
        ],
        [("Find the sum of all bases.", "70"), ("Find the area.", "588")],
    ),
    "amc23_questions": Published(
        "math-ai/amc23",
        "test-00000-of-00001.parquet",
        parquet,
        [
            {"id": 0, "question": "How far apart?", "answer": "27.0", "url": "https://example.org/2"},
            {"id": 1, "question": "How many integers?", "answer": "36.0", "url": "https://example.org/3"},
        ],
        [("How far apart?", "27.0"), ("How many integers?", "36.0")],
    ),
    "minerva_questions": Published(
        "math-ai/minervamath",
        "test-00000-of-00001.parquet",
        parquet,
        [
            {"question": "What is the luminosity, in erg/s?", "answer": "4.5e33"},
            {"question": "Solve for $y(t)$.", "answer": "\\frac{1}{2} e^{-t}"},
        ],
        [("What is the luminosity, in erg/s?", "4.5e33"), ("Solve for $y(t)$.", "\\frac{1}{2} e^{-t}")],
    ),
}


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def declared(name: str, folder: Path) -> Data:
    """A declaration of the library, as an experiment that trains on it has it."""
    (folder / "spec.reo").write_text(
        f"from std.data import {name} as mine\n"
        "from std.models import deepseek_1_5b_rl\nfrom std.recipes import ppo\n"
        "from std.rewards import outcome\nfrom std.miniature import chain_suite\n"
        "experiment tried = ppo { base = deepseek_1_5b_rl, data = mine, reward = outcome, steps = 4 steps, "
        "eval = chain_suite }\n"
    )
    compiled = compile_file(folder / "spec.reo")
    assert compiled.spec is not None, compiled.diagnostics
    experiment = compiled.spec.study.arms[-1].checkpoint.experiment  # type: ignore[union-attr]
    return experiment.stages[0].data


def put(folder: Path, *names: str) -> None:
    for name in names:
        each = PUBLISHED[name]
        path = folder / "data" / each.repo / each.file
        path.parent.mkdir(parents=True, exist_ok=True)
        each.write(path, each.rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_data_set_as_published_is_bare_questions_and_their_answers(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    data = declared(name, tmp_path)
    assert file_problems(data, tmp_path) == []
    table = load_data(data, tmp_path)
    assert doubts(data, read_sources(data, tmp_path)) is None
    assert table.select("question", "answer").rows() == PUBLISHED[name].table
    assert not any(find_turn(question) for question in table["question"])
    if PUBLISHED[name].ids:
        assert tuple(table["id"]) == PUBLISHED[name].ids


@pytest.mark.parametrize("name", ["aime24_questions", "amc23_questions"])
def test_a_plain_answer_is_right_against_a_published_one(name: str) -> None:
    grade = make_verifier("math").grade
    plain = [answer.lstrip("0").removesuffix(".0") for _, answer in PUBLISHED[name].table]
    golds = [answer for _, answer in PUBLISHED[name].table]
    assert all(v.correct for v in grade([Claim(*pair) for pair in zip(plain, golds, strict=True)]))


def test_the_mixture_has_each_question_once_though_one_source_marks_it(tmp_path: Path) -> None:
    """Both rows of either source are the same two questions, AReaL's between marks and with the instruction."""
    put(tmp_path, "deepscaler", "areal_boba_7b")
    table = load_data(declared("deepscaler_and_areal", tmp_path), tmp_path)
    assert table.select("question", "answer").rows() == PUBLISHED["deepscaler"].table


def test_every_data_set_of_the_library_is_here() -> None:
    text = (Path(__file__).resolve().parents[2] / "stdlib" / "data.reo").read_text()
    names = {line.split()[1] for line in text.splitlines() if line.startswith("data ")}
    assert names == {*PUBLISHED, "deepscaler_and_areal"}
