"""Read a spec file: one `Source`, or one clear error when the file cannot be a spec."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Problem, Span, error

MAX_BYTES = 1 << 18

_BOMS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class Source:
    r"""A text and the path to show for it. Lines end in `\n` alone; a byte order mark is gone."""

    path: str
    text: str

    def whole(self) -> Span:
        """Return the span of the text."""
        lines = self.text.split("\n")
        return Span(self.path, 1, 1, len(lines), len(lines[-1]) + 1)


def read_source(path: Path, label: str | None = None) -> Source:
    """Read a spec file.

    Args:
        path: The file.
        label: The path for messages.

    Raises:
        Problem: E0101, if the file cannot be read or is no text.
    """
    name = label if label is not None else str(path)
    if _is_of_system(path):
        raise Problem(_not_a_file(name, directory=False))
    try:
        # Non-blocking: opening a named pipe nobody writes to must not hang.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise Problem(_missing(path, name)) from None
    except IsADirectoryError:
        raise Problem(_not_a_file(name, directory=True)) from None
    except (OSError, ValueError) as failure:
        raise Problem(_unreadable(path, name, failure)) from None
    try:
        with os.fdopen(handle, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise Problem(_not_a_file(name, directory=stat.S_ISDIR(mode)))
            data = file.read(MAX_BYTES + 1)
            if data is None:
                # A file that would have to be waited for, which none on a disk is.
                raise Problem(_not_a_file(name, directory=False))
    except IsADirectoryError:
        raise Problem(_not_a_file(name, directory=True)) from None
    except OSError as failure:
        raise Problem(_unreadable(path, name, failure)) from None
    return source_from_bytes(data, name)


def _is_of_system(path: Path) -> bool:
    """Return whether a path leads to a device or to a file of the kernel's: to open or to read these may do something.

    What is read of /proc/kmsg is gone from there. Links are followed, so that `/dev/stdin` is the file that it stands for.
    """
    try:
        real = os.path.realpath(path)
        mode = os.stat(real).st_mode
    except (OSError, ValueError):
        return False
    if real.startswith(("/proc/", "/sys/")):
        return not stat.S_ISDIR(mode)
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def source_from_bytes(data: bytes, path: str) -> Source:
    """Decode a spec from a file, standard input or a package.

    Raises:
        Problem: E0101, if the bytes are no UTF-8 text or too many.
    """
    if len(data) > MAX_BYTES:
        raise Problem(
            error(
                "E0101",
                f"a spec is at most {MAX_BYTES >> 10} KiB, and this is more",
                where=path,
                help="a spec is a few dozen lines; keep data in data files and name them in the spec",
            )
        )
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            raise Problem(
                _not_utf8(path, 0, f"it begins with the byte order mark of {encoding}", data, encoding)
            )
    if b"\0" in data:
        offset = data.index(b"\0")
        raise Problem(
            error(
                "E0101",
                "this is a binary file, not a spec",
                where=path,
                notes=[f"byte {offset} is zero, which no text holds"],
                help="give the `.reo` file itself, not an archive, a checkpoint or a table",
            )
        )
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    try:
        text = data[start:].decode("utf-8")
    except UnicodeDecodeError as failure:
        offset = failure.start + start
        raise Problem(_not_utf8(path, offset, f"byte {offset} is 0x{data[offset]:02x}", data)) from None
    if not text.strip():
        raise Problem(
            error(
                "E0101",
                "the file is empty",
                where=path,
                help="write `reodsl new FILE` for one to start from, or an experiment: `experiment NAME = ppo { … }`",
            )
        )
    return Source(path, text.replace("\r\n", "\n").replace("\r", "\n"))


def _missing(path: Path, name: str) -> Diagnostic:
    similar = _files_like(path)
    return error(
        "E0101",
        "there is no such file",
        where=name,
        notes=[f"beside it: {', '.join(similar)}"] if similar else [],
        help=f"did you mean `{similar[0]}`?" if similar else "check the path",
    )


def _files_like(path: Path) -> list[str]:
    """Return specs in the folder of `path`, the names most similar to it first."""
    try:
        with os.scandir(path.parent) as entries:
            stems = [entry.name[:-4] for entry in islice(entries, 1000) if entry.name.endswith(".reo")]
    except (OSError, ValueError):
        return []
    return [f"{stem}.reo" for stem in get_close_matches(path.stem, sorted(stems), n=3)]


def _not_a_file(name: str, *, directory: bool) -> Diagnostic:
    noun = "a directory" if directory else "a pipe, a device or a file of the system"
    remedy = f"name the specs in it: `{name.rstrip('/')}/*.reo`" if directory else "give a `.reo` file"
    return error("E0101", f"this is {noun}, not a spec", where=name, help=remedy)


def _unreadable(path: Path, name: str, failure: Exception) -> Diagnostic:
    reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
    denied = isinstance(failure, PermissionError)
    return error(
        "E0101",
        f"the file cannot be read: {reason}",
        where=name,
        help=f"let yourself read it: `chmod u+r {path}`" if denied else "check the path and the disk",
    )


def _not_utf8(path: str, offset: int, reason: str, data: bytes, encoding: str = "latin1") -> Diagnostic:
    """Return E0101 at the byte that is not UTF-8; `encoding` is what the text may be instead."""
    encoding_name = "Latin-1" if encoding == "latin1" else encoding
    before = data[:offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    line = before.count(b"\n") + 1
    column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace").removeprefix("\ufeff")) + 1
    return error(
        "E0101",
        "the file is not UTF-8 text",
        Span(path, line, column, line, column + 1),
        reason,
        help=f"save it as UTF-8; `iconv -f {encoding} -t utf-8` converts a file in {encoding_name}",
    )
