"""What is opened is a file on a disk, within a bound, and nothing is waited for."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from reodsl.store.files import NotPlain, hash_plain, read_plain, stat_plain


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/dev/zero", "a device"),
        ("/dev", "a folder"),
        ("/proc/kmsg", "of the system"),
        ("/proc/self/environ", "of the system"),
        ("/sys/kernel/notes", "of the system"),
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("link", "of the system"),
        ("around", "of the system"),
        ("nul\0", "null"),
    ],
)
def test_what_is_no_plain_file_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("socket")
    Path("link").symlink_to("/proc/self/environ")
    Path("around").symlink_to("/usr/../proc/self/environ")
    for read in (stat_plain, hash_plain, lambda each: read_plain(each, 10)):
        with pytest.raises((NotPlain, FileNotFoundError)) as caught:
            read(Path(path))
        if isinstance(caught.value, NotPlain):
            assert words in str(caught.value.strerror)


def test_a_plain_file_is_read_within_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert hash_plain(tmp_path / name) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
        assert len(read_plain(tmp_path / name, 3_000_000)) == 3_000_000
        with pytest.raises(NotPlain, match=r"larger than 2,999,999 bytes"):
            read_plain(tmp_path / name, 2_999_999)


def test_what_grows_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that something writes to has the bytes that it had."""
    place = tmp_path / "log"
    place.write_bytes(b"one")
    before = os.fstat

    def grown(handle: int) -> os.stat_result:
        found = before(handle)
        with place.open("ab") as file:
            file.write(b"more")
        return found

    monkeypatch.setattr(os, "fstat", grown)
    assert len(hash_plain(place)) == 64


def test_no_rights_are_told_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stat_plain(tmp_path / "none")
