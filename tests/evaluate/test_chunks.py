"""Chunks and readers: what a killed process leaves, what a folder lacks, what no machine has."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.evaluate import run
from runners.evaluate.tables import Chunks
from runners.models.folder import load_tokenizer
from runners.rollout.prompts import stop_tokens
from tests.evaluate.conftest import MakeJob, payload


def frame(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"a": list(values), "b": [0] * len(values)})


def test_half_a_chunk_is_no_chunk(tmp_path: Path) -> None:
    left = tmp_path / "0000001.part"
    left.mkdir()
    (left / "samples.parquet").write_bytes(b"PAR1")
    chunks = Chunks(tmp_path)
    assert not chunks.done(1)
    assert not left.exists()
    chunks.put(1, {"samples": frame(2)})
    assert chunks.done(1)
    assert not chunks.done(0)


def test_a_folders_name_is_no_pattern(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path / "run[1]*")
    chunks.put(0, {"samples": frame(2, 3)})
    assert chunks.get(0, "samples", ["a"])["a"].to_list() == [2, 3]
    chunks.join(1, "samples", tmp_path / "whole.parquet")
    assert pl.read_parquet(tmp_path / "whole.parquet")["a"].to_list() == [2, 3]


def test_a_chunk_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave a chunk that is taken for done and cannot be read."""
    kept: list[str] = []

    def fsync(handle: int) -> None:
        kept.append(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(os, "fsync", fsync)
    Chunks(tmp_path).put(3, {"samples": frame(1), "forced": frame(2)})
    assert kept == [str(tmp_path / "0000003.part" / f"{name}.parquet") for name in ("samples", "forced")]


def test_chunks_join_in_their_order(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path / "work")
    for index in (2, 0, 1):
        chunks.put(index, {"samples": frame(index, 10 + index)})
    chunks.join(3, "samples", tmp_path / "all.parquet")
    assert pl.read_parquet(tmp_path / "all.parquet")["a"].to_list() == [0, 10, 1, 11, 2, 12]
    assert chunks.get(1, "samples", ("a",)).columns == ["a"]


def test_an_engine_that_is_not_there_is_named(checkpoint: Path, refusal: Callable[..., None]) -> None:
    with pytest.raises(Problem) as caught:
        open_engine(checkpoint / "checkpoint", Resources(engine="vllm"))
    refusal("engine/E0314-engine.txt", caught.value, task="base.eval")


def test_stop_tokens_come_from_tokenizer_and_generation_config(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoint / "checkpoint", folder)
    tokenizer = load_tokenizer(folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [4, 1]}))
    assert stop_tokens(tokenizer, folder) == (1, 4)
    path.write_text(json.dumps({"eos_token_id": None}))
    assert stop_tokens(tokenizer, folder) == (1,)
    path.write_text("no JSON")
    with pytest.raises(Problem) as caught:
        stop_tokens(tokenizer, folder)
    assert caught.value.diagnostics[0].message.startswith("generation_config.json cannot be read")


def test_no_engine_is_opened_for_a_folder_that_is_refused(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoint / "checkpoint", folder)
    (folder / "generation_config.json").write_text("no JSON")
    opened: list[object] = []
    monkeypatch.setattr(run, "open_engine", lambda *given: opened.append(given))
    made = job("evaluate", payload(), {"start": tmp_path, "data:one": questions, "data:two": questions})
    (tmp_path / "checkpoint").symlink_to(folder)
    with pytest.raises(Problem) as caught:
        run.evaluate(made)
    assert caught.value.diagnostics[0].message.startswith("generation_config.json cannot be read")
    assert opened == []
