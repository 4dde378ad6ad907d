"""The store: whole or nothing, checked, locked, and clear about what the disk refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir import digest
from reodsl.store import Store
from reodsl.store.external import Fingerprints
from reodsl.store.files import storage_problem, storing, write_atomic
from reodsl.store.runs import records

MATERIAL = {"kind": "data", "version": 1, "payload": {"n": 1}, "inputs": {}}
KEY = digest(MATERIAL)


def code(caught: pytest.ExceptionInfo[Problem]) -> str:
    return caught.value.diagnostics[0].code


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").open()


def put(store: Store, text: str = "content") -> None:
    out = store.begin(KEY)
    (out / "deep").mkdir()
    (out / "deep" / "file.txt").write_text(text)
    (out / "top.bin").write_bytes(b"\0" * 100)
    store.commit(KEY, out, MATERIAL, {"seconds": 1})


def test_a_result_is_there_only_when_it_is_whole(store: Store) -> None:
    out = store.begin(KEY)
    (out / "file").write_text("x")
    assert store.get(KEY) is None
    assert list(store) == []
    store.commit(KEY, out, MATERIAL, {})
    assert store.get(KEY) is not None
    assert list(store) == [KEY]
    assert store.damage(KEY) == ()


def test_a_commit_that_the_disk_refuses_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills at each of its writes in turn: the result is there whole or not at all."""
    real, calls, refused = os.fsync, 0, []
    for limit in range(1, 30):
        calls = 0

        def fsync(handle: int, limit: int = limit) -> None:
            nonlocal calls
            calls += 1
            if calls == limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        out = store.begin(KEY)
        (out / "file").write_text("x")
        monkeypatch.setattr(os, "fsync", fsync)
        try:
            store.commit(KEY, out, MATERIAL, {})
        except Problem as caught:
            refused.append(caught.diagnostics[0].code)
        monkeypatch.setattr(os, "fsync", real)
        assert (store.get(KEY) is None and KEY not in list(store)) or store.damage(KEY) == ()
        store.abandon(out)
        if calls < limit:
            break
        store.remove(KEY)
    assert len(refused) >= 5
    assert set(refused) == {"E0950"}
    assert store.damage(KEY) == ()


def test_the_digest_of_the_content_follows_bytes_and_names_alone(store: Store, tmp_path: Path) -> None:
    put(store)
    first = store.get(KEY)
    other = Store(tmp_path / "other").open()
    put(other)
    second = other.get(KEY)
    assert first is not None
    assert second is not None
    assert first.digest == second.digest
    store.remove(KEY)
    put(store, "another")
    third = store.get(KEY)
    assert third is not None
    assert third.digest != first.digest


@pytest.mark.parametrize("how", ["flip", "cut", "gone", "manifest", "material"])
def test_damage_is_found(store: Store, how: str) -> None:
    put(store)
    folder = store.path(KEY)
    file = folder / {"manifest": "manifest.json", "material": "material.json"}.get(how, "top.bin")
    file.chmod(0o644)
    match how:
        case "flip" | "material":
            data = bytearray(file.read_bytes())
            data[10] ^= 1
            file.write_bytes(bytes(data))
        case "cut":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case "manifest":
            file.write_text('{"key": 3}')
    assert store.damage(KEY)
    # A flipped bit takes a full read to find; everything else is seen at once.
    assert (store.get(KEY) is None) == (how in ("cut", "gone", "manifest"))


def test_weights_are_read_again_once_they_were_changed_whatever_their_time_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    file = store.path(KEY) / "top.bin"
    prints = Fingerprints(store.root / "fingerprints.json")
    assert store.damage(KEY, ("top",), prints) == ()
    with monkeypatch.context() as alone:
        alone.setattr("reodsl.store.external.hash_plain", lambda path: pytest.fail(str(path)))
        assert store.damage(KEY, ("top",), prints) == ()
        prints.save()
        assert store.damage(KEY, ("top",), Fingerprints(prints.place)) == ()
    before = file.stat()
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(bytes(data))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.damage(KEY, ("top",), prints) == ("top.bin differs from its checksum",)
    # Nor does it matter who looks first.
    for fresh in (None, Fingerprints(store.root / "none.json")):
        assert store.damage(KEY, ("top",), fresh) == ("top.bin differs from its checksum",)


def test_a_damaged_result_is_replaced(store: Store) -> None:
    put(store)
    file = store.path(KEY) / "top.bin"
    file.chmod(0o644)
    file.write_bytes(b"")
    put(store)
    assert store.damage(KEY) == ()
    assert not any((store.root / "tmp").iterdir())


def test_a_key_is_held_by_one_process_and_let_go_when_it_dies(store: Store) -> None:
    code = (
        "import sys, pathlib; from reodsl.store import Store;"
        "store = Store(pathlib.Path(sys.argv[1]));"
        "lock = store.lock(sys.argv[2]); print(lock.__enter__(), flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, store.root, KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "True"
    with store.lock(KEY) as held:
        assert not held
    with store.lock("0" * 64) as held:
        assert held
    child.kill()
    child.wait()
    with store.lock(KEY) as held:
        assert held


def test_what_a_killed_attempt_left_is_removed_by_the_next(store: Store) -> None:
    left = store.begin(KEY)
    (left / "half").write_text("x")
    now = store.begin(KEY)
    assert not left.exists()
    assert list((store.root / "tmp").iterdir()) == [now]


@pytest.mark.parametrize("what", ["link", "empty", "name"])
def test_a_result_is_plain_files(store: Store, what: str) -> None:
    out = store.begin(KEY)
    if what == "link":
        (out / "a").symlink_to("/etc/passwd")
    if what == "name":
        (out / "manifest.json").write_text("{}")
    with pytest.raises(Problem) as caught:
        store.commit(KEY, out, MATERIAL, {})
    assert code(caught) == "E0990"
    assert store.get(KEY) is None


def test_a_folder_with_other_files_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(Problem) as caught:
        Store(tmp_path).open()
    assert code(caught) == "E0952"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("precious")
    with pytest.raises(Problem) as caught:
        Store(tmp_path / "store").open()
    assert code(caught) == "E0952"


def test_a_store_of_another_format_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("reodsl store 99\n")
    with pytest.raises(Problem) as caught:
        Store(tmp_path).open()
    assert code(caught) == "E0952"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_refusals_of_the_disk_become_diagnostics(tmp_path: Path, number: int) -> None:
    expected = "no space left" if number in (errno.ENOSPC, errno.EDQUOT) else "the store cannot be written"
    with pytest.raises(Problem) as caught, storing(tmp_path):
        raise OSError(number, os.strerror(number))
    assert code(caught) == "E0950"
    assert expected in caught.value.diagnostics[0].message


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), storing(tmp_path):
        (tmp_path / "none").read_text()
    assert storage_problem(ValueError("x"), tmp_path) is None


def test_a_full_disk_is_told_of_a_library_that_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    refusal = storage_problem(ValueError("Invalid thrift: transport error"), tmp_path)
    assert refusal is not None
    assert "no space left" in refusal.diagnostics[0].message


def test_an_atomic_write_leaves_the_old_content_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_atomic(file, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "name", ["format", "runs/1.json", "fingerprints.json", "manifest.json", "material.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "deep"])
def test_a_strangers_store_is_read_within_bounds(store: Store, tmp_path: Path, name: str, kind: str) -> None:
    """`plan` looks into the store beside a spec: what lies there neither hangs it nor fills the machine."""
    put(store)
    place = (store.path(KEY) if name.startswith("ma") else store.root) / name
    place.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "device":
            place.symlink_to("/dev/zero")
        case "folder":
            place.mkdir()
        case "deep":
            place.write_text("[" * 100_000)
    if name == "format":
        with pytest.raises(Problem) as caught:
            store.recognise()
        assert [each.code for each in caught.value.diagnostics] == ["E0952"]
        return
    store.recognise()
    assert records(store) == ()
    assert Fingerprints(store.root / "fingerprints.json").known == {}
    assert (store.get(KEY) is None) == (name == "manifest.json")
    assert (store.material(KEY) is None) == (name == "material.json")
    assert bool(store.damage(KEY)) == (name in ("manifest.json", "material.json"))


@pytest.mark.parametrize("path", ["../../../secret", "/etc/hostname", "a/../../b"])
def test_a_result_has_no_files_outside_its_folder(store: Store, path: str) -> None:
    put(store)
    file = store.path(KEY) / "manifest.json"
    data = json.loads(file.read_text())
    data["files"][path] = {"bytes": 3, "sha256": "0" * 64}
    file.chmod(0o644)
    file.write_text(json.dumps(data))
    assert store.get(KEY) is None
