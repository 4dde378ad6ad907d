"""Markdown of names and values that others chose, read by a parser of another: each is shown as it is, and never markup."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reodsl.diagnostics.render import MOST_CHARACTERS, code, document, table, visible

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")
HOSTILE = [
    "`", "``` ", "|", "\\|", "\\\\|`", "a | b", "<script>alert(1)</script>", "<!-- ", "</code><img src=x>", "&lt;&#124;",
    "[x](http://y)", "![x](y)", "@somebody #12 https://evil.example www.evil.example", "# head", "| --- |", "1. a",
    "*a* _b_ ~~c~~", " lead", "trail ", "\x1b[31m", "\u202eevil", "\r", "\u2028", "$\\LaTeX$", ":+1:",
]  # fmt: skip


def shown(token: Token) -> str:
    """The text of a line as a browser has it; fails on markup other than code."""
    text = ""
    for each in token.children or ():
        if each.type == "html_inline":
            assert each.content in ("<code>", "</code>", "<br>")
            text += "\n" if each.content == "<br>" else ""
        else:
            assert each.type in ("code_inline", "text"), each.type
            text += each.content
    return text


def displayed(text: str) -> str:
    """What a reader has of a text: its lines but the empty ones, with what is invisible spelt."""
    return "\n".join(line for line in map(visible, text.split("\n")) if line.strip())


def cells(text: str) -> list[list[str]]:
    """The rows of the one table that a text is."""
    tokens = PARSER.parse(text)
    assert [tokens[0].type, tokens[-1].type] == ["table_open", "table_close"]
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(shown(token))
    return rows


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_shown_as_it_is(text: str) -> None:
    assert cells("\n".join(table(("a", text), [(text, "b")]))) == [["a", visible(text)], [visible(text), "b"]]
    (_, line, _) = PARSER.parse(code(text))
    assert shown(line) == visible(text)


@given(st.lists(st.lists(st.text(max_size=20), min_size=2, max_size=2), max_size=4))
def test_a_table_has_the_cells_that_it_was_given(rows: list[list[str]]) -> None:
    text = "\n".join(table(("one", "two"), rows))
    wanted = [[displayed(cell) for cell in row] for row in rows]
    assert cells(text) == [["one", "two"], *wanted]


@given(st.text(alphabet="`|\\<>&*_[]()! \n#ab", max_size=30))
def test_markup_is_no_markup_outside_a_table_either(text: str) -> None:
    for token in PARSER.parse(f"- {code(text)}"):
        if token.type == "inline":
            assert shown(token) == displayed(text)


def test_what_no_parser_knows_but_github_stays_code() -> None:
    """Mentions and addresses are made links everywhere but in code."""
    for text in ("@somebody", "a|@somebody", "https://evil.example"):
        assert re.fullmatch(r"`.*`|<code>.*</code>", code(text, "`|"))
        assert html.unescape(re.sub("<[^>]*>|`", "", code(text, "`|"))) == text


def test_a_document_is_bounded_and_says_so() -> None:
    rows = [("|" * 5000, str(number)) for number in range(50)]
    text = document([["### x"], table(("a", "b"), rows), ["- y"]])
    assert len(text) < MOST_CHARACTERS + 100
    assert text.endswith("more lines are too long for this page.")
    assert "…" in html.unescape(text)
    assert document([["a"], [], ["b"]]) == "a\n\nb"
