"""The parser's tables, from the user's cache where that is safe, else built from the grammar and cached."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

from reodsl.syntax import grammar
from reodsl.syntax.grammar import Tables

_LARGEST_CACHE = 4 << 20


@cache
def tables() -> Tables:
    """The tables of the installed grammar. Never fails because of the cache."""
    path = cache_path()
    found = None if path is None else read_cache(path)
    if found is None:
        found = grammar.build_tables()
        if path is not None:
            write_cache(path, found)
    return found


def cache_path() -> Path | None:
    """The cache file, named by a hash of the grammar and of what reads it; None without a home directory."""
    sources = [grammar.GRAMMAR, Path(grammar.__file__), Path(__file__)]
    texts = [path.read_bytes() for path in sources if path.exists()]
    key = hashlib.sha256(b"\0".join([sys.version.encode(), *texts])).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "reodsl" / f"grammar-{key}.json" if folder.is_absolute() else None


def read_cache(path: Path) -> Tables | None:
    """The tables, or None if the file is absent, broken or could have been written by another user."""
    try:
        folder = os.lstat(path.parent)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not (stat.S_ISREG(status.st_mode) and _private(status) and _private(folder)):
                return None
            digest, _, text = file.read(_LARGEST_CACHE).partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        fields: list[Any] = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return Tables(*fields) if isinstance(fields, list) and len(fields) == 5 else None


def write_cache(path: Path, tables: Tables) -> None:
    """Write the tables through a rename, readable by this user only; silently not at all where that fails."""
    import tempfile  # only on the first run

    text = json.dumps(astuple(tables)).encode()
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not _private(os.lstat(path.parent)):
            return
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
    except OSError:
        return


def _private(status: os.stat_result) -> bool:
    """Owned by this user and writable by nobody else (on systems that know owners)."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
