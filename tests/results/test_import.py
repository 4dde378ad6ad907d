"""Result files of others in their forms, as one table of responses, and what is refused."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from tokenizers import Tokenizer, models, pre_tokenizers

from runners.results import read
from tests.called import call

BOX = "so <t> it is \\boxed{%d}"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(name: str, *rows: Any) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def whole(name: str, value: Any) -> str:
    Path(name).write_text(json.dumps(value))
    return name


def words() -> str:
    """A tokenizer whose tokens are words, and that knows a thinking mark."""
    vocabulary = {word: n for n, word in enumerate(["?", "so", "<t>", "it", "is", "</think>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    tokenizer.save("tokenizer.json")
    return "tokenizer.json"


def brought(*arguments: str) -> list[dict[str, Any]]:
    assert call("import", *arguments, "-o", "t.parquet") == 0
    return pl.read_parquet("t.parquet").sort("model", "benchmark", "question", "sample").to_dicts()


def of(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def inspect_sample(question: str, epoch: int, value: Any, tokens: int, stop: str = "stop") -> dict[str, Any]:
    parts = [{"type": "reasoning", "reasoning": "hm "}, {"type": "text", "text": "attachment://a1"}]
    message = {"role": "assistant", "content": parts}
    return {
        "id": question,
        "epoch": epoch,
        "input": "2+2?",
        "target": "4",
        "output": {
            "choices": [{"message": message, "stop_reason": stop}],
            "usage": {"output_tokens": tokens},
        },
        "scores": {"match": {"value": value, "answer": "4"}},
        "attachments": {"a1": "\\boxed{4}"},
    }


HEADER = {"version": 2, "eval": {"model": "org/m", "task": "sums", "dataset": {"name": "easy"}}}


def test_logs_of_inspect_are_read_as_json_and_as_archives() -> None:
    samples = [inspect_sample("q", 1, "C", 40), inspect_sample("q", 2, "I", 64, "max_tokens")]
    rows = brought(whole("log.json", HEADER | {"samples": samples}))
    assert of(rows, "model", "benchmark", "sample", "tokens", "correct", "finish", "response", "gold") == [
        ("org/m", "easy", 1, 40, True, "stop", "hm \\boxed{4}", "4"),
        ("org/m", "easy", 2, 64, False, "length", "hm \\boxed{4}", "4"),
    ]
    with zipfile.ZipFile("log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        for number, sample in enumerate(samples):
            archive.writestr(f"samples/q_epoch_{number}.json", json.dumps(sample))
    assert brought("log.eval") == rows
    members = {f"samples/q_epoch_{number}.json": sample for number, sample in enumerate(samples)}
    zstd_archive("newer.eval", {"header.json": HEADER} | members)
    assert brought("newer.eval") == rows


def zstd_archive(name: str, members: Mapping[str, Any]) -> None:
    """Write an archive as inspect's newer versions do: stored by `zipfile`, with the method that its bytes have."""
    with zipfile.ZipFile(name, "w") as archive:
        for each, value in members.items():
            archive.writestr(each, zstandard.compress(json.dumps(value).encode()))
        places = [each.header_offset for each in archive.infolist()]
    data = bytearray(Path(name).read_bytes())
    directory = data.index(b"PK\x01\x02")
    for place in (*(8 + place for place in places), *_every(data, b"PK\x01\x02", directory, 10)):
        data[place : place + 2] = (93).to_bytes(2, "little")
    Path(name).write_bytes(data)


def _every(data: bytes, mark: bytes, start: int, further: int) -> Iterator[int]:
    while (start := data.find(mark, start)) >= 0:
        yield start + further
        start += 1


def test_forms_without_tokens_are_counted_by_a_tokenizer_and_graded_where_nobody_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    three = ["a </think> " + BOX % 3, BOX % 4]
    lm_eval = {
        "doc_id": 7, "target": "3", "arguments": {"gen_args_0": {"arg_0": "1+2?"}}, "resps": [three],
        "filter": "strict", "metrics": ["exact_match"], "exact_match": 1.0,
    }  # fmt: skip
    files = {
        "lm-eval, filter strict": lines(
            "samples_sums_2026-01-01T00-00-00.0.jsonl", lm_eval, lm_eval | {"filter": "flexible"}
        ),
        "Qwen2.5-Math": lines(
            "q.jsonl",
            {"idx": 7, "question": "1+2?", "gt": "3", "code": three, "pred": ["3", "4"], "score": [True, False]},
        ),
        "verl": lines(
            "40.jsonl",
            *({"input": "1+2?", "output": text, "gts": "3", "score": -1.0 * k, "acc": not k, "step": 4}
              for k, text in enumerate(three)),
        ),
    }  # fmt: skip
    for form, file in files.items():
        rows = brought(file, "--model", "mine", "--tokenizer", words())
        assert of(rows, "model", "sample", "tokens", "correct") == [
            # By hand: seven words and five, and a stop token each.
            ("mine", 0, 8, True),
            ("mine", 1, 6, False),
        ], form
        told = capsys.readouterr().out.splitlines()[0]
        graded = "2 graded here  " if form == "lm-eval, filter strict" else ""
        assert told == f"mine  {form}  1 question × 2  tokens of 2 counted from text  {graded}gives: ended"
    assert brought(files["lm-eval, filter strict"], "--tokenizer", words())[0]["benchmark"] == "sums"
    shortened = Tokenizer.from_file(words())
    shortened.enable_truncation(3)
    shortened.enable_padding(length=40)
    shortened.save("tokenizer.json")
    rows = brought(files["Qwen2.5-Math"], "--tokenizer", "tokenizer.json")
    assert of(rows, "tokens") == [(8,), (6,)]


def test_forms_with_tokens_need_nothing_else() -> None:
    areal = {
        "task_id": 7, "sample_idx": 0, "seqlen": 61, "prompt_len": 20, "reward": 1.0, "prompt": "p",
        "completion": "c",
    }  # fmt: skip
    assert of(brought(lines("a.jsonl", areal)), "model", "question", "tokens", "correct") == [
        ("a", "7", 41, True)
    ]
    pl.DataFrame({
        "doc": [{"id": "0", "query": "1+1?", "choices": ["2"], "task_name": "sums"}],
        "model_response": [{"text": ["\\boxed{2}", "\\boxed{3}"], "output_tokens": [[1, 2, 3], [1]]}],
        "metric": [{"avg@2": 0.5, "pass@2": 1.0}],
    }).write_parquet("details.parquet")  # fmt: skip
    assert of(brought("details.parquet"), "benchmark", "tokens", "correct") == [
        ("sums", 3, True),
        ("sums", 1, False),
    ]
    pl.DataFrame({
        "example": ["1+1?", "1+2?"], "full_prompt": ["Q: 1+1?", "Q: 1+2?"], "gold": [["2"], ["3"]],
        "predictions": [["\\boxed{2}"], ["\\boxed{4}"]], "cont_tokens": [[[1, 2, 3]], [[1]]],
        "metrics": [{"extractive_match": 1.0}, {"extractive_match": 0.0}],
    }).write_parquet("details_lighteval|sums|0_2025-02-03T04-05-06.789.parquet")  # fmt: skip
    (older,) = Path().glob("details_*.parquet")
    columns = ("benchmark", "tokens", "correct", "gold", "text")
    assert of(brought(str(older)), *columns) == [
        ("lighteval|sums|0", 3, True, "2", "1+1?"),
        ("lighteval|sums|0", 1, False, "3", "1+2?"),
    ]


def test_other_forms_are_read_where_their_fields_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    file = lines("odd.jsonl", {"meta": {"qid": "q1"}, "outs": ["a", "b"], "ok": [0.2, 0.9], "n": [3, 4]})
    assert call("import", file, "-o", "t.parquet") == 1
    assert "its first row has `meta`, `outs`, `ok`, `n`" in capsys.readouterr().err
    named = ("question=meta.qid", "correct=ok[]", "tokens=n[]", "response=outs[]")
    rows = brought(file, *(word for each in named for word in ("--column", each)), "--right-from", "0.5")
    assert of(rows, "question", "sample", "tokens", "correct") == [("q1", 0, 3, False), ("q1", 1, 4, True)]


def test_the_help_names_the_fields_that_a_row_lacks_alone(capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(
        "theirs.jsonl",
        {"question": "1", "tokens": 12, "score": 1},
        {"question": "2", "tokens": 9, "score": 0},
    )
    assert call("import", rows, "-o", "t.parquet") == 1
    assert "name the fields: `--column correct=NAME`, with" in capsys.readouterr().err
    assert of(brought(rows, "--column", "correct=score"), "question", "correct") == [
        ("1", True),
        ("2", False),
    ]


def test_forced_answers_make_a_curve_of_the_kind_j(capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.csv").write_text("question,tokens,correct,correct@4,correct@8\nq,6,1,0,0\nr,9,1,0,1\n")
    rows = brought("f.csv", "--model", "m")
    # A response that ended within a budget has the score of the whole there.
    assert [[each["correct"] for each in row["at"]] for row in rows] == [[False, True], [False, True]]
    assert "gives: J" in capsys.readouterr().out
    assert [row["at"] for row in brought("f.csv", "--ended")] == [None, None]


def test_names_of_models_go_to_the_files_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"question": "q", "tokens": 4, "correct": True}
    a, b, c = (lines(f"{name}.jsonl", row | {"sample": n}) for n, name in enumerate("abc"))
    assert of(brought(a, b, "--model", "x", c, "--model=y"), "model", "sample") == [
        ("x", 0),
        ("x", 1),
        ("y", 2),
    ]
    assert of(brought("--model", "x", a, b), "model", "sample") == [("x", 0), ("x", 1)]
    assert call("import", a, "--model", "x", "--model", "y", b, "-o", "t.parquet") == 1
    assert "2 models are named, but not every model has files before it" in capsys.readouterr().err


ROW = {"question": "q", "sample": 0, "tokens": 4, "correct": 1, "response": "a b"}
TWO = (ROW, ROW | {"question": "r", "model": "b"})
BAD: dict[str, tuple[tuple[Any, ...], tuple[str, ...], str, str]] = {
    "no lengths": ((ROW | {"tokens": None},), (), "1 responses have no number of tokens", "`--tokenizer MODEL`"),
    "a part of a score": ((ROW | {"correct": 0.5},), (), "a score is 0.5, neither 0 nor 1", "`--right-from 1`"),
    "no number": ((ROW | {"correct": "high"},), (), "the score is 'high', which is no number", "`--column"),
    "a score that is missing": ((ROW | {"correct": float("nan")},), (), "have neither a score", "=NAME"),
    "a long name": ((ROW | {"corrects_" + "forced" * 40_000: 1},), (), "name has more than 200 characters", "rename"),
    "lists of two lengths of forced answers": (
        (ROW | {"correct@4": [0, 1], "correct@8": [0]},), (), "its lists have 1 and 2 values", "correct",
    ),
    "twice": ((ROW, ROW), (), "question `q` has sample 0 twice", "name each file once"),
    "speeds": (({"output_lens": [1], "ttfts": [1]},), (), "these are speeds, not results", "graded responses"),
    "no reasoning": (
        (ROW | {"tokens": None},), ("--tokenizer", "tokenizer.json"), "no response has </think>", "think_end_token",
    ),
    "no score": (
        ({"question": "q", "tokens": 4, "correct": None, "ok": 1},), ("--column", "sample=s"), "neither a score", "=NAME",
    ),
    "no question": (({"correct": 1, "tokens": 3},), (), "this row names no question", "--column question"),
    "tokens of a half": ((ROW | {"tokens": 1.5},), (), "`tokens` is '1.5', which is no whole number", "correct"),
    "no row in common": (TWO, ("--common",), "no response is left", "--common"),
    "lists of two lengths": (({"idx": 1, "code": ["a", "b"], "score": [1]},), (), "its lists have 1 and 2 values", "remove"),
    "two verdicts at a budget": (
        (ROW | {"correct@8": 1, "at": [{"budget": 8, "correct": 0}]},), (), "a budget is listed twice", "`--ended`",
    ),
    "other budgets": ((ROW | {"correct@8": 1}, ROW | {"sample": 1, "correct@9": 1}), (), "at other budgets", "`--ended`"),
    "a row of no fields": (([1],), (), "this row is no record", "record"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_message_and_nothing_is_written(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, options, words_, advice = BAD[case]
    words()
    Path("t.parquet").write_text("older")
    before = sorted(Path().iterdir())
    file = lines("x.jsonl", *rows)
    assert call("import", file, *options, "-o", "t.parquet") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error[E043") == 1
    assert words_ in err
    assert advice in err[err.index("help: ") :]
    assert Path("t.parquet").read_text() == "older"
    assert sorted(Path().iterdir()) == sorted([*before, Path(file)])


def test_files_that_are_damaged_or_too_large_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "LONGEST_ROW", 2_000)
    monkeypatch.setattr(read, "LARGEST_DOCUMENT", 4_000)
    good = json.dumps(ROW)
    with zipfile.ZipFile("bomb.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/q_epoch_1.json", " " * 1_000_000 + good)
    zstd_archive("heavy.eval", {"samples/q_epoch_1.json": " " * 1_000_000})
    zstd_archive("cut.eval", {"samples/q_epoch_1.json": ROW})
    cut = bytearray(Path("cut.eval").read_bytes())
    cut[60:80] = bytes(20)
    for name, way in (("bzip2", zipfile.ZIP_BZIP2), ("lzma", zipfile.ZIP_LZMA)):
        with zipfile.ZipFile(f"{name}.eval", "w", way) as archive:
            archive.writestr("samples/q_epoch_1.json", good)
    texts = {
        "torn.jsonl": (f"{good}\n{good[:9]}\n", "line 2"),
        "deep.jsonl": ("[" * 900 + "\n", "nested deeper"),
        "long.jsonl": (good + " " * 2_000 + "\n", "a line of more than 2,000 bytes"),
        "latin.csv": (b"question,correct\n\xe9,1\n", "latin.csv"),
        "uneven.csv": ("question,tokens,correct\nq,4,1,5\n", "row 2"),
        "large.json": (json.dumps([ROW] * 99), "its JSON value has"),
        "no.parquet": ("no", "no.parquet"),
        "no.eval": ("no", "not a zip"),
        "no.txt": ("no", "its name ends in none of"),
        "empty.jsonl": ("", "it has no row of results"),
        "bomb.eval": (None, "it has 2,001 bytes, and may have 2,000"),
        "heavy.eval": (None, "it has 2,001 bytes, and may have 2,000"),
        "cut.eval": (bytes(cut), "cut.eval"),
        "absent.jsonl": (None, "No such file"),
        "bzip2.eval": (None, "its compression has the number 12, and only stored"),
        "lzma.eval": (None, "its compression has the number 14, and only stored"),
        "twice.jsonl": (good[:-1] + ', "correct": 0}\n', "`correct` is listed twice"),
        "twice.csv": ("question,correct,tokens,correct\nq,1,4,0\n", "it has 2 columns `correct`"),
        "laid.jsonl": (json.dumps(ROW, indent=2), "rename a file with a single value to `laid.json`"),
    }  # fmt: skip
    for name, (content, words_) in texts.items():
        if content is not None:
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        assert call("import", name, "-o", "t.parquet") == 1, name
        err = capsys.readouterr().err
        assert "error[E0436]: nothing was imported" in err, name
        assert words_ in err, err
        assert not Path("t.parquet").exists()
    half = lines("half.jsonl", {**ROW, "response": "\ud83d", "gold": ["\ud83d", "4"]})
    assert of(brought(half), "response", "gold") == [("?", "?\x1e4")]


def test_what_programs_put_before_a_text_or_between_files_is_passed_over() -> None:
    Path("laid.json").write_text(json.dumps(ROW, indent=2))
    mark, text = "\ufeff", Path(lines("plain.jsonl", ROW)).read_text()
    Path("mark.jsonl").write_text(mark + text)
    Path("mark.json").write_text(mark + json.dumps([ROW]))
    Path("mark.csv").write_text(mark + "question,sample,tokens,correct,response\nq,0,4,1,a b\n")
    for name in ("laid.json", "mark.jsonl", "mark.json", "mark.csv"):
        assert brought(name, "--model", "m") == brought("plain.jsonl", "--model", "m"), name
    with zipfile.ZipFile("folders.eval", "w") as archive:
        archive.writestr("samples/", "")
        archive.writestr("samples/q.json", json.dumps(inspect_sample("q", 1, "C", 40)))
    assert of(brought("folders.eval"), "question", "correct") == [("q", True)]


def test_what_is_missing_is_missing_in_every_form() -> None:
    """A reference, a score and a number of tokens; the words of a response are its own."""
    right = {"question": "q", "sample": 0, "tokens": 4, "response": "\\boxed{4}", "gold": "4"}
    for absent in (None, float("nan"), float("inf"), "nan", "None", "null", " ", ""):
        file = lines(
            "x.jsonl", right | {"correct": absent}, right | {"sample": absent, "question": "r", "correct": 1}
        )
        assert of(brought(file), "question", "sample", "correct") == [("q", 0, True), ("r", 0, True)]
        file = lines(
            "x.jsonl", right | {"correct": 0, "gold": absent, "at": [{"budget": 2, "correct": absent}]}
        )
        assert of(brought(file), "correct", "gold", "at") == [(False, None, None)]
        file = lines("x.jsonl", right | {"gold": [absent, "4"], "correct@2": absent})
        assert of(brought(file), "correct", "gold", "at") == [(True, "4", None)]
        assert (
            call("import", lines("x.jsonl", right | {"tokens": absent, "gold": absent}), "-o", "t.parquet")
            == 1
        )
    schema = {
        "question": pl.String, "tokens": pl.Int64, "gold": pl.Float64, "correct": pl.Float64,
        "response": pl.String,
    }  # fmt: skip
    rows = [["q", 4, float("nan"), 1.0, "None"], ["r", 4, 4.0, float("nan"), "\\boxed{4}"]]
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet("x.parquet")
    assert of(brought("x.parquet"), "gold", "correct", "response") == [
        (None, True, "None"),
        ("4.0", True, "\\boxed{4}"),
    ]
    Path("x.csv").write_text("question,tokens,gold,correct,response\nq,4,nan,1,None\nr,4,4.0,,\\boxed{4}\n")
    assert of(brought("x.csv"), "gold", "correct", "response") == of(
        brought("x.parquet"), "gold", "correct", "response"
    )


def test_rows_of_a_reference_and_no_score_are_graded(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"question": "q", "tokens": 4, "response": "\\boxed{4}", "gold": "4"}
    wrong = row | {"question": "r", "gold": "5"}
    for rows in ((row, wrong), (row | {"correct": None}, wrong | {"correct": 0})):
        assert of(brought(lines("x.jsonl", *rows)), "question", "correct") == [("q", True), ("r", False)]
    assert "1 graded here" in capsys.readouterr().out
    assert call("import", lines("x.jsonl", row | {"gold": None}), "-o", "t.parquet") == 1
    assert "name the fields: `--column correct=NAME`, with" in capsys.readouterr().err


def nested(depth: int, before: str = "[", after: str = "]") -> Any:
    return json.loads(before * depth + "1" + after * depth)


def test_files_of_strangers_are_refused_by_their_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these ended in a traceback, never, or in a message of any length."""
    monkeypatch.setattr(read, "LONGEST_ROW", 1 << 16)
    score = {"main_score_name": "²", "value": [1]}
    os.mkfifo("pipe.jsonl")
    with zipfile.ZipFile("names.eval", "w") as archive:
        archive.writestr("samples/../../../evil\x1b[2J" + "x" * 9_000, "{")
    # Numbers that are all one take no room in a file.
    pl.DataFrame({**{name: [value] for name, value in ROW.items()}, "gold": [[0] * 20_000]}).write_parquet(
        "wide.parquet"
    )
    cases = {
        lines("digits.jsonl", {**ROW, "correct@" + "9" * 5_000: 1}): "digits.jsonl: line 1",
        lines("deep.jsonl", {**ROW, "response": nested(390)}): "deep.jsonl: line 1",
        lines("parts.jsonl", {**ROW, "response": nested(390, '{"content":', "}")}): "parts.jsonl: line 1",
        lines("budget.jsonl", {**ROW, "at": [{"budget": [1], "correct": 1}]}): "budget.jsonl: line 1",
        lines("square.jsonl", {"index": 1, "sample_score": {"score": score}}): "square.jsonl: line 1",
        lines("nan.jsonl", {**ROW, "tokens": float("nan")}): "have no number of tokens",
        lines("digit.jsonl", {**ROW, "tokens": 10**4_000}): "which is no whole number from 0",
        lines("long.jsonl", {"\x1b[2J" + "x" * 9_000: 1}): "this form of results is not known",
        lines(
            "model.jsonl", {**ROW, "model": "\x1b[2J" + "m" * 9_000, "tokens": None}
        ): "no number of tokens",
        "pipe.jsonl": "it is a pipe",
        "names.eval": "names.eval: samples/../../../evil",
        "wide.parquet": "wide.parquet: row 1",
    }
    for name, place in cases.items():
        assert call("import", name, "-o", "t.parquet") == 1, name
        err = capsys.readouterr().err
        assert err.startswith("error[E043"), err
        assert place in err, err
        assert "\x1b" not in err
        assert len(err) < 2_000, name
    assert not Path("t.parquet").exists()


def test_a_tokenizer_of_strangers_is_tried_before_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    file = words()
    settings = json.loads(Path(file).read_text())
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    Path(file).write_text(
        json.dumps(settings | {"normalizer": {"type": "Sequence", "normalizers": [step] * 36}})
    )
    assert call("import", lines("x.jsonl", ROW), "--tokenizer", file, "-o", "t.parquet") == 1
    assert "error[E0803]: the tokenizer cannot be used" in capsys.readouterr().err
