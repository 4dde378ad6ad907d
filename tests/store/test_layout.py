"""A run's folder is a run's alone: nobody's files are replaced or removed, and no arm has another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.store.layout import MARK, arm_folder, put_report, require_place
from reodsl.store.store import Store


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """A report to put somewhere."""
    place = tmp_path / "drawn"
    (place / "tables").mkdir(parents=True)
    (place / "report.html").write_text("page")
    (place / "spec.reo.json").write_text("{}")
    (place / "tables" / "main.csv").write_text("table")
    return place


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").open()


def refused(store: Store, drawn: Path, out: Path) -> str:
    before = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    with pytest.raises(Problem) as caught:
        put_report(store, drawn, out)
    (found,) = caught.value.diagnostics
    assert found.code == "E0118"
    assert {path: path.read_bytes() for path in before} == before
    return found.message


def test_arms_never_share_a_folder() -> None:
    long = "a" * 60
    names = [
        "vanilla",
        f"{long}",
        f"{long}b",
        f"{long}c",
        "größe",
        "gräße",
        "gr_e",
        "a.b",
        "a_b",
        "s1",
        "ß",
        "ü",
        "study",
    ]
    for seed in ("", "1", "2"):
        places = [arm_folder(name, seed) for name in names]
        assert len(set(places)) == len(names)
        assert all(len(place.name) <= 64 and place.parent == Path("arms") for place in places)
    assert arm_folder("vanilla", "1") == Path("arms/vanilla.s1")
    assert arm_folder(long, "") == Path("arms") / long


def test_a_new_an_empty_and_a_filled_folder_are_taken(tmp_path: Path, drawn: Path, store: Store) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "deep/er", "empty"):
        out = tmp_path / name
        put_report(store, drawn, out)
        (out / "notes.md").write_text("mine")
        (out / "report.html").write_text("edited")
        (drawn / "more.csv").write_text("more")
        put_report(store, drawn, out)
        assert (out / "report.html").read_text() == "page"
        assert (out / "notes.md").read_text() == "mine"
        assert sorted(path.name for path in out.iterdir()) == sorted(
            [MARK, "more.csv", "notes.md", "report.html", "spec.reo.json", "tables"]
        )
        (drawn / "more.csv").unlink()


def test_a_folder_from_before_there_were_marks_is_taken(tmp_path: Path, drawn: Path, store: Store) -> None:
    out = tmp_path / "out"
    put_report(store, drawn, out)
    (out / MARK).unlink()
    put_report(store, drawn, out)
    assert (out / MARK).is_file()


def test_a_folder_with_other_files_is_refused(tmp_path: Path, drawn: Path, store: Store) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("report.html", "notes.md", ".hidden.unfinished", "model.safetensors"):
        (out / name).write_text("mine")
        assert "no run wrote" in refused(store, drawn, out)
        (out / name).unlink()
    (out / MARK).write_text("something else\n")
    assert "no run wrote" in refused(store, drawn, out)


def test_a_file_of_the_same_name_in_a_run_s_folder_is_kept(tmp_path: Path, drawn: Path, store: Store) -> None:
    out = tmp_path / "out"
    put_report(store, drawn, out)
    (out / "mine.csv").write_text("mine")
    (drawn / "mine.csv").write_text("theirs")
    assert "`mine.csv`" in refused(store, drawn, out)


@pytest.mark.parametrize("name", ["report.html", "tables", "tables/main.csv", MARK, ".reodsl.unfinished"])
def test_no_link_is_followed(tmp_path: Path, drawn: Path, store: Store, name: str) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    put_report(store, drawn, out)
    outside.mkdir()
    (outside / "main.csv").write_text("mine")
    place = out / name
    if place.is_dir():
        (place / "main.csv").unlink()
        place.rmdir()
    elif place.exists():
        place.unlink()
    folder = name in ("tables", ".reodsl.unfinished")
    place.symlink_to(outside if folder else outside / "main.csv")
    if name == MARK:
        (out / "spec.reo.json").unlink()
    refused(store, drawn, out)
    assert [path.name for path in outside.iterdir()] == ["main.csv"]


def test_a_link_the_store_and_what_is_in_it_are_no_places(tmp_path: Path, drawn: Path, store: Store) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "to_store").symlink_to(store.root)
    (tmp_path / "file").write_text("")
    for out, words in (
        (tmp_path / "link", "it is a link"),
        (store.root, "the store"),
        (store.root / "runs" / "mine", "the store"),
        (tmp_path / "to_store", "the store"),
        (tmp_path / "to_store" / "mine", "the store"),
        (tmp_path / "file", "not a folder"),
    ):
        with pytest.raises(Problem, match=words):
            require_place(out, store)


def test_what_a_killed_run_left_is_a_run_s(
    tmp_path: Path, drawn: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def killed(source: object, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            put_report(store, drawn, out)
    (out / ".reodsl.unfinished").mkdir()
    (out / ".reodsl.unfinished" / "half").write_text("half")
    put_report(store, drawn, out)
    assert not (out / ".reodsl.unfinished").exists()
    assert os.listdir(out / "tables") == ["main.csv"]
