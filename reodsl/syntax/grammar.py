"""The LALR tables of `grammar.lark` as a lark parser, from the user's cache when that is safe, else built."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lark
from lark.common import TerminalDef  # type: ignore[attr-defined]
from lark.grammar import Rule
from lark.lexer import Token

from reodsl.syntax.build import Builder

_GRAMMAR = Path(__file__).with_name("grammar.lark")
_LARGEST_CACHE = 4 << 20


class _Unfiltered:
    """Keeps the terminals that no rule uses in the lexer; `tokens.py` and `brackets.py` deal with them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def build_parser(*, strict: bool = False) -> lark.Lark:
    """The parser built from the grammar text; `strict` also refuses conflicts and colliding terminals."""
    return lark.Lark(
        _GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        start=["module", "expression"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        strict=strict,
        postlex=_Unfiltered(),
        transformer=Builder(),
    )


@functools.cache
def parser() -> lark.Lark:
    """The parser, loaded from the cache file or built (and then cached). Never fails because of the cache."""
    path = cache_path()
    data = None if path is None else read_cache(path)
    if data is not None:
        try:
            return lark.Lark._load_from_dict(  # type: ignore[no-untyped-call, no-any-return]
                data["data"], data["memo"], postlex=_Unfiltered(), transformer=Builder()
            )
        except Exception:  # a cache of another shape is as good as none, whatever lark trips over in it
            pass
    built = build_parser()
    if path is not None:
        write_cache(path, built)
    return built


def cache_path() -> Path | None:
    """The cache file, named by a hash of the grammar, lark's and Python's versions; None without a home."""
    key = hashlib.sha256(
        b"\0".join([_GRAMMAR.read_bytes(), lark.__version__.encode(), sys.version.encode()])
    ).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "reodsl" / f"grammar-{key}.json" if folder.is_absolute() else None


def read_cache(path: Path) -> dict[str, Any] | None:
    """The serialised tables, or None if the file is absent, broken or could have been written by another user."""
    try:
        folder = os.lstat(path.parent)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not (stat.S_ISREG(status.st_mode) and _private(status) and _private(folder)):
                return None
            text = file.read(_LARGEST_CACHE)
        data = json.loads(text, object_hook=_integer_keys)
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and data.keys() == {"data", "memo"} else None


def _private(status: os.stat_result) -> bool:
    """Owned by this user and writable by nobody else (on systems that know owners)."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def _integer_keys(found: dict[str, Any]) -> dict[Any, Any]:
    # lark numbers states, terminals and memo entries; JSON spells such keys as text.
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def write_cache(path: Path, built: lark.Lark) -> None:
    """Write the tables beside a rename, readable by this user only; silently not at all where that fails."""
    data, memo = built.memo_serialize([TerminalDef, Rule])
    data["options"] = {
        name: value
        for name, value in data["options"].items()
        if name not in {"postlex", "transformer", "lexer_callbacks", "edit_terminals", "_plugins"}
    }
    try:
        text = json.dumps({"data": data, "memo": memo})
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not _private(os.lstat(path.parent)):
            return
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
    except (OSError, TypeError, ValueError):
        return
