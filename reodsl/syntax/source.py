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
    r"""The text of a spec and the path that messages show. Lines end in `\n`; a byte order mark has been removed."""

    path: str
    text: str

    def whole(self) -> Span:
        """Return the span of the complete text."""
        lines = self.text.split("\n")
        return Span(self.path, 1, 1, len(lines), len(lines[-1]) + 1)


def read_source(path: Path, display_path: str | None = None) -> Source:
    """Return the text of a spec file.

    Args:
        path: The file.
        display_path: The path that messages show; by default `path`.

    Raises:
        Problem: E0101, if the file cannot be read, is not a regular file, is too large, or is not UTF-8 text.
    """
    shown_path = display_path if display_path is not None else str(path)
    if _is_device_or_kernel_file(path):
        raise Problem(_not_a_file_error(shown_path, directory=False))
    try:
        # Non-blocking, since opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise Problem(_missing_file_error(path, shown_path)) from None
    except IsADirectoryError:
        raise Problem(_not_a_file_error(shown_path, directory=True)) from None
    except (OSError, ValueError) as failure:
        raise Problem(_unreadable_error(path, shown_path, failure)) from None
    try:
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise Problem(_not_a_file_error(shown_path, directory=stat.S_ISDIR(mode)))
            data = file.read(MAX_BYTES + 1)
            if data is None:
                # A non-blocking read returned no data: this is no file on a disk.
                raise Problem(_not_a_file_error(shown_path, directory=False))
    except IsADirectoryError:
        raise Problem(_not_a_file_error(shown_path, directory=True)) from None
    except OSError as failure:
        raise Problem(_unreadable_error(path, shown_path, failure)) from None
    return source_from_bytes(data, shown_path)


def _is_device_or_kernel_file(path: Path) -> bool:
    """Return whether a path leads to a device or to a file of the kernel, which must not be opened.

    Opening or reading such a file may have effects: what is read from /proc/kmsg is removed from it. Links
    are followed, so `/dev/stdin` counts as the file that it points to.
    """
    try:
        real_path = os.path.realpath(path)
        mode = os.stat(real_path).st_mode
    except (OSError, ValueError):
        return False
    if real_path.startswith(("/proc/", "/sys/")):
        return not stat.S_ISDIR(mode)
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def source_from_bytes(data: bytes, path: str) -> Source:
    r"""Return the decoded text of a spec, without a byte order mark and with `\n` as the only line end.

    Args:
        data: The bytes of a file, of standard input or of a package's file.
        path: The path that messages show.

    Raises:
        Problem: E0101, if there are more than `MAX_BYTES` bytes, they are not UTF-8 text, or the text is empty.
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
                _not_utf8_error(path, 0, f"it begins with the byte order mark of {encoding}", data, encoding)
            )
    if b"\0" in data:
        offset = data.index(b"\0")
        raise Problem(
            error(
                "E0101",
                "this is a binary file, not a spec",
                where=path,
                notes=[f"byte {offset} is zero, which no text contains"],
                help="give the `.reo` file itself, not an archive, a checkpoint or a table",
            )
        )
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    try:
        text = data[start:].decode("utf-8")
    except UnicodeDecodeError as failure:
        offset = failure.start + start
        raise Problem(_not_utf8_error(path, offset, f"byte {offset} is 0x{data[offset]:02x}", data)) from None
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


def _missing_file_error(path: Path, name: str) -> Diagnostic:
    """Return the error for a file that does not exist (E0101), with similar names in its folder.

    Args:
        path: The path of the missing file.
        name: The path that messages show.
    """
    similar = _files_like(path)
    return error(
        "E0101",
        "there is no such file",
        where=name,
        notes=[f"in the same folder: {', '.join(similar)}"] if similar else [],
        help=f"did you mean `{similar[0]}`?" if similar else "check the path",
    )


def _files_like(path: Path) -> list[str]:
    """Return up to three names of specs beside `path` that are similar to its name, the most similar first."""
    try:
        with os.scandir(path.parent) as entries:
            stems = [entry.name[:-4] for entry in islice(entries, 1000) if entry.name.endswith(".reo")]
    except (OSError, ValueError):
        return []
    return [f"{stem}.reo" for stem in get_close_matches(path.stem, sorted(stems), n=3)]


def _not_a_file_error(name: str, *, directory: bool) -> Diagnostic:
    """Return the error for a path that is not a regular file (E0101).

    Args:
        name: The path that messages show.
        directory: Whether the path is a directory; otherwise it is a pipe, a device or a system file.
    """
    noun = "a directory" if directory else "a pipe, a device or a system file"
    remedy = f"name the specs in it: `{name.rstrip('/')}/*.reo`" if directory else "give a `.reo` file"
    return error("E0101", f"this is {noun}, not a spec", where=name, help=remedy)


def _unreadable_error(path: Path, name: str, failure: Exception) -> Diagnostic:
    """Return the error for a file that the operating system does not let us read (E0101).

    Args:
        path: The file.
        name: The path that messages show.
        failure: The exception of opening or reading the file.
    """
    reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
    denied = isinstance(failure, PermissionError)
    return error(
        "E0101",
        f"the file cannot be read: {reason}",
        where=name,
        help=f"allow reading it: `chmod u+r {path}`" if denied else "check the path and the disk",
    )


def _not_utf8_error(path: str, offset: int, reason: str, data: bytes, encoding: str = "latin1") -> Diagnostic:
    """Return the error for bytes that are not UTF-8 (E0101), marked at the first wrong byte.

    Args:
        path: The path that messages show.
        offset: The index of the first wrong byte.
        reason: The words beside the underline.
        data: The bytes of the file.
        encoding: The encoding that the text probably has.
    """
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
