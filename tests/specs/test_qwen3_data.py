"""The paper's Qwen3-4B run with its data from a hub's name, a file or a package, columns mapped: the same table."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.store.external import package_version
from runners.data import load
from runners.grade import SEPARATOR
from tests.specs.test_published_data import nowhere_else as nowhere_else

SPEC = Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo"
# As AReaL-boba's file is: DeepSeek's marks in the prompt, several right answers.
ROWS = [
    {
        "prompt": f"<｜User｜>\n{question}<｜Assistant｜><think>\n",
        "solutions": solutions,
        "query_id": name,
        "task": "math",
    }
    for name, question, solutions in [("a", "What is 1+1?", ["2", "$2$"]), ("b", "What is 6*7?", ["42"])]
]
AS_PUBLISHED = 'columns: columns(question: "prompt", answer: "solutions", id: "query_id")'
TABLE = [("a", "What is 1+1?", f"2{SEPARATOR}$2$"), ("b", "What is 6*7?", "42")]


def questions(folder: Path, source: str | None) -> pl.DataFrame:
    """The training questions that the spec, put into `folder` and with `source` as its data's, prepares."""
    text = SPEC.read_text()
    if source is not None:
        text = text.replace("= areal_boba_7b", "= mine").replace(
            "from std.data     import areal_boba_7b\n", ""
        )
        strip = 'marks(before: "<｜User｜>", after: "<｜Assistant｜><think>")'
        text += f"\ndata mine {{ source = {source}, strip = {strip} }}\n"
    (folder / "spec.reo").write_text(text)
    compiled = compile_file(folder / "spec.reo")
    assert compiled.spec is not None, compiled.diagnostics
    train = next(task for task in lower(compiled.spec).tasks if task.kind == "train")
    task = lower(compiled.spec)[train.inputs["data"]]
    out = folder / "out"
    out.mkdir()
    load.data(Job(task, {}, out, folder / "work", folder, lambda _: None))
    return pl.read_parquet(out / "questions.parquet")


def test_by_the_hubs_name_from_the_hubs_cache(tmp_path: Path) -> None:
    place = tmp_path / "hub" / "datasets--inclusionAI--AReaL-boba-Data"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc")
    (place / "snapshots" / "abc").mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (place / "snapshots" / "abc" / "AReaL-boba-106k.jsonl").write_text(lines)
    assert questions(tmp_path, None).rows() == TABLE


def test_by_the_hubs_name_from_a_mirror_beside_the_spec(tmp_path: Path) -> None:
    place = tmp_path / "data" / "inclusionAI" / "AReaL-boba-Data" / "data"
    place.mkdir(parents=True)
    pl.DataFrame(ROWS).write_parquet(place / "train-00000-of-00001.parquet")
    assert questions(tmp_path, None).rows() == TABLE


def test_from_a_parquet_file(tmp_path: Path) -> None:
    pl.DataFrame(ROWS).write_parquet(tmp_path / "boba.parquet")
    assert questions(tmp_path, f'file("boba.parquet", {AS_PUBLISHED})').rows() == TABLE


def test_from_a_jsonl_file(tmp_path: Path) -> None:
    (tmp_path / "boba.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert questions(tmp_path, f'file("boba.jsonl", {AS_PUBLISHED})').rows() == TABLE


@pytest.mark.skipif(package_version("reasoning-gym") is None, reason="make smollm2")
def test_from_a_package(tmp_path: Path) -> None:
    found = questions(tmp_path, 'package("reasoning-gym", task: "chain_sum", count: 5, seed: 7)')
    assert found.height == 5
    for question, answer, meta in found.select("question", "answer", "meta").iter_rows():
        entry = json.loads(meta)["entry"]
        assert (entry["question"], entry["answer"]) == (question, answer)
        assert str(eval(entry["metadata"]["expression"])) == answer
