"""What a task reads from outside: content counts, places do not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.task import Task
from reodsl.store import external
from reodsl.store.external import Fingerprints, hub_revision, hub_snapshot, leads_out, resolve_sources


def data_task(path: str) -> Task:
    payload = {"data": {"sources": [{"kind": "file", "path": path}]}}
    return Task("d", "data", payload, {})


def model_task(source: dict[str, object]) -> Task:
    return Task("m", "model", {"model": {"source": source}}, {})


def seen(task: Task, folder: Path) -> object:
    return resolve_sources(task, task.payload, folder, Fingerprints(folder / "prints.json"))


def test_a_file_is_its_content_and_its_format(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.csv"):
        (tmp_path / name).write_text("same")
    assert seen(data_task("a.jsonl"), tmp_path) == seen(data_task("b.jsonl"), tmp_path)
    assert seen(data_task("a.jsonl"), tmp_path) != seen(data_task("c.csv"), tmp_path)
    before = seen(data_task("a.jsonl"), tmp_path)
    (tmp_path / "a.jsonl").write_text("other")
    assert seen(data_task("a.jsonl"), tmp_path) != before


def test_a_model_folder_is_its_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text("weights")
    one, two = ({"kind": "folder", "path": name} for name in ("one", "two"))
    assert seen(model_task(one), tmp_path) == seen(model_task(two), tmp_path)
    (tmp_path / "two" / "model.safetensors").write_text("trained")
    assert seen(model_task(one), tmp_path) != seen(model_task(two), tmp_path)


def test_a_hub_name_is_the_commit_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert hub_revision("models", "a/b", None) is None
    repo = tmp_path / "models--a--b"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc123")
    (repo / "snapshots" / "abc123").mkdir(parents=True)
    assert hub_revision("models", "a/b", None) == "abc123"
    assert hub_snapshot("models", "a/b", "abc123") == repo / "snapshots" / "abc123"


@pytest.mark.parametrize("name", ["../../../etc", "a/../../etc"])
def test_a_hub_name_cannot_leave_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert hub_snapshot("models", "a/b", name) is None
    assert hub_snapshot("models", name, None) is None


def test_checksums_are_kept_until_a_file_changes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one")
    prints = Fingerprints(tmp_path / "prints.json")
    first = prints.file(tmp_path / "f")
    prints.save()
    again = Fingerprints(tmp_path / "prints.json")
    assert again.file(tmp_path / "f") == first
    assert not again.changed
    (tmp_path / "f").write_text("another")
    assert again.file(tmp_path / "f") != first


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    prints = Fingerprints(tmp_path / "prints.json")
    assert prints.file(tmp_path) is None
    assert prints.file(Path("/dev/zero")) is None
    assert prints.folder(tmp_path / "none") is None


def test_unreadable_checksums_are_made_anew(tmp_path: Path) -> None:
    (tmp_path / "prints.json").write_text("[1, 2")
    (tmp_path / "f").write_text("one")
    assert Fingerprints(tmp_path / "prints.json").file(tmp_path / "f")


def test_a_local_copy_of_a_data_set_is_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    source = {"kind": "hub", "repo": "owner/name", "revision": None}
    task = Task("d", "data", {"data": {"sources": [source]}}, {})
    absent = seen(task, tmp_path)
    copy = tmp_path / "data" / "owner" / "name"
    copy.mkdir(parents=True)
    (copy / "train.jsonl").write_text("1")
    first = seen(task, tmp_path)
    (copy / "train.jsonl").write_text("2")
    assert len({str(absent), str(first), str(seen(task, tmp_path))}) == 3


def test_what_no_run_reads_is_no_part_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("weights")
    source = {"kind": "folder", "path": "."}
    before = seen(model_task(source), tmp_path)
    for name in ("README.md", "pytorch_model.bin", "modeling_own.py"):
        (tmp_path / name).write_text("more")
    assert seen(model_task(source), tmp_path) == before
    (tmp_path / "chat_template.jinja").write_text("more")
    assert seen(model_task(source), tmp_path) != before


def test_what_no_run_reads_is_no_part_of_a_copy(tmp_path: Path) -> None:
    """A download leaves notes of its own beside the files."""
    (tmp_path / "train.jsonl").write_text("1")
    prints = Fingerprints(tmp_path / "none" / "prints.json")
    before = prints.tree(tmp_path)
    (tmp_path / "README.md").write_text("more")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "notes.json").write_text("more")
    assert prints.tree(tmp_path) == before
    deep = tmp_path / "data" / "part" / "train"
    deep.mkdir(parents=True)
    (deep / "0.csv").write_text("more")
    assert prints.tree(tmp_path) != before


def test_a_link_to_a_folder_with_files_counts(tmp_path: Path) -> None:
    """Data lies on other disks."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "0.csv").write_text("1")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "train").symlink_to(tmp_path / "disk")
    prints = Fingerprints(tmp_path / "none" / "prints.json")
    before = prints.tree(tmp_path / "copy")
    (tmp_path / "disk" / "0.csv").write_text("another")
    assert prints.tree(tmp_path / "copy") != before


def test_a_snapshot_leads_to_the_blobs_of_its_own_repository_alone(tmp_path: Path) -> None:
    place = tmp_path / "models--someone--tiny"
    snapshot = place / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (place / "blobs").mkdir()
    (place / "blobs" / "1").write_text("{}")
    (tmp_path / "secret").write_text("SECRET")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert leads_out(snapshot) is None
    (place / "blobs" / "2").symlink_to(tmp_path / "secret")
    for target in ("../../blobs/2", "../../../secret", "../other/config.json"):
        link = snapshot / "tokenizer.json"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        found = leads_out(snapshot)
        assert found is not None
        assert (found.code, "leads out" in found.message) == ("E0803", True)
    link.unlink()
    (place / "blobs" / "2").unlink()
    (place / "blobs" / "1").unlink()
    (place / "blobs").rmdir()
    (place / "blobs").symlink_to(tmp_path)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../blobs/secret")
    assert leads_out(snapshot) is not None


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    place = tmp_path / "f"
    place.write_text("one")
    prints = Fingerprints(tmp_path / "prints.json")
    first = prints.file(place)
    then = place.stat()
    with place.open("r+") as file:
        file.write("two")
    os.utime(place, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert place.stat().st_mtime_ns == then.st_mtime_ns
    assert prints.file(place) != first


def test_more_is_not_read_than_is_allowed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("0123456789")
    prints = Fingerprints(tmp_path / "prints.json", most=15)
    first, second = prints.file(tmp_path / "a"), prints.file(tmp_path / "b")
    assert first == hashlib.sha256(b"0123456789").hexdigest()
    assert str(second).startswith("unread 10 ")
    prints.save()
    # What is known is free.
    again = Fingerprints(tmp_path / "prints.json", most=10)
    assert again.file(tmp_path / "a") == first == again.file(tmp_path / "b")


def test_a_folder_with_an_unread_file_is_unread(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("0123456789")
    task = model_task({"kind": "folder", "path": "."})
    few, all_ = Fingerprints(tmp_path / "prints.json", most=5), Fingerprints(tmp_path / "prints.json")
    keys = [resolve_sources(task, task.payload, tmp_path, each) for each in (few, all_)]
    assert (few.skipped, all_.skipped) == (1, 0)
    assert keys[0] != keys[1]


def test_a_folder_of_everything_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.setattr(external, "MOST_ENTRIES", 10)
    for index in range(11):
        (tmp_path / f"{index}.txt").write_text("")
    prints = Fingerprints(tmp_path / "prints.json")
    with pytest.raises(Problem) as caught:
        prints.tree(tmp_path)
    refusal("models/E0959.txt", caught.value)
    with pytest.raises(Problem, match="more than 10 files"):
        prints.folder(tmp_path)
