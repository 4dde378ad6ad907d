"""Files of the store: written whole or not at all, checksummed, and refused clearly when there is no room for them.

Files that a spec or a stranger's folder names are read only if they are plain: regular files on a disk, of bounded size. A
device, pipe or socket is none, nor is anything below /proc, /sys or /dev (but /dev/shm, which is memory): to open those may
hang, never end, or do something. Links are followed, as models and data often lie on another disk; what counts is where they
lead.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from reodsl.diagnostics import Problem, problem

_NEXT_LOOK = 0.05
_LOCKLESS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Lockless(OSError):
    """An error of a file system that has no locks."""


# These are record locks and not those of `filelock`: no child of the process keeps them, however it was forked; whether one
# is held can be asked without taking it, in a store that may only be read too; and a file system without locks is an error,
# where `filelock` goes on with files that outlive their process. Versions of reodsl that share a store have to take the same
# locks.
# A record lock belongs to the process: it does not shut out other threads of it, and closing any handle of the file
# lets it go. So no file that this process holds is opened a second time.
_OURS: dict[str, int] = {}
_CHANGING = threading.Lock()


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` inside the block; False at once if another process or thread has it."""
    with ExitStack() as stack:
        got = _take(path, wait=False)
        if got:
            stack.callback(_drop, path)
        yield got


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Hold the lock at `path` inside the block, after waiting for it; for work of moments."""
    while not _take(path, wait=True):
        time.sleep(_NEXT_LOOK)
    try:
        yield
    finally:
        _drop(path)


def keep(path: Path) -> None:
    """Hold the lock at a new `path` until `let_go`, or to the end of this process."""
    _take(path, wait=True)


def let_go(path: Path) -> None:
    """End `keep`, and remove the file."""
    # A file that cannot be removed any more is a leftover that nobody holds.
    with suppress(OSError):
        path.unlink()
    _drop(path)


def is_held(path: Path) -> bool:
    """Return whether any process, even this one, holds the lock at `path`."""
    with _CHANGING:
        if os.path.realpath(path) in _OURS:
            return True
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that a store that may only be read can be asked too.
            return not _lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except Lockless:
            # Nobody can have it.
            return False
        finally:
            os.close(handle)


def _take(path: Path, wait: bool) -> bool:
    """Return whether this thread got the lock; with `wait` it waits for other processes, not for other threads."""
    name = os.path.realpath(path)
    with _CHANGING:
        if name in _OURS:
            return False
        handle, got = _open(path, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if got:
            _OURS[name] = handle
        else:
            os.close(handle)
        return got


def _drop(path: Path) -> None:
    """Release the lock at `path`."""
    with _CHANGING:
        handle = _OURS.pop(os.path.realpath(path), None)
        if handle is not None:
            os.close(handle)


def _open(path: Path, how: int) -> tuple[int, bool]:
    """Return the open lock file, and whether it could be locked."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(handle, how):
            return handle, False
        if _is_at(handle, path):
            return handle, True
        # Clean-up removed the file between opening and locking it: such a lock shuts nobody out.
        os.close(handle)


def _lock(handle: int, how: int) -> bool:
    """Take a record lock: it ends with this very process, and children that it forks do not keep it."""
    try:
        fcntl.lockf(handle, how)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as fault:
        if fault.errno not in _LOCKLESS:
            raise
        raise Lockless(fault.errno, fault.strerror) from None
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


_SYSTEM = ("/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"
_BLOCK = 1 << 20
_TRIES = 4
LARGEST_RECORD = 1 << 28
"""Bytes of what a store or a run keeps of itself: far more than 20,000 tasks need."""
_KINDS = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


class NotPlain(OSError):
    """An error about a path that is no plain file, or a too large one; `strerror` says which."""


class _ReplacedFile(NotPlain):
    """An error about a file that was replaced between two looks at it."""


def stat_plain(path: Path) -> os.stat_result:
    """Return the status of a plain file, with links followed.

    Raises:
        NotPlain: it is a folder, link, pipe or device.
        OSError: it is missing.
    """
    try:
        status = os.stat(path)
    except ValueError as fault:
        raise NotPlain(errno.EINVAL, str(fault), str(path)) from None
    _require_regular(status, path)
    if is_system(path):
        raise NotPlain(errno.EINVAL, f"it is a file of the system, {_real_path(path)}", str(path))
    return status


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file without ever waiting.

    Raises:
        NotPlain: it is no plain file.
        OSError: it cannot be opened.
    """
    for _ in range(_TRIES):
        # It may be replaced by another between the two looks at it, as records of runs are.
        with suppress(_ReplacedFile):
            return _open_file(path)
    return _open_file(path)


def _open_file(path: Path) -> BinaryIO:
    """Open a plain file; `_ReplacedFile` if it is replaced meanwhile."""
    before = stat_plain(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        now = os.fstat(handle)
        _require_regular(now, path)
        if not os.path.samestat(before, now):
            raise _ReplacedFile(errno.EAGAIN, "it is being replaced", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file of at most `most` bytes.

    Raises:
        NotPlain: it is no plain file, or larger.
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        # What is written to it meanwhile is not waited for.
        data = file.read(most + 1)
    if len(data) > most:
        raise NotPlain(errno.EFBIG, f"it has more than the {most:,} bytes that are read of it", str(path))
    return data


def read_object(path: Path, most: int = LARGEST_RECORD) -> dict[str, Any] | None:
    """Return the object in a plain JSON file; None if it cannot be read or holds something else."""
    try:
        value = json.loads(read_plain(path, most))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_lines(path: Path) -> list[str]:
    """Return the complete lines of a plain text file; empty if it cannot be read."""
    try:
        return read_plain(path, LARGEST_RECORD).decode().split("\n")[:-1]
    except (OSError, ValueError):
        return []


def hash_plain(path: Path) -> str:
    """Return the SHA-256 of a regular file in hexadecimal; bytes that are appended meanwhile do not count.

    Raises:
        NotPlain: it is no plain file.
        OSError: it cannot be read.
    """
    digest, buffer = hashlib.sha256(), bytearray(_BLOCK)
    view = memoryview(buffer)
    with open_plain(path) as file:
        remaining = os.fstat(file.fileno()).st_size
        while remaining > 0 and (count := file.readinto(view[: min(remaining, _BLOCK)])):  # type: ignore[attr-defined]
            digest.update(view[:count])
            remaining -= count
    return digest.hexdigest()


def is_system(path: Path) -> bool:
    """Return whether a path, with links followed, is in a folder of the system."""
    try:
        real = _real_path(path)
    except ValueError:
        return True
    return is_within(real, _SYSTEM) and not is_within(real, (_MEMORY,))


def _real_path(path: Path) -> str:
    """Return the file that a path leads to.

    Linux answers in a single call; `realpath` looks at each folder on the way. O_PATH finds the file without opening
    it.
    """
    if hasattr(os, "O_PATH"):
        with suppress(OSError):
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                return os.readlink(f"/proc/self/fd/{handle}")
            finally:
                os.close(handle)
    return os.path.realpath(path)


def _require_regular(status: os.stat_result, path: Path) -> None:
    """Raise NotPlain unless the status is that of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    words = next((words for test, words in _KINDS if test(status.st_mode)), "it is not a plain file")
    raise NotPlain(errno.EINVAL, words, str(path))


def is_within(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is in `folders` or below; no link is followed."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_LEAST_BYTES = 16384
# Libraries that write files by themselves report a full disk in words only.
_FULL_WORDS = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`, whose file replaces `path` in one step at the end.

    So `path` holds its old content or all of the new, whatever happens. Without `durable` the disk is not waited for,
    and a power cut may lose the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def write_atomic(path: Path, data: bytes | Iterable[bytes], durable: bool = True) -> None:
    """Write `data`, as bytes or in pieces, in one step."""
    with replacing(path, durable) as temporary, temporary.open("wb") as file:
        file.writelines((data,) if isinstance(data, bytes) else data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_atomic(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Return `value` as indented JSON with sorted keys."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def sync(path: Path) -> None:
    """Wait until a file's or a folder's present state is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(folder: Path) -> Iterator[Path]:
    """Yield every entry below `folder`, links not followed, in sorted order."""
    for entry in sorted(folder.iterdir()):
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from walk(entry)


def is_full(error: BaseException, folder: Path) -> bool:
    """Return whether a write below `folder` failed because no space is left.

    Libraries say so by number, in words or not at all: polars fails in the footer of a table with `transport error`.
    """
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    said = _FULL_WORDS.search(str(error)) is not None
    return said or (not isinstance(error, OSError) and shutil.disk_usage(folder).free < _LEAST_BYTES)


def storage_problem(error: BaseException, path: Path) -> Problem | None:
    """Return the diagnostic for a write that the disk refused; None for an error of another kind."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, Lockless):
        return problem(
            "E0950",
            f"the file system has no locks: {(error.strerror or str(error)).lower()}",
            where=str(path),
            help="name a store on a file system with locks, such as a local disk: --store DIR (or REODSL_STORE)",
        )
    if number == errno.EFBIG:
        return problem(
            "E0950",
            "a file of the results is larger than this file system or `ulimit -f` allows",
            where=str(path),
            help="raise the limit: `ulimit -f unlimited`, or name a store elsewhere: --store DIR",
        )
    if is_full(error, path):
        return problem(
            "E0950",
            "no space left to store results",
            where=str(path),
            help="free some space (`reodsl gc` lists what no run needs), or name another store: --store DIR",
        )
    if isinstance(error, OSError) and number in _DENIED:
        return _explain_denial(error, path)
    return None


def _explain_denial(error: OSError, path: Path) -> Problem:
    return problem(
        "E0950",
        "the store cannot be written: " + (error.strerror or str(error)).lower(),
        where=str(path),
        help="make the folder writable, or name another store: --store DIR (or REODSL_STORE)",
    )


@contextmanager
def storing(path: Path, *, anything: bool = False) -> Iterator[None]:
    """Turn a refusal of the disk inside the block into a `Problem` that names `path`.

    With `anything` every error of the operating system becomes a `Problem`: a name too long, a folder that may not be
    made.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        refusal = storage_problem(error, path)
        if refusal is None and anything and isinstance(error, OSError):
            refusal = _explain_denial(error, path)
        if refusal is None:
            raise
        raise refusal from error


def state_folder() -> Path:
    """Return the folder of what this user's commands keep: `$XDG_STATE_HOME/reodsl/`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "reodsl"


def link_or_copy(source: Path, target: Path) -> None:
    """Make a new file `target` with the content of another, as the same file where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
