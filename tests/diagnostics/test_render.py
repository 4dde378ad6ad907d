"""Diagnostics as a person and as a program get them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics import Diagnostic, Label, Span, error, note, warning
from reodsl.diagnostics.render import Excerpt, render, sort_diagnostics, summary, to_json, visible

SPEC = """\
# budgets
budgets five = exp(from: l_min, to: 64K tokens, n: n)
\trollout { max_tokens = 32K tokens }

name = "世界é" + "\x1b[31m\u202e" # wide, and what a terminal must not get
"""
SPEC += "x" * 200 + " = wrong + " + "y" * 200 + "\n"
OTHER = "\n" * 120 + "edge = 64K tokens\n"
SOURCES = {"specs/a.reo": SPEC, "specs/b.reo": OTHER}


def at(line: int, column: int, width: int = 1, path: str = "specs/a.reo", lines: int = 0) -> Span:
    return Span(path, line, column, line + lines, column + width)


CASES: dict[str, list[Diagnostic]] = {
    "two_places": [
        error(
            "E0402",
            "a budget lies past the longest response",
            at(2, 37, 10),
            "65536 tokens",
            labels=[Label(at(3, 25, 10), "32768 tokens, set here")],
            help="write `to: 32K tokens`, or raise `max_tokens`",
        )
    ],
    "two_files": [
        error(
            "E0402",
            "a budget lies past the longest response",
            at(2, 37, 10),
            "65536 tokens",
            labels=[
                Label(at(121, 8, 10, "specs/b.reo"), "the frontier ends here"),
                Label(at(121, 1, 4, "specs/b.reo")),
            ],
        )
    ],
    "notes_and_help": [
        note(
            "N0807",
            "differs from the paper's table",
            at(2, 16, 3),
            notes=["Table 5 says 5e-6", "one\ntwo"],
            help="fine",
        )
    ],
    "no_place": [
        error("E0801", "no weights", help="download them"),
        warning("W0701", "odd row", where="data.csv, row 3"),
    ],
    "place_and_where": [error("E0701", "odd", at(2, 1, 7), where="data.csv, row 3")],
    "unknown_file": [
        error(
            "E0201", "odd", at(2, 1, 7, "gone.reo"), "here", labels=[Label(at(9, 1, 2, "lost.reo"), "there")]
        )
    ],
    "line_out_of_the_file": [error("E0201", "odd", at(999, 1), "here")],
    "same_line_twice": [error("E0201", "odd", at(2, 37, 10), "late", labels=[Label(at(2, 9, 4), "early")])],
    "over_lines": [error("E0201", "odd", at(2, 16, 3, lines=2), "from here")],
    "long_line": [
        error(
            "E0201",
            "odd",
            at(6, 204, 5),
            "here",
            labels=[Label(at(6, 1, 3), "start"), Label(at(6, 408, 4), "end")],
        )
    ],
    "tabs_wide_and_control": [
        error(
            "E0201",
            "odd \x1b[31m",
            at(5, 8, 5),
            "wide",
            labels=[Label(at(5, 16, 8), "control"), Label(at(3, 2, 7), "tab")],
        )
    ],
    "behind_the_end": [
        error("E0201", "odd", at(4, 1), "an empty line"),
        error("E0201", "odd", at(3, 37, 1), "the end"),
    ],
    "several_in_order": [
        note("N0807", "third", at(2, 16)),
        error("E0202", "second", at(2, 9)),
        error("E0201", "first", at(1, 3)),
        error("E0201", "first", at(1, 3)),
        warning("W0101", "other file", at(121, 1, 4, "specs/b.reo")),
        error("E0801", "without a place"),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_looks_as_it_did(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"diagnostics/{name}.txt", render(CASES[name], SOURCES))


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_a_source_controls_the_terminal(name: str) -> None:
    shown = render(CASES[name], SOURCES)
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert max(map(len, shown.split("\n"))) <= 130


def test_color_is_only_added() -> None:
    plain, colored = render(CASES["two_places"], SOURCES), render(CASES["two_places"], SOURCES, color=True)
    assert "\x1b[" not in plain
    bare = colored
    for code in ("1;31", "1", "34", "36", "0"):
        bare = bare.replace(f"\x1b[{code}m", "")
    assert bare == plain


def test_the_example_of_the_language() -> None:
    assert render(CASES["two_places"], SOURCES).splitlines() == [
        "error[E0402]: a budget lies past the longest response",
        " --> specs/a.reo:2:37",
        "2 | budgets five = exp(from: l_min, to: 64K tokens, n: n)",
        "  |                                     ^^^^^^^^^^ 65536 tokens",
        "3 |     rollout { max_tokens = 32K tokens }",
        "  |                            ---------- 32768 tokens, set here",
        "  = help: write `to: 32K tokens`, or raise `max_tokens`",
    ]


def test_nothing_to_show() -> None:
    assert render([], {}) == ""
    assert summary([]) == ""
    assert to_json([]) == []


def test_counted() -> None:
    assert summary(CASES["several_in_order"]) == "3 errors, 1 warning, 1 note"


def test_sorted_by_place_and_said_once() -> None:
    ordered = sort_diagnostics(CASES["several_in_order"])
    assert [d.message for d in ordered] == ["without a place", "first", "second", "third", "other file"]
    assert sort_diagnostics(reversed(ordered)) == ordered


def test_as_data() -> None:
    (found,) = to_json(CASES["two_places"])
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "code": "E0402",
        "severity": "error",
        "message": "a budget lies past the longest response",
        "labels": [
            {
                "path": "specs/a.reo",
                "line": 2,
                "column": 37,
                "end_line": 2,
                "end_column": 47,
                "text": "65536 tokens",
            },
            {
                "path": "specs/a.reo",
                "line": 3,
                "column": 25,
                "end_line": 3,
                "end_column": 35,
                "text": "32768 tokens, set here",
            },
        ],
        "where": None,
        "notes": [],
        "help": "write `to: 32K tokens`, or raise `max_tokens`",
    }


lines = st.text(st.characters(exclude_characters="\n"), max_size=300)


@given(lines, st.integers(1, 310), st.integers(0, 310), st.integers(20, 120))
def test_the_mark_is_under_what_is_meant(line: str, column: int, width: int, room: int) -> None:
    excerpt = Excerpt.around(line, at(1, column, width), room)
    assert visible(excerpt.text) == excerpt.text
    assert excerpt.mark_column >= 0
    assert excerpt.mark_width >= 1
    assert excerpt.mark_column + excerpt.mark_width <= room + 3
    ascii_only = all(" " <= character <= "~" for character in line)
    if ascii_only and column <= len(line):
        assert excerpt.text[excerpt.mark_column] == line[column - 1]
        assert len(excerpt.text) <= room


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_notes_and_help_are_laid_for_a_terminal(columns: int) -> None:
    """No word is broken, and without a terminal each stays one line."""
    words = " ".join(f"word{at}-of-it" for at in range(40))
    finding = error("E0101", "short", Span("a.reo", 1, 1, 1, 2), notes=[f"{words} too"], help=words)
    text = render([finding], {"a.reo": "a = 1"}, columns=columns)
    assert max(map(len, text.split("\n"))) <= columns
    assert text.split().count("word7-of-it") == 2
    assert max(map(len, render([finding], {"a.reo": "a = 1"}).split("\n"))) > 140
