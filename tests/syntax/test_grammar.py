"""The grammar itself: no conflicts, and shipped tables that are lark's of this grammar."""

from __future__ import annotations

import os
import subprocess
import sys

import lark
import pytest

from reodsl.syntax import Source, grammar, parse, tree
from reodsl.syntax.brackets import balance
from reodsl.syntax.build import Builder, Rejected
from reodsl.syntax.parser import InteractiveParser, Unfit
from reodsl.syntax.scanner import scan
from reodsl.syntax.tables import TABLES, tables
from tests.syntax.test_recovery import MISTAKES
from tests.syntax.trees import SPECS, source
from tests.syntax.words import WORDS

LARK = grammar.load_lark(transformer=Builder())


def test_builds_without_conflicts_or_colliding_terminals() -> None:
    grammar.build_tables(strict=True)


def test_the_shipped_tables_are_those_of_the_grammar() -> None:
    built = grammar.dump_tables(grammar.build_tables())
    assert TABLES.read_text() == built, "the grammar and its tables differ: run `make grammar`"


def test_the_tables_are_the_same_in_every_process() -> None:
    code = "from reodsl.syntax.grammar import *; print(dump_tables(build_tables()), end='')"
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
        )
        assert out.stdout == TABLES.read_text()


def test_every_rule_has_its_method() -> None:
    for origin, length, method in tables().rules:
        assert hasattr(Builder, method) if method else length == 1, origin


def test_reads_what_lark_reads() -> None:
    """The parser and the scanner against lark's own, on the same grammar."""
    for path in SPECS:
        text = source(path)
        scanned = scan(text)
        kept = [token for token in LARK.lex(text.text) if token.type != "COMMENT"]
        assert [
            (t.type, t.text, t.span.line, t.span.column, t.span.end_line, t.span.end_column)
            for t in scanned.tokens
        ] == [(t.type, str(t), t.line, t.column, t.end_line, t.end_column) for t in kept]
        parse_state = LARK.parse_interactive("", start="module").parser_state
        for token in balance(scanned.tokens).tokens:
            parse_state.feed_token(token)  # type: ignore[arg-type]
        _, items = parse_state.feed_token(lark.Token("$END", ""), True)
        module = parse(text).module
        assert [item for item in items if isinstance(item, tree.Import)] == list(module.imports)
        assert [item for item in items if not isinstance(item, tree.Import)] == list(module.items)


@pytest.mark.parametrize("name", MISTAKES)
def test_accepts_what_lark_accepts(name: str) -> None:
    ours = InteractiveParser("module")
    theirs = LARK.parse_interactive("", start="module")
    for token in balance(scan(Source(name, MISTAKES[name])).tokens).tokens:
        assert ours.accepts(ours.states) == theirs.accepts()
        try:
            ours.feed_token(token)
        except Unfit:
            with pytest.raises(lark.UnexpectedToken):
                theirs.feed_token(token)  # type: ignore[arg-type]
            return
        except Rejected:
            return
        theirs.feed_token(token)  # type: ignore[arg-type]


def test_reading_needs_no_lark() -> None:
    code = "import sys; from reodsl.syntax import *; parse(Source('a', 'study s {}')); print('lark' in sys.modules)"
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("word", WORDS)
def test_words_of_the_language_name_settings_arguments_and_members(word: str) -> None:
    text = f"study s {{\n  {word} = f({word}: a.{word})\n  {word} += [1]\n}}\n"
    result = parse(Source("words.reo", text))
    assert result.diagnostics == ()
    first, second = result.module.items[0].block.items  # type: ignore[union-attr]
    assert first.name.name == second.name.name == word
    assert first.value.args[0].name.name == first.value.args[0].value.name.name == word


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "form", ["study {}", "reward r({}: int) {{ 1 }}", "param {}: int", "from a import {}"]
)
def test_words_of_the_language_name_nothing_else(word: str, form: str) -> None:
    codes = [d.code for d in parse(Source("words.reo", form.format(word) + "\n")).diagnostics]
    assert codes == ["E0143"]
