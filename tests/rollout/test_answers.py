"""Where boxes close: against following each box by itself, and in time that does not grow with how many stay open."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.data import After, FullText, LastBox, LastNumber
from runners.grade import readers as answers
from runners.grade.readers import box_ends
from runners.rollout.answers import bare_answers, find_answer

PIECES = [
    "a",
    " ",
    "\\",
    "boxed",
    "\\boxed{",
    "\\fbox {",
    "\\\\boxed{",
    "{",
    "}",
    "\\{",
    "\\}",
    "\\frac{1}{2}",
]


def closing(text: str, place: int) -> int | None:
    """Where the group that is open at a place closes, one character after another."""
    depth = 1
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] in "{}":
            depth += 1 if text[place] == "{" else -1
        place += 1
        if depth == 0:
            return place
    return None


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_boxes_close_where_each_does_by_itself(text: str) -> None:
    boxes = answers.BOX.finditer(text)
    ends = {box.end() if box["bare"] else closing(text, box.end()) for box in boxes}
    assert box_ends(text) == sorted(end for end in ends if end is not None)


def test_only_the_first_boxes_are_followed() -> None:
    text = "\\boxed{1}" * (answers.MOST_BOXES + 5)
    assert box_ends(text) == [9 * (number + 1) for number in range(answers.MOST_BOXES)]


def test_a_response_that_repeats_an_open_box_is_read_once() -> None:
    """As of a policy that has collapsed; each of the boxes was followed to the end."""

    def seconds(text: str) -> float:
        began = time.process_time()
        assert box_ends(text) == []
        return time.process_time() - began

    one, many = "\\boxed{" + "{ seven " * 20_000, "\\boxed{ " * 20_000
    assert min(seconds(many) for _ in range(3)) < 16 * min(seconds(one) for _ in range(3))


@pytest.mark.parametrize(
    ("pieces", "answer", "found"),
    [
        (("so ", "\\boxed{", "4", "2", "}"), "42", (2, 4, "")),
        (("4", "2", " so ", "\\boxed{4", "2}"), "42", (3, 5, "\\boxed{")),
        (("4", "2"), "7", None),
    ],
)
def test_where_an_answer_is_in_tokens(pieces, answer, found):
    """The last place counts, and what its first token has before it is told. All that hold a part of it are its own."""
    assert (
        find_answer(range(len(pieces)), lambda tokens: "".join(pieces[each] for each in tokens), answer)
        == found
    )


@pytest.mark.parametrize(
    ("reader", "pieces", "answer", "place", "found"),
    [
        (LastBox(), (b"so ", b"\\boxed{3", b"\xcf", b"\x80", b"}"), "3\u03c0", 5, (1, 4, "\\boxed{")),
        (LastNumber(), (b"so ", b"3", b"\xcf", b"\x80", b" yes"), "3\u03c0", 4, (1, 4, "")),
        (After(marker="#"), (b"# ", b"\xe2", b"\x88", b"\x9a", b"\n"), "\u221a", 4, (1, 4, "")),
        # What several boxes are joined to stands in none.
        (LastBox(), (b"\\boxed{1} ", b"and ", b"\\boxed{2}"), "1, 2", 3, None),
        (FullText(), (b"so ", b"\xe2\x88", b"\x9a"), "so \u221a", 3, (0, 3, "")),
    ],
)
def test_an_answer_ends_where_its_last_character_is_whole(reader, pieces, answer, place, found):
    """Tokens are bytes, and a character may be spread over several."""

    def decode(tokens):
        return b"".join(pieces[each] for each in tokens).decode(errors="replace")

    assert bare_answers(range(len(pieces)), decode, None, (reader,))[-1] == (place, answer)
    assert find_answer(range(place), decode, answer) == found
