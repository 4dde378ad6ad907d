"""The grammar itself: no conflicts, one table whether built or loaded, and caches that cannot be slipped in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import lark
import pytest

from reodsl.syntax import Source, grammar, parse, tables, tree
from reodsl.syntax.brackets import lay_out
from reodsl.syntax.build import Builder
from reodsl.syntax.tokens import lex
from tests.syntax.trees import SPECS, source
from tests.syntax.words import WORDS


def test_builds_without_conflicts_or_colliding_terminals() -> None:
    grammar.build_tables(strict=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and the path at which the tables will be looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tables.cache_path()
    assert path is not None
    return path


def fresh() -> grammar.Tables:
    """The tables as a new process gets them."""
    return tables.tables.__wrapped__()


def test_the_loaded_tables_are_the_built_ones(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = fresh()
    assert cache.is_file()
    monkeypatch.setattr(grammar, "build_tables", lambda: pytest.fail("built again"))
    loaded = fresh()
    assert json.dumps(astuple(loaded)) == json.dumps(astuple(built))


def test_every_rule_has_its_method() -> None:
    for origin, length, method in grammar.build_tables().rules:
        assert hasattr(Builder, method) if method else length == 1, origin


def test_reads_what_lark_reads() -> None:
    """The automaton and the lexer against lark's own, on the same grammar."""
    reference = lark.Lark(
        grammar.GRAMMAR.read_text(),
        parser="lalr",
        lexer="basic",
        start="module",
        keep_all_tokens=True,
        maybe_placeholders=False,
        postlex=grammar._Unfiltered(),
        transformer=Builder(),
    )
    for path in SPECS:
        text = source(path)
        lexed = lex(text)
        kept = [token for token in reference.lex(text.text) if token.type != "COMMENT"]
        assert [
            (t.type, t.text, t.span.line, t.span.column, t.span.end_line, t.span.end_column)
            for t in lexed.tokens
        ] == [(t.type, str(t), t.line, t.column, t.end_line, t.end_column) for t in kept]
        parse_state = reference.parse_interactive("").parser_state
        for token in lay_out(lexed.tokens).tokens:
            parse_state.feed_token(token)  # type: ignore[arg-type]
        _, items = parse_state.feed_token(lark.Token("$END", ""), True)
        module = parse(text).module
        assert [item for item in items if isinstance(item, tree.Import)] == list(module.imports)
        assert [item for item in items if not isinstance(item, tree.Import)] == list(module.items)


def test_reading_needs_no_lark() -> None:
    code = "import sys; from reodsl.syntax import *; parse(Source('a', 'study s {}')); print('lark' in sys.modules)"
    run = [sys.executable, "-c", code]
    subprocess.run(run, check=True, capture_output=True)  # fills the cache
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout == "False\n"


def test_the_cache_is_private(cache: Path) -> None:
    fresh()
    assert cache.stat().st_mode & 0o777 == 0o600
    assert cache.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"0\n[1, 2, 3, 4, 5]", b"\xff\0", b"[" * 100_000])
def test_a_broken_cache_is_built_over(cache: Path, content: bytes) -> None:
    cache.parent.mkdir(mode=0o700)
    cache.write_bytes(content)
    cache.chmod(0o600)
    assert tables.read_cache(cache) is None
    assert fresh().rules
    assert tables.read_cache(cache) is not None


def test_a_cache_cut_short_or_changed_is_not_read(cache: Path) -> None:
    fresh()
    data = cache.read_bytes()
    for changed in (data[:-10], data[:200] + b"7" + data[201:], data[70:]):
        cache.write_bytes(changed)
        assert tables.read_cache(cache) is None


def test_a_cache_that_others_could_have_written_is_not_read(cache: Path) -> None:
    fresh()
    assert tables.read_cache(cache) is not None
    cache.chmod(0o622)
    assert tables.read_cache(cache) is None
    cache.chmod(0o600)
    cache.parent.chmod(0o777)
    assert tables.read_cache(cache) is None


def test_a_cache_of_another_user_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert tables.read_cache(cache) is None


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    fresh()
    moved = tmp_path / "elsewhere.json"
    cache.rename(moved)
    cache.symlink_to(moved)
    assert tables.read_cache(cache) is None


def test_a_pipe_in_the_cache_does_not_hang(cache: Path) -> None:
    cache.parent.mkdir(mode=0o700)
    os.mkfifo(cache, 0o600)
    assert tables.read_cache(cache) is None


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    assert fresh().rules


def test_the_key_changes_with_the_grammar(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "grammar.lark"
    other.write_text("// another\n")
    monkeypatch.setattr(grammar, "GRAMMAR", other)
    assert tables.cache_path() != cache


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
