"""Files, tables and losses of others that chance has damaged: a result or one message of it, and never a defect."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.data import Python
from reodsl.store.consent import read_code
from runners.results.arm import kind_of, open_table
from runners.train.own_loss import UserLoss
from tests.called import call
from tests.train.test_update import method

ROW = {
    "model": "m", "benchmark": "b", "question": "q", "sample": 0, "tokens": 9, "correct": 1, "gold": "4", "finish": "stop",
    "response": "so \\boxed{4}", "correct@4": 0, "correct@8": 1,
}  # fmt: skip
MESSAGE = {
    "message": {"role": "assistant", "content": [{"type": "text", "text": "\\boxed{4}"}]},
    "stop_reason": "stop",
}
INSPECT = {
    "id": "q", "epoch": 1, "input": "2+2?", "target": "4", "scores": {"match": {"value": "C", "answer": "4"}},
    "output": {"choices": [MESSAGE], "usage": {"output_tokens": 9}}, "attachments": {"a": "b"},
}  # fmt: skip
LM_EVAL = {
    "doc_id": 7, "target": "4", "arguments": {"gen_args_0": {"arg_0": "2+2?"}}, "resps": [["a", "b"]], "filter": "none",
    "metrics": ["exact_match"], "exact_match": 1.0,
}  # fmt: skip
FORMS: tuple[dict[str, Any], ...] = (
    ROW,
    {**ROW, "correct@4": None, "at": [{"budget": 4, "correct": False}, {"budget": 8, "correct": True}]},
    INSPECT,
    LM_EVAL,
    {"idx": 7, "question": "1+2?", "gt": "3", "code": ["a", "b"], "pred": ["3", "4"], "score": [True, False]},
    {"input": "1+2?", "output": "a", "gts": "3", "score": 1.0, "acc": True, "step": 4},
    {"task_id": 7, "sample_idx": 0, "seqlen": 20, "prompt_len": 5, "prompt": "p", "completion": "c", "reward": 1},
    {"index": 1, "sample_score": {"group_id": 1, "score": {"main_score_name": "acc", "value": {"acc": 1}}}},
    {"index": 1, "model_output": {"choices": [MESSAGE], "usage": {"output_tokens": 9}}},
    {"problem": "p", "answer": "4", "responses": ["a"], "corrects_verl_batched_responses": [1]},
    {"doc": {"task_name": "t", "id": "1", "query": "?", "choices": ["4"]}, "metric": {"acc": 1},
     "model_response": {"text": ["a"], "output_tokens": [[1, 2]]}},
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, float("nan"), float("inf"), 10**400, -(10**25), 2**63, "", " ", "\ud800", "\x1b[2J", "²",
    "9" * 400, "None", "a" * 3_000, [], [[]], [None], [1, 2, 3], [{}], {}, {"a": 1}, {"": {"": []}}, {"budget": [1]},
    {"*": 1}, [[[[[[]]]]]],
)  # fmt: skip
NAMES = (
    "correct@", "correct@²", "correct@9" + "9" * 90, "corrects_forced@8toks", "at", "head", "file", "",
    "\ud800", "finish",
)  # fmt: skip
PIECES = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"NaN", b"PK\x03\x04",
    b"PAR1", b"9" * 500,
)  # fmt: skip


def odd(chance: Random, value: Any) -> Any:
    """Return a JSON value with one of the values inside it changed, gone, renamed or there twice."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        match chance.randrange(6):
            case 0:
                return {key: each for key, each in value.items() if key != name}
            case 1:
                return {**value, chance.choice(NAMES): chance.choice([*ODD, value[name]])}
        return {**value, name: odd(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        return [*value[:place], odd(chance, value[place]), *value[place + chance.randrange(2) :]]
    return chance.choice(ODD)


def damaged(chance: Random, data: bytes) -> bytes:
    """Return bytes of which a few are others, gone or there twice."""
    for _ in range(chance.randint(1, 3)):
        first, length = chance.randrange(len(data) + 1), chance.randint(1, 40)
        middle = chance.choice(
            [b"", chance.choice(PIECES), chance.randbytes(2), data[first : first + length] * 2]
        )
        data = data[:first] + middle + data[first + chance.choice([0, 1, length]) :]
    return data


def written(chance: Random, rows: list[Any]) -> tuple[str, bytes]:
    """Return rows as a file of some kind, and its name."""
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    kind = chance.choice(["jsonl", "json", "eval", "csv", "parquet"])
    buffer = io.BytesIO()
    if kind == "json":
        value = {"eval": {"model": "m", "task": "t"}, "samples": rows}
        text = json.dumps(
            odd(chance, value) if chance.random() < 0.3 else chance.choice([value, rows])
        ).encode()
    elif kind == "eval":
        with zipfile.ZipFile(
            buffer, "w", chance.choice([0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
        ) as archive:
            for number, row in enumerate(rows):
                archive.writestr(f"samples/{number}.json", json.dumps(row))
        text = buffer.getvalue()
    elif kind in ("csv", "parquet"):
        flat = [row for row in rows if isinstance(row, dict)]
        try:
            frame = pl.DataFrame(flat, strict=chance.random() < 0.5)
            frame.write_parquet(buffer) if kind == "parquet" else frame.write_csv(buffer)
            text = buffer.getvalue()
        except Exception:  # not all that JSON has fits into columns
            kind = "jsonl"
    return f"x.{kind}", text


def fuzz_import(chance: Random, folder: Path, says: Callable[[], str]) -> None:
    rows = [chance.choice(FORMS) for _ in range(chance.choice([1, 2]))]
    for _ in range(chance.randint(0, 3)):
        rows = [odd(chance, row) if chance.random() < 0.7 else row for row in rows]
    name, data = written(chance, rows)
    if chance.random() < 0.4:
        data = damaged(chance, data)
    Path(name).write_bytes(data)
    options = chance.choice(
        [
            (),
            ("--right-from", "0.5"),
            ("--column", "tokens=sample"),
            ("--column", "response=*.*[]"),
            ("--ended",),
        ]
    )
    status = call("import", name, "-o", "t.parquet", *options)
    err = says()
    assert (status, "error[" in err) in ((0, False), (1, True)), err
    assert err.count("error[") <= 1, err
    assert "E0990" not in err, err
    assert len(err) < 5_000
    if status == 0:
        read_table(says)


def fuzz_table(chance: Random, folder: Path, says: Callable[[], str]) -> None:
    frame = pl.read_parquet(folder / "ok.parquet")
    for _ in range(chance.randint(0, 2)):
        name = chance.choice(frame.columns)
        column = frame[name].to_list()
        column[chance.randrange(len(column))] = chance.choice(
            [*ODD, [{"budget": 4, "correct": None}], column[0], "q", 9]
        )
        kind = chance.choice([None, frame.schema[name]])
        # Not every value fits into a column, nor a name into a file.
        with suppress(Exception):
            frame = frame.with_columns(pl.Series(name, column, kind, strict=False))
        frame = frame if chance.random() < 0.95 else frame.drop(name)
    if chance.random() < 0.2 and frame.height:
        frame = chance.choice([frame.head(0), frame.head(1), pl.concat([frame, frame])])
    with suppress(pl.exceptions.PolarsError):
        frame.write_parquet("t.parquet")
    if chance.random() < 0.4:
        Path("t.parquet").write_bytes(damaged(chance, Path("t.parquet").read_bytes()))
    read_table(says, table=True)


def read_table(says: Callable[[], str], table: bool = False) -> None:
    """Read what is in `t.parquet` by every reader of tables."""
    for command in (("reg", "t.parquet"), ("frontier", "t.parquet", "--json")):
        status = call(*command)
        err = says()
        assert (status, "error[" in err) in ((0, False), (1, True)), err
        assert "E0990" not in err, err
        assert len(err) < 5_000
    suite = {"benchmarks": ["m"], "grid": [0, 8], "forced": True}
    with suppress(Problem):
        kind_of(open_table(Path("t.parquet")), "a", suite, with_texts=table)


TENSORS = (
    "logprobs", "old", "rollout", "advantages", "drawn", "lengths", "responses", "low", "kl",
    "reference", "nothing",
)  # fmt: skip
STEPS = """
    {a}.exp(); {a} * {b}; {a} - {b}; {a} / {b}; {a}[{b}]; {a}.to_sparse(); {a}.to('meta'); {a}.double(); {a}.half();
    {a}.to(torch.float8_e5m2); {a}.to(torch.complex64); {a}.detach(); {a}.sum(); {a}[None]; {a}.reshape(2, -1); {a}.tolist();
    {a}.numpy(); {a}.as_subclass(T); {a}.expand(2, 8); {a}.add_({b}); torch.stack([{a}, {b}]); {a}.sqrt(); {a}.sign();
    torch.where({a} > 0, {b}, {a}); {a}.to_sparse().to_dense(); torch.vmap(lambda x: x)({a}); {a}.__class__; None;
    torch.nested.nested_tensor([{a}, {b}]); {a}.to_mkldnn(); {a}.index_add(0, {b}, {a}); torch.empty(0); {a}.bool();
    torch.fft.fft({a}); {a}.grad_fn; {a}.log(); {a}.requires_grad_(False); {a}.T; {a}.resize_(3); {a}.conj();
    torch.quantize_per_tensor({a}, 0.1, 0, torch.qint8)
""".replace("\n", " ").split("; ")
ENDS = (
    "return {a}",
    "return -tokens.advantages * {a}",
    "raise E({a})",
    "raise E()",
    "return E",
    "yield {a}",
    "pass",
    "import nowhere",
    "exit({a})",
)
LOSS = """import torch
class T(torch.Tensor): pass
class E(Exception):
    def __str__(self): raise RuntimeError("no")
def loss(tokens):
    {}
"""


def fuzz_loss(chance: Random, folder: Path, says: Callable[[], str]) -> None:
    def made(depth: int) -> str:
        if depth == 0 or chance.random() < 0.2:
            return f"tokens.{chance.choice(TENSORS) if chance.random() < 0.6 else 'logprobs'}"
        return chance.choice(STEPS).format(a=made(depth - 1), b=made(depth - 1))

    Path("mine.py").write_text(LOSS.format(chance.choice(ENDS[:2] * 4 + ENDS).format(a=made(3))))
    ours = method()
    ours = ours.model_copy(
        update={"loss": ours.loss.model_copy(update={"own": Python(function="mine.py:loss")})}
    )
    try:
        UserLoss(read_code("mine.py:loss", folder), ours).try_it(torch.device("cpu"))
    except Problem as told:
        (fault,) = told.diagnostics
        assert fault.code in ("E0743", "E0744")
        assert len(fault.message) < 2_000


FUZZED = {"import": fuzz_import, "table": fuzz_table, "loss": fuzz_loss}
HEAD = "model,benchmark,question,tokens,correct,finish,response,correct@0,correct@8\n"
TABLE = HEAD + "".join(f"{model},m,q,4,1,stop,x,0,1\n{model},m,r,12,1,stop,y,0,0\n" for model in "ab")


@pytest.mark.parametrize("kind", FUZZED)
@pytest.mark.parametrize("part", [0, 1, 2, pytest.param("all", marks=pytest.mark.heavy)])
@pytest.mark.filterwarnings("ignore")
def test_what_chance_makes_of_them_is_no_defect(
    kind: str,
    part: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text(TABLE)
    assert call("import", "r.csv", "-o", "ok.parquet") == 0
    for number in range(1_700 if part == "all" else 40):
        seed = f"{kind} {part} {number}"
        capsys.readouterr()
        try:
            FUZZED[kind](Random(seed), tmp_path, lambda: capsys.readouterr().err)
        except BaseException as defect:
            raise AssertionError(f"by the seed {seed!r}") from defect
