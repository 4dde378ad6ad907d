"""`grammar.lark` to the tables of its parser and lexer: built by lark, plain data afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark.lexer import Token

GRAMMAR = Path(__file__).with_name("grammar.lark")


@dataclass(frozen=True, slots=True)
class Tables:
    """LALR(1) tables and the lexer's terminals.

    `steps[state]` maps a terminal to the state to go to, or to `~rule` for the rule to reduce by, and a rule's origin
    to the state to go to. `rules` are (origin, length, method): the method of `build.Builder` that makes the value,
    empty where one child passes through. `starts` maps a start symbol to its first and last state. `terminals` are
    (name, pattern), tried in this order; `words` are the names that are terminals of their own.
    """

    steps: list[dict[str, int]]
    rules: list[tuple[str, int, str]]
    starts: dict[str, tuple[int, int]]
    terminals: list[tuple[str, str]]
    words: dict[str, str]


class _Unfiltered:
    """Keeps the terminals that no rule uses in the lexer; `tokens.py` and `brackets.py` deal with them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def build_tables(*, strict: bool = False) -> Tables:
    """The tables from the grammar's text; `strict` also refuses conflicts and colliding terminals."""
    # lark takes longer to import than a spec to check, and is needed only where the tables are not at hand.
    import lark
    from lark.parsers.lalr_analysis import Shift

    built = lark.Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        start=["module", "expression"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        strict=strict,
        postlex=_Unfiltered(),
    )
    frontend: Any = built.parser
    table = frontend.parser._parse_table
    rules: list[tuple[str, int, str]] = []
    numbers: dict[Any, int] = {}

    def step(action: Any, target: Any) -> int:
        if action is Shift:
            return int(target)
        if target not in numbers:
            numbers[target] = len(rules)
            passes = target.options.expand1 and not target.alias and len(target.expansion) == 1
            method = "" if passes else str(target.alias or target.origin.name)
            rules.append((str(target.origin.name), len(target.expansion), method))
        return ~numbers[target]

    steps = [
        {str(symbol): step(*action) for symbol, action in table.states[state].items()}
        for state in range(len(table.states))
    ]
    starts = {name: (table.start_states[name], table.end_states[name]) for name in ("module", "expression")}
    scanner = frontend.lexer.lexer.scanner
    words = {t.pattern.value: t.name for t in frontend.lexer.lexer.callback["NAME"].scanner.terminals}
    terminals = [(t.name, t.pattern.to_regexp()) for t in scanner.terminals]
    return Tables(steps, rules, starts, terminals, words)
