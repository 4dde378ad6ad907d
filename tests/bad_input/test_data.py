"""Data sets that are not what they should be, through `reodsl run`: nothing is trained, and what is done stays done."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from reodsl.store.layout import MARK
from runners.data import load
from tests.bad_input.commands import SPEC, Place, permissions_count, refused, whole

GOOD = '{"question": "<q> 1 a +1 b +2 ? <think>", "answer": "4"}\n{"question": "<q> 2 a +1 b +2 ? <think>", "answer": "5"}\n'
DATA: dict[str, tuple[str, str | bytes, str, str, tuple[str, ...]]] = {
    "a missing column": (
        "d.jsonl",
        '{"problem": "1+1?", "answer": "2"}\n',
        "E0701",
        "d.jsonl",
        ("no column `question`", "it has `problem`, `answer`", 'columns: columns(question: "problem")'),
    ),
    "two missing columns": (
        "d.csv",
        "q,a\n1,2\n",
        "E0701",
        "d.csv",
        ("`question`, `answer`", "it has `q`, `a`"),
    ),
    "duplicate questions": (
        "d.jsonl",
        GOOD + GOOD.replace("<q> 1", "<Q>  1"),
        "E0705",
        "d.jsonl",
        ("2 of 4 questions are duplicates", "row 3 repeats row 1", "`duplicates = drop`"),
    ),
    "an empty question": (
        "d.jsonl",
        GOOD + '{"question": " ", "answer": "2"}\n',
        "E0704",
        "d.jsonl, row 3",
        ("1 of 3 rows have no question",),
    ),
    "an empty answer": (
        "d.csv",
        'question,answer\n1+1?,2\n1+2?,""\n1+3?,\n',
        "E0704",
        "d.csv, rows 2, 3",
        ("2 of 3 rows have no answer",),
    ),
    "no rows": ("d.jsonl", "", "E0704", "d.jsonl", ("no questions",)),
    "a header alone": ("d.csv", "question,answer\n", "E0704", "d.csv", ("no questions",)),
    "no JSON": ("d.jsonl", GOOD + "question: 2\n", "E0706", "d.jsonl, line 3", ()),
    "deep JSON": ("d.jsonl", GOOD + "[" * 100_000 + "\n", "E0706", "d.jsonl, line 3", ()),
    "no text": ("d.jsonl", b"\xff\xfe\x00", "E0706", "d.jsonl", ("not UTF-8", "0xff")),
    "no Parquet": (
        "d.parquet",
        b"PAR1" + b"\0" * 40 + b"PAR1",
        "E0706",
        "d.parquet",
        ("check that the file is complete",),
    ),
    "a ragged row": ("d.csv", "question,answer\na,b,c\n", "E0706", "d.csv, line 2", ("3 fields",)),
    "lists": (
        "d.jsonl",
        '{"question": ["a"], "answer": "2"}\n',
        "E0706",
        "d.jsonl, line 1",
        ("`question` is a list",),
    ),
}


def with_file(name: str) -> str:
    return SPEC.replace(
        "data asked { source = generated(chain_easy, count: 4, seed: 1)",
        f'data asked {{ source = file("{name}")',
    )


@pytest.mark.parametrize("kind", DATA)
def test_a_data_set_that_is_not_what_it_should_be(place: Place, kind: str) -> None:
    name, content, code, at, words = DATA[kind]
    place.write(content, name)
    place.write(with_file(name))
    told = place.run()
    refused(told, code, "tiny.reo:8:28", f'source = file("{name}")', *words)
    assert re.search(rf"^ *= at: .*{re.escape(at)}$", told.err, re.M), told.err
    assert not (place.folder / ".reodsl").exists()
    assert not (place.folder / "runs").exists()


def test_of_files_with_one_name_in_two_folders_the_one_at_fault_is_told(place: Place) -> None:
    place.write(GOOD, "d.jsonl")
    place.write("nothing", "more/d.jsonl")
    place.write(with_file("d.jsonl").replace('file("d.jsonl")', '[file("d.jsonl"), file("more/d.jsonl")]'))
    refused(place.run(), "E0706", "tiny.reo:8:46", "more/d.jsonl, line 1")


def test_what_ends_a_line_elsewhere_ends_none_of_a_spec(place: Place) -> None:
    place.write("nothing", "d.jsonl")
    place.write("# one\u2028line\n" + with_file("d.jsonl"))
    refused(place.run(), "E0706", "tiny.reo:9:28", "d.jsonl, line 1")


def test_plan_and_doctor_look_inside_a_file(place: Place) -> None:
    place.write(GOOD + GOOD, "d.jsonl")
    place.write(with_file("d.jsonl"))
    plan = place.call("plan", "tiny.reo")
    assert (plan.code, plan.findings()) == (1, ["E0705"])
    assert "asked.data" in plan.out
    doctor = place.call("doctor", "tiny.reo", "--json")
    assert [each["code"] for each in json.loads(doctor.out)["specs"][0]["lacks"]] == ["E0705"]
    assert "d.jsonl: 2 of 4 questions are duplicates" in place.call("doctor", "tiny.reo").out
    # It may be on the machine that is to run the spec.
    (place.folder / "d.jsonl").unlink()
    assert place.call("plan", "tiny.reo").code == 2


def test_a_large_file_is_read_by_its_task_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "CHECKED_BYTES", 10)
    place.write(GOOD + GOOD, "d.jsonl")
    place.write(with_file("d.jsonl"))
    assert place.call("plan", "tiny.reo").code == 2
    told = place.run()
    refused(told, "E0705", "d.jsonl", "2 of 4 questions are duplicates")
    assert told.err.endswith("1 failed, 3 not tried, 3 done; run the same command to resume\n")
    # What does not need it is done and stays done: the model, the other data, and the evaluation of both.
    whole(place.folder / ".reodsl", {"model", "data", "evaluate"})
    assert {path.name for path in (place.folder / "runs").glob("*/*")} == {MARK, "arms"}
    assert {path.name for path in (place.folder / "runs").glob("*/arms/*")} == {"base.s1"}
    again = place.run()
    assert again.err == told.err


@pytest.mark.parametrize("name", ["d.csv", "d.parquet"])
def test_columns_at_the_head_of_a_large_file_are_looked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(load, "CHECKED_BYTES", 10)
    table = pl.DataFrame({"question": ["1+1?", "1+1?"], "reply": ["2", "2"]})
    table.write_csv(place.folder / name) if name.endswith("csv") else table.write_parquet(place.folder / name)
    place.write(with_file(name))
    refused(place.run(), "E0701", "tiny.reo:8:28", "no column `answer`")
    assert not (place.folder / ".reodsl").exists()


HUB = SPEC.replace(
    "data asked { source = generated(chain_easy, count: 4, seed: 1)", 'data asked { source = hub("own/er")'
)


@pytest.mark.parametrize("kind", ["a missing column", "duplicate questions", "an empty question", "no text"])
@pytest.mark.parametrize("where", ["beside the spec", "in the hub's cache"])
def test_a_local_copy_of_a_hub_s_data_set_is_looked_into(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    copy = place.folder / "data" / "own" / "er"
    if where == "in the hub's cache":
        monkeypatch.setenv("HF_HUB_CACHE", str(place.folder / "hub"))
        copy = place.folder / "hub" / "datasets--own--er" / "snapshots" / "abc"
        (copy.parent.parent / "refs").mkdir(parents=True)
        (copy.parent.parent / "refs" / "main").write_text("abc")
    copy.mkdir(parents=True)
    _, content, code, _, words = DATA[kind]
    (copy / "train.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    place.write(HUB)
    refused(place.run(), code, "tiny.reo:8:27", 'source = hub("own/er")', *words)
    assert not (place.folder / ".reodsl").exists()
    assert place.call("plan", "tiny.reo").findings() == [code]


def test_of_a_large_copy_every_head_is_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "CHECKED_BYTES", 60)
    copy = place.folder / "data" / "own" / "er"
    copy.mkdir(parents=True)
    (copy / "train-0.csv").write_text("question,answer\n1+1?,2\n1+1?,2\n")
    place.write(HUB)
    assert place.call("plan", "tiny.reo").findings() == ["E0705"]
    # Together they are more than is read ahead, and duplicates are found by the task alone.
    (copy / "train-1.csv").write_text("question,answer\n1+2?,3\n1+3?,4\n1+4?,5\n1+5?,6\n1+6?,7\n")
    assert place.call("plan", "tiny.reo").code == 2
    (copy / "train-2.csv").write_text("question,reply\n1+1?,2\n")
    refused(place.run(), "E0701", "tiny.reo:8:27", "= at: data/own/er/train-2.csv", "no column `answer`")
    assert not (place.folder / ".reodsl").exists()
    (copy / "train-2.csv").unlink()
    (copy / "train-2.csv").symlink_to("nowhere.csv")
    assert place.call("plan", "tiny.reo").findings() == ["E0706"]
    # Of another split, as if there were none.
    for path in copy.iterdir():
        path.rename(copy / path.name.replace("train", "test"))
    assert place.call("plan", "tiny.reo").code == 2


def test_a_file_whose_questions_are_in_the_store_is_not_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(GOOD, "d.jsonl")
    place.write(with_file("d.jsonl"))
    assert place.run("--amend", "tiny.steps=1").code == 0
    monkeypatch.setattr(load, "read_questions", None)
    assert place.run("--amend", "tiny.steps=2").code == 0
    assert place.call("doctor", "tiny.reo").code == 0


def test_a_data_set_that_is_mended_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "CHECKED_BYTES", 10)
    place.write(GOOD + GOOD, "d.jsonl")
    place.write(with_file("d.jsonl"))
    assert place.run().findings() == ["E0705"]
    place.write(GOOD, "d.jsonl")
    plan = json.loads(place.call("plan", "tiny.reo", "--json").out)
    verdicts = {task["id"]: task["verdict"] for task in plan["tasks"]}
    assert verdicts["mite.model.s1"] == verdicts["held.data"] == "reuse"
    assert verdicts["asked.data"] == "run"


MISSING: dict[str, tuple[str, str]] = {
    "no file": ("nowhere.jsonl", "nowhere.jsonl"),
    "a folder": ("folder.jsonl", "folder.jsonl"),
    "a device": ("zero.csv", "zero.csv"),
    "shut": ("shut.csv", "shut.csv"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_data_set_that_is_no_file_is_found_before_anything_starts(place: Place, kind: str) -> None:
    name, at = MISSING[kind]
    (place.folder / "folder.jsonl").mkdir()
    (place.folder / "zero.csv").symlink_to("/dev/zero")
    place.write(GOOD, "d.xlsx")
    place.write(GOOD, "shut.csv").chmod(0)
    place.write(with_file(name))
    with permissions_count():
        told = place.run()
    refused(told, "E0706", "tiny.reo:8:28", f"= at: {at}")
    assert not (place.folder / ".reodsl").exists()


def test_references_that_nothing_reads_are_told_at_their_line(place: Place) -> None:
    rows = [
        ("<q> 1 a +1 b +2 ? <think>", "4"),
        ("<q> 2 a +1 b +2 ? <think>", "1 +"),
        ("<q> 1 A +1 b +2 ? <think>", "5"),
    ]
    place.write("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows), "d.jsonl")
    asked = with_file("d.jsonl").replace("verifier = exact", "verifier = math, duplicates = drop", 1)
    place.write(asked)
    told = place.call("run", "tiny.reo", "--local")
    assert told.code == 0, told.err
    assert told.findings().count("W0716") == 1, told.err
    for words in ("no parser reads 1 of 3 reference answers", "d.jsonl, row 2: `1 +`"):
        assert words in told.err
    # The other one counts the row that is dropped.
    assert len(re.findall(r"--> .*tiny\.reo:8:", told.err)) == 2, told.err
    # Before anything is trained, and again where nothing is left to do.
    assert told.err.index("W0716") < told.err.index("start    tiny.train")
    assert place.call("run", "tiny.reo", "--local").findings().count("W0716") == 1


def test_questions_that_are_trained_and_evaluated_on(place: Place) -> None:
    """Equal questions from different files: a warning, once, as soon as both tables are there."""
    place.write(GOOD, "train.jsonl")
    place.write(GOOD.splitlines()[0].replace("<q> 1", "<q>  1") + "\n", "test.jsonl")
    text = with_file("train.jsonl").replace(", chain_easy", "")
    place.write(
        text.replace("generated(chain_easy, count: 4, seed: 1, split: held_out)", 'file("test.jsonl")')
    )
    told = place.call("run", "tiny.reo", "--local")
    assert told.code == 0, told.err
    # Whether each response of the drawn model is cut (W0801) is its evaluation's draws' affair.
    assert [each for each in sorted(told.findings()) if each != "W0801"] == ["W0802", "W0803"], told.err
    assert "1 of 1 questions of `held.data` are also trained on, in `asked.data`" in told.err
    assert "arms affected: tiny" in told.err
    assert told.err.index("W0802") < told.err.index("start    tiny.train")
    # What is there already is told too, in the end of a run that does nothing and as JSON.
    assert "W0802" in place.call("run", "tiny.reo", "--local").findings()
    assert "W0802" in place.call("run", "tiny.reo", "--local", "--json").out
