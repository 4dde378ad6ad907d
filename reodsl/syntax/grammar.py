"""Build the parser's tables from `grammar.lark` with lark: `make grammar` writes them to `tables.json`.

Importing lark takes a quarter of the time that `reodsl check` has, so the tables are shipped, and reading a spec does
not import lark. A test holds the shipped tables equal to what lark makes of the grammar. Nothing of reodsl is imported
here: it could not be while there are no tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lark
from lark.grammar import Rule
from lark.lexer import PatternStr, Token
from lark.parsers.lalr_analysis import Shift

GRAMMAR = Path(__file__).with_name("grammar.lark")
STARTS = ("expression", "module")


class KeepAll:
    """Keep the terminals in the lexer that no rule uses; `scanner.py` and `brackets.py` deal with them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Pass all tokens on."""
        return stream


def load_lark(**options: Any) -> lark.Lark:
    """Load the grammar into lark; `strict=True` also refuses conflicts and colliding terminals."""
    return lark.Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        start=list(STARTS),
        keep_all_tokens=True,
        maybe_placeholders=False,
        postlex=KeepAll(),
        **options,
    )


def build_tables(*, strict: bool = False) -> dict[str, Any]:
    """Build the fields of `tables.Tables` from the grammar's text. The same text always gives the same tables."""
    frontend: Any = load_lark(strict=strict).parser
    table, lexer = frontend.parser._parse_table, frontend.lexer.lexer
    numbers = _number_states(table)
    used = {target for row in table.states.values() for action, target in row.values() if action is not Shift}
    rules = sorted(used, key=_rule_key)
    rule_numbers = {rule: number for number, rule in enumerate(rules)}
    steps: list[dict[str, int]] = [{} for _ in numbers]
    for state, number in numbers.items():
        for symbol, (action, target) in sorted(table.states[state].items()):
            steps[number][str(symbol)] = numbers[target] if action is Shift else ~rule_numbers[target]
    terminals = [
        (t.name, t.pattern.to_regexp()) for t in lexer.scanner.terminals
    ]  # this also sets `callback`
    words = {t.pattern.value: t.name for t in lexer.callback["NAME"].scanner.terminals}
    signs = [t for t in lexer.terminals if isinstance(t.pattern, PatternStr) and t.pattern.value not in words]
    return {
        "steps": steps,
        "rules": [(str(rule.origin.name), len(rule.expansion), _method(rule)) for rule in rules],
        "terminals": terminals,
        "starts": {
            name: (numbers[table.start_states[name]], numbers[table.end_states[name]]) for name in STARTS
        },
        "words": dict(sorted(words.items())),
        "signs": {t.name: t.pattern.value for t in signs},
    }


def _number_states(table: Any) -> dict[int, int]:
    """Number the states in the order in which they are reached; lark's own numbers change from process to process."""
    numbers: dict[int, int] = {}
    waiting = [table.start_states[name] for name in STARTS]
    for state in waiting:
        if state not in numbers:
            numbers[state] = len(numbers)
            for _, (action, target) in sorted(table.states[state].items()):
                if action is Shift:
                    waiting.append(target)
    return numbers


def _rule_key(rule: Rule) -> tuple[str, list[str], str]:
    return str(rule.origin.name), [str(symbol.name) for symbol in rule.expansion], _method(rule)


def _method(rule: Rule) -> str:
    """Name the method of `Builder` that makes the rule's value; empty where its one child passes through."""
    passes = rule.options.expand1 and not rule.alias and len(rule.expansion) == 1
    return "" if passes else str(rule.alias or rule.origin.name)


def dump_tables(tables: dict[str, Any]) -> str:
    """Lay the tables out as JSON, one state, rule, terminal or word a line."""
    parts = []
    for name, field in tables.items():
        if isinstance(field, list):
            lines, brackets = [json.dumps(each) for each in field], "[]"
        else:
            lines, brackets = (
                [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in field.items()],
                "{}",
            )
        parts.append(f"{json.dumps(name)}: {brackets[0]}\n" + ",\n".join(lines) + f"\n{brackets[1]}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    Path(__file__).with_name("tables.json").write_text(
        dump_tables(build_tables(strict=True)), encoding="utf-8"
    )
