"""The grammar in lark: no conflicts, lark's own lexer, and a cache that nobody else can write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lark
import pytest

from reodsl.syntax import Source, grammar, parse, tree
from reodsl.syntax.brackets import balance
from reodsl.syntax.scanner import scan
from tests.syntax.trees import SPECS, source
from tests.syntax.words import WORDS


def test_builds_without_conflicts_or_colliding_terminals() -> None:
    lark.Lark(
        grammar.GRAMMAR.read_text(),
        parser="lalr",
        lexer="basic",
        start=["expression", "module"],
        postlex=grammar.KeepAll(),
        strict=True,
    )


def test_reads_what_lark_reads() -> None:
    """The scanner and the items of a module against lark's own lexer and parser."""
    for path in SPECS:
        text = source(path)
        scanned = scan(text)
        kept = [token for token in grammar.load_grammar().lex(text.text) if token.type != "COMMENT"]
        assert [
            (t.type, t.text, t.span.line, t.span.column, t.span.end_line, t.span.end_column)
            for t in scanned.tokens
        ] == [(t.type, str(t), t.line, t.column, t.end_line, t.end_column) for t in kept]
        plain = grammar.load_grammar().parse_interactive("", start="module")
        for token in balance(scanned.tokens).tokens:
            plain.feed_token(token)  # type: ignore[arg-type]
        _, items = plain.feed_token(lark.Token("$END", ""))
        module = parse(text).module
        assert [item for item in items if isinstance(item, tree.Import)] == list(module.imports)
        assert [item for item in items if not isinstance(item, tree.Import)] == list(module.items)


READ = "from reodsl.syntax import *; r = parse(Source('a', 'study s {} }')); print(r.module.items, r.diagnostics)"


def read_with(cache: Path) -> str:
    """What a new process reads that has this folder for its cache."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", READ], env=env, check=True, capture_output=True, text=True
    ).stdout


def test_every_process_reads_the_same_whatever_is_in_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "reodsl" / "grammar.pickle"
    first = read_with(tmp_path)
    assert file.is_file()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert read_with(tmp_path) == first
    file.write_bytes(file.read_bytes()[:500])
    assert read_with(tmp_path) == first
    file.write_bytes(b"")
    assert read_with(tmp_path) == first


@pytest.mark.parametrize("fault", ["open to others", "another user", "a file", "no folder"])
def test_a_cache_that_others_could_write_is_not_read(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "reodsl"
    assert grammar.cache_file() == str(folder / "grammar.pickle")
    match fault:
        case "open to others":
            folder.chmod(0o777)
        case "another user":
            monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
        case "a file":
            folder.rmdir()
            folder.write_text("")
        case "no folder":
            monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert grammar.cache_file() is False


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
