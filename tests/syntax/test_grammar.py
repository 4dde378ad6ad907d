"""The grammar itself: no conflicts, one table whether built or loaded, and caches that cannot be slipped in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from reodsl.syntax import Source, grammar, parse
from reodsl.syntax.walk import same
from tests.syntax.trees import SPECS, source
from tests.syntax.words import WORDS


def test_builds_without_conflicts_or_colliding_terminals() -> None:
    grammar.build_parser(strict=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and the path at which the parser will be looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grammar, "parser", grammar.parser.__wrapped__)
    path = grammar.cache_path()
    assert path is not None
    return path


def test_the_loaded_parser_reads_as_the_built_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = grammar.parser()
    assert cache.is_file()
    monkeypatch.setattr(grammar, "build_parser", lambda: pytest.fail("built again"))
    loaded = grammar.parser()
    reading = sys.modules["reodsl.syntax.parse"]  # `reodsl.syntax.parse` is the function
    for path in SPECS:
        text = source(path)
        monkeypatch.setattr(reading, "parser", lambda: built)
        first = parse(text)
        monkeypatch.setattr(reading, "parser", lambda: loaded)
        assert same(first.module, parse(text).module)
        assert [str(token) for token in built.lex(text.text)] == [
            str(token) for token in loaded.lex(text.text)
        ]


def test_the_cache_is_private(cache: Path) -> None:
    grammar.parser()
    assert cache.stat().st_mode & 0o777 == 0o600
    assert cache.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"data": {}, "memo": {}}', '{"data": 1, "memo": 2}', "\0"]
)
def test_a_broken_cache_is_built_over(cache: Path, content: str) -> None:
    cache.parent.mkdir(mode=0o700)
    cache.write_text(content)
    cache.chmod(0o600)
    assert grammar.parser().parse_interactive("", start="module") is not None
    assert json.loads(cache.read_text())["data"]["rules"]


def test_a_cache_that_others_could_have_written_is_not_read(cache: Path) -> None:
    grammar.parser()
    assert grammar.read_cache(cache) is not None
    cache.chmod(0o622)
    assert grammar.read_cache(cache) is None
    cache.chmod(0o600)
    cache.parent.chmod(0o777)
    assert grammar.read_cache(cache) is None


def test_a_cache_of_another_user_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar.parser()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert grammar.read_cache(cache) is None


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    grammar.parser()
    moved = tmp_path / "elsewhere.json"
    cache.rename(moved)
    cache.symlink_to(moved)
    assert grammar.read_cache(cache) is None


def test_a_pipe_in_the_cache_does_not_hang(cache: Path) -> None:
    cache.parent.mkdir(mode=0o700)
    os.mkfifo(cache, 0o600)
    assert grammar.read_cache(cache) is None


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    assert grammar.parser.__wrapped__() is not None


def test_the_key_changes_with_the_grammar(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "grammar.lark"
    other.write_text("// another\n")
    monkeypatch.setattr(grammar, "_GRAMMAR", other)
    assert grammar.cache_path() != cache


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
