"""Model and data tasks: fresh weights by seed, folders copied without what is not a model, and what is refused."""

from pathlib import Path

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job
from reodsl.graph.task import Task
from reodsl.ir.data import Columns, Data, File
from reodsl.ir.model import Architecture, Folder, Hub, Model, WordTokenizer
from runners.data.load import data as prepare_data
from runners.models import prepare
from runners.models.folder import load
from tests.worked import work_of

SOURCE = Architecture(
    family="llama",
    hidden=16,
    layers=1,
    heads=2,
    kv_heads=1,
    head_dim=8,
    intermediate=24,
    tie_embeddings=False,
    tokenizer=WordTokenizer(words=("a", "b", "END"), eos="END", pad="<pad>"),
)


def make(tmp_path: Path, name: str, source, seed=1) -> Path:
    out, work = tmp_path / name, tmp_path / f"{name}.work"
    out.mkdir()
    work.mkdir()
    payload = {"model": Model(name="", source=source, context=40).model_dump(mode="json"), "seed": seed}
    prepare.model(Job(Task(name, "model", work_of(payload), {}), {}, out, work, tmp_path, lambda _: None))
    return out / "checkpoint"


def test_fresh_weights_are_the_seeds(tmp_path):
    first = load(make(tmp_path, "first", SOURCE))
    same = load(make(tmp_path, "same", SOURCE))
    other = load(make(tmp_path, "other", SOURCE, seed=2))
    assert (first.tokenizer.eos_token, first.tokenizer.pad_token) == ("END", "<pad>")
    assert first.model.config.eos_token_id == first.tokenizer.convert_tokens_to_ids("END")
    assert first.model.config.max_position_embeddings == 40
    assert not first.model.config.tie_word_embeddings
    weights = [x.model.lm_head.weight for x in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_sizes_that_no_model_has_are_refused(tmp_path):
    with pytest.raises(Problem) as caught:
        make(tmp_path, "uneven", SOURCE.model_copy(update={"heads": 3, "kv_heads": 2}))
    assert [found.code for found in caught.value.diagnostics] == ["E0808"]


def test_a_folder_is_copied_and_nothing_in_it_is_run(tmp_path):
    made = make(tmp_path, "made", SOURCE)
    (made / "modeling_evil.py").write_text("raise SystemExit")
    (made / "training_args.bin").write_bytes(b"\x80\x04")
    copied = make(tmp_path, "copied", Folder(path=str(made)))
    assert not {"modeling_evil.py", "training_args.bin"} & {p.name for p in copied.iterdir()}
    one, other = load(made).model.state_dict(), load(copied).model.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    (made / "model.safetensors").unlink()
    with pytest.raises(Problem) as caught:
        make(tmp_path, "broken", Folder(path=str(made)))
    assert "the weights are a pickle" in caught.value.diagnostics[0].message


def test_a_hubs_model_comes_from_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    source = Hub(repo="someone/tiny")
    with pytest.raises(Problem) as caught:
        make(tmp_path, "missing", source)
    assert caught.value.diagnostics[0].code == "E0850"
    assert "hf download someone/tiny" in (caught.value.diagnostics[0].help or "")
    place = tmp_path / "hub" / "models--someone--tiny"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc")
    (place / "snapshots").mkdir()
    make(tmp_path, "made", SOURCE).rename(place / "snapshots" / "abc")
    (place / "blobs").mkdir()
    for number, path in enumerate(sorted((place / "snapshots" / "abc").iterdir())):
        path.rename(place / "blobs" / str(number))
        path.symlink_to(f"../../blobs/{number}")
    assert load(make(tmp_path, "found", source)).model.config.hidden_size == 16


def test_questions_are_written_as_a_table(tmp_path):
    pl.DataFrame({"problem": ["1+1", "2+2"], "solution": [2, 4]}).write_csv(tmp_path / "sums.csv")
    source = File(path="sums.csv", columns=Columns(question="problem", answer="solution"))
    out = tmp_path / "out"
    out.mkdir()
    payload = {"data": Data(name="", sources=(source,)).model_dump(mode="json")}
    prepare_data(Job(Task("d", "data", work_of(payload), {}), {}, out, tmp_path, tmp_path, lambda _: None))
    table = pl.read_parquet(out / "questions.parquet")
    assert table.select("question", "answer").rows() == [("1+1", "2"), ("2+2", "4")]
    assert [p.name for p in out.iterdir()] == ["questions.parquet"]


def test_marks_of_thinking_that_the_tokenizer_lacks_are_refused(tmp_path):
    for mark, code in (("<think>", None), ("<ponder>", "E0815")):
        out, work = tmp_path / mark[1:-1], tmp_path / f"{mark[1:-1]}.work"
        out.mkdir()
        work.mkdir()
        declared = Model(name="", source=SOURCE, context=40, think_open=mark, think_close="</think>")
        payload = {"model": declared.model_dump(mode="json"), "seed": 1}
        job = Job(Task("m", "model", work_of(payload), {}), {}, out, work, tmp_path, lambda _: None)
        if code is None:
            prepare.model(job)
            continue
        with pytest.raises(Problem) as caught:
            prepare.model(job)
        assert caught.value.diagnostics[0].code == code
        assert "the model's `think.open`" in caught.value.diagnostics[0].message
