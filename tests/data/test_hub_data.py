"""Data sets of a hub: found in a local mirror or the hub's cache, and a clear word when they are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from reodsl.diagnostics import Problem
from reodsl.ir.data import Columns, HubData
from runners.data.files import hub_problem, local_files, read_hub

SOURCE = HubData(repo="owner/name", split="test", columns=Columns(question="problem"))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def put(path: Path, answer: str = "2") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"problem": "1 + 1", "answer": "{answer}"}}\n')


@pytest.mark.parametrize("name", ["test.jsonl", "data/test-00000-of-00001.jsonl", "test/0.jsonl"])
def test_a_mirror_beside_the_spec_is_read(tmp_path: Path, name: str) -> None:
    put(tmp_path / "data" / "owner" / "name" / name)
    put(tmp_path / "data" / "owner" / "name" / "train.jsonl", "3")
    assert read_hub(SOURCE, tmp_path)["answer"].to_list() == ["2"]


def test_the_files_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    for part, answer in (("00001", "b"), ("00000", "a")):
        put(tmp_path / f"data/owner/name/test-{part}.jsonl", answer)
    assert read_hub(SOURCE, tmp_path)["answer"].to_list() == ["a", "b"]


def test_files_that_name_no_split_are_for_training(tmp_path: Path) -> None:
    put(tmp_path / "data/owner/name/deepscaler.json", "7")
    train = SOURCE.model_copy(update={"split": "train"})
    assert read_hub(train, tmp_path)["answer"].to_list() == ["7"]
    assert local_files(SOURCE, tmp_path) == []
    put(tmp_path / "data/owner/name/my-test-set.json", "8")
    assert local_files(train, tmp_path) == []


def test_a_part_of_a_data_set_is_its_own_folder(tmp_path: Path) -> None:
    put(tmp_path / "data/owner/name/test.jsonl", "whole")
    put(tmp_path / "data/owner/name/algebra/test.jsonl", "part")
    part = SOURCE.model_copy(update={"name": "algebra"})
    assert read_hub(part, tmp_path)["answer"].to_list() == ["part"]


def test_the_cache_and_the_folder_beside_the_spec_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "home" / "hub" / "datasets--owner--name"
    put(repo / "snapshots" / "abc123" / "test.jsonl", "cached")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc123")
    assert read_hub(SOURCE, tmp_path)["answer"].to_list() == ["cached"]
    pinned = SOURCE.model_copy(update={"revision": "abc123"})
    assert read_hub(pinned, tmp_path)["answer"].to_list() == ["cached"]
    assert local_files(SOURCE.model_copy(update={"revision": "other"}), tmp_path) == []
    put(tmp_path / "mirror/owner/name/test.jsonl", "mirrored")
    (tmp_path / "data").symlink_to(tmp_path / "mirror")
    assert read_hub(SOURCE, tmp_path)["answer"].to_list() == ["mirrored"]


def test_a_missing_data_set_says_how_to_get_it(tmp_path: Path, refusal: Callable[..., None]) -> None:
    with pytest.raises(Problem) as caught:
        read_hub(SOURCE, tmp_path)
    (found,) = caught.value.diagnostics
    refusal("runs/E0850-data.txt", caught.value)
    assert hub_problem(SOURCE, tmp_path) == found


@pytest.mark.parametrize(
    "change",
    [
        {"repo": "../../etc"},
        {"repo": "/etc"},
        {"repo": "a/../b"},
        {"split": "../x"},
        {"name": ".."},
        {"revision": "*"},
        {"revision": "refs/../x"},
        {"split": "*"},
    ],
)
def test_names_never_lead_out_of_the_mirror(change: dict[str, str]) -> None:
    """No such source is made, from whatever file it comes."""
    with pytest.raises(ValidationError):
        HubData.model_validate({**SOURCE.model_dump(), **change})


def test_a_revision_may_be_a_path_of_names(tmp_path: Path) -> None:
    put(tmp_path / "data/owner/name/test.jsonl")
    source = HubData.model_validate({**SOURCE.model_dump(), "revision": "refs/convert/parquet"})
    assert hub_problem(source, tmp_path) is None
    assert read_hub(source, tmp_path).height == 1
