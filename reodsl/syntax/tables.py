"""Load the parser's tables, which lark made of `grammar.lark` and `tables.json` holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLES = Path(__file__).with_name("tables.json")


@dataclass(frozen=True, slots=True)
class Tables:
    """LALR(1) tables and the lexer's terminals.

    `steps[state]` maps a terminal to the state to go to, or to `~rule` for the rule to reduce by, and a rule's origin
    to the state to go to. `rules` are (origin, length, method): the method of `build.Builder` that makes the value,
    empty where one child passes through. `starts` maps a start symbol to its first and last state. `terminals` are
    (name, pattern), tried in this order; `words` are the names that are terminals of their own. `signs` are the others
    with one spelling, by their terminals: `PLUS` is `+`.
    """

    steps: list[dict[str, int]]
    rules: list[tuple[str, int, str]]
    terminals: list[tuple[str, str]]
    starts: dict[str, tuple[int, int]]
    words: dict[str, str]
    signs: dict[str, str]


@cache
def tables() -> Tables:
    """Load the shipped tables, once a process."""
    return Tables(**json.loads(TABLES.read_bytes()))
