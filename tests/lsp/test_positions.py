"""An editor's places to a source's and back: UTF-16 by default, the other units when agreed, past every end."""

from __future__ import annotations

import pytest

from reodsl.diagnostics.model import Span
from reodsl.lsp.analysis import Position, find_position, lines_of, range_of, range_of_text, units

TEXT = 'a = "é😀x" # b\r\nc\u2028d\n'


@pytest.mark.parametrize(("encoding", "before_x"), [("utf-16", 8), ("utf-8", 11), ("utf-32", 7)])
def test_characters_before_a_place_count_in_the_units_agreed(encoding: str, before_x: int) -> None:
    # `a = "` is 5 units in each; é is 1, 2, 1 and the face 2, 4, 1.
    assert find_position(TEXT, Position(0, before_x), encoding) == (1, 8)
    span = Span("", 1, 8, 1, 9)
    assert range_of(TEXT, span, encoding).start == Position(0, before_x)
    assert range_of(TEXT, span, encoding).end == Position(0, before_x + 1)


def test_a_place_inside_of_a_pair_is_the_character() -> None:
    assert find_position(TEXT, Position(0, 6)) == find_position(TEXT, Position(0, 7)) == (1, 7)


def test_what_lies_past_an_end_is_the_end() -> None:
    assert find_position(TEXT, Position(0, 99)) == (1, len('a = "é😀x" # b') + 1)
    assert find_position(TEXT, Position(9, 0)) == (3, 1)
    assert range_of("ab", Span("", 1, 3, 2, 1)).end == Position(0, 2)
    assert range_of("ab", None).end == Position(0, 0)


def test_only_line_ends_end_lines() -> None:
    assert lines_of(TEXT) == ('a = "é😀x" # b', "c\u2028d", "")
    assert lines_of("a\rb") == ("a", "b")
    assert range_of_text(TEXT).end == Position(2, 0)
    assert range_of_text("😀").end == Position(0, 2)


def test_a_lone_half_of_a_pair_counts_as_one() -> None:
    assert units("\ud83d") == 1
