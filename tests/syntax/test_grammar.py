"""The grammar itself: no conflicts, and shipped tables that are lark's of this grammar."""

from __future__ import annotations

import os
import subprocess
import sys

import lark
import pytest

from reodsl.syntax import Source, grammar, parse, tree
from reodsl.syntax.brackets import lay_out
from reodsl.syntax.build import Builder
from reodsl.syntax.tables import TABLES
from reodsl.syntax.tokens import lex
from tests.syntax.trees import SPECS, source
from tests.syntax.words import WORDS


def test_builds_without_conflicts_or_colliding_terminals() -> None:
    grammar.build_tables(strict=True)


def test_the_shipped_tables_are_those_of_the_grammar() -> None:
    built = grammar.write_tables(grammar.build_tables())
    assert TABLES.read_text() == built, "the grammar and its tables differ: run `make grammar`"


def test_the_tables_are_the_same_in_every_process() -> None:
    code = "from reodsl.syntax.grammar import *; print(write_tables(build_tables()), end='')"
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
        )
        assert out.stdout == TABLES.read_text()


def test_every_rule_has_its_method() -> None:
    for origin, length, method in grammar.build_tables().rules:
        assert hasattr(Builder, method) if method else length == 1, origin


def test_reads_what_lark_reads() -> None:
    """The automaton and the lexer against lark's own, on the same grammar."""
    reference = grammar.load_lark(transformer=Builder())
    for path in SPECS:
        text = source(path)
        lexed = lex(text)
        kept = [token for token in reference.lex(text.text) if token.type != "COMMENT"]
        assert [
            (t.type, t.text, t.span.line, t.span.column, t.span.end_line, t.span.end_column)
            for t in lexed.tokens
        ] == [(t.type, str(t), t.line, t.column, t.end_line, t.end_column) for t in kept]
        parse_state = reference.parse_interactive("", start="module").parser_state
        for token in lay_out(lexed.tokens).tokens:
            parse_state.feed_token(token)  # type: ignore[arg-type]
        _, items = parse_state.feed_token(lark.Token("$END", ""), True)
        module = parse(text).module
        assert [item for item in items if isinstance(item, tree.Import)] == list(module.imports)
        assert [item for item in items if not isinstance(item, tree.Import)] == list(module.items)


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
