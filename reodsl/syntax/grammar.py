"""Load `grammar.lark` into lark, which keeps what it makes of it in this user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lark import Lark
from lark.lexer import PatternStr, TerminalDef, Token

from reodsl.syntax.build import Builder

GRAMMAR = Path(__file__).with_name("grammar.lark")


class KeepAll:
    """A filter that keeps the terminals that no rule reads; `scanner.py` and `brackets.py` deal with them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Pass all tokens on."""
        return stream


@cache
def load_grammar() -> Lark:
    """Return the parser of the grammar, loaded once a process."""
    return Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        start=["expression", "module"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        postlex=KeepAll(),
        transformer=Builder(),
        cache=cache_file(),
    )


def cache_file() -> str | bool:
    """Return the file for lark's tables in a folder that only this user can write, or False where there is none.

    Lark unpickles this file, so nobody else may have made it or its folder.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reodsl"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):
        return False
    private = about.st_uid == os.getuid() and not about.st_mode & 0o022
    return str(folder / "grammar.pickle") if private else False


def terminals() -> list[TerminalDef]:
    """List the terminals in the order in which the lexer tries them."""
    lexer = load_grammar().parser.lexer.lexer
    # Lark sorts terminals, and finds out which words are names, as it makes its scanner.
    return list(lexer.scanner.terminals)


@cache
def words() -> dict[str, str]:
    """Return the terminals of keywords by spelling: `from` is `FROM`."""
    return {t.pattern.value: t.name for t in _spell_terminals() if t.pattern.value.isalpha()}


@cache
def signs() -> dict[str, str]:
    """Return the spelling of each sign by its terminal: `PLUS` is `+`."""
    return {t.name: t.pattern.value for t in _spell_terminals() if not t.pattern.value.isalpha()}


def _spell_terminals() -> list[TerminalDef]:
    return [t for t in load_grammar().terminals if isinstance(t.pattern, PatternStr)]
