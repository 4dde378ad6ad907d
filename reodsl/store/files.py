"""Locks, safe reading, and writing in one step for files of the store.

Files that a spec or a stranger's folder names are read only if they are plain: regular files of bounded size. Devices,
pipes and sockets are not plain, nor are files below /proc, /sys or /dev, except /dev/shm, which is memory: opening such a
file may hang, never end, or have effects. Links are followed, as models and data are often on another disk.
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
"""Seconds between two attempts at a lock that another thread of this process holds."""
_LOCKLESS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Lockless(OSError):
    """An error of a file system that has no locks."""


# Locks are POSIX record locks instead of those of `filelock`: forked children do not keep them; whether a lock is held
# can be tested without taking it, even in a read-only store; and a file system without locks raises an error, while
# `filelock` falls back to files that outlive their process. Versions of reodsl that share a store must use the same locks.
# A record lock belongs to the process: it does not exclude other threads of the process, and closing any handle of the file
# releases it. So a file whose lock this process holds is never opened a second time.
_OURS: dict[str, int] = {}
_CHANGING = threading.Lock()


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Try to hold the lock file `path` inside a `with` block, and yield whether this succeeded, without waiting.

    False is yielded if another process, or another thread of this process, holds the lock.
    """
    with ExitStack() as stack:
        is_locked = _acquire(path, wait=False)
        if is_locked:
            stack.callback(_release, path)
        yield is_locked


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait for the lock file `path`, and hold it inside a `with` block, which should be short."""
    while not _acquire(path, wait=True):
        time.sleep(_NEXT_LOOK)
    try:
        yield
    finally:
        _release(path)


def keep(path: Path) -> None:
    """Create the lock file `path`, and hold it until `let_go` releases it or this process ends.

    If another process holds the lock, this process waits.
    """
    _acquire(path, wait=True)


def let_go(path: Path) -> None:
    """Release a lock that `keep` took, and remove its file."""
    # A file that cannot be removed is a leftover, which clean-up removes later.
    with suppress(OSError):
        path.unlink()
    _release(path)


def is_held(path: Path) -> bool:
    """Return whether any process, including this process, holds the lock file `path`.

    The result is False if the file does not exist or its file system has no locks.
    """
    with _CHANGING:
        if os.path.realpath(path) in _OURS:
            return True
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # A shared lock needs no permission to write, so that it can test a read-only store.
            return not _lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except Lockless:
            return False
        finally:
            os.close(handle)


def _acquire(path: Path, wait: bool) -> bool:
    """Try to lock the file `path` for this thread, and return whether it is locked now.

    Args:
        path: Lock file, which is created if it is missing.
        wait: Whether to wait for other processes; another thread of this process is never waited for.
    """
    name = os.path.realpath(path)
    with _CHANGING:
        if name in _OURS:
            return False
        handle, is_locked = _open_locked(path, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_locked:
            _OURS[name] = handle
        else:
            os.close(handle)
        return is_locked


def _release(path: Path) -> None:
    """Release the lock file `path`, if this process holds it."""
    with _CHANGING:
        handle = _OURS.pop(os.path.realpath(path), None)
        if handle is not None:
            os.close(handle)


def _open_locked(path: Path, operation: int) -> tuple[int, bool]:
    """Open a lock file and lock it.

    Args:
        path: Lock file, which is created if it is missing.
        operation: Operation of `fcntl.lockf`, such as `LOCK_EX | LOCK_NB`.

    Returns:
        (descriptor of the open file, whether it is locked).
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(handle, operation):
            return handle, False
        if _is_same_file(handle, path):
            return handle, True
        # Clean-up removed the file between opening and locking: other processes would lock a new file.
        os.close(handle)


def _lock(handle: int, operation: int) -> bool:
    """Try to take a record lock on an open file, and return whether this process has the lock now.

    The lock ends with this process, and forked children do not keep it.

    Args:
        handle: Descriptor of the file.
        operation: Operation of `fcntl.lockf`, such as `LOCK_EX | LOCK_NB`.

    Raises:
        Lockless: the file system has no locks.
    """
    try:
        fcntl.lockf(handle, operation)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as fault:
        if fault.errno not in _LOCKLESS:
            raise
        raise Lockless(fault.errno, fault.strerror) from None
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    """Return whether an open descriptor still belongs to the file at `path`, which may have been removed or replaced."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


_SYSTEM = ("/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"
_BLOCK = 1 << 20
"""Bytes that are hashed at once."""
_TRIES = 4
"""Attempts to open a file that other processes keep replacing."""
LARGEST_RECORD = 1 << 28
"""Largest size of a store's or a run's own files in bytes, which is far more than 20,000 tasks need."""
_KINDS = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


class NotPlain(OSError):
    """An error about a path that is not a plain file, or about a too large file; `strerror` has the reason."""


class _ReplacedFile(NotPlain):
    """An error about a file that was replaced between checking and opening it."""


def stat_plain(path: Path) -> os.stat_result:
    """Return the status of a plain file, with links followed.

    Raises:
        NotPlain: the path leads to a folder, pipe, socket or device, or to a file of the system.
        OSError: the file is missing.
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
    """Open a plain file for reading; a pipe, which could block, is never opened.

    If other processes keep replacing the file, the attempt is repeated at most `_TRIES` times.

    Raises:
        NotPlain: the path leads to no plain file.
        OSError: the file cannot be opened.
    """
    for _ in range(_TRIES):
        # Another process may replace the file between check and opening, as it does with records of runs.
        with suppress(_ReplacedFile):
            return _open_file(path)
    return _open_file(path)


def _open_file(path: Path) -> BinaryIO:
    """Check that a path leads to a plain file, and open the file.

    Raises:
        NotPlain: the path leads to no plain file.
        _ReplacedFile: another file has replaced the checked file before it was opened.
    """
    status = stat_plain(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        open_status = os.fstat(handle)
        _require_regular(open_status, path)
        if not os.path.samestat(status, open_status):
            raise _ReplacedFile(errno.EAGAIN, "it is being replaced", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, max_bytes: int) -> bytes:
    """Return the content of a plain file of at most `max_bytes` bytes.

    Raises:
        NotPlain: the path leads to no plain file, or to a larger file.
        OSError: the file cannot be read.
    """
    with open_plain(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise NotPlain(errno.EFBIG, f"it is larger than {max_bytes:,} bytes, and is not read", str(path))
    return data


def read_object(path: Path, max_bytes: int = LARGEST_RECORD) -> dict[str, Any] | None:
    """Return the object in a plain JSON file; None if the file cannot be read, is too large, or holds no JSON object.

    Args:
        path: The file.
        max_bytes: Largest size of the file in bytes.
    """
    try:
        value = json.loads(read_plain(path, max_bytes))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a plain text file; empty if the file cannot be read.

    A last line without a line break is left out, as another process may still be writing it.
    """
    try:
        return read_plain(path, LARGEST_RECORD).decode().split("\n")[:-1]
    except (OSError, ValueError):
        return []


def hash_plain(path: Path) -> str:
    """Return the SHA-256 of a plain file in hexadecimal.

    Bytes that another process appends after the file was opened do not count.

    Raises:
        NotPlain: the path leads to no plain file.
        OSError: the file cannot be read.
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
    """Return whether a path leads to a file of the system: below /proc, /sys or /dev, but not below /dev/shm.

    Links are followed. An impossible path, such as a path with a null character, counts as a file of the system.
    """
    try:
        real = _real_path(path)
    except ValueError:
        return True
    return is_within(real, _SYSTEM) and not is_within(real, (_MEMORY,))


def _real_path(path: Path) -> str:
    """Return the path of a file with all links resolved.

    On Linux, O_PATH gives a descriptor of the file without opening its content, and the kernel tells the descriptor's
    path. This is faster than `realpath`, which checks every folder of the path.
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
    """Check that the status of `path` is that of a regular file, else raise NotPlain with the kind of the file."""
    if stat.S_ISREG(status.st_mode):
        return
    reason = next((reason for test, reason in _KINDS if test(status.st_mode)), "it is not a plain file")
    raise NotPlain(errno.EINVAL, reason, str(path))


def is_within(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is one of `folders` or below one of them, by its text, without following links."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_LEAST_BYTES = 16384
"""Free bytes of a disk; with fewer, any failed write is taken to be for lack of space."""
# Libraries that write files by themselves report a full disk only in their message.
_FULL_WORDS = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in a `with` block, to which the caller writes the new content of the file `path`.

    At the end of the block, the temporary file replaces `path` in one step. So `path` always has either its old content
    or the complete new content. After an exception it has the old content.

    Args:
        path: The file to replace.
        durable: Whether to wait until the file is on the disk; otherwise a power cut may lose it.
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
    """Replace the content of a file in one step, so that readers see either the old or the new content.

    Args:
        path: The file.
        data: The new content, or pieces of it.
        durable: Whether to wait until the file is on the disk; otherwise a power cut may lose it.
    """
    with replacing(path, durable) as temporary, temporary.open("wb") as file:
        file.writelines((data,) if isinstance(data, bytes) else data)


def write_json(path: Path, value: Any) -> None:
    """Replace the file `path` by `value` as indented JSON, in one step."""
    write_atomic(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Return `value` as indented JSON with sorted keys, encoded as UTF-8 with a newline at the end."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def sync(path: Path) -> None:
    """Wait until the present content of a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(folder: Path) -> Iterator[Path]:
    """Yield every file, folder and link below `folder` in sorted order, a folder before its entries; follow no links."""
    for entry in sorted(folder.iterdir()):
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from walk(entry)


def is_full(error: BaseException, folder: Path) -> bool:
    """Return whether a write below `folder` failed with `error` because no space is left.

    The operating system's error has a number that says so, and some libraries say so in their message. Polars may raise
    another error. So any error that is not of the operating system counts if less than `_LEAST_BYTES` are free.
    """
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    is_reported = _FULL_WORDS.search(str(error)) is not None
    return is_reported or (not isinstance(error, OSError) and shutil.disk_usage(folder).free < _LEAST_BYTES)


def storage_problem(error: BaseException, path: Path) -> Problem | None:
    """Return E0950 for a write that the disk refused, because it lacks space, locks or permission, or a file is too large.

    Args:
        error: The exception of the write.
        path: The store, which the diagnostic names.

    Returns:
        The diagnostic; None for an exception with another cause.
    """
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
            help="free some space (`reodsl gc` lists results that no run needs), or name another store: --store DIR",
        )
    return _explain_denial(error, path) if isinstance(error, OSError) and number in _DENIED else None


def _explain_denial(error: OSError, path: Path) -> Problem:
    """Return E0950 for a store that cannot be written, with the reason of the operating system."""
    return problem(
        "E0950",
        "the store cannot be written: " + (error.strerror or str(error)).lower(),
        where=str(path),
        help="make the folder writable, or name another store: --store DIR (or REODSL_STORE)",
    )


@contextmanager
def storing(path: Path, *, every_error: bool = False) -> Iterator[None]:
    """Turn an error of the disk in the `with` block into E0950, which names the store `path`.

    Args:
        path: The store.
        every_error: Whether every error of the operating system becomes E0950, such as a too long name; otherwise only
            the errors of `storage_problem`.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        refusal = storage_problem(error, path)
        if refusal is None and every_error and isinstance(error, OSError):
            refusal = _explain_denial(error, path)
        if refusal is None:
            raise
        raise refusal from error


def state_folder() -> Path:
    """Return the folder of this user's state, such as approvals of code: `$XDG_STATE_HOME/reodsl/`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "reodsl"


def link_or_copy(source: Path, target: Path) -> None:
    """Make a new file `target` with the content of `source`: a hard link, or a copy if the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
