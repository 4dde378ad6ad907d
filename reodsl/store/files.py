"""Files of the store: written whole or not at all, checksummed, and refused clearly when there is no room for them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Problem, problem
from reodsl.store.locks import Lockless

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
# Libraries that write files by themselves report a full disk in words only.
_FULL_WORDS = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes | Iterable[bytes], durable: bool = True) -> None:
    """Write `data`, whole or in pieces, so that `path` holds its old content or all of the new, whatever happens.

    Without `durable` the disk is not waited for, and a power cut may lose the file.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


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


def is_full(error: BaseException) -> bool:
    """Return whether a write failed because no space is left."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _FULL or _FULL_WORDS.search(str(error)) is not None


def storage_problem(error: BaseException, place: Path) -> Problem | None:
    """Return the diagnostic for a write that the disk refused; None for an error of another kind."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, Lockless):
        return problem(
            "E0958",
            f"the file system has no locks: {(error.strerror or str(error)).lower()}",
            where=str(place),
            help="name a store on a file system with locks, such as a local disk: --store DIR (or REODSL_STORE)",
        )
    if number == errno.EFBIG:
        return problem(
            "E0951",
            "a file of the results is larger than this file system or `ulimit -f` allows",
            where=str(place),
            help="raise the limit: `ulimit -f unlimited`, or name a store elsewhere: --store DIR",
        )
    if is_full(error):
        return problem(
            "E0951",
            "no space left to store results",
            where=str(place),
            help="free some space (`reodsl gc` lists what no run needs), or name another store: --store DIR",
        )
    if isinstance(error, OSError) and number in _DENIED:
        return _explain_denial(error, place)
    return None


def _explain_denial(error: OSError, place: Path) -> Problem:
    return problem(
        "E0950",
        "the store cannot be written: " + (error.strerror or str(error)).lower(),
        where=str(place),
        help="make the folder writable, or name another store: --store DIR (or REODSL_STORE)",
    )


@contextmanager
def storing(place: Path, *, anything: bool = False) -> Iterator[None]:
    """Turn a refusal of the disk inside the block into a `Problem` that names `place`.

    With `anything` every error of the operating system is one: a name too long, a folder that may not be made.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        refusal = storage_problem(error, place)
        if refusal is None and anything and isinstance(error, OSError):
            refusal = _explain_denial(error, place)
        if refusal is None:
            raise
        raise refusal from error
