"""The lexer for Pygments: every text comes back whole, every spec without an Error token, as an entry point."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.token import Error, Keyword, Name, Number

from reodsl.highlight import ReoLexer

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted([*ROOT.glob("specs/**/*.reo"), *ROOT.glob("stdlib/**/*.reo")])


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_a_spec_has_no_error_tokens_and_comes_back_whole(spec: Path) -> None:
    pieces = list(ReoLexer(ensurenl=False, stripnl=False).get_tokens(spec.read_text()))
    assert "".join(piece for _, piece in pieces) == spec.read_text()
    assert [piece for token, piece in pieces if token in Error] == []


@pytest.mark.parametrize(
    "text", ["", "\n", 'a = "open', '"""open\n', "x = 'é' ?? €\r\n", "\ud7ff\U0001f600 = 1"]
)
def test_whatever_is_given_comes_back_whole(text: str) -> None:
    pieces = [piece for _, _, piece in ReoLexer().get_tokens_unprocessed(text)]
    assert "".join(pieces) == text


def test_words_have_their_colours() -> None:
    pieces = list(ReoLexer().get_tokens("experiment mine = rl { steps = 3 steps }  # so\n"))
    assert (Keyword, "experiment") in pieces
    assert (Name.Class, "mine") in pieces
    assert (Name.Attribute, "steps") in pieces
    assert (Number, "3") in pieces
    assert any(token in Error for token, _ in ReoLexer().get_tokens("a = 1 ? 2"))
    assert 'class="k"' in highlight("study s {}", ReoLexer(), HtmlFormatter())


def test_it_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pygments.lexers"] == {"reo": "reodsl.highlight:ReoLexer"}
    assert "reo" in ReoLexer.aliases
    assert ReoLexer.filenames == ["*.reo"]
